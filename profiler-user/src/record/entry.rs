//! What a recording holds, as it is handed in and out.

use serde::{Deserialize, Serialize};

use crate::aggregate::Summary;
use crate::blame::Stall;

/// What was known when the recording began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// Nanoseconds since the epoch; 0 if nobody knows.
    pub began_unix_ns: u64,
    /// From which duration a turn counted as a stall.
    pub threshold_ns: u64,
    /// What was watched, in words: `4711 (python3)`.
    pub subject: String,
    /// The machine's name.
    pub host: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Version of stallscope.
    pub stallscope: String,
    /// Bytes of older blocks that were dropped to keep the file within its bound.
    pub dropped_bytes: u64,
    /// Stalls that were in them.
    pub dropped_stalls: u64,
}

/// How the loops were doing at one time: their statistics since the beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Nanoseconds since the epoch.
    pub at_unix_ns: u64,
    /// Without the table of blockers, which follows from the stalls.
    pub summary: Summary,
}

/// One thing that was recorded.
#[derive(Debug, Clone)]
pub enum Entry {
    /// The beginning; first in every recording.
    Start(Start),
    /// A stall, or one that still lasts: then it comes again.
    Stall(Box<Stall>),
    /// How the loops were doing, about once a second.
    Checkpoint(Box<Checkpoint>),
    /// The end; last in every recording that was finished.
    End(Box<Summary>),
}
