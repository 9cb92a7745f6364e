//! The `tokio-tasks` fixture: stalls of known length in known tasks, on tokio of three ages and four
//! kinds of runtime, with debug information and without.

use std::io::Write as _;
use std::process::Command;

use crate::fixtures::{Folder, Tasks};
use crate::gate::{enter, has_programs, patience};
use crate::process::Process;
use crate::report::Report;
use crate::stallscope::{Watch, run};
use crate::truth::{Match, Truth, match_all};

/// Plays one round of a scenario under watch; gives what the program and stallscope say of it.
fn play(build: Tasks, arguments: &[&str], flags: &[&str]) -> (Vec<Truth>, Report) {
    let program = Process::start(Command::new(build.binary()).args(arguments));
    program.wait_for_key("ready");
    let mut watch = Watch::profile_with(program.pid(), flags);
    watch.wait_until_watching();
    program.signal(libc::SIGUSR1);
    program.wait_for_key("round");
    let report = watch.settle_and_stop();
    assert_eq!(report.health.lost_events, 0, "{:#?}", report.health);
    (program.truths(), report)
}

/// One stall for each of the four that the program knows of, as long as it says.
fn known(build: Tasks, kind: &[&str]) -> Option<(Vec<Truth>, Report)> {
    if !has_programs(&["strip"]) {
        return None;
    }
    let arguments = [&kind[..1], &["known"], &kind[1..]].concat();
    let (truths, report) = play(build, &arguments, &[]);
    assert_eq!(truths.len(), 4, "{arguments:?}: {truths:#?}");
    let matches = match_all(&truths, &report.stalls);
    assert_eq!(matches.len(), 4, "{build:?} {arguments:?}: {report:#?}");
    for one in &matches {
        one.check_duration();
        one.check_cause();
        assert_eq!(one.truths.len(), 1, "one stall, one task: {one}");
        assert_eq!((&*one.stall.runtime, &*one.stall.boundary), ("tokio", "exact"), "{one}");
    }
    assert_eq!(report.health.task_polls.as_deref(), Some("exact"), "{:#?}", report.health);
    Some((truths, report))
}

/// The task by its function, and the line of the stall, which the last await of the chain stands on
/// or calls.
fn check_task(one: &Match<'_>) {
    if one.stall.cause == "runqueue" {
        // On a busy machine a computation may wait for the CPU longer than it has it.
        return;
    }
    let task = one.stall.task.as_ref().unwrap_or_else(|| panic!("no task: {one}"));
    let function = match &*one.truths[0].endpoint {
        "innermost" => "outermost",
        other => other,
    };
    assert_eq!(task.name, format!("tokio_tasks::known::{function}::{{async}}"), "{one}");
}

/// Lines of the awaits from the outermost task inwards, as the source has them.
fn awaits_of_outermost() -> Vec<String> {
    let source = include_str!("../fixtures/tokio-tasks/src/known.rs");
    ["middle(depth).await", "innermost(depth).await", "timed!(\"innermost\""]
        .map(|text| {
            let line = source.lines().position(|line| line.contains(text)).expect("is there");
            format!("(src/known.rs:{})", line + 1)
        })
        .to_vec()
}

fn check_lines(truths: &[Truth], report: &Report) {
    for one in match_all(truths, &report.stalls) {
        if one.stall.cause != "runqueue" {
            one.check_line();
        }
    }
}

/// The chain of awaits down to the code that stalls, each with its line.
fn check_chain(truths: &[Truth], report: &Report) {
    let matches = match_all(truths, &report.stalls);
    let deep = matches.iter().find(|one| one.truths[0].endpoint == "innermost").expect("checked");
    let chain = &deep.stall.task.as_ref().unwrap_or_else(|| panic!("no task: {deep}")).chain;
    let places = awaits_of_outermost();
    assert_eq!(chain.len(), places.len(), "{deep}");
    for (link, place) in chain.iter().zip(places) {
        assert!(link.ends_with(&place), "{link} instead of {place}: {deep}");
    }
}

