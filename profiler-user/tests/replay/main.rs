//! The user side as a whole, without root: recorded kernel records in, golden reports out.
//!
//! `events` holds what the kernel side sent about `root/opt/replay/event_loop`, a small program that
//! stalls as it is told; the addresses in it belong to the very binary that lies there. `golden/`
//! holds the reports; `UPDATE_GOLDEN=1 cargo test --test replay` writes them anew, and `record.sh`
//! makes program and recording anew.
//!
//! | file | protects |
//! |---|---|
//! | `main.rs` | the verdicts, the reports, and that every ledger sums up |
//! | `damage.rs` | streams that end early or are garbage: no panic |

mod damage;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use stallscope::aggregate::{Aggregate, Ended, Health, Summary, Unfinished};
use stallscope::blame::Stall;
use stallscope::events::{Event, decode};
use stallscope::report::{Clock, Format, ReportOptions, Sources, create};
use stallscope::session::RecordedStream;
use stallscope::stalls::Cause;

static STREAM: LazyLock<Vec<u8>> =
    LazyLock::new(|| std::fs::read(folder().join("events")).expect("the recording is there"));

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replay")
}

fn recorded() -> RecordedStream {
    RecordedStream::parse(&STREAM).expect("the recording is a stream")
}

/// What the user side made of a stream.
struct Replay {
    stalls: Vec<Stall>,
    summary: Summary,
}

/// Runs records through the user side as the watcher does.
fn replay(stream: &RecordedStream, records: &[Vec<u8>]) -> Replay {
    let mut pipeline = stream.pipeline(&folder().join("root"));
    let mut stalls = Vec::new();
    for record in records {
        let Ok(event) = decode(record) else { continue };
        match &event {
            Event::LoopFound { tid, .. } => stalls.extend(pipeline.proved(*tid)),
            Event::FutexQuestion { capture, .. } => drop(pipeline.futex_use(capture)),
            _ => {}
        }
        stalls.extend(pipeline.event(&event));
    }
    let (mut aggregate, mut unfinished) = (Aggregate::new(), Unfinished::default());
    for stall in &stalls {
        unfinished.settle(stall).iter().for_each(|counted| aggregate.add(counted));
    }
    let health = Health {
        backend: "ebpf",
        kernel: "recorded".to_owned(),
        boundaries: "sys_enter",
        truncated_stacks: pipeline.truncated_stacks,
        unsymbolized_frames: pipeline.symbolizer.counters().unsymbolized_frames,
        ..Health::default()
    };
    let observed_ns = 10_000_000_000;
    let summary = Summary {
        pools: Vec::new(),
        loops: Vec::new(),
        blockers: aggregate.blockers(observed_ns),
        health,
        observed_ns,
        threshold_ns: stream.header.threshold_ns,
        filtered: false,
        ended: Ended::TargetExited { status: "exit status: 0".to_owned() },
    };
    Replay { stalls, summary }
}

fn report(format: Format, replay: &Replay) -> String {
    String::from_utf8(written(format, replay)).expect("this format is text")
}

fn written(format: Format, replay: &Replay) -> Vec<u8> {
    let options = ReportOptions {
        clock: Clock::Utc,
        width: 100,
        verbose: 1,
        sources: Sources::Under(folder().join("root")),
        ..ReportOptions::default()
    };
    let (mut out, mut report) = (Vec::new(), create(format, &options));
    for stall in &replay.stalls {
        report.stall(&mut out, stall).expect("a vector takes everything");
    }
    report.finish(&mut out, &replay.summary).expect("a vector takes everything");
    out
}

fn compare(name: &str, text: &str) {
    let path = folder().join("golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("golden files can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("a golden file; UPDATE_GOLDEN=1 makes it");
    assert!(golden == text, "{name} has changed; it would now be:\n{text}");
}

#[test]
fn reports_of_the_recording_are_as_agreed() {
    let stream = recorded();
    let replay = replay(&stream, &stream.records);
    compare("events.txt", &report(Format::Text, &replay));
    compare("events.jsonl", &report(Format::Json, &replay));
}

#[test]
fn every_ledger_of_the_recording_sums_to_its_duration() {
    let stream = recorded();
    let replay = replay(&stream, &stream.records);
    assert_eq!(replay.stalls.len(), 4);
    for stall in &replay.stalls {
        assert_eq!(stall.ledger.total(), stall.duration_ns, "{stall:#?}");
        assert_eq!(stall.ledger.get(Cause::Unexplained), 0, "{stall:#?}");
        for cause in Cause::ALL {
            let stacks = stall.stacks.iter().filter(|stack| stack.cause == cause);
            let in_stacks: u64 = stacks.map(|stack| stack.total_ns).sum();
            assert!(in_stacks <= stall.ledger.get(cause), "{cause:?}: {stall:#?}");
        }
    }
}

/// What the program was told to do: a long sleep, to compute, many sleeps, a deep one.
#[test]
fn each_stall_of_the_recording_has_its_cause_and_line() {
    let stream = recorded();
    let replay = replay(&stream, &stream.records);
    let source = folder().join("root/opt/replay/event_loop.c");
    let source = std::fs::read_to_string(source).expect("the source is there");
    let line = |of: &str| {
        let at = source.lines().position(|line| line.contains(of)).expect("a line of the program");
        u32::try_from(at + 1).ok()
    };
    let callers = |stall: &Stall| {
        let heaviest = stall.stacks.iter().find(|stack| stack.cause == stall.cause);
        let frames = heaviest.map(|stack| stack.frames.clone()).unwrap_or_default();
        frames.iter().map(|frame| frame.function.to_string()).collect::<Vec<_>>()
    };
    let expected = [
        (Cause::Syscall, "load_config", "call", None),
        (Cause::Cpu, "hash_password", "hash_password", None),
        (Cause::Syscall, "read_rows", "call", None),
        (Cause::Syscall, "walk_tree", "call", Some("stack copy ends here")),
    ];
    for (stall, (cause, caller, blocker, truncated)) in replay.stalls.iter().zip(expected) {
        assert_eq!(stall.cause, cause, "{stall:#?}");
        assert!(callers(stall).iter().any(|function| function == caller), "{stall:#?}");
        let heaviest = stall.stacks.iter().find(|stack| stack.cause == cause);
        assert_eq!(heaviest.and_then(|stack| stack.truncated), truncated, "{stall:#?}");
        let blamed = stall.blocker.as_ref().expect("code is to blame");
        assert_eq!(&*blamed.function, blocker, "{stall:#?}");
        let expected = match cause {
            // Inlined down to the instruction itself.
            Cause::Syscall => line("__asm__ volatile(\"syscall\""),
            _ => line("hash = hash * 33 + i"),
        };
        assert_eq!(blamed.line, expected, "{stall:#?}");
    }
    assert_eq!(replay.stalls[2].syscalls[0].count, 100);
}
