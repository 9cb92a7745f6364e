//! What a stalled thread waited for, and who made it wait: one program for each kind, all watched
//! together, each with the truth of its own.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::fixtures::{Folder, c, crate_causes, cxx, rust};
use crate::gate::{enter, has_programs, patience};
use crate::group::Group;
use crate::process::Process;
use crate::report::{Report, Stall};
use crate::stallscope::Watch;
use crate::truth::Truth;

/// What must be said of one kind of blocking call.
pub(crate) struct Row {
    /// The program that makes it.
    pub(crate) program: &'static str,
    /// The program's argument, and endpoint of its truths.
    pub(crate) name: &'static str,
    pub(crate) cause: &'static str,
    pub(crate) detail: Option<&'static str>,
    /// The system call of the stack that is blamed.
    pub(crate) call: Option<&'static str>,
    /// System call of the resource, and the resource with `{folder}`, `{helper}` and what else the
    /// program said in the place of names; `*` is any text.
    pub(crate) resource: Option<(&'static str, &'static str)>,
    /// Thread and function of the holder.
    pub(crate) holder: Option<(&'static str, &'static str)>,
    /// The file behind the mapping that a fault waits for.
    pub(crate) mapped: Option<&'static str>,
    /// Whether the kernel works for it.
    pub(crate) in_kernel: bool,
}

pub(crate) const BLANK: Row = Row {
    program: "causes",
    name: "",
    cause: "syscall",
    detail: None,
    call: None,
    resource: None,
    holder: None,
    mapped: None,
    in_kernel: false,
};

const SOCKET: Row = Row { program: "socket_causes", ..BLANK };
const RUST: Row = Row { program: "rust_causes", cause: "lock", ..BLANK };
const CRATE: Row = Row { program: "crate_causes", ..RUST };
const PROCESS: Row = Row { program: "process_causes", ..BLANK };

const ROWS: [Row; 16] = [
    Row {
        name: "pipe",
        resource: Some(("read", "pipe *, other end pid {helper} (slow-writer)")),
        ..BLANK
    },
    Row { name: "fifo", resource: Some(("openat", "{folder}/fifo")), ..BLANK },
    Row { name: "hostile", resource: Some(("openat", "{folder}/xxxx*forged/fifo[31m")), ..BLANK },
    Row { name: "tty", resource: Some(("write", "tty {terminal}")), ..BLANK },
    Row { name: "tcp", resource: Some(("recvfrom", "tcp {client} -> {server}")), ..BLANK },
    Row {
        name: "datagram",
        resource: Some((
            "sendto",
            "unix datagram -> {folder}/log, other end pid {helper} (slow-logger)",
        )),
        ..BLANK
    },
    Row {
        name: "eventfd",
        resource: Some(("read", "eventfd, other end thread {helper} (event-writer)")),
        ..BLANK
    },
    Row { name: "child", resource: Some(("wait4", "child {helper} (sleep)")), ..BLANK },
    Row { name: "sleep", resource: Some(("clock_nanosleep", "80ms asked for")), ..BLANK },
    Row {
        name: "flock",
        resource: Some(("flock", "{folder}/lockfile locked by pid {helper} (lock-holder)")),
        ..BLANK
    },
    // A loop inside of the loop, which waits for a child.
    Row {
        program: "nested_causes",
        name: "nested",
        call: Some("epoll_wait"),
        resource: Some(("epoll_wait", "epoll*")),
        ..BLANK
    },
    Row {
        program: "nested_causes",
        name: "uring",
        call: Some("io_uring_enter"),
        resource: Some(("io_uring_enter", "io_uring*")),
        ..BLANK
    },
    Row { name: "mutex", cause: "lock", holder: Some(("mutex-holder", "hold_mutex")), ..BLANK },
    Row { name: "rwlock", cause: "lock", holder: Some(("rwlock-writer", "write_locked")), ..BLANK },
    Row {
        name: "condvar",
        cause: "lock",
        detail: Some("condvar"),
        holder: Some(("signaller", "signal_late")),
        ..BLANK
    },
    Row {
        name: "join",
        cause: "lock",
        detail: Some("join"),
        holder: Some(("short-lived", "start_thread")),
        ..BLANK
    },
];

/// A fixture's binary by its name, which says what it is written in.
fn program_of(name: &str) -> PathBuf {
    match name.split_once('_') {
        Some(("rust", _)) => rust(name),
        Some(("crate", _)) => crate_causes(),
        Some(("cxx", _)) => cxx(name),
        _ => c(name),
    }
}

/// A running `causes`.
pub(crate) struct Running {
    pub(crate) process: Process,
    folder: Folder,
}

impl Running {
    pub(crate) fn start(row: &str) -> Self {
        Self::of("causes", row, Duration::from_millis(80))
    }

    /// A row of any of the programs, whose calls block for a time of the caller's choice.
    pub(crate) fn of(program: &str, row: &str, blocks: Duration) -> Self {
        let folder = Folder::new(&format!("waits-{row}"));
        let blocks = blocks.as_millis().to_string();
        let binary = program_of(program);
        let mut command = Command::new(binary);
        let process = Process::start(command.arg(row).arg(folder.path()).arg(blocks));
        process.wait_for_key("ready");
        Self { process, folder }
    }

