//! x86-64: `struct pt_regs` (Linux `arch/x86/include/asm/ptrace.h`, stable since 2.6) and the
//! system call numbers of `arch/x86/entry/syscalls/syscall_64.tbl`.

/// Words in `struct pt_regs`:
/// r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp ss.
pub const REG_WORDS: usize = 21;
/// Size of `struct pt_regs` in bytes.
pub const REGS_BYTES: u64 = REG_WORDS as u64 * 8;
/// Size of a kernel stack (`THREAD_SIZE`) without KASAN; only used before Linux 5.15, which has
/// a helper that finds the registers.
pub const KERNEL_STACK_BYTES: u64 = 16384;

/// Where `struct pthread`, which `pthread_self` points to, keeps the thread id: in glibc (`tid`, the same
/// from 2.4 on), and in musl. What is read there counts only if it is the id of a thread of the process.
pub const PTHREAD_TID: [u64; 2] = [0x2d0, 0x30];

/// Bytes below the stack pointer that belong to the function on top (psABI, section 3.2.2).
pub const RED_ZONE: u64 = 128;

const R10: usize = 7;
const R8: usize = 9;
const R9: usize = 8;
const DX: usize = 12;
const SI: usize = 13;
const DI: usize = 14;
const ORIG_AX: usize = 15;
const IP: usize = 16;
const CS: usize = 17;
const SP: usize = 19;

/// The user registers of a thread at its last entry into the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserRegs(pub [u64; REG_WORDS]);

impl UserRegs {
    /// All zero.
    pub const ZERO: Self = Self([0; REG_WORDS]);

    /// Number of the system call the thread is in; negative if it entered by an interrupt or a
    /// fault (the entry code stores -1 then).
    #[inline(always)]
    #[must_use]
    pub const fn syscall(&self) -> i64 {
        self.0[ORIG_AX] as i64
    }

    /// Instruction pointer.
    #[inline(always)]
    #[must_use]
    pub const fn ip(&self) -> u64 {
        self.0[IP]
    }

    /// Stack pointer.
    #[inline(always)]
    #[must_use]
    pub const fn sp(&self) -> u64 {
        self.0[SP]
    }

    /// Whether these registers are of user mode (privilege level 3).
    #[inline(always)]
    #[must_use]
    pub const fn is_user(&self) -> bool {
        self.0[CS] & 3 == 3
    }

    /// The six arguments of the system call.
    #[inline(always)]
    #[must_use]
    pub const fn args(&self) -> [u64; 6] {
        [self.0[DI], self.0[SI], self.0[DX], self.0[R10], self.0[R8], self.0[R9]]
    }

    /// The first argument of the system call.
    #[inline(always)]
    #[must_use]
    pub const fn arg0(&self) -> u64 {
        self.0[DI]
    }

    /// Whether these are the arguments of an `io_uring_enter` that waits: `min_complete` is not
    /// zero and the flags have `IORING_ENTER_GETEVENTS`.
    #[inline(always)]
    #[must_use]
    pub const fn waits_for_completions(&self) -> bool {
        const IORING_ENTER_GETEVENTS: u64 = 1;
        self.0[DX] != 0 && self.0[R10] & IORING_ENTER_GETEVENTS != 0
    }
}

impl UserRegs {
    /// Which of a thread's epoll instances and rings a park call waits for: its descriptor, with
    /// [`RING`] if it is a ring, and with [`REGISTERED`] if that is known by a number of the thread's
    /// own instead (`IORING_ENTER_REGISTERED_RING`). No descriptor is as large.
    #[inline(always)]
    #[must_use]
    pub const fn park_place(&self) -> u32 {
        const IORING_ENTER_REGISTERED_RING: u64 = 1 << 4;
        let place = self.arg0() as u32 & !(RING | REGISTERED);
        if self.syscall() != SYS_IO_URING_ENTER {
            place
        } else if self.0[R10] & IORING_ENTER_REGISTERED_RING == 0 {
            place | RING
        } else {
            place | RING | REGISTERED
        }
    }
}

