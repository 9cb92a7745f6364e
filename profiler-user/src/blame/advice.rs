//! One line of advice that follows from cause, detail, system call and runtime.

use std::sync::Arc;

use super::{Runtime, SyscallUse};
use crate::stalls::Cause;

/// Where blocking work goes in this runtime.
const fn elsewhere(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Tokio => "tokio::task::spawn_blocking",
        Runtime::Asyncio | Runtime::Uvloop => "asyncio.to_thread",
        Runtime::Trio => "trio.to_thread.run_sync",
        Runtime::Libuv => "a worker thread or the asynchronous API",
        Runtime::Jvm => "a blocking executor",
        Runtime::Native => "a thread of its own",
    }
}

const fn async_sleep(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Tokio => "tokio::time::sleep(..).await",
        Runtime::Asyncio | Runtime::Uvloop => "await asyncio.sleep(..)",
        Runtime::Trio => "await trio.sleep(..)",
        Runtime::Libuv => "a timer (setTimeout, uv_timer_t)",
        Runtime::Jvm | Runtime::Native => "a timer of the event loop",
    }
}

/// What a closer word for the cause asks for, whatever the cause.
fn by_detail(detail: &str) -> Option<&'static str> {
    Some(match detail {
        "gc" => {
            "the garbage collector ran: keep fewer objects alive, or have it run at a quiet moment"
        }
        "import" => "modules are loaded inside the loop: load them at the start",
        "regex" => {
            "a regular expression takes its time: avoid one that backtracks, or bound what it is given"
        }
        "reclaim" => {
            "the kernel makes room in memory first: raise the memory limit, or use less of it"
        }
        "writeback" => {
            "more was written than storage takes: write less at a time, or outside the loop"
        }
        "userfaultfd" => {
            "another program provides this memory and was slow to (userfaultfd: migration, snapshots)"
        }
        "swap" => "memory had to come back from swap: use less of it, or lock what the loop needs",
        "page-cache" => {
            "a mapped file had to be read from storage: touch it outside the loop first"
        }
        _ => return None,
    })
}

/// What to do about a stall; `None` where nothing honest can be said. `busiest_call` is the system
/// call that most of the CPU time was in.
#[must_use]
pub fn advise(
    cause: Cause,
    detail: Option<&'static str>,
    runtime: Runtime,
    syscalls: &[SyscallUse],
    busiest_call: Option<&str>,
) -> Option<String> {
    let elsewhere = elsewhere(runtime);
    if let Some(text) = detail.and_then(by_detail) {
        return Some(text.to_owned());
    }
    let text = match cause {
        Cause::Cpu if detail == Some("fork") => {
            "the kernel copies the page tables of the whole process: fork from a small helper \
             process, or use vfork/posix_spawn"
                .to_owned()
        }
        Cause::Cpu if let Some(call) = busiest_call => {
            format!(
                "the kernel works for {call}: move that call to {elsewhere}, or ask for less at a time"
            )
        }
        Cause::Cpu => match runtime {
            Runtime::Tokio => "CPU work keeps the worker from polling other tasks: move it to \
                               tokio::task::spawn_blocking or rayon, or yield between chunks \
                               (tokio::task::yield_now)"
                .to_owned(),
            Runtime::Asyncio | Runtime::Uvloop | Runtime::Trio => {
                "pure-Python CPU work belongs in a process or interpreter pool (a thread would \
                 fight for the GIL); long divisible work can yield with await asyncio.sleep(0)"
                    .to_owned()
            }
            Runtime::Libuv => {
                "move CPU work to a worker thread, or split it with setImmediate".to_owned()
            }
            Runtime::Jvm | Runtime::Native => {
                "move CPU work off the loop thread, or do it in chunks between turns".to_owned()
            }
        },
        Cause::Syscall if detail == Some("dns") => {
            format!("name resolution blocks: use an asynchronous resolver, or {elsewhere}")
        }
        Cause::Syscall if detail == Some("fsync") => {
            format!("waiting for the disk to sync: do it in {elsewhere}, or less often")
        }
        Cause::Syscall => match syscalls.first().map(|slept| slept.name) {
            Some("clock_nanosleep" | "nanosleep") => {
                format!("a sleep blocks the whole loop: use {}", async_sleep(runtime))
            }
            Some("wait4" | "waitid") => {
                "waiting for a child blocks the loop: wait for it asynchronously".to_owned()
            }
            Some(
                "recvfrom" | "recvmsg" | "recv" | "sendto" | "sendmsg" | "connect" | "accept"
                | "accept4" | "poll" | "ppoll" | "select" | "pselect6",
            ) => format!(
                "a blocking client on the loop: use its asynchronous version, or {elsewhere}"
            ),
            Some("epoll_wait" | "epoll_pwait" | "epoll_pwait2") => {
                "a nested event loop blocks the outer one: await instead".to_owned()
            }
            Some(name) => format!("{name} blocks the whole loop: move it to {elsewhere}"),
            None => return None,
        },
        Cause::Lock
            if matches!(detail, Some("join" | "condvar" | "channel" | "park" | "future")) =>
        {
            format!(
                "the loop waits for another thread to get done: await its result instead, or wait in {elsewhere}"
            )
        }
        Cause::Lock => match runtime {
            Runtime::Tokio => "another thread holds what this one waits for: hold std locks \
                               only briefly, or use tokio::sync::Mutex across awaits"
                .to_owned(),
            _ => format!(
                "another thread holds what this one waits for, or has yet to signal it: hold a lock for \
                 less time, or wait in {elsewhere}"
            ),
        },
        Cause::Gil => "another thread holds the GIL: a thread won't help, use a process or \
                       interpreter pool"
            .to_owned(),
        Cause::Fault => "memory had to come from disk (page fault): check for swapping, or touch \
                         the file outside the loop"
            .to_owned(),
        Cause::Runqueue => {
            "not your code: the thread was ready but got no CPU (other processes ran instead)"
                .to_owned()
        }
        Cause::Throttled => "not your code: the cgroup is out of CPU quota".to_owned(),
        Cause::Stopped => {
            "not your code: the process was stopped (signal, debugger or freezer)".to_owned()
        }
        Cause::Unexplained => return None,
    };
    Some(text)
}

