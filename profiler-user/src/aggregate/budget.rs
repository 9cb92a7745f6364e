//! Budgets: what a build may not exceed, such as `p99<50ms` or `blocker("requests.get")==0`.

use std::sync::Arc;

use super::{LoopSummary, Summary, headline_word};
use crate::blame::Stall;
use crate::stalls::Cause;
use crate::symbolize::Frame;

/// One condition on a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// As it was written.
    pub text: String,
    metric: Metric,
    operator: Operator,
    limit: Amount,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Metric {
    /// A percentile of the turns, of the worst loop: 500, 900, 990 or 999 of 1000.
    Percentile(u16),
    /// The longest turn or stall.
    Max,
    /// All stalled time.
    Stalled,
    /// The number of stalls.
    Stalls,
    /// Stalled time of one cause.
    Cause(Cause),
    /// Stalls that go through code of this name.
    Blocker(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Less,
    AtMost,
    Equal,
}

/// What a budget limits, or what was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// Nanoseconds.
    Time(u64),
    /// A share of the loops' time.
    Share(f64),
    /// A number of stalls.
    Count(u64),
}

/// How a budget fared.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The condition, as it was written.
    pub condition: String,
    /// Whether it holds.
    pub kept: bool,
    /// What was measured; `None` if nothing was, and then it does not hold.
    pub measured: Option<Amount>,
    /// Where, or compared with what.
    pub place: Option<Place>,
}

/// What makes a number understandable.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// A loop.
    Loop {
        /// The thread's name.
        thread: Arc<str>,
        /// Its id.
        tid: u32,
    },
    /// The longest of the stalls, in nanoseconds, and where that was.
    Longest(u64, String),
    /// What it was in the earlier recording, and where.
    Before(Amount, Option<String>),
    /// It was not in the earlier recording; where it is.
    New(Option<String>),
}

impl Budget {
    /// Reads a budget.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let outside_quotes = {
            let mut quoted = false;
            text.char_indices()
                .find(|&(_, c)| {
                    quoted ^= c == '"';
                    !quoted && matches!(c, '<' | '=' | '>')
                })
                .map(|(at, _)| at)
        };
        let at = outside_quotes.ok_or(SYNTAX)?;
        let (name, rest) = text.split_at(at);
        let (operator, value) = if let Some(value) = rest.strip_prefix("<=") {
            (Operator::AtMost, value)
        } else if let Some(value) = rest.strip_prefix("==") {
            (Operator::Equal, value)
        } else if let Some(value) = rest.strip_prefix('<') {
            (Operator::Less, value)
        } else {
            return Err(format!("a budget is an upper limit: use <, <= or ==; {SYNTAX}"));
        };
        let metric = metric(name.trim())?;
        let limit = amount(value.trim())?;
        let fits = match metric {
            Metric::Percentile(_) | Metric::Max => matches!(limit, Amount::Time(_)),
            Metric::Stalls => matches!(limit, Amount::Count(_)),
            Metric::Stalled | Metric::Cause(_) => !matches!(limit, Amount::Count(_)),
            Metric::Blocker(_) => true,
        };
        if !fits {
            return Err(format!("{} can't be compared with {}", name.trim(), value.trim()));
        }
        Ok(Self { text: text.trim().to_owned(), metric, operator, limit })
    }

    fn holds(&self, measured: Amount) -> bool {
        let (measured, limit) = match (measured, self.limit) {
            (Amount::Time(a), Amount::Time(b)) | (Amount::Count(a), Amount::Count(b)) => {
                (a as f64, b as f64)
            }
            (Amount::Share(a), Amount::Share(b)) => (a, b),
            _ => return false,
        };
        match self.operator {
            Operator::Less => measured < limit,
            Operator::AtMost => measured <= limit,
            Operator::Equal => (measured - limit).abs() < f64::EPSILON,
        }
    }
}

const SYNTAX: &str = "write it like p99<50ms, max<200ms, stalled<1%, stalls<=3, cause.syscall<1% or \
                      blocker(\"requests.get\")==0";

