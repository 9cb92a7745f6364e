//! A thread that is blocked at the moment, and what it waits for, from `/proc`.
//!
//! The kernel programs describe a sleep when it has ended. Of one that goes on, everything that it is
//! about still exists and can be asked for by name.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use profiler_common::arch::{
    SYS_RESTART, TAKES_CLOCK_AND_TIME, TAKES_FD, TAKES_FD_AND_ADDRESS, TAKES_FD_AND_LATE_ADDRESS,
    TAKES_FD_LIST, TAKES_FD_SETS, TAKES_FOLDER_AND_PATH, TAKES_PATH, TAKES_TIME, UserRegs,
    is_restarted, takes,
};
use profiler_common::file_systems;
use profiler_common::record::Header;
use profiler_common::waits::{
    GIVEN_BYTES, NAME_BYTES, Object, Other, Resource, WAKER_CHILD, WAKER_EXITS, WALKED_BYTES, Waker,
};

use super::{proc, sockets};

/// `AT_FDCWD`
const CURRENT_FOLDER: i32 = -100;
/// `PIPEFS_MAGIC`
const PIPES: u64 = 0x5049_5045;

/// How often a thread has gone to sleep; `None` if it is gone. While this number stays the same, a
/// thread that was asleep has been asleep all the time.
#[must_use]
pub fn sleeps(pid: u32, tid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

/// Whether a thread is blocked with these registers: in that system call, at that place.
#[must_use]
pub fn is_blocked(pid: u32, tid: u32, regs: &UserRegs) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
    let mut words = text.split_whitespace();
    let nr: Option<i64> = words.next().and_then(|nr| nr.parse().ok());
    let goes_on = nr == Some(SYS_RESTART) && is_restarted(regs.syscall());
    if nr != Some(regs.syscall()) && !goes_on {
        return false;
    }
    let hexadecimal = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    // Behind the arguments, which an interrupted thread has not.
    let behind: Vec<u64> = words.filter_map(hexadecimal).collect();
    behind.ends_with(&[regs.sp(), regs.ip()])
}

/// Reads a process's memory, up to the first page that is not there.
#[must_use]
pub fn memory(pid: u32, base: u64, bytes: usize) -> Vec<u8> {
    let Ok(memory) = fs::File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let mut copy = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        // One page at a time: a read that crosses into a hole fails as a whole.
        let Some(at) = base.checked_add(filled as u64) else { break };
        let to_page_end = 4096 - (at as usize & 4095);
        let end = bytes.min(filled + to_page_end);
        match memory.read_at(&mut copy[filled..end], at) {
            Ok(n) if n > 0 => filled += n,
            _ => break,
        }
    }
    copy.truncate(filled);
    copy
}

/// What a thread asks the kernel for, given the registers it is blocked with, in the form in which
/// the kernel programs describe it. `call` is the system call's name, `slept_ns` how long it has been
/// in it by `now_ns`.
#[must_use]
pub fn resource(
    pid: u32,
    tid: u32,
    regs: &UserRegs,
    call: &str,
    now_ns: u64,
    slept_ns: u64,
) -> Option<Box<Resource>> {
    let nr = i32::try_from(regs.syscall()).ok().filter(|&nr| nr >= 0)?;
    let mut resource = Box::new(blank(pid, tid));
    (resource.nr, resource.args, resource.slept_ns) = (nr, regs.args(), slept_ns);
    resource.waker.time_ns = now_ns;
    let class = takes(i64::from(nr));
    given(pid, class, &mut resource);
    let place = format!("/proc/{pid}");
    if class == TAKES_PATH || class == TAKES_FOLDER_AND_PATH {
        let folder = if class == TAKES_PATH { CURRENT_FOLDER } else { resource.args[0] as i32 };
        let absolute = resource.given_len > 0 && resource.given[0] == b'/';
        let link = match (absolute, folder) {
            (true, _) => None,
            (false, CURRENT_FOLDER) => Some(PathBuf::from(format!("{place}/cwd"))),
            (false, fd) => Some(PathBuf::from(format!("{place}/fd/{fd}"))),
        };
        if let Some(path) = link.and_then(|link| fs::read_link(link).ok()) {
            walk(&path, &mut resource);
        }
    } else if resource.fd >= 0 {
        describe(pid, &mut resource);
    }
    who_is_waited_for(pid, call, &mut resource);
    Some(resource)
}

fn blank(pid: u32, tid: u32) -> Resource {
    Resource {
        header: Header { kind: 0, flags: 0, tgid: pid, tid, time_ns: 0, extra: 0 },
        slept_ns: 0,
        nr: -1,
        given_len: 0,
        args: [0; 6],
        walked_len: 0,
        fd: -1,
        // Nobody has ended this sleep.
        waker: Waker { nr: -1, ..Waker::default() },
        object: Object::NONE,
        given: [0; GIVEN_BYTES],
        walked: [0; WALKED_BYTES + NAME_BYTES],
    }
}

