//! The commands that read recordings, run as a user runs them.
//!
//! | file | protects |
//! |---|---|
//! | `main.rs` | `report`, `diff`, `check`: what they print and how they end |
//! | `examples.rs` | the examples in `docs/examples` |
//! | `manual.rs` | `--help`, man pages and completions: one definition |

mod examples;
mod manual;
#[path = "../report/samples.rs"]
mod samples;
#[path = "../report/totals.rs"]
mod totals;

use std::path::PathBuf;
use std::process::Command;

use stallscope::blame::Stall;
use stallscope::record::Start;
use stallscope::report::{Format, ReportOptions, create};

use samples::{MS, START, gil, requests, session, sleeping, starved, tokio};

pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stallscope-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    /// A recording of these stalls.
    fn record(&self, name: &str, stalls: &[Stall]) -> String {
        let start = Start {
            began_unix_ns: START,
            threshold_ns: 10 * MS,
            subject: "4711 (python3)".into(),
            ..Start::default()
        };
        let options = ReportOptions { start, ..ReportOptions::default() };
        let mut report = create(Format::Recording, &options);
        let mut bytes = Vec::new();
        for stall in stalls {
            report.stall(&mut bytes, stall).expect("a vector takes everything");
        }
        report.finish(&mut bytes, &totals::summary(stalls)).expect("a vector takes everything");
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Exit code, stdout, stderr.
pub(crate) fn stallscope(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_stallscope"))
        .args(arguments)
        .env("COLUMNS", "120")
        .output()
        .expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn report_lists_the_longest_and_sums_up_all() {
    let folder = Folder::new("longest");
    let file = folder.record("x.stall", &session());
    let (code, text, stderr) = stallscope(&["report", &file, "--longest", "2"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(text.contains("#2  ") && !text.contains("#3  "), "{text}");
    assert!(text.contains("10 stalls, 38.8 s together"), "{text}");
    assert!(stderr.contains("8 shorter ones"), "{stderr}");
    let (_, text, _) = stallscope(&["report", &file, "--cause", "gil"]);
    assert!(text.contains("2 stalls, 40.4 ms together"), "{text}");
    let (_, text, _) = stallscope(&["report", &file, "--since", "8050ms", "--until", "9100ms"]);
    assert!(text.contains("3 stalls"), "one lasts since before: {text}");
}

#[test]
fn groups_share_out_all_of_the_time() {
    let folder = Folder::new("groups");
    let file = folder.record("x.stall", &session());
    for by in ["blocker", "task", "resource", "cause", "loop"] {
        let (code, json, stderr) = stallscope(&["report", &file, "--by", by, "--format", "json"]);
        assert_eq!(code, Some(0), "{stderr}");
        let rows: Vec<serde_json::Value> =
            json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let total: u64 = rows.iter().filter_map(|row| row["total_ns"].as_u64()).sum();
        let expected: u64 = totals::summary(&session()).blockers.iter().map(|r| r.total_ns).sum();
        assert_eq!(total, expected, "{by}: {json}");
        assert_eq!(rows.last().map(|row| row["type"].clone()), Some("health".into()));
    }
    let (_, text, _) = stallscope(&["report", &file, "--by", "task"]);
    assert!(text.contains("Task-42 (handle)") && text.contains("(no task)"), "{text}");
}

#[test]
fn every_format_can_be_written_from_a_recording() {
    let folder = Folder::new("formats");
    let file = folder.record("x.stall", &session());
    for format in Format::ALL {
        let output = folder.path(&format!("out.{}", format.ending()));
        let (code, _, stderr) = stallscope(&["report", &file, "--output", &output]);
        assert_eq!(code, Some(0), "{format:?}: {stderr}");
        assert!(std::fs::metadata(&output).is_ok_and(|file| file.len() > 100), "{format:?}");
    }
    let copy = folder.path("out.stall");
    let (_, ours, _) = stallscope(&["report", &copy, "--format", "json"]);
    let (_, theirs, _) = stallscope(&["report", &file, "--format", "json"]);
    assert_eq!(ours, theirs, "a recording of a recording is one");
    let (code, _, stderr) = stallscope(&["flamegraph", &file, "--cause", "cpu"]);
    assert_eq!(code, Some(0), "{stderr}");
    let svg = std::fs::read_to_string(folder.path("x.svg")).expect("beside the recording");
    assert!(svg.contains("stretch") && !svg.contains("fetch_user"));
}

#[test]
fn files_that_are_no_recordings_are_refused() {
    let folder = Folder::new("refused");
    let other = folder.path("other.stall");
    std::fs::write(&other, "no recording").expect("written");
    let missing = folder.path("missing.stall");
    for (file, reason) in [(&other, "no recording of stallscope"), (&missing, "No such file")] {
        let (code, _, stderr) = stallscope(&["report", file]);
        assert_eq!(code, Some(1));
        assert!(stderr.contains(reason) && stderr.contains(file.as_str()), "{stderr}");
    }
}

/// Half an hour of before and an hour of after are comparable: shares are.
#[test]
fn diff_tells_what_is_new_gone_and_longer() {
    let folder = Folder::new("diff");
    let before = folder.record("before.stall", &[requests(0, 1000), tokio(2000), gil(3000)]);
    let mut moved = tokio(2000);
    if let Some(blocker) = &mut moved.blocker {
        // The same function of the same file, some lines down: the same blocker.
        blocker.line = Some(99);
    }
    let after = [gil(100), gil(200), gil(300), moved, starved(5000), sleeping(7000, 500, false)];
    let after = folder.record("after.stall", &after);
    let (code, text, stderr) = stallscope(&["diff", &before, &after]);
    assert_eq!(code, Some(0), "{stderr}");
    let kind = |what: &str| {
        let line = text.lines().find(|line| line.contains(what));
        line.and_then(|line| line.split_whitespace().next()).map(str::to_owned)
    };
    assert_eq!(kind("fetch_user").as_deref(), Some("gone"), "{text}");
    assert_eq!(kind("settle").as_deref(), Some("new"), "{text}");
    assert_eq!(kind("preempted").as_deref(), Some("new"), "{text}");
    assert_eq!(kind("tick").as_deref(), Some("longer"), "{text}");
    assert_eq!(kind("stretch").as_deref(), Some("same"), "{text}");
    let (_, json, _) = stallscope(&["diff", &before, &after, "--format", "json"]);
    assert_eq!(json.lines().count(), 6, "{json}");
    assert!(json.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    let (code, svg, stderr) = stallscope(&["diff", &before, &after, "--format", "svg"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(svg.contains("settle") && svg.contains("red is more"));
    let (_, text, _) = stallscope(&["diff", &before, &before]);
    assert!(text.contains("3 same") && !text.contains(" new"), "{text}");
}

#[test]
fn check_ends_with_5_if_a_budget_is_broken() {
    let folder = Folder::new("check");
    let file = folder.record("x.stall", &[requests(0, 1000), tokio(2000), gil(3000)]);
    let (code, text, stderr) = stallscope(&[
        "check",
        &file,
        "--budget",
        "p99<50ms",
        "--budget",
        "max<5s",
        "--budget",
        "stalls<=3",
        "--budget",
        "cause.lock<1%",
        "--budget",
        "blocker(\"requests.nothing\")==0",
    ]);
    assert_eq!(code, Some(0), "{text}{stderr}");
    assert!(text.contains("every budget is kept"), "{text}");
    let junit = folder.path("x.xml");
    let (code, text, _) = stallscope(&[
        "check",
        &file,
        "--budget",
        "max<200ms",
        "--budget",
        "stalled<1%",
        "--budget",
        "stalled<2s",
        "--budget",
        "blocker(\"api.get\")==0",
        "--budget",
        "blocker(\"fetch_user\")<1%",
        "--junit",
        &junit,
    ]);
    assert_eq!(code, Some(5), "{text}");
    let broken: Vec<_> = text.lines().filter(|line| line.starts_with("BROKEN")).collect();
    assert_eq!(broken.len(), 4, "{text}");
    assert!(text.contains("loop python3") || text.contains("fetch_user"), "{text}");
    let xml = std::fs::read_to_string(&junit).expect("written");
    assert!(xml.contains("tests=\"5\" failures=\"4\""), "{xml}");
    assert!(xml.contains("name=\"blocker(&quot;api.get&quot;)==0\""), "{xml}");
    let mut reader = quick_xml::Reader::from_str(&xml);
    while reader.read_event().expect("well-formed") != quick_xml::events::Event::Eof {}
    let (code, json, _) =
        stallscope(&["check", &file, "--budget", "stalls==0", "--format", "json"]);
    assert_eq!(code, Some(5));
    assert!(json.contains("\"measured_count\":3") && json.contains("\"kept\":false"), "{json}");
    let (code, _, stderr) = stallscope(&["check", &file, "--budget", "speed>9000"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert_eq!(stallscope(&["check", &file]).0, Some(2), "nothing to check is wrong usage");
}

#[test]
fn check_compares_with_a_baseline() {
    let folder = Folder::new("baseline");
    let before = folder.record("before.stall", &[requests(0, 1000), tokio(2000)]);
    let fixed = folder.record("fixed.stall", &[tokio(2000)]);
    let worse =
        folder.record("worse.stall", &[requests(0, 1000), tokio(2000), sleeping(3000, 900, false)]);
    let (code, text, _) = stallscope(&["check", &fixed, "--baseline", &before]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text, _) =
        stallscope(&["check", &worse, "--baseline", &before, "--regression", "10%"]);
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("syscall in settle") && text.contains("new"), "{text}");
    assert!(!text.contains("in fetch_user"), "what has not changed is not accused: {text}");
    let busier = folder.record("busier.stall", &[requests(0, 1000), tokio(2000), starved(3000)]);
    let (code, text, _) = stallscope(&["check", &busier, "--baseline", &before]);
    assert_eq!(code, Some(0), "a busier machine is not the code's fault: {text}");
    let (code, text, _) =
        stallscope(&["check", &worse, "--baseline", &worse, "--regression", "0%"]);
    assert_eq!(code, Some(0), "nothing is worse than itself: {text}");
}
