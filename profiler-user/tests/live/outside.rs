//! Who kept a process from running, from outside of it: no line of its code is to blame.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::fixtures::c;
use crate::gate::{enter, patience, skip};
use crate::process::Process;
use crate::report::{Report, Stall};
use crate::stallscope::Watch;
use crate::waits::Running;

/// A control group of this test's own, removed at its end.
struct Group {
    folder: PathBuf,
    name: String,
    old: bool,
}

impl Group {
    /// A group of the controller's own hierarchy, or of the unified one; `None` where neither can
    /// be written.
    fn new(controller: &str, file: &str, unified_file: &str) -> Option<Self> {
        let name = format!("stallscope-{controller}-{}", std::process::id());
        let candidates = [
            (format!("/sys/fs/cgroup/{controller}"), file, true),
            ("/sys/fs/cgroup".to_owned(), unified_file, false),
        ];
        for (root, file, old) in candidates {
            let folder = Path::new(&root).join(&name);
            if !old {
                // May fail where it is enabled already, or where it always is.
                let _ = fs::write(
                    Path::new(&root).join("cgroup.subtree_control"),
                    format!("+{controller}"),
                );
            }
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let group = Self { folder, name: name.clone(), old };
            if group.folder.join(file).exists() {
                return Some(group);
            }
        }
        skip(&format!("no control group with {controller} can be made here"));
        None
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.folder.join(file);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn add(&self, process: &Process) {
        self.write("cgroup.procs", &process.pid().to_string());
    }

    fn freeze(&self, freeze: bool) {
        match (self.old, freeze) {
            (true, true) => self.write("freezer.state", "FROZEN"),
            (true, false) => self.write("freezer.state", "THAWED"),
            (false, _) => self.write("cgroup.freeze", if freeze { "1" } else { "0" }),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its members are gone or about to be: nothing else keeps it.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The longest stall of a process with that cause.
fn longest<'a>(report: &'a Report, running: &Running, cause: &str) -> &'a Stall {
    report
        .stalls
        .iter()
        .filter(|stall| stall.pid == u64::from(running.process.pid()) && stall.cause == cause)
        .max_by_key(|stall| stall.duration_ns)
        .unwrap_or_else(|| panic!("no {cause}: {report:#?}"))
}

/// Nobody's code is blamed, and this is said to be why.
fn check(stall: &Stall, what: &str, who: &str) {
    let outside = stall.outside.as_ref().unwrap_or_else(|| panic!("nobody: {stall:#?}"));
    assert_eq!(outside.what, what, "{stall:#?}");
    assert!(outside.who.contains(who), "{who}: {stall:#?}");
    assert!(stall.blocker.is_none(), "{stall:#?}");
    let advice = stall.advice.as_deref().unwrap_or_default();
    assert!(advice.starts_with("not your code"), "{stall:#?}");
}

#[test]
fn who_stops_or_starves_a_process_from_outside_is_named_and_no_line_is() {
    let Some(_turn) = enter() else { return };
    // Before their members, so that they are removed after them.
    let quota = Group::new("cpu", "cpu.cfs_quota_us", "cpu.max");
    let freezer = Group::new("freezer", "freezer.state", "cgroup.freeze");
    let [stopped, traced, frozen, starved, limited] =
        ["idle", "idle", "idle", "hog", "compute"].map(Running::start);
    if let Some(quota) = &quota {
        if quota.old {
            quota.write("cpu.cfs_quota_us", "5000");
        } else {
            quota.write("cpu.max", "5000 100000");
        }
        quota.add(&limited.process);
    }
    if let Some(freezer) = &freezer {
        freezer.add(&frozen.process);
    }
    let pids: Vec<String> =
        [&traced, &frozen, &starved, &limited].map(|one| one.process.pid().to_string()).into();
    let more: Vec<&str> = pids.iter().flat_map(|pid| ["--pid", pid]).collect();
    let watch = Watch::profile_with(stopped.process.pid(), &more);

    let pid = stopped.process.pid().to_string();
    let mut shell = Command::new("sh")
        .args(["-c", "kill -STOP $0 && sleep 0.1; kill -CONT $0", &pid])
        .stdin(Stdio::null())
        .spawn()
        .expect("a shell");
    let sender = shell.id();
    let mut tracer = Process::start(Command::new(c("causes")).arg("trace").arg(&pids[0]));
    let tracer_pid = tracer.pid();
    if let Some(freezer) = &freezer {
        freezer.freeze(true);
        std::thread::sleep(Duration::from_millis(100));
        freezer.freeze(false);
    }
    assert!(shell.wait().is_ok_and(|status| status.success()));
    assert!(tracer.expect_end(patience(10)).success(), "{}", tracer.stderr());
    starved.begin();
    starved.wait_until_finished();
    // Its quota is small, so that it waits for the next period for longer than for a busy CPU.
    if quota.is_some() {
        limited.begin();
        limited.wait_until_finished();
    }
    let report = watch.settle_and_stop();

    let stall = longest(&report, &stopped, "stopped");
    check(stall, "SIGSTOP", &format!("pid {sender} (sh)"));
    assert!(stall.ledger("stopped_ns") >= 90_000_000, "{stall:#?}");
    check(longest(&report, &traced, "stopped"), "ptrace", &format!("pid {tracer_pid} (causes)"));
    check(longest(&report, &starved, "runqueue"), "preempted", "cpu-hog");
    if let Some(freezer) = &freezer {
        let stall = longest(&report, &frozen, "stopped");
        check(stall, "freezer", &format!("cgroup /{}", freezer.name));
        assert!(stall.ledger("stopped_ns") >= 90_000_000, "{stall:#?}");
    }
    if let Some(quota) = &quota {
        let stall = longest(&report, &limited, "throttled");
        check(stall, "cpu quota", &format!("cgroup /{}, 5ms per 100ms", quota.name));
        // 20 ms of computing, 5 ms at a time.
        assert!(stall.ledger("throttled_ns") >= 150_000_000, "{stall:#?}");
    }
}
