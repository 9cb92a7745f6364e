//! A real session in a recording, also when the profiler is killed.

use std::time::{Duration, Instant};

use crate::fixtures::Folder;
use crate::gate::{enter, patience};
use crate::redis::Redis;
use crate::report::Report;
use crate::stallscope::{Watch, run};

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
    let report = Report::read(&json);
    let stall = report.stalls.iter().max_by_key(|stall| stall.duration_ns).expect("the sleep");
    let reported = Duration::from_nanos(stall.duration_ns);
    assert!(reported <= took + Duration::from_millis(20), "{reported:?} of {took:?}");
    assert!(reported >= Duration::from_millis(299), "{reported:?} of {took:?}");
    assert!(stall.syscalls[0].name.ends_with("nanosleep"), "{stall:#?}");
    assert!(!report.loops.is_empty(), "the loop's statistics come from the last checkpoint");
    let began = Instant::now();
    let (code, text, stderr) = run(&["report", file, "--by", "cause"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(text.contains("syscall") && text.contains("has no end"), "{text}");
    assert!(began.elapsed() < patience(5));
}
