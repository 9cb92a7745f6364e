//! Many stalls to a summary. No I/O.

mod summary;

pub use summary::{BlockerSummary, Health, LoopSummary};
