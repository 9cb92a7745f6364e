//! All formats agree on how long it was.

use proptest::prelude::*;
use stallscope::aggregate::{Aggregate, StalledTime};
use stallscope::blame::Stall;
use stallscope::report::Format;
use stallscope::stalls::{Cause, Ledger};
use stallscope::symbolize::FrameKind;

use crate::samples::{bare, frame, session, stack};
use crate::totals::summary;
use crate::{bytes, options, write};

fn folded_micros(text: &str) -> u64 {
    let weight =
        |line: &str| line.rsplit_once(' ').and_then(|(_, weight)| weight.parse::<u64>().ok());
    text.lines().map(|line| weight(line).expect("a weight")).sum()
}

const fn micros(ns: u64) -> u64 {
    (ns + 500) / 1000
}

#[test]
fn formats_agree() {
    let stalls = session();
    let total: u64 = summary(&stalls).blockers.iter().map(|row| row.total_ns).sum();
    assert_eq!(folded_micros(&write(Format::Folded, &options(), &stalls)), micros(total));

    // As other tools read folded stacks: frames between semicolons, then a blank and the weight.
    let folded = write(Format::Folded, &options(), &stalls);
    let mut drawn = Vec::new();
    let mut drawing = inferno::flamegraph::Options::default();
    inferno::flamegraph::from_reader(&mut drawing, folded.as_bytes(), &mut drawn).expect("drawn");
    let drawn = String::from_utf8_lossy(&drawn);
    assert!(drawn.contains(&format!("total_samples=\"{}\"", micros(total))));

    let svg = write(Format::Svg, &options(), &stalls);
    assert!(svg.contains(&format!("total_samples=\"{}\"", micros(total))));

    // In JSON an ongoing stall is superseded by its next report; the stuck one never ended.
    let json = write(Format::Json, &options(), &stalls);
    let mut json_total = 34_000_000_000;
    for line in json.lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if value["type"] == "stall" {
            let ledger = value["ledger"].as_object().expect("an object");
            let sum: u64 = ledger.values().filter_map(serde_json::Value::as_u64).sum();
            assert_eq!(Some(sum), value["duration_ns"].as_u64());
            if value["ongoing"] == false {
                json_total += sum;
            }
        }
    }
    assert_eq!(json_total, total);

    let text = write(Format::Text, &options(), &stalls);
    assert!(text.contains(", 38.8 s together"), "{total}");

    let (stalls_in_pprof, ns) = pprof_totals(&bytes(Format::Pprof, &options(), &stalls));
    assert_eq!((stalls_in_pprof, ns), (10, total));

    let file = json_of(Format::Speedscope, &stalls);
    let profiles = file["profiles"].as_array().expect("profiles");
    let mut speedscope = 0;
    for profile in profiles {
        assert_eq!(profile["unit"], "nanoseconds");
        let weights = numbers(&profile["weights"]);
        assert_eq!(weights.len(), profile["samples"].as_array().expect("samples").len());
        assert_eq!(Some(weights.iter().sum::<f64>() as u64), profile["endValue"].as_u64());
        speedscope += weights.iter().sum::<f64>() as u64;
    }
    assert_eq!(speedscope, total);

    let file = json_of(Format::Firefox, &stalls);
    let threads = file["threads"].as_array().expect("threads");
    assert!(threads.iter().all(|thread| thread["samples"]["weightType"] == "tracing-ms"));
    let ms: f64 = threads.iter().flat_map(|t| numbers(&t["samples"]["weight"])).sum();
    assert!((ms - total as f64 / 1e6).abs() < 0.001, "{ms} ms are not {total} ns");
}

fn json_of(format: Format, stalls: &[Stall]) -> serde_json::Value {
    serde_json::from_str(&write(format, &options(), stalls)).expect("JSON")
}

fn numbers(array: &serde_json::Value) -> Vec<f64> {
    array.as_array().expect("an array").iter().filter_map(serde_json::Value::as_f64).collect()
}

