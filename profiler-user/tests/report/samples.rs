//! Stalls made by hand: one of every kind that looks different in a report.

use std::sync::Arc;

use stallscope::blame::{
    Blocker, Boundary, Holder, Outside, Runtime, Stack, Stall, SyscallUse, Task,
};
use stallscope::stalls::{Cause, Ledger};
use stallscope::symbolize::{Frame, FrameKind, Origin};

/// 2026-11-30, 14:03:07.123 UTC.
pub(crate) const START: u64 = 1_796_047_387_123_000_000;
pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn frame(
    function: &str,
    place: Option<(&str, u32)>,
    kind: FrameKind,
    own: bool,
) -> Frame {
    Frame {
        function: function.into(),
        file: place.map(|(file, _)| file.into()),
        line: place.map(|(_, line)| line),
        module: None,
        kind,
        inlined: false,
        user_code: own,
        named: true,
        origin: Origin::default(),
    }
}

fn module(function: &str, module: &str) -> Frame {
    Frame { module: Some(module.into()), ..frame(function, None, FrameKind::Native, false) }
}

fn kernel(function: &str) -> Frame {
    Frame { module: Some("[kernel]".into()), ..frame(function, None, FrameKind::Kernel, false) }
}

pub(crate) fn ledger(entries: &[(Cause, u64)]) -> Ledger {
    let mut ledger = Ledger::default();
    for &(cause, ns) in entries {
        ledger.add(cause, ns);
    }
    ledger
}

pub(crate) fn blocker(frame: &Frame, share: f64) -> Blocker {
    Blocker {
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
        kind: frame.kind,
        share,
    }
}

pub(crate) fn stack(cause: Cause, total_ns: u64, samples: u32, frames: Vec<Frame>) -> Stack {
    Stack::new(cause, total_ns, samples, frames)
}

/// A stall with a ledger and nothing else known.
pub(crate) fn bare(at_ms: u64, entries: &[(Cause, u64)]) -> Stall {
    let ledger = ledger(entries);
    Stall {
        start_unix_ns: START + at_ms * MS,
        duration_ns: ledger.total(),
        ongoing: false,
        at_attach: false,
        pid: 4711,
        tid: 4711,
        thread: "python3".into(),
        runtime: Runtime::Asyncio,
        ledger,
        cause: ledger.largest(),
        detail: None,
        boundary: Boundary::Exact,
        kernel_share: None,
        syscalls: Vec::new(),
        blocker: None,
        parts: Vec::new(),
        stacks: Vec::new(),
        ready_sockets: None,
        outside: None,
        task: None,
        advice: None,
    }
}

pub(crate) fn python(function: &str, file: &str, line: u32, own: bool) -> Frame {
    frame(function, Some((file, line)), FrameKind::Python, own)
}

pub(crate) fn asyncio_root() -> Vec<Frame> {
    let base = "/usr/lib/python3.13/asyncio/base_events.py";
    let mut frames =
        vec![module("_start", "/usr/bin/python3.13"), module("main", "/usr/bin/python3.13")];
    frames.push(python("<module>", "/srv/shop/main.py", 12, true));
    frames.extend([
        python("run", "/usr/lib/python3.13/asyncio/runners.py", 195, false),
        python("Runner.run", "/usr/lib/python3.13/asyncio/runners.py", 118, false),
        python("BaseEventLoop.run_until_complete", base, 712, false),
        python("BaseEventLoop.run_forever", base, 683, false),
        python("BaseEventLoop._run_once", base, 2050, false),
        python("Handle._run", "/usr/lib/python3.13/asyncio/events.py", 89, false),
    ]);
    frames
}

