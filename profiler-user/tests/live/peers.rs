//! A second opinion on Python's frames: py-spy, where it is installed, on the same stuck processes.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::gate::{enter, has_program, patience, skip};
use crate::process::Process;
use crate::pythons::pythons;
use crate::report::{Frame, Stall};
use crate::stallscope::Watch;

/// py-spy by its name, or beside one of the interpreters in `STALLSCOPE_PYTHONS`.
fn py_spy() -> Option<PathBuf> {
    if has_program("py-spy") {
        return Some("py-spy".into());
    }
    let given = std::env::var_os("STALLSCOPE_PYTHONS").unwrap_or_default();
    let found = std::env::split_paths(&given)
        .map(|python| python.with_file_name("py-spy"))
        .find(|path| path.is_file());
    if found.is_none() {
        skip("no py-spy here");
    }
    found
}

/// Function, file and line, root to leaf.
type Place = (String, String, u64);

/// Every thread's frames as py-spy has them: its id and its frames.
fn dump(py_spy: &PathBuf, pid: u32) -> Vec<(u64, Vec<Place>)> {
    let output = Command::new(py_spy).args(["dump", "--json", "--pid", &pid.to_string()]).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let threads: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let place = |frame: &Value| {
        let text = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
        (text("name"), text("filename"), frame["line"].as_u64().unwrap_or(0))
    };
    let thread = |thread: &Value| {
        let frames = thread["frames"].as_array().expect("a list").iter().rev().map(place);
        (thread["os_thread_id"].as_u64().unwrap_or(0), frames.collect())
    };
    threads.as_array().expect("a list").iter().map(thread).collect()
}

/// The interpreter's frames of a stack, root to leaf.
fn places(frames: &[Frame]) -> Vec<Place> {
    let python = frames.iter().filter(|frame| frame.kind == "python");
    python
        .map(|frame| {
            let file = frame.file.clone().unwrap_or_default();
            (frame.function.clone(), file, frame.line.unwrap_or(0))
        })
        .collect()
}

/// Equal but for the class of a function, which older versions do not know.
fn agree(one: &[Place], other: &[Place]) -> bool {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(a, b)| last(&a.0) == last(&b.0) && (&a.1, a.2) == (&b.1, b.2))
}

#[test]
fn frames_are_those_that_py_spy_sees_in_the_same_stuck_process() {
    let Some(_turn) = enter() else { return };
    let Some(py_spy) = py_spy() else { return };
    for python in pythons() {
        let (mut command, _folder) = python.run("stuck.py", &[]);
        let process = Process::start(&mut command);
        let tid = process.wait_for_key("tid").as_u64().expect("a number");
        // Attached while it hangs, so that it is told at once.
        std::thread::sleep(std::time::Duration::from_millis(200));
        let watch = Watch::attach(process.pid());
        let told = |json: &Value| (json["type"] == "stall").then(|| Stall::read(json));
        let stall = watch.process.wait_for_json(patience(20), told);
        let stall = stall.unwrap_or_else(|| panic!("{python:?}: {}", watch.process.stderr()));
        // The pools are looked at a few times a second.
        std::thread::sleep(std::time::Duration::from_millis(800));
        let report = watch.stop();
        let threads = dump(&py_spy, process.pid());
        let of = |tid: u64| threads.iter().find(|thread| thread.0 == tid).map(|thread| &thread.1);
        let (ours, theirs) = (places(&stall.stack().frames), of(tid).expect("the loop's thread"));
        assert!(agree(&ours, theirs), "{python:?}: {ours:#?}\n{theirs:#?}");
        let [pool] = &report.pools[..] else { panic!("{python:?}: {:#?}", report.pools) };
        assert_eq!(pool.busy_max, 2, "{python:?}: {pool:#?}");
        for stack in &pool.stacks {
            let ours = places(&stack.frames);
            // The pool's own frames around the work are left out.
            let same = |theirs: &Vec<Place>| {
                theirs.len() >= ours.len() && agree(&ours, &theirs[theirs.len() - ours.len()..])
            };
            let workers = threads.iter().filter(|thread| thread.0 != tid && same(&thread.1));
            assert_eq!(workers.count(), 2, "{python:?}: {ours:#?}\n{threads:#?}");
            assert!(ours.len() >= 3, "{python:?}: {ours:#?}");
        }
    }
}
