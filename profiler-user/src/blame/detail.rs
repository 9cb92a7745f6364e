//! A closer word for the cause, chosen from system calls and frames, never guessed.

use super::{Stack, SyscallUse};
use crate::stalls::{Cause, Ledger};

/// Calls that create a process: their CPU time is the copying of page tables.
const FORK_CALLS: [&str; 5] = ["clone", "clone3", "fork", "vfork", "execve"];
const FORK_KERNEL: [&str; 3] = ["kernel_clone", "_do_fork", "copy_process"];
const SYNC_CALLS: [&str; 4] = ["fsync", "fdatasync", "msync", "sync_file_range"];
/// The resolver of glibc and musl.
const RESOLVER: [&str; 6] = [
    "getaddrinfo",
    "gethostbyname_r",
    "gethostbyname2_r",
    "gethostbyaddr_r",
    "getnameinfo",
    "__res_nsend",
];

/// The detail of a stall, where more than half of its cause is of one kind. `calls` names the
/// system call of each stack, in the same order.
#[must_use]
pub fn detail(
    cause: Cause,
    ledger: &Ledger,
    stacks: &[Stack],
    calls: &[Option<&'static str>],
    syscalls: &[SyscallUse],
) -> Option<&'static str> {
    let of_cause = ledger.get(cause);
    let most = |ns: u64| ns > of_cause / 2;
    let weight = |belongs: &dyn Fn(&Stack, Option<&'static str>) -> bool| {
        stacks
            .iter()
            .zip(calls)
            .filter(|(stack, call)| stack.cause == cause && belongs(stack, **call))
            .map(|(stack, _)| stack.total_ns)
            .sum::<u64>()
    };
    match cause {
        Cause::Cpu => {
            let forking = weight(&|stack, call| {
                call.is_some_and(|name| FORK_CALLS.contains(&name))
                    || stack.frames.iter().any(|f| FORK_KERNEL.contains(&&*f.function))
            });
            most(forking).then_some("fork")
        }
        Cause::Syscall => {
            let resolving = weight(&|stack, _| {
                stack.frames.iter().any(|frame| RESOLVER.contains(&&*frame.function))
            });
            let of = |names: &[&str]| {
                syscalls.iter().filter(|s| names.contains(&s.name)).map(|s| s.total_ns).sum()
            };
            if most(resolving) {
                Some("dns")
            } else if most(of(&SYNC_CALLS)) {
                Some("fsync")
            } else {
                most(of(&FORK_CALLS)).then_some("fork")
            }
        }
        _ => None,
    }
}
