//! `/proc`: which processes and threads there are, and what the kernel says of them.

use std::fs;
use std::path::Path;

use profiler_common::arch::{REGISTERED, RING};

/// Threads of a process.
#[must_use]
pub fn threads(pid: u32) -> Vec<u32> {
    numeric_entries(Path::new(&format!("/proc/{pid}/task")))
}

/// Whether a thread runs or waits for a CPU, rather than being blocked.
#[must_use]
pub fn is_running(pid: u32, tid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything.
    stat.rsplit(") ").next().is_some_and(|behind| behind.starts_with('R'))
}

/// All processes.
#[must_use]
pub fn processes() -> Vec<u32> {
    numeric_entries(Path::new("/proc"))
}

fn numeric_entries(path: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// A thread of a process by the id it has in the innermost namespace of that process.
#[must_use]
pub fn host_thread(pid: u32, own_tid: u32) -> Option<u32> {
    let own = |tid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        line.split_whitespace().next_back()?.parse::<u32>().ok()
    };
    // Outside of namespaces, which is the common case, both are one.
    if own(own_tid) == Some(own_tid) {
        return Some(own_tid);
    }
    threads(pid).into_iter().find(|&tid| own(tid) == Some(own_tid))
}

/// A process's short name.
#[must_use]
pub fn name(pid: u32) -> Option<String> {
    comm(&format!("/proc/{pid}/comm"))
}

/// A thread's name.
#[must_use]
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    comm(&format!("/proc/{pid}/task/{tid}/comm"))
}

fn comm(path: &str) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).into_owned())
}

/// A process's command line, its arguments joined by spaces; empty for kernel threads.
#[must_use]
pub fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments: Vec<_> = bytes
        .split(|&byte| byte == 0)
        .filter(|argument| !argument.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    arguments.join(" ")
}

/// Fields of `/proc/PID/stat` behind the name, which may hold spaces and brackets.
fn stat_fields(path: &str) -> Option<Vec<String>> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Start time of a process in clock ticks since boot: with the id it identifies the process.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    // Field 22 (proc(5)); the fields here begin with the third.
    stat_fields(&format!("/proc/{pid}/stat"))?.get(19)?.parse().ok()
}

/// Whether a process exists and is no zombie.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let fields = stat_fields(&format!("/proc/{pid}/stat"));
    fields.and_then(|fields| fields.first().cloned()).is_some_and(|s| s != "Z" && s != "X")
}

/// A process and those that started it, up to the first.
#[must_use]
pub fn ancestry(pid: u32) -> Vec<u32> {
    let mut chain = vec![pid];
    let mut next = pid;
    // Field 4 (proc(5)). The chain is short; the bound is against ids that change meanwhile.
    while chain.len() < 64
        && let Some(parent) = stat_fields(&format!("/proc/{next}/stat"))
            .and_then(|fields| fields.get(1)?.parse::<u32>().ok())
            .filter(|&parent| parent != 0)
    {
        chain.push(parent);
        next = parent;
    }
    chain
}

/// The CPU a thread last ran on.
#[must_use]
pub fn last_cpu(pid: u32, tid: u32) -> Option<usize> {
    stat_fields(&format!("/proc/{pid}/task/{tid}/stat"))?.get(36)?.parse().ok()
}

/// Whether an id names a process (and not merely one of its threads).
#[must_use]
pub fn is_process(pid: u32) -> bool {
    thread_group(pid) == Some(pid)
}

/// The process that a thread belongs to.
#[must_use]
pub fn thread_group(tid: u32) -> Option<u32> {
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    let text = String::from_utf8_lossy(&status);
    text.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// It runs, or is gone.
    No,
    /// In this system call.
    InCall(i64),
    /// Outside of any.
    Outside,
}

/// What a thread waits for at the moment.
#[must_use]
pub fn waiting(pid: u32, tid: u32) -> Waiting {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
    match text.split_whitespace().next().map(str::parse) {
        Some(Ok(-1)) => Waiting::Outside,
        Some(Ok(nr)) => Waiting::InCall(nr),
        _ => Waiting::No,
    }
}

/// The instruction at which a sleeping thread will go on; none if it runs.
#[must_use]
pub fn sleeps_at(pid: u32, tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let (_, address) = text.trim_end().rsplit_once(' ')?;
    u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()
}

/// A thread's id in the innermost namespace of process ids that it is in.
#[must_use]
pub fn innermost_tid(pid: u32, tid: u32) -> Option<u32> {
    let status = fs::read(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let text = String::from_utf8_lossy(&status);
    let ids = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().next_back()?.parse().ok()
}

/// Whether a process has an epoll instance: it runs an event loop somewhere.
#[must_use]
pub fn has_epoll(pid: u32) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|target| target.as_os_str() == "anon_inode:[eventpoll]")
}

/// Whether what a thread parked in is still there: an epoll instance or a ring,
/// [`park_place`](profiler_common::arch::UserRegs::park_place). Of a ring without a descriptor that can't
/// be told, and it is taken to be.
#[must_use]
pub fn is_polled(pid: u32, place: u32) -> bool {
    let kind = if place & RING == 0 { "anon_inode:[eventpoll]" } else { "anon_inode:[io_uring]" };
    let target = fs::read_link(format!("/proc/{pid}/fd/{}", place & !RING));
    place & REGISTERED != 0 || target.is_ok_and(|target| target.as_os_str() == kind)
}

/// Kernel frames of a sleeping thread, innermost first, as names.
#[must_use]
pub fn kernel_stack(pid: u32, tid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stack")).unwrap_or_default();
    // [<0>] hrtimer_nanosleep+0x7b/0x110
    text.lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .filter_map(|symbol| symbol.split('+').next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described() {
        let pid = std::process::id();
        assert!(is_alive(pid) && is_process(pid));
        assert!(threads(pid).contains(&pid) && processes().contains(&pid));
        assert!(start_ticks(pid).is_some_and(|ticks| ticks > 0));
        assert!(!command_line(pid).is_empty());
        assert!(last_cpu(pid, pid).is_some());
        assert!(!has_epoll(pid));
        assert!(ancestry(pid).len() > 1);
        assert!(!is_alive(u32::MAX) && start_ticks(u32::MAX).is_none());
    }
}
