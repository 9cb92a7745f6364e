//! Executors that are a loop called `block_on`: async-io's (smol, async-std), that of `futures`, or one
//! written by hand.
//!
//! Such a loop polls its future and, while that is pending, waits on a futex until somebody wakes it. The
//! wait is its park if `block_on` itself made it, and if no loop around it waits meanwhile.

use super::futex::FutexUse;
use super::tokio::POLL;
use crate::symbolize::Frame;

/// Part of the mangled names of such functions.
pub(super) const SYMBOL: &str = "8block_on";
/// Where async-executor polls a task.
const TASK: &str = "async_task::raw::";
/// Crates whose threads run such a loop. Where its code is inlined into theirs, this is what is left of it.
const EXECUTORS: [&str; 4] =
    ["async_executor::", "async_global_executor::", "async_io::", "smol::"];
/// Whose code lies between such a loop and its wait.
const WAITING: [&str; 5] = ["std::", "core::", "parking::", "futures_executor::", "pollster::"];
/// Waits of the standard library's that are no park, whoever makes them.
const LOCKS: [&str; 6] = ["Mutex", "RwLock", "Once", "mpmc::", "mpsc::", "join"];
/// Who parks by a condition variable.
const PARKERS: [&str; 2] = ["parking::", "pollster::"];

/// Tells a park from a lock by the stack of a thread asleep in a futex. `frames` go from the root to the
/// leaf.
pub(super) fn classify_futex(frames: &[Frame]) -> FutexUse {
    let Some(at) = frames.iter().rposition(|frame| is_loop(&frame.function)) else {
        return FutexUse::Lock;
    };
    let (around, inside) = (&frames[..at], &frames[at + 1..]);
    let any = |parts: &[&str]| {
        inside.iter().any(|frame| parts.iter().any(|part| frame.function.contains(part)))
    };
    // A future that is polled in between is what waits.
    if !inside.iter().all(|frame| is_waiting(frame) && !polls(frame)) {
        return FutexUse::Lock;
    }
    if !any(&PARKERS) && (any(&LOCKS) || any(&["Condvar"])) {
        return FutexUse::Lock;
    }
    let mut called_by_user = false;
    for frame in around.iter().rev() {
        let outer = is_loop(&frame.function);
        // A library's `block_on` calls another one's; code that does lies inside of an outer loop.
        if is_task(frame) || (outer && called_by_user) {
            return FutexUse::Lock;
        }
        called_by_user |= frame.user_code && !outer;
    }
    FutexUse::Park
}

fn is_waiting(frame: &Frame) -> bool {
    let name = path_of(&frame.function);
    // The C library's and the kernel's have none.
    !name.contains("::") || WAITING.iter().any(|part| name.starts_with(part))
}

fn polls(frame: &Frame) -> bool {
    frame.function.ends_with(">::poll") || is_task(frame)
}

fn is_task(frame: &Frame) -> bool {
    frame.function.contains(TASK) || POLL.iter().any(|part| frame.function.contains(part))
}

/// Whether a function is called `block_on`, or is a closure in one, or is an executor's.
fn is_loop(function: &str) -> bool {
    let path = path_of(function);
    // Not by what a generic one was made for.
    let own = path.split('<').next().unwrap_or_default();
    EXECUTORS.iter().any(|part| path.starts_with(part))
        || own.split("::").any(|segment| segment == "block_on")
}

/// A function's path, that of the type for a method.
fn path_of(function: &str) -> &str {
    function.trim_start_matches('<')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn told(names: &[&str]) -> FutexUse {
        let frame = |name: &&str| Frame {
            user_code: name.starts_with("app::"),
            ..Frame::of_symbol(Arc::from(*name))
        };
        classify_futex(&names.iter().map(frame).collect::<Vec<_>>())
    }

    const PARK: [&str; 3] = ["std::thread::park", "std::sys::sync::futex_wait", "syscall"];

    fn parked(outside: &[&str]) -> FutexUse {
        told(&[outside, &PARK].concat())
    }

    #[test]
    fn a_loop_that_waits_itself_parks() {
        assert_eq!(parked(&["_start", "app::main", "app::exec::block_on"]), FutexUse::Park);
        let library = ["app::main", "async_std::task::block_on::block_on", "async_io::block_on"];
        assert_eq!(parked(&library), FutexUse::Park);
        let condvar = ["parking::Inner::park", "<std::sys::sync::condvar::Condvar>::wait"];
        assert_eq!(told(&[&library[..], &condvar].concat()), FutexUse::Park);
        let inlined =
            ["async_global_executor::threading::thread_main_loop", "std::thread::local::with"];
        assert_eq!(told(&[&inlined[..], &condvar].concat()), FutexUse::Park);
    }

    #[test]
    fn what_a_future_waits_for_blocks_the_loop() {
        let future = ["app::main", "app::block_on", "app::serve::{async_fn#0}"];
        assert_eq!(parked(&future), FutexUse::Lock);
        let library = ["app::main", "app::block_on", "<hyper::Conn as core::Future>::poll"];
        assert_eq!(parked(&library), FutexUse::Lock);
        assert_eq!(parked(&["app::main", "app::wait_for_thread"]), FutexUse::Lock);
        let mutex = ["app::main", "app::block_on", "std::sys::sync::mutex::futex::Mutex::lock"];
        assert_eq!(told(&mutex), FutexUse::Lock);
        let condvar = ["app::main", "app::block_on", "<std::sys::sync::condvar::Condvar>::wait"];
        assert_eq!(told(&condvar), FutexUse::Lock);
        let generic = ["app::main", "app::wait<app::block_on::{closure#0}>"];
        assert_eq!(parked(&generic), FutexUse::Lock);
    }

    #[test]
    fn a_loop_inside_of_a_loop_or_of_a_task_blocks() {
        let nested = ["app::main", "app::block_on", "app::serve::{async_fn#0}", "app::block_on"];
        assert_eq!(parked(&nested), FutexUse::Lock);
        let task = ["async_io::block_on", "async_task::raw::RawTask<F, T, S>::run", "app::f"];
        assert_eq!(parked(&[&task[..], &["async_io::block_on"]].concat()), FutexUse::Lock);
    }
}
