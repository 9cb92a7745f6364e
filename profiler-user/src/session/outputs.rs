//! Where reports go: standard output or files, one report or two.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

use super::stdout::Stdout;
use crate::aggregate::{LoopSummary, Summary};
use crate::blame::Stall;
use crate::record::{Checkpoint, RollingFile};
use crate::report::{Format, LoopTable, Report, ReportOptions, create};

const STDOUT: &str = "standard output";

struct Output {
    report: Box<dyn Report>,
    out: Box<dyn Write>,
    /// Where it goes, for who reads of a failure.
    name: String,
}

fn stdout() -> io::Result<Box<dyn Write>> {
    Ok(Box::new(BufWriter::new(Stdout::open()?)))
}

/// The reports of one run.
pub struct Outputs {
    outputs: Vec<Output>,
    /// Whether a reader of ours has gone: a normal end.
    pub closed: bool,
    /// Whether a report shows how the loops were doing over time.
    keep_time: bool,
}

impl std::fmt::Debug for Outputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outputs").field("outputs", &self.outputs.len()).finish_non_exhaustive()
    }
}

impl Outputs {
    /// No reports.
    #[must_use]
    pub const fn none() -> Self {
        Self { outputs: Vec::new(), closed: false, keep_time: false }
    }

    /// Adds a report, to a file or to standard output.
    ///
    /// # Errors
    /// The file can't be created.
    pub fn add(
        &mut self,
        format: Format,
        options: &ReportOptions,
        path: Option<&Path>,
    ) -> io::Result<()> {
        match path {
            Some(path) => {
                let out = Box::new(BufWriter::new(File::create(path)?));
                self.push(format, options, out, path.display().to_string());
            }
            None => self.push(format, options, stdout()?, STDOUT.to_owned()),
        }
        Ok(())
    }

    /// Adds a recording that keeps within `bound` bytes by dropping its oldest parts. A pipe or a
    /// device takes everything.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn add_recording(
        &mut self,
        options: &ReportOptions,
        path: &Path,
        bound: u64,
    ) -> io::Result<()> {
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return self.add(Format::Recording, options, Some(path));
        }
        let file = RollingFile::create(path, options.start.clone(), bound)?;
        self.push(Format::Recording, options, Box::new(file), path.display().to_string());
        Ok(())
    }

    fn push(&mut self, format: Format, options: &ReportOptions, out: Box<dyn Write>, name: String) {
        self.keep_time |= format.keeps_time();
        self.outputs.push(Output { report: create(format, options), out, name });
    }

    /// Whether [`checkpoint`](Self::checkpoint) is of use.
    #[must_use]
    pub const fn keep_time(&self) -> bool {
        self.keep_time
    }

    /// Adds a report of the loops alone, to standard output.
    ///
    /// # Errors
    /// There is no standard output.
    pub fn add_loops(&mut self, format: Format, options: &ReportOptions) -> io::Result<()> {
        let report: Box<dyn Report> = match format {
            Format::Json => create(Format::Json, options),
            _ => Box::new(LoopTable::new(options.clone())),
        };
        self.outputs.push(Output { report, out: stdout()?, name: STDOUT.to_owned() });
        Ok(())
    }

    /// Tells of a stall.
    ///
    /// # Errors
    /// Writing failed, other than by a closed pipe.
    pub fn stall(&mut self, stall: &Stall) -> io::Result<()> {
        self.each(|report, out| report.stall(out, stall))
    }

    /// Tells how the loops are doing.
    ///
    /// # Errors
    /// As for [`stall`](Self::stall).
    pub fn interval(&mut self, loops: &[LoopSummary]) -> io::Result<()> {
        self.each(|report, out| report.interval(out, loops))
    }

    /// Tells how everything stands.
    ///
    /// # Errors
    /// As for [`stall`](Self::stall).
    pub fn checkpoint(&mut self, checkpoint: &Checkpoint) -> io::Result<()> {
        self.each(|report, out| report.checkpoint(out, checkpoint))
    }

    /// Lets reports write what waits.
    ///
    /// # Errors
    /// As for [`stall`](Self::stall).
    pub fn tick(&mut self) -> io::Result<()> {
        self.each(|report, out| report.tick(out))
    }

    /// Ends the reports.
    ///
    /// # Errors
    /// As for [`stall`](Self::stall).
    pub fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        self.each(|report, out| report.finish(out, summary))
    }

    fn each(
        &mut self,
        mut tell: impl FnMut(&mut dyn Report, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        for Output { report, out, name } in &mut self.outputs {
            let told = tell(&mut **report, &mut **out).and_then(|()| out.flush());
            match told {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => self.closed = true,
                Err(error) => {
                    let message = format!("{name} can't be written: {error}");
                    return Err(io::Error::new(error.kind(), message));
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }
}
