//! One observation from beginning to end: wires the parts together.
//!
//! - `processes`: who is watched.
//! - `preparing`: what is read of them while the kernel verifies the programs.
//! - `pipeline`: events to stalls, without the kernel; what a replay runs.
//! - `walking`: one stack, unwound.
//! - `naming`: captured stacks to named ones.
//! - `judging`: the verdict on a stall.
//! - `watch`: watches from beginning to end: settings, loop, outcome.
//! - `watcher`: the state of that, and what happens with each event and each period.
//! - `attaching`: sets the kernel side up and begins where every thread is found.
//! - `ongoing`: stalls that still last.
//! - `nested`: waits of a loop inside of a loop.
//! - `asked`: what such a one waits for, and for whom.
//! - `candidates`: who may hold a lock that notes nobody.
//! - `parked`: turns that ended in a sleep which only now turned out to be a park.
//! - `not_stalls`: long turns that the kernel side counts as stalls and that are none.
//! - `command`: a child that is watched from its first instruction.
//! - `found`: loops that are parked or stuck already when stallscope attaches.
//! - `event_stream`: the kernel side's records in a file, for replays.
//! - `pools`: thread pools, looked at a few times a second.
//! - `blocking`: tokio's blocking pool among them.
//! - `governor`: keeps exact boundaries within their budget.
//! - `waits`: what a stalled thread waited for, by name.
//! - `stdout`: standard output that can be given up.
//! - `ending`: how everything stands, and how it ends.
//! - `summary`: what is said at the end.

mod asked;
mod attaching;
mod blocking;
mod candidates;
pub mod command;
mod ending;
mod event_stream;
mod found;
mod governor;
mod judging;
mod kernel_frames;
mod naming;
mod nested;
mod not_stalls;
mod ongoing;
mod outputs;
mod parked;
mod pipeline;
mod pools;
mod preparing;
mod processes;
mod stdout;
mod summary;
mod waits;
mod walking;
mod watch;
mod watcher;

pub use event_stream::{RecordedStream, RecordedTarget, StreamHeader};
pub use outputs::Outputs;
pub use pipeline::{Pipeline, Walked, syscall_name};
pub use processes::{Process, Processes};
pub(crate) use summary::kernel_release;
pub use watch::{Outcome, Settings, Subject, WatchError, watch};
