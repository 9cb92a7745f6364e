//! What programs say about their own stalls, matched with what stallscope said.

use crate::gate::threshold;
use crate::report::Stall;

/// One blocking call, as the program that made it measured it.
#[derive(Debug, Clone)]
pub(crate) struct Truth {
    pub(crate) endpoint: String,
    pub(crate) start_unix_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) tid: u64,
    pub(crate) file: String,
    pub(crate) line: u64,
}

/// Clocks of two processes, read at different moments, and a runtime that rounds to milliseconds.
const CLOCK_SLACK_NS: u64 = 5_000_000;

/// Whether something that a thread did happened inside a stall's turn.
pub(crate) fn lies_in(tid: u64, start_unix_ns: u64, duration_ns: u64, stall: &Stall) -> bool {
    tid == stall.tid
        && stall.start_unix_ns <= start_unix_ns + CLOCK_SLACK_NS
        && start_unix_ns + duration_ns <= stall.start_unix_ns + stall.duration_ns + CLOCK_SLACK_NS
}

impl Truth {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let json: serde_json::Value = serde_json::from_str(line).ok()?;
        let number = |key: &str| json.get(key)?.as_u64();
        Some(Self {
            endpoint: json.get("endpoint")?.as_str()?.to_owned(),
            start_unix_ns: number("start_unix_ns")?,
            duration_ns: number("duration_ns")?,
            tid: number("tid")?,
            file: json.get("file")?.as_str()?.rsplit('/').next()?.to_owned(),
            line: number("line")?,
        })
    }

    /// Whether the call happened inside that stall's turn.
    pub(crate) fn is_in(&self, stall: &Stall) -> bool {
        lies_in(self.tid, self.start_unix_ns, self.duration_ns, stall)
    }

    /// The cause that this program's blocking call must be given.
    pub(crate) fn cause(&self) -> &'static str {
        match self.endpoint.as_str() {
            "spin" | "node_stall" | "rendering" | "boulder" | "building" | "dropping"
            | "crowding" => "cpu",
            "mutex" | "booking" | "convoy" | "stdout" | "block_on" | "install" | "par_iter"
            | "reqwest" => "lock",
            _ => "syscall",
        }
    }
}

/// A stall and the blocking calls of its turn.
///
/// A turn may hold several, where a loop serves all that is ready before it parks again.
pub(crate) struct Match<'a> {
    pub(crate) stall: &'a Stall,
    pub(crate) truths: Vec<&'a Truth>,
}

/// Checks every match, its duration and its blame, and gives them.
pub(crate) fn check_all<'a>(truths: &'a [Truth], stalls: &'a [Stall]) -> Vec<Match<'a>> {
    check_each(truths, stalls, |one| one.check_duration())
}

/// The same on a machine that is busy with a crowd: what a turn does besides the call (begin a
/// thread, answer) takes longer, but the call itself does not, and neither does its cause's time.
pub(crate) fn check_crowd<'a>(truths: &'a [Truth], stalls: &'a [Stall]) -> Vec<Match<'a>> {
    check_each(truths, stalls, |one| one.check_time_of_cause())
}

/// The same for a truth of many short calls: what is between two of them is in the truth as well.
pub(crate) fn check_repeated<'a>(truths: &'a [Truth], stalls: &'a [Stall]) -> Vec<Match<'a>> {
    check_each(truths, stalls, |one| one.check_sum())
}

fn check_each<'a>(
    truths: &'a [Truth],
    stalls: &'a [Stall],
    check_time: fn(&Match<'_>),
) -> Vec<Match<'a>> {
    let matches = match_all(truths, stalls);
    let mut blamed = 0;
    for one in &matches {
        check_time(one);
        blamed += usize::from(one.check_blame());
    }
    assert!(blamed > 0, "a machine too busy to see anything but its queue: {stalls:#?}");
    matches
}

/// Matches every truth with the stall it was in and checks that nothing is left on either side:
/// each truth that reaches the threshold is in exactly one stall, and each stall has its truths.
/// Stalls of cause `runqueue` may be without one: on a busy machine the scheduler makes them.
pub(crate) fn match_all<'a>(truths: &'a [Truth], stalls: &'a [Stall]) -> Vec<Match<'a>> {
    let finished: Vec<&Stall> = stalls.iter().filter(|stall| !stall.ongoing).collect();
    for truth in truths {
        let holders: Vec<_> = finished.iter().filter(|stall| truth.is_in(stall)).collect();
        if u128::from(truth.duration_ns) >= threshold().as_nanos() {
            assert_eq!(
                holders.len(),
                1,
                "one stall for {truth:?}, found {holders:#?}\nof all {}",
                brief(&finished)
            );
        }
    }
    let mut matches = Vec::new();
    for stall in finished {
        let inside: Vec<&Truth> = truths.iter().filter(|truth| truth.is_in(stall)).collect();
        assert!(
            !inside.is_empty() || stall.cause == "runqueue",
            "a stall nobody knows of: {stall:#?}"
        );
        if !inside.is_empty() {
            matches.push(Match { stall, truths: inside });
        }
    }
    matches
}

