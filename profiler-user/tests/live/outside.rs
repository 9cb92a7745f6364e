//! Who kept a process from running, from outside of it: no line of its code is to blame.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::fixtures::{c, start_c};
use crate::gate::{enter, patience};
use crate::group::Group;
use crate::process::Process;
use crate::report::{Report, Stall};
use crate::stallscope::Watch;
use crate::waits::{Running, begin};

/// The longest stall of a process with that cause.
fn longest<'a>(report: &'a Report, running: &Running, cause: &str) -> &'a Stall {
    report
        .stalls
        .iter()
        .filter(|stall| stall.pid == u64::from(running.process.pid()) && stall.cause == cause)
        .max_by_key(|stall| stall.duration_ns)
        .unwrap_or_else(|| panic!("no {cause}: {report:#?}"))
}

/// Nobody's code is blamed, and this is said to be why.
fn check(stall: &Stall, what: &str, who: &str) {
    let outside = stall.outside.as_ref().unwrap_or_else(|| panic!("nobody: {stall:#?}"));
    assert_eq!(outside.what, what, "{stall:#?}");
    assert!(outside.who.contains(who), "{who}: {stall:#?}");
    assert!(stall.blocker.is_none(), "{stall:#?}");
    stall.check_others(&stall.cause);
    let advice = stall.advice.as_deref().unwrap_or_default();
    assert!(advice.starts_with("not your code"), "{stall:#?}");
}

#[test]
fn who_stops_or_starves_a_process_from_outside_is_named_and_no_line_is() {
    let Some(_turn) = enter() else { return };
    // Before their members, so that they are removed after them.
    let quota = Group::of_either("cpu", "cpu.cfs_quota_us", "cpu.max");
    let freezer = Group::of_either("freezer", "freezer.state", "cgroup.freeze");
    let [stopped, traced, frozen, starved, limited] =
        ["idle", "idle", "idle", "hog", "compute"].map(Running::start);
    let asleep = Running::of("causes", "sleep", Duration::from_millis(400));
    if let Some(quota) = &quota {
        limit(quota, &limited);
    }
    if let Some(freezer) = &freezer {
        freezer.add(&frozen.process);
    }
    let pids: Vec<String> = [&traced, &frozen, &starved, &limited, &asleep]
        .map(|one| one.process.pid().to_string())
        .into();
    let more: Vec<&str> = pids.iter().flat_map(|pid| ["--pid", pid]).collect();
    let watch = Watch::profile_with(stopped.process.pid(), &more);

    let pid = stopped.process.pid().to_string();
    let mut shell = Command::new("sh")
        .args(["-c", "kill -STOP $0 && sleep 0.1; kill -CONT $0", &pid])
        .stdin(Stdio::null())
        .spawn()
        .expect("a shell");
    let sender = shell.id();
    let mut tracer = Process::start(Command::new(c("causes")).arg("trace").arg(&pids[0]));
    let tracer_pid = tracer.pid();
    if let Some(freezer) = &freezer {
        freezer.freeze(true);
        std::thread::sleep(Duration::from_millis(100));
        freezer.freeze(false);
    }
    assert!(shell.wait().is_ok_and(|status| status.success()));
    assert!(tracer.expect_end(patience(10)).success(), "{}", tracer.stderr());
    interrupt(&asleep);
    starved.begin();
    starved.wait_until_finished();
    // Its quota is small, so that it waits for the next period for longer than for a busy CPU.
    if quota.is_some() {
        limited.begin();
        limited.wait_until_finished();
    }
    let report = watch.settle_and_stop();

    let stall = longest(&report, &stopped, "stopped");
    check(stall, "SIGSTOP", &format!("pid {sender} (sh)"));
    assert!(stall.ledger("stopped_ns") >= 90_000_000, "{stall:#?}");
    check(longest(&report, &traced, "stopped"), "ptrace", &format!("pid {tracer_pid} (causes)"));
    check(longest(&report, &starved, "runqueue"), "preempted", "cpu-hog");
    // It goes on by another call, and is the same sleep.
    let truth = &asleep.process.truths()[0];
    let stall = report.stalls.iter().find(|stall| truth.is_in(stall)).expect("its stall");
    let [sleep] = &stall.syscalls[..] else { panic!("{stall:#?}") };
    assert_eq!((&*sleep.name, sleep.count), ("clock_nanosleep", 2), "{stall:#?}");
    assert!(stall.ledger("stopped_ns") >= 40_000_000, "{stall:#?}");
    if let Some(freezer) = &freezer {
        let stall = longest(&report, &frozen, "stopped");
        check(stall, "freezer", &format!("cgroup /{}", freezer.name));
        assert!(stall.ledger("stopped_ns") >= 90_000_000, "{stall:#?}");
    }
    if let Some(quota) = &quota {
        check_limited(quota, &report, &limited);
    }
}

