//! Flags of the commands that read recordings. Doc comments here are the help text.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ValueEnum};
use regex::Regex;

use super::args::LookArgs;
use super::values::{self, Moment};
use crate::aggregate::GroupBy;
use crate::report::Format;
use crate::stalls::Cause;

const REPORT_HELP: &str = "\
Examples:
  stallscope report x.stall
  stallscope report x.stall --by task --since 10s --until 1m
  stallscope report x.stall --cause syscall --min-duration 50ms --focus 'requests|httpx'
  stallscope report x.stall --output x.html";

const FLAMEGRAPH_HELP: &str = "\
Examples:
  stallscope flamegraph x.stall                      writes x.svg
  stallscope flamegraph x.stall --cause cpu --output cpu.svg";

/// Show a recording, in any format
///
/// Stalls are told once, with their last word. What does not pass every filter is left out.
#[derive(Debug, clap::Args)]
#[command(after_help = REPORT_HELP)]
pub(super) struct ReportArgs {
    /// The recording
    pub(super) recording: PathBuf,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    /// Sum the stalls up by this instead of listing them (text and JSON)
    #[arg(long, value_name = "WHAT")]
    pub(super) by: Option<GroupBy>,
    /// Text: list only so many stalls, the longest ones [default: 20; all with -v]
    #[arg(long, value_name = "N")]
    pub(super) longest: Option<usize>,
    /// Write the report to this file; its ending decides the format
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    pub(super) output: Option<PathBuf>,
    /// Format of the report [default: by the ending of --output, else text]
    #[arg(long, value_name = "FORMAT", help_heading = "Output")]
    pub(super) format: Option<Format>,
    #[command(flatten)]
    pub(super) look: LookArgs,
}

/// Draw a flame graph of the stalled time in a recording
#[derive(Debug, clap::Args)]
#[command(after_help = FLAMEGRAPH_HELP)]
pub(super) struct FlamegraphArgs {
    /// The recording
    pub(super) recording: PathBuf,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    /// Where to write it; `-` is stdout [default: beside the recording, ending in .svg]
    #[arg(long, short, value_name = "FILE.svg", help_heading = "Output")]
    pub(super) output: Option<PathBuf>,
    /// No word on stderr
    #[arg(long, short, help_heading = "Output")]
    pub(super) quiet: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct FilterArgs {
    /// Stalls after this: a time since the beginning (`10s`) or a time of day in UTC
    /// (`2026-11-30T14:03:07Z`)
    #[arg(long, value_name = "TIME", value_parser = values::moment)]
    pub(super) since: Option<Moment>,
    /// Stalls before this
    #[arg(long, value_name = "TIME", value_parser = values::moment)]
    pub(super) until: Option<Moment>,
    /// Stalls with this main cause; may be given several times
    #[arg(long, value_name = "CAUSE", value_enum, action = ArgAction::Append)]
    pub(super) cause: Vec<Cause>,
    /// Stalls at least this long
    #[arg(long, value_name = "TIME", value_parser = values::min_duration)]
    pub(super) min_duration: Option<Duration>,
    /// Stalls with a function, file, task, thread or resource that matches
    #[arg(long, value_name = "REGEX", value_parser = values::regex)]
    pub(super) focus: Option<Regex>,
}

impl ValueEnum for Cause {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}
