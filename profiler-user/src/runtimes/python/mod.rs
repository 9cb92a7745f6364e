//! CPython: whose interpreter's frames the kernel programs walk, and what they are called.
//!
//! - `offsets`: where the fields of the interpreter's structures lie, by version.
//! - `interpreter`: finds a process's interpreter.
//! - `memory`: reads the target's objects from outside.
//! - `code`: code objects to file, name and line; verified, because their addresses are used again.
//! - `copies`: instructions that each thread has a copy of.
//! - `lines`: the line tables of each version.
//! - `frames`: one capture's frames with names.
//! - `inside`: a wait inside of a loop's turn, by these frames.
//! - `outside`: the frames of a thread that sleeps, without the kernel side.
//! - `attributes`: what instances were given.
//! - `limits`: how many threads a pool may have.
//! - `pools`: thread pools and their workers.
//! - `threads`: which thread a `pthread_self` belongs to.
//! - `merge`: interpreter's and native frames in one stack.
//!
//! The target is only read, through `/proc/PID/mem`. It runs meanwhile: everything that is read may
//! be garbage, is bounded, and is believed only if it proves right.

mod attributes;
mod code;
mod copies;
mod frames;
mod inside;
mod interpreter;
mod limits;
mod lines;
mod memory;
mod merge;
mod offsets;
mod outside;
mod pools;
mod threads;

pub use frames::{LockHolder, NamedPythonStack, PythonCall, PythonFrames, PythonTask};
pub use inside::{Site, is_inside};
pub use interpreter::Interpreter;
pub use limits::Limiter;
pub use merge::{NativeFrame, merge};
pub use pools::{PoolKind, Worker};
