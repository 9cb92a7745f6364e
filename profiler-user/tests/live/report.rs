//! The JSON report, and what must hold for every one.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

/// The causes, as keys of `ledger` without `_ns`.
const CAUSES: [&str; 9] =
    ["cpu", "syscall", "lock", "gil", "fault", "runqueue", "throttled", "stopped", "unexplained"];

/// Causes that no line of code is to blame for.
const NOBODYS_FAULT: [&str; 3] = ["runqueue", "throttled", "stopped"];

/// A computation as short as this may end before it was sampled once.
const UNSAMPLED_NS: u64 = 10_000_000;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Stall {
    pub(crate) start_unix_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) ongoing: bool,
    pub(crate) at_attach: bool,
    pub(crate) pid: u64,
    pub(crate) tid: u64,
    pub(crate) runtime: String,
    ledger: serde_json::Map<String, Value>,
    pub(crate) cause: String,
    pub(crate) detail: Option<String>,
    pub(crate) boundary: String,
    pub(crate) task: Option<Task>,
    pub(crate) kernel_share: Option<f64>,
    pub(crate) ready_sockets: Option<u64>,
    pub(crate) syscalls: Vec<Syscall>,
    pub(crate) blocker: Option<Blocker>,
    pub(crate) parts: Vec<Part>,
    pub(crate) stacks: Vec<Stack>,
    pub(crate) outside: Option<Outside>,
    pub(crate) advice: Option<String>,
}

/// Time of a stall by coroutine and place.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Part {
    pub(crate) cause: String,
    pub(crate) coroutine: Option<String>,
    pub(crate) tasks: u64,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u64>,
    pub(crate) total_ns: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Outside {
    pub(crate) what: String,
    pub(crate) who: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) chain: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Holder {
    pub(crate) asleep_in: Option<String>,
    pub(crate) tid: u64,
    pub(crate) thread: String,
    pub(crate) frames: Vec<Frame>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Syscall {
    pub(crate) name: String,
    pub(crate) count: u64,
    pub(crate) total_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) resource: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Blocker {
    pub(crate) function: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u64>,
    share: f64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Stack {
    pub(crate) cause: String,
    pub(crate) total_ns: u64,
    pub(crate) call: Option<String>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) holder: Option<Holder>,
    pub(crate) resource: Option<String>,
    #[serde(default)]
    pub(crate) candidates: Vec<Holder>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Frame {
    pub(crate) function: String,
    pub(crate) kind: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Loop {
    pub(crate) pid: u64,
    pub(crate) tid: u64,
    pub(crate) runtime: String,
    observed_ns: u64,
    pub(crate) turns: u64,
    busy_ns: u64,
    parked_ns: u64,
    pub(crate) utilization: f64,
    turn_p50_ns: u64,
    turn_p90_ns: u64,
    pub(crate) turn_p99_ns: u64,
    turn_p999_ns: u64,
    pub(crate) turn_max_ns: u64,
    stalls: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Health {
    pub(crate) backend: String,
    pub(crate) lost_events: u64,
    #[serde(default)]
    pub(crate) losses: HashMap<String, u64>,
    pub(crate) task_polls: Option<String>,
    pub(crate) warnings: Vec<String>,
}

/// A thread pool.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Pool {
    pub(crate) kind: String,
    pub(crate) threads: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) limit_inferred: bool,
    pub(crate) busy_max: u64,
    pub(crate) queued_max: Option<u64>,
    pub(crate) saturated_ns: u64,
    pub(crate) saturations: u64,
    pub(crate) stacks: Vec<PoolStack>,
}

/// Threads of a pool at one place.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PoolStack {
    pub(crate) threads: u64,
    pub(crate) frames: Vec<Frame>,
}

/// A whole report with its invariants checked.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) stalls: Vec<Stall>,
    pub(crate) loops: Vec<Loop>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) health: Health,
}