#[test]
fn debug_information_tells_task_line_and_awaits_on_every_kind_of_runtime() {
    let Some(_turn) = enter() else { return };
    let kinds: [&[&str]; 6] = [
        &["multi4"],
        &["multi4", "--no-io"],
        &["multi1"],
        &["current", "--no-io"],
        &["localset"],
        &["several"],
    ];
    for kind in kinds {
        let Some((truths, report)) = known(Tasks::Newest, kind) else { return };
        match_all(&truths, &report.stalls).iter().for_each(check_task);
        check_lines(&truths, &report);
        check_chain(&truths, &report);
    }
}

#[test]
fn symbols_alone_tell_the_task() {
    let Some(_turn) = enter() else { return };
    for kind in [&["multi4", "--no-io"][..], &["current"]] {
        let Some((truths, report)) = known(Tasks::SymbolsOnly, kind) else { return };
        match_all(&truths, &report.stalls).iter().for_each(check_task);
    }
}

#[test]
fn line_tables_alone_tell_the_line_on_tokio_1_38() {
    let Some(_turn) = enter() else { return };
    for kind in [&["multi4", "--no-io"][..], &["current"], &["localset", "--no-io"]] {
        let Some((truths, report)) = known(Tasks::Tokio138, kind) else { return };
        check_lines(&truths, &report);
    }
}

#[test]
fn unoptimised_code_tells_all_on_tokio_1_20() {
    let Some(_turn) = enter() else { return };
    for kind in [&["multi4"][..], &["current", "--no-io"], &["localset"]] {
        let Some((truths, report)) = known(Tasks::Tokio120, kind) else { return };
        match_all(&truths, &report.stalls).iter().for_each(check_task);
        check_lines(&truths, &report);
        check_chain(&truths, &report);
    }
}

/// Its code tells whose it is, and its tables where tasks are polled.
#[test]
fn without_symbols_stalls_are_as_exact() {
    let Some(_turn) = enter() else { return };
    for kind in [&["multi4"][..], &["multi4", "--no-io"], &["current", "--no-io"]] {
        let Some((_, report)) = known(Tasks::Stripped, kind) else { return };
        let warnings = &report.health.warnings;
        assert!(warnings.iter().any(|text| text.contains("no symbols")), "{warnings:?}");
    }
}

/// The program that ran has no symbols; those of its build are found when the recording is read.
#[test]
fn a_recording_without_symbols_is_named_later() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["strip"]) {
        return;
    }
    let folder = Folder::new("named-later");
    let path = folder.path().join("x.stall");
    let file = path.to_str().expect("a path in UTF-8");
    let program = Process::start(Command::new(Tasks::Stripped.binary()).args(["multi4", "known"]));
    program.wait_for_key("ready");
    let mut watch =
        Watch::profile_with(program.pid(), &["--output", file, "--format", "recording"]);
    watch.wait_until_watching();
    program.signal(libc::SIGUSR1);
    program.wait_for_key("round");
    watch.settle();
    watch.process.signal(libc::SIGINT);
    assert_eq!(watch.process.expect_end(patience(30)).code(), Some(0));
    let truths: Vec<Truth> = program.truths();
    let full = Tasks::Newest.binary();
    let full = full.to_str().expect("a path in UTF-8");
    let (code, json, stderr) = run(&["report", file, "--format", "json", "--symbols", full]);
    assert_eq!(code, Some(0), "{stderr}");
    let report = Report::read(&json);
    match_all(&truths, &report.stalls).iter().for_each(check_task);
    check_lines(&truths, &report);
    check_chain(&truths, &report);
    // Without them it says what it said before: nothing of lines.
    let (_, json, _) = run(&["report", file, "--format", "json"]);
    for stall in Report::read(&json).stalls {
        assert!(stall.blocker.is_none_or(|blocker| blocker.line.is_none()));
    }
}

/// Fifty thousand polls of 20 us, one of 30 ms, and fifty thousand more: not a system call between.
#[test]
fn a_hundred_thousand_short_polls_are_no_stall_and_the_long_one_among_them_is() {
    let Some(_turn) = enter() else { return };
    let (truths, report) = play(Tasks::Newest, &["multi1", "crowd", "--no-io"], &[]);
    let matches = match_all(&truths, &report.stalls);
    assert_eq!(matches.len(), 1, "{report:#?}");
    matches[0].check_duration();
    matches[0].check_cause();
    let turns: u64 = report.loops.iter().map(|one| one.turns).sum();
    assert!(turns >= 100_000, "each poll is a turn: {turns}");
}

