//! The formats opened in the programs that they are for. What a machine lacks is skipped, visibly.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use stallscope::blame::{Part, Stall};
use stallscope::record::Start;
use stallscope::report::{Format, ReportOptions};
use stallscope::stalls::Cause;

use crate::samples::{START, session};
use crate::totals::summary;
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

/// Opens a report as a file in Chromium, uses it, and gives what happened.
fn use_report(name: &str, stalls: &[Stall]) -> Option<serde_json::Value> {
    if !has("chromium") || !has("node") {
        return None;
    }
    let folder = Folder::new(name);
    let page = folder.write("x.html", &bytes(Format::Html, &described(), stalls));
    // Screenshots to look at, where somebody wants to.
    let shots = std::env::var("STALLSCOPE_SCREENSHOTS").unwrap_or_default();
    let shots = if shots.is_empty() { shots } else { format!("{shots}/{name}") };
    if !shots.is_empty() {
        std::fs::create_dir_all(&shots).expect("a folder");
    }
    let found = in_browser("html.mjs", &[page.to_str().expect("a path in UTF-8"), &shots]);
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!(found["errors"], serde_json::json!([]), "{found}");
    assert_eq!(found["requests"], serde_json::json!([]), "it must not load anything: {found}");
    assert_eq!(found["owned"], serde_json::Value::Null, "a name became code: {found}");
    assert_eq!(found["markup"], 0, "a name became markup: {found}");
    assert_eq!(found["title"], "Stalls of 4711 (python3)", "{found}");
    assert_eq!(found["licences"], true, "{found}");
    for done in ["keysMove", "slashSearches", "zoomed"] {
        assert_eq!(found[done], true, "{done}: {found}");
    }
    assert!(found["ledger"].as_str().is_some_and(|text| text.contains('%')), "{found}");
    assert!(found["cells"].as_u64().is_some_and(|n| n > 5), "{found}");
    assert!(found["histograms"].as_u64().is_some_and(|n| n > 0), "{found}");
    assert_eq!(found["theme"], "dark", "{found}");
    Some(found)
}

#[test]
fn the_html_report_can_be_used() {
    let mut stalls = session();
    let part = |total_ns, share, coroutine: Option<&str>, tasks| Part {
        cause: Cause::Syscall,
        coroutine: coroutine.map(Into::into),
        tasks,
        function: "settle".into(),
        file: Some("/srv/shop/app/jobs.py".into()),
        line: Some(18),
        total_ns,
        share,
    };
    let longest = stalls.iter_mut().max_by_key(|stall| stall.duration_ns).expect("some");
    longest.parts =
        vec![part(32_000_000_000, 0.941, Some("nightly"), 14), part(2_000_000_000, 0.059, None, 0)];
    let Some(found) = use_report("html", &stalls) else { return };
    let split = found["split"].as_str().unwrap_or_default();
    let told = ["32.0 s", "94.1 %", "nightly ×14", "settle", "app/jobs.py:18", "5.9 %"];
    assert!(told.iter().all(|part| split.contains(part)), "{split}");
    assert_eq!(found["stalls"], "10", "{found}");
    assert!(found["longest"].as_str().is_some_and(|text| text.contains("34.0 s")), "{found}");
    assert!(found["advice"].as_str().is_some_and(|text| text.contains("asyncio.sleep")), "{found}");
    assert_eq!(found["searched"], "2 of 10", "{found}");
    assert!(found["marked"].as_str().is_some_and(|text| text.contains('%')), "{found}");
}

#[test]
fn the_html_report_of_10_000_stalls_loads_fast() {
    let stalls: Vec<Stall> = (0..10_000)
        .map(|number| {
            let mut stall = match number % 3 {
                0 => crate::samples::requests(number, 12 + number % 90),
                1 => crate::samples::tokio(number),
                _ => crate::samples::sleeping(number, 10 + number % 70, false),
            };
            let handler = format!("handler_{}", number / 3 % 200);
            for stack in &mut stall.stacks {
                let middle = stack.frames.len() / 2;
                stack.frames[middle].function = handler.as_str().into();
            }
            stall
        })
        .collect();
    let Some(found) = use_report("html-large", &stalls) else { return };
    assert_eq!(found["stalls"], "10,000", "{found}");
    let load_ms = found["loadMs"].as_f64().expect("a number");
    assert!(load_ms < 2_000.0, "{load_ms} ms: {found}");
    assert!(found["stallRows"].as_u64().is_some_and(|n| n < 100), "rows in sight only: {found}");
}

#[test]
fn hostile_names_stay_text_in_the_html_report() {
    let evil = "</script><script>window.owned=1</script><img src=x onerror=window.owned=2>";
    let mut stalls: Vec<Stall> = session();
    for stall in &mut stalls {
        stall.thread = evil.into();
        for stack in &mut stall.stacks {
            for frame in &mut stack.frames {
                frame.function = format!("{}{evil}<!--{}", frame.function, '\u{2028}').into();
                frame.file = Some(format!("/tmp/{evil}\"'.py").into());
                frame.origin.source = Some(evil.into());
            }
        }
        if let Some(blocker) = &mut stall.blocker {
            blocker.function = evil.into();
        }
        for call in &mut stall.syscalls {
            call.resource = Some(format!("{evil}]]>&lt;"));
        }
        stall.advice = Some(evil.into());
    }
    use_report("html-hostile", &stalls);
}

/// Where the npm package `speedscope` is unpacked: `STALLSCOPE_SPEEDSCOPE`.
fn speedscope_page() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("STALLSCOPE_SPEEDSCOPE") else {
        skip("STALLSCOPE_SPEEDSCOPE does not say where the npm package speedscope is");
        return None;
    };
    Some(PathBuf::from(folder).join("dist/release/index.html"))
}
