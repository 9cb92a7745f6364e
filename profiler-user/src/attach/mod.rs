//! Probing the kernel, finding targets, loading and linking the kernel programs.

pub mod btf;
mod kernel;
mod limits;
pub mod proc;
mod targets;

pub use kernel::{Boundaries, Kernel, KernelError, KernelOptions};
pub use targets::{TargetError, find};
