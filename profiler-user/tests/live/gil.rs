//! CPython's lock: who waits for it, who has it, and what the holder does meanwhile.

use std::time::Duration;

use crate::gate::{enter, has_programs, slowness};
use crate::process::Process;
use crate::python::{by_cause, with_lock};
use crate::pythons::Python;
use crate::report::{Frame, Stall};
use crate::runtimes::child_of;
use crate::stallscope::Watch;

#[test]
fn who_waits_for_the_lock_is_told_from_who_holds_it() {
    let Some(_turn) = enter() else { return };
    for python in with_lock() {
        // Versions take turns: one of the two kinds of work each.
        let works = [["python"], ["dumps"]][python.minor() as usize % 2];
        for work in works {
            let (mut command, _folder) = python.run("gil_fight.py", &[work]);
            let process = Process::start(&mut command);
            let line = process.wait_for_key("line").as_u64();
            let holder = process.wait_for_key("holder").as_u64();
            let watch = Watch::profile_with(process.pid(), &["--threshold", "2ms"]);
            std::thread::sleep(Duration::from_secs(1) * slowness());
            let report = watch.stop();
            let finished = || report.stalls.iter().filter(|stall| !stall.ongoing);
            // A busy machine may make a longer wait for the CPU of it; the lock was waited for.
            let waits = finished().flat_map(|stall| &stall.stacks).filter(|s| s.cause == "gil");
            let told = waits.filter_map(|stack| stack.holder.as_ref()).any(|one| {
                let at_line = |frame: &Frame| {
                    let file = frame.file.as_deref().unwrap_or_default();
                    file.ends_with("gil_fight.py") && frame.line == line
                };
                Some(one.tid) == holder && one.frames.iter().any(at_line)
            });
            assert!(told, "{python:?} {work}: {:#?} {:#?}", by_cause(&report), report.health);
            for stall in finished().filter(|stall| stall.cause == "gil") {
                let Some(blocker) = &stall.blocker else { continue };
                let file = blocker.file.as_deref().unwrap_or_default();
                assert!(file.ends_with("gil_fight.py"), "{python:?} {work}: {blocker:?}");
                // The generator expression is a function of its own, on the same line.
                assert_eq!(blocker.line, line, "{python:?} {work}: {blocker:?}");
            }
        }
    }
}

/// C code that sleeps without letting go of the lock stops every thread: that is said, with the call.
#[test]
fn a_holder_that_sleeps_with_the_lock_is_told_with_its_call() {
    let Some(_turn) = enter() else { return };
    for python in with_lock().into_iter().filter(|python| [8, 11, 13, 15].contains(&python.minor()))
    {
        let (mut command, _folder) = python.run("gil_fight.py", &["asleep"]);
        let process = Process::start(&mut command);
        let line = process.wait_for_key("line").as_u64();
        let holder = process.wait_for_key("holder").as_u64();
        check_sleeper(&python, process.pid(), line, |tid| Some(tid) == holder);
    }
}

/// Threads of a container know themselves by other ids.
#[test]
fn a_holder_that_sleeps_with_the_lock_is_told_in_a_namespace_of_its_own() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["unshare"]) {
        return;
    }
    let Some(python) = with_lock().pop() else { return };
    let through = ["unshare", "--pid", "--fork", "--kill-child"];
    let (mut command, _folder) = python.run_copy(&through, "gil_fight.py");
    let process = Process::start(command.arg("asleep"));
    let line = process.wait_for_key("line").as_u64();
    let pid = child_of(process.pid());
    check_sleeper(&python, pid, line, |tid| tid != u64::from(pid));
}

/// The holder is the right thread, at its line, with the call that it sleeps in.
fn check_sleeper(python: &Python, pid: u32, line: Option<u64>, is_it: impl Fn(u64) -> bool) {
    let watch = Watch::profile(pid);
    std::thread::sleep(Duration::from_secs(1) * slowness());
    let report = watch.stop();
    let held: Vec<_> = report.stalls.iter().filter(|stall| stall.cause == "gil").collect();
    assert!(!held.is_empty(), "{python:?}: {:#?}", report.stalls);
    let asleep = |stall: &&&Stall| {
        stall.stacks.iter().filter_map(|stack| stack.holder.as_ref()).any(|one| {
            is_it(one.tid)
                && one.asleep_in.as_deref() == Some("clock_nanosleep")
                && one.frames.iter().any(|frame| frame.line == line)
        })
    };
    // The wait may have begun before the sleep did.
    let told: Vec<_> = held.iter().filter(asleep).collect();
    assert!(told.len() * 2 > held.len(), "{python:?}: {held:#?}");
    for stall in told {
        let blocker = stall.blocker.as_ref().unwrap_or_else(|| panic!("{python:?}: {stall:#?}"));
        assert_eq!(blocker.line, line, "{python:?}: {stall:#?}");
        let advice = stall.advice.as_deref().unwrap_or_default();
        assert!(advice.contains("without releasing the GIL"), "{python:?}: {advice}");
    }
}

/// An interpreter beside the main one has a lock of its own, from the first wait on.
#[test]
fn the_lock_of_another_interpreter_is_one_as_well() {
    let Some(_turn) = enter() else { return };
    for python in with_lock().into_iter().filter(|python| python.minor() >= 12) {
        let (mut command, _folder) = python.run("gil_fight.py", &["python", "inside"]);
        let process = Process::start(&mut command);
        let line = process.wait_for_key("line").as_u64();
        let holder = process.wait_for_key("holder").as_u64();
        let watch = Watch::profile_with(process.pid(), &["--threshold", "2ms"]);
        std::thread::sleep(Duration::from_secs(1) * slowness());
        let report = watch.stop();
        let stacks = || report.stalls.iter().flat_map(|stall| &stall.stacks);
        let told = stacks().filter_map(|stack| stack.holder.as_ref()).any(|one| {
            let here = one.frames.iter().any(|frame| frame.line == line);
            Some(one.tid) == holder && here
        });
        assert!(told, "{python:?}: {:#?} {:#?}", by_cause(&report), report.health);
        assert!(stacks().all(|stack| stack.cause != "lock"), "{python:?}: {:#?}", report.stalls);
    }
}
