//! Long turns that the kernel side counts as stalls and that are none, or may be none: they are not
//! reported, and so taken out of their loop's statistics too.

use std::collections::HashMap;

use profiler_common::histogram::{bucket, quantile};
use profiler_common::turn::LoopStats;

use crate::blame::{Runtime, Stack};
use crate::runtimes::{FutexUse, futex_use};
use crate::stalls::{Cause, Ledger, RawStall};

/// What was not reported, and why.
#[derive(Debug, Default)]
pub(super) struct NotStalls {
    by_thread: HashMap<u32, Correction>,
    /// Turns that may have been many short ones, because polls were not watched.
    pub(super) ambiguous: u64,
    /// Turns that held a park, and would be long without it too.
    pub(super) with_a_park: u64,
}

/// What to take out of the statistics of one loop.
#[derive(Debug, Default)]
struct Correction {
    stalls: u64,
    stalled_ns: u64,
    parks: Vec<Park>,
}

/// A turn that held a park: two turns, of which the kernel side knows only the sum.
#[derive(Debug, Clone, Copy)]
pub(super) struct Park {
    /// All of it.
    pub(super) turn_ns: u64,
    /// What it was taken for.
    pub(super) slept_in: Cause,
    /// The park in it.
    pub(super) park_ns: u64,
    /// Whether what is left was reported as a stall.
    pub(super) rest_is_stall: bool,
}

impl NotStalls {
    /// A turn that may have been many.
    pub(super) fn add_ambiguous(&mut self, tid: u32, duration_ns: u64) {
        self.ambiguous += 1;
        self.add(tid, duration_ns);
    }

    /// A turn of a thread that had handed its worker's work to another meanwhile.
    pub(super) fn add_handed_off(&mut self, tid: u32, duration_ns: u64) {
        self.add(tid, duration_ns);
    }

    /// A turn that held a park.
    pub(super) fn add_park(&mut self, tid: u32, park: Park, threshold_ns: u64) {
        let rest_ns = park.turn_ns.saturating_sub(park.park_ns);
        let one = if park.rest_is_stall {
            let one = self.by_thread.entry(tid).or_default();
            one.stalled_ns += park.park_ns;
            one
        } else {
            self.with_a_park += u64::from(rest_ns >= threshold_ns);
            self.add(tid, park.turn_ns)
        };
        one.parks.push(park);
    }

    fn add(&mut self, tid: u32, duration_ns: u64) -> &mut Correction {
        let one = self.by_thread.entry(tid).or_default();
        one.stalls += 1;
        one.stalled_ns += duration_ns;
        one
    }

    /// Takes them out of a loop's statistics.
    pub(super) fn correct(&self, tid: u32, stats: &mut LoopStats, histogram: &mut [u64]) {
        let Some(correction) = self.by_thread.get(&tid) else { return };
        stats.stalls = stats.stalls.saturating_sub(correction.stalls);
        stats.stalled_ns = stats.stalled_ns.saturating_sub(correction.stalled_ns);
        for &Park { turn_ns, slept_in, park_ns, rest_is_stall } in &correction.parks {
            stats.busy_ns = stats.busy_ns.saturating_sub(park_ns);
            stats.parked_ns += park_ns;
            let slept = &mut stats.ledger[slept_in as usize];
            *slept = slept.saturating_sub(park_ns);
            if let Some(count) = histogram.get_mut(bucket(turn_ns)) {
                *count = count.saturating_sub(1);
            }
            let rest_ns = turn_ns.saturating_sub(park_ns);
            if rest_is_stall && let Some(count) = histogram.get_mut(bucket(rest_ns)) {
                *count += 1;
            }
            if stats.max_ns == turn_ns {
                // As exact as the histogram is: the longest of those that are left.
                stats.max_ns = quantile(histogram, 1.0).min(turn_ns);
            }
        }
    }
}

/// How long a turn was asleep in what is now known to be where its thread parks, if that is what
/// it mostly waited for. Time without a stack is nobody's park.
pub(super) fn park_in(runtime: Runtime, ledger: &Ledger, stacks: &[Stack]) -> Option<u64> {
    if ledger.largest() != Cause::Lock {
        return None;
    }
    let waits = stacks.iter().filter(|stack| stack.cause == Cause::Lock);
    let longest = waits.max_by_key(|stack| stack.total_ns)?;
    let most = longest.total_ns.saturating_mul(2) > ledger.get(Cause::Lock);
    (most && futex_use(runtime, &longest.frames) != FutexUse::Lock).then_some(longest.total_ns)
}