/// What to do about CPU work of an interpreter whose threads compute at the same time.
#[must_use]
pub fn advise_without_lock(runtime: Runtime) -> String {
    format!(
        "CPU work keeps the loop from other tasks: move it to {}, which computes beside it in this build \
         without the GIL, or yield between chunks",
        elsewhere(runtime)
    )
}

/// What to do about a thread that sleeps in a system call with the interpreter's lock.
#[must_use]
pub fn advise_on_lock_asleep(call: &str) -> String {
    format!(
        "the holder sleeps in {call} without releasing the GIL, so every thread waits: have its C code \
         release it (Py_BEGIN_ALLOW_THREADS; ctypes.CDLL rather than PyDLL), or call it in another process"
    )
}

/// What to do about threads of which each waits for the next and the last for the first. They are
/// given by id and name, beginning with any.
#[must_use]
pub fn advise_on_deadlock(circle: &[(u32, Arc<str>)]) -> Option<String> {
    let (first, rest) = circle.split_first()?;
    let named = |(tid, name): &(u32, Arc<str>)| format!("{name} ({tid})");
    if rest.is_empty() {
        return Some(format!(
            "{} waits for a lock that it holds itself and will wait for ever",
            named(first)
        ));
    }
    let mut text = format!("a deadlock, which never ends by itself: {}", named(first));
    for (index, member) in rest.iter().chain([first]).enumerate() {
        let link = if index == 0 { " waits for " } else { ", which waits for " };
        text.push_str(link);
        text.push_str(&named(member));
    }
    text.push_str("; take such locks in the same order everywhere");
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNTIMES: [Runtime; 7] = [
        Runtime::Asyncio,
        Runtime::Uvloop,
        Runtime::Trio,
        Runtime::Tokio,
        Runtime::Libuv,
        Runtime::Jvm,
        Runtime::Native,
    ];

    fn slept_in(name: &'static str) -> Vec<SyscallUse> {
        vec![SyscallUse { name, count: 1, total_ns: 1, max_ns: 1, resource: None }]
    }

    fn syscall(runtime: Runtime, name: &'static str) -> String {
        advise(Cause::Syscall, None, runtime, &slept_in(name), None).expect("advice")
    }

    #[test]
    fn advice_is_one_sentence_and_given_for_every_cause_that_is_known() {
        for cause in Cause::ALL {
            for runtime in RUNTIMES {
                for detail in [None, Some("fork"), Some("dns"), Some("fsync")] {
                    let advice = advise(cause, detail, runtime, &slept_in("read"), None);
                    assert_eq!(advice.is_none(), cause == Cause::Unexplained);
                    let text = advice.unwrap_or_default();
                    assert!(!text.contains('\n') && !text.contains("  "), "{text}");
                    assert!(!text.ends_with('.'), "{text}");
                }
            }
        }
    }

    #[test]
    fn what_comes_from_outside_is_said_not_to_be_the_code() {
        for cause in [Cause::Runqueue, Cause::Throttled, Cause::Stopped] {
            let advice = advise(cause, None, Runtime::Tokio, &[], None).expect("advice");
            assert!(advice.starts_with("not your code"), "{advice}");
        }
    }

    #[test]
    fn blocking_work_goes_where_the_runtime_has_a_place_for_it() {
        assert!(syscall(Runtime::Tokio, "read").contains("spawn_blocking"));
        assert!(syscall(Runtime::Asyncio, "recvfrom").contains("asyncio.to_thread"));
        assert!(syscall(Runtime::Trio, "connect").contains("trio.to_thread.run_sync"));
        assert!(syscall(Runtime::Tokio, "clock_nanosleep").contains("tokio::time::sleep"));
        assert!(syscall(Runtime::Libuv, "nanosleep").contains("setTimeout"));
    }

    #[test]
    fn the_heaviest_system_call_decides() {
        let syscalls = [slept_in("wait4"), slept_in("nanosleep")].concat();
        let advice =
            advise(Cause::Syscall, None, Runtime::Native, &syscalls, None).expect("advice");
        assert!(advice.contains("child"), "{advice}");
        assert!(syscall(Runtime::Native, "epoll_wait").contains("nested event loop"));
        assert!(syscall(Runtime::Native, "flock").starts_with("flock blocks"));
        assert_eq!(advise(Cause::Syscall, None, Runtime::Native, &[], None), None);
    }

    #[test]
    fn what_the_kernel_does_for_a_call_is_not_said_to_be_the_program_s_computation() {
        let advice = advise(Cause::Cpu, None, Runtime::Asyncio, &[], Some("munmap"));
        assert!(advice.is_some_and(|text| text.contains("munmap") && !text.contains("Python")));
        let gc = advise(Cause::Cpu, Some("gc"), Runtime::Libuv, &[], None).expect("advice");
        assert!(gc.contains("garbage collector"), "{gc}");
    }

    #[test]
    fn everybody_in_a_deadlock_is_named() {
        let [one, two] = [(12, Arc::from("one")), (13, Arc::from("two"))];
        let both = advise_on_deadlock(&[one.clone(), two]).expect("advice");
        assert!(both.contains("one (12) waits for two (13), which waits for one (12)"), "{both}");
        let own = advise_on_deadlock(&[one]).expect("advice");
        assert!(own.contains("holds itself"), "{own}");
        assert_eq!(advise_on_deadlock(&[]), None);
    }

    #[test]
    fn a_closer_word_wins_over_the_call() {
        let of = |detail| {
            advise(Cause::Syscall, Some(detail), Runtime::Asyncio, &slept_in("poll"), None)
        };
        assert!(of("dns").expect("advice").starts_with("name resolution"));
        assert!(of("fsync").expect("advice").contains("sync"));
        let fork = advise(Cause::Cpu, Some("fork"), Runtime::Asyncio, &[], None).expect("advice");
        assert!(fork.contains("page tables"), "{fork}");
    }

    #[test]
    fn a_thread_is_advised_where_there_is_no_lock() {
        let advice = advise_without_lock(Runtime::Asyncio);
        assert!(advice.contains("asyncio.to_thread") && !advice.contains("process"), "{advice}");
    }

    #[test]
    fn a_thread_is_never_advised_where_the_gil_is_held() {
        for cause in [Cause::Gil, Cause::Cpu] {
            let advice = advise(cause, None, Runtime::Asyncio, &[], None).expect("advice");
            assert!(advice.contains("process or interpreter pool"), "{advice}");
            assert!(!advice.contains("to_thread"), "{advice}");
        }
    }
}
