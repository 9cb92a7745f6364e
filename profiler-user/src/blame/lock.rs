//! Which kind of lock a thread waits for, by its frames, and who has it, by the lock's memory.

use crate::symbolize::{Frame, FrameKind};

/// What a thread waits for in a futex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// glibc's mutex, which notes its owner.
    GlibcMutex,
    /// glibc's read-write lock, which notes its writer.
    GlibcRwLock,
    /// A condition variable.
    Condvar,
    /// The end of a thread.
    Join,
    /// A message.
    Channel,
    /// Another thread that unparks it (`std::thread::park`).
    Unpark,
    /// The result of what another thread runs.
    Future,
    /// A lock that notes nobody, or something else.
    Other,
}

impl Waiting {
    /// The closer word for waits that are not for a lock.
    #[must_use]
    pub const fn detail(self) -> Option<&'static str> {
        match self {
            Self::Condvar => Some("condvar"),
            Self::Join => Some("join"),
            Self::Channel => Some("channel"),
            Self::Unpark => Some("park"),
            Self::Future => Some("future"),
            Self::GlibcMutex | Self::GlibcRwLock | Self::Other => None,
        }
    }
}

/// What the frames of a wait, root to leaf, say that it is for. The outermost of the waiting
/// functions decides: a channel waits in a condition variable.
#[must_use]
pub fn waiting(frames: &[Frame]) -> Waiting {
    /// Frames at the leaf that belong to the wait.
    const NEAR: usize = 24;
    let near = &frames[frames.len().saturating_sub(NEAR)..];
    near.iter().find_map(by_frame).unwrap_or(Waiting::Other)
}

fn by_frame(frame: &Frame) -> Option<Waiting> {
    if frame.kind == FrameKind::Python { in_python(frame) } else { by_name(&frame.function) }
}

/// CPython's standard library, all of which waits in a plain lock in the end.
fn in_python(frame: &Frame) -> Option<Waiting> {
    let file = frame.file.as_deref().filter(|_| !frame.user_code)?;
    // Before 3.11 a name is without its class.
    let method = frame.function.rsplit('.').next().unwrap_or_default();
    if file.ends_with("/concurrent/futures/_base.py") {
        matches!(method, "result" | "exception" | "wait").then_some(Waiting::Future)
    } else if file.ends_with("/threading.py") {
        match method {
            "join" | "_wait_for_tstate_lock" => Some(Waiting::Join),
            "wait" | "wait_for" => Some(Waiting::Condvar),
            _ => None,
        }
    } else {
        (file.ends_with("/queue.py") && matches!(method, "get" | "put")).then_some(Waiting::Channel)
    }
}

fn by_name(function: &str) -> Option<Waiting> {
    const JOINS: [&str; 3] = ["pthread_join", "pthread_clockjoin", "pthread_timedjoin"];
    const PARKS: [&str; 2] = ["::park", "::park_timeout"];
    let name = function.trim_start_matches('_');
    if JOINS.iter().any(|join| name.starts_with(join)) || name.contains("JoinInner<") {
        Some(Waiting::Join)
    } else if (name.contains("mpsc::") || name.contains("mpmc::") || name.contains("channel::"))
        && name.contains("recv")
    {
        Some(Waiting::Channel)
    } else if name.starts_with("pthread_cond_") || name.contains("condvar::Condvar") {
        Some(Waiting::Condvar)
    } else if name.starts_with("std::thread::") && PARKS.iter().any(|park| name.ends_with(park)) {
        Some(Waiting::Unpark)
    } else if name.starts_with("pthread_rwlock_") {
        Some(Waiting::GlibcRwLock)
    } else if name.starts_with("pthread_mutex_") || name.starts_with("lll_lock_wait") {
        Some(Waiting::GlibcMutex)
    } else {
        None
    }
}

/// States of threads and locks are numbers up to this one; no thread that is waited for has such an
/// id.
const SMALL: u32 = 3;

