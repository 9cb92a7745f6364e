//! A real session in a recording, also when the profiler is killed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixtures::Folder;
use crate::gate::{enter, patience};
use crate::load::{free_address, get_ok, wait_for_port};
use crate::process::Process;
use crate::redis::Redis;
use crate::stallscope::{Watch, command, run};

/// What was over a second before the kill is in the file; so is what lasted for longer.
#[test]
fn recording_survives_kill_9() {
    let Some(_turn) = enter() else { return };
    let Some(mut redis) = Redis::start() else { return };
    let folder = Folder::new("recording");
    let path = folder.path().join("x.stall");
    let file = path.to_str().expect("a path in UTF-8");
    let pid = redis.process.pid().to_string();
    let mut watch = Watch::start(&["profile", "--pid", &pid, "--duration", "1h", "--output", file]);
    watch.wait_until_attached();
    let (_, took) = redis.ask(&["DEBUG", "SLEEP", "0.3"]);
    // The file is whole at any time: look while it is written.
    std::thread::sleep(Duration::from_millis(1000));
    watch.process.signal(libc::SIGKILL);
    watch.process.expect_end(patience(10));
    let (code, json, stderr) = run(&["report", file, "--format", "json"]);
    assert_eq!(code, Some(0), "{stderr}");
    // The loops are as of the last checkpoint, up to a second before the stalls' end: what holds for
    // a finished report need not hold here.
    let lines: Vec<Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("JSON Lines")).collect();
    let of_type = |name: &'static str| lines.iter().filter(move |line| line["type"] == name);
    let length = |stall: &Value| stall["duration_ns"].as_u64().expect("a duration");
    let stall = of_type("stall").max_by_key(|stall| length(stall)).expect("the sleep");
    let reported = Duration::from_nanos(length(stall));
    assert!(reported <= took + Duration::from_millis(50), "{reported:?} of {took:?}");
    assert!(reported >= Duration::from_millis(299), "{reported:?} of {took:?}");
    let call = &stall["syscalls"][0]["name"];
    assert!(call.as_str().is_some_and(|name| name.ends_with("nanosleep")), "{stall}");
    assert_eq!(of_type("loop").count(), 1, "the loop's statistics come from the last checkpoint");
    assert_eq!(of_type("health").count(), 1);
    let began = Instant::now();
    let (code, text, stderr) = run(&["report", file, "--by", "cause"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(text.contains("syscall") && text.contains("has no end"), "{text}");
    assert!(began.elapsed() < patience(5));
}

/// The bundled demo's shop, and what was recorded while these pages were asked for.
fn record_shop(shop: &Process, address: SocketAddr, paths: &[&str], file: &str) {
    let pid = shop.pid().to_string();
    let mut watch = Watch::start(&["profile", "--pid", &pid, "--duration", "1h", "--output", file]);
    watch.wait_until_attached();
    for path in paths {
        get_ok(address, path);
    }
    std::thread::sleep(Duration::from_millis(400));
    watch.process.signal(libc::SIGINT);
    assert_eq!(watch.process.expect_end(patience(30)).code(), Some(0));
}

/// Between two recordings of the demo, one stall was mended and another one came.
#[test]
fn recordings_of_the_demo_are_compared_and_checked() {
    let Some(_turn) = enter() else { return };
    let address = free_address();
    let port = address.port().to_string();
    let shop = Process::start(&mut command(["demo-service", "--port", &port]));
    wait_for_port(address);
    let folder = Folder::new("compared");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (before, after) = (path("before.stall"), path("after.stall"));
    record_shop(&shop, address, &["/checkout", "/report", "/checkout", "/report"], &before);
    record_shop(&shop, address, &["/report", "/newsletter", "/report", "/newsletter"], &after);
    let (code, text, stderr) = run(&["diff", &before, &after]);
    assert_eq!(code, Some(0), "{stderr}");
    let change = |function: &str| {
        let line = text.lines().find(|line| line.contains(function));
        line.and_then(|line| line.split_whitespace().next()).unwrap_or("").to_owned()
    };
    assert_eq!(change("charge_card"), "gone", "{text}");
    assert_eq!(change("send_newsletter"), "new", "{text}");
    let budget = |function: &str| format!("blocker(\"{function}\")==0");
    let (code, text, _) = run(&["check", &after, "--budget", &budget("charge_card")]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text, _) = run(&["check", &after, "--budget", &budget("send_newsletter")]);
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("BROKEN") && text.contains("handlers.rs"), "{text}");
    let (code, text, _) = run(&["check", &after, "--baseline", &before]);
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("send_newsletter"), "{text}");
    let page = path("after.html");
    let (code, _, stderr) = run(&["report", &after, "--output", &page]);
    assert_eq!(code, Some(0), "{stderr}");
    let page = std::fs::read_to_string(page).expect("written");
    assert!(page.contains("send_newsletter"));
}
