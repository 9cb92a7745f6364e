//! The resolved configuration: every choice made, every number checked.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use regex::Regex;

use super::values::Moment;
use crate::aggregate::{Budget, Filter, GroupBy};
use crate::report::{Format, ReportOptions, Sources};

/// What to do.
#[derive(Debug, Clone)]
pub enum Command {
    /// Report stalls as they happen.
    Attach(Watch),
    /// Watch for a while, then report.
    Profile(Watch),
    /// Start a command and watch it: program, then arguments; never empty.
    Run(Watch, Vec<OsString>),
    /// Show which event loops there are and how they are doing.
    Loops(LoopsConfig),
    /// Show a recording.
    Report(ReportConfig),
    /// Draw a recording.
    Flamegraph(FlamegraphConfig),
    /// Compare two recordings.
    Diff(DiffConfig),
    /// Hold a recording against budgets.
    Check(CheckConfig),
    /// Write a shell's completions.
    Completions(clap_complete::Shell),
    /// Write the manual: pages into a folder, or the main one to stdout.
    Man(Option<PathBuf>),
    /// Say what works here and what is missing, as `Text` or `Json`.
    Doctor(Format),
    /// Show stallscope at work on a service made for it.
    Demo(DemoConfig),
    /// The service that `demo` watches; for stallscope itself.
    DemoService(Vec<OsString>),
}

/// Which processes to watch. At least one of the two is given, except for `run`, where the target
/// is the command.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    /// Process ids, each once, none of them 0.
    pub pids: Vec<u32>,
    /// What a process's name must match.
    pub name: Option<Regex>,
}

impl Targets {
    /// Whether nothing was chosen.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.name.is_none()
    }
}

/// How to look into the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, clap::ValueEnum)]
pub enum Backend {
    /// The best that works here
    #[default]
    Auto,
    /// Kernel programs; fail if they can't be loaded
    Ebpf,
}

/// How to tell one long turn from many short ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, clap::ValueEnum)]
pub enum Boundaries {
    /// Exact while the overhead budget allows it, else upper bounds
    #[default]
    Auto,
    /// See every poll, whatever it costs
    Exact,
    /// Sleeps alone: cheapest, and a busy period may be several turns
    Sched,
}

/// Overrides of what counts as the user's own code.
#[derive(Debug, Clone, Default)]
pub struct UserCode {
    /// Files or modules that are.
    pub own: Vec<Regex>,
    /// Files or modules that are not; these win.
    pub foreign: Vec<Regex>,
}

impl UserCode {
    /// What the user said about a file or module; `None` leaves it to the defaults.
    #[must_use]
    pub fn verdict(&self, path: &str) -> Option<bool> {
        if self.foreign.iter().any(|regex| regex.is_match(path)) {
            return Some(false);
        }
        self.own.iter().any(|regex| regex.is_match(path)).then_some(true)
    }
}

/// How to watch and what to report.
#[derive(Debug, Clone)]
pub struct Watch {
    /// Which processes; empty for `run`.
    pub targets: Targets,
    /// From which duration a turn is a stall.
    pub threshold: Duration,
    /// How long to watch; until Ctrl-C or the target's end if `None`.
    pub duration: Option<Duration>,
    /// Format of the report.
    pub format: Format,
    /// Where the report goes; stdout if `None`.
    pub output: Option<PathBuf>,
    /// The most bytes of a recording.
    pub max_size: u64,
    /// Where a flame graph goes besides.
    pub flamegraph: Option<PathBuf>,
    /// Whether stalls are told as they happen, ongoing ones included.
    pub live: bool,
    /// How to look into the target.
    pub backend: Backend,
    /// How turns are told apart.
    pub boundaries: Boundaries,
    /// CPU time that exact boundaries may cost, as a share of one CPU (0 to 1].
    pub overhead_budget: f64,
    /// Bytes of the user stack in a capture: whole pages.
    pub stack_bytes: usize,
    /// CPU samples per second and loop thread, in Hz.
    pub sample_rate: u32,
    /// Whether interpreters are looked for.
    pub python: bool,
    /// How often to tell how the loops are doing.
    pub interval: Option<Duration>,
    /// Whether the report is coloured.
    pub color: bool,
    /// Columns of the report.
    pub width: usize,
    /// One line per stall; no progress on stderr.
    pub quiet: bool,
    /// 1: every frame; 2: every stack as well.
    pub verbose: u8,
    /// Overrides of what counts as the user's own code.
    pub user_code: UserCode,
}

