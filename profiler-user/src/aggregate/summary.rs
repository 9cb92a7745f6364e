//! What a whole observation comes to: one summary per loop, one row per blocker, and what was lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::PoolSummary;
use crate::blame::{Blocker, Runtime, Word, words};
use crate::stalls::{Cause, Ledger};

/// One loop thread over the observed time: the `loop` object of the public JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopSummary {
    /// Process id of the target.
    pub pid: u32,
    /// Thread id of the loop thread.
    pub tid: u32,
    /// The thread's name, control characters removed.
    pub thread: Arc<str>,
    /// Which runtime the thread runs.
    pub runtime: Runtime,
    /// How long the loop was watched.
    pub observed_ns: u64,
    /// Turns that ended in that time.
    pub turns: u64,
    /// Time in turns.
    pub busy_ns: u64,
    /// Time parked.
    pub parked_ns: u64,
    /// busy / (busy + parked); 0 if neither was seen.
    pub utilization: f64,
    /// Median turn.
    pub turn_p50_ns: u64,
    /// 90th percentile of the turns.
    pub turn_p90_ns: u64,
    /// 99th percentile of the turns.
    pub turn_p99_ns: u64,
    /// 99.9th percentile of the turns.
    pub turn_p999_ns: u64,
    /// The longest turn, exact.
    pub turn_max_ns: u64,
    /// Turns over the threshold.
    pub stalls: u64,
    /// Time in turns over the threshold.
    pub stalled_ns: u64,
    /// Busy time by cause.
    pub ledger: Ledger,
    /// How many turns were how long: the upper end of each bucket in nanoseconds, and its count.
    /// Buckets are at most 3.2 % wide; empty ones are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turn_histogram: Vec<(u64, u64)>,
}

/// All stalls with the same blocker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockerSummary {
    /// Main cause of these stalls.
    pub cause: Cause,
    /// System call or other closer word, as in the stall's headline.
    pub what: Option<Arc<str>>,
    /// The code to blame; `None` where nobody's code is.
    pub blocker: Option<Blocker>,
    /// How many stalls.
    pub count: u64,
    /// Their durations together.
    pub total_ns: u64,
    /// The longest one.
    pub max_ns: u64,
    /// `total_ns` as a share of the observed time of the loops involved, 0 to 1.
    pub share: f64,
}

/// How the measurement itself went: the `health` object, last in every JSON output.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// `ebpf` or `ptrace`.
    #[serde(deserialize_with = "words::word")]
    pub backend: Word,
    /// Release of the running kernel.
    pub kernel: String,
    /// How turn boundaries were seen: `fentry`, `sys_enter` or `sched`.
    #[serde(deserialize_with = "words::word")]
    pub boundaries: Word,
    /// How the polls of tokio's tasks were told apart: `exact`, `exact in slices` (the budget did not
    /// allow more), or `turns and samples`; `None` without tokio.
    #[serde(default, deserialize_with = "words::optional")]
    pub task_polls: Option<Word>,
    /// Events that did not fit into the ring buffer.
    pub lost_events: u64,
    /// Stacks that do not reach the thread's start.
    pub truncated_stacks: u64,
    /// Reads of the target's memory that failed.
    pub failed_reads: u64,
    /// Frames without a symbol.
    pub unsymbolized_frames: u64,
    /// CPU time of the kernel programs, where the kernel counts it.
    pub bpf_cpu_ns: Option<u64>,
    /// CPU time of stallscope itself.
    pub self_cpu_ns: u64,
    /// Peak resident memory of stallscope itself.
    pub self_rss_bytes: u64,
    /// Every other named loss that is not zero.
    #[serde(serialize_with = "by_name", deserialize_with = "from_names")]
    pub losses: Vec<(String, u64)>,
    /// What the reader should know.
    pub warnings: Vec<String>,
}

/// Named counters as one object: `{ "name": count, … }`.
fn by_name<S: Serializer>(losses: &[(String, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(losses.iter().map(|(name, count)| (name, count)))
}

fn from_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, u64)>, D::Error> {
    Ok(BTreeMap::<String, u64>::deserialize(deserializer)?.into_iter().collect())
}

/// Everything a report says at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// One entry per loop thread.
    pub loops: Vec<LoopSummary>,
    /// One entry per thread pool.
    #[serde(default)]
    pub pools: Vec<PoolSummary>,
    /// One entry per blocker, largest total first.
    pub blockers: Vec<BlockerSummary>,
    /// How the measurement went.
    pub health: Health,
    /// Wall time that was watched, in nanoseconds.
    pub observed_ns: u64,
    /// From which duration a turn counted as a stall, in nanoseconds.
    pub threshold_ns: u64,
    /// Why the observation ended.
    pub ended: Ended,
    /// Whether stalls were left out on demand.
    #[serde(skip)]
    pub filtered: bool,
}

/// Why an observation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The time asked for is over.
    Duration,
    /// Ctrl-C, or another signal that asks for an end.
    Interrupted,
    /// Nobody knows: stallscope was killed, or the recording is damaged at its end.
    Unknown,
    /// The last target is gone.
    TargetExited {
        /// How it ended, in words: `exit status 0`, `killed by SIGKILL`, `unknown`.
        status: String,
    },
}
