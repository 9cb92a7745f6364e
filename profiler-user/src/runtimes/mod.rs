//! What each runtime adds: how it is recognised, and where it parks.
//!
//! A runtime is added by one folder or file.

mod recognise;
mod tokio;

pub use recognise::{ProcessRuntime, recognise};
pub use tokio::{FutexUse, classify_futex, is_worker, task_polls};
