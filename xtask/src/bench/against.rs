//! `bench --against BINARY`: what the kernel programs of two builds cost on the same healthy server, by the
//! kernel's own account of each program's runs and their time.
//!
//! Both builds watch the same server under the same load, in turns. A healthy server has no stalls:
//! what a build does for stalls only must not show here.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::servers::Server;
use super::{Options, Running, interrupt, median};

/// Until programs are attached and the first look at every thread is over.
const SETTLES: Duration = Duration::from_secs(2);

/// Time in kernel programs and their runs, so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Account {
    time_ns: u64,
    runs: u64,
}

/// What one run cost.
struct Cost {
    ns_per_run: f64,
    runs_per_request: f64,
    ns_per_request: f64,
}

pub(super) fn run(ours: &Path, other: &Path, server: &Server, options: &Options) -> Result<()> {
    let mut costs: [Vec<Cost>; 2] = [Vec::new(), Vec::new()];
    for pair in 0..options.pairs {
        // Who goes first alternates: the second of a pair may find a warmer machine.
        for which in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            let binary = [other, ours][which];
            costs[which].push(cost(binary, server, options)?);
        }
        let told = [&costs[0][pair], &costs[1][pair]];
        println!(
            "pair {:>2}: other {:>6.1} ns a run, {:>6.1} ns a request; this {:>6.1} ns a run, {:>6.1} ns a request; \
             ratio {:.3}",
            pair + 1,
            told[0].ns_per_run,
            told[0].ns_per_request,
            told[1].ns_per_run,
            told[1].ns_per_request,
            told[1].ns_per_request / told[0].ns_per_request
        );
    }
    let middle = |which: usize, of: fn(&Cost) -> f64| {
        median(&mut costs[which].iter().map(of).collect::<Vec<_>>())
    };
    for (which, name) in ["other", "this"].into_iter().enumerate() {
        println!(
            "{name:>5}: median {:.1} ns a run, {:.2} runs and {:.1} ns a request",
            middle(which, |cost| cost.ns_per_run),
            middle(which, |cost| cost.runs_per_request),
            middle(which, |cost| cost.ns_per_request)
        );
    }
    let ratio = |of: fn(&Cost) -> f64| {
        let pairs = costs[0].iter().zip(&costs[1]);
        median(&mut pairs.map(|(other, this)| of(this) / of(other)).collect::<Vec<_>>())
    };
    println!(
        "median of the pairs' ratios: {:.3} of the time a run, {:.3} of the time a request ({} pairs)",
        ratio(|cost| cost.ns_per_run),
        ratio(|cost| cost.ns_per_request),
        options.pairs
    );
    Ok(())
}

fn cost(binary: &Path, server: &Server, options: &Options) -> Result<Cost> {
    let mut attach = Command::new(binary);
    attach
        .args(["attach", "--pid", &server.pid.to_string(), "--format", "json", "-q"])
        .args(&options.arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut running = Running(attach.spawn().context("cannot start stallscope")?);
    sleep(SETTLES);
    if let Some(status) = running.0.try_wait()? {
        bail!("{} ended before the benchmark began: {status}", binary.display());
    }
    let before = account(&running.0)?;
    let requests = server.load(options)?.requests;
    let after = account(&running.0)?;
    interrupt(&running.0)?;
    running.0.wait()?;
    let time_ns = after.time_ns.saturating_sub(before.time_ns) as f64;
    let runs = after.runs.saturating_sub(before.runs) as f64;
    if runs == 0.0 {
        bail!("no kernel program of {} ran", binary.display());
    }
    Ok(Cost {
        ns_per_run: time_ns / runs,
        runs_per_request: runs / requests,
        ns_per_request: time_ns / requests,
    })
}

/// The sum over all programs that a process has open, each counted once.
fn account(process: &Child) -> Result<Account> {
    let mut by_program = HashMap::new();
    let folder = format!("/proc/{}/fdinfo", process.id());
    for entry in fs::read_dir(&folder).with_context(|| folder.clone())?.flatten() {
        // A descriptor may be closed meanwhile.
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        if let Some((program, account)) = program(&text) {
            by_program.insert(program, account);
        }
    }
    let add = |sum: Account, one: &Account| Account {
        time_ns: sum.time_ns + one.time_ns,
        runs: sum.runs + one.runs,
    };
    Ok(by_program.values().fold(Account::default(), add))
}

/// A program's number and account, if that is what a descriptor is of.
fn program(fdinfo: &str) -> Option<(u64, Account)> {
    let number = |key: &str| {
        let line = fdinfo.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_start_matches(':').trim().parse().ok()
    };
    let account = Account { time_ns: number("run_time_ns")?, runs: number("run_cnt")? };
    Some((number("prog_id")?, account))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_s_account_is_read_and_nothing_else_is_one() {
        let program_s = "pos:\t0\nprog_type:\t26\nprog_id:\t7\nrun_time_ns:\t4200\nrun_cnt:\t20\n";
        assert_eq!(program(program_s), Some((7, Account { time_ns: 4200, runs: 20 })));
        assert_eq!(program("pos:\t0\nlink_type:\ttracing\nprog_id:\t7\n"), None);
    }
}
