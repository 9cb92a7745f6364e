//! Every way to stall an asyncio loop, and those that look alike and are harmless, on each CPython: the
//! rows of a table, told by one service under watch.
//!
//! | row | the endpoint | what must be said |
//! |---|---|---|
//! | a1 | asks an upstream with a blocking client | `syscall`, the upstream's address, line, task |
//! | a2, a3 | the same on a thread; an asynchronous client | nothing |
//! | c1 | `json.dumps` of 300,000 rows | `cpu`, its line |
//! | c2 | the same in `asyncio.to_thread` | `gil`, the holder and its line |
//! | c3 | the same in a process pool | nothing |
//! | d1, d2 | five times 200 ms asleep, or busy, in one step | one turn of 1 s |
//! | d3 | busy in `to_thread` | `gil` with a threshold of 3 ms, the holder |
//! | d4 | asleep in `to_thread`; busy in another process, in another interpreter | nothing |
//! | e1 | a chain of hashes | `cpu`, native frames above the line that called them |
//! | e2 | large pieces on a thread; pieces of 1 KiB | nothing; `gil` |
//! | f | 30 ms in every request | invisible at 100 ms but for the loop's percentiles; each one at 10 ms |
//! | g | 2000 sleeps of 0.1 ms | one stall, 2000 sleeps, one line, few stacks |
//! | h | 40 calls on the default executor | no stall; the pool, its limit, its line |
//! | k | 19 tasks in one turn, and 200 | the turn split by task and line |

use std::time::Duration;

use crate::gate::{enter, skip, slowness};
use crate::pythons::{Python, pythons, with_packages};
use crate::report::{Frame, Part, Report, Stall};
use crate::service::{Call, Service, Span};
use crate::stallscope::Watch;
use crate::upstream::Upstream;

/// The versions that the table is promised for; others have tests of their own.
const VERSIONS: [u32; 4] = [11, 13, 14, 15];