/// Reads what a call was given in memory, and which descriptor it is about.
fn given(pid: u32, class: u32, resource: &mut Resource) {
    let args = resource.args;
    // A length may be anything; no address is longer.
    let short = |length: u64| usize::try_from(length).unwrap_or(usize::MAX).min(128);
    let (from, bytes) = match class {
        TAKES_PATH => (args[0], GIVEN_BYTES),
        TAKES_FOLDER_AND_PATH => (args[1], GIVEN_BYTES),
        TAKES_TIME => (args[0], 16),
        TAKES_CLOCK_AND_TIME => (args[2], 16),
        TAKES_FD_AND_ADDRESS => (args[1], short(args[2])),
        TAKES_FD_AND_LATE_ADDRESS => (args[4], short(args[5])),
        TAKES_FD_LIST => (args[0], short(args[1].saturating_mul(8))),
        TAKES_FD_SETS => (if args[1] != 0 { args[1] } else { args[2] }, 128),
        _ => (0, 0),
    };
    let read = if from == 0 { Vec::new() } else { memory(pid, from, bytes) };
    resource.given[..read.len()].copy_from_slice(&read);
    resource.given_len = read.len() as u32;
    let word = |bytes: usize| read.get(..bytes);
    resource.fd = match class {
        TAKES_FD | TAKES_FD_AND_ADDRESS | TAKES_FD_AND_LATE_ADDRESS => args[0] as i32,
        TAKES_FD_LIST => word(4).and_then(|b| b.try_into().ok()).map_or(-1, i32::from_le_bytes),
        TAKES_FD_SETS => read
            .iter()
            .position(|&byte| byte != 0)
            .map_or(-1, |at| (at * 8) as i32 + read[at].trailing_zeros() as i32),
        _ => -1,
    };
}

/// Notes a path as its names, from the innermost on.
fn walk(path: &Path, resource: &mut Resource) {
    let mut at = 0;
    for name in path.as_os_str().as_bytes().split(|&byte| byte == b'/').rev() {
        let end = at + name.len();
        if name.is_empty() || end >= WALKED_BYTES {
            continue;
        }
        resource.walked[at..end].copy_from_slice(name);
        at = end + 1;
    }
    resource.walked_len = at as u32;
}

/// Describes the open file behind the resource's descriptor.
fn describe(pid: u32, resource: &mut Resource) {
    let link = PathBuf::from(format!("/proc/{pid}/fd/{}", resource.fd));
    let (Ok(target), Some(status)) = (fs::read_link(&link), status(&link)) else { return };
    let object = &mut resource.object;
    object.mode = u32::from(status.stx_mode);
    object.inode = status.stx_ino;
    // As the kernel keeps it: 20 bits of minor number.
    object.device = status.stx_rdev_major << 20 | status.stx_rdev_minor;
    object.pseudo = u8::from(!target.is_absolute() || target.starts_with("/memfd:"));
    if target.as_os_str().as_bytes().starts_with(b"pipe:[") {
        object.magic = PIPES;
    } else {
        object.magic = file_system(pid, status.stx_mnt_id);
    }
    if object.mode & libc::S_IFMT == libc::S_IFSOCK {
        sockets::describe(pid, object);
    }
    let bytes = target.as_os_str().as_bytes();
    let gone = if status.stx_nlink == 0 { bytes.strip_suffix(b" (deleted)") } else { None };
    walk(Path::new(std::ffi::OsStr::from_bytes(gone.unwrap_or(bytes))), resource);
}

/// What is known of a file without asking its file system, which may be what is waited for:
/// `AT_STATX_DONT_SYNC`.
fn status(path: &Path) -> Option<libc::statx> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut status = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let wanted = libc::STATX_BASIC_STATS | libc::STATX_MNT_ID;
    // SAFETY: a terminated string, and room for what is written.
    let failed = unsafe {
        let flags = libc::AT_STATX_DONT_SYNC;
        libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, wanted, status.as_mut_ptr())
    };
    // SAFETY: integers, zero at first and filled in by a call that succeeded.
    (failed == 0).then(|| unsafe { status.assume_init() })
}

/// The magic number of a mount's file system; 0 if it is not known.
fn file_system(pid: u32, mount: u64) -> u64 {
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    mounted_as(&mounts, mount).map_or(0, file_systems::magic)
}

/// 36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/root rw: optional fields end at the dash.
fn mounted_as(mounts: &str, mount: u64) -> Option<&str> {
    let line = mounts.lines().find(|line| {
        line.split(' ').next().and_then(|number| number.parse().ok()) == Some(mount)
    })?;
    line.split_once(" - ")?.1.split(' ').next()
}

