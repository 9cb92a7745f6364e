//! One line of advice that follows from cause, detail, system call and runtime.

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

/// What to do about a stall; `None` where nothing honest can be said.
#[must_use]
pub fn advise(
    cause: Cause,
    detail: Option<&'static str>,
    runtime: Runtime,
    syscalls: &[SyscallUse],
) -> Option<String> {
    let elsewhere = elsewhere(runtime);
    let text = match cause {
        Cause::Cpu if detail == Some("fork") => {
            "the kernel copies the page tables of the whole process: fork from a small helper \
             process, or use vfork/posix_spawn"
                .to_owned()
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
        Cause::Lock => match runtime {
            Runtime::Tokio => "another thread holds what this one waits for: hold std locks \
                               only briefly, or use tokio::sync::Mutex across awaits"
                .to_owned(),
            _ => format!(
                "another thread holds what this one waits for: hold the lock for less \
                          time, or wait in {elsewhere}"
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
