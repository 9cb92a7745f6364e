//! Numbers of the ledger's causes, as they stand in kernel records and index the ledger.

/// On a CPU.
pub const CPU: u8 = 0;
/// Asleep in a system call.
pub const SYSCALL: u8 = 1;
/// Asleep in a futex wait.
pub const LOCK: u8 = 2;
/// Waiting for the global interpreter lock.
pub const GIL: u8 = 3;
/// Asleep outside a system call: a page fault.
pub const FAULT: u8 = 4;
/// Runnable but not running.
pub const RUNQUEUE: u8 = 5;
/// Out of CPU quota.
pub const THROTTLED: u8 = 6;
/// Stopped by a signal, a tracer or the freezer.
pub const STOPPED: u8 = 7;
/// Not accounted for.
pub const UNEXPLAINED: u8 = 8;
/// How many causes there are.
pub const COUNT: usize = 9;
