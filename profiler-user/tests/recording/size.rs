//! How large recordings get and how fast they are read.

use std::io::Write as _;
use std::time::{Duration, Instant};

use stallscope::aggregate::Filter;
use stallscope::blame::Stall;
use stallscope::record::{Encoder, Reader, RollingFile};

use crate::samples::{MS, gil, requests, sleeping, tokio};
use crate::totals::summary;
use crate::{read, start};

/// A stall like those of a busy service: one of a few kinds, through one of several handlers, with
/// numbers of its own.
fn stall(number: u64) -> Stall {
    let (at, length) = (number * 20, 12 + number * 7919 % 88);
    let mut stall = match number % 4 {
        0 => requests(at, length),
        1 => tokio(at),
        2 => gil(at),
        _ => sleeping(at, length, false),
    };
    stall.start_unix_ns += number * 104_729 % MS;
    let handler = format!("handler_{}", number / 4 % 50);
    for stack in &mut stall.stacks {
        let middle = stack.frames.len() / 2;
        stack.frames[middle].function = handler.as_str().into();
        stack.frames[middle].line = Some(1 + (number % 300) as u32);
        stack.total_ns -= number * 31 % 9999;
    }
    if let Some(task) = &mut stall.task {
        task.name = format!("Task-{number}");
    }
    stall
}

/// Ten minutes of 50 stalls a second, with a block each half second as the profiler writes them.
fn ten_minutes() -> Vec<u8> {
    let mut encoder = Encoder::default();
    let mut bytes = Encoder::head(&start()).expect("encodes");
    for number in 0..30_000 {
        encoder.stall(&stall(number), &mut |_| None).expect("encodes");
        if number % 25 == 24 {
            bytes.extend(encoder.block().expect("encodes"));
        }
    }
    encoder.end(&summary(&[])).expect("encodes");
    bytes.extend(encoder.block().expect("encodes"));
    bytes
}

#[test]
fn ten_minutes_of_50_stalls_a_second_are_small_and_read_fast() {
    let bytes = ten_minutes();
    assert!(bytes.len() < 20_000_000, "{} bytes", bytes.len());
    let began = Instant::now();
    let (stalls, summary) = read(bytes.clone(), &Filter::default());
    let took = began.elapsed();
    assert_eq!(stalls.len(), 30_000);
    assert_eq!(summary.blockers.iter().map(|row| row.count).sum::<u64>(), 30_000);
    // Under a second when optimised and alone; this is a test's build on a machine that may be busy.
    assert!(took < Duration::from_secs(15), "{} bytes took {took:?}", bytes.len());
}

#[test]
fn a_recording_keeps_within_its_bound_and_drops_the_oldest() {
    let folder = std::env::temp_dir().join(format!("stallscope-rolling-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("x.stall");
    let bound = 1 << 20;
    let mut file = RollingFile::create(&path, start(), bound).expect("created");
    file.write_all(&Encoder::head(&start()).expect("encodes")).expect("written");
    let mut encoder = Encoder::default();
    let (mut largest, mut written) = (0, 0);
    for number in 0..20_000 {
        encoder.stall(&stall(number), &mut |_| None).expect("encodes");
        if number % 5 == 4 {
            file.write_all(&encoder.block().expect("encodes")).expect("written");
            let length = path.metadata().expect("there is always a file").len();
            largest = largest.max(length);
            written += 5;
            // At every moment it is a whole recording.
            if number % 1000 == 4 {
                Reader::open(&path).expect("a recording");
            }
        }
    }
    assert!(largest <= bound, "{largest} bytes");
    assert!(largest > bound / 2, "{largest} bytes: nothing was kept, or nothing had to be dropped");
    let mut reader = Reader::open(&path).expect("a recording");
    let kept = reader.by_ref().count() as u64;
    assert_eq!(kept + reader.start().dropped_stalls, written, "what was dropped is counted");
    assert!(reader.start().dropped_stalls > 0);
    assert_eq!(reader.start().subject, "4711 (python3)");
    let (stalls, summary) = read(std::fs::read(&path).expect("readable"), &Filter::default());
    let last = stalls.last().expect("stalls");
    assert_eq!(last.start_unix_ns, stall(19_999).start_unix_ns, "the newest are kept");
    assert!(summary.health.warnings.iter().any(|text| text.contains("were dropped")));
    std::fs::remove_dir_all(&folder).expect("removed");
}
