//! What a stalled thread waited for, and who made it wait: records beside the turn's own.
//!
//! They are collected in the kernel while a turn lasts, for its longest waits only, and sent
//! before the [`TurnRecord`](crate::record::TurnRecord) if the turn was a stall.

use crate::record::Header;

/// Bytes of what a system call was given in memory: a path, an address, a list of descriptors.
pub const GIVEN_BYTES: usize = 4096;
/// Bytes of a path that was walked; a last name may begin before and end after.
pub const WALKED_BYTES: usize = 4096;
/// Longest name of a directory entry, its end included.
pub const NAME_BYTES: usize = 256;
/// Resources of a thread's turn: one is always free for the next sleep, the others are of the
/// system calls with the longest sleeps.
pub const RESOURCES: usize = 5;
/// Names of a task.
pub const COMM_BYTES: usize = 16;
/// Others that ran instead of a thread, those with the longest times.
pub const RIVALS: usize = 8;
/// Words of memory at a futex's address.
pub const FUTEX_WORDS: usize = 8;

/// A task that was not looked at by its pointer but by what it was called.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Other {
    /// Process id; 0 if nobody (or the idle task).
    pub tgid: u32,
    /// Thread id.
    pub tid: u32,
    /// Its name, ended by a zero if shorter.
    pub comm: [u8; COMM_BYTES],
}

/// Who woke a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waker {
    /// When; 0 if nobody was seen.
    pub time_ns: u64,
    /// The current task of the CPU that the wake-up came from.
    pub who: Other,
    /// The system call it was in, negative if none.
    pub nr: i32,
    /// `WAKER_*`.
    pub flags: u32,
}

/// It is a thread of the kernel.
pub const WAKER_KERNEL: u32 = 1;
/// It is exiting.
pub const WAKER_EXITS: u32 = 2;
/// It is a child of the woken thread's process.
pub const WAKER_CHILD: u32 = 4;
/// It is a thread of the same process, in a futex call on the address that the woken thread waits
/// for, or exiting.
pub const WAKER_RELEASES: u32 = 8;

/// What a descriptor stands for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Inode number.
    pub inode: u64,
    /// Magic number of the file system.
    pub magic: u64,
    /// Device number of a device.
    pub device: u32,
    /// Type and permissions, as `stat` has them; 0 if there is no such descriptor.
    pub mode: u32,
    /// Address family of a socket.
    pub family: u16,
    /// `SOCK_*`.
    pub socket_type: u16,
    /// `IPPROTO_*`.
    pub protocol: u16,
    /// Own port.
    pub own_port: u16,
    /// The other side's port.
    pub peer_port: u16,
    /// State of the connection.
    pub state: u8,
    /// Non-zero: the file lies in no folder (a pipe, an eventfd …) and has at most a name.
    pub pseudo: u8,
    /// Process at the other side of a Unix socket.
    pub peer_pid: u32,
    /// Own address: 4 bytes or 16.
    pub own: [u8; 16],
    /// The other side's.
    pub peer: [u8; 16],
    /// Bytes used in `own_name`.
    pub own_name_len: u32,
    /// Bytes used in `peer_name`.
    pub peer_name_len: u32,
    /// Own address of a Unix socket, family included.
    pub own_name: [u8; 112],
    /// The other side's.
    pub peer_name: [u8; 112],
}

impl Object {
    /// No object.
    pub const NONE: Self = Self {
        inode: 0,
        magic: 0,
        device: 0,
        mode: 0,
        family: 0,
        socket_type: 0,
        protocol: 0,
        own_port: 0,
        peer_port: 0,
        state: 0,
        pseudo: 0,
        peer_pid: 0,
        own: [0; 16],
        peer: [0; 16],
        own_name_len: 0,
        peer_name_len: 0,
        own_name: [0; 112],
        peer_name: [0; 112],
    };
}

