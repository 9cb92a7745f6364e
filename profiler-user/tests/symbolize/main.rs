//! The symbolizer on real binaries, built here from `sources/`.
//!
//! - `formats`: compilers, debug formats, separate debug files
//! - `places`: files that are deleted, replaced, or in another root or mount namespace
//! - `damage`: files that are no ELF, truncated, flipped or hostile
//! - `renamed`: names that turn up later, found by build id
//! - `system`: binaries of this machine, the vdso and the kernel, with binutils as second opinion

mod damage;
mod formats;
mod places;
mod programs;
mod renamed;
mod system;
