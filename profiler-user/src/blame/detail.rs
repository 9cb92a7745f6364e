//! A closer word for the cause, chosen from system calls and frames, never guessed.

use std::collections::BTreeMap;

use super::{Stack, SyscallUse, Word, doing, is_name_server, waiting};
use crate::stalls::{Cause, Ledger};

/// Calls that create a process: their CPU time is the copying of page tables.
const FORK_CALLS: [&str; 5] = ["clone", "clone3", "fork", "vfork", "execve"];
const SYNC_CALLS: [&str; 4] = ["fsync", "fdatasync", "msync", "sync_file_range"];
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
                let forks = call.is_some_and(|name| FORK_CALLS.contains(&name));
                (forks || doing::forks(stack)) && !doing::creates_thread(stack)
            });
            let sampled = weight(&|_, _| true);
            let v8 = weight(&|stack, _| doing::v8_collector(stack).is_some());
            if most(forking) {
                Some("fork")
            } else if collecting_ns > sampled / 2 || most(v8) {
                Some("gc")
            } else if most(weight(&|stack, _| doing::reclaims(stack))) {
                Some("reclaim")
            } else if most(weight(&|stack, _| doing::imports(stack))) {
                Some("import")
            } else {
                most(weight(&|stack, _| doing::matches_regex(stack))).then_some("regex")
            }
        }
        Cause::Syscall => {
            let resolving = weight(&|stack, _| doing::resolves(stack));
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
            } else if most(of(&FORK_CALLS)) {
                Some("fork")
            } else if most(weight(&|stack, _| doing::reclaims(stack))) {
                Some("reclaim")
            } else if most(weight(&|stack, _| doing::is_held_back(stack))) {
                Some("writeback")
            } else {
                most(weight(&|stack, _| doing::imports(stack))).then_some("import")
            }
        }
        Cause::Lock => {
            ["join", "condvar", "channel", "park", "future"].into_iter().find(|&detail| {
                most(weight(&|stack, _| waiting(&stack.frames).detail() == Some(detail)))
            })
        }
        Cause::Fault if most(weight(&|stack, _| doing::reclaims(stack))) => Some("reclaim"),
        // Of a mapped file that is written to, which is a fault in that file too.
        Cause::Fault if most(weight(&|stack, _| doing::is_held_back(stack))) => Some("writeback"),
        Cause::Fault => ["userfaultfd", "swap", "page-cache"]
            .into_iter()
            .find(|&word| most(weight(&|stack, _| doing::fault(stack) == Some(word)))),
        _ => None,
    }
}

/// The system call that most of a stall's CPU time was in; `None` if there is none such.
#[must_use]
pub fn busiest_call(ledger: &Ledger, stacks: &[Stack]) -> Option<Word> {
    let mut by_call: BTreeMap<Word, u64> = BTreeMap::new();
    for stack in stacks.iter().filter(|stack| stack.cause == Cause::Cpu) {
        if let Some(call) = stack.call {
            *by_call.entry(call).or_default() += stack.total_ns;
        }
    }
    let (call, ns) = by_call.into_iter().max_by_key(|(_, ns)| *ns)?;
    (ns > ledger.get(Cause::Cpu) / 2).then_some(call)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::symbolize::{Frame, FrameKind};

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
        Stack::new(cause, total_ns, 1, frames)
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
        let thread = ["main", "__pthread_create_2_1", "clone3", "copy_process"];
        let stacks = [stack(Cause::Cpu, 60, &thread)];
        assert_eq!(detail(Cause::Cpu, &cpu, &stacks, &[Some("clone3")], &[], 0), None, "a thread");
    }

    #[test]
    fn cpu_time_is_in_a_call_if_most_of_it_is() {
        let of = |ns| Stack { call: Some("munmap"), ..stack(Cause::Cpu, ns, &["main"]) };
        let own = || stack(Cause::Cpu, 40, &["main"]);
        let told = |stacks: &[Stack]| busiest_call(&ledger(Cause::Cpu), stacks);
        assert_eq!(told(&[own(), of(30), of(30)]), Some("munmap"));
        assert_eq!(told(&[own(), of(50)]), None);
        assert_eq!(told(&[]), None);
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
    fn a_module_that_is_slow_to_be_read_is_an_import_as_well() {
        let mut importing = stack(Cause::Syscall, 70, &["_find_and_load", "read"]);
        importing.frames[0].kind = FrameKind::Python;
        importing.frames[0].file = Some(Arc::from("<frozen importlib._bootstrap>"));
        let slept = [slept("read", 100)];
        let told = |stacks: &[Stack]| {
            detail(Cause::Syscall, &ledger(Cause::Syscall), stacks, &[Some("read")], &slept, 0)
        };
        assert_eq!(told(&[importing]), Some("import"));
        assert_eq!(told(&[stack(Cause::Syscall, 70, &["_find_and_load", "read"])]), None);
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
