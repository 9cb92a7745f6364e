//! Streams that end early or hold garbage: the user side may know less, but never panics.

use proptest::prelude::*;
use stallscope::report::Format;
use stallscope::session::RecordedStream;

use crate::{STREAM, recorded, replay, written};

#[test]
fn a_stream_may_end_behind_any_record() {
    let stream = recorded();
    let whole = replay(&stream, &stream.records);
    for end in 0..stream.records.len() {
        let part = replay(&stream, &stream.records[..end]);
        assert!(part.stalls.len() <= whole.stalls.len());
        for (stall, same) in part.stalls.iter().zip(&whole.stalls) {
            assert_eq!(stall.ledger.total(), stall.duration_ns);
            // What came later changes nothing about a stall that has ended.
            assert_eq!(format!("{stall:?}"), format!("{same:?}"));
        }
        written(Format::Text, &part);
        written(Format::Json, &part);
    }
}

#[test]
fn a_record_may_be_missing() {
    let stream = recorded();
    for missing in 0..stream.records.len() {
        let mut records = stream.records.clone();
        records.remove(missing);
        for stall in replay(&stream, &records).stalls {
            assert_eq!(stall.ledger.total(), stall.duration_ns, "without {missing}: {stall:#?}");
        }
    }
}

/// Replays and reports whatever the bytes hold.
fn survive(bytes: &[u8]) {
    let Ok(stream) = RecordedStream::parse(bytes) else { return };
    let replay = replay(&stream, &stream.records);
    for format in Format::ALL {
        written(format, &replay);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_may_be_cut_anywhere(end in 0..STREAM.len()) {
        survive(&STREAM[..end]);
    }

    #[test]
    fn bytes_of_the_file_may_be_wrong(
        flips in prop::collection::vec((0..STREAM.len(), 1..=u8::MAX), 1..64),
    ) {
        let mut bytes = STREAM.clone();
        for (at, flip) in flips {
            bytes[at] ^= flip;
        }
        survive(&bytes);
    }

    /// The lengths stay right, so that the garbage gets as far as it can.
    #[test]
    fn bytes_of_the_records_may_be_wrong(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..=u8::MAX), 1..64),
    ) {
        let mut stream = recorded();
        for (record, at, flip) in flips {
            let record = record.index(stream.records.len());
            let record = &mut stream.records[record];
            let at = at.index(record.len().min(2048));
            record[at] ^= flip;
        }
        let replay = replay(&stream, &stream.records);
        for format in Format::ALL {
            written(format, &replay);
        }
    }
}