impl Watch {
    /// The threshold in nanoseconds.
    #[must_use]
    pub fn threshold_ns(&self) -> u64 {
        // Checked to be an hour at most.
        u64::try_from(self.threshold.as_nanos()).unwrap_or(u64::MAX)
    }

    /// What the report needs to know.
    #[must_use]
    pub fn report_options(&self) -> ReportOptions {
        ReportOptions {
            color: self.color,
            width: self.width,
            threshold_ns: self.threshold_ns(),
            quiet: self.quiet,
            verbose: self.verbose,
            sources: Sources::Target,
            ..ReportOptions::default()
        }
    }
}

/// `loops`.
#[derive(Debug, Clone)]
pub struct LoopsConfig {
    /// Which processes; all of this host if `None`.
    pub targets: Option<Targets>,
    /// How long to watch.
    pub duration: Duration,
    /// `Text` or `Json`.
    pub format: Format,
    /// How to look into the targets.
    pub backend: Backend,
    /// Whether the table is coloured.
    pub color: bool,
    /// Columns of the table.
    pub width: usize,
    /// No progress on stderr.
    pub quiet: bool,
    /// How much more to say.
    pub verbose: u8,
}

/// What to read of a recording.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The file.
    pub recording: PathBuf,
    /// Stalls after this.
    pub since: Option<Moment>,
    /// Stalls before this.
    pub until: Option<Moment>,
    /// The other conditions.
    pub filter: Filter,
    /// Files and folders to name native code by again.
    pub symbols: Vec<PathBuf>,
}

/// `report`.
#[derive(Debug, Clone)]
pub struct ReportConfig {
    /// What to read.
    pub reading: Reading,
    /// What to sum up by, instead of telling each stall.
    pub by: Option<GroupBy>,
    /// How many stalls the text report tells of, the longest ones.
    pub longest: usize,
    /// Format of the report.
    pub format: Format,
    /// Where the report goes; stdout if `None`.
    pub output: Option<PathBuf>,
    /// What shapes the report.
    pub options: ReportOptions,
}

/// `flamegraph`.
#[derive(Debug, Clone)]
pub struct FlamegraphConfig {
    /// What to read.
    pub reading: Reading,
    /// Where it goes; stdout if `None`.
    pub output: Option<PathBuf>,
    /// No word on stderr.
    pub quiet: bool,
}

/// `diff`.
#[derive(Debug, Clone)]
pub struct DiffConfig {
    /// The earlier recording.
    pub before: Reading,
    /// The later one, through the same filter.
    pub after: Reading,
    /// `Text`, `Json` or `Svg`.
    pub format: Format,
    /// Where it goes; stdout if `None`.
    pub output: Option<PathBuf>,
    /// Columns of the text.
    pub width: usize,
    /// No word on stderr.
    pub quiet: bool,
}

/// `check`.
#[derive(Debug, Clone)]
pub struct CheckConfig {
    /// The recording.
    pub recording: PathBuf,
    /// What it must keep.
    pub budgets: Vec<Budget>,
    /// What it must not be worse than.
    pub baseline: Option<PathBuf>,
    /// By which part of what it was something may grow against the baseline.
    pub regression: f64,
    /// Where JUnit's XML goes besides.
    pub junit: Option<PathBuf>,
    /// `Text` or `Json`.
    pub format: Format,
    /// Columns of the text.
    pub width: usize,
}

/// `demo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemoConfig {
    /// Whether the report is coloured.
    pub color: bool,
    /// Columns of the report.
    pub width: usize,
    /// One line per stall.
    pub quiet: bool,
    /// 1: every frame; 2: every stack as well.
    pub verbose: u8,
}