/// `requests.get` in a coroutine.
pub(crate) fn requests(at_ms: u64, duration_ms: u64) -> Stall {
    let packages = "/srv/shop/.venv/lib/python3.13/site-packages";
    let own = python("fetch_user", "/srv/shop/app/handlers.py", 35, true);
    let mut frames = asyncio_root();
    frames.push(python("handle", "/srv/shop/app/handlers.py", 61, true));
    frames.push(own.clone());
    frames.push(python("get", &format!("{packages}/requests/api.py"), 73, false));
    for (i, name) in
        ["request", "Session.request", "Session.send", "HTTPAdapter.send"].iter().enumerate()
    {
        frames.push(python(
            name,
            &format!("{packages}/requests/sessions.py"),
            500 + i as u32,
            false,
        ));
    }
    frames.push(python("SocketIO.readinto", "/usr/lib/python3.13/socket.py", 719, false));
    frames.push(module("__libc_recv", "/usr/lib/x86_64-linux-gnu/libc.so.6"));
    for name in ["entry_SYSCALL_64", "do_syscall_64", "__sys_recvfrom", "tcp_recvmsg", "schedule"] {
        frames.push(kernel(name));
    }
    let asleep = (duration_ms - 2) * MS;
    let mut stall = bare(
        at_ms,
        &[(Cause::Syscall, asleep), (Cause::Cpu, 1_600_000), (Cause::Runqueue, 400_000)],
    );
    stall.syscalls = vec![
        SyscallUse {
            name: "recvfrom",
            count: 2,
            total_ns: asleep - MS,
            max_ns: asleep - 3 * MS,
            resource: Some("tcp 127.0.0.1:40312 -> 127.0.0.1:9101".into()),
        },
        SyscallUse {
            name: "connect",
            count: 1,
            total_ns: MS,
            max_ns: MS,
            resource: Some("tcp 127.0.0.1:9101".into()),
        },
    ];
    stall.blocker = Some(blocker(&own, 0.998));
    stall.stacks = vec![stack(Cause::Syscall, asleep - 2 * MS, 2, frames)];
    stall.task = Some(Task {
        name: "Task-42".into(),
        chain: vec!["RequestResponseCycle.run_asgi".into(), "handle".into()],
    });
    stall.advice = Some(
        "a blocking client holds the loop: use its async version (httpx.AsyncClient, aiohttp), or \
         call it in asyncio.to_thread"
            .into(),
    );
    stall
}

