//! What reports look like, and that all formats tell the same story.
//!
//! `golden/` holds every format of one session; `UPDATE_GOLDEN=1 cargo test --test report` writes
//! it anew. `samples` makes the stalls, `totals` their summary; `sums` checks that the formats agree on
//! durations; `tools` opens them in the programs that they are for; `crowd` is a turn of many tasks.

mod crowd;
mod samples;
mod sums;
mod tools;
mod totals;

use std::io::{self, Write};
use std::path::PathBuf;

use stallscope::aggregate::Ended;
use stallscope::blame::Stall;
use stallscope::report::{Clock, Format, ReportOptions, Sources, create};

use samples::session;
use totals::summary;

fn options() -> ReportOptions {
    ReportOptions {
        clock: Clock::Utc,
        width: 100,
        sources: Sources::Under(folder().join("sources")),
        ..ReportOptions::default()
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/report")
}

fn write(format: Format, options: &ReportOptions, stalls: &[Stall]) -> String {
    String::from_utf8(bytes(format, options, stalls)).expect("this format is text")
}

fn bytes(format: Format, options: &ReportOptions, stalls: &[Stall]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut report = create(format, options);
    for stall in stalls {
        report.stall(&mut out, stall).expect("a vector takes everything");
    }
    report.finish(&mut out, &summary(stalls)).expect("a vector takes everything");
    out
}

/// Formats that are bytes, not text.
const BINARY: [Format; 2] = [Format::Pprof, Format::Recording];

fn compare(name: &str, text: &str) {
    let path = folder().join("golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("golden files can be written");
    }
    let golden =
        std::fs::read_to_string(&path).expect("a golden file; make it with UPDATE_GOLDEN=1");
    assert!(golden == text, "{name} has changed; it would now be:\n{text}");
}

#[test]
fn text_is_as_agreed() {
    compare("session.txt", &write(Format::Text, &options(), &session()));
    let narrow = ReportOptions { width: 80, ..options() };
    compare("narrow.txt", &write(Format::Text, &narrow, &session()));
    let verbose = ReportOptions { verbose: 1, ..options() };
    compare("verbose.txt", &write(Format::Text, &verbose, &session()));
    let quiet = ReportOptions { quiet: true, ..options() };
    compare("quiet.txt", &write(Format::Text, &quiet, &session()));
    let color = ReportOptions { color: true, ..options() };
    compare("color.txt", &write(Format::Text, &color, &session()[..3]));
}

#[test]
fn a_turn_of_many_tasks_is_split_by_task_and_place() {
    compare("crowd.txt", &write(Format::Text, &options(), &[crowd::crowd(0)]));
}

#[test]
fn nothing_found_is_said_clearly() {
    let mut nothing = summary(&[]);
    for one in &mut nothing.loops {
        one.turn_max_ns = 3_200_000;
        one.stalls = 0;
    }
    nothing.health = stallscope::aggregate::Health { boundaries: "sched", ..Default::default() };
    nothing.ended = Ended::TargetExited { status: "exit status 0".into() };
    let mut out = Vec::new();
    create(Format::Text, &options()).finish(&mut out, &nothing).expect("a vector takes everything");
    let text = String::from_utf8(out).expect("text");
    assert!(text.contains("no stall ≥ 10 ms in 15.0 s; longest turn 3.20 ms"), "{text}");
    compare("nothing.txt", &text);
    let mut out = Vec::new();
    create(Format::Svg, &options()).finish(&mut out, &nothing).expect("a vector takes everything");
    assert!(String::from_utf8(out).expect("text").contains("no stall of 10 ms or more in 15.0 s"));
}

#[test]
fn json_is_as_agreed() {
    let text = write(Format::Json, &options(), &session());
    compare("session.jsonl", &text);
    assert!(text.lines().all(|line| line.starts_with("{\"type\":\"")));
    assert!(text.lines().last().is_some_and(|line| line.starts_with("{\"type\":\"health\"")));
}

#[test]
fn folded_is_as_agreed() {
    compare("session.folded", &write(Format::Folded, &options(), &session()));
}

#[test]
fn flame_graph_is_as_agreed() {
    let text = write(Format::Svg, &options(), &session());
    compare("session.svg", &text);
    assert!(text.contains("Stalled time"));
    assert!(text.contains(" ms, "));
}

/// No byte of a name may reach the terminal as a command, in whatever format is shown there.
#[test]
fn terminals_get_no_commands() {
    for verbose in 0..=2 {
        let options = ReportOptions { verbose, ..options() };
        for format in Format::ALL.into_iter().filter(|format| !BINARY.contains(format)) {
            let text = write(format, &options, &session());
            let commands = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            let checked = if format == Format::Html {
                // The rest is our own and the libraries' text.
                let (begin, end) = ("id=\"data\">", "</script>");
                let data = text.split_once(begin).expect("the data").1;
                data.split_once(end).expect("its end").0.to_owned()
            } else if format == Format::Svg {
                // The script of the flame graph is inferno's own and may contain tabs.
                text[text.find("id=\"frames\"").expect("frames")..].replace('\t', "")
            } else {
                text
            };
            // JSON escapes what is a control character and leaves the rest to its reader.
            let allowed = format == Format::Json;
            let found = checked.chars().find(|&c| commands(c) && !(allowed && c == '\u{202e}'));
            assert_eq!(found, None, "{format:?}");
        }
    }
}

#[test]
fn every_line_fits_the_terminal() {
    for width in [80, 100, 160, 200] {
        let text = write(Format::Text, &ReportOptions { width, ..options() }, &session());
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn a_stack_is_shown_once() {
    let text = write(Format::Text, &options(), &session());
    assert_eq!(text.matches("▸ fetch_user").count(), 1);
    assert_eq!(text.matches("▸ settle").count(), 2, "once told, once already stuck: {text}");
    assert!(text.contains("(stack as in #2)"), "{text}");
    // One stall, told three times, has one number.
    assert_eq!(text.matches("#5  ").count(), 3, "{text}");
}

/// A pipe whose reader has gone.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

#[test]
fn a_closed_pipe_is_handed_back() {
    for format in Format::ALL {
        let mut report = create(format, &options());
        let told = report.stall(&mut Closed, &samples::requests(0, 1000));
        let finished = report.finish(&mut Closed, &summary(&session()));
        let error = told.and(finished).expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{format:?}");
    }
}
