//! Two observations side by side: which blockers are new, gone, longer or shorter.
//!
//! They may have lasted for different times, so what is compared is the share of the loops' time. A
//! blocker is the same if its cause, its closer word, its function and its file are: lines move.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::blockers::headline_word;
use crate::blame::{Blocker, Stall};
use crate::stalls::Cause;

/// Changes smaller than this part of what it was before are none.
const SAME: f64 = 0.1;
/// Nor are changes by less than this share of the time: 0.01 %.
const TINY: f64 = 0.000_1;

/// Totals of one blocker in one observation.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Side {
    /// How many stalls.
    pub stalls: u64,
    /// Their durations together.
    pub total_ns: u64,
    /// The longest one.
    pub max_ns: u64,
    /// `total_ns` as a share of the loops' observed time.
    pub share: f64,
}

/// What became of a blocker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It was not there before.
    New,
    /// It is not there any more.
    Gone,
    /// It takes more of the time.
    Longer,
    /// It takes less of the time.
    Shorter,
    /// About as before.
    Same,
}

impl Kind {
    /// The word used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::Longer => "longer",
            Self::Shorter => "shorter",
            Self::Same => "same",
        }
    }
}

/// One blocker before and after.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// What became of it.
    pub change: Kind,
    /// Main cause of these stalls.
    pub cause: Cause,
    /// System call or other closer word.
    pub what: Option<Arc<str>>,
    /// The code to blame, as it was after, or before if it is gone; `None` where nobody's is.
    pub blocker: Option<Blocker>,
    /// In the first observation.
    pub before: Side,
    /// In the second one.
    pub after: Side,
}

/// Cause, word, function and file.
type Key = (Cause, Option<String>, Option<(Arc<str>, Option<Arc<str>>)>);

/// The blockers of one observation, for a comparison.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    by_key: BTreeMap<Key, (Option<Blocker>, Side)>,
    /// The loops' observed time together.
    pub loop_ns: u64,
}

impl Observed {
    /// Adds a stall, once.
    pub fn add(&mut self, stall: &Stall) {
        let place = stall.blocker.as_ref().map(|b| (b.function.clone(), b.file.clone()));
        let key = (stall.cause, headline_word(stall).map(str::to_owned), place);
        let (blocker, side) = self.by_key.entry(key).or_default();
        if side.stalls == 0 || stall.duration_ns > side.max_ns {
            blocker.clone_from(&stall.blocker);
        }
        side.stalls += 1;
        side.total_ns = side.total_ns.saturating_add(stall.duration_ns);
        side.max_ns = side.max_ns.max(stall.duration_ns);
    }

    /// All stalls together.
    #[must_use]
    pub fn total(&self) -> Side {
        self.sum(|_| true)
    }

    /// The stalls whose cause is code, not the scheduler, a quota or a debugger.
    #[must_use]
    pub fn total_of_code(&self) -> Side {
        self.sum(|cause| cause.has_blocker())
    }

    fn sum(&self, counts: fn(Cause) -> bool) -> Side {
        let mut total = Side::default();
        for (_, (_, side)) in self.by_key.iter().filter(|(key, _)| counts(key.0)) {
            total.stalls += side.stalls;
            total.total_ns = total.total_ns.saturating_add(side.total_ns);
            total.max_ns = total.max_ns.max(side.max_ns);
        }
        self.shared(total)
    }

    fn shared(&self, side: Side) -> Side {
        let share =
            if self.loop_ns == 0 { 0.0 } else { side.total_ns as f64 / self.loop_ns as f64 };
        Side { share, ..side }
    }
}

/// What became of each blocker, the largest change first.
#[must_use]
pub fn compare(before: &Observed, after: &Observed) -> Vec<Change> {
    let keys: std::collections::BTreeSet<&Key> =
        before.by_key.keys().chain(after.by_key.keys()).collect();
    let mut changes = Vec::with_capacity(keys.len());
    for key in keys {
        let was = before.by_key.get(key);
        let is = after.by_key.get(key);
        let side = |observed: &Observed, found: Option<&(Option<Blocker>, Side)>| {
            observed.shared(found.map(|(_, side)| *side).unwrap_or_default())
        };
        let (before, after) = (side(before, was), side(after, is));
        changes.push(Change {
            change: kind(before, after),
            cause: key.0,
            what: key.1.as_deref().map(Arc::from),
            blocker: is.or(was).and_then(|(blocker, _)| blocker.clone()),
            before,
            after,
        });
    }
    let weight = |change: &Change| (change.after.share - change.before.share).abs();
    changes.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    changes
}

fn kind(before: Side, after: Side) -> Kind {
    let by = after.share - before.share;
    if before.stalls == 0 {
        Kind::New
    } else if after.stalls == 0 {
        Kind::Gone
    } else if by.abs() < TINY || by.abs() < before.share * SAME {
        Kind::Same
    } else if by > 0.0 {
        Kind::Longer
    } else {
        Kind::Shorter
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Side, kind};

    #[test]
    fn small_changes_are_none() {
        let side = |stalls, share| Side { stalls, share, ..Side::default() };
        assert_eq!(kind(side(0, 0.0), side(1, 0.1)), Kind::New);
        assert_eq!(kind(side(1, 0.1), side(0, 0.0)), Kind::Gone);
        assert_eq!(kind(side(9, 0.10), side(9, 0.105)), Kind::Same);
        assert_eq!(kind(side(9, 0.10), side(9, 0.12)), Kind::Longer);
        assert_eq!(kind(side(9, 0.10), side(9, 0.05)), Kind::Shorter);
        assert_eq!(kind(side(1, 0.000_01), side(1, 0.000_09)), Kind::Same);
    }
}
