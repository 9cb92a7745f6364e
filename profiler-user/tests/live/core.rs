//! What must work on every kernel, with no more than a loopback and one CPU.

use std::time::{Duration, Instant};

use crate::fixtures::{start_axum, start_c};
use crate::gate::{enter, patience, slowness};
use crate::load::{get, get_ok};
use crate::report::Stall;
use crate::stallscope::Watch;
use crate::truth::{Truth, check_all, check_repeated};

/// Profiles three requests, one after the other, and checks them against what the service measured.
fn requests(path: &str) {
    let Some(_turn) = enter() else { return };
    let service = start_axum();
    get_ok(service.address, "/healthy");
    let watch = Watch::profile(service.process.pid());
    for _ in 0..3 {
        watch.wait_until_idle();
        get_ok(service.address, path);
        // Let the worker park: one that finds the next request at once makes one turn of two.
        std::thread::sleep(Duration::from_millis(50));
    }
    let truths = service.process.wait_for_truths(3, patience(10));
    let report = watch.settle_and_stop();
    let matches = check_all(&truths, &report.stalls);
    assert_eq!(matches.len(), 3, "one request, one stall: {report:#?}");
}

#[test]
fn axum_sleep_is_measured_and_its_line_blamed() {
    requests("/sleep");
}

#[test]
fn axum_spin_is_measured_and_its_line_blamed() {
    requests("/spin");
}

#[test]
fn axum_mutex_is_measured_and_its_line_blamed() {
    requests("/mutex");
}

#[test]
fn poll_loop_has_every_stall_with_line_and_duration() {
    let Some(_turn) = enter() else { return };
    let target = start_c("poll_loop", &[]);
    let watch = Watch::profile(target.pid());
    // From the second on: the first may have begun before we were attached.
    let before = target.truths().len() + 1;
    let truths = target.wait_for_truths(before + 5, patience(10));
    let report = watch.settle_and_stop();
    let last = target.truths().len();
    check_c_stalls(&truths[before..], &report.stalls, last);
    let one = report.loop_of(target.pid());
    assert_eq!(one.runtime, "native");
    assert!(one.turns >= 5, "{one:#?}");
}

/// Each of these truths has its stall; the stalls around them belong to truths left out.
fn check_c_stalls(truths: &[Truth], stalls: &[Stall], all_told: usize) {
    let (Some(first), Some(last)) = (truths.first(), truths.last()) else { panic!("no truths") };
    let inside: Vec<Stall> = stalls
        .iter()
        .filter(|s| {
            s.start_unix_ns + 60_000_000 > first.start_unix_ns
                && s.start_unix_ns < last.start_unix_ns + 1
        })
        .cloned()
        .collect();
    let matches = check_all(truths, &inside);
    assert_eq!(matches.len(), truths.len(), "one stall for one sleep: {inside:#?}");
    assert!(stalls.len() <= all_told + 1, "{} stalls of {all_told} sleeps", stalls.len());
}

#[test]
fn idle_loop_is_silent() {
    let Some(_turn) = enter() else { return };
    let target = start_c("idle_loop", &[]);
    let watch = Watch::profile(target.pid());
    std::thread::sleep(Duration::from_secs(2));
    let report = watch.stop();
    assert!(report.blamed().is_empty(), "{report:#?}");
    assert!(report.loop_of(target.pid()).turns >= 10, "{report:#?}");
}

#[test]
fn exact_boundaries_come_back_after_a_rest() {
    let Some(_turn) = enter() else { return };
    let target = start_c("poll_loop", &[]);
    let nothing = ["--boundaries", "auto", "--overhead-budget", "0.000001%"];
    let watch = Watch::profile_with(target.pid(), &nothing);
    // They are looked at once a second, and rest for four: long enough for two rests.
    std::thread::sleep(Duration::from_secs(9) + Duration::from_secs(1) * (slowness() - 1));
    let warnings = watch.stop().health.warnings;
    let rests = warnings.iter().find_map(|warning| {
        warning.strip_prefix("exact boundaries were switched off ")?.split(' ').next()?.parse().ok()
    });
    assert!(rests.is_some_and(|rests: u32| rests >= 2), "{warnings:?}");
    assert!(!warnings.iter().any(|warning| warning.contains("no longer")), "{warnings:?}");
}

#[test]
fn two_thousand_short_sleeps_are_one_stall() {
    let Some(_turn) = enter() else { return };
    let service = start_axum();
    get_ok(service.address, "/healthy");
    let watch = Watch::profile(service.process.pid());
    watch.wait_until_idle();
    get_ok(service.address, "/many");
    let truths = service.process.wait_for_truths(1, patience(10));
    let report = watch.settle_and_stop();
    let matches = check_repeated(&truths, &report.stalls);
    assert_eq!(matches.len(), 1, "{report:#?}");
    let stall = matches[0].stall;
    let sleeps = stall.syscalls.iter().find(|call| call.name.ends_with("nanosleep"));
    let sleeps = sleeps.unwrap_or_else(|| panic!("no nanosleep: {stall:#?}"));
    // By the kernel's own count: each but those whose timer expired before the thread had left the CPU,
    // which is one of 2,000 now and then, and more on an emulated CPU.
    let slept = service.process.wait_for_key("slept").as_u64().expect("a number");
    assert!((1900..=2000).contains(&slept), "{slept} sleeps of 2,000");
    assert_eq!(sleeps.count, slept, "{sleeps:?}");
    // One line sleeps; a capture for each of the 2,000 would show as as many stacks.
    assert!(stall.stacks.len() <= 16, "{} stacks", stall.stacks.len());
    assert_eq!(report.health.lost_events, 0);
}

