//! What a loop waits for in Python's own words, all of which are a plain lock to the kernel; and what the
//! interpreter or the kernel does for it.

use std::time::Duration;

use crate::gate::{enter, patience, slowness};
use crate::process::Process;
use crate::report::{Frame, Report, Stall};
use crate::scenarios::interpreters;
use crate::stallscope::Watch;
use crate::truth::Truth;

/// A row's name, its cause, the closer word, and the function of the thread that it waited for.
type Row = (&'static str, &'static str, Option<&'static str>, Option<&'static str>);

const ROWS: [Row; 7] = [
    // Who set the result, not who computed it, which has returned by then.
    ("future", "lock", Some("future"), Some("set_result")),
    ("event", "lock", Some("condvar"), Some("set_late")),
    ("queue", "lock", Some("channel"), Some("put_late")),
    ("lock", "lock", None, Some("hold")),
    // When its end is seen, the thread has no frames any more.
    ("join", "lock", Some("join"), None),
    ("import", "cpu", Some("import"), None),
    // With 4 GiB, whose tables are copied: not Python's time.
    ("fork", "cpu", Some("fork"), None),
];

/// Long enough that what the interpreter's own lock takes is little of it.
const BLOCKS_MS: &str = "200";

/// What the program said of its helper last, before the truth with this number.
fn helper(process: &Process, truth: usize) -> u64 {
    let (mut truths, mut helper) = (0, None);
    for line in process.lines() {
        let Ok(json) = serde_json::from_str::<serde_json::Value>(&line.text) else { continue };
        helper = json.get("helper").and_then(serde_json::Value::as_u64).or(helper);
        truths += usize::from(Truth::parse(&line.text).is_some());
        if truths > truth {
            break;
        }
    }
    helper.unwrap_or_else(|| panic!("no helper: {}", process.stdout()))
}

#[test]
fn what_is_waited_for_in_python_is_told_in_python_s_words_with_who_ended_the_wait() {
    let Some(_turn) = enter() else { return };
    let started: Vec<_> = interpreters()
        .iter()
        .map(|python| {
            let (mut command, folder) = python.run("waits.py", &[BLOCKS_MS]);
            (Process::start(&mut command), folder)
        })
        .collect();
    let Some(((first, _), others)) = started.split_first() else { return };
    started.iter().for_each(|(process, _)| drop(process.wait_for_key("ready")));
    let pids: Vec<String> = others.iter().map(|(one, _)| one.pid().to_string()).collect();
    let more: Vec<&str> = pids.iter().flat_map(|pid| ["--pid", pid]).collect();
    let mut watch = Watch::profile_with(first.pid(), &more);
    watch.wait_until_watching();
    // One after the other: what computes is to be seen computing.
    for (process, _) in &started {
        process.signal(libc::SIGUSR1);
        std::thread::sleep(Duration::from_millis(500) * slowness());
    }
    for (process, _) in &started {
        let finished = process.wait_for_json(patience(60), |json| json.get("finished").cloned());
        assert!(finished.is_some(), "{}{}", process.stdout(), process.stderr());
    }
    let report = watch.settle_and_stop();
    started.iter().for_each(|(process, _)| check(process, &report));
}

fn check(process: &Process, report: &Report) {
    let truths = process.truths();
    assert_eq!(truths.len(), 2 * ROWS.len());
    for row in &ROWS {
        let mut seen = 0;
        for (number, truth) in truths.iter().enumerate().filter(|(_, t)| t.endpoint == row.0) {
            let inside: Vec<_> =
                report.stalls.iter().filter(|stall| !stall.ongoing && truth.is_in(stall)).collect();
            let [stall] = inside[..] else { panic!("{truth:?} is in {inside:#?}") };
            // On a busy machine a computation may wait for the CPU for longer than it has it.
            if row.1 == "cpu" && stall.cause == "runqueue" && stall.ledger("cpu_ns") > 0 {
                continue;
            }
            check_row(row, process, number, truth, stall);
            seen += 1;
        }
        assert!(seen > 0, "a machine too busy to see {}: {report:#?}", row.0);
    }
}

fn check_row(row: &Row, process: &Process, number: usize, truth: &Truth, stall: &Stall) {
    let (_, cause, detail, ended_by) = *row;
    assert_eq!((&*stall.cause, stall.detail.as_deref()), (cause, detail), "{stall:#?}");
    let blocker = stall.blocker.as_ref().expect("checked on reading");
    let at = (blocker.file.as_deref(), blocker.line);
    assert!(at.0.is_some_and(|file| file.ends_with(&truth.file)), "{truth:?}: {stall:#?}");
    assert_eq!(at.1, Some(truth.line), "{stall:#?}");
    stall.check_others(cause);
    if row.0 == "fork" {
        assert!(stall.kernel_share.is_some_and(|share| share > 0.8), "{stall:#?}");
        assert!(
            stall.stack().call.as_deref().is_some_and(|c| c.starts_with("clone")),
            "{stall:#?}"
        );
    }
    if cause != "lock" {
        return;
    }
    let holder = stall.stack().holder.as_ref().unwrap_or_else(|| panic!("no holder: {stall:#?}"));
    assert_eq!(holder.tid, helper(process, number), "{stall:#?}");
    let Some(function) = ended_by else { return };
    let is_it = |frame: &Frame| frame.function.rsplit('.').next() == Some(function);
    assert!(holder.frames.iter().any(is_it), "no {function}: {holder:#?}");
}
