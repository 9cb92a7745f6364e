//! A child that is watched from its first instruction.
//!
//! The child starts as stallscope itself, waits until it is told to go, and then becomes the
//! command: its process id, which the kernel side needs beforehand, stays the same.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// First argument of the waiting child.
pub const START: &str = "__start-when-told";
/// Set in the waiting child: the descriptor it reads from.
const DESCRIPTOR: &str = "STALLSCOPE_START_FD";

/// A started command.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    go: Option<io::PipeWriter>,
}

impl Child {
    /// Starts a command that does not run yet.
    ///
    /// # Errors
    /// There is no such program, or no process can be made.
    pub fn start(command: &[OsString]) -> io::Result<Self> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command given"))?;
        find_program(program)?;
        let (reader, writer) = io::pipe()?;
        // The standard input of the waiting child is the pipe; the real one is passed beside it.
        let stdin = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned()?;
        let descriptor = keep_across_exec(&stdin)?;
        let child = Command::new(own_program())
            .arg0("stallscope")
            .arg(START)
            .arg(program)
            .args(arguments)
            .env(DESCRIPTOR, descriptor.to_string())
            .stdin(Stdio::from(reader))
            .spawn()?;
        Ok(Self { child, go: Some(writer) })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it run.
    ///
    /// # Errors
    /// It is gone.
    pub fn release(&mut self) -> io::Result<()> {
        match self.go.take() {
            Some(mut go) => go.write_all(b"!"),
            None => Ok(()),
        }
    }

    /// How it ended, if it has.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.wait().ok()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.go.is_some() {
            // Never released: it must not stay behind.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A duplicate of a descriptor that the child inherits.
fn keep_across_exec(fd: &impl std::os::fd::AsRawFd) -> io::Result<i32> {
    // SAFETY: duplicates an open descriptor; the copy lives until this process ends.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD, 3) };
    if copy < 0 { Err(io::Error::last_os_error()) } else { Ok(copy) }
}

fn find_program(program: &OsStr) -> io::Result<()> {
    let missing =
        || io::Error::new(io::ErrorKind::NotFound, format!("no program {}", program.display()));
    if program.as_encoded_bytes().contains(&b'/') {
        let path = Path::new(program);
        return match (path.exists(), executable(path)) {
            (false, _) => Err(missing()),
            (true, true) => Ok(()),
            (true, false) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} may not be executed", program.display()),
            )),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| executable(&folder.join(program)));
    if found { Ok(()) } else { Err(missing()) }
}

fn executable(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let Ok(text) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a terminated string.
    path.is_file() && unsafe { libc::access(text.as_ptr(), libc::X_OK) } == 0
}

/// The program that this process runs, by its path where that still names it: the process's name
/// comes from it.
#[must_use]
pub fn own_program() -> std::path::PathBuf {
    std::env::current_exe()
        .ok()
        .filter(|path| path.is_file())
        .unwrap_or_else(|| "/proc/self/exe".into())
}

/// What the waiting child does: waits for one byte, then becomes the command. Returns only if that
/// fails or if stallscope is gone.
pub fn start_when_told(command: &[OsString]) -> io::Error {
    let mut go = [0];
    match io::stdin().read(&mut go) {
        Ok(1) => {}
        Ok(_) => return io::Error::other("stallscope is gone"),
        Err(error) => return error,
    }
    let descriptor = std::env::var(DESCRIPTOR).ok().and_then(|text| text.parse::<i32>().ok());
    if let Some(descriptor) = descriptor {
        // SAFETY: puts the real standard input in the place of the pipe; both are open.
        unsafe {
            libc::dup2(descriptor, 0);
            libc::close(descriptor);
        }
    }
    let Some((program, arguments)) = command.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no command given");
    };
    Command::new(program).args(arguments).env_remove(DESCRIPTOR).exec()
}
