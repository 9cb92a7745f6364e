//! Raw arguments to a configuration: what depends on more than one flag, or on the surroundings.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use super::Surroundings;
use super::args::{
    Args, AttachArgs, ColorChoice, ListFormat, LookArgs, LoopsArgs, MeasureArgs, OutputArgs, Sub,
    TargetArgs,
};
use super::config::{Command, DemoConfig, LoopsConfig, Targets, UserCode, Watch};
use super::resolve_reading;
use crate::report::Format;

/// Columns of a report that goes to a file.
pub(super) const FILE_WIDTH: usize = 120;

/// Wrong usage that clap can't see by itself.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
}

impl Wrong {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::ArgumentConflict, message)
    }
}

pub(super) fn resolve(args: Args, surroundings: &Surroundings) -> Result<Command, Wrong> {
    match args.command {
        Sub::Attach(args) => attach(args, surroundings).map(Command::Attach),
        Sub::Profile(args) => {
            let output = Output::resolve(args.output, surroundings)?;
            let mut watch = watch(output, args.measure, &args.look, surroundings);
            watch.targets = targets(args.target);
            watch.duration = Some(args.duration);
            Ok(Command::Profile(watch))
        }
        Sub::Run(args) => {
            let output = Output::resolve(args.output, surroundings)?;
            let mut watch = watch(output, args.measure, &args.look, surroundings);
            watch.duration = args.duration;
            Ok(Command::Run(watch, args.command))
        }
        Sub::Loops(args) => Ok(Command::Loops(loops(args, surroundings))),
        Sub::Report(args) => resolve_reading::report(args, surroundings).map(Command::Report),
        Sub::Flamegraph(args) => Ok(Command::Flamegraph(resolve_reading::flamegraph(args))),
        Sub::Diff(args) => resolve_reading::diff(args, surroundings).map(Command::Diff),
        Sub::Check(args) => Ok(Command::Check(resolve_reading::check(args, surroundings))),
        Sub::Completions(args) => Ok(Command::Completions(args.shell)),
        Sub::Man(args) => Ok(Command::Man(args.folder)),
        Sub::Doctor(args) => Ok(Command::Doctor(args.format.into())),
        Sub::Demo(args) => Ok(Command::Demo(DemoConfig {
            color: color(args.look.color, None, surroundings),
            width: surroundings.width,
            quiet: args.look.quiet,
            verbose: args.look.verbose,
        })),
        Sub::DemoService(args) => Ok(Command::DemoService(args.args)),
    }
}

fn attach(args: AttachArgs, surroundings: &Surroundings) -> Result<Watch, Wrong> {
    if args.interval.is_some() && args.format != ListFormat::Json {
        let message = "--interval tells how the loops are doing as JSON: add --format json";
        return Err(Wrong::new(ErrorKind::MissingRequiredArgument, message));
    }
    let format = args.format.into();
    let output = Output { format, file: None, flamegraph: None, max_size: u64::MAX };
    let mut watch = watch(output, args.measure, &args.look, surroundings);
    watch.targets = targets(args.target);
    watch.duration = args.duration;
    watch.interval = args.interval;
    watch.live = true;
    Ok(watch)
}

fn loops(args: LoopsArgs, surroundings: &Surroundings) -> LoopsConfig {
    let targets = targets(args.target);
    LoopsConfig {
        targets: (!targets.is_empty()).then_some(targets),
        duration: args.duration,
        format: args.format.into(),
        backend: args.backend,
        color: args.format == ListFormat::Text && color(args.look.color, None, surroundings),
        width: surroundings.width,
        quiet: args.look.quiet,
        verbose: args.look.verbose,
    }
}

fn watch(
    output: Output,
    measure: MeasureArgs,
    look: &LookArgs,
    surroundings: &Surroundings,
) -> Watch {
    let file = output.file.as_deref();
    Watch {
        targets: Targets::default(),
        threshold: measure.threshold,
        duration: None,
        format: output.format,
        color: output.format == Format::Text && color(look.color, file, surroundings),
        width: if file.is_some() { FILE_WIDTH } else { surroundings.width },
        output: output.file,
        flamegraph: output.flamegraph,
        max_size: output.max_size,
        // A killed profiler leaves what lasted then, too.
        live: output.format == Format::Recording,
        backend: measure.backend,
        boundaries: measure.boundaries,
        overhead_budget: measure.overhead_budget,
        stack_bytes: measure.stack_bytes,
        sample_rate: measure.sample_rate,
        python: !measure.no_python,
        interval: None,
        quiet: look.quiet,
        verbose: look.verbose,
        user_code: UserCode { own: measure.user_code, foreign: measure.not_user_code },
    }
}

fn targets(args: TargetArgs) -> Targets {
    let mut pids = Vec::with_capacity(args.pid.len());
    for pid in args.pid {
        if !pids.contains(&pid) {
            pids.push(pid);
        }
    }
    Targets { pids, name: args.name }
}

pub(super) fn color(choice: ColorChoice, file: Option<&Path>, surroundings: &Surroundings) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => file.is_none() && surroundings.color,
    }
}

/// What is written, and where.
struct Output {
    format: Format,
    /// Stdout if `None`.
    file: Option<PathBuf>,
    flamegraph: Option<PathBuf>,
    max_size: u64,
}

impl Output {
    fn resolve(args: OutputArgs, surroundings: &Surroundings) -> Result<Self, Wrong> {
        let conflict = |message: String| Err(Wrong::new(ErrorKind::ArgumentConflict, message));
        let file = args.output.filter(|file| !is_stdout(file));
        let format = match (args.format, &file) {
            (Some(format), _) => format,
            (None, None) => Format::Text,
            (None, Some(file)) => Format::from_path(file).ok_or_else(|| unknown_ending(file))?,
        };
        if let Some(flamegraph) = &args.flamegraph
            && file.as_ref() == Some(flamegraph)
        {
            return conflict(format!(
                "--output and --flamegraph both name {}",
                flamegraph.display()
            ));
        }
        fits_terminal(format, file.as_deref(), surroundings)?;
        Ok(Self { format, file, flamegraph: args.flamegraph, max_size: args.max_size })
    }
}

/// Refuses to show a terminal what is not for people to read.
pub(super) fn fits_terminal(
    format: Format,
    file: Option<&Path>,
    surroundings: &Surroundings,
) -> Result<(), Wrong> {
    if file.is_some() || !surroundings.terminal || !format.is_for_files() {
        return Ok(());
    }
    let (name, ending) = (format.name(), format.ending());
    let message =
        format!("{name} is nothing for a terminal: add --output FILE.{ending}, or redirect stdout");
    Err(Wrong::conflict(message))
}

/// Whether a file stands for standard output.
pub(super) fn is_stdout(file: &Path) -> bool {
    file.as_os_str() == "-"
}

pub(super) fn unknown_ending(file: &Path) -> Wrong {
    let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
    let message = format!(
        "the ending of {} names no format: add --format with one of {}",
        file.display(),
        names.join(", ")
    );
    Wrong::new(ErrorKind::ValueValidation, message)
}
