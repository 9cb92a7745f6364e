//! Which processes a target selection means.

use regex::Regex;
use thiserror::Error;

use super::proc;

/// Why there is nothing to watch.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TargetError {
    /// No such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The id names a thread.
    #[error("{tid} is a thread of process {pid}: use --pid {pid}")]
    NotAProcess {
        /// The id given.
        tid: u32,
        /// The process it belongs to.
        pid: u32,
    },
    /// The process has ended and waits for its parent.
    #[error("process {0} has already exited")]
    Exited(u32),
    /// No process has such a name.
    #[error("no process has a name or command line that matches {0:?}")]
    NoMatch(String),
    /// Kernel threads run no event loops.
    #[error("{0} is a kernel thread")]
    KernelThread(u32),
}

/// The processes that are meant, each once, in order. Every pid must exist; a name matches short
/// names and command lines. stallscope itself and the processes that started it never match: the
/// name stands in their command lines, too.
///
/// # Errors
/// A pid that is not there, or a name that matches nothing.
pub fn find(pids: &[u32], name: Option<&Regex>) -> Result<Vec<u32>, TargetError> {
    let mut found = Vec::new();
    for &pid in pids {
        check(pid)?;
        found.push(pid);
    }
    if let Some(pattern) = name {
        let own = proc::ancestry(std::process::id());
        let before = found.len();
        for pid in proc::processes() {
            if !own.contains(&pid) && matches(pid, pattern) {
                found.push(pid);
            }
        }
        if found.len() == before {
            return Err(TargetError::NoMatch(pattern.to_string()));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn check(pid: u32) -> Result<(), TargetError> {
    match proc::thread_group(pid) {
        None => Err(TargetError::NoProcess(pid)),
        Some(group) if group != pid => Err(TargetError::NotAProcess { tid: pid, pid: group }),
        Some(_) if !proc::is_alive(pid) => Err(TargetError::Exited(pid)),
        Some(_) if is_kernel_thread(pid) => Err(TargetError::KernelThread(pid)),
        Some(_) => Ok(()),
    }
}

fn is_kernel_thread(pid: u32) -> bool {
    // A kernel thread has no address space, hence no mappings, and no executable.
    std::fs::read_link(format!("/proc/{pid}/exe"))
        .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        && proc::command_line(pid).is_empty()
}

fn matches(pid: u32, pattern: &Regex) -> bool {
    let command_line = proc::command_line(pid);
    if command_line.is_empty() || !proc::is_alive(pid) {
        return false;
    }
    let name = proc::name(pid).unwrap_or_default();
    pattern.is_match(&name) || pattern.is_match(&command_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_checked_before_they_are_watched() {
        let own = std::process::id();
        assert_eq!(find(&[own, own], None), Ok(vec![own]));
        assert_eq!(find(&[u32::MAX], None), Err(TargetError::NoProcess(u32::MAX)));
        let nothing = Regex::new("no-such-process-anywhere").expect("a pattern");
        assert!(matches!(find(&[], Some(&nothing)), Err(TargetError::NoMatch(_))));
    }
}
