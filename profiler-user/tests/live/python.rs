//! CPython, every version there is: the line, the task and the holder of the interpreter's lock are
//! those that the program itself knows.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;

use crate::fixtures::{Folder, script};
use crate::gate::{enter, has_programs, patience, skip, slowness};
use crate::process::Process;
use crate::pythons::{Python, pythons};
use crate::report::{PoolStack, Report, Stall};
use crate::runtimes::child_of;
use crate::stallscope::{Watch, command};
use crate::truth::{Truth, match_all};

/// Whether it is one of the versions that everything is promised for, and not the system's own build of it.
fn is_in_table(python: &Python) -> bool {
    matches!(python.minor(), 11 | 13..=15)
        && !(python.is_here() && python.program().starts_with("/usr/bin"))
}

/// The interpreters to test; the skip has been printed if there is none.
fn all() -> Vec<Python> {
    let found = pythons();
    if found.is_empty() {
        skip("no python3 here");
    }
    found
}

/// Those whose threads exclude each other. (A free-threaded build can be given by `PYENV_ROOT`.)
pub(crate) fn with_lock() -> Vec<Python> {
    all().into_iter().filter(Python::has_lock).collect()
}

fn functions(stall: &Stall) -> Vec<&str> {
    stall.stack().frames.iter().map(|frame| frame.function.as_str()).collect()
}

#[test]
fn a_blocking_call_is_named_with_its_line_its_task_and_its_callers_on_every_python() {
    let Some(_turn) = enter() else { return };
    for python in all() {
        let (mut command, _folder) = python.run("asyncio_stall.py", &[]);
        let process = Process::start(&mut command);
        process.wait_for_truths(1, patience(20));
        let watch = Watch::profile(process.pid());
        let before = process.truths().len() + 1;
        // One more: the last one's turn may not have ended yet.
        process.wait_for_truths(before + 3, patience(20));
        let report = watch.stop();
        let truths: Vec<Truth> = process.truths().split_off(before).into_iter().take(2).collect();
        let from = truths[0].start_unix_ns - 50_000_000;
        let to = truths[1].start_unix_ns + truths[1].duration_ns;
        let inside: Vec<Stall> =
            report.stalls.into_iter().filter(|s| (from..to).contains(&s.start_unix_ns)).collect();
        for one in match_all(&truths, &inside) {
            one.check_time_of_cause();
            one.check_cause();
            one.check_line();
            assert_eq!(one.stall.runtime, "asyncio", "{python:?}");
            let task = one.stall.task.as_ref().unwrap_or_else(|| panic!("{python:?}: no task"));
            assert_eq!(task.name, "order-7", "{python:?}");
            assert_eq!(task.chain, ["get_order", "load_order"], "{python:?}");
            check_order(&python, one.stall);
        }
    }
}

/// Callers stand in the order of their calls, native and Python ones in one stack, and the
/// interpreter's own loop is gone.
fn check_order(python: &Python, stall: &Stall) {
    let functions = functions(stall);
    let mut from = 0;
    for expected in
        ["<module>", "_run_once", "get_order", "load_order", "<lambda>", "wait_for_upstream"]
    {
        let is_it = |name: &&str| *name == expected || name.ends_with(&format!(".{expected}"));
        let found = functions[from..].iter().position(is_it);
        from += found.unwrap_or_else(|| panic!("{python:?}: no {expected} in {functions:#?}")) + 1;
    }
    // What `time.sleep` calls, by version.
    let sleeps = |name: &&str| name.contains("nanosleep") || name.contains("select");
    assert!(functions[from..].iter().any(sleeps), "{functions:#?}");
    let eval = functions.iter().any(|name| name.starts_with("_PyEval_EvalFrameDefault"));
    assert!(!eval, "{python:?}: the interpreter's loop is shown: {functions:#?}");
}

/// What `generated.py` knows of one of its programs.
struct Known {
    file: String,
    line: u64,
    start: u64,
    end: u64,
}

fn known(truth: &Value) -> Known {
    let number = |key: &str| truth[key].as_u64().expect("a number");
    let start = number("start_unix_ns");
    Known {
        file: truth["file"].as_str().expect("a file").to_owned(),
        line: number("line"),
        start,
        end: start + number("duration_ns"),
    }
}

/// Runs generated programs under watch; gives what they know and what was reported.
fn watch_generated(python: &Python, count: &str, seconds: &str) -> (Vec<Known>, Report) {
    let (mut command, _folder) = python.run("generated.py", &[count, seconds, "7"]);
    let process = Process::start(&mut command);
    process.wait_for_key("ready");
    let watch = Watch::profile_with(process.pid(), &["--threshold", "3ms"]);
    process.signal(libc::SIGUSR1);
    let truths = process
        .wait_for_json(patience(60), |json| json.get("truths").cloned())
        .unwrap_or_else(|| panic!("{python:?}: {}{}", process.stdout(), process.stderr()));
    let report = watch.stop();
    (truths.as_array().expect("a list").iter().map(known).collect(), report)
}

