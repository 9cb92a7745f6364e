//! The command line as it is typed. Doc comments here are the help text.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ArgGroup, Parser, Subcommand, ValueEnum};
use regex::Regex;

use super::config::{Backend, Boundaries};
use super::reading::{CheckArgs, DiffArgs, FlamegraphArgs, ReportArgs};
use super::values;
use crate::report::Format;

const AFTER_HELP: &str = "\
Examples:
  stallscope attach --pid 4711                       what blocks it, live
  stallscope profile --pid 4711 --duration 30s --output stalls.svg
  stallscope run --threshold 5ms -- python app.py
  stallscope profile --pid 4711 --duration 10m --output x.stall
  stallscope report x.stall --output x.html          later, anywhere
  stallscope loops                                   every event loop on this host
  stallscope doctor                                  what works here, what is missing

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not permitted or not supported here,
4 the target is gone or was never there, 5 a budget of `check` was broken. Ctrl-C ends a live command with its summary and 0.";

const ATTACH_HELP: &str = "\
Examples:
  stallscope attach --pid 4711
  stallscope attach --name '^uvicorn$' --threshold 50ms
  stallscope attach --pid 4711 --format json --interval 1s | jq .";

const PROFILE_HELP: &str = "\
Examples:
  stallscope profile --pid 4711 --duration 30s
  stallscope profile --pid 4711 --duration 1m --output stalls.json --flamegraph stalls.svg
  stallscope profile --pid 4711 --duration 10m --output stalls.stall     keep everything
  stallscope profile --name node --duration 10s --format folded > stalls.folded";

const RUN_HELP: &str = "\
Examples:
  stallscope run -- python app.py
  stallscope run --duration 1m --output stalls.svg -- ./target/release/server --port 8080";

const LOOPS_HELP: &str = "\
Examples:
  stallscope loops
  stallscope loops --pid 4711 --duration 10s --format json";

/// Finds what keeps an event loop from running: how long, why, and at which line
///
/// Watches unmodified async processes (asyncio, uvloop, tokio, Node, any epoll loop) from outside,
/// without a restart. Results go to stdout, progress and warnings to stderr.
#[derive(Debug, Parser)]
#[command(name = "stallscope", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Sub,
}

#[derive(Debug, Subcommand)]
pub(super) enum Sub {
    Attach(AttachArgs),
    Profile(ProfileArgs),
    Run(RunArgs),
    Loops(LoopsArgs),
    Report(ReportArgs),
    Flamegraph(FlamegraphArgs),
    Diff(DiffArgs),
    Check(CheckArgs),
    Doctor(DoctorArgs),
    Demo(DemoArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    #[command(hide = true, disable_help_flag = true)]
    DemoService(DemoServiceArgs),
}

/// Report stalls of a running process as they happen
///
/// A stall that lasts is told after 1 s, 2 s, 4 s … while it lasts; one that has already begun is
/// told at once. Ctrl-C ends it with a summary.
#[derive(Debug, clap::Args)]
#[command(after_help = ATTACH_HELP)]
#[command(group(ArgGroup::new("target").args(["pid", "name"]).required(true)))]
pub(super) struct AttachArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Stop after this time instead of at Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = values::observation)]
    pub(super) duration: Option<Duration>,
    /// Format of the report
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = "Output")]
    pub(super) format: ListFormat,
    /// With --format json: tell how the loops are doing this often
    #[arg(long, value_name = "TIME", value_parser = values::interval, help_heading = "Output")]
    pub(super) interval: Option<Duration>,
    #[command(flatten)]
    pub(super) measure: MeasureArgs,
    #[command(flatten)]
    pub(super) look: LookArgs,
}

/// Watch a running process for a while, then report
#[derive(Debug, clap::Args)]
#[command(after_help = PROFILE_HELP)]
#[command(group(ArgGroup::new("target").args(["pid", "name"]).required(true)))]
pub(super) struct ProfileArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// How long to watch (Ctrl-C ends it earlier)
    #[arg(long, value_name = "TIME", value_parser = values::observation)]
    pub(super) duration: Duration,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) measure: MeasureArgs,
    #[command(flatten)]
    pub(super) look: LookArgs,
}