    /// A row that is a member of a group from its first page of memory on.
    pub(crate) fn start_in(group: &Group, program: &str, row: &str) -> Self {
        let folder = Folder::new(&format!("waits-{row}"));
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(group.members());
        let process = Process::start(command.arg(c(program)).arg(row).arg(folder.path()));
        process.wait_for_key("ready");
        Self { process, folder }
    }

    pub(crate) fn begin(&self) {
        self.folder.write("begin", "");
    }

    pub(crate) fn wait_until_finished(&self) {
        self.process
            .wait_for_json(patience(20), |json| json.get("finished").cloned())
            .unwrap_or_else(|| panic!("not finished: {}", self.process.stdout()));
    }

    /// What the program said about itself, by key; of several, the last one before the truth with
    /// this number: children that live for one call only.
    pub(crate) fn said(&self, key: &str, truth: usize) -> String {
        let mut truths = 0;
        let mut said = None;
        for line in self.process.lines() {
            if truths > truth {
                break;
            }
            let Ok(json) = serde_json::from_str::<Value>(&line.text) else { continue };
            said = json.get(key).cloned().or(said);
            truths += usize::from(Truth::parse(&line.text).is_some());
        }
        match said.unwrap_or_else(|| panic!("no {key}: {}", self.process.stdout())) {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    pub(crate) fn fill_in(&self, pattern: &str, truth: usize) -> String {
        let mut text = pattern.replace("{folder}", &self.folder.path().display().to_string());
        for key in ["helper", "terminal", "client", "server"] {
            let place = format!("{{{key}}}");
            if text.contains(&place) {
                text = text.replace(&place, &self.said(key, truth));
            }
        }
        text
    }
}

pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => {
            text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        }
        None => pattern == text,
    }
}

/// Watches programs together, each of which is told to begin then.
pub(crate) fn begin(running: &[Running]) -> Watch {
    let pids: Vec<String> = running.iter().map(|one| one.process.pid().to_string()).collect();
    let more: Vec<&str> = pids[1..].iter().flat_map(|pid| ["--pid", pid]).collect();
    let mut watch = Watch::profile_with(running[0].process.pid(), &more);
    // On a machine that is much too slow the links may seem to be complete before they are.
    watch.wait_until_watching();
    for one in running {
        one.begin();
    }
    watch
}

/// Watches the rows' programs together while each makes its calls, and checks every stall.
pub(crate) fn check_all(rows: &[Row]) {
    let blocks = Duration::from_millis(80);
    let start = |row: &Row| Running::of(row.program, row.name, blocks);
    check_running(rows, &rows.iter().map(start).collect::<Vec<_>>());
}

/// The same for rows that run already, each ready to begin.
pub(crate) fn check_running(rows: &[Row], running: &[Running]) {
    let watch = begin(running);
    for one in running {
        one.wait_until_finished();
    }
    let report = watch.settle_and_stop();
    for (row, running) in rows.iter().zip(running) {
        let truths = running.process.truths();
        assert!(!truths.is_empty());
        let mut seen = 0;
        for (number, truth) in truths.iter().enumerate() {
            let stall = stall_of(&report, truth);
            // On a busy machine a computation may wait for the CPU for longer than it has it.
            if row.cause == "cpu" && stall.cause == "runqueue" && stall.ledger("cpu_ns") > 0 {
                continue;
            }
            check(row, running, number, stall);
            seen += 1;
        }
        assert!(seen > 0, "a machine too busy to see {} but for its queue: {report:#?}", row.name);
    }
}

/// The stall that a call was in.
pub(crate) fn stall_of<'a>(report: &'a Report, truth: &Truth) -> &'a Stall {
    let mut stalls = report.stalls.iter().filter(|stall| !stall.ongoing && truth.is_in(stall));
    let stall = stalls.next().unwrap_or_else(|| panic!("no stall for {truth:?}: {report:#?}"));
    assert!(stalls.next().is_none(), "two stalls for {truth:?}: {report:#?}");
    stall
}

pub(crate) fn is_fixture(file: &str) -> bool {
    ["causes.c", "causes.cpp", "causes.rs"].iter().any(|end| file.ends_with(end))
}

