//! Flags of the commands that read recordings. Doc comments here are the help text.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ValueEnum};
use regex::Regex;

use super::args::{ListFormat, LookArgs};
use super::values::{self, Moment};
use crate::aggregate::{Budget, GroupBy};
use crate::report::Format;
use crate::stalls::Cause;

const REPORT_HELP: &str = "\
Examples:
  stallscope report x.stall
  stallscope report x.stall --by task --since 10s --until 1m
  stallscope report x.stall --cause syscall --min-duration 50ms --focus 'requests|httpx'
  stallscope report x.stall --output x.html
  stallscope report x.stall --symbols app.debug      with the debug file that production lacks";

const FLAMEGRAPH_HELP: &str = "\
Examples:
  stallscope flamegraph x.stall                      writes x.svg
  stallscope flamegraph x.stall --cause cpu --output cpu.svg";

const DIFF_HELP: &str = "\
Examples:
  stallscope diff before.stall after.stall
  stallscope diff before.stall after.stall --output diff.svg";

const CHECK_HELP: &str = "\
Examples:
  stallscope check x.stall --budget 'p99<50ms' --budget 'max<200ms' --budget 'stalled<1%'
  stallscope check x.stall --budget 'cause.syscall<1%' --budget 'blocker(\"requests.get\")==0'
  stallscope check x.stall --baseline main.stall --regression 10% --junit stalls.xml

Budgets limit p50, p90, p99, p99.9 (of the worst loop's turns), max, stalled, stalls, cause.NAME and
blocker(\"NAME\") with <, <= or ==. Times are like 50ms; shares, like 1%, are of the time that the
loops were watched. What was not measured does not hold.

Exit code 5: a budget was broken.";

/// Compare two recordings: which blockers are new, gone, longer, shorter
///
/// Recordings may have lasted for different times: what is compared is the share of the loops' time.
/// In the flame graph, red is what takes more time than before, blue what takes less.
#[derive(Debug, clap::Args)]
#[command(after_help = DIFF_HELP)]
pub(super) struct DiffArgs {
    /// The earlier recording
    pub(super) before: PathBuf,
    /// The later recording
    pub(super) after: PathBuf,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    /// Write to this file; its ending decides the format
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    pub(super) output: Option<PathBuf>,
    /// Format: text, json or svg [default: by the ending of --output, else text]
    #[arg(long, value_name = "FORMAT", value_parser = diff_format, help_heading = "Output")]
    pub(super) format: Option<Format>,
    /// No word on stderr
    #[arg(long, short, help_heading = "Output")]
    pub(super) quiet: bool,
}

fn diff_format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        "svg" => Ok(Format::Svg),
        _ => Err("use text, json or svg".to_owned()),
    }
}

/// Fail if a recording breaks a budget, or is worse than an earlier one
#[derive(Debug, clap::Args)]
#[command(after_help = CHECK_HELP)]
#[command(group(clap::ArgGroup::new("conditions").args(["budget", "baseline"]).required(true).multiple(true)))]
pub(super) struct CheckArgs {
    /// The recording
    pub(super) recording: PathBuf,
    /// A condition that must hold; may be given several times
    #[arg(long, value_name = "BUDGET", value_parser = Budget::parse, action = ArgAction::Append)]
    pub(super) budget: Vec<Budget>,
    /// An earlier recording, which this one must not be worse than
    #[arg(long, value_name = "RECORDING")]
    pub(super) baseline: Option<PathBuf>,
    /// By how much stalled time, p99 and each blocker may grow against the baseline
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = values::growth)]
    #[arg(requires = "baseline")]
    pub(super) regression: f64,
    /// Write the result as JUnit's XML as well
    #[arg(long, value_name = "FILE.xml", help_heading = "Output")]
    pub(super) junit: Option<PathBuf>,
    /// Format of the result
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = "Output")]
    pub(super) format: ListFormat,
}

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
    /// Name native code again by this binary, debug file, or folder of such files; only what has the
    /// build id of the recorded binary is taken. May be given several times
    #[arg(long, value_name = "PATH", action = ArgAction::Append, help_heading = "Names")]
    pub(super) symbols: Vec<PathBuf>,
}

impl ValueEnum for Cause {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}