/// Start a command and watch it until it ends
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_HELP)]
pub(super) struct RunArgs {
    /// Stop watching after this time, not at the command's end
    #[arg(long, value_name = "TIME", value_parser = values::observation)]
    pub(super) duration: Option<Duration>,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) measure: MeasureArgs,
    #[command(flatten)]
    pub(super) look: LookArgs,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// Show which event loops there are and how they are doing
///
/// Without a target: every event loop on this host.
#[derive(Debug, clap::Args)]
#[command(after_help = LOOPS_HELP)]
#[command(group(ArgGroup::new("target").args(["pid", "name"])))]
pub(super) struct LoopsArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// How long to watch
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::observation)]
    pub(super) duration: Duration,
    /// Format of the table
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = "Output")]
    pub(super) format: ListFormat,
    /// How to look into the processes
    #[arg(long, value_name = "BACKEND", default_value = "auto", help_heading = "Measurement")]
    pub(super) backend: Backend,
    #[command(flatten)]
    pub(super) look: LookArgs,
}

/// Say what works here, what is missing, and how to get it
#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    /// Format of the answer
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(super) format: ListFormat,
}

/// Show stallscope at work on a small service with typical mistakes
#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {
    #[command(flatten)]
    pub(super) look: LookArgs,
}

/// Write a script that completes this command line in a shell
#[derive(Debug, clap::Args)]
pub(super) struct CompletionsArgs {
    /// For which shell
    pub(super) shell: clap_complete::Shell,
}

/// Write the manual pages
#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// A folder for a page of each command; without it, the main page goes to stdout
    pub(super) folder: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct DemoServiceArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) args: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct TargetArgs {
    /// Watch this process; may be given several times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(action = ArgAction::Append, help_heading = "Target")]
    pub(super) pid: Vec<u32>,
    /// Watch every process whose name or command line matches
    #[arg(long, value_name = "REGEX", value_parser = values::regex, help_heading = "Target")]
    pub(super) name: Option<Regex>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Measurement")]
pub(super) struct MeasureArgs {
    /// From which duration a turn of the loop is a stall
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = values::threshold)]
    pub(super) threshold: Duration,
    /// How to look into the process
    #[arg(long, value_name = "BACKEND", default_value = "auto")]
    pub(super) backend: Backend,
    /// How to tell one long turn from many short ones
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub(super) boundaries: Boundaries,
    /// What exact boundaries may cost, in per cent of one CPU
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = values::share)]
    pub(super) overhead_budget: f64,
    /// How much of the stack to copy for unwinding, up to 128KiB
    #[arg(long, value_name = "SIZE", default_value = "36KiB", value_parser = values::stack_bytes)]
    pub(super) stack_bytes: usize,
    /// CPU samples per second during a stall, in Hz
    #[arg(long, value_name = "HZ", default_value = "1000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) sample_rate: u32,
    /// Leave Python alone: native frames only, no tasks, no GIL, no pools
    #[arg(long)]
    pub(super) no_python: bool,
    /// Count code in matching files or modules as your own; may be given several times
    #[arg(long, value_name = "REGEX", value_parser = values::regex)]
    pub(super) user_code: Vec<Regex>,
    /// Count code in matching files or modules as somebody else's
    #[arg(long, value_name = "REGEX", value_parser = values::regex)]
    pub(super) not_user_code: Vec<Regex>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Write the report to this file; its ending decides the format
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Format of the report [default: by the ending of --output, else text]
    #[arg(long, value_name = "FORMAT")]
    pub(super) format: Option<Format>,
    /// Keep a recording within this size by dropping its oldest stalls
    #[arg(long, value_name = "SIZE", default_value = "100MiB", value_parser = values::max_size)]
    pub(super) max_size: u64,
    /// Draw a flame graph of the stalled time as well
    #[arg(long, value_name = "FILE.svg")]
    pub(super) flamegraph: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct LookArgs {
    /// When to colour
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(super) color: ColorChoice,
    /// One line per stall, no progress on stderr
    #[arg(long, short, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Show every frame; twice: every stack
    #[arg(long, short, action = ArgAction::Count)]
    pub(super) verbose: u8,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ColorChoice {
    /// If stdout is a terminal that wants it
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Formats of what is no profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ListFormat {
    /// For people
    Text,
    /// JSON Lines
    Json,
}

impl From<ListFormat> for Format {
    fn from(format: ListFormat) -> Self {
        match format {
            ListFormat::Text => Self::Text,
            ListFormat::Json => Self::Json,
        }
    }
}