/// Attaches to a service that has hung for `before` and wants the line within a second.
#[test]
fn what_is_already_stuck_is_named_within_a_second() {
    let Some(_turn) = enter() else { return };
    let service = start_axum();
    get_ok(service.address, "/healthy");
    let address = service.address;
    // Longer than it hangs before we attach, and than naming it may take.
    let length = 7 + 2 * slowness();
    let request = std::thread::spawn(move || get(address, &format!("/forever?ms={length}000")));
    std::thread::sleep(Duration::from_secs(5));
    let watch = Watch::attach(service.process.pid());
    let (stall, took) = watch
        .process
        .wait_for_json(patience(8), |json| {
            (json["type"] == "stall" && json["at_attach"] == true)
                .then(|| (Stall::read(json), watch.age()))
        })
        .unwrap_or_else(|| {
            panic!("not named: {}{}", watch.process.stdout(), watch.process.stderr())
        });
    // An emulated CPU reads symbols more than ten times slower, and shares its host with others.
    let bound = if slowness() == 1 { 1 } else { 2 * slowness() };
    assert!(took <= Duration::from_secs(1) * bound, "named after {took:?}");
    assert!(stall.ongoing, "{stall:#?}");
    assert_eq!(stall.cause, "syscall", "{stall:#?}");
    let report = watch.stop();
    assert!(matches!(request.join().expect("no panic"), Ok(true)), "the target is unharmed");
    let truth = service.process.wait_for_truths(1, patience(10));
    let blocker = stall.blocker.as_ref().expect("checked on reading");
    assert_eq!(blocker.line, Some(truth[0].line), "{stall:#?}");
    assert!(blocker.file.as_ref().is_some_and(|file| file.ends_with("handlers.rs")), "{stall:#?}");
    assert!(stall.duration_ns <= truth[0].duration_ns, "at least, never more: {stall:#?}");
    assert!(report.stalls.iter().any(|s| s.at_attach), "{report:#?}");
}

#[test]
fn a_five_second_stall_is_reported_while_it_lasts() {
    let Some(_turn) = enter() else { return };
    let service = start_axum();
    get_ok(service.address, "/healthy");
    let mut watch = Watch::attach(service.process.pid());
    watch.wait_until_attached();
    get_ok(service.address, "/forever?ms=5000");
    let truth = service.process.wait_for_truths(1, patience(10)).remove(0);
    let is_final = |json: &serde_json::Value| {
        (json["type"] == "stall" && json["ongoing"] == false).then_some(())
    };
    assert!(
        watch.process.wait_for_json(patience(5), is_final).is_some(),
        "its end: {}",
        watch.process.stdout()
    );
    let arrivals = watch.process.lines();
    let report = watch.stop();
    let mut reported_at = Vec::new();
    for line in arrivals.iter().filter(|line| line.text.contains("\"ongoing\":true")) {
        let stall = Stall::read(&serde_json::from_str(&line.text).expect("JSON Lines"));
        assert!(
            line.arrived_unix_ns < truth.start_unix_ns + truth.duration_ns,
            "while it lasts: {stall:#?}"
        );
        assert!(!stall.at_attach && stall.tid == truth.tid, "{stall:#?}");
        let blocker = stall.blocker.as_ref().expect("checked on reading");
        assert_eq!(blocker.line, Some(truth.line), "{stall:#?}");
        reported_at.push(stall.duration_ns / 1_000_000_000);
    }
    if slowness() == 1 {
        assert_eq!(reported_at, [1, 2, 4], "seconds at which it was reported");
    }
    assert!(!reported_at.is_empty(), "never reported while it lasted");
    assert_eq!(check_all(std::slice::from_ref(&truth), &report.stalls).len(), 1);
}

#[test]
fn a_target_killed_during_a_profile_ends_it_with_a_report() {
    let Some(_turn) = enter() else { return };
    let mut target = start_c("poll_loop", &[]);
    let watch = Watch::profile(target.pid());
    let before = target.truths().len();
    target.wait_for_truths(before + 3, patience(10));
    target.signal(libc::SIGKILL);
    let killed = Instant::now();
    assert!(target.wait(patience(5)).is_some(), "it dies although it is watched");
    let (status, report) = watch.finish(patience(15));
    crate::lifecycle::assert_ended_with_its_target(status, killed.elapsed());
    assert!(report.stalls.len() >= 2, "what was seen until then: {report:#?}");
}
