//! Child processes that never outlive their test.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::gate::patience;
use crate::truth::Truth;

/// One line of output and when it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) arrived_unix_ns: u64,
}

/// Everything a stream has said so far.
#[derive(Default)]
struct Output {
    lines: Mutex<(Vec<Line>, bool)>,
    changed: Condvar,
}

impl Output {
    fn collect(stream: impl Read + Send + 'static) -> Arc<Self> {
        let output = Arc::new(Self::default());
        let writer = Arc::clone(&output);
        thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut bytes = Vec::new();
            while stream.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
                let text = String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned();
                bytes.clear();
                writer.change(|lines| lines.0.push(Line { text, arrived_unix_ns: unix_ns() }));
            }
            writer.change(|lines| lines.1 = true);
        });
        output
    }

    fn change(&self, edit: impl FnOnce(&mut (Vec<Line>, bool))) {
        edit(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Waits until `done` answers; `None` after the time-out or once the stream has ended.
    fn wait_for<T>(
        &self,
        timeout: Duration,
        mut done: impl FnMut(&[Line]) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + timeout;
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(answer) = done(&lines.0) {
                return Some(answer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if lines.1 || left.is_zero() {
                return None;
            }
            lines =
                self.changed.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn wait_for_end(&self, timeout: Duration) {
        self.wait_for(timeout, |_| None::<()>);
    }
}

/// A child in a process group of its own; the group is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    stdout: Arc<Output>,
    stderr: Arc<Output>,
    command: String,
}

impl Process {
    /// Starts a program with both output streams collected.
    pub(crate) fn start(command: &mut Command) -> Self {
        let text = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {text}: {error}"));
        let stdout = Output::collect(child.stdout.take().expect("piped"));
        let stderr = Output::collect(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr, command: text }
    }

    /// CPU time used so far, in clock ticks.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // Fields 14 and 15, user and system time, counted from behind the name.
        let behind = stat.rsplit(") ").next().unwrap_or_default();
        behind.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.stdout.lines()
    }

    pub(crate) fn stdout(&self) -> String {
        join(&self.stdout.lines())
    }

    pub(crate) fn stderr(&self) -> String {
        join(&self.stderr.lines())
    }

    /// Waits for a line of stdout that is JSON and has `key`, and gives its value.
    pub(crate) fn wait_for_key(&self, key: &str) -> Value {
        self.wait_for_json(patience(20), |json| json.get(key).cloned()).unwrap_or_else(|| {
            panic!("{} never said {key}: {}{}", self.command, self.stdout(), self.stderr())
        })
    }

    /// Waits for the first JSON line of stdout that `wanted` accepts.
    pub(crate) fn wait_for_json<T>(
        &self,
        timeout: Duration,
        mut wanted: impl FnMut(&Value) -> Option<T>,
    ) -> Option<T> {
        let mut seen = 0;
        self.stdout.wait_for(timeout, |lines| {
            let new = &lines[seen..];
            seen = lines.len();
            new.iter()
                .filter_map(|line| serde_json::from_str(&line.text).ok())
                .find_map(|json| wanted(&json))
        })
    }

    /// The ground truth it has printed so far.
    pub(crate) fn truths(&self) -> Vec<Truth> {
        self.lines().iter().filter_map(|line| Truth::parse(&line.text)).collect()
    }

    /// Waits until it has told `count` truths.
    pub(crate) fn wait_for_truths(&self, count: usize, timeout: Duration) -> Vec<Truth> {
        let parse = |lines: &[Line]| {
            lines.iter().filter_map(|line| Truth::parse(&line.text)).collect::<Vec<_>>()
        };
        self.stdout
            .wait_for(timeout, |lines| Some(parse(lines)).filter(|truths| truths.len() >= count))
            .unwrap_or_else(|| {
                panic!("{}: fewer than {count} truths: {}", self.command, self.stdout())
            })
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so the pid is its own.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end; `None` if it does not come.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.stdout.wait_for_end(Duration::from_secs(5));
                self.stderr.wait_for_end(Duration::from_secs(5));
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end and fails without it, or if a panic was the reason.
    pub(crate) fn expect_end(&mut self, timeout: Duration) -> ExitStatus {
        let status = self.wait(timeout).unwrap_or_else(|| {
            panic!("{} hangs; stdout: {}\nstderr: {}", self.command, self.stdout(), self.stderr())
        });
        let stderr = self.stderr();
        assert!(!stderr.contains("panicked at"), "{} panicked: {stderr}", self.command);
        assert!(
            status.signal().is_none_or(|s| s != libc::SIGABRT && s != libc::SIGSEGV),
            "{status}: {stderr}"
        );
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: the group's number is the child's pid, which stays taken until the wait below.
        unsafe { libc::kill(-self.child.id().cast_signed(), libc::SIGKILL) };
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn join(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("{}\n", line.text)).collect()
}

/// Nanoseconds since the epoch.
pub(crate) fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_nanos()).expect("before 2554")
}
