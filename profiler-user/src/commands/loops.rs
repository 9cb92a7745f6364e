//! `loops`: which event loops exist here, their utilization and worst turn.

use crate::attach::{self, proc};
use crate::cli::{Boundaries, ExitCode, LoopsConfig};
use crate::report::ReportOptions;
use crate::session::{Outputs, Settings, Subject, watch};
use crate::symbolize::{SymbolOptions, Symbolizer};

use super::failure::{Failure, require_privileges, say};

pub(super) fn run(config: &LoopsConfig) -> Result<ExitCode, Failure> {
    require_privileges()?;
    let pids = match &config.targets {
        Some(targets) => attach::find(&targets.pids, targets.name.as_ref())?,
        None => with_epoll(),
    };
    let watching = format!("watching {} processes for {:?}", pids.len(), config.duration);
    let attached = || {
        if !config.quiet {
            say(&watching);
        }
    };
    let settings = Settings {
        // Nothing is a stall here: only turns are counted.
        threshold_ns: u64::MAX / 4,
        duration: Some(config.duration),
        live: false,
        boundaries: Boundaries::Auto,
        overhead_budget: 0.01,
        stack_bytes: 4096,
        sample_rate: 1,
        python: true,
        interval: None,
    };
    let mut outputs = Outputs::none();
    let options = ReportOptions {
        color: config.color,
        width: config.width,
        threshold_ns: settings.threshold_ns,
        quiet: config.quiet,
        verbose: config.verbose,
        ..ReportOptions::default()
    };
    outputs.add_loops(config.format, &options).map_err(|error| {
        Failure::new(ExitCode::Failed, format!("standard output can't be written: {error}"))
    })?;
    let symbolizer = Symbolizer::new(SymbolOptions::default());
    let outcome = super::runtime()?.block_on(watch(
        &settings,
        Subject::Processes(pids),
        symbolizer,
        &mut outputs,
        attached,
    ))?;
    if !outcome.found_loops && !outputs.closed {
        say("no event loop was seen");
    }
    Ok(ExitCode::Done)
}

/// Processes that have an epoll instance.
fn with_epoll() -> Vec<u32> {
    let own = std::process::id();
    let mut pids: Vec<u32> =
        proc::processes().into_iter().filter(|&pid| pid != own && proc::has_epoll(pid)).collect();
    pids.sort_unstable();
    pids
}
