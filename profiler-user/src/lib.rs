//! stallscope: what kept an event loop from running, for how long, and at which line.
//!
//! Modules stand in the order of the data flow; nothing calls back upstream. Two stand apart:
//! [`session`] wires the parts together, and [`commands`] are what the binary runs.

// One group a line of blanks each: rustfmt sorts inside groups only.
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

pub mod record;

pub mod report;

pub mod session;

pub mod commands;

pub mod demo;
