//! Targets and profilers that come and go; exit codes.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::fixtures::{Folder, c, start_axum, start_c};
use crate::gate::{enter, has_programs, patience, slowness};
use crate::load::{Load, get_ok};
use crate::process::Process;
use crate::report::{Report, Stall};
use crate::stallscope::{Watch, binary, command, run};
use crate::truth::{Truth, check_all};

/// A profile whose target went away: it ends soon, with what it saw. The report is there, so 0;
/// 4, "the target is gone", is right as well.
pub(crate) fn assert_ended_with_its_target(status: ExitStatus, after: Duration) {
    assert!(matches!(status.code(), Some(0 | 4)), "{status}");
    assert!(after <= patience(10), "it noticed after {after:?}");
}

/// Checks those of the stalls that are these truths.
fn check_part(truths: &[Truth], stalls: &[Stall]) {
    let (Some(first), Some(last)) = (truths.first(), truths.last()) else { panic!("no truths") };
    let window = first.start_unix_ns - 10_000_000..last.start_unix_ns + last.duration_ns;
    let inside: Vec<Stall> = stalls
        .iter()
        .filter(|s| window.contains(&(s.start_unix_ns + s.duration_ns / 2)))
        .cloned()
        .collect();
    check_all(truths, &inside);
}

#[test]
fn a_target_that_exits_ends_the_profile_with_a_report() {
    let Some(_turn) = enter() else { return };
    let seconds = (2 + slowness()).to_string();
    let mut target = start_c("poll_loop", &[&seconds]);
    let watch = Watch::profile(target.pid());
    let before = target.truths().len() + 1;
    let status = target.expect_end(patience(30));
    assert_eq!(status.code(), Some(7), "its own exit code");
    let exited = Instant::now();
    let (status, report) = watch.finish(patience(15));
    assert_ended_with_its_target(status, exited.elapsed());
    let truths = target.truths();
    // The last turn ends with the process, not with a poll.
    check_part(&truths[before..truths.len() - 1], &report.stalls);
}

#[test]
fn a_target_that_execs_is_followed() {
    let Some(_turn) = enter() else { return };
    let seconds = (2 + slowness()).to_string();
    let next = c("poll_loop");
    let target = start_c("exec_later", &[&seconds, next.to_str().expect("UTF-8")]);
    let watch = Watch::profile(target.pid());
    let before = target.truths().len() + 1;
    let named = |endpoint: &str| -> Vec<Truth> {
        target.truths().into_iter().filter(|truth| truth.endpoint == endpoint).collect()
    };
    let deadline = Instant::now() + patience(20);
    while named("poll_loop").len() < 6 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    let report = watch.stop();
    let (old, new) = (named("exec_later"), named("poll_loop"));
    // The turn that exec cut short is nobody's; the first of the new program may be as well.
    check_part(&old[before..old.len() - 1], &report.stalls);
    check_part(&new[1..6], &report.stalls);
}

#[test]
fn a_thread_that_starts_later_is_found() {
    let Some(_turn) = enter() else { return };
    let target = start_c("threads_later", &[]);
    let watch = Watch::profile(target.pid());
    let tid = target.wait_for_key("thread").as_u64().expect("a number");
    // One more than is checked: the turn of the last one may not have ended yet.
    let truths = target.wait_for_truths(7, patience(20));
    let report = watch.stop();
    let one = report.loop_of(u32::try_from(tid).expect("a tid"));
    assert_eq!(one.pid, u64::from(target.pid()));
    // The thread is known by its first park; a slow machine gets one turn more.
    check_part(&truths[1..6], &report.stalls);
    assert!(
        report.loops.iter().all(|one| one.tid == tid),
        "the main thread is no loop: {:#?}",
        report.loops
    );
}

#[test]
fn several_targets_are_kept_apart() {
    let Some(_turn) = enter() else { return };
    let (busy, idle) = (start_c("poll_loop", &[]), start_c("idle_loop", &[]));
    let watch = Watch::profile_with(busy.pid(), &["--pid", &idle.pid().to_string()]);
    let before = busy.truths().len() + 1;
    busy.wait_for_truths(before + 4, patience(10));
    let report = watch.stop();
    check_part(&busy.truths()[before..before + 3], &report.stalls);
    assert!(report.blamed().iter().all(|stall| stall.pid == u64::from(busy.pid())), "{report:#?}");
    assert!(report.loop_of(idle.pid()).turns > 0);
}