/// A tokio worker that hashes in a task; the blocker is an inlined frame.
pub(crate) fn tokio(at_ms: u64) -> Stall {
    let native = |function: &str, file: &str, line, own, inlined| Frame {
        inlined,
        module: Some("/srv/api/target/release/api".into()),
        ..frame(function, Some((file, line)), FrameKind::Native, own)
    };
    let cargo = "/home/me/.cargo/registry/src/registry-0123456789abcdef/tokio-1.48.0/src/runtime";
    let own = native("api::password::stretch", "/srv/api/src/password.rs", 41, true, true);
    let mut frames = vec![
        module("__GI___clone3", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
        module("start_thread", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
    ];
    for (name, file, line) in [
        ("std::sys::thread::unix::Thread::new::thread_start", "blocking/pool.rs", 501),
        ("tokio::runtime::blocking::pool::Inner::run", "blocking/pool.rs", 529),
        (
            "tokio::runtime::scheduler::multi_thread::worker::run",
            "scheduler/multi_thread/worker.rs",
            530,
        ),
        (
            "tokio::runtime::scheduler::multi_thread::worker::Context::run_task",
            "scheduler/multi_thread/worker.rs",
            598,
        ),
        ("tokio::runtime::task::harness::Harness<T,S>::poll", "task/harness.rs", 153),
    ] {
        frames.push(native(name, &format!("{cargo}/{file}"), line, false, false));
    }
    frames.extend([
        native("api::routes::login::{{closure}}", "/srv/api/src/routes.rs", 88, true, false),
        native("api::password::verify", "/srv/api/src/password.rs", 23, true, true),
        own.clone(),
        native(
            "<sha2::Sha256 as digest::Digest>::digest",
            "/home/me/.cargo/registry/src/registry-0123456789abcdef/digest-0.10.7/src/digest.rs",
            62,
            false,
            true,
        ),
        native(
            "sha2::sha256::x86::digest_blocks",
            "/home/me/.cargo/registry/src/registry-0123456789abcdef/sha2-0.10.9/src/sha256/x86.rs",
            40,
            false,
            false,
        ),
    ]);
    let mut other = frames.clone();
    other.truncate(other.len() - 3);
    let mut stall = bare(at_ms, &[(Cause::Cpu, 48_312_345), (Cause::Runqueue, 2_087_655)]);
    stall.pid = 901;
    stall.tid = 914;
    stall.thread = "tokio-rt-worker".into();
    stall.runtime = Runtime::Tokio;
    stall.kernel_share = Some(0.02);
    stall.blocker = Some(blocker(&own, 0.94));
    stall.stacks =
        vec![stack(Cause::Cpu, 45_400_000, 45, frames), stack(Cause::Cpu, 2_912_345, 3, other)];
    stall.advice = Some(
        "CPU work in a task keeps its worker from polling others: move it to \
         tokio::task::spawn_blocking"
            .into(),
    );
    stall
}

/// A loop that waits for the GIL while a thread encodes JSON.
pub(crate) fn gil(at_ms: u64) -> Stall {
    let own = python("tick", "/srv/shop/app/heartbeat.py", 9, true);
    let mut frames = asyncio_root();
    frames.push(own.clone());
    let mut holder = vec![module("start_thread", "/usr/lib/x86_64-linux-gnu/libc.so.6")];
    holder.extend([
        python("_WorkItem.run", "/usr/lib/python3.13/concurrent/futures/thread.py", 59, false),
        python("export", "/srv/shop/app/export.py", 77, true),
        python("JSONEncoder.encode", "/usr/lib/python3.13/json/encoder.py", 200, false),
    ]);
    let mut stall = bare(at_ms, &[(Cause::Gil, 20_000_000), (Cause::Cpu, 201_000)]);
    stall.blocker = Some(blocker(&own, 1.0));
    stall.stacks = vec![Stack {
        holder: Some(Holder {
            tid: 4720,
            thread: "asyncio_0".into(),
            asleep_in: None,
            frames: holder,
        }),
        ..stack(Cause::Gil, 20_000_000, 4, frames)
    }];
    stall.advice = Some("a thread won't help, it holds the GIL: use a process pool".into());
    stall
}

/// Five short sleeps, told after one and two seconds and at the end.
pub(crate) fn sleeping(at_ms: u64, duration_ms: u64, ongoing: bool) -> Stall {
    let own = python("settle", "/srv/shop/app/jobs.py", 18, true);
    let mut frames = asyncio_root();
    frames.push(own.clone());
    frames.push(module("clock_nanosleep", "/usr/lib/x86_64-linux-gnu/libc.so.6"));
    let ns = duration_ms * MS;
    let mut stall = bare(at_ms, &[(Cause::Syscall, ns)]);
    stall.ongoing = ongoing;
    stall.syscalls = vec![SyscallUse {
        name: "clock_nanosleep",
        count: 1,
        total_ns: ns,
        max_ns: ns,
        resource: None,
    }];
    stall.blocker = Some(blocker(&own, 1.0));
    stall.stacks = vec![stack(Cause::Syscall, ns, 1, frames)];
    stall.advice = Some("time.sleep blocks the loop: await asyncio.sleep instead".into());
    stall
}

/// Already stuck in a read when stallscope came.
pub(crate) fn stuck(at_ms: u64, ongoing: bool) -> Stall {
    let mut stall = sleeping(at_ms, 34_000, ongoing);
    stall.at_attach = true;
    stall.tid = 4713;
    stall.syscalls[0].name = "read";
    stall.syscalls[0].resource = Some("/run/shop/commands (fifo)".into());
    stall.stacks[0].truncated = Some("stack copy ends (36 KiB)");
    stall
}

/// Kept from running by the host.
pub(crate) fn starved(at_ms: u64) -> Stall {
    let mut stall = bare(at_ms, &[(Cause::Runqueue, 80 * MS), (Cause::Cpu, 4 * MS)]);
    stall.boundary = Boundary::UpperBound;
    stall.outside = Some(Outside { what: "preempted", who: "pid 88 (stress-ng)".into() });
    stall.advice = Some("not your code: the host has no CPU for it".into());
    stall
}

/// Names as an attacker would choose them.
pub(crate) fn hostile(at_ms: u64) -> Stall {
    let evil = "\x1b]0;owned\x07a;b\nc\r\u{202e}d 99";
    let mut frames = vec![frame(evil, Some(("/tmp/\x1b[2J;x\n.py", 7)), FrameKind::Python, true)];
    frames.push(frame("", None, FrameKind::Native, false));
    frames.push(frame("# comment", None, FrameKind::Native, false));
    frames.push(frame("<script>&\"'", None, FrameKind::Native, false));
    frames.push(frame("ends in 12", None, FrameKind::Native, false));
    let mut stall = bare(at_ms, &[(Cause::Cpu, 12_345_678), (Cause::Unexplained, 4_321)]);
    stall.thread = Arc::from(evil);
    stall.blocker = Some(blocker(&frames[0], 1.0));
    stall.stacks = vec![stack(Cause::Cpu, 12_000_000, 12, frames)];
    stall.outside = Some(Outside { what: "preempted", who: evil.into() });
    stall.task = Some(Task { name: evil.into(), chain: vec![evil.into()] });
    stall.syscalls = vec![SyscallUse {
        name: "read",
        count: 1,
        total_ns: 1000,
        max_ns: 1000,
        resource: Some(evil.into()),
    }];
    stall.advice = Some(evil.into());
    stall
}

/// A run of stalls as a live session would see them.
pub(crate) fn session() -> Vec<Stall> {
    vec![
        stuck(0, true),
        requests(100, 1004),
        tokio(2_000),
        requests(3_000, 1002),
        sleeping(5_000, 1000, true),
        sleeping(5_000, 2000, true),
        sleeping(5_000, 2503, false),
        gil(8_000),
        gil(8_100),
        starved(9_000),
        starved(9_200),
        hostile(9_500),
    ]
}
