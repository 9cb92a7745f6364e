//! Starts the binary under test, stops it, and collects its report.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::gate::{patience, slowness, threshold};
use crate::process::Process;
use crate::report::Report;

/// `STALLSCOPE_BIN`, or the binary cargo built for this test.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("STALLSCOPE_BIN")
        .map_or_else(|| env!("CARGO_BIN_EXE_stallscope").into(), PathBuf::from)
}

/// The binary with these arguments.
pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments);
    command
}

/// Runs a short command to its end: code, stdout, stderr.
pub(crate) fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut process = Process::start(&mut command(arguments));
    let status = process.expect_end(patience(30));
    (status.code(), process.stdout(), process.stderr())
}

/// A profile or an attach that runs in the background.
pub(crate) struct Watch {
    pub(crate) process: Process,
    started: Instant,
}

impl Watch {
    /// Any command line that watches something until it is stopped; returns before it is attached.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let started = Instant::now();
        Self { process: Process::start(&mut command(arguments)), started }
    }

    /// `profile --format json` of one process, until [`Watch::stop`]; returns once it is attached.
    pub(crate) fn profile(pid: u32) -> Self {
        Self::profile_with(pid, &[])
    }

    /// The same with further flags, which may change those given here.
    pub(crate) fn profile_with(pid: u32, more: &[&str]) -> Self {
        let pid = pid.to_string();
        let stall = threshold_flag();
        let mut arguments = vec!["profile", "--pid", &pid, "--duration", "1h"];
        if !more.contains(&"--format") {
            arguments.extend(["--format", "json"]);
        }
        if !more.contains(&"--boundaries") {
            arguments.extend(["--boundaries", "exact"]);
        }
        if !more.contains(&"--threshold") {
            arguments.extend(["--threshold", &stall]);
        }
        arguments.extend(more);
        let mut watch = Self::start(&arguments);
        watch.wait_until_attached();
        watch
    }

    /// `attach --format json` of one process; returns before it is attached.
    pub(crate) fn attach(pid: u32) -> Self {
        Self::start(&[
            "attach",
            "--pid",
            &pid.to_string(),
            "--threshold",
            &threshold_flag(),
            "--format",
            "json",
        ])
    }

    /// Waits until the kernel side is in place: BPF links are open and their number has settled.
    /// What is printed on the way is for people and not promised to anybody.
    pub(crate) fn wait_until_attached(&mut self) {
        let deadline = Instant::now() + patience(30);
        let (mut open, mut since) = (0, Instant::now());
        while open == 0 || since.elapsed() < Duration::from_millis(300) * slowness() {
            let now = links_of(self.process.pid());
            if now != open {
                (open, since) = (now, Instant::now());
            }
            assert!(
                self.process.is_alive(),
                "it ended instead of attaching: {}",
                self.process.stderr()
            );
            assert!(Instant::now() < deadline, "not attached: {}", self.process.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until it has worked off what it was sent, so that it leaves the CPU to the target.
    pub(crate) fn wait_until_idle(&self) {
        let deadline = Instant::now() + patience(10);
        let (mut used, mut since) = (self.process.cpu_ticks(), Instant::now());
        while since.elapsed() < Duration::from_millis(50) * slowness() {
            std::thread::sleep(Duration::from_millis(10));
            let now = self.process.cpu_ticks();
            if now > used + 1 {
                (used, since) = (now, Instant::now());
            }
            assert!(Instant::now() < deadline, "it never rests");
        }
    }

    /// Waits until it says that nothing is missed from now on: on a busy machine the threads of a large
    /// program are looked at for a while after the links are there.
    pub(crate) fn wait_until_watching(&mut self) {
        let deadline = Instant::now() + patience(60);
        while !self.process.stderr().contains("watching") {
            assert!(self.process.is_alive(), "it ended: {}", self.process.stderr());
            assert!(Instant::now() < deadline, "not watching: {}", self.process.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets the last turn end, which goes on for a moment after its answer was sent, then stops.
    pub(crate) fn settle_and_stop(self) -> Report {
        self.settle();
        self.stop()
    }

    /// Lets the last turn end.
    pub(crate) fn settle(&self) {
        std::thread::sleep(Duration::from_millis(600) * slowness().min(3));
    }

    /// Ctrl-C, then the report. The command must end at once, with code 0.
    pub(crate) fn stop(mut self) -> Report {
        self.process.signal(libc::SIGINT);
        let status = self.process.expect_end(patience(30));
        assert_eq!(status.code(), Some(0), "after Ctrl-C: {}", self.process.stderr());
        Report::read(&self.process.stdout())
    }

    /// The report of a command that ends by itself, and its status.
    pub(crate) fn finish(mut self, timeout: Duration) -> (ExitStatus, Report) {
        let status = self.process.expect_end(timeout);
        assert!(status.signal().is_none(), "killed: {status}");
        (status, Report::read(&self.process.stdout()))
    }

    /// How long ago it was started.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }
}

fn threshold_flag() -> String {
    format!("{}ms", threshold().as_millis())
}

/// How many BPF links and perf events a process has open.
fn links_of(pid: u32) -> usize {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let kernel_side = |target: &Path| {
        target.to_str().is_some_and(|t| {
            t.contains("bpf_link") || t.contains("bpf-link") || t.contains("raw-tp")
        })
    };
    entries
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|t| kernel_side(t))
        .count()
}
