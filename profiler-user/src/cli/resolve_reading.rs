//! Raw arguments of the commands that read recordings to a configuration.

use std::path::Path;

use super::Surroundings;
use super::config::{CheckConfig, DiffConfig, FlamegraphConfig, Reading, ReportConfig};
use super::reading::{CheckArgs, DiffArgs, FilterArgs, FlamegraphArgs, ReportArgs};
use super::resolve::{FILE_WIDTH, Wrong, color, is_stdout, unknown_ending};
use crate::aggregate::Filter;
use crate::report::{Format, ReportOptions};

/// Stalls that the text report lists unless asked for more.
const LISTED: usize = 20;

pub(super) fn report(args: ReportArgs, around: &Surroundings) -> Result<ReportConfig, Wrong> {
    let output = args.output.filter(|file| !is_stdout(file));
    let format = match (args.format, &output) {
        (Some(format), _) => format,
        (None, None) => Format::Text,
        (None, Some(file)) => Format::from_path(file).ok_or_else(|| unknown_ending(file))?,
    };
    if args.by.is_some() && !matches!(format, Format::Text | Format::Json) {
        return Err(Wrong::conflict("--by sums up as text or JSON: add --format text or json"));
    }
    if args.longest.is_some() && format != Format::Text {
        return Err(Wrong::conflict("--longest is for the text report"));
    }
    if output.as_deref() == Some(&args.recording) {
        return Err(Wrong::conflict("--output names the recording itself"));
    }
    super::resolve::fits_terminal(format, output.as_deref(), around)?;
    let listed = if args.look.verbose > 0 { usize::MAX } else { LISTED };
    let file = output.as_deref();
    let options = ReportOptions {
        color: format == Format::Text && color(args.look.color, file, around),
        width: if file.is_some() { FILE_WIDTH } else { around.width },
        quiet: args.look.quiet,
        verbose: args.look.verbose,
        ..ReportOptions::default()
    };
    Ok(ReportConfig {
        reading: reading(&args.recording, args.filter),
        by: args.by,
        longest: args.longest.unwrap_or(listed),
        format,
        output,
        options,
    })
}

pub(super) fn flamegraph(args: FlamegraphArgs) -> FlamegraphConfig {
    let output = args.output.unwrap_or_else(|| args.recording.with_extension("svg"));
    FlamegraphConfig {
        reading: reading(&args.recording, args.filter),
        output: (!is_stdout(&output)).then_some(output),
        quiet: args.quiet,
    }
}

pub(super) fn diff(args: DiffArgs, around: &Surroundings) -> Result<DiffConfig, Wrong> {
    let output = args.output.filter(|file| !is_stdout(file));
    let format = match (args.format, &output) {
        (Some(format), _) => format,
        (None, None) => Format::Text,
        (None, Some(file)) => Format::from_path(file).ok_or_else(|| unknown_ending(file))?,
    };
    if !matches!(format, Format::Text | Format::Json | Format::Svg) {
        return Err(Wrong::conflict("a comparison is text, json or svg"));
    }
    super::resolve::fits_terminal(format, output.as_deref(), around)?;
    let before = reading(&args.before, args.filter);
    let after = Reading { recording: args.after, ..before.clone() };
    let width = if output.is_some() { FILE_WIDTH } else { around.width };
    Ok(DiffConfig { before, after, format, output, width, quiet: args.quiet })
}

pub(super) fn check(args: CheckArgs, around: &Surroundings) -> CheckConfig {
    CheckConfig {
        recording: args.recording,
        budgets: args.budget,
        baseline: args.baseline,
        regression: args.regression,
        junit: args.junit,
        format: args.format.into(),
        width: around.width,
    }
}

pub(super) fn reading(recording: &Path, args: FilterArgs) -> Reading {
    let min_duration = args.min_duration.unwrap_or_default();
    Reading {
        recording: recording.to_owned(),
        since: args.since,
        until: args.until,
        filter: Filter {
            causes: args.cause,
            min_duration_ns: u64::try_from(min_duration.as_nanos()).unwrap_or(u64::MAX),
            focus: args.focus,
            ..Filter::default()
        },
        symbols: args.symbols,
    }
}
