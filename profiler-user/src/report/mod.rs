//! What a user reads or a program parses: one trait, one file per format.
//!
//! A report is told every stall as it happens and the summary at the end, and writes to whatever
//! it is given. It never panics on a name a target made up, and hands back every write error:
//! a closed pipe is an [`io::ErrorKind::BrokenPipe`], which the caller takes for a normal end.

mod diff;
mod firefox;
mod folded;
mod groups;
mod html;
mod json;
mod pprof;
pub mod quantity;
mod recording;
mod settled;
mod source;
mod speedscope;
mod svg;
mod text;
mod verdicts;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::aggregate::{LoopSummary, Summary};
use crate::blame::Stall;
use crate::record::{Checkpoint, Start};

pub use diff::{Compared, diff};
pub use firefox::Firefox;
pub use folded::Folded;
pub use groups::Grouped;
pub use html::Html;
pub use json::Json;
pub use pprof::Pprof;
pub use recording::Recording;
pub use speedscope::Speedscope;
pub use svg::Svg;
pub use text::{LoopTable, Text};
pub use verdicts::{junit, verdicts};

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
    /// One self-contained page: timeline, stacks, flame graph, tables
    Html,
    /// For `go tool pprof` and its kin: stalls and stalled nanoseconds, labelled by cause
    Pprof,
    /// For speedscope.app: a profile per loop
    Speedscope,
    /// For profiler.firefox.com: a track per loop, a marker per stall
    Firefox,
    /// Everything, for `stallscope report` and its kin
    Recording,
}

impl Format {
    /// Every format that can be written.
    pub const ALL: [Self; 9] = [
        Self::Text,
        Self::Json,
        Self::Folded,
        Self::Svg,
        Self::Html,
        Self::Pprof,
        Self::Speedscope,
        Self::Firefox,
        Self::Recording,
    ];

    /// The name used by `--format`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Folded => "folded",
            Self::Svg => "svg",
            Self::Html => "html",
            Self::Pprof => "pprof",
            Self::Speedscope => "speedscope",
            Self::Firefox => "firefox",
            Self::Recording => "recording",
        }
    }

    /// The ending of files in this format.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Text => "txt",
            Self::Json => "jsonl",
            Self::Folded => "folded",
            Self::Svg => "svg",
            Self::Html => "html",
            Self::Pprof => "pb.gz",
            Self::Speedscope => "speedscope.json",
            Self::Firefox => "firefox.json",
            Self::Recording => "stall",
        }
    }

    /// Whether it is nothing to be read in a terminal.
    #[must_use]
    pub const fn is_for_files(self) -> bool {
        !matches!(self, Self::Text | Self::Json | Self::Folded)
    }

    /// Whether it shows how the loops were doing over time.
    #[must_use]
    pub const fn keeps_time(self) -> bool {
        matches!(self, Self::Recording | Self::Html)
    }

    /// The format that a file's ending asks for, if it asks for one.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        // Endings of endings first.
        for (ending, format) in [
            (".speedscope.json", Self::Speedscope),
            (".firefox.json", Self::Firefox),
            (".pb.gz", Self::Pprof),
        ] {
            if name.len() > ending.len() && name.ends_with(ending) {
                return Some(format);
            }
        }
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "txt" | "text" | "log" => Some(Self::Text),
            "json" | "jsonl" | "ndjson" => Some(Self::Json),
            "folded" | "collapsed" => Some(Self::Folded),
            "svg" => Some(Self::Svg),
            "html" | "htm" => Some(Self::Html),
            "pprof" => Some(Self::Pprof),
            "stall" => Some(Self::Recording),
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
    /// What is known about the observation beforehand.
    pub start: Start,
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
            start: Start::default(),
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

    /// Tells how everything stands, about once a second. Formats without a notion of time say
    /// nothing.
    ///
    /// # Errors
    /// Whatever `out` answers.
    fn checkpoint(&mut self, _out: &mut dyn Write, _checkpoint: &Checkpoint) -> io::Result<()> {
        Ok(())
    }

    /// Is called several times a second; who holds back what should be written soon, writes it.
    ///
    /// # Errors
    /// Whatever `out` answers.
    fn tick(&mut self, _out: &mut dyn Write) -> io::Result<()> {
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
        Format::Html => Box::new(Html::new(options)),
        Format::Pprof => Box::new(Pprof::new(options)),
        Format::Speedscope => Box::new(Speedscope::new(options)),
        Format::Firefox => Box::new(Firefox::new(options)),
        Format::Recording => Box::new(Recording::new(options)),
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
        assert_eq!(Format::from_path(Path::new("x.pb.gz")), Some(Format::Pprof));
        assert_eq!(Format::from_path(Path::new("x.speedscope.json")), Some(Format::Speedscope));
        assert_eq!(Format::from_path(Path::new("x.firefox.json")), Some(Format::Firefox));
        assert_eq!(Format::from_path(Path::new("firefox.json")), Some(Format::Json));
        assert_eq!(Format::from_path(Path::new("x.stall")), Some(Format::Recording));
        assert_eq!(Format::from_path(Path::new("x.pdf")), None);
        assert_eq!(Format::from_path(Path::new(".svg")), None);
    }
}
