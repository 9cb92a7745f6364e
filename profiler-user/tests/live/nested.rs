//! Loops inside of Python's loops: every kind of loop, on every version.

use std::time::Duration;

use crate::gate::{enter, patience, skip, slowness};
use crate::process::Process;
use crate::pythons::{Python, pythons, with_packages};
use crate::report::Report;
use crate::stallscope::Watch;

/// Long enough that what happens around a wait is little of it.
const BLOCKS_MS: &str = "200";

/// Every version once.
fn versions() -> Vec<Python> {
    let mut found = pythons();
    found.sort_by_key(Python::minor);
    found.dedup_by_key(|python| python.minor());
    if found.is_empty() {
        skip("no python3 here");
    }
    found
}

/// Watches programs together while each does what it has to.
fn watch(pythons: &[Python], kind: &str) -> (Vec<Process>, Report) {
    let (started, _folders): (Vec<_>, Vec<_>) = pythons
        .iter()
        .map(|python| {
            let (mut command, folder) = python.run("nested.py", &[kind, BLOCKS_MS]);
            (Process::start(&mut command), folder)
        })
        .unzip();
    started.iter().for_each(|process| drop(process.wait_for_key("ready")));
    let pids: Vec<String> = started[1..].iter().map(|one| one.pid().to_string()).collect();
    let more: Vec<&str> = pids.iter().flat_map(|pid| ["--pid", pid]).collect();
    let mut watch = Watch::profile_with(started[0].pid(), &more);
    watch.wait_until_watching();
    // Where a loop parks is learned when it does.
    std::thread::sleep(Duration::from_secs(2) * slowness());
    started.iter().for_each(|process| process.signal(libc::SIGUSR1));
    for process in &started {
        let finished = process.wait_for_json(patience(60), |json| json.get("finished").cloned());
        assert!(finished.is_some(), "{}{}", process.stdout(), process.stderr());
    }
    let report = watch.settle_and_stop();
    (started, report)
}

/// Every wait is blocked time, at its line.
fn check(pythons: &[Python], kind: &str) {
    if pythons.is_empty() {
        return;
    }
    let (started, report) = watch(pythons, kind);
    for (python, process) in pythons.iter().zip(&started) {
        let truths = process.truths();
        assert!(truths.len() >= 4, "{python:?}: {}", process.stdout());
        for truth in &truths {
            let about = format!("{kind} on {python:?}: {truth:?}");
            let stalls = report.stalls.iter().filter(|s| !s.ongoing && truth.is_in(s));
            let [stall] = &stalls.collect::<Vec<_>>()[..] else { panic!("{about}: {report:#?}") };
            assert!(stall.waits_in_epoll(), "{about}: {stall:#?}");
            assert!(stall.ledger("syscall_ns") >= 190_000_000, "{about}: {stall:#?}");
            let blocker = stall.blocker.as_ref().expect("checked on reading");
            let file = blocker.file.as_deref().unwrap_or_default();
            assert!(file.ends_with("nested.py"), "{about}: {stall:#?}");
            assert_eq!(blocker.line, Some(truth.line), "{about}: {stall:#?}");
            stall.check_others("syscall");
        }
    }
}

#[test]
fn a_task_of_asyncio_that_waits_in_a_loop_of_its_own_is_not_idle() {
    let Some(_turn) = enter() else { return };
    check(&versions(), "asyncio");
}

#[test]
fn a_plain_loop_whose_function_waits_in_another_one_is_not_idle() {
    let Some(_turn) = enter() else { return };
    check(&versions(), "plain");
}

#[test]
fn who_waits_in_a_loop_of_its_own_on_uvloop_trio_or_twisted_is_not_idle() {
    let Some(_turn) = enter() else { return };
    for kind in ["uvloop", "trio", "twisted"] {
        let found = with_packages(&[kind]);
        if found.is_empty() {
            skip(&format!("no Python with {kind} here"));
        }
        check(&found, kind);
    }
}

#[test]
fn loops_of_python_s_one_after_the_other_are_idle_in_each() {
    let Some(_turn) = enter() else { return };
    let pythons = versions();
    if pythons.is_empty() {
        return;
    }
    let (_started, report) = watch(&pythons, "apart");
    // Their calls wait for 50 ms and more; what is shorter is the machine's.
    let idle = |stall: &&crate::report::Stall| stall.ledger("syscall_ns") > 30_000_000;
    let wrong: Vec<_> = report.stalls.iter().filter(idle).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
