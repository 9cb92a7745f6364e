//! Stalls that still last: what is waited for, who makes it wait, and circles of those.

use std::path::Path;
use std::time::Duration;

use crate::gate::{enter, has_programs, patience, skip};
use crate::report::{Report, Stall};
use crate::waits::{Running, begin, matches, stall_of};

/// Longer than any test watches.
const FOR_EVER: Duration = Duration::from_secs(600);

/// A row's name, the call with its resource, and thread and function of the holder.
type Lasting =
    (&'static str, Option<(&'static str, &'static str)>, Option<(&'static str, &'static str)>);

const ROWS: [Lasting; 13] = [
    ("pipe", Some(("read", "pipe *")), None),
    ("fifo", Some(("openat", "{folder}/fifo")), None),
    ("hostile", Some(("openat", "{folder}/xxxx*forged/fifo[31m")), None),
    ("tty", Some(("write", "tty {terminal}")), None),
    ("tcp", Some(("recvfrom", "tcp {client} -> {server}")), None),
    ("datagram", Some(("sendto", "unix datagram -> {folder}/log")), None),
    ("eventfd", Some(("read", "eventfd")), None),
    ("child", Some(("wait4", "child {helper} (sleep)")), None),
    ("sleep", Some(("clock_nanosleep", "600s asked for")), None),
    ("flock", Some(("flock", "{folder}/lockfile locked by pid {helper} (lock-holder)")), None),
    ("mutex", None, Some(("mutex-holder", "hold_mutex"))),
    ("rwlock", None, Some(("rwlock-writer", "write_locked"))),
    ("join", None, Some(("short-lived", "end_late"))),
];

/// The stall of a program that still lasts.
fn lasting<'a>(report: &'a Report, running: &Running) -> &'a Stall {
    let pid = u64::from(running.process.pid());
    let mut stalls = report.stalls.iter().filter(|stall| stall.ongoing && stall.pid == pid);
    let stall = stalls.next_back();
    let stall = stall.unwrap_or_else(|| panic!("no stall of {pid} lasts: {report:#?}"));
    stall.check_others(&stall.cause);
    stall
}

fn check_holder(stall: &Stall, running: &Running, thread: &str, function: &str) {
    let holder = stall.stack().holder.as_ref().unwrap_or_else(|| panic!("no holder: {stall:#?}"));
    assert_eq!(&*holder.thread, thread, "{stall:#?}");
    assert_eq!(holder.tid.to_string(), running.said("helper", 0), "{stall:#?}");
    assert!(holder.frames.iter().any(|frame| frame.function == function), "{holder:#?}");
}

#[test]
fn a_wait_that_lasts_is_told_with_what_it_is_for_and_who_makes_it_wait() {
    let Some(_turn) = enter() else { return };
    let start = |row: &Lasting| Running::of("causes", row.0, FOR_EVER);
    let running: Vec<Running> = ROWS.iter().map(start).collect();
    let watch = begin(&running);
    std::thread::sleep(patience(1));
    let report = watch.stop();
    for ((_, resource, holder), running) in ROWS.iter().zip(&running) {
        let stall = lasting(&report, running);
        let file = stall.blocker.as_ref().and_then(|blocker| blocker.file.as_deref());
        assert!(file.is_some_and(|file| file.ends_with("causes.c")), "{stall:#?}");
        if let Some((call, pattern)) = resource {
            let wanted = running.fill_in(pattern, 0);
            assert_eq!(stall.cause, "syscall", "{stall:#?}");
            let found = stall.syscalls.iter().find(|slept| slept.name == *call);
            let found = found.and_then(|slept| slept.resource.as_deref()).unwrap_or_default();
            assert!(matches(&wanted, found), "{wanted:?}: {stall:#?}");
            assert!(!found.contains(char::is_control), "{stall:#?}");
        }
        match holder {
            Some((thread, function)) => {
                assert_eq!(stall.cause, "lock", "{stall:#?}");
                check_holder(stall, running, thread, function);
            }
            None => assert!(stall.stacks.iter().all(|stack| stack.holder.is_none()), "{stall:#?}"),
        }
        assert_ne!(stall.detail.as_deref(), Some("deadlock"), "{stall:#?}");
    }
}

/// By one who does not ask the file system either: the answer would not come.
#[test]
fn a_file_system_that_hangs_is_told_with_the_file_while_it_does() {
    let Some(_turn) = enter() else { return };
    if !Path::new("/dev/fuse").exists() {
        return skip("no /dev/fuse: slow files can't be made");
    }
    let running = ["read", "mapped"].map(|row| Running::of("kernel_causes", row, FOR_EVER));
    let mut seen_to_begin = true;
    for _ in 0..2 {
        // The second one finds them as they are.
        let watch = begin(&running);
        std::thread::sleep(patience(1));
        let report = watch.stop();
        let [read, mapped] = [0, 1].map(|at: usize| lasting(&report, &running[at]));
        let file = running[0].fill_in("{folder}/slow/file on fuse", 0);
        assert_eq!(read.syscalls[0].resource.as_deref(), Some(&*file), "{read:#?}");
        let file = running[1].fill_in("{folder}/slow/file on fuse", 0);
        let told = (&*mapped.cause, mapped.detail.as_deref());
        assert_eq!(told, ("fault", Some("page-cache")), "{mapped:#?}");
        assert_eq!(mapped.stack().resource.as_deref(), Some(&*file), "{mapped:#?}");
        assert_eq!([read, mapped].map(|one| one.at_attach), [!seen_to_begin; 2], "{report:#?}");
        seen_to_begin = false;
    }
}

