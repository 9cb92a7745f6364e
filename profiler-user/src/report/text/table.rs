//! The loops alone, as a table: what `stallscope loops` prints.

use std::io::{self, Write};

use crate::aggregate::Summary;
use crate::blame::Stall;
use crate::report::{Report, ReportOptions};

use super::summary;

/// A report of the loops and nothing else.
#[derive(Debug)]
pub struct LoopTable {
    options: ReportOptions,
}

impl LoopTable {
    /// A table of the width that the options say.
    #[must_use]
    pub const fn new(options: ReportOptions) -> Self {
        Self { options }
    }
}

impl Report for LoopTable {
    fn stall(&mut self, _out: &mut dyn Write, _stall: &Stall) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
        for line in summary::table(summary, self.options.width) {
            line.write(out, self.options.color)?;
        }
        out.flush()
    }
}
