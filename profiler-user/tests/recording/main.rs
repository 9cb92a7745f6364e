//! Recordings: what goes in comes out, whatever happens to the file.
//!
//! | file | protects |
//! |---|---|
//! | `main.rs` | a recording tells the same story as the session itself |
//! | `damage.rs` | cut, flipped, alien and hostile files: what is intact is read, nothing panics |
//! | `size.rs` | ten busy minutes stay small and are read fast; a bound is kept |

mod damage;
#[path = "../report/samples.rs"]
mod samples;
mod size;
#[path = "../report/totals.rs"]
mod totals;

use stallscope::aggregate::{Ended, Filter, Summary};
use stallscope::blame::Stall;
use stallscope::record::{Checkpoint, Encoder, Reader, Start, Told, replay};
use stallscope::report::{Clock, Format, ReportOptions, create};
use stallscope::stalls::Cause;

use samples::{MS, START, session};
use totals::summary;

pub(crate) fn start() -> Start {
    Start {
        began_unix_ns: START,
        threshold_ns: 10 * MS,
        subject: "4711 (python3)".into(),
        host: "shop".into(),
        kernel: "6.18.0".into(),
        stallscope: "0.1.0".into(),
        ..Start::default()
    }
}

pub(crate) fn options() -> ReportOptions {
    ReportOptions { clock: Clock::Utc, width: 100, start: start(), ..ReportOptions::default() }
}

/// A recording of these stalls, finished.
pub(crate) fn recorded(stalls: &[Stall]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut report = create(Format::Recording, &options());
    for stall in stalls {
        report.stall(&mut out, stall).expect("a vector takes everything");
    }
    report.finish(&mut out, &summary(stalls)).expect("a vector takes everything");
    out
}

pub(crate) fn read(bytes: Vec<u8>, filter: &Filter) -> (Vec<Stall>, Summary) {
    let mut reader = Reader::new(bytes).expect("a recording");
    let mut stalls = Vec::new();
    let tell = |told: Told<'_>| {
        if let Told::Stall(stall) = told {
            stalls.push(stall.clone());
        }
        Ok(())
    };
    let summary = replay(&mut reader, filter, tell).expect("nothing is written");
    (stalls, summary)
}

/// The stalls of a session as a recording tells them: each once, those without an end last.
fn settled(stalls: &[Stall]) -> Vec<Stall> {
    let mut unfinished = stallscope::aggregate::Unfinished::default();
    let mut settled: Vec<Stall> = stalls.iter().flat_map(|s| unfinished.settle(s)).collect();
    settled.extend(unfinished.stalls().cloned());
    settled
}

fn told(format: Format, stalls: &[Stall], summary: &Summary) -> String {
    let mut out = Vec::new();
    let mut report = create(format, &options());
    for stall in stalls {
        report.stall(&mut out, stall).expect("a vector takes everything");
    }
    report.finish(&mut out, summary).expect("a vector takes everything");
    String::from_utf8(out).expect("text")
}

#[test]
fn a_recording_tells_the_same_as_the_session() {
    let stalls = session();
    let (replayed, replayed_summary) = read(recorded(&stalls), &Filter::default());
    assert_eq!(replayed_summary, summary(&stalls));
    for format in [Format::Text, Format::Json, Format::Folded, Format::Svg] {
        let live = told(format, &settled(&stalls), &summary(&stalls));
        let later = told(format, &replayed, &replayed_summary);
        assert!(live == later, "{format:?}:\n{live}\n--- is not\n{later}");
    }
}

#[test]
fn a_recording_keeps_what_json_leaves_out() {
    let mut stall = samples::tokio(0);
    let frame = stall.stacks[0].frames.last_mut().expect("frames");
    frame.named = false;
    frame.user_code = true;
    frame.origin.address = Some(0x1234);
    frame.origin.build_id = Some("c0ffee".into());
    frame.origin.source = Some("let x = 1;".into());
    // As read back: the address is the file's, so it is the same wherever the file is opened.
    let (replayed, _) = read(recorded(&[stall.clone()]), &Filter::default());
    let read = replayed[0].stacks[0].frames.last().expect("frames");
    assert_eq!(read.origin.address, Some(0x1234));
    assert_eq!(read.origin.build_id.as_deref(), Some("c0ffee"));
    assert_eq!(read.origin.source.as_deref(), Some("let x = 1;"));
    assert!(!read.named);
    assert_eq!(Some(read), stall.stacks[0].frames.last());
}

#[test]
fn a_killed_profiler_leaves_what_it_had_written() {
    let stalls = session();
    let mut encoder = Encoder::default();
    let mut bytes = Encoder::head(&start()).expect("encodes");
    for stall in &stalls[..5] {
        encoder.stall(stall, &mut |_| None).expect("encodes");
    }
    let mut at_kill = summary(&stalls[..5]);
    at_kill.blockers.clear();
    at_kill.ended = Ended::Unknown;
    let checkpoint = Checkpoint { at_unix_ns: START + 15_000 * MS, summary: at_kill };
    encoder.checkpoint(&checkpoint).expect("encodes");
    bytes.extend(encoder.block().expect("encodes"));
    let (replayed, summary) = read(bytes, &Filter::default());
    assert_eq!(replayed.len(), 5, "two of them last and never ended");
    assert_eq!(summary.ended, Ended::Unknown);
    assert_eq!(summary.loops.len(), 3, "as of the last checkpoint");
    let warned = summary.health.warnings.iter().any(|text| text.contains("has no end"));
    assert!(warned, "{:?}", summary.health.warnings);
}

