//! `doctor`: what works here, what does not, and what that costs.

use std::io::Write as _;

use serde::Serialize;

use crate::attach::btf::KernelTypes;
use crate::attach::{Boundaries, Kernel, KernelError, KernelOptions, privileges};
use crate::cli::ExitCode;
use crate::report::Format;

use super::failure::Failure;

/// One thing that was tried.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    works: bool,
    /// Whether stallscope can't do without it.
    needed: bool,
    /// What was found, or what it means that it is missing.
    note: String,
}

#[derive(Debug, Serialize)]
struct Findings {
    #[serde(rename = "type")]
    kind: &'static str,
    kernel: String,
    usable: bool,
    boundaries: &'static str,
    checks: Vec<Check>,
}

pub(super) fn run(format: Format) -> Result<ExitCode, Failure> {
    let findings = examine();
    let mut out = std::io::stdout().lock();
    let written = if format == Format::Json {
        serde_json::to_string(&findings)
            .map_err(std::io::Error::other)
            .and_then(|text| writeln!(out, "{text}"))
    } else {
        write_text(&mut out, &findings)
    };
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(if findings.usable { ExitCode::Done } else { ExitCode::NotPermitted })
}

fn write_text(out: &mut impl std::io::Write, findings: &Findings) -> std::io::Result<()> {
    writeln!(out, "kernel {}", findings.kernel)?;
    for check in &findings.checks {
        let mark = match (check.works, check.needed) {
            (true, _) => "ok  ",
            (false, true) => "FAIL",
            (false, false) => "--  ",
        };
        writeln!(out, "  {mark}  {:<28} {}", check.name, check.note)?;
    }
    let verdict = if findings.usable {
        format!("stallscope works here; turn boundaries by {}", findings.boundaries)
    } else {
        "stallscope can't work here: see what failed above".to_owned()
    };
    writeln!(out, "{verdict}")
}

fn examine() -> Findings {
    let mut checks = Vec::new();
    for (capability, there) in privileges::all() {
        checks.push(Check {
            name: capability.name,
            works: there,
            needed: true,
            note: format!("for {}", capability.purpose),
        });
    }
    match KernelTypes::of_running_kernel() {
        Ok(types) => {
            checks.push(Check {
                name: "kernel type information",
                works: true,
                needed: true,
                note: "/sys/kernel/btf/vmlinux".to_owned(),
            });
            let arguments = types.tracepoint_arguments("sched_switch").unwrap_or(0);
            checks.push(Check {
                name: "previous state in sched_switch",
                works: arguments >= 4,
                needed: false,
                note: if arguments >= 4 {
                    "passed by the tracepoint".to_owned()
                } else {
                    "read from the task instead (before Linux 5.18)".to_owned()
                },
            });
        }
        Err(error) => checks.push(Check {
            name: "kernel type information",
            works: false,
            needed: true,
            note: error.to_string(),
        }),
    }
    let boundaries = try_programs(&mut checks);
    let symbols = std::fs::read_to_string("/proc/kallsyms")
        .is_ok_and(|text| text.lines().take(64).any(|line| !line.starts_with("0000000000000000")));
    checks.push(Check {
        name: "kernel symbols",
        works: symbols,
        needed: false,
        note: if symbols {
            "/proc/kallsyms"
        } else {
            "hidden (kptr_restrict): kernel frames have no names"
        }
        .to_owned(),
    });
    checks.push(lockdown());
    let usable = checks.iter().all(|check| check.works || !check.needed);
    Findings {
        kind: "doctor",
        kernel: crate::session::kernel_release(),
        usable,
        boundaries: boundaries.name(),
        checks,
    }
}

/// Loads and attaches every program, on no target.
fn try_programs(checks: &mut Vec<Check>) -> Boundaries {
    let options = KernelOptions {
        threshold_ns: 10_000_000,
        sample_rate: 1000,
        stack_bytes: 36 << 10,
        max_loops: 1,
        max_threads: 16,
        follow_forks: false,
        exact: false,
    };
    let mut boundaries = Boundaries::Sched;
    let mut kernel = match Kernel::load(&options) {
        Ok(kernel) => kernel,
        Err(error) => {
            checks.push(failed("kernel programs", true, &error));
            return boundaries;
        }
    };
    let mut attempt = |name, needed, result: Result<(), KernelError>, good: &str| {
        let works = result.is_ok();
        checks.push(match result {
            Ok(()) => Check { name, works: true, needed, note: good.to_owned() },
            Err(error) => failed(name, needed, &error),
        });
        works
    };
    let scheduler = kernel.verify(false, || false).and_then(|()| kernel.attach_scheduler());
    attempt(
        "scheduler programs",
        true,
        scheduler,
        "turns, causes, stacks, resources, holders, Python frames",
    );
    let own = std::process::id();
    attempt("samples on CPU", true, kernel.tick(own), "perf event cpu-clock, per loop thread");
    attempt(
        "task iterator",
        false,
        kernel.snapshot(),
        "loops that are stuck already are seen when attaching",
    );
    let fentry = attempt(
        "fentry on park calls",
        false,
        kernel.arm(Boundaries::Fentry),
        "exact turn boundaries; no other system call pays",
    );
    kernel.disarm();
    let sys_enter = attempt(
        "sys_enter tracepoint",
        false,
        kernel.arm(Boundaries::SysEnter),
        "exact turn boundaries; every system call of the host takes the slow path meanwhile \
         (about 5 % on a syscall-bound server)",
    );
    kernel.disarm();
    if fentry {
        boundaries = Boundaries::Fentry;
    } else if sys_enter {
        boundaries = Boundaries::SysEnter;
    }
    boundaries
}

fn failed(name: &'static str, needed: bool, error: &KernelError) -> Check {
    let text = error.to_string();
    // The rest is the verifier's log.
    let note = text.split(". Verifier output").next().unwrap_or_default();
    let note = note.lines().next().unwrap_or_default().to_owned();
    Check { name, works: false, needed, note }
}

fn lockdown() -> Check {
    let text = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let active = text.split('[').nth(1).and_then(|rest| rest.split(']').next());
    match active {
        Some("none") | None => {
            Check { name: "kernel lockdown", works: true, needed: false, note: "off".to_owned() }
        }
        Some(mode) => Check {
            name: "kernel lockdown",
            works: false,
            needed: false,
            note: format!("{mode}: fentry and kprobes are refused"),
        },
    }
}