fn metric(name: &str) -> Result<Metric, String> {
    match name {
        "p50" => return Ok(Metric::Percentile(500)),
        "p90" => return Ok(Metric::Percentile(900)),
        "p99" => return Ok(Metric::Percentile(990)),
        "p99.9" | "p999" => return Ok(Metric::Percentile(999)),
        "max" => return Ok(Metric::Max),
        "stalled" => return Ok(Metric::Stalled),
        "stalls" => return Ok(Metric::Stalls),
        _ => {}
    }
    if let Some(cause) = name.strip_prefix("cause.") {
        let known = Cause::from_name(cause);
        return known.map(Metric::Cause).ok_or_else(|| format!("there is no cause {cause}"));
    }
    let inner = name.strip_prefix("blocker(").and_then(|rest| rest.strip_suffix(')'));
    match inner.map(|inner| inner.trim().trim_matches('"').trim()) {
        Some(code) if !code.is_empty() => Ok(Metric::Blocker(code.to_owned())),
        _ => Err(format!("there is no {name:?} to limit; {SYNTAX}")),
    }
}

fn amount(value: &str) -> Result<Amount, String> {
    if let Some(percent) = value.strip_suffix('%') {
        let percent: f64 = percent.trim().parse().map_err(|_| format!("{value} is no share"))?;
        return if percent.is_finite() && percent >= 0.0 {
            Ok(Amount::Share(percent / 100.0))
        } else {
            Err(format!("{value} is no share"))
        };
    }
    if let Ok(count) = value.parse() {
        return Ok(Amount::Count(count));
    }
    let time = humantime::parse_duration(value)
        .map_err(|_| format!("{value:?} is no time (50ms), share (1%) or number"))?;
    Ok(Amount::Time(u64::try_from(time.as_nanos()).map_err(|_| "too long a time")?))
}

/// What a budget needs to know of the stalls.
#[derive(Debug, Clone, Default)]
struct Tally {
    count: u64,
    total_ns: u64,
    /// The most time of one stall, and where.
    worst: Option<(u64, String)>,
}

/// Budgets being checked.
#[derive(Debug)]
pub struct Budgets {
    budgets: Vec<(Budget, Tally)>,
}

impl Budgets {
    /// Nothing has been checked yet.
    #[must_use]
    pub fn new(budgets: Vec<Budget>) -> Self {
        Self { budgets: budgets.into_iter().map(|budget| (budget, Tally::default())).collect() }
    }

    /// Takes a stall into account, once.
    pub fn add(&mut self, stall: &Stall) {
        for (budget, tally) in &mut self.budgets {
            let ns = match &budget.metric {
                Metric::Percentile(_) => continue,
                Metric::Max | Metric::Stalled | Metric::Stalls => stall.duration_ns,
                Metric::Cause(cause) => stall.ledger.get(*cause),
                Metric::Blocker(name) if goes_through(stall, name) => stall.duration_ns,
                Metric::Blocker(_) => continue,
            };
            if ns == 0 {
                continue;
            }
            tally.count += 1;
            tally.total_ns = tally.total_ns.saturating_add(ns);
            if tally.worst.as_ref().is_none_or(|(worst, _)| ns > *worst) {
                tally.worst = Some((ns, described(stall)));
            }
        }
    }

    /// How they fared.
    #[must_use]
    pub fn verdicts(self, summary: &Summary) -> Vec<Verdict> {
        self.budgets.into_iter().map(|(budget, tally)| verdict(&budget, tally, summary)).collect()
    }
}

fn verdict(budget: &Budget, tally: Tally, summary: &Summary) -> Verdict {
    let loop_ns = summary.loops.iter().fold(0_u64, |sum, one| sum.saturating_add(one.observed_ns));
    let worst = tally.worst.clone().map(|(ns, place)| Place::Longest(ns, place));
    let (measured, place) = match &budget.metric {
        Metric::Percentile(of_1000) => worst_loop(summary, *of_1000),
        Metric::Max => {
            let (turn, place) = worst_loop(summary, 1000);
            match (turn, tally.worst) {
                (Some(Amount::Time(turn)), Some((ns, _))) if ns < turn => {
                    (Some(Amount::Time(turn)), place)
                }
                (_, Some((ns, _))) => (Some(Amount::Time(ns)), worst),
                (turn, None) => (turn, place),
            }
        }
        // Without a loop nothing was measured, which is no proof of health.
        _ if loop_ns == 0 && tally.count == 0 => (None, None),
        _ => {
            let measured = match budget.limit {
                Amount::Count(_) => Some(Amount::Count(tally.count)),
                Amount::Time(_) => Some(Amount::Time(tally.total_ns)),
                Amount::Share(_) if loop_ns == 0 => None,
                Amount::Share(_) => Some(Amount::Share(tally.total_ns as f64 / loop_ns as f64)),
            };
            (measured, worst)
        }
    };
    let kept = measured.is_some_and(|measured| budget.holds(measured));
    Verdict { condition: budget.text.clone(), kept, measured, place }
}

