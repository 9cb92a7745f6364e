//! What a session has at its end, for stalls made by hand.

use stallscope::aggregate::{Aggregate, Ended, Health, LoopSummary, Summary, Unfinished};
use stallscope::blame::{Runtime, Stall};
use stallscope::stalls::Cause;

use crate::samples::{MS, ledger};

pub(crate) fn summary(stalls: &[Stall]) -> Summary {
    let observed_ns = 15_000 * MS;
    let mut aggregate = Aggregate::new();
    let mut unfinished = Unfinished::default();
    for stall in stalls {
        aggregate.add(stall);
        unfinished.settle(stall);
    }
    for stall in unfinished.stalls() {
        aggregate.add_unfinished(stall);
    }
    let one = |tid: u32, thread: &str, runtime, stalls, stalled_ns| LoopSummary {
        pid: 4711,
        tid,
        thread: thread.into(),
        runtime,
        observed_ns,
        turns: 12_345,
        busy_ns: 6_300 * MS,
        parked_ns: 8_700 * MS,
        utilization: 0.42,
        turn_p50_ns: 312_000,
        turn_p90_ns: 1_200_000,
        turn_p99_ns: 30_100_000,
        turn_p999_ns: 900 * MS,
        turn_max_ns: 2_503 * MS,
        stalls,
        stalled_ns,
        ledger: ledger(&[(Cause::Cpu, 1_000 * MS), (Cause::Syscall, 5_300 * MS)]),
        turn_histogram: Vec::new(),
    };
    Summary {
        pools: Vec::new(),
        loops: vec![
            one(4711, "python3", Runtime::Asyncio, 8, 4_900 * MS),
            one(4713, "python3", Runtime::Asyncio, 1, 34_000 * MS),
            one(914, "tokio-rt-worker", Runtime::Tokio, 1, 50_400_000),
        ],
        blockers: aggregate.blockers(3 * observed_ns),
        health: Health {
            backend: "ebpf",
            kernel: "6.18.0".into(),
            boundaries: "fentry",
            truncated_stacks: 1,
            unsymbolized_frames: 3,
            self_cpu_ns: 12_000_000,
            self_rss_bytes: 20 << 20,
            losses: vec![("slots_full".into(), 2)],
            warnings: vec!["no debug information for libfoo.so".into()],
            ..Health::default()
        },
        observed_ns,
        threshold_ns: 10 * MS,
        filtered: false,
        ended: Ended::Interrupted,
    }
}
