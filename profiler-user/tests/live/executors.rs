//! Event loops in Rust that are not tokio's: async-std, async-executor (smol), and one written by hand.

use std::process::Command;

use crate::fixtures;
use crate::gate::enter;
use crate::process::Process;
use crate::report::Report;
use crate::stallscope::Watch;
use crate::truth::match_all;

/// Watches one for a second of rest, and then for a round if it is to play one.
fn watch(kind: &str, plays: bool) -> (Process, Report) {
    let program = Process::start(Command::new(fixtures::executors()).arg(kind));
    program.wait_for_key("ready");
    let mut watch = Watch::profile(program.pid());
    watch.wait_until_watching();
    std::thread::sleep(std::time::Duration::from_millis(700));
    if plays {
        program.signal(libc::SIGUSR1);
        program.wait_for_key("round");
    }
    (program, watch.settle_and_stop())
}

/// The loop sleeps and computes in a task, and waits for nothing in particular before and after it.
fn stalls_are_found(kind: &str) {
    let Some(_turn) = enter() else { return };
    let (program, report) = watch(kind, true);
    let truths = program.truths();
    assert_eq!(truths.len(), 2, "{truths:#?}");
    let matches = match_all(&truths, &report.stalls);
    assert_eq!(matches.len(), 2, "{report:#?}");
    for one in matches {
        one.check_duration();
        assert_eq!(&*one.stall.runtime, "native", "{one}");
        if one.check_cause() && one.stall.cause != "runqueue" {
            one.check_line();
        }
        assert!(report.loops.iter().any(|found| found.tid == one.stall.tid), "{report:#?}");
    }
}

#[test]
fn async_std() {
    stalls_are_found("async-std");
}

#[test]
fn async_executor() {
    stalls_are_found("async-executor");
}

#[test]
fn a_loop_written_by_hand() {
    stalls_are_found("by-hand");
}

#[test]
fn at_rest_they_do_not_stall() {
    let Some(_turn) = enter() else { return };
    for kind in ["async-std", "async-executor", "by-hand"] {
        let (_program, report) = watch(kind, false);
        assert!(!report.loops.is_empty(), "{kind}: {report:#?}");
        // On a busy machine even what has nothing to do waits for a CPU.
        assert!(report.stalls.iter().all(|stall| stall.cause == "runqueue"), "{kind}: {report:#?}");
    }
}