#[test]
fn stallscope_killed_at_any_moment_harms_nobody() {
    let Some(_turn) = enter() else { return };
    let mut service = start_axum();
    let load = Load::start(service.address, "/healthy", 4);
    let pid = service.process.pid().to_string();
    let mut random = crate::process::unix_ns() | 1;
    for round in 0..20 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let life = Duration::from_millis(random % 1500) * slowness();
        let mut watch = Watch::start(&["attach", "--pid", &pid, "--format", "json"]);
        std::thread::sleep(life);
        assert!(
            watch.process.is_alive(),
            "round {round}, {life:?}: ended by itself: {}",
            watch.process.stderr()
        );
        watch.process.signal(libc::SIGKILL);
        let status = watch.process.wait(patience(5));
        assert!(
            status.is_some_and(|s| s.signal() == Some(libc::SIGKILL)),
            "round {round}, {life:?}: {status:?}"
        );
        assert!(service.process.is_alive(), "round {round}, {life:?}: the target died");
        assert_eq!(tracer_of(service.process.pid()), 0, "round {round}, {life:?}");
    }
    let (answers, failures) = load.finish();
    assert_eq!(failures, 0, "requests failed, {answers} were answered");
    assert!(answers > 100, "only {answers} answers");
    // Nothing is left behind that would disturb the next one.
    let watch = Watch::profile(service.process.pid());
    get_ok(service.address, "/sleep");
    let truths = service.process.wait_for_truths(1, patience(10));
    let report = watch.settle_and_stop();
    check_all(&truths, &report.stalls);
}

fn tracer_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.and_then(|pid| pid.trim().parse().ok()).expect("a pid")
}

#[test]
fn run_starts_the_target_and_watches_it_from_the_start() {
    let Some(_turn) = enter() else { return };
    let program = c("poll_loop");
    let mut process = Process::start(
        command(["run", "--threshold", "10ms", "--format", "json", "--duration", "1h", "--"])
            .arg(program)
            .arg((1 + slowness()).to_string()),
    );
    process.expect_end(patience(30));
    // The target's own output shares the stream.
    let stdout = process.stdout();
    let own: String = stdout
        .lines()
        .filter(|line| line.contains("\"type\":"))
        .map(|line| format!("{line}\n"))
        .collect();
    let truths: Vec<Truth> = stdout.lines().filter_map(Truth::parse).collect();
    let report = Report::read(&own);
    assert!(truths.len() >= 5, "{stdout}");
    check_part(&truths[1..truths.len() - 1], &report.stalls);
}

#[test]
fn ctrl_c_gives_the_summary_and_code_0() {
    let Some(_turn) = enter() else { return };
    let target = start_c("poll_loop", &[]);
    let pid = target.pid().to_string();
    for subcommand in ["profile", "attach"] {
        let mut arguments = vec![subcommand, "--pid", &pid, "--format", "text"];
        if subcommand == "profile" {
            arguments.extend(["--duration", "1h"]);
        }
        let mut watch = Watch::start(&arguments);
        watch.wait_until_attached();
        let before = target.truths().len();
        target.wait_for_truths(before + 3, patience(10));
        watch.process.signal(libc::SIGINT);
        let status = watch.process.expect_end(patience(15));
        assert_eq!(status.code(), Some(0), "{subcommand}: {}", watch.process.stderr());
        let text = watch.process.stdout();
        let line = target.truths()[0].line;
        assert!(
            text.contains(&format!("poll_loop.c:{line}")),
            "{subcommand}: no blocker in {text}"
        );
        assert!(!text.contains('\u{1b}'), "{subcommand}: colours without a terminal: {text}");
    }
}

#[test]
fn a_duration_ends_the_profile_in_time() {
    let Some(_turn) = enter() else { return };
    let target = start_c("poll_loop", &[]);
    let watch = Watch::start(&[
        "profile",
        "--pid",
        &target.pid().to_string(),
        "--duration",
        "2s",
        "--format",
        "json",
    ]);
    let started = Instant::now();
    let (status, report) = watch.finish(patience(20));
    assert_eq!(status.code(), Some(0));
    let took = started.elapsed();
    assert!(
        (Duration::from_secs(2)..Duration::from_secs(6) * slowness()).contains(&took),
        "{took:?}"
    );
    assert!(report.stalls.len() >= 5, "{report:#?}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let Some(_turn) = enter() else { return };
    let target = start_c("poll_loop", &[]);
    let pid = target.pid().to_string();
    for format in ["json", "text", "folded", "svg"] {
        let mut child = command(["profile", "--pid", &pid, "--duration", "1s", "--format", format])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            !stderr.contains("panicked") && !stderr.contains("Broken pipe"),
            "{format}: {stderr}"
        );
        assert_eq!(output.status.code(), Some(0), "{format}: {stderr}");
    }
}

