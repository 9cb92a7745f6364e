//! stallscope: what kept an event loop from running, for how long, and at which line.
//!
//! Modules stand in the order of the data flow; nothing calls back upstream.

pub mod aggregate;
pub mod attach;
pub mod binaries;
pub mod blame;
pub mod cli;
pub mod demo;
pub mod events;
pub mod report;
pub mod runtimes;
pub mod stalls;
pub mod symbolize;
pub mod unwind;
