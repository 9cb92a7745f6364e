//! The files behind a target's mappings: what is mapped where, and how to open it.
//!
//! Everything is opened through `/proc/PID/map_files` or `/proc/PID/root`, so that deleted,
//! replaced and containerised files are the ones the target really runs. Files are read, never
//! mapped: a file truncated under us is an error, not a SIGBUS.

mod maps;
mod open;
mod rooted;

pub use maps::{Mapping, ProcessMaps};
pub use open::{Binary, BinaryId, open_mapping};
pub use rooted::open_in_root;
