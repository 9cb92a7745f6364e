//! `report` and `flamegraph`: recordings, told again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

use crate::aggregate::{Filter, Summary};
use crate::blame::Stall;
use crate::cli::{ExitCode, FlamegraphConfig, Reading, ReportConfig};
use crate::record::{Reader, Start, Told, replay};
use crate::report::{Format, Grouped, Report, ReportOptions, create};
use crate::symbolize::{Renamer, UserCode};

use super::failure::{Failure, say};

/// `report`.
pub(super) fn report(config: &ReportConfig) -> Result<ExitCode, Failure> {
    let (reader, filter) = open(&config.reading)?;
    let options = options(&config.options, reader.start());
    let report = match config.by {
        Some(by) => Box::new(Grouped::new(by, config.format, &options)),
        None => create(config.format, &options),
    };
    let all = config.by.is_some() || config.format != Format::Text;
    let longest = if all { usize::MAX } else { config.longest };
    let left_out = write(reader, &filter, report, config.output.as_deref(), longest)?;
    if left_out > 0 && !config.options.quiet {
        say(&format!(
            "listed the {longest} longest stalls; {left_out} shorter ones count in the tables \
             (--longest N or -v lists more)"
        ));
    }
    wrote(config.output.as_deref(), config.options.quiet);
    Ok(ExitCode::Done)
}

/// `flamegraph`.
pub(super) fn flamegraph(config: &FlamegraphConfig) -> Result<ExitCode, Failure> {
    let (reader, filter) = open(&config.reading)?;
    let options = options(&ReportOptions::default(), reader.start());
    let report = create(Format::Svg, &options);
    write(reader, &filter, report, config.output.as_deref(), usize::MAX)?;
    wrote(config.output.as_deref(), config.quiet);
    Ok(ExitCode::Done)
}

fn wrote(output: Option<&Path>, quiet: bool) {
    if let Some(path) = output.filter(|_| !quiet) {
        say(&format!("wrote {}", path.display()));
    }
}

/// Opens a recording; times since its beginning become times.
pub(super) fn open(reading: &Reading) -> Result<(Reader, Filter), Failure> {
    let path = &reading.recording;
    let mut reader = Reader::open(path).map_err(|error| {
        Failure::new(ExitCode::Failed, format!("{} can't be read: {error}", path.display()))
    })?;
    if !reading.symbols.is_empty() {
        let renamer = Renamer::new(&reading.symbols, UserCode::default()).map_err(|error| {
            Failure::new(ExitCode::Failed, format!("--symbols can't be read: {error}"))
        })?;
        reader.rename(renamer);
    }
    let began = reader.start().began_unix_ns;
    let filter = Filter {
        since_unix_ns: reading.since.map(|since| since.unix_ns(began)),
        until_unix_ns: reading.until.map(|until| until.unix_ns(began)),
        ..reading.filter.clone()
    };
    Ok((reader, filter))
}

fn options(options: &ReportOptions, start: &Start) -> ReportOptions {
    ReportOptions { threshold_ns: start.threshold_ns, start: start.clone(), ..options.clone() }
}

/// Writes a report of the `longest` stalls; returns how many were left out.
fn write(
    mut reader: Reader,
    filter: &Filter,
    mut report: Box<dyn Report>,
    output: Option<&Path>,
    longest: usize,
) -> Result<usize, Failure> {
    let target: Box<dyn Write> = match output {
        Some(path) => Box::new(File::create(path).map_err(|error| {
            Failure::new(ExitCode::Failed, format!("{} can't be written: {error}", path.display()))
        })?),
        None => Box::new(io::stdout()),
    };
    let mut buffer = BufWriter::with_capacity(1 << 16, target);
    let mut out = Unhurried(&mut buffer);
    let mut kept = Longest::new(longest);
    let told = replay(&mut reader, filter, |told| match told {
        Told::Stall(stall) if longest == usize::MAX => report.stall(&mut out, stall),
        Told::Stall(stall) => {
            kept.offer(stall);
            Ok(())
        }
        Told::Checkpoint(checkpoint) => report.checkpoint(&mut out, checkpoint),
    });
    let left_out = kept.left_out;
    let finish = |summary: Summary| -> io::Result<()> {
        for stall in kept.in_order() {
            report.stall(&mut out, &stall)?;
        }
        report.finish(&mut out, &summary)
    };
    let told = told.and_then(finish);
    match told.and_then(|()| buffer.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(left_out),
    }
}

/// Leaves flushing for the end: reports flush where somebody may wait for a line, and nobody does
/// here.
struct Unhurried<W>(W);

impl<W: Write> Write for Unhurried<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The longest stalls of many.
struct Longest {
    most: usize,
    left_out: usize,
    seen: u64,
    /// The shortest on top.
    heap: BinaryHeap<Reverse<Kept>>,
}

struct Kept {
    duration_ns: u64,
    order: u64,
    stall: Stall,
}

impl Longest {
    fn new(most: usize) -> Self {
        Self { most, left_out: 0, seen: 0, heap: BinaryHeap::new() }
    }

    fn offer(&mut self, stall: &Stall) {
        self.seen += 1;
        if self.heap.len() >= self.most {
            self.left_out += 1;
            match self.heap.peek() {
                Some(Reverse(shortest)) if shortest.duration_ns < stall.duration_ns => {
                    self.heap.pop();
                }
                _ => return,
            }
        }
        let kept = Kept { duration_ns: stall.duration_ns, order: self.seen, stall: stall.clone() };
        self.heap.push(Reverse(kept));
    }

    /// In the order in which they were offered.
    fn in_order(self) -> impl Iterator<Item = Stall> {
        let mut kept: Vec<Kept> = self.heap.into_iter().map(|Reverse(kept)| kept).collect();
        kept.sort_by_key(|kept| kept.order);
        kept.into_iter().map(|kept| kept.stall)
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Kept {}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.duration_ns, Reverse(self.order)).cmp(&(other.duration_ns, Reverse(other.order)))
    }
}
