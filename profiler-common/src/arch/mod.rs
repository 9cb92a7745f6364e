//! Everything that depends on the processor: register layout and system call numbers.
//!
//! An architecture is added by one file here and one in the unwinder.

#[cfg(any(target_arch = "x86_64", target_arch = "bpf"))]
mod x86_64;
#[cfg(any(target_arch = "x86_64", target_arch = "bpf"))]
mod x86_64_calls;
#[cfg(any(target_arch = "x86_64", target_arch = "bpf"))]
pub use x86_64::*;
#[cfg(any(target_arch = "x86_64", target_arch = "bpf"))]
pub use x86_64_calls::*;
