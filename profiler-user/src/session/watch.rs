//! Watches from beginning to end: attach, run until the end, report.
//!
//! The [`Watcher`] holds the state; `attaching` sets it up, `ongoing` tells of stalls that last.

use std::io;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

use super::outputs::Outputs;
use super::stdout::note_signals;
use super::watcher::Watcher;
use crate::aggregate::{Ended, Summary};
use crate::attach::KernelError;
use crate::cli;
use crate::symbolize::Symbolizer;

/// How often the state of the loops is looked at.
const PERIOD: Duration = Duration::from_millis(100);
/// Records handled before the rest of the work gets its turn.
const BATCH: usize = 256;

/// Why an observation failed.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The kernel side.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The report could not be written, or signals not be received.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Every target was gone before it could be watched.
    #[error("the target is gone")]
    Gone,
}

/// How to watch.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// From which duration a turn is a stall.
    pub threshold_ns: u64,
    /// How long to watch; until told to stop if `None`.
    pub duration: Option<Duration>,
    /// Whether stalls are told while they last.
    pub live: bool,
    /// How turns are told apart.
    pub boundaries: cli::Boundaries,
    /// Share of one CPU that exact boundaries may cost.
    pub overhead_budget: f64,
    /// Bytes of user stack in a capture.
    pub stack_bytes: usize,
    /// Samples per second of a loop thread on CPU.
    pub sample_rate: u32,
    /// Whether interpreters are looked for; without, their frames are native code.
    pub python: bool,
    /// How often to tell how the loops are doing.
    pub interval: Option<Duration>,
}

/// What to watch.
#[derive(Debug)]
pub enum Subject {
    /// Running processes.
    Processes(Vec<u32>),
    /// A child that waits to be let go, started by us.
    Child(super::command::Child),
}

/// How it went.
#[derive(Debug)]
pub struct Outcome {
    /// Everything that was said at the end.
    pub summary: Summary,
    /// Whether any loop was found.
    pub found_loops: bool,
}

/// Watches until the duration is over, the targets are gone or a signal comes. `attached` is told
/// when nothing is missed from then on.
///
/// # Errors
/// The kernel side can't be set up, or the report not be written.
pub async fn watch(
    settings: &Settings,
    subject: Subject,
    symbolizer: Symbolizer,
    outputs: &mut Outputs,
    attached: impl FnOnce(),
) -> Result<Outcome, WatchError> {
    note_signals();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (pids, mut child) = match subject {
        Subject::Processes(pids) => (pids, None),
        Subject::Child(child) => (vec![child.pid()], Some(child)),
    };
    let (mut watcher, ring) = Watcher::attach(settings, &pids, symbolizer, outputs)?;
    // SAFETY: the ring buffer owns its descriptor, which stays the same and open until it is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
    let mut ring = registered.map_err(io::Error::from)?;
    if let Some(child) = &mut child {
        child.release()?;
    }
    watcher.snapshot(ring.get_mut())?;
    attached();
    let deadline = settings.duration.map(|duration| watcher.began + duration);
    let mut period = tokio::time::interval(PERIOD);
    period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let ended = loop {
        tokio::select! {
            biased;
            _ = interrupt.recv() => break Ended::Interrupted,
            _ = terminate.recv() => break Ended::Interrupted,
            () = until(deadline) => break Ended::Duration,
            _ = period.tick() => {
                let behind = watcher.drain(ring.get_mut(), BATCH)? == BATCH;
                watcher.periodic(behind)?;
                if watcher.pids.is_empty() {
                    break Ended::TargetExited { status: watcher.exit_status(child.as_mut()) };
                }
            }
            ready = ring.readable_mut() => {
                let mut guard = ready?;
                if watcher.drain(guard.get_inner_mut(), BATCH)? < BATCH {
                    guard.clear_ready();
                }
            }
        }
        if watcher.outputs.closed {
            break Ended::Interrupted;
        }
    };
    watcher.freeze()?;
    while watcher.drain(ring.get_mut(), usize::MAX)? > 0 {}
    watcher.report_ongoing(true)?;
    watcher.drain(ring.get_mut(), usize::MAX)?;
    watcher.finish(ended)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
