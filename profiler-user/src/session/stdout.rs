//! Standard output that can be given up: who is asked to end does not wait for a reader that never comes.
//!
//! A write to a pipe that is full sleeps until somebody reads, and so does the whole loop that would
//! notice a signal. Here each write is preceded by a question whether there is room, and the signals
//! are counted by a handler of our own, before the runtime's.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a pipe that has room takes without sleeping (`PIPE_BUF`).
const AT_ONCE: usize = 4096;
/// How often a signal is looked for while there is no room.
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// How long a reader has to make room once we are asked to end.
const GRACE: Duration = Duration::from_secs(1);

/// Whether we were asked to end.
static ASKED_TO_END: AtomicBool = AtomicBool::new(false);
/// Whether there was no standard output when this process began. Rust's start-up code opens `/dev/null`
/// in its place, so that it has to be asked for before that.
static MISSING: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = look_at_start;

extern "C" fn look_at_start() {
    // SAFETY: asks about a descriptor, open or not.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    MISSING.store(flags < 0, Ordering::Relaxed);
}

extern "C" fn asked_to_end(_signal: libc::c_int) {
    ASKED_TO_END.store(true, Ordering::Relaxed);
}

/// Notes the signals that ask to end. Handlers that are set later must call those before them, as the
/// runtime's do.
pub(super) fn note_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let handler = asked_to_end as extern "C" fn(libc::c_int);
        // SAFETY: the handler stores one flag.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Standard output.
#[derive(Debug)]
pub(super) struct Stdout {
    file: File,
    /// Since when we are asked to end and wait.
    waits_since: Option<Instant>,
}

impl Stdout {
    /// # Errors
    /// It was closed when this process began.
    pub(super) fn open() -> io::Result<Self> {
        if MISSING.load(Ordering::Relaxed) {
            return Err(io::Error::new(ErrorKind::NotConnected, "it is closed"));
        }
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self { file, waits_since: None })
    }

    /// Whether it takes something now, or has gone.
    fn has_room(&self) -> io::Result<bool> {
        let timeout = i32::try_from(LOOKS_EVERY.as_millis()).unwrap_or(i32::MAX);
        let mut ask = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one descriptor to ask about.
        match unsafe { libc::poll(&raw mut ask, 1, timeout) } {
            0 => Ok(false),
            1.. => Ok(true),
            _ => match io::Error::last_os_error() {
                error if error.kind() == ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while !self.has_room()? {
            if ASKED_TO_END.load(Ordering::Relaxed)
                && self.waits_since.get_or_insert_with(Instant::now).elapsed() >= GRACE
            {
                return Err(io::Error::new(ErrorKind::TimedOut, "nobody reads it"));
            }
        }
        self.file.write(&bytes[..bytes.len().min(AT_ONCE)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
