//! What a descriptor of a thread stands for: a file, a pipe, a socket with its addresses.

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use profiler_common::layout::ABSENT;
use profiler_common::waits::{Object, Resource};

use crate::task::{self, Task};
use crate::waits::layout;
use crate::walk;

/// `S_IFMT` and `S_IFSOCK`.
const TYPE: u32 = 0o170_000;
const SOCKET: u32 = 0o140_000;
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// A kernel address.
type Address = *const u8;

/// A field at an address; `default` where the kernel has no such field or it can't be read.
#[inline(always)]
pub(crate) fn field<T: Copy>(base: Address, offset: u32, default: T) -> T {
    if offset == ABSENT || base.is_null() {
        return default;
    }
    // SAFETY: a checked read at the field's offset.
    unsafe { task::read(base.wrapping_add(offset as usize), default) }
}

#[inline(always)]
pub(crate) fn pointer(base: Address, offset: u32) -> Address {
    field(base, offset, core::ptr::null())
}

/// Describes a descriptor of a thread in `resource`.
#[inline(always)]
pub(crate) fn describe(resource: &mut Resource, thread: Task) {
    if resource.fd < 0 {
        return;
    }
    let file = file(thread, resource.fd as u32);
    if !file.is_null() {
        describe_file(resource, file, thread);
    }
}

/// The open file behind a descriptor; null if there is none.
#[inline(always)]
pub(crate) fn file(thread: Task, fd: u32) -> Address {
    let table = pointer(pointer(thread, layout!(task_files)), layout!(files_table));
    let files = pointer(table, layout!(table_files));
    if fd >= field(table, layout!(table_max), 0_u32) || files.is_null() {
        return core::ptr::null();
    }
    pointer(files.wrapping_add(fd as usize * 8), 0)
}

/// Describes an open file in `resource`.
#[inline(always)]
pub(crate) fn describe_file(resource: &mut Resource, file: Address, thread: Task) {
    let inode = pointer(file, layout!(file_inode));
    let object = &mut resource.object;
    object.mode = u32::from(field(inode, layout!(inode_mode), 0_u16));
    object.inode = field(inode, layout!(inode_number), 0);
    object.device = field(inode, layout!(inode_device), 0);
    object.magic = field(pointer(inode, layout!(inode_super)), layout!(super_magic), 0);
    if object.mode & TYPE == SOCKET {
        socket(object, pointer(pointer(file, layout!(file_private)), layout!(socket_sock)));
        return;
    }
    let start = walk::Place {
        dentry: pointer(file, layout!(file_dentry)),
        mount: pointer(file, layout!(file_mount)),
    };
    walk::up(resource, thread, start);
}

#[inline(always)]
fn socket(object: &mut Object, sock: Address) {
    object.family = field(sock, layout!(sock_family), 0);
    object.socket_type = field(sock, layout!(sock_type), 0);
    object.protocol = field(sock, layout!(sock_protocol), 0);
    object.state = field(sock, layout!(sock_state), 0);
    match object.family {
        AF_INET | AF_INET6 => {
            object.own_port = field(sock, layout!(sock_own_port), 0);
            object.peer_port = u16::from_be(field(sock, layout!(sock_peer_port), 0));
            if object.family == AF_INET {
                let own: [u8; 4] = field(sock, layout!(sock_own_v4), [0; 4]);
                let peer: [u8; 4] = field(sock, layout!(sock_peer_v4), [0; 4]);
                object.own[..4].copy_from_slice(&own);
                object.peer[..4].copy_from_slice(&peer);
            } else {
                object.own = field(sock, layout!(sock_own_v6), [0; 16]);
                object.peer = field(sock, layout!(sock_peer_v6), [0; 16]);
            }
        }
        AF_UNIX => {
            let pid = pointer(sock, layout!(sock_peer_pid));
            if !pid.is_null() && layout!(pid_numbers) != ABSENT {
                let numbers = pid.wrapping_add(layout!(pid_numbers) as usize);
                object.peer_pid = field(numbers, layout!(upid_number), 0);
            }
            object.own_name_len = unix_name(&mut object.own_name, sock);
            let peer = pointer(sock, layout!(unix_peer));
            object.peer_name_len = unix_name(&mut object.peer_name, peer);
        }
        _ => {}
    }
}

/// Copies the address that a Unix socket is bound to; returns its length, 0 if it is not bound.
#[inline(always)]
fn unix_name(name: &mut [u8; 112], sock: Address) -> u32 {
    let address = pointer(sock, layout!(unix_address));
    let length: u32 = field(address, layout!(unix_address_len), 0);
    if address.is_null() || length == 0 || layout!(unix_address_name) == ABSENT {
        return 0;
    }
    let from = address.wrapping_add(layout!(unix_address_name) as usize);
    // `struct sockaddr_un` has 110 bytes; what was not bound is zero or belongs to another object.
    // SAFETY: a checked read into a buffer of that size.
    let failed = unsafe { bpf_probe_read_kernel((&raw mut *name).cast(), 112, from.cast()) } != 0;
    if failed || length > 110 { 0 } else { length }
}