/// Notes the child that is waited for, or the process that holds the lock on a file.
fn who_is_waited_for(pid: u32, call: &str, resource: &mut Resource) {
    let args = resource.args;
    let (found, flags) = match call {
        "wait4" => (child(pid, args[0].cast_signed() as i32), WAKER_EXITS | WAKER_CHILD),
        // P_PID and P_ALL
        "waitid" if args[0] == 1 => (child(pid, args[1] as i32), WAKER_EXITS | WAKER_CHILD),
        "waitid" if args[0] == 0 => (child(pid, -1), WAKER_EXITS | WAKER_CHILD),
        "flock" | "fcntl" => (lock_holder(pid, resource.object.inode), 0),
        _ => (None, 0),
    };
    if let Some(other) = found {
        resource.waker.who = named(other);
        (resource.waker.nr, resource.waker.flags) = (resource.nr, flags);
    }
}

fn named(pid: u32) -> Other {
    let mut other = Other { tgid: pid, tid: pid, ..Other::default() };
    let name = proc::name(pid).unwrap_or_default();
    let length = name.len().min(other.comm.len());
    other.comm[..length].copy_from_slice(&name.as_bytes()[..length]);
    other
}

/// The one child that is waited for; `None` if it may be any of several.
fn child(pid: u32, asked: i32) -> Option<u32> {
    let children: Vec<u32> = proc::threads(pid)
        .iter()
        .filter_map(|tid| fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).ok())
        .flat_map(|text| {
            text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
        })
        .collect();
    match u32::try_from(asked) {
        // By the number that the target knows it by.
        Ok(asked) if asked > 0 => {
            children.into_iter().find(|&child| proc::innermost_tid(child, child) == Some(asked))
        }
        _ => (children.len() == 1).then(|| children[0]),
    }
}

/// The other process that holds a lock on a file, if it is one.
fn lock_holder(pid: u32, inode: u64) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, pid, inode)
}

fn holder_in(locks: &str, pid: u32, inode: u64) -> Option<u32> {
    // 1: FLOCK  ADVISORY  WRITE 708 08:01:1234 0 EOF; those that wait have "->" in the second place.
    let held = locks.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, kind, _, _, holder, file, ..] = fields[..] else { return None };
        let of_file = file.rsplit(':').next()?.parse() == Ok(inode);
        (kind != "->" && of_file).then(|| holder.parse().ok())?
    });
    let mut others: Vec<u32> = held.filter(|&holder| holder != pid && holder != 0).collect();
    others.sort_unstable();
    others.dedup();
    (others.len() == 1).then(|| others[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_file_lock_is_not_its_holder() {
        let locks = "1: FLOCK  ADVISORY  WRITE 708 08:01:1234 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 709 08:01:1234 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 9 08:01:77 0 EOF\n";
        assert_eq!(holder_in(locks, 709, 1234), Some(708));
        assert_eq!(holder_in(locks, 9, 77), None, "its own");
        assert_eq!(holder_in(locks, 1, 5), None);
        let readers =
            "1: FLOCK ADVISORY READ 1 08:01:5 0 EOF\n2: FLOCK ADVISORY READ 2 08:01:5 0 EOF\n";
        assert_eq!(holder_in(readers, 3, 5), None, "either of two");
    }

    #[test]
    fn the_innermost_name_of_a_path_comes_first() {
        let mut resource = blank(1, 1);
        walk(Path::new("/a/bc"), &mut resource);
        assert_eq!(&resource.walked[..resource.walked_len as usize], b"bc\0a\0");
    }

    #[test]
    fn a_mount_s_kind_stands_behind_the_optional_fields() {
        let mounts = "36 35 98:0 /a-b /mnt rw shared:1 master:2 - nfs4 server:/x rw\n\
                      360 35 0:5 / /proc rw - proc proc rw\n";
        assert_eq!(mounted_as(mounts, 36), Some("nfs4"));
        assert_eq!(mounted_as(mounts, 360), Some("proc"));
        assert_eq!(mounted_as(mounts, 3), None);
    }

    #[test]
    fn an_open_file_of_this_process_is_described() {
        use std::os::fd::AsRawFd as _;
        let pid = std::process::id();
        let file = fs::File::open("/dev/null").expect("there");
        let mut resource = blank(pid, pid);
        resource.fd = file.as_raw_fd();
        describe(pid, &mut resource);
        assert_eq!(resource.object.mode & libc::S_IFMT, libc::S_IFCHR);
        assert_eq!((resource.object.device, resource.object.pseudo), (1 << 20 | 3, 0));
        assert_eq!(&resource.walked[..resource.walked_len as usize], b"null\0dev\0");
    }

    #[test]
    fn this_thread_runs_and_is_not_blocked() {
        let pid = std::process::id();
        assert!(!is_blocked(pid, pid, &UserRegs::ZERO));
        assert!(sleeps(pid, pid).is_some() && sleeps(pid, 0).is_none());
    }
}
