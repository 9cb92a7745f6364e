//! What a thread waited for inside the kernel, or what the kernel or an engine did for it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::fixtures::script;
use crate::gate::{enter, has_programs, patience, skip, slowness};
use crate::group::Group;
use crate::process::Process;
use crate::pythons::{Python, pythons};
use crate::report::Stack;
use crate::stallscope::Watch;
use crate::swap::Swap;
use crate::waits::{BLANK, Row, Running, begin, check_all, check_running};

const INSIDE: Row = Row { program: "kernel_causes", ..BLANK };

const ENGINE: Row = Row { cause: "cpu", detail: Some("regex"), ..BLANK };

#[test]
fn time_that_the_kernel_takes_for_a_call_is_that_call_s_and_not_the_program_s() {
    let Some(_turn) = enter() else { return };
    check_all(&[
        // A spawn of a process with 4 GiB: its tables are copied.
        Row {
            name: "fork",
            cause: "cpu",
            detail: Some("fork"),
            call: Some("clone"),
            in_kernel: true,
            ..INSIDE
        },
        Row { name: "munmap", cause: "cpu", call: Some("munmap"), in_kernel: true, ..INSIDE },
        // Not in a call: large pages are zeroed where they are touched.
        Row { name: "zeroing", cause: "cpu", in_kernel: true, ..INSIDE },
    ]);
}

/// `exit_mmap`: nobody but who waits for the process is there to be told of it.
#[test]
fn a_large_child_that_ends_is_waited_for_in_its_name() {
    let Some(_turn) = enter() else { return };
    let child = Some(("wait4", "child {helper} (large-child)"));
    check_all(&[Row { name: "exit", resource: child, ..INSIDE }]);
}

#[test]
fn a_fault_is_told_with_who_provides_the_memory_and_a_slow_file_with_its_path() {
    let Some(_turn) = enter() else { return };
    let mut rows = vec![
        Row { name: "userfaultfd", cause: "fault", detail: Some("userfaultfd"), ..INSIDE },
        Row {
            name: "dns",
            detail: Some("dns"),
            resource: Some(("poll", "udp * -> 127.77.7.7:53")),
            ..INSIDE
        },
    ];
    if Path::new("/dev/fuse").exists() {
        let (file, open_file) = ("{folder}/slow/file", "{folder}/slow/file on fuse");
        rows.extend([
            Row { name: "stat", resource: Some(("newfstatat", file)), ..INSIDE },
            Row { name: "open", resource: Some(("openat", file)), ..INSIDE },
            Row { name: "unlink", resource: Some(("unlink", file)), ..INSIDE },
            Row {
                name: "execve",
                detail: Some("fork"),
                resource: Some(("execve", file)),
                ..INSIDE
            },
            Row { name: "read", resource: Some(("pread64", open_file)), ..INSIDE },
            Row {
                name: "fsync",
                detail: Some("fsync"),
                resource: Some(("fsync", open_file)),
                ..INSIDE
            },
            // More is written than it takes: it, and not only the file, is what holds the writer up.
            Row {
                program: "storage_causes",
                name: "writeback",
                detail: Some("writeback"),
                resource: Some(("pwrite64", open_file)),
                ..BLANK
            },
            Row {
                name: "mapped",
                cause: "fault",
                detail: Some("page-cache"),
                mapped: Some(open_file),
                ..INSIDE
            },
        ]);
    } else {
        skip("no /dev/fuse: slow files can't be made");
    }
    check_all(&rows);
}

/// Where the kernel's unified groups have limits of memory, as in the guests of `cargo xtask kernels`.
#[test]
fn a_group_over_its_limit_of_memory_is_held_up_by_reclaim() {
    let Some(_turn) = enter() else { return };
    let Some(group) = Group::unified("memory", "memory.high") else { return };
    group.write("memory.high", "4M");
    let running = [Running::start_in(&group, "memory_causes", "high")];
    let watch = begin(&running);
    running[0].wait_until_finished();
    let report = watch.settle_and_stop();
    let truths = running[0].process.truths();
    let stalls: Vec<_> =
        report.stalls.iter().filter(|s| truths.iter().any(|truth| truth.is_in(s))).collect();
    assert!(!stalls.is_empty(), "{truths:?}: {report:#?}");
    for stall in stalls {
        assert_eq!(stall.detail.as_deref(), Some("reclaim"), "{stall:#?}");
    }
}

/// Where the kernel swaps, in a group that is too small for what it has: there is room again when the
/// program begins, so that nothing but the way back is waited for.
#[test]
fn memory_that_was_swapped_out_is_waited_for_as_such() {
    let Some(_turn) = enter() else { return };
    let files = ("memory.limit_in_bytes", "memory.max");
    let Some(group) = Group::of_either("memory", files.0, files.1) else { return };
    let Some(swap) = Swap::on() else { return };
    // A quick disk is asked for longer than it takes to answer: it gets a speed limit.
    let Some(slow) = Group::of_hierarchy("blkio", "blkio.throttle.read_iops_device") else {
        return;
    };
    let limit = |bytes| group.write(if group.old { files.0 } else { files.1 }, bytes);
    limit("16M");
    let running = [Running::start_in(&group, "storage_causes", "swap")];
    limit("256M");
    slow.write("blkio.throttle.read_iops_device", &format!("{} 100", swap.disk()));
    slow.add(&running[0].process);
    let row = Row { program: "storage_causes", name: "swap", ..BLANK };
    check_running(&[Row { cause: "fault", detail: Some("swap"), ..row }], &running);
}