/// What is left of a turn without the park in it, if a single stretch off the CPU makes that a stall:
/// such a stretch lies in one turn in any case, so the rest is at most as long as what is given.
pub(super) fn without_park<S: Clone>(
    raw: &RawStall<S>,
    slept_in: Cause,
    park_ns: u64,
    threshold_ns: u64,
) -> Option<RawStall<S>> {
    let parks = raw.stacks.iter().enumerate().filter(|(_, stack)| stack.cause == slept_in);
    let (park, _) = parks.max_by_key(|(_, stack)| stack.total_ns)?;
    let mut rest = raw.clone();
    rest.stacks.remove(park);
    let sleeps = rest.stacks.iter().filter(|stack| stack.cause != Cause::Cpu);
    rest.longest_ns = sleeps.map(|stack| stack.max_ns).max()?;
    rest.exact = false;
    rest.duration_ns = raw.duration_ns.checked_sub(park_ns)?;
    if rest.longest_ns < threshold_ns || rest.longest_ns > rest.duration_ns {
        // Longer than all that is left: it is part of the park, in a stack that reads the same.
        return None;
    }
    rest.ledger.take(slept_in, park_ns);
    Some(rest)
}

#[cfg(test)]
mod tests {
    use profiler_common::histogram::BUCKETS;

    use super::*;
    use crate::stalls::Captured;
    use crate::symbolize::Frame;

    const MS: u64 = 1_000_000;

    fn waited(function: &str, ms: u64) -> Stack {
        Stack::new(Cause::Lock, ms * MS, 1, vec![Frame::of_symbol(function.into())])
    }

    fn ledger(lock_ms: u64) -> Ledger {
        let mut causes = [0; profiler_common::cause::COUNT];
        causes[Cause::Lock as usize] = lock_ms * MS;
        Ledger::new(causes)
    }

    #[test]
    fn a_lock_is_no_park_because_of_a_park_beside_it() {
        let park = waited("tokio::runtime::scheduler::multi_thread::park::Parker::park", 0);
        assert_eq!(
            park_in(Runtime::Tokio, &ledger(100), std::slice::from_ref(&park)),
            None,
            "100 ms have no stack"
        );
        let lock = waited("std::sync::Mutex::lock", 100);
        assert_eq!(park_in(Runtime::Tokio, &ledger(100), &[park, lock]), None);
    }

    #[test]
    fn a_turn_that_mostly_parked_is_none() {
        let park = waited("tokio::runtime::scheduler::multi_thread::park::Parker::park", 90);
        assert_eq!(park_in(Runtime::Tokio, &ledger(100), &[park]), Some(90 * MS));
    }

    #[test]
    fn what_is_not_reported_is_not_in_the_loop_s_line() {
        let mut histogram = vec![0; BUCKETS];
        histogram[bucket(500 * MS)] = 1;
        histogram[bucket(20 * MS)] = 1;
        let mut stats = LoopStats {
            turns: 2,
            stalls: 2,
            stalled_ns: 520 * MS,
            busy_ns: 520 * MS,
            max_ns: 500 * MS,
            ..LoopStats::default()
        };
        stats.ledger[Cause::Lock as usize] = 450 * MS;
        let mut none = NotStalls::default();
        let park = Park {
            turn_ns: 500 * MS,
            slept_in: Cause::Lock,
            park_ns: 450 * MS,
            rest_is_stall: false,
        };
        none.add_park(7, park, 10 * MS);
        none.correct(8, &mut stats, &mut histogram);
        assert_eq!(stats.stalls, 2, "another thread's");
        none.correct(7, &mut stats, &mut histogram);
        assert_eq!((stats.stalls, stats.stalled_ns), (1, 20 * MS));
        assert_eq!((stats.busy_ns, stats.parked_ns), (70 * MS, 450 * MS));
        assert_eq!(stats.ledger[Cause::Lock as usize], 0);
        assert!(stats.max_ns.abs_diff(20 * MS) < MS, "{}", stats.max_ns);
        assert_eq!(none.with_a_park, 1, "its other 50 ms may have been a stall");
    }

    #[test]
    fn a_long_sleep_beside_a_park_is_a_stall_of_its_own() {
        let captured = |id, ns| Captured {
            id,
            cause: Cause::Lock,
            nr: None,
            total_ns: ns,
            max_ns: ns,
            count: 1,
            leaves: Vec::new(),
            stack: (),
        };
        let raw = RawStall {
            tgid: 1,
            tid: 7,
            start_ns: 0,
            duration_ns: 560 * MS,
            ongoing: false,
            at_attach: false,
            exact: true,
            longest_ns: 450 * MS,
            exited: false,
            ledger: ledger(550),
            kernel_share: None,
            ready_sockets: None,
            syscalls: Vec::new(),
            stacks: vec![captured(0, 100 * MS), captured(1, 450 * MS)],
        };
        let rest = without_park(&raw, Cause::Lock, 450 * MS, 10 * MS).expect("100 ms are a stall");
        assert!(!rest.exact, "at most");
        assert_eq!((rest.duration_ns, rest.longest_ns), (110 * MS, 100 * MS));
        assert_eq!(rest.ledger.get(Cause::Lock), 100 * MS);
        assert_eq!(rest.stacks.len(), 1);
        assert!(without_park(&raw, Cause::Lock, 450 * MS, 200 * MS).is_none());
        assert!(without_park(&raw, Cause::Lock, 550 * MS, 10 * MS).is_none(), "both were the park");
    }
}