/// What stands between the task and its poll's end, each blamed on the line that waits or works.
#[test]
fn who_blocks_is_told_and_handed_off_workers_are_not() {
    let Some(_turn) = enter() else { return };
    let (truths, report) = play(Tasks::Newest, &["multi4", "blocked"], &[]);
    let told = |truth: &Truth| truth.endpoint != "in_place";
    let (stalls, in_place): (Vec<Truth>, Vec<Truth>) = truths.into_iter().partition(told);
    assert_eq!(stalls.len(), 7, "{stalls:#?}");
    assert_eq!(in_place.len(), 1, "{in_place:#?}");
    for one in match_all(&stalls, &report.stalls) {
        one.check_duration();
        if one.check_cause() && one.stall.cause != "runqueue" {
            one.check_line();
        }
    }
}

/// The slow polls that the program counts itself, in tasks of every kind at once: as many, as long.
#[test]
fn slow_polls_are_those_that_the_program_counts_itself() {
    let Some(_turn) = enter() else { return };
    let (truths, report) = play(Tasks::Newest, &["multi4", "mixed"], &[]);
    let matches = match_all(&truths, &report.stalls);
    let mut excess = Vec::new();
    for one in &matches {
        assert_eq!(one.truths.len(), 1, "a turn is one poll: {one}");
        let (measured, expected) = (one.stall.duration_ns, one.truths[0].duration_ns);
        assert!(measured + 1_000_000 >= expected, "{one}");
        // What the worker waited for a CPU before the poll and after it is no part of the poll.
        excess.push(measured.saturating_sub(expected + one.stall.ledger("runqueue_ns")));
    }
    excess.sort_unstable();
    assert!(excess.len() > 20, "{} slow polls", excess.len());
    assert!(excess[excess.len() / 2] <= 1_000_000, "{excess:?}");
}

/// The slow polls that tokio counts itself, worker by worker. `MIXED_SECONDS` plays for longer.
#[test]
fn slow_polls_are_those_that_tokio_counts_itself() {
    let Some(_turn) = enter() else { return };
    let program = Process::start(Command::new(Tasks::Metered.binary()).args(["multi2", "mixed"]));
    program.wait_for_key("ready");
    let mut watch = Watch::profile(program.pid());
    watch.wait_until_watching();
    program.signal(libc::SIGUSR1);
    let seconds = std::env::var("MIXED_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let round = program.wait_for_json(patience(seconds + 20), |json| json.get("round").cloned());
    assert!(round.is_some(), "it never ended: {}", program.stderr());
    let report = watch.settle_and_stop();
    assert_eq!(report.health.lost_events, 0, "{:#?}", report.health);
    let mut workers = 0;
    for line in program.lines() {
        let Ok(json) = serde_json::from_str::<serde_json::Value>(&line.text) else { continue };
        let number = |key: &str| json.get(key)?.as_u64();
        let Some((tid, slow)) = number("tid").zip(number("slow_polls")) else { continue };
        workers += 1;
        let stalls = report.stalls.iter().filter(|stall| stall.tid == tid && !stall.ongoing);
        let (mut at_most, mut at_least) = (0, 0);
        for stall in stalls {
            at_most += 1;
            // What it waited for a CPU may have been before the poll.
            let poll = stall.duration_ns - stall.ledger("runqueue_ns");
            at_least += u64::from(u128::from(poll) >= crate::gate::threshold().as_nanos());
        }
        let told = format!("worker {tid}: {slow} slow polls, {at_least} to {at_most} stalls\n");
        let _ = std::io::stderr().write_all(told.as_bytes());
        assert!(slow > 5, "{}", line.text);
        assert!((at_least..=at_most).contains(&slow), "{at_least} to {at_most}: {}", line.text);
    }
    assert_eq!(workers, 2, "{}", program.stdout());
}
