//! Healthy programs: 15 s without a word.
//!
//! A healthy server can still be starved on a machine with few, noisy CPUs. Stalls of cause
//! `runqueue` say just that and are allowed; anything else is a false report.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::fixtures::{start_axum, start_c};
use crate::gate::{enter, has_programs, patience};
use crate::load::get_ok;
use crate::process::Process;
use crate::redis::Redis;
use crate::report::Report;
use crate::runtimes::Nginx;
use crate::stallscope::{Watch, run};

const QUIET: Duration = Duration::from_secs(15);

/// Watches a process for the whole time and wants a loop, and nobody to blame.
fn silence_of(pid: u32, fewest_turns: u64) {
    let watch = Watch::profile(pid);
    std::thread::sleep(QUIET);
    let report = watch.stop();
    assert!(report.blamed().is_empty(), "a healthy program was blamed: {report:#?}");
    let turns: u64 = report.loops.iter().map(|one| one.turns).sum();
    assert!(turns >= fewest_turns, "{turns} turns: {:#?}", report.loops);
}

fn wrk(address: std::net::SocketAddr, path: &str) -> Process {
    let seconds = format!("{}s", QUIET.as_secs() + 60);
    let url = format!("http://{address}{path}");
    Process::start(Command::new("wrk").args(["-t2", "-c20", "-d", &seconds, &url]))
}

#[test]
fn an_idle_loop() {
    let Some(_turn) = enter() else { return };
    let target = start_c("idle_loop", &[]);
    silence_of(target.pid(), 200);
}

#[test]
fn axum_under_wrk() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["wrk"]) {
        return;
    }
    let service = start_axum();
    let mut load = wrk(service.address, "/healthy");
    silence_of(service.process.pid(), 1000);
    assert!(load.is_alive(), "wrk lasted: {}", load.stdout());
    get_ok(service.address, "/healthy");
}

#[test]
fn nginx_under_wrk() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["wrk"]) {
        return;
    }
    let Some(nginx) = Nginx::start() else { return };
    let mut load = wrk(nginx.address, "/");
    silence_of(nginx.worker, 1000);
    assert!(load.is_alive(), "wrk lasted: {}", load.stdout());
    get_ok(nginx.address, "/");
}

#[test]
fn redis_under_its_benchmark() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["redis-benchmark"]) {
        return;
    }
    let Some(mut redis) = Redis::start() else { return };
    let port = redis.address.port().to_string();
    let mut load = Process::start(
        Command::new("redis-benchmark")
            .args(["-p", &port, "-c", "20", "-t", "get,set", "-l", "-q"]),
    );
    silence_of(redis.process.pid(), 1000);
    assert!(load.is_alive(), "redis-benchmark lasted: {}", load.stdout());
    redis.ask(&["PING"]);
}

/// No loop is no failure of the command: an empty report (0), or 4 for "nothing to watch there".
/// Either way it says why it has nothing to say.
#[test]
fn a_process_without_a_loop() {
    let Some(_turn) = enter() else { return };
    let target = start_c("spin_no_loop", &[]);
    let started = Instant::now();
    let (code, stdout, stderr) = run(&[
        "profile",
        "--pid",
        &target.pid().to_string(),
        "--duration",
        "3s",
        "--format",
        "json",
    ]);
    assert!(started.elapsed() < patience(15), "it took {:?}", started.elapsed());
    assert!(stderr.contains("loop"), "no word about the missing loop: {stderr}");
    match code {
        Some(0) => {
            let report = Report::read(&stdout);
            assert!(report.stalls.is_empty() && report.loops.is_empty(), "{report:#?}");
        }
        other => assert_eq!(other, Some(4), "{stderr}"),
    }
}
