//! A closer word for the cause, chosen from system calls and frames, never guessed.

use super::{Stack, SyscallUse, is_name_server, waiting};
use crate::stalls::{Cause, Ledger};
use crate::symbolize::{Frame, FrameKind};

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

/// Python's import system: frames of a module that is being imported lie above it.
fn is_import(frame: &Frame) -> bool {
    frame.kind == FrameKind::Python
        && matches!(&*frame.function, "_find_and_load" | "_find_and_load_unlocked")
        && frame.file.as_deref().is_some_and(|file| file.contains("importlib._bootstrap"))
}

/// CPython's own regular expressions, by the functions of its engine.
fn is_regex(stack: &Stack) -> bool {
    let native = stack.frames.iter().rev().take_while(|frame| frame.kind != FrameKind::Python);
    native.filter(|frame| frame.named).any(|frame| {
        ["sre_ucs1_match", "sre_ucs2_match", "sre_ucs4_match", "sre_search", "sre_match"]
            .iter()
            .any(|name| frame.function.starts_with(name))
    })
}

/// The detail of a stall, where more than half of its cause is of one kind. `calls` names the
/// system call of each stack, in the same order.
#[must_use]
pub fn detail(
    cause: Cause,
    ledger: &Ledger,
    stacks: &[Stack],
    calls: &[Option<&'static str>],
    syscalls: &[SyscallUse],
    collecting_ns: u64,
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
            let in_frame =
                |test: &dyn Fn(&Frame) -> bool| weight(&|stack, _| stack.frames.iter().any(test));
            let sampled = weight(&|_, _| true);
            if most(forking) {
                Some("fork")
            } else if collecting_ns > sampled / 2 {
                Some("gc")
            } else if most(in_frame(&|frame| is_import(frame))) {
                Some("import")
            } else {
                most(weight(&|stack, _| is_regex(stack))).then_some("regex")
            }
        }
        Cause::Syscall => {
            let resolving = weight(&|stack, _| {
                stack.frames.iter().any(|frame| RESOLVER.contains(&&*frame.function))
            });
            let of = |names: &[&str]| {
                syscalls.iter().filter(|s| names.contains(&s.name)).map(|s| s.total_ns).sum()
            };
            let asking: u64 = syscalls
                .iter()
                .filter(|s| s.resource.as_deref().is_some_and(is_name_server))
                .map(|s| s.total_ns)
                .sum();
            if most(resolving) || most(asking) {
                Some("dns")
            } else if most(of(&SYNC_CALLS)) {
                Some("fsync")
            } else {
                most(of(&FORK_CALLS)).then_some("fork")
            }
        }
        Cause::Lock => ["join", "condvar", "channel"].into_iter().find(|&detail| {
            most(weight(&|stack, _| waiting(&stack.frames).detail() == Some(detail)))
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn stack(cause: Cause, total_ns: u64, functions: &[&str]) -> Stack {
        let frame = |function: &&str| Frame {
            function: Arc::from(*function),
            file: None,
            line: None,
            module: None,
            kind: FrameKind::Native,
            inlined: false,
            user_code: false,
            named: true,
            origin: crate::symbolize::Origin::default(),
        };
        let frames = functions.iter().map(frame).collect();
        Stack { cause, total_ns, samples: 1, truncated: None, frames, holder: None }
    }

    fn slept(name: &'static str, total_ns: u64) -> SyscallUse {
        SyscallUse { name, count: 1, total_ns, max_ns: total_ns, resource: None }
    }

    fn ledger(cause: Cause) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.add(cause, 100);
        ledger
    }

    #[test]
    fn cpu_time_in_a_fork_is_a_fork_by_its_call_or_by_the_kernels_function() {
        let cpu = ledger(Cause::Cpu);
        let stacks = [stack(Cause::Cpu, 60, &["main"]), stack(Cause::Cpu, 40, &["main"])];
        let told =
            |calls: &[Option<&'static str>]| detail(Cause::Cpu, &cpu, &stacks, calls, &[], 0);
        assert_eq!(told(&[Some("clone"), None]), Some("fork"));
        assert_eq!(told(&[Some("read"), Some("clone3")]), None, "less than half");
        assert_eq!(told(&[None, None]), None);
        let stacks = [stack(Cause::Cpu, 60, &["main", "fork", "kernel_clone", "copy_page_range"])];
        assert_eq!(detail(Cause::Cpu, &cpu, &stacks, &[None], &[], 0), Some("fork"));
    }

    #[test]
    fn half_is_not_most() {
        let stacks = [stack(Cause::Cpu, 50, &["copy_process"])];
        assert_eq!(detail(Cause::Cpu, &ledger(Cause::Cpu), &stacks, &[None], &[], 0), None);
    }

    #[test]
    fn a_sleep_below_the_resolver_is_dns_whatever_the_call() {
        let stacks = [
            stack(Cause::Syscall, 70, &["main", "getaddrinfo", "__res_nsend", "poll"]),
            stack(Cause::Syscall, 30, &["main", "read"]),
        ];
        let calls = [Some("poll"), Some("read")];
        let syscalls = [slept("poll", 70), slept("read", 30)];
        let told = detail(Cause::Syscall, &ledger(Cause::Syscall), &stacks, &calls, &syscalls, 0);
        assert_eq!(told, Some("dns"));
    }

    #[test]
    fn sleeps_in_calls_of_one_kind_add_up() {
        let of = |syscalls: &[SyscallUse]| {
            detail(Cause::Syscall, &ledger(Cause::Syscall), &[], &[], syscalls, 0)
        };
        assert_eq!(of(&[slept("fsync", 30), slept("fdatasync", 25)]), Some("fsync"));
        assert_eq!(of(&[slept("vfork", 60)]), Some("fork"));
        assert_eq!(of(&[slept("fsync", 50), slept("read", 50)]), None);
        assert_eq!(of(&[slept("fsync_like", 100)]), None);
    }

    #[test]
    fn stacks_of_other_causes_do_not_decide() {
        let stacks = [stack(Cause::Cpu, 100, &["getaddrinfo"])];
        let told = detail(Cause::Syscall, &ledger(Cause::Syscall), &stacks, &[None], &[], 0);
        assert_eq!(told, None);
        for cause in Cause::ALL.into_iter().filter(|c| !matches!(c, Cause::Cpu | Cause::Syscall)) {
            let stacks = [stack(cause, 100, &["getaddrinfo", "copy_process"])];
            let told =
                detail(cause, &ledger(cause), &stacks, &[Some("clone")], &[slept("fsync", 100)], 0);
            assert_eq!(told, None, "{cause:?}");
        }
    }
}
