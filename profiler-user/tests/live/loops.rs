//! Python that is not `python app.py` on asyncio: other loops, and a C program around the interpreter.

use std::process::Command;

use crate::fixtures::{Folder, script};
use crate::gate::{enter, has_programs, patience, skip};
use crate::process::Process;
use crate::pythons::with_packages;
use crate::report::Report;
use crate::stallscope::Watch;
use crate::truth::{Truth, match_all};

/// Watches two of the program's stalls and checks their cause, their time and their line.
fn watch(process: &Process) -> Report {
    process.wait_for_truths(1, patience(20));
    let watch = Watch::profile(process.pid());
    let before = process.truths().len() + 1;
    process.wait_for_truths(before + 3, patience(20));
    let mut report = watch.stop();
    let truths: Vec<Truth> = process.truths().split_off(before).into_iter().take(2).collect();
    let from = truths[0].start_unix_ns - 50_000_000;
    let to = truths[1].start_unix_ns + truths[1].duration_ns;
    report.stalls.retain(|stall| (from..to).contains(&stall.start_unix_ns));
    for one in match_all(&truths, &report.stalls) {
        one.check_time_of_cause();
        one.check_cause();
        one.check_line();
    }
    report
}

#[test]
fn loops_that_are_not_asyncios_are_watched_and_get_no_advice_for_asyncio() {
    let Some(_turn) = enter() else { return };
    for (package, runtime, advice) in
        [("trio", "trio", "trio.sleep"), ("twisted", "native", "a timer of the event loop")]
    {
        let Some(python) = with_packages(&[package]).pop() else {
            skip(&format!("no Python with {package} here"));
            continue;
        };
        let (mut command, _folder) = python.run("other_loops.py", &[package]);
        let report = watch(&Process::start(&mut command));
        for stall in report.blamed() {
            assert_eq!(stall.runtime, runtime, "{python:?}");
            let told = stall.advice.as_deref().unwrap_or_default();
            assert!(told.contains(advice), "{python:?}: {told}");
        }
    }
}

#[test]
fn an_interpreter_inside_of_a_c_program_is_found() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["cc", "python3-config"]) {
        return;
    }
    let folder = Folder::new("embedded");
    let program = folder.path().join("embedded");
    let build = format!(
        "cc -O2 -o {} {} $(python3-config --includes --ldflags --embed)",
        program.display(),
        script("c/embedded.c").display()
    );
    if !Command::new("sh").args(["-c", &build]).output().is_ok_and(|o| o.status.success()) {
        skip("no headers of Python here");
        return;
    }
    let mut command = Command::new(&program);
    let report = watch(&Process::start(command.arg(script("python/asyncio_stall.py"))));
    for stall in report.blamed() {
        assert_eq!(stall.runtime, "asyncio");
        let task = stall.task.as_ref().unwrap_or_else(|| panic!("no task: {stall:#?}"));
        assert_eq!(task.name, "order-7");
    }
}
