//! tokio: where its workers park, where they begin to poll a task, and which task that is.
//!
//! - `blocking`: what the threads of its blocking pool do.
//! - `park`: futex waits that are parks, told by their stacks.
//! - `polls`: the functions that poll one task.
//! - `stripped`: both without symbols.
//! - `task`: the task of a stack, and the awaits that lead to its innermost code.

mod blocking;
mod park;
mod polls;
mod stripped;
mod task;

pub use blocking::{BLOCKING_THREADS, BlockingUse, blocking_use};
pub use park::is_worker;
pub(super) use park::{POLL, classify_futex};
pub use polls::task_polls;
pub(super) use stripped::names_tokio;
pub use stripped::stand_in;
pub use task::{handed_off, task_of};
