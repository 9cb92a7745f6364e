//! What is known about where stdout goes.

use std::io::IsTerminal;
use std::os::fd::AsRawFd;

/// Columns where stdout is no terminal or doesn't say.
const DEFAULT_WIDTH: usize = 120;

/// The surroundings that fill in what the command line leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    /// Whether stdout is for people to look at.
    pub terminal: bool,
    /// Whether stdout wants colours (a terminal that knows them, and no `NO_COLOR`; or
    /// `CLICOLOR_FORCE`).
    pub color: bool,
    /// Columns of stdout.
    pub width: usize,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let stdout = std::io::stdout();
        let color = anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never;
        let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let width = columns(&stdout).or(asked).unwrap_or(DEFAULT_WIDTH);
        Self { terminal: stdout.is_terminal(), color, width }
    }
}

/// Columns of the terminal behind a file, if it is one that knows its size.
fn columns(file: &impl AsRawFd) -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open as long as `file` is borrowed, and TIOCGWINSZ writes one
    // `winsize` to the pointer, which is to a live value of that type.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
