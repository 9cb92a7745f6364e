//! Opening files inside another root directory.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading by its path inside `root`, as a process with that root would.
///
/// Symbolic links, absolute ones too, are followed inside `root` and never lead out of it
/// (`openat2` with `RESOLVE_IN_ROOT`, Linux 5.6). Opening can't block on a FIFO.
///
/// # Errors
/// There is no such file, it may not be read, or it is no regular file.
pub fn open_in_root(root: &Path, path: &Path) -> io::Result<File> {
    let directory =
        OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(root)?;
    let name = CString::new(path.as_os_str().as_bytes())?;
    // Field by field: the type may grow, and zero means nothing for every field.
    // SAFETY: open_how consists of integers, for which all zeros is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: `name` is a C string and `how` a struct of the stated size; both outlive the call,
    // which only reads them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            directory.as_raw_fd(),
            name.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    if fd < 0 {
        let error = io::Error::last_os_error();
        // Before Linux 5.6, and where a seccomp filter denies it.
        if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
            return open_plainly(root, path);
        }
        return Err(error);
    }
    // SAFETY: the kernel has just returned this descriptor, and nobody else owns it.
    regular(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn open_plainly(root: &Path, path: &Path) -> io::Result<File> {
    let path = root.join(path.strip_prefix("/").unwrap_or(path));
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    regular(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
}

fn regular(file: File) -> io::Result<File> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}