/// Stops a process in the middle of its sleep, for a moment.
fn interrupt(asleep: &Running) {
    asleep.begin();
    let stat = format!("/proc/{0}/task/{0}/syscall", asleep.process.pid());
    let deadline = Instant::now() + patience(10);
    // clock_nanosleep
    while !std::fs::read_to_string(&stat).is_ok_and(|text| text.starts_with("230 ")) {
        assert!(Instant::now() < deadline, "it does not sleep");
        std::thread::sleep(Duration::from_millis(5));
    }
    asleep.process.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(50));
    asleep.process.signal(libc::SIGCONT);
    asleep.wait_until_finished();
}

/// It waits for work, and could not do any: stopped since before stallscope attached.
#[test]
fn a_loop_that_was_stopped_where_it_parks_is_not_idle() {
    let Some(_turn) = enter() else { return };
    let mut target = start_c("idle_loop", &[]);
    let stat = format!("/proc/{}/stat", target.pid());
    let is_stopped = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "));
    std::thread::sleep(Duration::from_millis(300));
    target.signal(libc::SIGSTOP);
    while !is_stopped() {
        assert!(target.is_alive(), "{}", target.stderr());
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    let watch = Watch::attach(target.pid());
    let told = watch
        .process
        .wait_for_json(patience(20), |json| (json["type"] == "stall").then(|| Stall::read(json)));
    let told = told.unwrap_or_else(|| panic!("not told: {}", watch.process.stdout()));
    assert!(told.ongoing && told.at_attach, "{told:#?}");
    assert!(told.cause == "stopped" && told.blocker.is_none(), "{told:#?}");
    assert!(told.duration_ns >= 300_000_000, "{told:#?}");
    target.signal(libc::SIGCONT);
    let report = watch.settle_and_stop();
    let over = report.stalls.iter().find(|stall| !stall.ongoing).expect("it goes on");
    assert_eq!(over.cause, "stopped", "{over:#?}");
    assert!(over.duration_ns >= told.duration_ns, "{over:#?}");
}

/// Gives a program 5 ms of every 100 ms.
fn limit(group: &Group, running: &Running) {
    if group.old {
        group.write("cpu.cfs_quota_us", "5000");
    } else {
        group.write("cpu.max", "5000 100000");
    }
    group.add(&running.process);
}

fn check_limited(group: &Group, report: &Report, limited: &Running) {
    let stall = longest(report, limited, "throttled");
    check(stall, "cpu quota", &format!("cgroup /{}, 5ms per 100ms", group.name));
    // 20 ms of computing, 5 ms at a time.
    assert!(stall.ledger("throttled_ns") >= 150_000_000, "{stall:#?}");
}

/// Where the kernel's unified groups have CPU quotas, as in the guests of `cargo xtask kernels`.
#[test]
fn a_quota_of_a_unified_group_is_named_with_its_group() {
    let Some(_turn) = enter() else { return };
    let Some(group) = Group::unified("cpu", "cpu.max") else { return };
    let limited = [Running::start("compute")];
    limit(&group, &limited[0]);
    let watch = begin(&limited);
    limited[0].wait_until_finished();
    let report = watch.settle_and_stop();
    check_limited(&group, &report, &limited[0]);
}
