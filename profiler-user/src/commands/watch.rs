//! `attach`, `profile` and `run`.

use std::ffi::OsString;

use crate::attach;
use crate::cli::{ExitCode, Watch};
use crate::report::Format;
use crate::session::{Outputs, Settings, Subject, command::Child, watch};
use crate::symbolize::{SymbolOptions, Symbolizer, UserCode};

use super::failure::{Failure, require_privileges, say};

/// `attach` and `profile`: running processes.
pub(super) fn processes(config: &Watch) -> Result<ExitCode, Failure> {
    require_privileges()?;
    let pids = attach::find(&config.targets.pids, config.targets.name.as_ref())?;
    let watching = format!("watching {}", described(&pids));
    observe(config, Subject::Processes(pids), &watching)
}

/// `run`: a command from its first instruction.
pub(super) fn command(config: &Watch, command: &[OsString]) -> Result<ExitCode, Failure> {
    require_privileges()?;
    let child = Child::start(command)?;
    let watching = format!("watching {}, started now", child.pid());
    observe(config, Subject::Child(child), &watching)
}

fn observe(config: &Watch, subject: Subject, watching: &str) -> Result<ExitCode, Failure> {
    let settings = settings(config);
    let mut outputs = Outputs::none();
    let options = config.report_options();
    let cannot = |path: &std::path::Path, error: std::io::Error| {
        Failure::new(ExitCode::Failed, format!("{} can't be written: {error}", path.display()))
    };
    outputs
        .add(config.format, &options, config.output.as_deref())
        .map_err(|error| cannot(config.output.as_deref().unwrap_or("stdout".as_ref()), error))?;
    if let Some(path) = &config.flamegraph {
        outputs.add(Format::Svg, &options, Some(path)).map_err(|error| cannot(path, error))?;
    }
    let attached = || {
        if !config.quiet {
            say(watching);
        }
    };
    let symbolizer = symbolizer(config)?;
    let watched = watch(&settings, subject, symbolizer, &mut outputs, attached);
    let outcome = super::runtime()?.block_on(watched)?;
    if !outcome.found_loops && !outputs.closed {
        say("no event loop was seen: no thread waited in epoll, poll, select or io_uring");
    }
    if !config.quiet {
        for path in [&config.output, &config.flamegraph].into_iter().flatten() {
            say(&format!("wrote {}", path.display()));
        }
    }
    Ok(ExitCode::Done)
}

pub(super) fn settings(config: &Watch) -> Settings {
    Settings {
        threshold_ns: config.threshold_ns(),
        duration: config.duration,
        live: config.live,
        boundaries: config.boundaries,
        overhead_budget: config.overhead_budget,
        stack_bytes: config.stack_bytes,
        sample_rate: config.sample_rate,
        interval: config.interval,
    }
}

fn symbolizer(config: &Watch) -> Result<Symbolizer, Failure> {
    let mut user_code = UserCode::default();
    let wrong = |error: regex::Error| Failure::new(ExitCode::Usage, error.to_string());
    for own in &config.user_code.own {
        user_code = user_code.include(own.as_str()).map_err(wrong)?;
    }
    for foreign in &config.user_code.foreign {
        user_code = user_code.exclude(foreign.as_str()).map_err(wrong)?;
    }
    Ok(Symbolizer::new(SymbolOptions { user_code, ..SymbolOptions::default() }))
}

fn described(pids: &[u32]) -> String {
    const SHOWN: usize = 4;
    let name = |pid: &u32| {
        let name = attach::proc::name(*pid).unwrap_or_default();
        format!("{pid} ({})", crate::symbolize::printable(&name))
    };
    let mut text = pids.iter().take(SHOWN).map(name).collect::<Vec<_>>().join(", ");
    if pids.len() > SHOWN {
        text.push_str(&format!(" and {} more", pids.len() - SHOWN));
    }
    text
}
