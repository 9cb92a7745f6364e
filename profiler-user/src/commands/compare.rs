//! `diff` and `check`: a recording against another, or against budgets.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

use crate::aggregate::{
    Budgets, Filter, Measured, Observed, StalledTime, Summary, Verdict, compare, regressions,
};
use crate::blame::Stall;
use crate::cli::{CheckConfig, DiffConfig, ExitCode, Reading};
use crate::record::{Reader, Told, replay};
use crate::report::{self, Compared};

use super::failure::{Failure, say};
use super::reading::open;

/// `diff`.
pub(super) fn diff(config: &DiffConfig) -> Result<ExitCode, Failure> {
    let before = compared(&config.before)?;
    let after = compared(&config.after)?;
    let changes = compare(&before.observed, &after.observed);
    let mut out = writer(config.output.as_deref())?;
    let written = report::diff(config.format, &mut out, &before, &after, &changes, config.width);
    finished(written.and_then(|()| out.flush()))?;
    if let Some(path) = config.output.as_ref().filter(|_| !config.quiet) {
        say(&format!("wrote {}", path.display()));
    }
    Ok(ExitCode::Done)
}

fn compared(reading: &Reading) -> Result<Compared, Failure> {
    let (mut reader, filter) = open(reading)?;
    let (mut observed, mut time) = (Observed::default(), StalledTime::default());
    let summary = tell(&mut reader, &filter, |stall| {
        observed.add(stall);
        time.add(stall);
    })?;
    observed.loop_ns = loop_ns(&summary);
    let name = reading.recording.display().to_string();
    Ok(Compared { name, observed, time, warnings: summary.health.warnings })
}

/// `check`.
pub(super) fn check(config: &CheckConfig) -> Result<ExitCode, Failure> {
    let mut budgets = Budgets::new(config.budgets.clone());
    let (summary, observed) = measured(&config.recording, |stall| budgets.add(stall))?;
    let mut verdicts: Vec<Verdict> = budgets.verdicts(&summary);
    if let Some(baseline) = &config.baseline {
        let (before, was) = measured(baseline, |_| {})?;
        let changes = compare(&was, &observed);
        verdicts.extend(regressions(
            Measured { summary: &before, observed: &was },
            Measured { summary: &summary, observed: &observed },
            &changes,
            config.regression,
        ));
    }
    let name = config.recording.display().to_string();
    if let Some(path) = &config.junit {
        let mut out = writer(Some(path))?;
        report::junit(&mut out, &name, &verdicts).and_then(|()| out.flush())?;
    }
    for warning in &summary.health.warnings {
        say(&format!("warning: {}", crate::symbolize::printable(warning)));
    }
    let mut out = io::stdout();
    finished(report::verdicts(config.format, &mut out, &name, &verdicts, config.width))?;
    let kept = verdicts.iter().all(|verdict| verdict.kept);
    Ok(if kept { ExitCode::Done } else { ExitCode::BudgetBroken })
}

fn measured(recording: &Path, mut add: impl FnMut(&Stall)) -> Result<(Summary, Observed), Failure> {
    let reading = Reading {
        recording: recording.to_owned(),
        since: None,
        until: None,
        filter: Filter::default(),
        symbols: Vec::new(),
    };
    let (mut reader, filter) = open(&reading)?;
    let mut observed = Observed::default();
    let summary = tell(&mut reader, &filter, |stall| {
        observed.add(stall);
        add(stall);
    })?;
    observed.loop_ns = loop_ns(&summary);
    Ok((summary, observed))
}

fn tell(
    reader: &mut Reader,
    filter: &Filter,
    mut add: impl FnMut(&Stall),
) -> Result<Summary, Failure> {
    let summary = replay(reader, filter, |told| {
        if let Told::Stall(stall) = told {
            add(stall);
        }
        Ok(())
    })?;
    Ok(summary)
}

/// The time that the loops were watched, together.
fn loop_ns(summary: &Summary) -> u64 {
    summary.loops.iter().fold(0, |sum, one| sum.saturating_add(one.observed_ns))
}

fn writer(output: Option<&Path>) -> Result<BufWriter<Box<dyn Write>>, Failure> {
    let out: Box<dyn Write> = match output {
        Some(path) => Box::new(File::create(path).map_err(|error| {
            Failure::new(ExitCode::Failed, format!("{} can't be written: {error}", path.display()))
        })?),
        None => Box::new(io::stdout()),
    };
    Ok(BufWriter::new(out))
}

/// A closed pipe is no failure.
fn finished(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