/// A percentile (1000 is the maximum) of the loop where it is largest.
fn worst_loop(summary: &Summary, of_1000: u16) -> (Option<Amount>, Option<Place>) {
    let value = |one: &LoopSummary| match of_1000 {
        500 => one.turn_p50_ns,
        900 => one.turn_p90_ns,
        990 => one.turn_p99_ns,
        999 => one.turn_p999_ns,
        _ => one.turn_max_ns,
    };
    let worst = summary.loops.iter().max_by_key(|one| value(one));
    let place = worst.map(|one| Place::Loop { thread: one.thread.clone(), tid: one.tid });
    (worst.map(|one| Amount::Time(value(one))), place)
}

fn described(stall: &Stall) -> String {
    let mut text = format!("in {}", stall.cause.name());
    if let Some(word) = headline_word(stall) {
        text.push_str(&format!(" · {word}"));
    }
    if let Some(blocker) = &stall.blocker {
        text.push_str(&format!(", {}", blocker.function));
        if let (Some(file), Some(line)) = (&blocker.file, blocker.line) {
            text.push_str(&format!("  {file}:{line}"));
        }
    }
    text
}

/// Whether a stall's time was spent in code of this name, or below it.
fn goes_through(stall: &Stall, name: &str) -> bool {
    let of_cause = stall.stacks.iter().filter(|stack| stack.cause == stall.cause);
    stall.blocker.as_ref().is_some_and(|blocker| is_called(&blocker.function, name))
        || of_cause.flat_map(|stack| &stack.frames).any(|frame| frame_is_called(frame, name))
}

/// `get`, `api.get`, `requests.get` and `requests.api.get` are all names of `get` in
/// `requests/api.py`.
fn frame_is_called(frame: &Frame, name: &str) -> bool {
    if is_called(&frame.function, name) {
        return true;
    }
    let Some(file) = &frame.file else { return false };
    let stem = file.rsplit_once('.').map_or(&**file, |(stem, _)| stem);
    let mut parts = stem.rsplit('/');
    let (module, package) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let function = &frame.function;
    [
        format!("{module}.{function}"),
        format!("{package}.{function}"),
        format!("{package}.{module}.{function}"),
    ]
    .iter()
    .any(|candidate| candidate == name)
}

/// The name itself, or what stands behind `::` or `.` in a longer one.
fn is_called(function: &str, name: &str) -> bool {
    function
        .strip_suffix(name)
        .is_some_and(|before| before.is_empty() || before.ends_with("::") || before.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_limits() {
        for good in [
            "p99<50ms",
            "p99.9 <= 1s",
            "max<200ms",
            "stalled<1%",
            "stalled < 2s",
            "stalls==0",
            "cause.syscall<1%",
            "blocker(\"requests.get\")==0",
            "blocker(a<b>::c)==0",
            "blocker(\"a<b>::c\") < 1%",
        ] {
            let parsed = Budget::parse(good);
            assert_eq!(parsed.is_ok(), good != "blocker(a<b>::c)==0", "{good}: {parsed:?}");
        }
        for wrong in [
            "",
            "p99",
            "p99>50ms",
            "p98<1s",
            "p99<1%",
            "p99<50",
            "stalls<1ms",
            "cause.magic<1%",
            "blocker()==0",
            "stalled<-1%",
            "stalled<NaN%",
            "max<soon",
            "stalled<3",
        ] {
            let error = Budget::parse(wrong).expect_err(wrong);
            assert!(!error.is_empty());
        }
    }

    #[test]
    fn code_has_several_names() {
        let frame = |function: &str, file: &str| Frame {
            file: Some(file.into()),
            ..Frame::of_symbol(function.into())
        };
        let get = frame("get", "/venv/site-packages/requests/api.py");
        for name in ["get", "api.get", "requests.get", "requests.api.get"] {
            assert!(frame_is_called(&get, name), "{name}");
        }
        assert!(!frame_is_called(&get, "et"));
        assert!(!frame_is_called(&get, "httpx.get"));
        let native = frame("api::password::stretch", "/srv/api/src/password.rs");
        assert!(
            frame_is_called(&native, "stretch") && frame_is_called(&native, "password::stretch")
        );
        assert!(!frame_is_called(&native, "word::stretch"));
    }
}
