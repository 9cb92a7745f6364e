//! Thread pools: which threads are their workers, which of them work, and at what.
//!
//! A worker is told by the frames at its root, not by its name. Threads run while they are looked
//! at: a stack that makes no sense counts as nothing.

use std::sync::Arc;

use profiler_common::python::PythonFrame;

use super::code::Code;
use super::frames::{PythonFrames, is_shim, shown};
use super::interpreter::Interpreter;
use super::limits::Limiter;
use crate::symbolize::Frame;

/// What kind of pool a thread belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolKind {
    /// The worker threads of `anyio.to_thread`.
    Anyio,
    /// A `concurrent.futures.ThreadPoolExecutor`, asyncio's default one among them.
    Executor,
}

impl PoolKind {
    /// The name used in reports and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anyio => "anyio",
            Self::Executor => "ThreadPoolExecutor",
        }
    }
}

/// One worker thread at one moment.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Its pool's kind.
    pub kind: PoolKind,
    /// What tells its pool from others of the kind: the address of its queue; 0 if there is one.
    pub pool: u64,
    /// Its thread id.
    pub tid: u32,
    /// What it works at, root to leaf; empty if it waits for work.
    pub frames: Vec<Frame>,
    /// Work that waits in the queue it takes from, where that can be read.
    pub queued: Option<u64>,
    /// How many threads its pool may have, where the pool says so.
    pub limit: Option<u32>,
}

/// Objects of `Modules/_queuemodule.c`: up to 3.12 a list and a position in it, later a ring.
const QUEUE_LIST: u16 = 32;
const QUEUE_POSITION: u16 = 40;
const QUEUE_ITEMS: u16 = 56;
const FIRST_WITH_RING: u8 = 13;
/// `PyVarObject.ob_size`
const LENGTH: u16 = 16;
/// Local variables in which a worker's queue is looked for.
const LOCALS: u16 = 4;
/// Longest queue that is believed.
const QUEUE_MAX: u64 = 1 << 32;

impl PythonFrames {
    /// The pools' workers at this moment.
    pub fn workers(&mut self, of: &Interpreter) -> Vec<Worker> {
        let threads = of.threads();
        threads.into_iter().filter_map(|(state, pthread)| self.worker(of, state, pthread)).collect()
    }

    fn worker(&mut self, of: &Interpreter, state: u64, pthread: u64) -> Option<Worker> {
        let walked = of.walk_with_addresses(state).0;
        let frames: Vec<(u64, PythonFrame, Arc<Code>)> = walked
            .into_iter()
            .filter(|(_, frame)| !is_shim(of, frame))
            .map(|(address, frame)| Some((address, frame, self.codes.get(of, &frame)?)))
            .collect::<Option<_>>()?;
        let (at, kind) = frames
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, (_, _, code))| Some((index, kind_of(code)?)))?;
        let inner = &frames[..at];
        let works = match kind {
            PoolKind::Executor => inner.last().is_some_and(|(_, _, code)| is_work_item(code)),
            PoolKind::Anyio => inner.last().is_some_and(|(_, _, code)| !is_waiting(code)),
        };
        let frame = frames[at].0;
        let (queue, limit) = match kind {
            PoolKind::Executor => {
                let executor = local(of, frame, |name| name.starts_with("weakref"));
                let limit = executor.and_then(|reference| of.max_workers(reference));
                (local(of, frame, |name| name == "_queue.SimpleQueue")?, limit)
            }
            PoolKind::Anyio => (0, None),
        };
        let shown = |(_, frame, code): &(u64, PythonFrame, Arc<Code>)| shown(Some(code), frame);
        Some(Worker {
            kind,
            pool: queue,
            tid: self.threads.find(of, pthread)?,
            frames: if works { inner.iter().rev().map(shown).collect() } else { Vec::new() },
            queued: (queue != 0).then(|| length(of, queue)).flatten(),
            limit,
        })
    }

    /// What AnyIO's limiter of worker threads says at this moment, where there is exactly one. It is
    /// not looked for every time: that takes a while.
    pub fn limiter(&mut self, of: &Interpreter) -> Option<Limiter> {
        let known = self.limiters.get(&of.pid).copied();
        if let Some(limiter) = known.and_then(|object| of.limiter(object)) {
            return Some(limiter);
        }
        let object = of.find_limiter()?;
        self.limiters.insert(of.pid, object);
        of.limiter(object)
    }
}

/// The first of the first local variables of a frame whose type has such a name.
fn local(of: &Interpreter, frame: u64, is_it: impl Fn(&str) -> bool) -> Option<u64> {
    (0..LOCALS).find_map(|index| {
        let local = of.memory.field(frame, of.offsets.frame_locals + index * 8)? & !7;
        is_it(&of.type_name(local)?).then_some(local)
    })
}

fn kind_of(code: &Code) -> Option<PoolKind> {
    let last = code.name.rsplit('.').next()?;
    if last == "_worker" && code.file.ends_with("/concurrent/futures/thread.py") {
        Some(PoolKind::Executor)
    } else if last == "run" && code.file.contains("/anyio/_backends/") {
        Some(PoolKind::Anyio)
    } else {
        None
    }
}

fn is_work_item(code: &Code) -> bool {
    code.name.rsplit('.').next() == Some("run")
        && code.file.ends_with("/concurrent/futures/thread.py")
}

/// Whether a frame that an AnyIO worker's loop called is the wait for work, or the loop's own.
fn is_waiting(code: &Code) -> bool {
    ["/queue.py", "/threading.py", "/contextlib.py"].iter().any(|file| code.file.ends_with(file))
        || code.file.contains("/anyio/_")
}

fn length(of: &Interpreter, queue: u64) -> Option<u64> {
    let length = if of.offsets.minor >= FIRST_WITH_RING {
        of.part(queue, QUEUE_ITEMS)?
    } else {
        of.part(of.part(queue, QUEUE_LIST)?, LENGTH)?
            .saturating_sub(of.part(queue, QUEUE_POSITION)?)
    };
    (length < QUEUE_MAX).then_some(length)
}
