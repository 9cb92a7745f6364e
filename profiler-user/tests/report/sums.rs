//! All formats agree on how long it was.

use proptest::prelude::*;
use stallscope::aggregate::{Aggregate, StalledTime};
use stallscope::blame::Stall;
use stallscope::report::Format;
use stallscope::stalls::{Cause, Ledger};
use stallscope::symbolize::FrameKind;

use crate::samples::{bare, frame, session, stack, summary};
use crate::{options, write};

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
            let text = write(format, &options(), std::slice::from_ref(&stall));
            prop_assert!(!text.is_empty() || stall.duration_ns < 500);
        }
    }
}
