//! Probing the kernel, finding targets, loading and linking the kernel programs.

pub mod btf;
mod kernel;
mod limits;

pub use kernel::{Boundaries, Kernel, KernelError, KernelOptions};
