//! Folded stacks: `loop;cause;root;…;leaf WEIGHT`, one path a line, sorted.
//!
//! The weight is **microseconds of stall**. The weights sum to the duration of all stalls together
//! (rounded once, at the end), so `awk '{s+=$NF} END {print s/1000}'` gives milliseconds.

use std::io::{self, Write};

use super::Report;
use crate::aggregate::{StalledTime, Summary, Unfinished};
use crate::blame::Stall;

/// Collects stalled time and writes it folded at the end.
#[derive(Debug, Clone, Default)]
pub struct Folded {
    time: StalledTime,
    unfinished: Unfinished,
}

impl Folded {
    /// Takes note of a stall; nothing counts twice.
    pub(super) fn add(&mut self, stall: &Stall) {
        for counted in self.unfinished.settle(stall) {
            self.time.add(&counted);
        }
    }

    /// All time, stalls that never ended included.
    pub(super) fn time(&self) -> StalledTime {
        let mut time = self.time.clone();
        for stall in self.unfinished.stalls() {
            time.add(stall);
        }
        time
    }
}

impl Report for Folded {
    fn stall(&mut self, _out: &mut dyn Write, stall: &Stall) -> io::Result<()> {
        self.add(stall);
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write, _summary: &Summary) -> io::Result<()> {
        for line in lines(&self.time()) {
            writeln!(out, "{line}")?;
        }
        out.flush()
    }
}

/// The lines of the folded format, without their line ends.
pub(super) fn lines(time: &StalledTime) -> Vec<String> {
    time.weights().map(|weight| format!("{} {}", weight.path.join(";"), weight.micros)).collect()
}
