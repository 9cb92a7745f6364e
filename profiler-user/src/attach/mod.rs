//! Probing the kernel, finding targets, loading and linking the kernel programs.

pub mod blocked;
pub mod btf;
pub mod cgroup;
mod kernel;
mod limits;
pub mod privileges;
pub mod proc;
mod sockets;
mod targets;

pub use kernel::{Boundaries, Kernel, KernelError, KernelOptions, NotedWaits};
pub use limits::Pinned;
pub use targets::{TargetError, find};
