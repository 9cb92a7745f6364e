//! A stall as it is reported: what happened, for how long, and who did it.
//!
//! These types are the `stall` object of the public JSON (names and meaning are fixed there), and
//! what recordings hold: a field that is added must have a default, since older recordings lack it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::parts::Part;
use super::words::{self, Word};
use crate::stalls::{Cause, Ledger};
use crate::symbolize::{Frame, FrameKind};

/// One turn over the threshold, or one that still lasts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stall {
    /// When the turn began: nanoseconds since the epoch.
    pub start_unix_ns: u64,
    /// How long it was, or has been so far.
    pub duration_ns: u64,
    /// Whether it still lasted when this was written.
    pub ongoing: bool,
    /// Whether it had begun before stallscope attached: `duration_ns` is then a lower bound.
    pub at_attach: bool,
    /// Process id of the target.
    pub pid: u32,
    /// Thread id of the loop thread.
    pub tid: u32,
    /// The thread's name, control characters removed.
    pub thread: Arc<str>,
    /// Which runtime the thread runs.
    pub runtime: Runtime,
    /// The duration by cause; sums to `duration_ns` exactly.
    pub ledger: Ledger,
    /// The largest entry of the ledger.
    pub cause: Cause,
    /// A closer word for the cause where one is known: `fork`, `gc`, `dns` …
    #[serde(default, deserialize_with = "words::optional")]
    pub detail: Option<Word>,
    /// Whether the turn's boundaries were seen.
    pub boundary: Boundary,
    /// Share of the CPU time spent in the kernel, from samples; `None` without samples.
    pub kernel_share: Option<f64>,
    /// System calls that slept, longest total first.
    #[serde(default)]
    pub syscalls: Vec<SyscallUse>,
    /// The code to blame, if any can be.
    pub blocker: Option<Blocker>,
    /// Its time by coroutine and place, heaviest first: a long turn need not be one slow callback.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// Merged stacks, heaviest first.
    #[serde(default)]
    pub stacks: Vec<Stack>,
    /// How many sockets of its epoll instance were ready when it ended: those that it kept waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_sockets: Option<u32>,
    /// What held the process from outside, where that is known.
    pub outside: Option<Outside>,
    /// The running task, where the runtime's tasks are known.
    pub task: Option<Task>,
    /// What to do about it.
    pub advice: Option<String>,
}

impl Stall {
    /// Whether the thread waited for another to get something done, rather than for a lock that the
    /// other holds: `holder` then is the thread that was waited for.
    #[must_use]
    pub fn waits_for_a_thread(&self) -> bool {
        matches!(self.detail, Some("join" | "condvar" | "channel" | "park" | "future"))
    }
}

/// Which runtime drives a loop thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// CPython's asyncio on its own selector loop.
    Asyncio,
    /// asyncio on uvloop.
    Uvloop,
    /// trio.
    Trio,
    /// tokio.
    Tokio,
    /// libuv, Node included.
    Libuv,
    /// A Java virtual machine.
    Jvm,
    /// An event loop of the program's own.
    #[serde(other)]
    Native,
}

impl Runtime {
    /// The name used in reports and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asyncio => "asyncio",
            Self::Uvloop => "uvloop",
            Self::Trio => "trio",
            Self::Tokio => "tokio",
            Self::Libuv => "libuv",
            Self::Jvm => "jvm",
            Self::Native => "native",
        }
    }
}

/// How well the ends of a turn are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boundary {
    /// Every poll of the thread was seen: the turn is one turn.
    Exact,
    /// Polls that found work without sleeping were not seen: the turn may be several.
    #[serde(other)]
    UpperBound,
}

/// One kind of system call that slept during a stall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallUse {
    /// The call's name.
    #[serde(deserialize_with = "words::word")]
    pub name: Word,
    /// How often it slept.
    pub count: u32,
    /// Time asleep in it.
    pub total_ns: u64,
    /// The longest sleep.
    pub max_ns: u64,
    /// What it waited for: a path, a socket's addresses, a child …
    pub resource: Option<String>,
}

/// The code that kept the loop from running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blocker {
    /// The function's name.
    pub function: Arc<str>,
    /// Its source file.
    pub file: Option<Arc<str>>,
    /// The line in `file`, from 1.
    pub line: Option<u32>,
    /// Which kind of code it is.
    pub kind: FrameKind,
    /// Share of the stall's `cause` that this stack holds, 0 to 1.
    pub share: f64,
}

/// One stack of a stall and the time it accounts for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stack {
    /// What the thread was doing there.
    pub cause: Cause,
    /// The system call it was in: asleep, or on CPU in the kernel.
    #[serde(default, deserialize_with = "words::optional")]
    pub call: Option<Word>,
    /// Time that belongs to this stack: exact when asleep, shared out by samples on CPU.
    pub total_ns: u64,
    /// How often it was seen (samples on CPU, sleeps otherwise).
    pub samples: u32,
    /// Why the stack ends before the thread's start; `None` if it is complete.
    #[serde(default, deserialize_with = "words::optional")]
    pub truncated: Option<Word>,
    /// Frames from the root to the leaf; kernel frames last.
    #[serde(default)]
    pub frames: Vec<Frame>,
    /// Who held what the thread waited for.
    pub holder: Option<Holder>,
    /// What was waited for there, where no system call tells: the file behind a mapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Where nobody notes who holds what is waited for: what the other threads of the process do
    /// meanwhile. Any of them may be the one, or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Holder>,
}

impl Stack {
    /// A stack of nothing but its frames.
    #[must_use]
    pub const fn new(cause: Cause, total_ns: u64, samples: u32, frames: Vec<Frame>) -> Self {
        Self {
            cause,
            call: None,
            total_ns,
            samples,
            truncated: None,
            frames,
            holder: None,
            resource: None,
            candidates: Vec::new(),
        }
    }
}

/// The thread that held what a stalled thread waited for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Holder {
    /// Its thread id.
    pub tid: u32,
    /// Its name, control characters removed.
    pub thread: Arc<str>,
    /// System call in which it slept when the wait for it began, without letting go of what it holds;
    /// `None` if it did not sleep, or that is not known.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "words::optional"
    )]
    pub asleep_in: Option<Word>,
    /// Its frames, root to leaf.
    #[serde(default)]
    pub frames: Vec<Frame>,
}

/// Somebody outside the process who kept it from running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outside {
    /// `SIGSTOP`, `ptrace`, `freezer`, `cpu quota`, `preempted`, `reclaim`.
    #[serde(deserialize_with = "words::word")]
    pub what: Word,
    /// Who did it.
    pub who: String,
}

/// The task that was running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The task's name.
    pub name: String,
    /// Coroutines, outermost to innermost.
    #[serde(default)]
    pub chain: Vec<String>,
}