#[test]
fn two_hundred_generated_programs_are_blamed_at_the_line_they_know_themselves() {
    let Some(_turn) = enter() else { return };
    for python in all() {
        let (programs, report) = watch_generated(&python, "200", "0.005");
        assert_eq!(programs.len(), 200);
        let mut named = 0;
        for stall in report.stalls.iter().filter(|s| !s.ongoing && s.cause == "syscall") {
            // The turn of a program holds its blocking call, and nothing else that sleeps.
            let end = stall.start_unix_ns + stall.duration_ns;
            let inside: Vec<_> =
                programs.iter().filter(|p| stall.start_unix_ns < p.end && p.start < end).collect();
            let [program] = inside[..] else { continue };
            let blocker = stall.blocker.as_ref().unwrap_or_else(|| panic!("{stall:#?}"));
            if blocker.function == "python code that is gone" {
                // Of `exec`, freed before it was read: nobody is blamed instead.
                continue;
            }
            assert_eq!(
                (blocker.file.as_deref(), blocker.line),
                (Some(program.file.as_str()), Some(program.line)),
                "{python:?}: {blocker:?}\n{:#?}",
                functions(stall)
            );
            named += 1;
        }
        // A machine that starves the program makes stalls of another cause.
        assert!(named >= 150, "{python:?}: {named} of 200 programs were seen to block");
    }
}

/// Ten thousand short stalls, each of code that is gone when the next one begins; as many on each
/// version with `STALLSCOPE_ROUNDS=10000`.
#[test]
fn code_that_is_made_and_freed_in_a_loop_never_has_a_wrong_name() {
    let Some(_turn) = enter() else { return };
    let rounds = std::env::var("STALLSCOPE_ROUNDS").ok();
    for python in all() {
        let many = is_in_table(&python);
        let count = if many { rounds.as_deref().unwrap_or("2500") } else { "200" };
        let (mut command, _folder) = python.run("exec_loop.py", &[count, "0.0005"]);
        let process = Process::start(&mut command);
        process.wait_for_key("ready");
        let watch = Watch::profile_with(process.pid(), &["--threshold", "300us"]);
        process.signal(libc::SIGUSR1);
        let truths = process
            .wait_for_json(patience(60), |json| json.get("truths").cloned())
            .unwrap_or_else(|| panic!("{python:?}: {}{}", process.stdout(), process.stderr()));
        let report = watch.stop();
        let programs: Vec<Known> = truths.as_array().expect("a list").iter().map(known).collect();
        let (mut named, mut gone, mut stalls) = (0, 0, 0);
        for stall in report.stalls.iter().filter(|s| !s.ongoing && s.cause == "syscall") {
            let end = stall.start_unix_ns + stall.duration_ns;
            let first = programs.partition_point(|program| program.end <= stall.start_unix_ns);
            let last = programs.partition_point(|program| program.start < end);
            let [program] = &programs[first..last.max(first)] else { continue };
            stalls += 1;
            for frame in &stall.stack().frames {
                let generated = frame.file.as_deref().filter(|file| file.starts_with("/made/"));
                if let Some(file) = generated {
                    assert_eq!((file, frame.line), (program.file.as_str(), Some(program.line)));
                    assert_eq!(frame.function, program.file.replace("/made/", "made_"));
                    named += 1;
                }
                gone += u64::from(frame.function == "python code that is gone");
            }
        }
        // What could not be named is counted; other stalls may have had some as well.
        let counted = report.health.losses.get("python_code_gone").copied().unwrap_or(0);
        assert!(counted >= gone, "{python:?}: {counted} of {gone}");
        assert!(named > 0 && stalls * 2 > programs.len(), "{python:?}: {stalls}, {named} named");
        // Each one has the frame, by name or not.
        assert!(named + gone >= stalls as u64, "{python:?}: {stalls}, {named}, {gone}");
    }
}

/// The line of a process's stalls that is blamed most often, with its function.
fn most_blamed(report: &Report) -> Option<(String, Option<u64>)> {
    let mut lines: HashMap<(String, Option<u64>), usize> = HashMap::new();
    for blocker in report.blamed().into_iter().filter_map(|stall| stall.blocker.as_ref()) {
        *lines.entry((blocker.function.clone(), blocker.line)).or_default() += 1;
    }
    lines.into_iter().max_by_key(|(_, count)| *count).map(|(line, _)| line)
}

