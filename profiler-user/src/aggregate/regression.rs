//! Whether a recording is worse than an earlier one.
//!
//! Only code can be worse. A machine that is busier than before is not the code's fault: stalls by
//! the scheduler, a quota or a debugger don't count, as no line is to blame for them.

use super::budget::{Amount, Place, Verdict};
use super::compare::{Change, Kind, Observed};
use super::{LoopSummary, Summary};

/// A blocker below this share of the time is noise, new or not: 0.1 %.
const NOISE: f64 = 0.001;
/// A percentile below this is noise.
const NOISE_NS: u64 = 1_000_000;

/// One side of the comparison.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    /// Its summary.
    pub summary: &'a Summary,
    /// Its blockers.
    pub observed: &'a Observed,
}

/// One verdict on the stalled time, one on the 99th percentile, and one for each blocker that is
/// new or takes more of the time than `allowed` (0.1 is a tenth) beyond what it took before.
#[must_use]
pub fn regressions(
    before: Measured<'_>,
    after: Measured<'_>,
    changes: &[Change],
    allowed: f64,
) -> Vec<Verdict> {
    let percent = format!("{}%", (allowed * 1e6).round() / 1e4);
    let mut verdicts = Vec::new();
    let (was, is) = (before.observed.total_of_code(), after.observed.total_of_code());
    let measured = !before.summary.loops.is_empty() && !after.summary.loops.is_empty();
    verdicts.push(Verdict {
        condition: format!("stalled by code at most {percent} more than before"),
        kept: measured && grew(was.share, is.share, NOISE) <= allowed,
        measured: measured.then_some(Amount::Share(is.share)),
        place: Some(Place::Before(Amount::Share(was.share), None)),
    });
    let worst = |summary: &Summary, of: fn(&LoopSummary) -> u64| summary.loops.iter().map(of).max();
    let p99 = |summary| worst(summary, |one| one.turn_p99_ns);
    let (was, is) = (p99(before.summary), p99(after.summary));
    let times = was.zip(is);
    verdicts.push(Verdict {
        condition: format!("p99 at most {percent} more than before"),
        kept: times
            .is_some_and(|(was, is)| grew(was as f64, is as f64, NOISE_NS as f64) <= allowed),
        measured: is.map(Amount::Time),
        place: was.map(|was| Place::Before(Amount::Time(was), None)),
    });
    for change in changes {
        let more = grew(change.before.share, change.after.share, NOISE);
        if change.change == Kind::Same || more <= allowed || !change.cause.has_blocker() {
            continue;
        }
        let name = change.blocker.as_ref().map_or("not the code", |blocker| &*blocker.function);
        let code = change
            .blocker
            .as_ref()
            .and_then(|blocker| Some(format!("{}:{}", blocker.file.as_ref()?, blocker.line?)));
        verdicts.push(Verdict {
            condition: format!(
                "{} in {name} at most {percent} more than before",
                change.cause.name()
            ),
            kept: false,
            measured: Some(Amount::Share(change.after.share)),
            place: Some(match change.change {
                Kind::New => Place::New(code),
                _ => Place::Before(Amount::Share(change.before.share), code),
            }),
        });
    }
    verdicts
}

/// By which part of what it was something grew; what is within the noise did not grow.
fn grew(was: f64, is: f64, noise: f64) -> f64 {
    if is - was < noise {
        0.0
    } else if was <= 0.0 {
        f64::INFINITY
    } else {
        is / was - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::grew;

    #[test]
    fn noise_is_no_growth() {
        assert_eq!(grew(0.0, 0.0005, 0.001), 0.0);
        assert_eq!(grew(0.0, 0.5, 0.001), f64::INFINITY);
        assert!((grew(0.10, 0.12, 0.001) - 0.2).abs() < 1e-9);
        assert_eq!(grew(0.12, 0.10, 0.001), 0.0);
    }
}
