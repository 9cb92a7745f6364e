//! Who may run, when, and how long things may take.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static CPU: Mutex<()> = Mutex::new(());

/// The right to use the machine: tests that measure time run one after the other.
pub(crate) struct Turn(
    #[expect(dead_code, reason = "held until the test ends")] MutexGuard<'static, ()>,
);

/// Waits for this test's turn. `None` without root: the skip has been printed, the test returns.
pub(crate) fn enter() -> Option<Turn> {
    if !is_root() {
        skip("needs root");
        return None;
    }
    // A test that failed poisons the mutex; the next one must run all the same.
    Some(Turn(CPU.lock().unwrap_or_else(PoisonError::into_inner)))
}

pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Says on the real stderr, which the test harness does not capture, that the running test did
/// not happen. Fails instead if the environment says that nothing may be skipped.
pub(crate) fn skip(reason: &str) {
    assert!(std::env::var_os("STALLSCOPE_NO_SKIP").is_none(), "not to be skipped, but: {reason}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason} ({test})");
}

/// How many times slower than real hardware this machine is (`STALLSCOPE_SLOW`, default 1).
pub(crate) fn slowness() -> u32 {
    std::env::var("STALLSCOPE_SLOW").ok().and_then(|n| n.parse().ok()).unwrap_or(1).max(1)
}

/// What counts as a stall in every test: the default of 10 ms; 40 ms on a slower machine, where a
/// turn that does nothing may really take 10 ms and more.
pub(crate) fn threshold() -> Duration {
    Duration::from_millis(if slowness() == 1 { 10 } else { 40 })
}

/// A time-out in seconds, longer on slow machines.
pub(crate) fn patience(seconds: u64) -> Duration {
    Duration::from_secs(seconds) * slowness()
}

/// Whether a program can be started by its name.
pub(crate) fn has_program(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

/// Whether all of them can; prints the skip otherwise.
pub(crate) fn has_programs(names: &[&str]) -> bool {
    let missing = names.iter().find(|name| !has_program(name));
    if let Some(name) = missing {
        skip(&format!("no {name} here"));
    }
    missing.is_none()
}
