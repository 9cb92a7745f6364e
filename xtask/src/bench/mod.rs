//! `bench`: what watching costs redis-server or nginx, as the median of alternating pairs of runs.
//!
//! One run with stallscope attached and one without, again and again: drift of the machine hits both
//! alike. Throughput has noise of several percent on a shared machine, so every pair is printed.

mod against;
mod servers;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use servers::{Kind, Server};

use crate::{commands, source_tree, test};

/// Makes the kernel count the time spent in kernel programs.
const BPF_STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

#[derive(Args)]
pub(crate) struct Options {
    /// What is watched
    #[arg(long, default_value = "redis")]
    server: Kind,
    /// Pairs of runs
    #[arg(long, default_value_t = 10)]
    pairs: usize,
    /// Requests in each run, of redis
    #[arg(long, default_value_t = 200_000)]
    requests: u32,
    /// Seconds of each run, of nginx
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Clients at a time
    #[arg(long, default_value_t = 20)]
    clients: u32,
    /// Another build of stallscope: compare what the kernel programs of both cost, instead
    #[arg(long, value_name = "BINARY")]
    against: Option<PathBuf>,
    /// Handed to `stallscope attach`: `--boundaries sched` …
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    options.server.require()?;
    if !commands::is_root() {
        bail!("watching needs root: run `sudo -E cargo xtask bench`");
    }
    if options.pairs == 0 {
        bail!("no pairs, no median: --pairs must be at least 1");
    }
    let stallscope = test::build_stallscope(source_tree::root())?;
    let _statistics = Statistics::on();
    let server = options.server.start()?;

    if let Some(other) = &options.against {
        return against::run(&stallscope, other, &server, options);
    }
    let mut ratios = Vec::new();
    let mut kernel_shares = Vec::new();
    for pair in 0..options.pairs {
        // Who goes first alternates too: the second run of a pair may be the warmer one.
        let (alone, watched) = if pair % 2 == 0 {
            let alone = server.load(options)?.per_second;
            (alone, watched(&stallscope, &server, options)?)
        } else {
            let watched = watched(&stallscope, &server, options)?;
            (server.load(options)?.per_second, watched)
        };
        let ratio = watched.throughput / alone;
        println!(
            "pair {:>2}: {alone:>9.0} /s alone, {:>9.0} /s watched, ratio {ratio:.3}",
            pair + 1,
            watched.throughput
        );
        ratios.push(ratio);
        kernel_shares.extend(watched.kernel_share);
    }
    println!("median throughput ratio: {:.3} ({} pairs)", median(&mut ratios), ratios.len());
    if kernel_shares.is_empty() {
        println!("time in kernel programs: not reported");
    } else {
        println!(
            "median time in kernel programs: {:.2} % of a CPU",
            100.0 * median(&mut kernel_shares)
        );
    }
    Ok(())
}

struct Watched {
    throughput: f64,
    /// Time in kernel programs as a share of one CPU, if the kernel counts it.
    kernel_share: Option<f64>,
}

fn watched(stallscope: &Path, server: &Server, options: &Options) -> Result<Watched> {
    let mut attach = Command::new(stallscope);
    attach
        .args(["attach", "--pid", &server.pid.to_string(), "--format", "json", "-q"])
        .args(&options.arguments)
        .stdout(Stdio::piped());
    let begin = Instant::now();
    let mut running = Running(attach.spawn().context("cannot start stallscope")?);
    sleep(Duration::from_secs(1));
    if let Some(status) = running.0.try_wait()? {
        bail!("stallscope ended before the benchmark began: {status}");
    }
    // Read while it runs: a full pipe would stop it.
    let mut stdout = running.0.stdout.take().context("stallscope has no stdout")?;
    let reader = thread::spawn(move || {
        let mut report = String::new();
        stdout.read_to_string(&mut report).map(|_| report)
    });
    let throughput = server.load(options)?.per_second;
    interrupt(&running.0)?;
    let Ok(report) = reader.join() else { bail!("reading the report panicked") };
    let report = report.context("cannot read stallscope's report")?;
    let wall = begin.elapsed().as_nanos() as f64;
    let health = report
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|line| line["type"] == "health");
    let in_kernel = health.and_then(|health| health["bpf_cpu_ns"].as_f64());
    Ok(Watched { throughput, kernel_share: in_kernel.map(|spent| spent / wall) })
}

fn interrupt(child: &Child) -> Result<()> {
    commands::output(Command::new("kill").args(["-INT", &child.id().to_string()])).map(drop)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

/// A child that ends with us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The kernel's own accounting of kernel programs, put back as it was in the end.
struct Statistics(Option<String>);

impl Statistics {
    fn on() -> Self {
        let before = fs::read_to_string(BPF_STATISTICS).ok();
        let before = before.filter(|_| fs::write(BPF_STATISTICS, "1").is_ok());
        if before.is_none() {
            eprintln!("the kernel does not count the time of kernel programs ({BPF_STATISTICS})");
        }
        Self(before)
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = fs::write(BPF_STATISTICS, before.trim());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