#[test]
fn filters_leave_out_what_was_not_asked_for() {
    let bytes = recorded(&session());
    let count = |filter: Filter| read(bytes.clone(), &filter).0.len();
    assert_eq!(count(Filter::default()), 10);
    assert_eq!(count(Filter { causes: vec![Cause::Gil], ..Filter::default() }), 2);
    assert_eq!(count(Filter { min_duration_ns: 1_003 * MS, ..Filter::default() }), 3);
    let focus = regex::Regex::new("JSONEncoder").ok();
    assert_eq!(count(Filter { focus, ..Filter::default() }), 2, "the holder counts");
    let focus = regex::Regex::new("9101").ok();
    assert_eq!(count(Filter { focus, ..Filter::default() }), 2, "the resource counts");
    let since_unix_ns = Some(START + 8_050 * MS);
    assert_eq!(count(Filter { since_unix_ns, ..Filter::default() }), 5, "one lasts since before");
    let until_unix_ns = Some(START + 2_500 * MS);
    assert_eq!(count(Filter { until_unix_ns, ..Filter::default() }), 3);
    let window =
        Filter { since_unix_ns, until_unix_ns: Some(START + 9_100 * MS), ..Filter::default() };
    let (_, summary) = read(bytes, &window);
    assert_eq!(summary.observed_ns, 1_050 * MS);
}

/// The state of the loops is in the recording once a second: a part of it has the turns of that part.
#[test]
fn a_part_of_a_recording_has_the_turns_of_that_part() {
    let mut encoder = Encoder::default();
    let mut bytes = Encoder::head(&start()).expect("encodes");
    let state = |second: u64| {
        let mut state = summary(&[]);
        state.observed_ns = second * 1_000 * MS;
        state.loops.truncate(1);
        let one = &mut state.loops[0];
        one.observed_ns = state.observed_ns;
        one.turns = 100 * second;
        one.busy_ns = 300 * MS * second;
        one.parked_ns = 700 * MS * second;
        // A long turn in the second second, none later.
        one.turn_max_ns = 80 * MS;
        one.turn_histogram = vec![(3_080_192, 99 * second), (81_788_928, u64::from(second > 1))];
        state
    };
    for second in 1..=9 {
        let at_unix_ns = START + second * 1_000 * MS;
        let checkpoint = Checkpoint { at_unix_ns, summary: state(second) };
        encoder.checkpoint(&checkpoint).expect("encodes");
        bytes.extend(encoder.block().expect("encodes"));
    }
    encoder.end(&state(10)).expect("encodes");
    bytes.extend(encoder.block().expect("encodes"));
    let of = |since: Option<u64>, until: Option<u64>| {
        let at = |ms: u64| START + ms * MS;
        let filter = Filter {
            since_unix_ns: since.map(at),
            until_unix_ns: until.map(at),
            ..Filter::default()
        };
        let (_, summary) = read(bytes.clone(), &filter);
        let note = summary.health.warnings.iter().find(|text| text.contains("filtered"));
        (summary.loops[0].clone(), note.cloned().unwrap_or_default())
    };
    let (whole, _) = of(None, None);
    assert_eq!((whole.turns, whole.turn_max_ns), (1_000, 80 * MS));
    let (part, note) = of(Some(3_500), Some(5_500));
    assert_eq!((part.turns, part.busy_ns, part.observed_ns), (300, 900 * MS, 3_000 * MS));
    assert!(part.turn_max_ns < 4 * MS, "the long turn was before: {part:?}");
    assert!(note.contains("from 3.0 s to 6.0 s"), "{note}");
    let (rest, note) = of(Some(3_500), None);
    assert_eq!(rest.turns, 700, "{note}");
    assert!(note.contains("from 3.0 s to 10.0 s"), "{note}");
    let (first, _) = of(None, Some(1_500));
    assert_eq!((first.turns, first.turn_max_ns), (200, 80 * MS));
}

/// What a later version adds must not keep this one from reading the rest.
#[test]
fn unknown_fields_kinds_and_causes_are_tolerated() {
    let later = r#"{"type":"stall","start_unix_ns":1,"duration_ns":30,"ongoing":false,"at_attach":false,
        "pid":1,"tid":1,"thread":"t","runtime":"loom","ledger":{"cpu_ns":10,"quantum_ns":20},
        "cause":"quantum","boundary":"exact","waker":{"tid":7},
        "syscalls":[{"name":"futex2","count":1,"total_ns":1,"max_ns":1,"peer":null}],
        "stacks":[{"cause":"quantum","total_ns":20,"samples":1,"frames":[
            {"function":"f","kind":"wasm","inlined":false,"user_code":true,"column":7}]}]}"#;
    let stall: Stall = serde_json::from_str(later).expect("read in spite of what is new");
    assert_eq!(stall.cause, Cause::Unexplained);
    assert_eq!(stall.ledger.total(), 30, "no time is lost");
    assert_eq!(stall.stacks[0].frames.len(), 1);
    assert_eq!(stall.syscalls[0].name, "futex2");
}
