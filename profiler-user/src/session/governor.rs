//! Keeps the cost of exact boundaries within the budget.
//!
//! The programs on park calls count their hits; a hit's cost is estimated. Above the budget they
//! are switched off for a while: turns then are upper bounds, and said to be.

use std::time::Duration;

/// CPU time of one hit of `park_enter`, bookkeeping of the turn included: an estimate on the safe
/// side, not a measurement.
const HIT_NS: f64 = 1_000.0;
/// How long boundaries stay off before they are tried again.
const REST: Duration = Duration::from_secs(4);

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing changes.
    Keep,
    /// Arm the programs again.
    Arm,
    /// Disarm them.
    Disarm,
}

/// Watches the cost.
#[derive(Debug, Clone)]
pub(super) struct Governor {
    budget: f64,
    last_hits: u64,
    resting: Option<Duration>,
    /// How often boundaries had to be switched off.
    pub(super) rests: u64,
}

impl Governor {
    /// A governor with a budget as a share of one CPU.
    #[must_use]
    pub(super) const fn new(budget: f64) -> Self {
        Self { budget, last_hits: 0, resting: None, rests: 0 }
    }

    /// Decides, `elapsed` after the last decision, with the total of hits so far.
    pub(super) fn decide(&mut self, hits: u64, elapsed: Duration) -> Decision {
        let new = hits.saturating_sub(self.last_hits);
        self.last_hits = hits;
        if let Some(rested) = &mut self.resting {
            *rested += elapsed;
            if *rested < REST {
                return Decision::Keep;
            }
            self.resting = None;
            return Decision::Arm;
        }
        let spent_ns = new as f64 * HIT_NS;
        let allowed_ns = elapsed.as_nanos() as f64 * self.budget;
        if spent_ns <= allowed_ns {
            return Decision::Keep;
        }
        self.resting = Some(Duration::ZERO);
        self.rests += 1;
        Decision::Disarm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_budget_boundaries_rest_and_come_back() {
        let second = Duration::from_secs(1);
        let mut governor = Governor::new(0.01);
        assert_eq!(governor.decide(9_000, second), Decision::Keep);
        assert_eq!(governor.decide(30_000, second), Decision::Disarm);
        for _ in 0..3 {
            assert_eq!(governor.decide(30_000, second), Decision::Keep);
        }
        assert_eq!(governor.decide(30_000, second), Decision::Arm);
        assert_eq!(governor.decide(31_000, second), Decision::Keep);
        assert_eq!(governor.rests, 1);
    }
}
