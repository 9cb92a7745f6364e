//! What is said at the end: loops, and how the measurement itself went.

use std::collections::BTreeMap;

use profiler_common::counters::Counter;
use profiler_common::histogram::{bounds, quantile};
use profiler_common::turn::{LoopStats, Phase, ThreadState};

use crate::aggregate::{Health, LoopSummary};
use crate::attach::Kernel;
use crate::events::monotonic_ns;
use crate::session::not_stalls::NotStalls;
use crate::session::pipeline::Pipeline;
use crate::stalls::{Cause, Ledger};

/// A loop thread under watch, or one that has exited.
#[derive(Debug, Clone)]
pub(super) struct KnownLoop {
    pub(super) pid: u32,
    pub(super) since_ns: u64,
    /// Its last statistics, once it has exited.
    pub(super) last: Option<(LoopStats, Box<[u64]>, u64)>,
    /// What it was asleep in, inside a turn, when stallscope attached, and since when.
    pub(super) stuck: Option<(Cause, u64)>,
    /// When its current turn is next reported as ongoing, by the turn's number.
    pub(super) next_report: Option<(u64, u64)>,
}

/// All loops by thread.
pub(super) type Loops = BTreeMap<u32, KnownLoop>;

/// Where the states of loops are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct States<'a> {
    pub(super) kernel: &'a Kernel,
    /// Up to when everything was seen, if the watching has ended.
    pub(super) ended_ns: Option<u64>,
    pub(super) threshold_ns: u64,
}

/// The moment of which a state tells that was read just now: not earlier, for it has all the time
/// until it was read. At the end of the watching a last event may have come a moment after that.
pub(super) fn now_of(ended_ns: Option<u64>, state: &ThreadState) -> u64 {
    ended_ns.map_or_else(monotonic_ns, |ended_ns| ended_ns.max(state.mark_ns))
}

/// Takes the final statistics of a loop that is about to be forgotten.
pub(super) fn retire(kernel: &Kernel, tid: u32, known: &mut KnownLoop) {
    if known.last.is_none()
        && let Some(state) = kernel.thread(tid)
    {
        let histogram = kernel.histogram(state.slot).unwrap_or_default();
        known.last = Some((state.stats, histogram, monotonic_ns()));
    }
}

/// One line per loop, each as of the moment at which its state is read.
pub(super) fn loops(
    states: &States<'_>,
    pipeline: &mut Pipeline,
    known: &Loops,
) -> Vec<LoopSummary> {
    let mut summaries = Vec::new();
    for (&tid, known) in known {
        let (mut stats, mut histogram, until) =
            known.last.clone().unwrap_or_else(|| states.read(tid, known));
        pipeline.not_stalls.correct(tid, &mut stats, &mut histogram);
        let active = stats.busy_ns + stats.parked_ns;
        summaries.push(LoopSummary {
            pid: known.pid,
            tid,
            thread: pipeline.processes.thread_name(known.pid, tid),
            runtime: pipeline.processes.runtime(known.pid),
            observed_ns: until.saturating_sub(if stats.since_ns == 0 {
                known.since_ns
            } else {
                stats.since_ns.min(known.since_ns)
            }),
            turns: stats.turns,
            busy_ns: stats.busy_ns,
            parked_ns: stats.parked_ns,
            utilization: if active == 0 { 0.0 } else { stats.busy_ns as f64 / active as f64 },
            turn_p50_ns: capped(&histogram, 0.5, &stats),
            turn_p90_ns: capped(&histogram, 0.9, &stats),
            turn_p99_ns: capped(&histogram, 0.99, &stats),
            turn_p999_ns: capped(&histogram, 0.999, &stats),
            turn_max_ns: stats.max_ns,
            stalls: stats.stalls,
            stalled_ns: stats.stalled_ns,
            ledger: Ledger::new(stats.ledger),
            turn_histogram: occupied(&histogram),
        });
    }
    summaries
}

/// The buckets that are not empty, by the upper end of each.
fn occupied(histogram: &[u64]) -> Vec<(u64, u64)> {
    let occupied = histogram.iter().enumerate().filter(|(_, count)| **count > 0);
    occupied.map(|(bucket, &count)| (bounds(bucket).1, count)).collect()
}

/// A bucket's middle may lie above the longest turn, which is exact.
fn capped(histogram: &[u64], q: f64, stats: &LoopStats) -> u64 {
    quantile(histogram, q).min(stats.max_ns)
}

