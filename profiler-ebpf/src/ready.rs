//! How many sockets a loop's epoll instance had ready when a stall ended: those that the stall kept waiting.
//!
//! What a poll returns is seen by nobody without a program on every poll's return. The instance's own list
//! of what may be ready is there to be read instead, and is read when a stall has ended and at no other
//! time. It also holds what the last poll returned, until the next one looks again; so each socket on it is
//! asked whether it has something to read or to accept. Of other descriptors that can't be told.

use aya_ebpf::helpers::generated::bpf_get_current_pid_tgid;
use profiler_common::layout::ABSENT;

use crate::object::{self, pointer};
use crate::task;
use crate::waits::layout;

/// Entries that are looked at.
const MOST: usize = 32;
/// `EPOLLIN`
const IN: u32 = 1;
/// `S_IFMT` and `S_IFSOCK`
const TYPE: u16 = 0o170_000;
const SOCKET: u16 = 0o140_000;
/// `TCP_LISTEN`
const LISTENS: u8 = 10;

/// One more than the number of ready sockets in the epoll instance that a thread parks in, which is
/// descriptor `home` less one; 0 if it is not known.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn ready_sockets(home: u32, tid: u32) -> u32 {
    // SAFETY: the helper has no preconditions.
    if home == 0 || tid != unsafe { bpf_get_current_pid_tgid() } as u32 {
        return 0;
    }
    let first = layout!(epoll_ready);
    if first == ABSENT || layout!(item_link) == ABSENT || layout!(item_file) == ABSENT {
        return 0;
    }
    let instance = pointer(object::file(task::current(), home - 1), layout!(file_private));
    if instance.is_null() {
        return 0;
    }
    let head = instance.wrapping_add(first as usize);
    let mut entry = pointer(head, 0);
    let mut count = 1_u32;
    for _ in 0..MOST {
        if entry == head {
            break;
        }
        let item = entry.wrapping_sub(layout!(item_link) as usize);
        count += ready(item);
        entry = at(entry, 0);
    }
    count
}

/// 1 if an entry of the list is a socket that has something to read or to accept, else 0. Without a
/// branch for each question: the verifier would follow them all, in each turn of the loop.
#[inline(always)]
fn ready(item: *const u8) -> u32 {
    let wants: u32 = at(item, layout!(item_events));
    let file: *const u8 = at(item, layout!(item_file));
    let inode: *const u8 = at(file, layout!(file_inode));
    let mode: u16 = at(inode, layout!(inode_mode));
    let socket: *const u8 = at(file, layout!(file_private));
    let sock: *const u8 = at(socket, layout!(socket_sock));
    // A listener's connections wait in a queue of their own (the internet's) or in the common one.
    let received: u32 = at(sock, layout!(sock_receive_length));
    let family: u16 = at(sock, layout!(sock_family));
    let state: u8 = at(sock, layout!(sock_state));
    let accept: u64 = at(sock, layout!(sock_accept_first));
    let internet = is_zero(u64::from(family) ^ 2) | is_zero(u64::from(family) ^ 10);
    let to_accept = internet & is_zero(u64::from(state ^ LISTENS)) & !is_zero(accept);
    let is_socket = is_zero(u64::from(mode & TYPE ^ SOCKET));
    (wants & IN) & (is_socket & (!is_zero(u64::from(received)) | to_accept)) as u32
}

/// All bits if it is zero, else none; a comparison would be a branch.
#[inline(always)]
fn is_zero(value: u64) -> u64 {
    ((value | value.wrapping_neg()) >> 63).wrapping_sub(1)
}

/// What lies at an offset; zero if it can't be read, as behind a null or in what the kernel does not have.
#[inline(always)]
fn at<T: Copy>(base: *const u8, offset: u32) -> T {
    // SAFETY: a checked read; integers and pointers may be zero.
    unsafe { task::read(base.wrapping_add(offset as usize), core::mem::zeroed()) }
}
