//! What a user reads or a program parses: one trait, one file per format.
//!
//! A report is told every stall as it happens and the summary at the end, and writes to whatever
//! it is given. It never panics on a name a target made up, and hands back every write error:
//! a closed pipe is an [`io::ErrorKind::BrokenPipe`], which the caller takes for a normal end.

mod folded;
mod json;
pub mod quantity;
mod svg;
mod text;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::aggregate::{LoopSummary, Summary};
use crate::blame::Stall;

pub use folded::Folded;
pub use json::Json;
pub use svg::Svg;
pub use text::{LoopTable, Text};

/// How a report is written.
///
/// Comments of the variants are also the help text of `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Format {
    /// For people: headlines, ledgers, stacks, a summary
    Text,
    /// JSON Lines: `stall`, `loop`, `health`
    Json,
    /// Folded stacks, one a line; the weight is microseconds of stall
    Folded,
    /// A flame graph; the width is milliseconds of stall
    Svg,
}

impl Format {
    /// Every format that can be written.
    pub const ALL: [Self; 4] = [Self::Text, Self::Json, Self::Folded, Self::Svg];

    /// The name used by `--format`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Folded => "folded",
            Self::Svg => "svg",
        }
    }

    /// The format that a file's ending asks for, if it asks for one.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "txt" | "text" | "log" => Some(Self::Text),
            "json" | "jsonl" | "ndjson" => Some(Self::Json),
            "folded" | "collapsed" => Some(Self::Folded),
            "svg" => Some(Self::Svg),
            _ => None,
        }
    }
}

/// Where the text report finds source files to quote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Sources {
    /// Quotes nothing.
    #[default]
    Off,
    /// Below `/proc/PID/root` of the stall's process, so that containers show their own files.
    Target,
    /// Below this directory.
    Under(PathBuf),
}

/// In which zone the text report tells the time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// As the machine is set: what the target's logs most likely show.
    #[default]
    Local,
    /// UTC.
    Utc,
}

/// What shapes a report. Only the text report heeds all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportOptions {
    /// Whether to colour.
    pub color: bool,
    /// Columns to fill, kept between 80 and 200.
    pub width: usize,
    /// From which duration a turn is a stall, in nanoseconds.
    pub threshold_ns: u64,
    /// One line per stall, and the summary.
    pub quiet: bool,
    /// 1: every frame; 2: every stack as well.
    pub verbose: u8,
    /// Where to find the source lines to quote.
    pub sources: Sources,
    /// Zone of the times of day.
    pub clock: Clock,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self {
            color: false,
            width: 120,
            threshold_ns: 10_000_000,
            quiet: false,
            verbose: 0,
            sources: Sources::Off,
            clock: Clock::Local,
        }
    }
}

/// Writes one format.
///
/// A stall that lasts may be told several times, each time `ongoing` and longer, and once more when
/// it ends; the last report of a stall is the one that counts.
pub trait Report {
    /// Tells of one stall.
    ///
    /// # Errors
    /// Whatever `out` answers.
    fn stall(&mut self, out: &mut dyn Write, stall: &Stall) -> io::Result<()>;

    /// Tells how the loops are doing in between (`attach --interval`). Most formats say nothing.
    ///
    /// # Errors
    /// Whatever `out` answers.
    fn interval(&mut self, _out: &mut dyn Write, _loops: &[LoopSummary]) -> io::Result<()> {
        Ok(())
    }

    /// Ends the report. Nothing may be told after it.
    ///
    /// # Errors
    /// Whatever `out` answers.
    fn finish(&mut self, out: &mut dyn Write, summary: &Summary) -> io::Result<()>;
}

/// A report in this format. For a flame graph besides another format, make two and tell both the
/// same stalls.
#[must_use]
pub fn create(format: Format, options: &ReportOptions) -> Box<dyn Report> {
    match format {
        Format::Text => Box::new(Text::new(options.clone())),
        Format::Json => Box::new(Json),
        Format::Folded => Box::new(Folded::default()),
        Format::Svg => Box::new(Svg::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::Format;
    use std::path::Path;

    #[test]
    fn endings_decide() {
        assert_eq!(Format::from_path(Path::new("a/b.SVG")), Some(Format::Svg));
        assert_eq!(Format::from_path(Path::new("x.jsonl")), Some(Format::Json));
        assert_eq!(Format::from_path(Path::new("x.collapsed")), Some(Format::Folded));
        assert_eq!(Format::from_path(Path::new("x.txt")), Some(Format::Text));
        assert_eq!(Format::from_path(Path::new("x.pdf")), None);
        assert_eq!(Format::from_path(Path::new(".svg")), None);
    }
}