/// The resource of the longest sleep in one system call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// Which record and thread it is. `extra`: the turn.
    pub header: Header,
    /// How long this sleep was.
    pub slept_ns: u64,
    /// The system call; negative: a page fault, in the stack with the number in `args[0]`.
    pub nr: i32,
    /// Bytes used in `given`.
    pub given_len: u32,
    /// Arguments of the call.
    pub args: [u64; 6],
    /// Bytes used in `walked`.
    pub walked_len: u32,
    /// The descriptor that `object` is of; negative if none.
    pub fd: i32,
    /// Who ended the sleep.
    pub waker: Waker,
    /// What the descriptor stands for.
    pub object: Object,
    /// What the call was given in memory.
    pub given: [u8; GIVEN_BYTES],
    /// Names from the innermost to the root, each ended by a zero: of the descriptor's file, or of
    /// the folder that `given` is relative to.
    pub walked: [u8; WALKED_BYTES + NAME_BYTES],
}

/// Another that had the CPU while the thread waited for it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rival {
    /// Time the thread waited; an upper bound if others had to make room for it.
    pub ns: u64,
    /// Which.
    pub who: Other,
}

/// The longest wait for a futex in a turn.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWait {
    /// How long; 0 if there was none to speak of.
    pub ns: u64,
    /// Address of the futex.
    pub address: u64,
    /// Memory there when the wait began.
    pub words: [u32; FUTEX_WORDS],
    /// The stack in its turn's table that waited.
    pub stack: u32,
    /// Whether the memory could be read.
    pub readable: u32,
    /// Who ended the wait.
    pub waker: Waker,
}

/// Everything but resources that is known of a turn's waits.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// Which record and thread it is. `extra`: the turn.
    pub header: Header,
    /// The longest wait for a lock.
    pub lock: LockWait,
    /// Who ran instead.
    pub rivals: [Rival; RIVALS],
    /// Who traces the thread, if it was stopped by a tracer.
    pub tracer: Other,
    /// Who sent the signal that stopped it.
    pub stopper: Other,
    /// That signal; 0 if there was none.
    pub stop_signal: u32,
    /// Non-zero: it was frozen.
    pub frozen: u32,
}

/// The kernel side's notes on one thread's waits.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Notes {
    /// What is sent.
    pub waits: Waits,
    /// System calls of the resources that are kept.
    pub kept_nr: [i32; RESOURCES],
    /// The free one among them.
    pub spare: u32,
    /// Their sleeps; 0 marks a free one.
    pub kept_ns: [u64; RESOURCES],
    /// The wait that goes on: memory at its futex.
    pub words: [u32; FUTEX_WORDS],
    /// Address of that futex; 0 if it waits for none.
    pub address: u64,
    /// Whether `words` could be read.
    pub readable: u32,
    /// Non-zero: `spare` describes the sleep that goes on.
    pub described: u32,
    /// Who got the CPU when the thread lost it.
    pub next: Other,
    /// Time its groups had been throttled when it was switched out.
    pub throttled_ns: u64,
    /// Its thread id.
    pub tid: u32,
    /// Explicit padding.
    pub reserved: u32,
}

/// What a waker writes, who runs on another CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// The last wake-up.
    pub waker: Waker,
    /// Time the thread's groups had been throttled by then.
    pub throttled_ns: u64,
    /// Turn that the holder's capture belongs to.
    pub holder_turn: u64,
    /// The wait that it ended.
    pub holder_ns: u64,
}

/// A signal that stops.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopper {
    /// When it was sent.
    pub time_ns: u64,
    /// By whom.
    pub who: Other,
    /// Which.
    pub signal: u32,
    /// Explicit padding.
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<Other>() == 24);
    assert!(size_of::<Waker>() == 40);
    assert!(size_of::<Object>() == 16 + 8 + 12 + 4 + 32 + 8 + 224);
    assert!(
        size_of::<Resource>()
            == 32 + 16 + 48 + 8 + 40 + 304 + GIVEN_BYTES + WALKED_BYTES + NAME_BYTES
    );
    assert!(size_of::<LockWait>() == 16 + 4 * FUTEX_WORDS + 8 + 40);
    assert!(size_of::<Waits>() == 32 + 96 + RIVALS * 32 + 48 + 8);
    assert!(size_of::<Notes>() == size_of::<Waits>() + 24 + 40 + 32 + 16 + 24 + 16);
    assert!(size_of::<Wake>() == 64);
    assert!(size_of::<Stopper>() == 40);
};
