//! What each runtime adds: how it is recognised, and where it parks.
//!
//! A runtime is added by one folder or file.

mod block_on;
mod futex;
mod nested;
mod python;
mod recognise;
mod tokio;

pub use futex::{FutexUse, futex_use};
pub use nested::{Call, is_c_library, is_nested, runs_a_loop};
pub use python::{
    Interpreter, Limiter, LockHolder, NamedPythonStack, NativeFrame, PoolKind, PythonCall,
    PythonFrames, PythonTask, Site, Worker, is_inside, merge,
};
pub use recognise::{ProcessRuntime, recognise, recognise_python};
pub use tokio::{
    BLOCKING_THREADS, BlockingUse, blocking_use, handed_off, is_worker, stand_in, task_of,
    task_polls,
};