fn check(row: &Row, running: &Running, number: usize, stall: &Stall) {
    assert_eq!((&*stall.cause, stall.detail.as_deref()), (row.cause, row.detail), "{stall:#?}");
    let blocker = stall.blocker.as_ref().expect("checked on reading");
    assert!(blocker.file.as_deref().is_some_and(is_fixture), "{stall:#?}");
    let mapped = row.mapped.map(|pattern| running.fill_in(pattern, number));
    assert_eq!(stall.stack().resource, mapped, "{stall:#?}");
    if row.in_kernel {
        assert!(stall.kernel_share.is_some_and(|share| share > 0.8), "{stall:#?}");
    }
    stall.check_others(row.cause);
    if row.call.is_some() {
        assert_eq!(stall.stack().call.as_deref(), row.call, "{stall:#?}");
    }
    if let Some((call, pattern)) = row.resource {
        let wanted = running.fill_in(pattern, number);
        let found = stall.syscalls.iter().find(|slept| slept.name == call);
        let found = found.and_then(|slept| slept.resource.as_deref());
        assert!(found.is_some_and(|found| matches(&wanted, found)), "{wanted:?}: {stall:#?}");
        assert!(!found.unwrap_or_default().contains(char::is_control), "{stall:#?}");
    }
    if let Some((thread, function)) = row.holder {
        let holder =
            stall.stack().holder.as_ref().unwrap_or_else(|| panic!("no holder: {stall:#?}"));
        assert_eq!(&*holder.thread, thread, "{stall:#?}");
        assert_eq!(holder.tid.to_string(), running.said("helper", number), "{stall:#?}");
        assert!(holder.frames.iter().any(|frame| frame.function == function), "{holder:#?}");
        // The one that waits is not to blame for what the other holds.
        assert_ne!(holder.tid, stall.tid);
    } else {
        assert!(stall.stacks.iter().all(|stack| stack.holder.is_none()), "{stall:#?}");
    }
    assert!(stall.outside.is_none() && stall.advice.is_some(), "{stall:#?}");
}

#[test]
fn the_other_end_of_a_socket_is_named() {
    let Some(_turn) = enter() else { return };
    check_all(&[
        Row { name: "udp", resource: Some(("recvfrom", "udp {client} -> {server}")), ..SOCKET },
        Row {
            name: "stream",
            resource: Some((
                "read",
                "unix stream -> {folder}/stream, other end pid {helper} (slow-backend)",
            )),
            ..SOCKET
        },
        Row {
            name: "connect",
            resource: Some((
                "connect",
                "unix stream -> {folder}/full, other end pid {helper} (slow-acceptor)",
            )),
            ..SOCKET
        },
        // Nobody answers: who listens has no room, and who should listen is not there.
        Row {
            name: "backlog",
            resource: Some(("connect", "tcp 127.0.0.1:* -> {server}")),
            ..SOCKET
        },
        Row {
            name: "blackhole",
            resource: Some(("connect", "tcp 10.77.0.1:* -> 10.77.7.7:80")),
            ..SOCKET
        },
        Row {
            name: "accept",
            resource: Some((
                "accept",
                "unix stream {folder}/listener, other end pid {helper} (slow-caller)",
            )),
            ..SOCKET
        },
    ]);
}

#[test]
fn what_another_process_does_late_is_waited_for_in_its_name() {
    let Some(_turn) = enter() else { return };
    let locked = Some(("fcntl", "{folder}/lockfile locked by pid {helper} (lock-holder)"));
    let memory = Some(("flock", "memfd:shared locked by pid {helper} (lock-holder)"));
    check_all(&[
        Row { name: "waitid", resource: Some(("waitid", "child {helper} (sleep)")), ..PROCESS },
        Row { name: "vfork", detail: Some("fork"), call: Some("vfork"), ..PROCESS },
        Row { name: "fcntl", resource: locked, ..PROCESS },
        Row { name: "memfd", resource: memory, ..PROCESS },
    ]);
}

/// Locks of crates that wake who waits by its own word, not by the lock's.
#[test]
fn who_lets_go_of_a_lock_of_parking_lot_s_is_named_and_its_regular_expressions_are() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["cargo"]) {
        return;
    }
    check_all(&[
        Row { name: "mutex", holder: Some(("mutex-holder", "crate_causes::hold_mutex")), ..CRATE },
        Row {
            name: "condvar",
            detail: Some("condvar"),
            holder: Some(("notifier", "crate_causes::notify_late")),
            ..CRATE
        },
        Row { name: "regex", cause: "cpu", detail: Some("regex"), ..CRATE },
    ]);
}

/// Nothing in memory says who has one of these.
#[test]
fn who_lets_go_of_a_lock_of_rust_s_is_named_with_its_stack() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["rustc"]) {
        return;
    }
    check_all(&[
        Row { name: "mutex", holder: Some(("mutex-holder", "rust_causes::hold_mutex")), ..RUST },
        Row {
            name: "rwlock",
            holder: Some(("rwlock-writer", "rust_causes::write_locked")),
            ..RUST
        },
        Row {
            name: "condvar",
            detail: Some("condvar"),
            holder: Some(("notifier", "rust_causes::notify_late")),
            ..RUST
        },
        Row {
            name: "channel",
            detail: Some("channel"),
            holder: Some(("sender", "rust_causes::send_late")),
            ..RUST
        },
        Row {
            name: "join",
            detail: Some("join"),
            holder: Some(("short-lived", "start_thread")),
            ..RUST
        },
    ]);
}

#[test]
fn every_wait_is_named_with_its_resource_or_its_holder() {
    let Some(_turn) = enter() else { return };
    check_all(&ROWS);
}
