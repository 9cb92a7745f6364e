//! The formats opened in the programs that they are for. What a machine lacks is skipped, visibly.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use stallscope::record::Start;
use stallscope::report::{Format, ReportOptions};

use crate::samples::{START, session, summary};
use crate::{bytes, folder, options};

/// Whether a program is there; says so if not.
fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

fn skip(reason: &str) {
    assert!(std::env::var_os("STALLSCOPE_NO_SKIP").is_none(), "not to be skipped: {reason}");
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stallscope-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {error}\n{text}");
    text
}

fn described() -> ReportOptions {
    let start =
        Start { began_unix_ns: START, subject: "4711 (python3)".into(), ..Start::default() };
    ReportOptions { start, ..options() }
}

#[test]
fn go_tool_pprof_shows_the_same_time_by_line_and_by_label() {
    if !has("go") {
        return;
    }
    let folder = Folder::new("pprof");
    let file = folder.write("x.pb.gz", &bytes(Format::Pprof, &described(), &session()));
    let pprof = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(["tool", "pprof", "-symbolize=none"]).args(arguments).arg(&file);
        run(command.env("HOME", &folder.0))
    };
    let total: u64 = summary(&session()).blockers.iter().map(|row| row.total_ns).sum();
    let top = pprof(&["-top", "-unit=ms", "-nodefraction=0"]);
    // "Showing nodes accounting for 38811.05ms, 100% of 38811.05ms total"
    let shown = format!("{:.2}ms total", total as f64 / 1e6);
    assert!(top.contains(&shown), "{shown} is not in\n{top}");
    assert!(top.contains("Type: stalled"), "{top}");
    assert!(top.contains("api::password::stretch"), "{top}");
    let lines = pprof(&["-top", "-lines", "-unit=ms", "-nodefraction=0"]);
    assert!(lines.contains("/srv/shop/app/handlers.py:35"), "{lines}");
    let stalls = pprof(&["-top", "-sample_index=stalls"]);
    assert!(stalls.contains("10 total") || stalls.contains("of 10"), "{stalls}");
    let tags = pprof(&["-tags", "-unit=ms"]);
    assert!(tags.contains("cause: Total") && tags.contains("syscall"), "{tags}");
    let of_gil = pprof(&["-top", "-unit=ms", "-tagfocus=cause=gil"]);
    assert!(of_gil.contains("40ms"), "two stalls of 20 ms: {of_gil}");
}

/// Runs the page in headless Chromium and gives what the script of the test found there.
fn in_browser(script: &str, arguments: &[&str]) -> String {
    run(Command::new("node").arg(folder().join("browser").join(script)).args(arguments))
}

#[test]
fn speedscope_opens_its_profile() {
    let Some(page) = speedscope_page() else { return };
    if !has("chromium") || !has("node") {
        return;
    }
    let folder = Folder::new("speedscope");
    let profile = bytes(Format::Speedscope, &described(), &session());
    let file = folder.write("x.speedscope.json", &profile);
    let page = page.to_str().expect("a path in UTF-8");
    let found = in_browser("speedscope.mjs", &[page, file.to_str().expect("a path in UTF-8")]);
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    let title = found["title"].as_str().unwrap_or_default();
    assert!(title.contains("python3 (4713)") || title.contains("Stalls of 4711"), "{found}");
    assert_eq!(found["errors"], serde_json::json!([]), "{found}");
}

/// Where the npm package `speedscope` is unpacked: `STALLSCOPE_SPEEDSCOPE`.
fn speedscope_page() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("STALLSCOPE_SPEEDSCOPE") else {
        skip("STALLSCOPE_SPEEDSCOPE does not say where the npm package speedscope is");
        return None;
    };
    Some(PathBuf::from(folder).join("dist/release/index.html"))
}
