//! Blocking pools, threads of other crates and slow files: who blocks a task of tokio, and who never does.

use std::process::Command;

use serde_json::Value;

use crate::fixtures::{self, Folder, Tasks};
use crate::gate::{enter, patience, skip, slowness};
use crate::process::Process;
use crate::report::{PoolStack, Report, Stall};
use crate::stallscope::Watch;
use crate::truth::{Match, match_all};

/// Plays one round of a program under watch.
fn play(command: &mut Command) -> (Process, Report) {
    let program = Process::start(command);
    program.wait_for_key("ready");
    let mut watch = Watch::profile(program.pid());
    watch.wait_until_watching();
    program.signal(libc::SIGUSR1);
    program.wait_for_key("round");
    let report = watch.settle_and_stop();
    assert_eq!(report.health.lost_events, 0, "{:#?}", report.health);
    (program, report)
}

/// One stall for each of the program's own, in its length, cause and line.
fn check(program: &Process, report: &Report, expected: usize, each: impl Fn(&Match<'_>)) {
    let truths = program.truths();
    assert_eq!(truths.len(), expected, "{truths:#?}");
    let matches = match_all(&truths, &report.stalls);
    assert_eq!(matches.len(), expected, "{report:#?}");
    for one in &matches {
        one.check_duration();
        if one.check_cause() && one.stall.cause != "runqueue" {
            one.check_line();
        }
        each(one);
    }
}

/// Two pools of two threads do the work; who waits for them is told whom it waited for.
#[test]
fn a_task_that_waits_for_rayon_says_for_which_of_its_threads() {
    let Some(_turn) = enter() else { return };
    let (program, report) = play(Command::new(fixtures::tokio_crates()).arg("rayon"));
    check(&program, &report, 2, |one| {
        assert_eq!(one.stall.cause, "lock", "{one}");
        let holder = one.stall.stack().holder.as_ref().unwrap_or_else(|| panic!("nobody: {one}"));
        assert!(holder.thread.starts_with("cruncher-"), "{one}");
        assert!(holder.frames.iter().any(|f| f.function.contains("rayon_core::")), "{one}");
    });
}

/// The client's own thread waits for the server; the task waits for that thread.
#[test]
fn a_task_that_waits_for_a_blocking_client_says_for_whom() {
    let Some(_turn) = enter() else { return };
    let (program, report) = play(Command::new(fixtures::tokio_crates()).arg("reqwest"));
    check(&program, &report, 1, |one| {
        assert_eq!(one.stall.cause, "lock", "{one}");
        let holder = one.stall.stack().holder.as_ref().unwrap_or_else(|| panic!("nobody: {one}"));
        assert!(holder.thread.starts_with("reqwest-"), "{one}");
    });
}

/// Whoever provides a file system in user space may be slow.
#[test]
fn a_slow_file_is_named() {
    let Some(_turn) = enter() else { return };
    if !std::path::Path::new("/dev/fuse").exists() {
        return skip("no /dev/fuse here");
    }
    let folder = Folder::new("fuse");
    let file = folder.path().join("file");
    let mut command = Command::new(fixtures::c("slow_fuse"));
    command.arg(folder.path()).arg("80").arg(Tasks::Newest.binary());
    command.args(["multi4", "slow_file"]).env("SLOW_FILE", &file);
    let (program, report) = play(&mut command);
    check(&program, &report, 1, |one| {
        let slept = one.stall.syscalls.first().unwrap_or_else(|| panic!("no system call: {one}"));
        assert_eq!(slept.name, "read", "{one}");
        assert_eq!(slept.resource, Some(format!("{} on fuse", file.display())), "{one}");
    });
}

/// All 512 threads wait for a 513th.
#[test]
fn a_blocking_pool_that_waits_for_itself_is_full_and_says_where() {
    let Some(_turn) = enter() else { return };
    let mut command = Command::new(Tasks::Newest.binary());
    let (program, report) = play(command.args(["multi4", "pool"]));
    let said = |key: &str| -> u64 {
        let find = |json: &Value| json.get(key)?.as_u64();
        program.wait_for_json(patience(1), find).unwrap_or_else(|| panic!("no {key}"))
    };
    let saturated = said("saturated_ns");
    let short = |stall: &Stall| stall.duration_ns < saturated / 4;
    assert!(report.stalls.iter().all(short), "the workers are free: {report:#?}");
    let [pool] = &report.pools[..] else { panic!("{:#?}", report.pools) };
    assert_eq!(pool.kind, "tokio-blocking");
    let counted = (pool.threads, pool.busy_max, pool.limit, pool.limit_inferred);
    assert_eq!(counted, (said("threads"), 512, Some(512), true), "{pool:#?}");
    // It is looked at five times a second.
    let slack = 400_000_000 * u64::from(slowness());
    assert!(pool.saturated_ns.abs_diff(saturated) < slack, "{saturated} ns: {pool:#?}");
    assert_eq!(pool.saturations, 1, "{pool:#?}");
    let line = said("line");
    let at = |stack: &&PoolStack| {
        stack.frames.iter().any(|f| f.function.ends_with("pool::upload") && f.line == Some(line))
    };
    let there: u64 = pool.stacks.iter().filter(at).map(|stack| stack.threads).sum();
    assert!(there > 256, "{there} threads at line {line}: {pool:#?}");
}

/// What was ready meanwhile is late, but blocks nobody.
#[test]
fn who_waits_for_a_blocked_worker_is_never_blamed() {
    let Some(_turn) = enter() else { return };
    for kind in ["multi1", "multi4", "current"] {
        let mut command = Command::new(Tasks::Newest.binary());
        let (program, report) = play(command.args([kind, "starved"]));
        check(&program, &report, 2, |one| {
            let task = one.stall.task.as_ref().unwrap_or_else(|| panic!("no task: {one}"));
            let function = &one.truths[0].endpoint;
            assert_eq!(task.name, format!("tokio_tasks::starved::{function}::{{async}}"), "{one}");
        });
        let victim = |stall: &Stall| {
            ["answering", "queued"].iter().any(|name| format!("{stall:?}").contains(name))
        };
        let blamed = report.stalls.iter().filter(|stall| stall.cause != "runqueue");
        assert!(blamed.clone().all(|stall| !victim(stall)), "{report:#?}");
        // They were kept waiting indeed.
        let late = |json: &Value| json.get("late_ns")?.as_u64().filter(|&ns| ns > 40_000_000);
        assert!(program.wait_for_json(patience(1), late).is_some(), "{}", program.stdout());
    }
}
