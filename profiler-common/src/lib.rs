//! What crosses the boundary between stallscope's kernel programs and its daemon, and the state
//! machine of a turn, which both sides compile.
//!
//! Everything here is `no_std` and free of I/O: the kernel program drives [`turn`] from scheduler
//! events, and property tests drive the same code on the host with arbitrary event sequences.
//!
//! Layouts are `repr(C)` without implicit padding; sizes are asserted at compile time.
#![no_std]

pub mod arch;
pub mod capture;
pub mod cause;
pub mod config;
pub mod counters;
pub mod file_systems;
pub mod histogram;
pub mod layout;
pub mod python;
pub mod record;
pub mod turn;
pub mod waits;

#[cfg(feature = "user")]
mod pod;