fn brief(stalls: &[&Stall]) -> String {
    stalls
        .iter()
        .map(|s| {
            format!(
                "\n  tid {} at {} for {} ns: {}",
                s.tid, s.start_unix_ns, s.duration_ns, s.cause
            )
        })
        .collect()
}

impl Match<'_> {
    /// The time of the cause is that of the blocking calls: within the larger of 1 ms for each call
    /// and 2 %. For programs that do much in the turn besides, as interpreters do.
    pub(crate) fn check_time_of_cause(&self) {
        let expected: u64 = self.truths.iter().map(|truth| truth.duration_ns).sum();
        let calls = u64::try_from(self.truths.len()).expect("few");
        let tolerance = (1_000_000 * calls).max(expected / 50) * u64::from(crate::gate::slowness());
        let measured = self.stall.ledger(&format!("{}_ns", self.truths[0].cause()));
        let starved = self.stall.ledger("runqueue_ns");
        assert!(
            measured + tolerance + starved >= expected && measured <= expected + tolerance,
            "{measured} ns of {expected} ns, tolerance {tolerance}, runqueue {starved}: {self}"
        );
    }

    /// The truth lies within the turn, so all of its time is in the ledger, and none is unexplained.
    fn check_sum(&self) {
        let expected: u64 = self.truths.iter().map(|truth| truth.duration_ns).sum();
        let tolerance = 1_000_000.max(expected / 50) * u64::from(crate::gate::slowness());
        let cause = self.stall.ledger(&format!("{}_ns", self.truths[0].cause()));
        let besides = ["cpu_ns", "fault_ns", "runqueue_ns"].map(|one| self.stall.ledger(one));
        let sum = cause + besides.iter().sum::<u64>();
        assert!(
            sum + tolerance >= expected
                && cause <= expected + tolerance
                && self.stall.ledger("unexplained_ns") <= tolerance,
            "{cause} and {besides:?} ns of {expected} ns, tolerance {tolerance}: {self}"
        );
    }

    /// The stall is as long as its blocking calls: within the larger of 1 ms for each call and 2 %.
    /// A turn is a little more than the call (parsing, the answer); what the scheduler added
    /// around the calls stands apart in the ledger, and is no error of the measurement.
    pub(crate) fn check_duration(&self) {
        let expected: u64 = self.truths.iter().map(|truth| truth.duration_ns).sum();
        let calls = u64::try_from(self.truths.len()).expect("few");
        let tolerance = (1_000_000 * calls).max(expected / 50) * u64::from(crate::gate::slowness());
        let measured = self.stall.duration_ns;
        let starved = self.stall.ledger("runqueue_ns");
        // A handler that blocks computes too, and on a busy machine for longer than it should.
        let computes = self.truths.iter().any(|truth| truth.cause() == "cpu");
        let own = self.stall.ledger("cpu_ns") + self.stall.ledger("fault_ns");
        let besides = if computes { 0 } else { own };
        if !computes && calls == 1 {
            self.check_time_of_cause();
        }
        assert!(
            measured + 1_000_000 >= expected
                && measured <= expected + tolerance + starved + besides,
            "{measured} ns reported, {expected} ns measured by {:?}, tolerance {tolerance}, runqueue {starved}",
            self.truths
        );
    }

    /// The cause is right and the blocker is the line of a call with that cause; `false` if unseen.
    fn check_blame(&self) -> bool {
        let seen = self.check_cause();
        if seen {
            self.check_line();
        }
        seen
    }

    /// The cause is that of the calls which took most of the turn.
    ///
    /// `false` if that could not be seen: a computation on a busy machine may wait for the CPU for
    /// longer than it has it, and then `runqueue` is right.
    pub(crate) fn check_cause(&self) -> bool {
        let mut by_cause = std::collections::BTreeMap::<&str, u64>::new();
        for truth in &self.truths {
            *by_cause.entry(truth.cause()).or_default() += truth.duration_ns;
        }
        let most = by_cause.values().max().expect("a match has truths");
        // Two causes of nearly the same size: either may win by what the turn adds around them.
        let fair: Vec<&str> = by_cause
            .iter()
            .filter(|(_, total)| **total * 10 >= most * 9)
            .map(|(cause, _)| *cause)
            .collect();
        let cause = self.stall.cause.as_str();
        if cause == "runqueue" && fair.contains(&"cpu") && self.stall.ledger("cpu_ns") > 0 {
            return false;
        }
        assert!(fair.contains(&cause), "cause {cause} instead of {fair:?}: {self}");
        true
    }

    /// The blocker is the line of one of the calls with the stall's cause.
    pub(crate) fn check_line(&self) {
        let blocker = self.stall.blocker.as_ref().unwrap_or_else(|| panic!("no blocker: {self}"));
        let file = blocker.file.as_deref().unwrap_or_else(|| panic!("no file: {self}"));
        let named = self.truths.iter().any(|t| {
            t.cause() == self.stall.cause && file.ends_with(&t.file) && blocker.line == Some(t.line)
        });
        assert!(named, "blamed {file}:{:?}: {self}", blocker.line);
    }
}

impl std::fmt::Display for Match<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "truths {:#?}\nstall {:#?}", self.truths, self.stall)
    }
}