/// As much of `profile.proto` as is needed to add up.
#[derive(Clone, PartialEq, prost::Message)]
struct Pprof {
    #[prost(message, repeated, tag = "2")]
    sample: Vec<PprofSample>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PprofSample {
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

/// Stalls and stalled nanoseconds of a profile.
fn pprof_totals(zipped: &[u8]) -> (u64, u64) {
    use prost::Message as _;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(zipped), &mut bytes)
        .expect("gzip");
    let profile = Pprof::decode(&*bytes).expect("a profile");
    let sum = |at: usize| profile.sample.iter().map(|sample| sample.value[at]).sum::<i64>() as u64;
    (sum(0), sum(1))
}

/// The profiler that opens it shows names, files and lines, not the labels used on the way.
#[test]
fn firefox_frames_have_files_and_lines() {
    let file = json_of(Format::Firefox, &session());
    let thread = file["threads"].as_array().expect("threads").iter().find(|thread| {
        thread["name"].as_str().is_some_and(|name| name.starts_with("tokio-rt-worker"))
    });
    let thread = thread.expect("the worker");
    let strings = thread["stringArray"].as_array().expect("strings");
    assert!(strings.iter().all(|s| !s.as_str().expect("a string").contains('\u{1f}')));
    let text =
        |index: &serde_json::Value| strings[index.as_u64().expect("an index") as usize].clone();
    let funcs = &thread["funcTable"];
    let names: Vec<_> = funcs["name"].as_array().expect("names").iter().map(text).collect();
    let at = names.iter().position(|name| name == "api::password::stretch").expect("the blocker");
    assert_eq!(text(&funcs["fileName"][at]), "/srv/api/src/password.rs");
    assert_eq!(funcs["lineNumber"][at], 41);
    let frame = thread["frameTable"]["func"].as_array().expect("frames").iter();
    let frame = frame.clone().position(|func| func.as_u64() == Some(at as u64)).expect("its frame");
    assert_eq!(thread["frameTable"]["line"][frame], 41);
    assert_eq!(thread["markers"]["length"], 1);
    let marker = &thread["markers"]["data"][0];
    assert_eq!(marker["type"], "Stall");
    // A marker's stack is under `cause`: no field of ours may take that name.
    assert!(marker["cause"]["stack"].is_u64(), "{marker}");
    assert_eq!(text(&marker["stalledBy"]), "cpu");
}

#[test]
fn blockers_come_largest_first_with_shares() {
    let rows = summary(&session()).blockers;
    assert!(rows.is_sorted_by(|a, b| a.total_ns >= b.total_ns));
    let requests = rows.iter().find(|row| row.count == 2 && row.cause == Cause::Syscall);
    let requests = requests.expect("both requests in one row");
    assert_eq!((requests.total_ns, requests.max_ns), (2_006_000_000, 1_004_000_000));
    assert_eq!(requests.what.as_deref(), Some("recvfrom"));
    assert!((requests.share - 2.006 / 45.0).abs() < 1e-9);
    assert!(Aggregate::new().blockers(0).is_empty());
}

#[test]
fn an_ongoing_stall_counts_once() {
    let mut aggregate = Aggregate::new();
    let mut stall = bare(0, &[(Cause::Cpu, 1_000)]);
    stall.ongoing = true;
    aggregate.add(&stall);
    assert_eq!(aggregate.count_of_stalls(), 0);
    aggregate.add_unfinished(&stall);
    assert_eq!((aggregate.count_of_stalls(), aggregate.total_ns()), (1, 1_000));
}

/// Any ledger, with any stacks: fewer, more or other causes than the ledger has.
fn any_stall() -> impl Strategy<Value = Stall> {
    let ledger = proptest::array::uniform9(0_u64..4_000_000_000);
    let stacks = proptest::collection::vec(
        (0_u8..9, 0_u64..6_000_000_000, proptest::collection::vec(".{0,12}", 0..5)),
        0..6,
    );
    (ledger, stacks, ".{0,10}").prop_map(|(ledger, stacks, thread)| {
        let mut stall = bare(0, &[]);
        stall.ledger = Ledger::new(ledger);
        stall.duration_ns = stall.ledger.total();
        stall.cause = stall.ledger.largest();
        stall.thread = thread.into();
        for (cause, ns, names) in stacks {
            let frames = names.iter().enumerate().map(|(i, name)| {
                let kind = if i == 3 { FrameKind::Kernel } else { FrameKind::Native };
                frame(name, None, kind, i == 1)
            });
            stall.stacks.push(stack(Cause::from_raw(cause), ns, 1, frames.collect()));
        }
        stall
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn folded_stacks_sum_to_the_duration(stall in any_stall()) {
        let mut time = StalledTime::default();
        time.add(&stall);
        prop_assert_eq!(time.total_ns(), stall.duration_ns);
        let by_weight: u64 = time.weights().map(|weight| weight.micros).sum();
        prop_assert_eq!(by_weight, micros(stall.duration_ns));
        for weight in time.weights() {
            prop_assert!(weight.path.len() >= 2);
            prop_assert!(weight.path.iter().all(|name| !name.is_empty() && !name.contains([';', '\n'])));
        }
        let text = write(Format::Folded, &options(), std::slice::from_ref(&stall));
        prop_assert_eq!(folded_micros(&text), micros(stall.duration_ns));
    }

    #[test]
    fn any_stall_can_be_written(stall in any_stall()) {
        for format in Format::ALL {
            let bytes = bytes(format, &options(), std::slice::from_ref(&stall));
            prop_assert!(!bytes.is_empty() || stall.duration_ns < 500);
        }
    }
}