impl States<'_> {
    /// The statistics, the histogram, and the moment of both.
    fn read(&self, tid: u32, known: &KnownLoop) -> (LoopStats, Box<[u64]>, u64) {
        let Some(state) = self.kernel.thread(tid) else {
            // It was never at rest: nothing is known, and nothing made up.
            let now_ns = self.ended_ns.unwrap_or_else(monotonic_ns);
            return (LoopStats::default(), Box::default(), now_ns);
        };
        let now_ns = now_of(self.ended_ns, &state);
        let histogram = self.kernel.histogram(state.slot).unwrap_or_default();
        (self.live_stats(state, known, now_ns), histogram, now_ns)
    }

    /// The statistics with the turn or the park that has not ended yet.
    fn live_stats(&self, mut state: ThreadState, known: &KnownLoop, now_ns: u64) -> LoopStats {
        if state.stats.since_ns == 0 {
            return known.unseen(now_ns);
        }
        let mut in_disguise = None;
        if self.kernel.is_parked(&state) {
            in_disguise = state.sleep_was_park(0);
        }
        if let Some(turn) = in_disguise {
            state.count_length(turn.ns);
        }
        let mut stats = state.stats;
        if let Some(turn) = in_disguise.filter(|turn| turn.ns >= self.threshold_ns) {
            stats.stalls += 1;
            stats.stalled_ns += turn.ns;
        }
        if state.phase() == Phase::Busy {
            // The turn that has not ended: busy time, though neither a turn nor a stall yet.
            state.settle(now_ns);
            let turn = &state.record.turn;
            stats.busy_ns += now_ns.saturating_sub(turn.start_ns);
            for (total, spent) in stats.ledger.iter_mut().zip(turn.ledger) {
                *total += spent;
            }
        }
        if state.phase() == Phase::Parked {
            stats.parked_ns += now_ns.saturating_sub(state.park_ns);
        }
        stats
    }
}

impl KnownLoop {
    /// Of a thread that has had no event since stallscope attached.
    fn unseen(&self, now_ns: u64) -> LoopStats {
        if let Some((cause, since_ns)) = self.stuck {
            // In one and the same sleep of a turn.
            let busy_ns = now_ns.saturating_sub(since_ns);
            let mut ledger = [0; profiler_common::cause::COUNT];
            ledger[cause as usize] = busy_ns;
            return LoopStats { since_ns, busy_ns, ledger, ..LoopStats::default() };
        }
        // Parked, and not woken once.
        LoopStats {
            since_ns: self.since_ns,
            parked_ns: now_ns.saturating_sub(self.since_ns),
            ..LoopStats::default()
        }
    }
}

/// How the measurement went.
pub(super) fn health(
    kernel: &Kernel,
    pipeline: &Pipeline,
    boundaries: &'static str,
    task_polls: Option<&'static str>,
    mut warnings: Vec<String>,
) -> Health {
    let counters = kernel.counters().unwrap_or_default();
    let count = |wanted: Counter| {
        counters.iter().find(|(counter, _)| *counter == wanted).map_or(0, |(_, n)| *n)
    };
    let symbols = pipeline.symbolizer.counters();
    let python = &pipeline.python;
    let of_python = [
        ("python_code_gone", python.unresolved),
        ("python_holders_torn", python.torn_holders),
        ("python_stacks_broken", python.broken),
    ];
    let losses = counters
        .iter()
        .filter(|(counter, n)| counter.is_loss() && *n > 0 && *counter != Counter::RingFull)
        .map(|(counter, n)| (counter.name().to_owned(), *n))
        .chain(of_python.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), n)))
        .collect();
    let NotStalls { ambiguous, with_a_park, .. } = &pipeline.not_stalls;
    if *with_a_park > 0 {
        warnings.push(format!(
            "{with_a_park} busy periods over the threshold were not reported: they held a sleep that was \
             recognised as a park only after it was over"
        ));
    }
    if *ambiguous > 0 {
        warnings.push(format!(
            "{ambiguous} busy periods over the threshold were not reported: polls were not watched \
             meanwhile, so they may have been many short turns (see --boundaries exact)"
        ));
    }
    if counters.iter().any(|(counter, n)| *counter == Counter::LoopSlotsFull && *n > 0) {
        warnings.push(
            "more loops ran at once than there is room for: stalls of the others have durations and \
             causes, but neither lines nor percentiles; attach again, now that they run"
                .to_owned(),
        );
    }
    for failed in &symbols.failed {
        warnings.push(format!("no symbols from {}: {}", failed.path, failed.reason));
    }
    let (self_cpu_ns, self_rss_bytes) = own_usage();
    Health {
        backend: "ebpf",
        kernel: kernel_release(),
        boundaries,
        task_polls,
        lost_events: count(Counter::RingFull),
        truncated_stacks: pipeline.truncated_stacks,
        failed_reads: count(Counter::RegistersUnreadable),
        unsymbolized_frames: symbols.unsymbolized_frames,
        bpf_cpu_ns: kernel.cpu_time_ns(),
        self_cpu_ns,
        self_rss_bytes,
        losses,
        warnings,
    }
}

/// Release of the running kernel.
#[must_use]
pub(crate) fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map(|release| release.trim().to_owned())
        .unwrap_or_default()
}

fn own_usage() -> (u64, u64) {
    // SAFETY: a structure of integers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a valid structure.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return (0, 0);
    }
    let ns = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
            + u64::try_from(time.tv_usec).unwrap_or(0) * 1_000
    };
    // ru_maxrss counts KiB.
    let rss = u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024;
    (ns(usage.ru_utime) + ns(usage.ru_stime), rss)
}