fn check_deadlock(report: &Report, both: &Running, own: &Running) {
    let stall = lasting(report, both);
    assert_eq!((&*stall.cause, stall.detail.as_deref()), ("lock", Some("deadlock")), "{stall:#?}");
    check_holder(stall, both, "opposite", "second_then_first");
    let advice = stall.advice.as_deref().unwrap_or_default();
    let circle = format!(
        "causes ({}) waits for opposite ({}), which waits for causes ({})",
        stall.tid,
        both.said("helper", 0),
        stall.tid
    );
    assert!(advice.contains(&circle), "{circle}: {stall:#?}");
    let stall = lasting(report, own);
    assert_eq!((&*stall.cause, stall.detail.as_deref()), ("lock", Some("deadlock")), "{stall:#?}");
    let advice = stall.advice.as_deref().unwrap_or_default();
    assert!(advice.contains("a lock that it holds itself"), "{stall:#?}");
}

#[test]
fn a_deadlock_is_named_with_both_stacks_whether_it_is_seen_to_begin_or_found() {
    let Some(_turn) = enter() else { return };
    let running = ["deadlock", "relock"].map(Running::start);
    let watch = begin(&running);
    for one in &running {
        one.process.wait_for_key("blocking");
    }
    std::thread::sleep(Duration::from_millis(200));
    let report = watch.stop();
    check_deadlock(&report, &running[0], &running[1]);

    // The same programs once more, by one that comes when it has happened.
    let watch = begin(&running);
    std::thread::sleep(Duration::from_millis(200));
    let report = watch.stop();
    let [both, own] = [0, 1].map(|at: usize| lasting(&report, &running[at]));
    assert!(both.at_attach && own.at_attach, "{report:#?}");
    check_deadlock(&report, &running[0], &running[1]);
}

#[test]
fn a_lasting_wait_for_what_notes_no_owner_is_told_with_what_the_other_threads_do() {
    let Some(_turn) = enter() else { return };
    if !has_programs(&["rustc"]) {
        return;
    }
    const ROWS: [(&str, Option<&str>, &str, &str); 4] = [
        ("mutex", None, "mutex-holder", "rust_causes::hold_mutex"),
        ("rwlock", None, "rwlock-writer", "rust_causes::write_locked"),
        ("condvar", Some("condvar"), "notifier", "rust_causes::notify_late"),
        ("channel", Some("channel"), "sender", "rust_causes::send_late"),
    ];
    let start = |row: &(&str, _, _, _)| Running::of("rust_causes", row.0, FOR_EVER);
    let running: Vec<Running> = ROWS.iter().map(start).collect();
    let watch = begin(&running);
    std::thread::sleep(patience(1));
    let report = watch.stop();
    for ((_, detail, thread, function), running) in ROWS.iter().zip(&running) {
        let stall = lasting(&report, running);
        assert_eq!((&*stall.cause, stall.detail.as_deref()), ("lock", *detail), "{stall:#?}");
        // Which of them has it is not known, and so nobody is said to hold it.
        assert!(stall.stacks.iter().all(|stack| stack.holder.is_none()), "{stall:#?}");
        let [candidate] = &stall.stack().candidates[..] else { panic!("not one: {stall:#?}") };
        assert_eq!(&*candidate.thread, *thread, "{stall:#?}");
        assert_eq!(candidate.tid.to_string(), running.said("helper", 0), "{stall:#?}");
        let at = candidate.frames.iter().any(|frame| frame.function == *function);
        assert!(at, "{candidate:#?}");
    }
}

/// Between an owner that has exited since and the one that waited, another had the lock for a moment.
#[test]
fn who_had_a_lock_last_is_not_taken_for_its_owner() {
    let Some(_turn) = enter() else { return };
    let running = [Running::of("causes", "queue", Duration::from_millis(80))];
    let watch = begin(&running);
    running[0].wait_until_finished();
    let report = watch.settle_and_stop();
    let truths = running[0].process.truths();
    assert_eq!(truths.len(), 2);
    for (number, truth) in truths.iter().enumerate() {
        let stall = stall_of(&report, truth);
        assert_eq!(stall.cause, "lock", "{stall:#?}");
        let holder =
            stall.stack().holder.as_ref().unwrap_or_else(|| panic!("no holder: {stall:#?}"));
        assert_eq!(holder.tid.to_string(), running[0].said("helper", number), "{stall:#?}");
        assert_ne!(&*holder.thread, "mutex-next", "{stall:#?}");
    }
}