/// Whether a shared library can be loaded.
fn has_library(name: &std::ffi::CStr) -> bool {
    // SAFETY: a string that ends; the library's own start-up code is trusted.
    let found = !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) }.is_null();
    if !found {
        skip(&format!("no {} here", name.to_string_lossy()));
    }
    found
}

#[test]
fn a_regular_expression_that_backtracks_in_pcre_is_told_as_one() {
    let Some(_turn) = enter() else { return };
    if has_library(c"libpcre2-8.so.0") {
        check_all(&[Row { program: "regex_causes", name: "pcre", ..ENGINE }]);
    }
}

#[test]
fn a_regular_expression_of_c_plus_plus_is_told_as_one_whichever_engine_it_has() {
    let Some(_turn) = enter() else { return };
    if !Path::new("/usr/include/re2/re2.h").exists() {
        return skip("no re2 here");
    }
    check_all(&["std", "re2"].map(|name| Row { program: "cxx_causes", name, ..ENGINE }));
}

/// Its engine's functions are no symbols that a library would have to keep: stripped builds have none, and
/// nothing is guessed then.
#[test]
fn a_regular_expression_that_backtracks_in_cpython_is_told_where_its_engine_can_be_named() {
    let Some(_turn) = enter() else { return };
    let mut told = 0;
    for python in pythons().into_iter().filter(Python::is_here) {
        let (mut command, _folder) = python.run("regex.py", &[]);
        let process = Process::start(&mut command);
        process.wait_for_key("ready");
        let watch = Watch::profile(process.pid());
        std::thread::sleep(Duration::from_millis(1500) * slowness());
        let report = watch.stop();
        let stalls: Vec<_> = report.blamed().into_iter().filter(|s| s.cause == "cpu").collect();
        assert!(!stalls.is_empty(), "{python:?}: {report:#?}");
        for stall in stalls {
            // What was not seen of a stall, as its beginning before we were there, is not guessed.
            let engine = |stack: &&Stack| {
                stack.frames.iter().any(|frame| frame.function.starts_with("sre_"))
            };
            let seen: u64 = stall.stacks.iter().filter(engine).map(|stack| stack.total_ns).sum();
            let named = seen > stall.ledger("cpu_ns") / 2;
            assert_eq!(stall.detail.as_deref(), named.then_some("regex"), "{python:?}: {stall:#?}");
            let blocker = stall.blocker.as_ref().expect("checked on reading");
            assert_eq!(blocker.function, "match", "{python:?}: {stall:#?}");
            told += usize::from(named);
        }
    }
    if told == 0 {
        skip("no CPython with its symbols");
    }
}

/// Profiles Node while it is kept busy by one of its engines.
fn engine(kind: &str) -> crate::report::Report {
    // V8's collector has helpers that would take both CPUs of a small machine from the loop: waiting
    // for a CPU is not what is asked about.
    let mut command = Command::new("node");
    command.arg("--single-threaded-gc").arg(script("node/engines.js")).arg(kind);
    let process = Process::start(&mut command);
    process.wait_for_key("ready");
    // Its turns are of any length: those that are barely stalls may not be sampled on a busy machine.
    let watch = Watch::profile_with(process.pid(), &["--threshold", "40ms"]);
    std::thread::sleep(Duration::from_secs(4) * slowness());
    watch.stop()
}

#[test]
fn v8_s_collector_and_its_regular_expressions_are_not_the_code_that_got_into_them() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["node"]) {
        return;
    }
    for (kind, function) in [("gc", "v8::internal::"), ("regex", "v8::internal::NativeRegExp")] {
        let report = engine(kind);
        let mut told = 0;
        for stall in report.blamed().into_iter().filter(|stall| stall.cause == "cpu") {
            let Some(detail) = stall.detail.as_deref() else { continue };
            // The one may collect a little, the other matches nothing.
            assert!(detail == kind || detail == "gc", "{stall:#?}");
            if detail == kind {
                let blocker = stall.blocker.as_ref().expect("checked on reading");
                assert!(blocker.function.starts_with(function), "{stall:#?}");
                told += 1;
            }
        }
        assert!(told > 0, "no {kind}: {report:#?}");
    }
}

#[test]
fn node_that_waits_for_a_child_in_a_loop_of_its_own_is_not_idle() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["node"]) {
        return;
    }
    let process = Process::start(Command::new("node").arg(script("node/exec_sync.js")));
    process.wait_for_truths(1, patience(20));
    let watch = Watch::profile(process.pid());
    // Where it parks is learned when it does, which it may not just then.
    let before = process.truths().len() + 3;
    process.wait_for_truths(before + 3, patience(20));
    let report = watch.settle_and_stop();
    for truth in &process.truths()[before..before + 3] {
        let stalls = report.stalls.iter().filter(|stall| truth.is_in(stall));
        let [stall] = &stalls.collect::<Vec<_>>()[..] else { panic!("{truth:?}: {report:#?}") };
        assert!(stall.waits_in_epoll(), "{stall:#?}");
        // All of the child's 100 ms.
        assert!(stall.ledger("syscall_ns") >= 90_000_000, "{stall:#?}");
        let advice = stall.advice.as_deref().unwrap_or_default();
        assert!(advice.contains("nested event loop"), "{stall:#?}");
    }
}