#[test]
fn a_program_in_namespaces_of_its_own_whose_files_are_gone_is_named_all_the_same() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["unshare"]) {
        return;
    }
    const ALONE: [&str; 5] = ["unshare", "--mount", "--pid", "--fork", "--kill-child"];
    for python in all() {
        let (mut command, folder) = python.run_copy(&ALONE, "asyncio_stall.py");
        let process = Process::start(&mut command);
        let truths = process.wait_for_truths(1, patience(20));
        drop(folder);
        let watch = Watch::profile(child_of(process.pid()));
        let before = process.truths().len();
        process.wait_for_truths(before + 2, patience(20));
        let report = watch.stop();
        let (function, line) = most_blamed(&report).expect("a stall");
        assert_eq!((&*function, line), ("wait_for_upstream", Some(truths[0].line)), "{python:?}");
        let mut tasks = report.stalls.iter().filter_map(|stall| stall.task.as_ref());
        assert!(tasks.any(|task| task.name == "order-7"), "{python:?}: {:#?}", report.stalls);
    }
}

#[test]
fn a_runtime_that_is_loaded_after_the_start_is_recognised() {
    let Some(_turn) = enter() else { return };
    for python in all().into_iter().filter(Python::is_here) {
        let folder = Folder::new("python-run");
        let output = folder.path().join("report.json");
        let mut watched = command(["run", "--duration", "2s", "--format", "json", "--output"]);
        // It goes on after the two seconds, but holds no pipe of ours.
        let silent = r#"exec "$0" "$@" > /dev/null 2>&1"#;
        watched.arg(&output).args(["--", "sh", "-c", silent]).arg(python.program());
        watched.arg(script("python/asyncio_stall.py"));
        let status = Process::start(&mut watched).expect_end(patience(60));
        assert!(status.success(), "{status}");
        let report = Report::read(&std::fs::read_to_string(&output).expect("it was written"));
        // The first ones are of the start: nothing was imported yet.
        let stall = report.blamed().into_iter().next_back().expect("a stall");
        assert_eq!(stall.runtime, "asyncio", "{python:?}");
        assert_eq!(most_blamed(&report).expect("a stall").0, "wait_for_upstream", "{python:?}");
    }
}

#[test]
fn the_collector_is_not_blamed_on_who_allocates() {
    let Some(_turn) = enter() else { return };
    // Without the lock, the collector waits for more than a number of young objects.
    for python in with_lock() {
        let (mut command, _folder) = python.run("collector.py", &[]);
        let process = Process::start(&mut command);
        process.wait_for_key("ready");
        // A pass takes some 10 ms, on a quick machine less.
        let watch = Watch::profile_with(process.pid(), &["--threshold", "3ms"]);
        std::thread::sleep(Duration::from_millis(1500) * slowness());
        let report = watch.stop();
        let passes: Vec<_> =
            report.blamed().into_iter().filter(|s| s.detail.as_deref() == Some("gc")).collect();
        assert!(!passes.is_empty(), "{python:?}: {:#?}", by_cause(&report));
        for stall in passes {
            let blocker = stall.blocker.as_ref().expect("checked before");
            assert_ne!(blocker.function, "allocate", "{python:?}");
        }
    }
}

#[test]
fn a_pool_whose_threads_are_all_busy_is_told_with_the_line_they_are_at() {
    let Some(_turn) = enter() else { return };
    for python in all() {
        let (mut command, _folder) = python.run("pool.py", &["3", "12"]);
        let process = Process::start(&mut command);
        let line = process.wait_for_key("line").as_u64();
        let watch = Watch::profile(process.pid());
        std::thread::sleep(Duration::from_millis(1500) * slowness());
        let report = watch.stop();
        assert!(report.blamed().is_empty(), "{python:?}: the loop itself is free");
        let [pool] = &report.pools[..] else { panic!("{python:?}: {:#?}", report.pools) };
        assert_eq!(pool.kind, "ThreadPoolExecutor");
        assert_eq!(
            (pool.threads, pool.limit, pool.limit_inferred, pool.busy_max),
            (3, Some(3), false, 3),
            "{python:?}: {pool:#?}"
        );
        assert!(pool.saturations > 0 && pool.saturated_ns > 500_000_000, "{pool:#?}");
        assert!(pool.queued_max.is_some_and(|queued| (1..=12).contains(&queued)), "{pool:#?}");
        let at = |stack: &PoolStack| {
            stack.frames.iter().any(|f| f.function == "blocking_call" && f.line == line)
        };
        assert!(pool.stacks.iter().any(at), "{python:?}: {pool:#?}");
    }
}

pub(crate) fn by_cause(report: &Report) -> HashMap<&str, usize> {
    let mut causes = HashMap::new();
    for stall in &report.stalls {
        *causes.entry(stall.cause.as_str()).or_default() += 1;
    }
    causes
}
