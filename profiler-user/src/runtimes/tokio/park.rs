//! Which futex waits are a worker's park, and which block it.
//!
//! A worker parks in epoll when it drives I/O, and otherwise on a condition variable of its own.
//! The stack tells a park from a lock: a park is called by the worker's loop itself, a lock from
//! inside a task's poll. Names cover tokio 1.20 to 1.5x (`runtime::thread_pool` became
//! `runtime::scheduler::multi_thread` in 1.21).

use crate::runtimes::FutexUse;
use crate::symbolize::Frame;

const WORKER: [&str; 4] = [
    "::multi_thread::worker::",
    "/multi_thread/worker.rs",
    "::thread_pool::worker::",
    "/thread_pool/worker.rs",
];
const PARK: [&str; 6] = [
    "::multi_thread::park::",
    "/multi_thread/park.rs",
    "::thread_pool::park::",
    "/thread_pool/park.rs",
    "tokio::runtime::park::",
    "/runtime/park.rs",
];
const PARK_OLD: [&str; 2] = ["tokio::park::thread::", "/park/thread.rs"];
pub(in crate::runtimes) const POLL: [&str; 4] = [
    "tokio::runtime::task::raw::",
    "tokio::runtime::task::harness::",
    "tokio::runtime::task::core::",
    "/runtime/task/",
];
pub(super) const BLOCKING_POOL: [&str; 4] = [
    "tokio::runtime::blocking::pool",
    "/runtime/blocking/pool.rs",
    "tokio::runtime::blocking::sharded",
    "/runtime/blocking/sharded.rs",
];

pub(super) fn mentions(frame: &Frame, parts: &[&str]) -> bool {
    parts.iter().any(|part| {
        frame.function.contains(part) || frame.file.as_deref().is_some_and(|f| f.contains(part))
    })
}

/// Tells a park from a lock by the stack of a thread asleep in a futex. `frames` go from the root
/// to the leaf.
#[must_use]
pub(in crate::runtimes) fn classify_futex(frames: &[Frame]) -> FutexUse {
    let mut parked = false;
    for frame in frames.iter().rev() {
        if mentions(frame, &POLL) {
            return FutexUse::Lock;
        }
        if mentions(frame, &WORKER) {
            // The worker's own loop called it: nothing but parking code lies between.
            return FutexUse::Park;
        }
        if mentions(frame, &PARK) || mentions(frame, &PARK_OLD) {
            parked = true;
        } else if frame.user_code && !parked {
            return FutexUse::Lock;
        } else if frame.user_code {
            break;
        }
    }
    // `block_on` of the main thread or of a thread that runs a runtime of its own; on a thread of
    // the blocking pool, and inside a task, it blocks somebody else's work.
    let polls = frames.iter().any(|frame| mentions(frame, &POLL));
    let pooled = frames.iter().any(|frame| mentions(frame, &BLOCKING_POOL));
    match (polls, pooled) {
        (false, false) if parked => FutexUse::Park,
        (false, true) if !parked && frames.iter().all(|frame| !frame.user_code) => FutexUse::Idle,
        _ => FutexUse::Lock,
    }
}

/// Whether a stack belongs to a runtime's worker thread.
#[must_use]
pub fn is_worker(frames: &[Frame]) -> bool {
    frames.iter().any(|frame| mentions(frame, &WORKER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::FrameKind;
    use std::sync::Arc;

    fn frames(names: &[(&str, bool)]) -> Vec<Frame> {
        names
            .iter()
            .map(|&(name, user_code)| Frame {
                function: Arc::from(name),
                file: None,
                line: None,
                module: None,
                kind: FrameKind::Native,
                inlined: false,
                user_code,
                named: true,
                origin: crate::symbolize::Origin::default(),
            })
            .collect()
    }

    const THREAD: [(&str, bool); 3] = [
        ("std::sys::thread::start", false),
        ("tokio::runtime::blocking::pool::Inner::run", false),
        ("tokio::runtime::task::raw::poll", false),
    ];

    fn under_thread(rest: &[(&str, bool)]) -> Vec<Frame> {
        frames(&[&THREAD[..], rest].concat())
    }

    #[test]
    fn a_worker_that_parks_is_idle() {
        let stack = under_thread(&[
            ("tokio::runtime::scheduler::multi_thread::worker::run", false),
            ("tokio::runtime::scheduler::multi_thread::worker::Context::park_internal", false),
            ("std::sync::condvar::Condvar::wait", false),
            ("syscall", false),
        ]);
        assert_eq!(classify_futex(&stack), FutexUse::Park);
        assert!(is_worker(&stack));
    }

    #[test]
    fn a_mutex_inside_a_task_blocks() {
        let stack = under_thread(&[
            ("tokio::runtime::scheduler::multi_thread::worker::run", false),
            ("tokio::runtime::task::raw::poll", false),
            ("app::handler", true),
            ("std::sync::mutex::Mutex::lock", false),
        ]);
        assert_eq!(classify_futex(&stack), FutexUse::Lock);
    }

    #[test]
    fn block_on_parks_at_the_root_and_blocks_inside_a_task() {
        let block_on = [
            ("app::main", true),
            ("tokio::runtime::park::CachedParkThread::block_on", false),
            ("tokio::runtime::park::Inner::park", false),
            ("syscall", false),
        ];
        assert_eq!(classify_futex(&frames(&block_on)), FutexUse::Park);
        assert_eq!(classify_futex(&under_thread(&block_on)), FutexUse::Lock);
    }

    #[test]
    fn an_idle_thread_of_the_blocking_pool_is_no_loop() {
        let stack = frames(&[
            ("std::sys::thread::start", false),
            ("tokio::runtime::blocking::pool::Inner::run", false),
            ("std::sync::condvar::Condvar::wait_timeout", false),
        ]);
        assert_eq!(classify_futex(&stack), FutexUse::Idle);
        let stack = under_thread(&[("std::condvar::Condvar::wait", false)]);
        assert_eq!(classify_futex(&stack), FutexUse::Lock, "its work waits");
    }
}