/// What must be said of a row.
#[derive(Debug, Clone, Copy)]
enum Want {
    /// Every call in a stall with this cause, blamed at its line.
    Stalls(&'static str),
    /// One turn, split among its tasks.
    Split,
    /// No call of the row is a stall, and nothing of that length is.
    Nothing,
    /// The loop waits for the interpreter's lock, which the call's thread holds at its line.
    Held,
}

/// The endpoint, how many ask at once, how often, and what must be said.
type Row = (&'static str, usize, usize, Want);

const AT_10_MS: [Row; 16] = [
    ("a1", 3, 1, Want::Stalls("syscall")),
    ("a2", 20, 1, Want::Nothing),
    ("a3", 20, 1, Want::Nothing),
    ("c1", 1, 2, Want::Stalls("cpu")),
    ("c2", 1, 2, Want::Held),
    ("c3", 1, 2, Want::Nothing),
    ("d1", 1, 1, Want::Stalls("syscall")),
    ("d2", 1, 1, Want::Stalls("cpu")),
    ("d4", 1, 1, Want::Nothing),
    ("e1", 1, 1, Want::Stalls("cpu")),
    ("e2", 1, 2, Want::Nothing),
    ("f", 1, 5, Want::Stalls("syscall")),
    ("g", 1, 1, Want::Stalls("syscall")),
    ("h", 1, 1, Want::Nothing),
    ("k", 1, 1, Want::Split),
    ("k_crowd", 1, 1, Want::Split),
];

const AT_3_MS: [Row; 3] =
    [("c2", 1, 1, Want::Held), ("d3", 1, 1, Want::Held), ("e2_pieces", 1, 2, Want::Held)];

/// A harmless row is one whose calls (of 200 ms and more) are no stalls. Threads take turns on a
/// machine that is busy besides: waits as long as that are no error.
const NOISE_NS: u64 = 50_000_000;

/// One interpreter of each of those versions; the skip has been printed if there is none.
pub(crate) fn interpreters() -> Vec<Python> {
    let mut found: Vec<_> =
        pythons().into_iter().filter(|python| VERSIONS.contains(&python.minor())).collect();
    // Rows c2 and d3 are of the lock.
    found.retain(Python::has_lock);
    // One build of each: the others are watched by `python.rs`.
    found.sort_by_key(Python::minor);
    found.dedup_by_key(|python| python.minor());
    if found.is_empty() {
        skip("no CPython of these versions here");
    }
    found
}

/// Asks for every row and gives what the service knows of it.
fn ask(service: &Service, rows: &[Row]) -> Vec<(Row, Span, Vec<Call>)> {
    let mut asked = Vec::new();
    for &row in rows {
        for _ in 0..row.2 {
            let span = service.ask(row.0, row.1);
            asked.push((row, span, service.calls(row.0, span)));
        }
    }
    asked
}

#[test]
fn the_rows_of_the_table_are_told_on_every_version() {
    let Some(_turn) = enter() else { return };
    for python in interpreters() {
        tell_table(&python, "asyncio");
    }
}

/// On the newest CPython that has it; `STALLSCOPE_PYTHONS` and the roots decide which that is.
#[test]
fn the_rows_of_the_table_are_told_on_uvloop() {
    let Some(_turn) = enter() else { return };
    match with_packages(&["uvloop"]).pop() {
        Some(python) => tell_table(&python, "uvloop"),
        None => skip("no Python with uvloop here"),
    }
}

/// Asks for every row and checks what is said of it.
fn tell_table(python: &Python, runtime: &str) {
    let upstream = Upstream::start(Duration::from_millis(500));
    let service =
        Service::start(python, upstream, if runtime == "uvloop" { &["uvloop"] } else { &[] });
    for (threshold, rows) in [("10ms", &AT_10_MS[..]), ("3ms", &AT_3_MS[..])] {
        let watch = Watch::profile_with(service.process.pid(), &["--threshold", threshold]);
        let asked = ask(&service, rows);
        let report = watch.settle_and_stop();
        for (row, span, calls) in &asked {
            let about = format!("{python:?} {runtime}, row {} at {threshold}", row.0);
            let stalls = span.stalls(&report);
            assert!(stalls.iter().all(|stall| stall.runtime == runtime), "{about}: {stalls:#?}");
            check(&about, row.3, calls, &stalls);
            further(&about, row.0, &upstream.address(), calls, &stalls);
        }
        if threshold == "10ms" {
            check_pool(python, &service, &report);
            let one = report.loop_of(service.tid);
            assert!(one.turn_max_ns >= 990_000_000, "{python:?}: {one:#?}");
        }
    }
}

/// Row f.
#[test]
fn what_is_shorter_than_the_threshold_shows_in_the_loops_percentiles() {
    let Some(_turn) = enter() else { return };
    let upstream = Upstream::start(Duration::ZERO);
    let Some(python) = interpreters().pop() else { return };
    let service = Service::start(&python, upstream, &[]);
    let watch = Watch::profile_with(service.process.pid(), &["--threshold", "1s"]);
    for _ in 0..10 {
        service.ask("f", 4);
    }
    let report = watch.stop();
    assert!(report.stalls.is_empty(), "{:#?}", report.stalls);
    let one = report.loop_of(service.tid);
    // A turn may serve several of the four clients.
    assert!(one.turn_p99_ns >= 29_000_000, "{one:#?}");
    assert!(one.utilization > 0.5, "{one:#?}");
}

fn check(about: &str, want: Want, calls: &[Call], stalls: &[&Stall]) {
    match want {
        Want::Stalls(cause) => {
            assert!(!calls.is_empty(), "{about}: it never ran");
            for call in calls {
                check_stall(about, cause, call, stalls);
            }
        }
        Want::Nothing => check_nothing(about, calls, stalls),
        Want::Split => check_split(about, calls, stalls),
        Want::Held => check_held(about, calls, stalls),
    }
}

/// Exactly one stall holds the call, with its cause, at its line.
fn check_stall(about: &str, cause: &str, call: &Call, stalls: &[&Stall]) {
    let holders: Vec<_> = stalls.iter().filter(|stall| call.is_in(stall)).collect();
    let [stall] = holders[..] else { panic!("{about}: {call:#?} is in {holders:#?}") };
    let (own, starved) = (stall.ledger(&format!("{cause}_ns")), stall.ledger("runqueue_ns"));
    // Two thousand short sleeps need CPU too.
    let expected = call.duration_ns.saturating_sub(starved) * 2 / 3;
    assert!(own + CALL_SLACK_NS >= expected, "{about}: {own} ns of {call:#?}: {stall:#?}");
    if stall.cause == "runqueue" {
        // On a busy machine that is the truth.
        return;
    }
    assert_eq!(stall.cause, cause, "{about}: {stall:#?}");
    let blocker = stall.blocker.as_ref().unwrap_or_else(|| panic!("{about}: {stall:#?}"));
    assert!(
        call.is_at(blocker.file.as_deref(), blocker.line),
        "{about}: {call:#?} blamed at {blocker:#?}"
    );
    // Before 3.12 a comprehension is a function of its own: `burn.<locals>.<listcomp>`.
    let named = blocker.function.split('.').any(|name| name == call.function);
    assert!(named, "{about}: {blocker:#?}");
}

/// So long after it began a call has done what it does besides its work.
const UNDER_WAY_NS: u64 = 1_000_000;
/// What a call does besides its cause: on CPU before it sleeps, say.
const CALL_SLACK_NS: u64 = 2_000_000;

fn check_nothing(about: &str, calls: &[Call], stalls: &[&Stall]) {
    for stall in stalls {
        let own = stall.duration_ns - stall.ledger("runqueue_ns");
        assert!(own < NOISE_NS * u64::from(slowness()), "{about}: {stall:#?}");
        let Some(blocker) = stall.blocker.as_ref().filter(|_| stall.cause != "gil") else {
            continue;
        };
        let blamed = calls.iter().find(|call| call.is_at(blocker.file.as_deref(), blocker.line));
        assert!(blamed.is_none(), "{about}: {blamed:#?} is to blame for {stall:#?}");
    }
}

/// Row k: what the tasks of each kind took together is told with the line, and most of them were seen.
fn check_split(about: &str, calls: &[Call], stalls: &[&Stall]) {
    let whole = stalls.iter().find(|stall| calls.iter().all(|call| call.is_in(stall)));
    let stall = whole.unwrap_or_else(|| panic!("{about}: {calls:#?} {stalls:#?}"));
    // The turn's table has room for some of the tasks; later ones share the stacks of earlier ones.
    for (row, coroutine, cause, least) in
        [("k_burn", "price", "cpu", 5), ("k_nap", "stock", "syscall", 1)]
    {
        let own: Vec<_> = calls.iter().filter(|call| call.row == row).collect();
        let is_it =
            |part: &&Part| part.coroutine.as_deref() == Some(coroutine) && part.cause == cause;
        let part = stall.parts.iter().find(is_it);
        let part = part.unwrap_or_else(|| panic!("{about}: no {coroutine}: {stall:#?}"));
        assert!(own[0].is_at(part.file.as_deref(), part.line), "{about}: {part:#?} {own:#?}");
        assert!((least..=own.len() as u64).contains(&part.tasks), "{about}: {part:#?}");
        // Waiting for a CPU is in no part; samples come a millisecond apart.
        let (took, starved) =
            (own.iter().map(|call| call.duration_ns).sum::<u64>(), stall.ledger("runqueue_ns"));
        assert!(part.total_ns <= took * 6 / 5, "{about}: {took} ns: {part:#?}");
        // A turn of many stacks has some that its table had no room for: time without a stack.
        let stacks = stall.stacks.iter().filter(|stack| stack.cause == cause);
        let covered: u64 = stacks.map(|stack| stack.total_ns).sum();
        let uncovered = stall.ledger(&format!("{cause}_ns")).saturating_sub(covered);
        assert!(
            part.total_ns + starved + uncovered >= took * 2 / 3,
            "{about}: {took} ns: {part:#?} {stall:#?}"
        );
    }
}

/// The lock was waited for, its holder is the call's thread at the call's line, and who waited is
/// never blamed.
fn check_held(about: &str, calls: &[Call], stalls: &[&Stall]) {
    let waits = stalls.iter().flat_map(|stall| &stall.stacks).filter(|stack| stack.cause == "gil");
    let holders: Vec<_> = waits.filter_map(|stack| stack.holder.as_ref()).collect();
    let told = holders.iter().any(|holder| {
        let at = |call: &Call| {
            let at = |frame: &Frame| call.is_at(frame.file.as_deref(), frame.line);
            call.tid == holder.tid && holder.frames.iter().any(at)
        };
        calls.iter().any(at)
    });
    assert!(told, "{about}: {calls:#?} {holders:#?} {stalls:#?}");
    for stall in stalls.iter().filter(|stall| stall.cause == "gil") {
        let Some(blocker) = &stall.blocker else { continue };
        // The holder's place is that of the moment at which the wait began: a line before the call's
        // own, now and then, and never another function once the call is under way.
        let under_way = |call: &&Call| {
            let (from, to) = (call.start_unix_ns, call.start_unix_ns + call.duration_ns);
            (from + UNDER_WAY_NS..to).contains(&stall.start_unix_ns)
        };
        if !calls.iter().any(|call| under_way(&call)) {
            continue;
        }
        let its = calls.iter().filter(under_way).any(|call| {
            let named = blocker.function.split('.').any(|name| name == call.function);
            named && blocker.file.as_deref() == Some(call.file.as_str())
        });
        assert!(its, "{about}: {blocker:#?}");
        let advice = stall.advice.as_deref().unwrap_or_default();
        assert!(advice.contains("process or interpreter pool"), "{about}: {advice}");
    }
}

/// What only one row has.
fn further(about: &str, row: &str, upstream: &str, calls: &[Call], stalls: &[&Stall]) {
    let stall = || stalls.iter().find(|stall| calls.iter().all(|call| call.is_in(stall)));
    match row {
        "a1" => stalls.iter().for_each(|stall| check_upstream(about, upstream, stall)),
        "d1" | "g" => {
            let stall = stall().unwrap_or_else(|| panic!("{about}: {stalls:#?}"));
            let (sleeps, parts) = if row == "g" { (2000, 20) } else { (5, 2) };
            let call = &stall.syscalls[0];
            // One that is due before it began does not sleep.
            let slept = sleeps - sleeps / 50..=sleeps;
            assert_eq!(call.name, "clock_nanosleep", "{about}");
            assert!(slept.contains(&call.count), "{about}: {call:#?}");
            assert!(call.max_ns <= stall.duration_ns / parts, "{about}: {call:#?}");
            let slept = stall.stacks.iter().filter(|stack| stack.cause == "syscall").count();
            assert!(slept <= 4, "{about}: {slept} stacks");
        }
        "d2" => {
            // Five calls, one turn.
            assert!(calls.len() == 5 && stall().is_some(), "{about}: {calls:#?} {stalls:#?}");
        }
        "e1" => {
            let stall = stall().unwrap_or_else(|| panic!("{about}: {stalls:#?}"));
            check_native_above(about, &calls[0], stall);
        }
        _ => {}
    }
}

/// Row a1: whom it waited for, which task did, and what to do.
fn check_upstream(about: &str, upstream: &str, stall: &Stall) {
    if stall.cause != "syscall" {
        return;
    }
    let waited = stall.syscalls.iter().filter_map(|call| call.resource.as_deref());
    assert!(waited.clone().any(|resource| resource.contains(upstream)), "{about}: {stall:#?}");
    let task = stall.task.as_ref().unwrap_or_else(|| panic!("{about}: {stall:#?}"));
    assert!(task.name.starts_with("Task-"), "{about}: {task:#?}");
    assert_eq!(task.chain, ["serve", "a1"], "{about}");
    let advice = stall.advice.as_deref().unwrap_or_default();
    assert!(advice.contains("asynchronous version"), "{about}: {advice}");
}

/// Row e1: one stack, the hash above the line that asked for it.
fn check_native_above(about: &str, call: &Call, stall: &Stall) {
    let on_cpu = || stall.stacks.iter().filter(|stack| stack.cause == "cpu");
    let above = on_cpu().filter(|stack| {
        let at = stack.frames.iter().rposition(|f| call.is_at(f.file.as_deref(), f.line));
        at.is_some_and(|at| stack.frames[at + 1..].iter().any(|frame| frame.kind == "native"))
    });
    let (native, all) = (
        above.map(|stack| stack.total_ns).sum::<u64>(),
        on_cpu().map(|stack| stack.total_ns).sum::<u64>(),
    );
    assert!(native * 2 > all, "{about}: {native} of {all} ns: {stall:#?}");
}

/// Row h: the default executor, full, at the line of the calls.
fn check_pool(python: &Python, service: &Service, report: &Report) {
    let pool = report
        .pools
        .iter()
        .filter(|pool| pool.kind == "ThreadPoolExecutor" && pool.saturations > 0)
        // A pool of one interpreter is full whenever it works.
        .max_by_key(|pool| pool.threads)
        .unwrap_or_else(|| panic!("{python:?}: {:#?}", report.pools));
    let limit = (service.cpus + 4).min(32);
    assert_eq!((pool.limit, pool.busy_max), (Some(limit), limit), "{python:?}: {pool:#?}");
    assert!(pool.queued_max.is_some_and(|queued| queued > 0), "{python:?}: {pool:#?}");
    let blocked = ["nap", "ask_upstream"];
    let at = |frame: &Frame| blocked.contains(&frame.function.as_str()) && frame.line.is_some();
    assert!(pool.stacks.iter().any(|stack| stack.frames.iter().any(at)), "{python:?}: {pool:#?}");
}