impl Stall {
    /// Reads and checks one `stall` object.
    pub(crate) fn read(json: &Value) -> Self {
        let stall: Self = serde_json::from_value(json.clone()).unwrap_or_else(|error| {
            panic!("not a stall as the contract has it: {error}: {json:#}")
        });
        stall.check();
        stall
    }

    /// An entry of the ledger by its key.
    pub(crate) fn ledger(&self, key: &str) -> u64 {
        self.ledger
            .get(key)
            .and_then(Value::as_u64)
            .unwrap_or_else(|| panic!("no {key} in {:?}", self.ledger))
    }

    /// The heaviest stack of the stall's cause.
    pub(crate) fn stack(&self) -> &Stack {
        self.stacks
            .iter()
            .find(|stack| stack.cause == self.cause)
            .unwrap_or_else(|| panic!("no stack: {self:#?}"))
    }

    /// Whether it waited in epoll for most of its time.
    pub(crate) fn waits_in_epoll(&self) -> bool {
        self.cause == "syscall"
            && self.stack().call.as_deref().is_some_and(|call| call.starts_with("epoll"))
    }

    /// Whether one of these functions is on that stack, or is the blocker.
    pub(crate) fn names(&self, functions: &[&str]) -> bool {
        let blocker = self.blocker.iter().map(|blocker| blocker.function.as_str());
        let frames = self.stack().frames.iter().map(|frame| frame.function.as_str());
        blocker.chain(frames).any(|name| functions.contains(&name))
    }

    /// That nothing besides has more than a twentieth of it. What the machine's load adds (CPU, run queue)
    /// is left out.
    pub(crate) fn check_others(&self, cause: &str) {
        for other in ["syscall", "lock", "gil", "fault", "throttled", "stopped"] {
            let ns = self.ledger(&format!("{other}_ns"));
            assert!(other == cause || ns <= self.duration_ns / 20, "{other} {ns}: {self:#?}");
        }
    }

