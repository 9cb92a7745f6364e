//! `attach`, `profile` and `run`.

use std::ffi::OsString;
use std::time::SystemTime;

use crate::attach;
use crate::cli::{ExitCode, Watch};
use crate::record::Start;
use crate::report::{Format, ReportOptions};
use crate::session::{Outputs, Settings, Subject, command::Child, watch};
use crate::symbolize::{SymbolOptions, Symbolizer, UserCode};

use super::failure::{Failure, require_privileges, say};

/// `attach` and `profile`: running processes.
pub(super) fn processes(config: &Watch) -> Result<ExitCode, Failure> {
    require_privileges()?;
    let pids = attach::find(&config.targets.pids, config.targets.name.as_ref())?;
    let subject = described(&pids);
    observe(config, Subject::Processes(pids), &subject, "")
}

/// `run`: a command from its first instruction.
pub(super) fn command(config: &Watch, command: &[OsString]) -> Result<ExitCode, Failure> {
    require_privileges()?;
    let child = Child::start(command)?;
    let name = command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let subject = format!("{} ({})", child.pid(), crate::symbolize::printable(&name));
    observe(config, Subject::Child(child), &subject, ", started now")
}

fn observe(
    config: &Watch,
    subject: Subject,
    subject_name: &str,
    how: &str,
) -> Result<ExitCode, Failure> {
    let settings = settings(config);
    let mut outputs = Outputs::none();
    let options = ReportOptions { start: start(config, subject_name), ..config.report_options() };
    let cannot = |path: &std::path::Path, error: std::io::Error| {
        Failure::new(ExitCode::Failed, format!("{} can't be written: {error}", path.display()))
    };
    let recording = config.output.as_deref().filter(|_| config.format == Format::Recording);
    let added = match recording {
        Some(path) => outputs.add_recording(&options, path, config.max_size),
        None => outputs.add(config.format, &options, config.output.as_deref()),
    };
    added.map_err(|error| cannot(config.output.as_deref().unwrap_or("stdout".as_ref()), error))?;
    if let Some(path) = &config.flamegraph {
        outputs.add(Format::Svg, &options, Some(path)).map_err(|error| cannot(path, error))?;
    }
    let attached = || {
        if !config.quiet {
            say(&format!("watching {subject_name}{how}"));
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

/// What is known when the observation begins.
fn start(config: &Watch, subject: &str) -> Start {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Start {
        began_unix_ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
        threshold_ns: config.threshold_ns(),
        subject: subject.to_owned(),
        host: host.trim().to_owned(),
        kernel: crate::session::kernel_release(),
        stallscope: env!("CARGO_PKG_VERSION").to_owned(),
        ..Start::default()
    }
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
        python: config.python,
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
