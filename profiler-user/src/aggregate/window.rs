//! What the loops did in a part of a recording: the difference of two of their states.

use profiler_common::histogram::{BUCKETS, bounds, bucket, quantile};

use super::LoopSummary;
use crate::stalls::{Cause, Ledger};

/// What loops did between two states, of which the later one lists them.
pub(crate) fn between(before: &[LoopSummary], after: &[LoopSummary]) -> Vec<LoopSummary> {
    let earlier = |one: &LoopSummary| before.iter().find(|b| (b.pid, b.tid) == (one.pid, one.tid));
    let difference =
        |one: &LoopSummary| earlier(one).map_or_else(|| one.clone(), |before| of_loop(before, one));
    after.iter().map(difference).collect()
}

fn of_loop(before: &LoopSummary, after: &LoopSummary) -> LoopSummary {
    let less = |of: fn(&LoopSummary) -> u64| of(after).saturating_sub(of(before));
    let (busy_ns, parked_ns) = (less(|one| one.busy_ns), less(|one| one.parked_ns));
    let active = busy_ns + parked_ns;
    let mut ledger = Ledger::default();
    for cause in Cause::ALL {
        ledger.add(cause, after.ledger.get(cause).saturating_sub(before.ledger.get(cause)));
    }
    let mut counts = counts(&after.turn_histogram);
    for (count, earlier) in counts.iter_mut().zip(self::counts(&before.turn_histogram)) {
        *count = count.saturating_sub(earlier);
    }
    // The longest turn is known exactly if it came in this part, else as exactly as the histogram.
    let longest = quantile(&counts, 1.0).min(after.turn_max_ns);
    let grew = after.turn_max_ns > before.turn_max_ns;
    let turn_max_ns = if grew { after.turn_max_ns } else { longest };
    let capped = |q| quantile(&counts, q).min(turn_max_ns);
    LoopSummary {
        observed_ns: less(|one| one.observed_ns),
        turns: less(|one| one.turns),
        busy_ns,
        parked_ns,
        utilization: if active == 0 { 0.0 } else { busy_ns as f64 / active as f64 },
        turn_p50_ns: capped(0.5),
        turn_p90_ns: capped(0.9),
        turn_p99_ns: capped(0.99),
        turn_p999_ns: capped(0.999),
        turn_max_ns,
        stalls: less(|one| one.stalls),
        stalled_ns: less(|one| one.stalled_ns),
        ledger,
        turn_histogram: counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(index, &count)| (bounds(index).1, count))
            .collect(),
        ..after.clone()
    }
}

/// All buckets, of those that are occupied.
fn counts(occupied: &[(u64, u64)]) -> Vec<u64> {
    let mut counts = vec![0_u64; BUCKETS];
    for &(end, count) in occupied {
        // From a file: the same bucket may come twice.
        let count_of = &mut counts[bucket(end.saturating_sub(1))];
        *count_of = count_of.saturating_add(count);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::Runtime;

    fn state(turns: &[(u64, u64)], busy_ns: u64, max_ns: u64) -> LoopSummary {
        LoopSummary {
            pid: 1,
            tid: 2,
            thread: "loop".into(),
            runtime: Runtime::Native,
            observed_ns: busy_ns * 2,
            turns: turns.iter().map(|(_, count)| count).sum(),
            busy_ns,
            parked_ns: busy_ns,
            utilization: 0.5,
            turn_p50_ns: 0,
            turn_p90_ns: 0,
            turn_p99_ns: 0,
            turn_p999_ns: 0,
            turn_max_ns: max_ns,
            stalls: turns.iter().filter(|(ns, _)| *ns >= 10_000_000).map(|(_, n)| n).sum(),
            stalled_ns: 0,
            ledger: Ledger::default(),
            turn_histogram: turns.iter().map(|&(ns, n)| (bounds(bucket(ns)).1, n)).collect(),
        }
    }

    #[test]
    fn the_turns_of_a_part_are_those_that_came_in_it() {
        let before = state(&[(1_000, 100), (500_000_000, 1)], 600_000_000, 500_000_000);
        let after =
            state(&[(1_000, 150), (20_000_000, 2), (500_000_000, 1)], 650_000_000, 500_000_000);
        let from = std::slice::from_ref(&before);
        let part = &between(from, std::slice::from_ref(&after))[0];
        assert_eq!((part.turns, part.stalls, part.busy_ns), (52, 2, 50_000_000));
        assert_eq!(part.observed_ns, 100_000_000);
        let near = |ns: u64, of: u64| ns.abs_diff(of) * 60 <= of;
        assert!(near(part.turn_p50_ns, 1_000), "{part:?}");
        assert!(near(part.turn_max_ns, 20_000_000), "not the longest of before: {part:?}");
        // A new longest is known exactly.
        let longer = LoopSummary { turn_max_ns: 512_345_678, ..after };
        assert_eq!(between(from, &[longer])[0].turn_max_ns, 512_345_678);
    }

    #[test]
    fn a_loop_that_came_later_counts_whole() {
        let only = state(&[(1_000, 3)], 3_000, 1_000);
        assert_eq!(between(&[], std::slice::from_ref(&only)), [only]);
    }
}
