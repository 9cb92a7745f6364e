//! `demo`: a service that stalls in five ways, watched from outside.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::cli::{Boundaries, DemoConfig, ExitCode};
use crate::demo;
use crate::report::{Format, ReportOptions, Sources};
use crate::session::{Outputs, Settings, Subject, watch};
use crate::symbolize::{SymbolOptions, Symbolizer};

use super::failure::{Failure, require_privileges, say};

const DURATION: Duration = Duration::from_secs(6);
const FLAMEGRAPH: &str = "stallscope-demo.svg";

/// The service's process, which must not outlive the demo.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn run(config: &DemoConfig) -> Result<ExitCode, Failure> {
    require_privileges()?;
    let (service, address) = start()?;
    let pid = service.0.id();
    if !config.quiet {
        say(&format!(
            "the demo service runs as process {pid} on {address}; attaching from outside"
        ));
    }
    let settings = Settings {
        threshold_ns: 10_000_000,
        duration: Some(DURATION),
        live: false,
        boundaries: Boundaries::Auto,
        overhead_budget: 0.05,
        stack_bytes: 36 << 10,
        sample_rate: 1000,
        python: true,
        interval: None,
    };
    let options = ReportOptions {
        color: config.color,
        width: config.width,
        threshold_ns: settings.threshold_ns,
        quiet: config.quiet,
        verbose: config.verbose,
        sources: Sources::Target,
        ..ReportOptions::default()
    };
    let flamegraph = PathBuf::from(FLAMEGRAPH);
    let mut outputs = Outputs::none();
    outputs.add(Format::Text, &options, None)?;
    outputs.add(Format::Svg, &options, Some(&flamegraph))?;
    let symbolizer = Symbolizer::new(SymbolOptions::default());
    // The customers run on a thread of their own, so that they are no part of the measurement.
    let customers = std::thread::spawn(move || -> std::io::Result<demo::LoadReport> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(demo::load(address, DURATION + Duration::from_secs(1))))
    });
    let watched = super::runtime()?.block_on(watch(
        &settings,
        Subject::Processes(vec![pid]),
        symbolizer,
        &mut outputs,
        || {},
    ));
    drop(service);
    let _ = customers.join();
    watched?;
    if !config.quiet {
        say(&format!("wrote the flame graph of stalled time to {FLAMEGRAPH}"));
    }
    Ok(ExitCode::Done)
}

fn start() -> Result<(Service, SocketAddr), Failure> {
    let mut child = Command::new(crate::session::command::own_program())
        .args(["demo-service", "--port", "0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("the demo service can't be started")?;
    let stdout = child.stdout.take();
    let service = Service(child);
    let mut line = String::new();
    if let Some(stdout) = stdout {
        BufReader::new(stdout).read_line(&mut line).context("the demo service says nothing")?;
    }
    let port: u16 = line.trim().parse().context("the demo service gave no port")?;
    Ok((service, SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}
