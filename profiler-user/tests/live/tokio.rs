//! A release-built axum service: every endpoint alone and under twenty clients.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;

use crate::fixtures::{AxumService, Folder, axum_service, start_axum_by};
use crate::gate::{enter, has_programs, patience};
use crate::load::{get_ok, together};
use crate::report::Report;
use crate::stallscope::Watch;
use crate::truth::{Truth, check_all, check_crowd};

/// All kinds of blocking call, shortest queue first.
const ENDPOINTS: [&str; 5] = ["/sleep", "/fifo", "/spin", "/mutex", "/dns"];

/// The service in a mount namespace of its own, whose resolver takes questions and never answers.
struct DeadResolver {
    service: AxumService,
    _silent: UdpSocket,
    _files: Folder,
}

fn start_with_dead_resolver() -> DeadResolver {
    // A loopback address of this process's own, so that runs side by side do not meet.
    let pid = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 9, pid[2], pid[3].clamp(1, 254));
    let silent = UdpSocket::bind((address, 53)).expect("port 53 of a private loopback address");
    let files = Folder::new("resolver");
    let resolver = format!("nameserver {address}\nsearch .\noptions timeout:1 attempts:1\n");
    let resolver = files.write("resolv.conf", &resolver);
    let switch = files.write("nsswitch.conf", "hosts: files dns\n");
    let script = "mount --bind \"$1\" /etc/resolv.conf && mount --bind \"$2\" /etc/nsswitch.conf && exec \"$3\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(resolver)
        .arg(switch)
        .arg(axum_service());
    let service = start_axum_by(&mut command);
    get_ok(service.address, "/healthy");
    DeadResolver { service, _silent: silent, _files: files }
}

/// Watches while `load` runs; gives what the service measured and what was reported.
fn watch_while(load: impl FnOnce(&AxumService), expected: usize) -> Option<(Vec<Truth>, Report)> {
    if !has_programs(&["unshare", "mount"]) {
        return None;
    }
    let target = start_with_dead_resolver();
    let watch = Watch::profile(target.service.process.pid());
    load(&target.service);
    let truths = target.service.process.wait_for_truths(expected, patience(10));
    let report = watch.settle_and_stop();
    assert_eq!(truths.len(), expected, "each request blocked once");
    assert!(
        report.loops.iter().all(|one| ["tokio", "native"].contains(&one.runtime.as_str())),
        "{report:#?}"
    );
    Some((truths, report))
}

/// Three requests one after the other: three stalls of one call each.
fn alone(path: &'static str, syscall: Option<&str>) {
    let Some(_turn) = enter() else { return };
    let three = |service: &AxumService| (0..3).for_each(|_| get_ok(service.address, path));
    let Some((truths, report)) = watch_while(three, 3) else { return };
    let matches = check_all(&truths, &report.stalls);
    assert_eq!(matches.len(), 3, "one request, one stall: {report:#?}");
    for one in matches {
        assert_eq!(one.truths.len(), 1, "{one}");
        if let Some(name) = syscall {
            let slowest =
                one.stall.syscalls.first().unwrap_or_else(|| panic!("no system call: {one}"));
            assert_eq!(slowest.name, name, "{one}");
        }
    }
}

/// Twenty clients at once with one request each: each poll is a turn, so each stall is one request's.
fn crowded(path: &'static str) {
    let Some(_turn) = enter() else { return };
    let twenty = |service: &AxumService| together(service.address, &[path], 20);
    let Some((truths, report)) = watch_while(twenty, 20) else { return };
    check_one_by_one(&truths, &report);
}

fn check_one_by_one(truths: &[Truth], report: &Report) {
    for one in check_crowd(truths, &report.stalls) {
        assert_eq!(one.truths.len(), 1, "one poll, one request: {one}");
        let task = one.stall.task.as_ref().map(|task| &*task.name);
        let seen = one.stall.stacks.iter().any(|stack| stack.cause == one.stall.cause);
        assert!(task.is_some() || !seen, "whose task it is: {one}");
    }
}

#[test]
fn sleep_alone() {
    alone("/sleep", Some("clock_nanosleep"));
}

#[test]
fn fifo_alone() {
    alone("/fifo", Some("read"));
}

#[test]
fn spin_alone() {
    alone("/spin", None);
}

#[test]
fn mutex_alone() {
    alone("/mutex", None);
}

/// The resolver waits in `poll`: a park of event loops, but not of this one.
#[test]
fn dns_alone() {
    alone("/dns", Some("poll"));
}

#[test]
fn sleep_under_twenty_clients() {
    crowded("/sleep");
}

#[test]
fn fifo_under_twenty_clients() {
    crowded("/fifo");
}

#[test]
fn spin_under_twenty_clients() {
    crowded("/spin");
}

#[test]
fn mutex_under_twenty_clients() {
    crowded("/mutex");
}

#[test]
fn dns_under_twenty_clients() {
    crowded("/dns");
}

#[test]
fn all_endpoints_mixed_under_twenty_clients() {
    let Some(_turn) = enter() else { return };
    let mixed = |service: &AxumService| together(service.address, &ENDPOINTS, 20);
    let Some((truths, report)) = watch_while(mixed, 20 * ENDPOINTS.len()) else { return };
    check_one_by_one(&truths, &report);
    for path in ENDPOINTS {
        let endpoint = &path[1..];
        let told = truths.iter().filter(|truth| truth.endpoint == endpoint).count();
        assert_eq!(told, 20, "{endpoint}");
    }
}