#[test]
fn every_format_names_the_line() {
    let Some(_turn) = enter() else { return };
    let target = start_c("poll_loop", &[]);
    target.wait_for_truths(1, patience(10));
    let pid = target.pid().to_string();
    let folder = Folder::new("formats");
    let flamegraph = folder.path().join("stalls.svg");
    for format in ["text", "folded", "svg"] {
        let (code, stdout, stderr) = run(&[
            "profile",
            "--pid",
            &pid,
            "--duration",
            "1s",
            "--format",
            format,
            "--flamegraph",
            flamegraph.to_str().expect("UTF-8"),
        ]);
        assert_eq!(code, Some(0), "{format}: {stderr}");
        assert!(stdout.contains("flush_log"), "{format}: {stdout}");
        let drawn = std::fs::read_to_string(&flamegraph).expect("the flamegraph is written");
        assert!(drawn.contains("<svg") && drawn.contains("flush_log"), "{drawn}");
        std::fs::remove_file(&flamegraph).expect("it is there");
    }
}

#[test]
fn loops_lists_what_it_finds() {
    let Some(_turn) = enter() else { return };
    let (busy, idle) = (start_c("poll_loop", &[]), start_c("idle_loop", &[]));
    let (busy_pid, idle_pid) = (busy.pid().to_string(), idle.pid().to_string());
    let (code, stdout, stderr) = run(&[
        "loops",
        "--pid",
        &busy_pid,
        "--pid",
        &idle_pid,
        "--duration",
        "2s",
        "--format",
        "json",
    ]);
    assert_eq!(code, Some(0), "{stderr}");
    let pids: Vec<u64> = stdout
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|json| json["type"] == "loop")
        .filter_map(|json| json["pid"].as_u64())
        .collect();
    for pid in [busy.pid(), idle.pid()] {
        assert!(pids.contains(&u64::from(pid)), "{pid} in {stdout}");
    }
}

#[test]
fn doctor_says_what_works_here() {
    let Some(_turn) = enter() else { return };
    let (code, stdout, stderr) = run(&["doctor"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("procfs");
    assert!(stdout.contains(release.trim()), "the kernel it speaks of: {stdout}");
}

/// A pid that was somebody's and is nobody's now.
fn dead_pid() -> u32 {
    let mut child = Command::new("true").spawn().expect("true starts");
    child.wait().expect("and ends");
    child.id()
}

#[test]
fn a_target_that_is_not_there_is_exit_4() {
    let Some(_turn) = enter() else { return };
    let dead = dead_pid().to_string();
    for pid in [dead.as_str(), "2147483647"] {
        for subcommand in [vec!["attach"], vec!["profile", "--duration", "1s"]] {
            let mut arguments = subcommand.clone();
            arguments.extend(["--pid", pid]);
            let (code, stdout, stderr) = run(&arguments);
            assert_eq!(code, Some(4), "{arguments:?}: {stdout}{stderr}");
            assert!(stderr.contains(pid), "it says which: {stderr}");
        }
    }
    let (code, _, stderr) =
        run(&["profile", "--name", "^no-such-program-anywhere$", "--duration", "1s"]);
    assert_eq!(code, Some(4), "{stderr}");
}

#[test]
fn wrong_usage_is_exit_2() {
    for arguments in [
        vec!["no-such-command"],
        vec!["profile", "--duration", "1s"],
        vec!["profile", "--pid", "1"],
        vec!["profile", "--pid", "one", "--duration", "1s"],
        vec!["profile", "--pid", "-1", "--duration", "1s"],
        vec!["profile", "--pid", "1", "--duration", "banana"],
        vec!["profile", "--pid", "1", "--duration", "1s", "--threshold", "soon"],
        vec!["profile", "--pid", "1", "--duration", "1s", "--format", "jpeg"],
        vec!["profile", "--pid", "1", "--duration", "1s", "--nonsense"],
        vec!["profile", "--name", "(", "--duration", "1s"],
        vec!["run", "--duration", "1s"],
    ] {
        let (code, stdout, stderr) = run(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert!(stdout.is_empty() && !stderr.is_empty(), "{arguments:?}: {stdout}");
    }
}

#[test]
fn without_privileges_the_missing_one_is_named_and_it_is_exit_3() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["setpriv"]) {
        return;
    }
    // The build folder may be closed to others: a copy that is not.
    let folder = Folder::new("unprivileged");
    let copy = folder.path().join("stallscope");
    std::fs::copy(binary(), &copy).expect("copies");
    let target = start_c("idle_loop", &[]);
    let pid = target.pid().to_string();
    for arguments in [
        vec!["attach", "--pid", &pid],
        vec!["profile", "--pid", &pid, "--duration", "1s"],
        vec!["loops", "--pid", &pid],
    ] {
        let mut process = Process::start(
            Command::new("setpriv")
                .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
                .arg(&copy)
                .args(&arguments)
                .args(["--backend", "ebpf"]),
        );
        let status = process.expect_end(patience(15));
        let stderr = process.stderr();
        assert_eq!(status.code(), Some(3), "{arguments:?}: {stderr}");
        assert!(
            ["CAP_BPF", "CAP_SYS_ADMIN", "CAP_PERFMON"].iter().any(|c| stderr.contains(c)),
            "{stderr}"
        );
    }
}