    fn check(&self) {
        let entries: Vec<(&str, u64)> =
            CAUSES.iter().map(|cause| (*cause, self.ledger(&format!("{cause}_ns")))).collect();
        assert_eq!(self.ledger.len(), CAUSES.len(), "unknown ledger entries: {self:#?}");
        let sum: u64 = entries.iter().map(|(_, ns)| ns).sum();
        assert_eq!(sum, self.duration_ns, "the ledger sums to the duration: {self:#?}");
        assert_eq!(self.ledger("unexplained_ns"), 0, "everything is explained: {self:#?}");
        let largest = entries.iter().map(|(_, ns)| *ns).max();
        let own = entries.iter().find(|(cause, _)| *cause == self.cause).map(|(_, ns)| *ns);
        assert_eq!(own, largest, "the cause is the largest entry: {self:#?}");
        assert!(["exact", "upper_bound"].contains(&self.boundary.as_str()), "{self:#?}");
        assert!(self.kernel_share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{self:#?}");
        let in_parts: u64 = self.parts.iter().map(|part| part.total_ns).sum();
        assert!(in_parts <= self.duration_ns, "the parts are of the stall: {self:#?}");
        for call in &self.syscalls {
            assert!(
                call.count > 0 && call.max_ns <= call.total_ns && call.total_ns <= self.duration_ns,
                "{self:#?}"
            );
        }
        if NOBODYS_FAULT.contains(&self.cause.as_str()) {
            assert!(self.blocker.is_none(), "no line is to blame for {}: {self:#?}", self.cause);
            return;
        }
        if self.cause == "gil" && self.blocker.is_none() {
            // Its holder could not be read: it ran meanwhile.
            return;
        }
        if self.at_attach && self.blocker.is_none() {
            // Woken between the kernel side's first event and the look at its stack: nobody knows.
            return;
        }
        if self.kernel_share.is_none() && self.cause == "cpu" && self.duration_ns < UNSAMPLED_NS {
            // The timer of a virtual CPU may come late: no sample, and nobody is blamed without one.
            return;
        }
        let blocker = self.blocker.as_ref().unwrap_or_else(|| panic!("nobody blamed: {self:#?}"));
        assert!((0.0..=1.0).contains(&blocker.share) && !blocker.function.is_empty(), "{self:#?}");
        assert!(!self.stack().frames.is_empty(), "no frames: {self:#?}");
        for frame in self.stacks.iter().flat_map(|stack| &stack.frames) {
            assert!(
                !frame.function.chars().any(char::is_control),
                "a control character in {frame:?}"
            );
        }
    }
}

impl Loop {
    fn read(json: &Value) -> Self {
        let one: Self = serde_json::from_value(json.clone())
            .unwrap_or_else(|error| panic!("not a loop as the contract has it: {error}: {json:#}"));
        let ladder =
            [one.turn_p50_ns, one.turn_p90_ns, one.turn_p99_ns, one.turn_p999_ns, one.turn_max_ns];
        assert!(ladder.is_sorted(), "percentiles rise: {one:#?}");
        assert!((0.0..=1.0).contains(&one.utilization), "{one:#?}");
        // Counters of running threads are read one after the other: a moment of slack.
        assert!(
            one.busy_ns + one.parked_ns <= one.observed_ns + one.observed_ns / 50 + 50_000_000,
            "{one:#?}"
        );
        one
    }
}

impl Report {
    /// Reads JSON Lines as the contract has them.
    pub(crate) fn read(output: &str) -> Self {
        let (mut stalls, mut loops, mut pools) = (Vec::new(), Vec::new(), Vec::new());
        let mut health = None;
        for line in output.lines() {
            let json: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(health.is_none(), "health is the last line, then came {line}");
            match json.get("type").and_then(Value::as_str) {
                Some("stall") => stalls.push(Stall::read(&json)),
                Some("loop") => loops.push(Loop::read(&json)),
                Some("health") => {
                    health = Some(
                        serde_json::from_value(json)
                            .unwrap_or_else(|error| panic!("{error}: {line}")),
                    );
                }
                Some("pool") => pools.push(
                    serde_json::from_value(json).unwrap_or_else(|error| panic!("{error}: {line}")),
                ),
                other => panic!("an unknown type {other:?}: {line}"),
            }
        }
        let health = health
            .unwrap_or_else(|| panic!("health is the last line of every JSON output: {output}"));
        let report = Self { stalls, loops, pools, health };
        report.check();
        report
    }

    fn check(&self) {
        assert_eq!(self.health.lost_events, 0, "nothing is lost: {:?}", self.health);
        assert!(["ebpf", "ptrace"].contains(&self.health.backend.as_str()), "{:?}", self.health);
        for one in &self.loops {
            let own: Vec<&Stall> = self
                .stalls
                .iter()
                .filter(|stall| (stall.pid, stall.tid) == (one.pid, one.tid))
                .collect();
            // A stall that was cut off at either end may be counted or not.
            if own.iter().any(|stall| stall.at_attach || stall.ongoing) {
                continue;
            }
            assert_eq!(
                one.stalls,
                own.len() as u64,
                "the loop counts its stalls: {one:#?} {self:#?}"
            );
            let longest = own.iter().map(|stall| stall.duration_ns).max().unwrap_or(0);
            assert!(
                one.turn_max_ns >= longest - longest / 30,
                "the longest turn is in: {one:#?} {longest}"
            );
        }
        for stall in &self.stalls {
            let known = self.loops.iter().any(|one| one.tid == stall.tid && one.pid == stall.pid);
            assert!(known, "every stall's loop is listed: {stall:#?}");
        }
    }

    /// Stalls that are over, without those the scheduler alone is to blame for.
    pub(crate) fn blamed(&self) -> Vec<&Stall> {
        self.stalls.iter().filter(|stall| !stall.ongoing && stall.cause != "runqueue").collect()
    }

    /// The loop of that thread.
    pub(crate) fn loop_of(&self, tid: u32) -> &Loop {
        self.loops
            .iter()
            .find(|one| one.tid == u64::from(tid))
            .unwrap_or_else(|| panic!("thread {tid} was not found to be a loop: {:#?}", self.loops))
    }
}