/// See [`UserRegs::park_place`].
pub const RING: u32 = 1 << 31;
/// See [`UserRegs::park_place`].
pub const REGISTERED: u32 = 1 << 30;

impl UserRegs {
    /// Puts the call that a signal interrupted in the place of `restart_syscall`, by which it goes on with
    /// the arguments that it had. `before` is the call that the thread slept in last: one of those that
    /// the kernel restarts so, or nothing is known.
    #[inline(always)]
    pub const fn undo_restart(&mut self, before: i64) {
        if self.syscall() == SYS_RESTART && is_restarted(before) {
            self.0[ORIG_AX] = before as u64;
        }
    }
}

/// Whether a call that a signal interrupts goes on by `restart_syscall`: those that wait for a time.
#[inline(always)]
#[must_use]
pub const fn is_restarted(nr: i64) -> bool {
    nr == SYS_POLL || nr == SYS_FUTEX || nr == SYS_NANOSLEEP || nr == SYS_CLOCK_NANOSLEEP
}

/// `restart_syscall`
pub const SYS_RESTART: i64 = 219;
const SYS_NANOSLEEP: i64 = 35;
const SYS_CLOCK_NANOSLEEP: i64 = 230;

/// `io_uring_enter`, a park only if it waits.
pub const SYS_IO_URING_ENTER: i64 = 426;
const SYS_POLL: i64 = 7;
const SYS_SELECT: i64 = 23;
const SYS_FUTEX: i64 = 202;
const SYS_EPOLL_WAIT_OLD: i64 = 215;
const SYS_EPOLL_WAIT: i64 = 232;
const SYS_PSELECT6: i64 = 270;
const SYS_PPOLL: i64 = 271;
const SYS_EPOLL_PWAIT: i64 = 281;
const SYS_EPOLL_PWAIT2: i64 = 441;
const SYS_FUTEX_WAITV: i64 = 449;
const SYS_FUTEX_WAIT: i64 = 455;
/// Bit that the x32 ABI sets in system call numbers.
const X32_BIT: i64 = 0x4000_0000;

/// Whether a call is a futex wait (or another futex operation, which does not sleep).
#[inline(always)]
#[must_use]
pub const fn is_futex(nr: i64) -> bool {
    nr == SYS_FUTEX || nr == SYS_FUTEX_WAITV || nr == SYS_FUTEX_WAIT
}

/// The class of park a system call belongs to: [`PARK_EPOLL`](crate::turn::PARK_EPOLL),
/// [`PARK_POLL`](crate::turn::PARK_POLL) or 0.
#[inline(always)]
#[must_use]
pub const fn park_class(nr: i64) -> u32 {
    match nr & !X32_BIT {
        SYS_EPOLL_WAIT | SYS_EPOLL_PWAIT | SYS_EPOLL_PWAIT2 | SYS_IO_URING_ENTER
        | SYS_EPOLL_WAIT_OLD => crate::turn::PARK_EPOLL,
        SYS_POLL | SYS_PPOLL | SYS_SELECT | SYS_PSELECT6 => crate::turn::PARK_POLL,
        _ => 0,
    }
}

/// The programs on park calls and the kernel functions they attach to.
#[must_use]
pub const fn park_functions() -> [(&'static str, &'static str); 8] {
    [
        ("park_epoll_wait", "__x64_sys_epoll_wait"),
        ("park_epoll_pwait", "__x64_sys_epoll_pwait"),
        ("park_epoll_pwait2", "__x64_sys_epoll_pwait2"),
        ("park_poll", "__x64_sys_poll"),
        ("park_ppoll", "__x64_sys_ppoll"),
        ("park_select", "__x64_sys_select"),
        ("park_pselect6", "__x64_sys_pselect6"),
        ("park_io_uring_enter", "__x64_sys_io_uring_enter"),
    ]
}
