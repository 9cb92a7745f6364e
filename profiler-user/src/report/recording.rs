//! The recording as a report: what it is told goes into the file within half a second.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::source::SourceLines;
use super::{Report, ReportOptions};
use crate::aggregate::Summary;
use crate::blame::Stall;
use crate::record::{Checkpoint, Encoder, Start};

/// How long something may wait for its block.
const PATIENCE: Duration = Duration::from_millis(400);

/// Writes whole blocks, each with one call.
#[derive(Debug)]
pub struct Recording {
    start: Start,
    begun: bool,
    encoder: Encoder,
    sources: SourceLines,
    /// Since when something waits.
    waiting: Option<Instant>,
}

impl Recording {
    /// A recording that has not begun.
    #[must_use]
    pub fn new(options: &ReportOptions) -> Self {
        Self {
            start: options.start.clone(),
            begun: false,
            encoder: Encoder::default(),
            sources: SourceLines::new(options.sources.clone()),
            waiting: None,
        }
    }

    fn begin(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if !self.begun {
            self.begun = true;
            out.write_all(&Encoder::head(&self.start)?)?;
            out.flush()?;
        }
        Ok(())
    }

    fn write(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.waiting = None;
        if !self.encoder.is_empty() {
            out.write_all(&self.encoder.block()?)?;
            out.flush()?;
        }
        Ok(())
    }

    fn added(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.begin(out)?;
        self.waiting.get_or_insert_with(Instant::now);
        if self.encoder.is_full() { self.write(out) } else { Ok(()) }
    }
}

impl Report for Recording {
    fn stall(&mut self, out: &mut dyn Write, stall: &Stall) -> io::Result<()> {
        let sources = &mut self.sources;
        self.encoder.stall(stall, &mut |frame| sources.of(stall.pid, frame))?;
        self.added(out)
    }

    fn checkpoint(&mut self, out: &mut dyn Write, checkpoint: &Checkpoint) -> io::Result<()> {
        self.encoder.checkpoint(checkpoint)?;
        self.added(out)
    }

    fn tick(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.begin(out)?;
        if self.waiting.is_some_and(|since| since.elapsed() >= PATIENCE) {
            self.write(out)?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
        self.begin(out)?;
        self.encoder.end(summary)?;
        self.write(out)
    }
}
