//! Streams of kernel records in a file: what a replay needs to run the user side without root.
//!
//! For developers. `STALLSCOPE_RECORD_EVENTS=FILE` makes a run write one; tests read it. It holds
//! what came through the ring buffer and nothing that was read from maps: statistics of the loops
//! and stalls that still last are not in it. It has copies of the target's stack, so it may hold
//! the target's secrets.
//!
//! The format: `MAGIC`, the length of a JSON header and the header, then records, each behind its
//! length; a length of zero, and the names of the kernel addresses in the records, as lines of
//! kallsyms. Lengths are 32 bits, little-endian. A file that ends early is valid up to there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::pipeline::Pipeline;
use super::processes::Processes;
use crate::attach::proc;
use crate::binaries::ProcessMaps;
use crate::blame::Runtime;
use crate::events::{self, Clock, Event};
use crate::runtimes::ProcessRuntime;
use crate::symbolize::{SymbolOptions, Symbolizer};
use crate::unwind::{LiveModules, Unwinder};

/// How every file begins.
const MAGIC: &[u8] = b"stallscope events 1\n";
/// Names the file to write.
const VARIABLE: &str = "STALLSCOPE_RECORD_EVENTS";

/// What was known before the first record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StreamHeader {
    /// Nanoseconds between the epoch and the origin of `CLOCK_MONOTONIC`.
    pub unix_minus_monotonic_ns: u64,
    /// From which duration a turn was a stall.
    pub threshold_ns: u64,
    /// The processes under watch.
    pub targets: Vec<RecordedTarget>,
}

/// A process when stallscope attached.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordedTarget {
    /// Process id.
    pub pid: u32,
    /// What drives its loops.
    pub runtime: Runtime,
    /// Whether its threads park in futexes too.
    pub parks_in_futex: bool,
    /// Names of its threads.
    pub threads: BTreeMap<u32, String>,
    /// The text of its maps file.
    pub maps: String,
}

/// Writes a stream.
#[derive(Debug)]
pub(super) struct StreamRecorder {
    out: BufWriter<File>,
    kernel: BTreeSet<u64>,
}

impl StreamRecorder {
    /// The recorder that the environment asks for, if it does.
    ///
    /// # Errors
    /// The file can't be written.
    pub(super) fn asked_for(
        clock: &Clock,
        threshold_ns: u64,
        pids: &[u32],
        pipeline: &mut Pipeline,
    ) -> io::Result<Option<Self>> {
        let file: Option<OsString> = std::env::var_os(VARIABLE);
        let Some(file) = file.filter(|file| !file.is_empty()) else { return Ok(None) };
        let targets = pids.iter().map(|&pid| target(pid, pipeline)).collect();
        let unix_minus_monotonic_ns = clock.unix_ns(0);
        let header = StreamHeader { unix_minus_monotonic_ns, threshold_ns, targets };
        let mut out = BufWriter::new(File::create(file)?);
        out.write_all(MAGIC)?;
        write_sized(&mut out, &serde_json::to_vec(&header)?)?;
        Ok(Some(Self { out, kernel: BTreeSet::new() }))
    }

    /// Takes a record as it came.
    ///
    /// # Errors
    /// The file can't be written.
    pub(super) fn record(&mut self, record: &[u8]) -> io::Result<()> {
        if let Ok(
            Event::Capture(capture)
            | Event::FutexQuestion { capture, .. }
            | Event::Holder { capture, .. },
        ) = events::decode(record)
        {
            self.kernel.extend(capture.kernel);
        }
        write_sized(&mut self.out, record)
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// The file can't be written.
    pub(super) fn finish(mut self, symbolizer: &mut Symbolizer) -> io::Result<()> {
        write_sized(&mut self.out, &[])?;
        for address in self.kernel {
            let frame = symbolizer.kernel_frame(address);
            let module = frame.module.as_deref().unwrap_or("[kernel]");
            if frame.named && !frame.function.contains(char::is_whitespace) {
                writeln!(self.out, "{address:x} T {} {module}", frame.function)?;
            }
        }
        self.out.flush()
    }
}

fn target(pid: u32, pipeline: &mut Pipeline) -> RecordedTarget {
    let runtime = pipeline.processes.get(pid, &mut pipeline.symbolizer).runtime;
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let named = |tid| proc::thread_name(pid, tid).map(|name| (tid, name));
    RecordedTarget {
        pid,
        runtime: runtime.runtime,
        parks_in_futex: runtime.parks_in_futex,
        threads: proc::threads(pid).into_iter().filter_map(named).collect(),
        maps: String::from_utf8_lossy(&maps).into_owned(),
    }
}

fn write_sized(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(bytes)
}

/// A stream that was read back.
#[derive(Debug, Clone)]
pub struct RecordedStream {
    /// What was known before the first record.
    pub header: StreamHeader,
    /// The records, whole ones only.
    pub records: Vec<Vec<u8>>,
    /// The kernel's symbols, as far as the records need them.
    pub kernel_symbols: String,
}

impl RecordedStream {
    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// They do not begin as a stream does.
    pub fn parse(bytes: &[u8]) -> io::Result<Self> {
        let bad = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| bad("no stream of events"))?;
        let (header, mut rest) = split_sized(rest).ok_or_else(|| bad("the header is cut off"))?;
        let header = serde_json::from_slice(header)?;
        let mut records = Vec::new();
        let mut kernel_symbols = String::new();
        while let Some((record, after)) = split_sized(rest) {
            rest = after;
            if record.is_empty() {
                kernel_symbols = String::from_utf8_lossy(rest).into_owned();
                break;
            }
            records.push(record.to_vec());
        }
        Ok(Self { header, records, kernel_symbols })
    }

    /// A pipeline that knows what was known then, and asks this machine for nothing: the target's
    /// files lie below `files`, under the paths that they were mapped from.
    #[must_use]
    pub fn pipeline(&self, files: &Path) -> Pipeline {
        // No separate debug files: what this machine happens to have must not matter.
        let options = SymbolOptions { debug_dirs: Vec::new(), ..SymbolOptions::default() };
        let mut symbolizer = Symbolizer::new(options);
        symbolizer.set_kernel_symbols(&self.kernel_symbols);
        let mut processes = Processes::recorded();
        for target in &self.header.targets {
            let maps = ProcessMaps::recorded(target.pid, &target.maps, files);
            let RecordedTarget { runtime, parks_in_futex, .. } = *target;
            // Without the process's memory nothing is told of code without symbols.
            let runtime = ProcessRuntime { runtime, parks_in_futex, stripped: false };
            processes.insert(target.pid, maps, runtime, &target.threads);
        }
        let clock = Clock::with_offset(self.header.unix_minus_monotonic_ns);
        let unwinder = Unwinder::new(Box::new(LiveModules));
        let mut pipeline = Pipeline::new(clock, self.header.threshold_ns, unwinder, symbolizer);
        pipeline.processes = processes;
        pipeline
    }
}

fn split_sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}
