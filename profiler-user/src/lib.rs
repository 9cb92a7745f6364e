//! stallscope: what kept an event loop from running, for how long, and at which line.
//!
//! Modules stand in the order of the data flow; nothing calls back upstream.

pub mod cli;
pub mod attach;
pub mod events;
pub mod stalls;
pub mod binaries;
pub mod unwind;
pub mod symbolize;
pub mod runtimes;
pub mod blame;
pub mod aggregate;
pub mod report;
pub mod demo;