/// The thread id that a lock notes as its owner, given the memory at the futex that is waited on.
#[must_use]
pub fn owner_words(kind: Waiting, words: &[u32]) -> Option<u32> {
    // glibc, struct __pthread_mutex_s: the lock word, a count, the owner.
    // struct __pthread_rwlock_arch_t: readers, writers, two futexes, two unused words, the writer.
    let owner = match kind {
        Waiting::GlibcMutex => *words.get(2)?,
        // struct pthread: the thread's id, which the kernel clears at its end. Other libraries wait for
        // a state there, which is a small number.
        Waiting::Join => *words.first().filter(|&&tid| tid > SMALL)?,
        Waiting::GlibcRwLock => match words.get(..5)? {
            [_, 0, 0, writer, _] if *writer != 0 => *writer,
            [_, _, 0, 0, writer] => *writer,
            _ => return None,
        },
        _ => return None,
    };
    (owner != 0 && owner < 1 << 22).then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(functions: &[&str]) -> Vec<Frame> {
        functions.iter().map(|name| Frame::of_symbol(std::sync::Arc::from(*name))).collect()
    }

    #[test]
    fn the_outermost_waiting_function_says_what_is_waited_for() {
        let kind = |functions: &[&str]| waiting(&frames(functions));
        assert_eq!(
            kind(&["main", "___pthread_mutex_lock", "__lll_lock_wait"]),
            Waiting::GlibcMutex
        );
        assert_eq!(kind(&["main", "__pthread_rwlock_wrlock_full64"]), Waiting::GlibcRwLock);
        assert_eq!(
            kind(&["main", "___pthread_cond_wait", "__futex_abstimed_wait"]),
            Waiting::Condvar
        );
        assert_eq!(kind(&["main", "__pthread_clockjoin_ex"]), Waiting::Join);
        let channel =
            ["std::sync::mpmc::list::Channel<T>::recv", "std::sys::sync::condvar::Condvar"];
        assert_eq!(kind(&channel), Waiting::Channel);
        let received = ["std::sync::mpmc::list::Channel<T>::recv", "std::thread::functions::park"];
        assert_eq!(kind(&received), Waiting::Channel);
        let parked = ["app::block_on", "std::thread::functions::park", "Parker::park", "syscall"];
        assert_eq!(kind(&parked), Waiting::Unpark);
        assert_eq!(kind(&["main", "std::sys::sync::mutex::futex::Mutex::lock"]), Waiting::Other);
    }

    #[test]
    fn python_s_own_words_say_what_a_plain_lock_is_waited_for() {
        let python = |function: &str, file: &str, user_code| Frame {
            file: Some(std::sync::Arc::from(file)),
            kind: FrameKind::Python,
            user_code,
            ..Frame::of_symbol(std::sync::Arc::from(function))
        };
        let base = "/usr/lib/python3.11/concurrent/futures/_base.py";
        let threading = "/usr/lib/python3.11/threading.py";
        let wait = python("Condition.wait", threading, false);
        assert_eq!(waiting(&[python("Future.result", base, false), wait.clone()]), Waiting::Future);
        assert_eq!(
            waiting(&[python("get", "/usr/lib/python3.9/queue.py", false)]),
            Waiting::Channel
        );
        assert_eq!(waiting(&[python("Thread.join", threading, false)]), Waiting::Join);
        assert_eq!(waiting(&[wait]), Waiting::Condvar);
        assert_eq!(waiting(&[python("Queue.get", "/srv/app/queue.py", true)]), Waiting::Other);
    }

    #[test]
    fn an_owner_is_read_only_where_the_lock_notes_one() {
        assert_eq!(owner_words(Waiting::GlibcMutex, &[2, 0, 4711, 1]), Some(4711));
        assert_eq!(owner_words(Waiting::GlibcMutex, &[2, 0, 0, 1]), None);
        assert_eq!(owner_words(Waiting::GlibcMutex, &[2]), None);
        assert_eq!(owner_words(Waiting::GlibcRwLock, &[3, 1, 0, 0, 4711, 0]), Some(4711));
        assert_eq!(owner_words(Waiting::GlibcRwLock, &[3, 0, 0, 4711, 0, 0]), Some(4711));
        assert_eq!(owner_words(Waiting::Join, &[4711, 0]), Some(4711));
        assert_eq!(owner_words(Waiting::Join, &[2, 0]), None, "a state of musl's");
        assert_eq!(owner_words(Waiting::Other, &[2, 0, 4711, 1]), None);
        assert_eq!(owner_words(Waiting::GlibcMutex, &[2, 0, u32::MAX, 1]), None);
    }
}
