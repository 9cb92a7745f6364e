//! Keeps the cost of exact boundaries within the budget.
//!
//! What they cost is measured in a short window of every second: the time of the programs by the
//! kernel's account, and what the breakpoints cost besides. Above the budget they are switched off
//! for a while: turns then are upper bounds, and said to be.

use std::time::Duration;

/// How long boundaries stay off before they are tried again.
const REST: Duration = Duration::from_secs(4);
/// CPU time of one hit where the kernel keeps no account: an estimate on the safe side.
const HIT_NS: f64 = 1_000.0;

/// Watches the cost.
#[derive(Debug, Clone)]
pub(super) struct Governor {
    budget: f64,
    last_hits: u64,
    resting: Option<Duration>,
    /// The largest share of a CPU that was measured, or estimated.
    pub(super) highest: f64,
    /// How often boundaries had to be switched off.
    pub(super) rests: u64,
}

impl Governor {
    /// A governor with a budget as a share of one CPU.
    #[must_use]
    pub(super) const fn new(budget: f64) -> Self {
        Self { budget, last_hits: 0, resting: None, highest: 0.0, rests: 0 }
    }

    /// Whether boundaries are off at the moment.
    pub(super) const fn is_resting(&self) -> bool {
        self.resting.is_some()
    }

    /// The share of a CPU that `hits` in all come to, by estimate.
    pub(super) fn estimate(&mut self, hits: u64, elapsed: Duration) -> f64 {
        let new = hits.saturating_sub(self.last_hits);
        self.last_hits = hits;
        new as f64 * HIT_NS / elapsed.as_nanos().max(1) as f64
    }

    /// Counts the time boundaries have been off: `true` when they are to be armed again.
    pub(super) fn rested(&mut self, elapsed: Duration) -> bool {
        let Some(rested) = &mut self.resting else { return false };
        *rested += elapsed;
        if *rested < REST {
            return false;
        }
        self.resting = None;
        true
    }

    /// Takes what they cost: `true` when they are to be switched off.
    pub(super) fn exceeds(&mut self, share: f64) -> bool {
        self.highest = self.highest.max(share);
        if share <= self.budget {
            return false;
        }
        self.resting = Some(Duration::ZERO);
        self.rests += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_budget_boundaries_rest_and_come_back() {
        let second = Duration::from_secs(1);
        let mut governor = Governor::new(0.01);
        assert!(!governor.exceeds(0.009) && !governor.is_resting());
        assert!(governor.exceeds(0.02) && governor.is_resting());
        for _ in 0..3 {
            assert!(!governor.rested(second));
        }
        assert!(governor.rested(second));
        assert!(!governor.exceeds(0.001) && !governor.is_resting());
        assert_eq!((governor.rests, governor.highest), (1, 0.02));
    }

    #[test]
    fn without_an_account_the_hits_are_estimated() {
        let mut governor = Governor::new(0.01);
        let second = Duration::from_secs(1);
        assert!((governor.estimate(9_000, second) - 0.009).abs() < 1e-9);
        assert!((governor.estimate(30_000, second) - 0.021).abs() < 1e-9);
    }
}
