//! Failures: what the user is told, and with which exit code.

use std::io::Write as _;
use std::process::ExitCode;

use crate::attach::{KernelError, TargetError};
use crate::cli;
use crate::session::WatchError;

/// Why a command failed.
#[derive(Debug)]
pub(super) struct Failure {
    code: cli::ExitCode,
    message: String,
}

impl Failure {
    pub(super) fn new(code: cli::ExitCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Tells the user and gives the exit code.
    pub(super) fn tell(self) -> ExitCode {
        say(&self.message);
        self.code.into()
    }
}

/// A line on standard error; nobody to read it is no failure.
pub(super) fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "stallscope: {message}");
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(cli::ExitCode::Failed, format!("{error:#}"))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(cli::ExitCode::Failed, error.to_string())
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        Self::new(cli::ExitCode::TargetGone, error.to_string())
    }
}

impl From<WatchError> for Failure {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Gone => Self::new(cli::ExitCode::TargetGone, "the target is gone"),
            WatchError::Kernel(error) => error.into(),
            WatchError::Io(error) => error.into(),
        }
    }
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        let unsupported = matches!(error, KernelError::Types(_) | KernelError::Btf(_));
        if error.is_permission() {
            Self::new(cli::ExitCode::NotPermitted, format!("{error}\n{}", missing_privileges()))
        } else if unsupported {
            Self::new(
                cli::ExitCode::NotPermitted,
                format!(
                    "{error}\n  stallscope needs a kernel with CONFIG_DEBUG_INFO_BTF (5.10 or \
                         newer); see `stallscope doctor`"
                ),
            )
        } else {
            Self::new(cli::ExitCode::Failed, describe(&error))
        }
    }
}

/// An error with its causes; of a verifier's log only the end, where it says what it objects to.
fn describe(error: &dyn std::error::Error) -> String {
    const LINES: usize = 12;
    let mut text = String::new();
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(current) = next {
        let message = current.to_string();
        if !text.contains(&message) {
            let lines: Vec<_> = message.lines().collect();
            let tail = lines[lines.len().saturating_sub(LINES)..].join("\n");
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&tail);
        }
        next = current.source();
    }
    text
}

/// Which capabilities are missing, and how to get them.
pub(super) fn missing_privileges() -> String {
    let missing = crate::attach::privileges::missing();
    if missing.is_empty() {
        return "  all needed capabilities are there: kernel lockdown or a security module refuses \
                it; see `stallscope doctor`"
            .to_owned();
    }
    let names: Vec<_> = missing.iter().map(|capability| capability.name).collect();
    format!(
        "  missing: {}\n  run it with sudo, or give the binary these capabilities with setcap",
        names.join(", ")
    )
}

/// Fails early, with a list, where it is plain that the kernel will refuse.
pub(super) fn require_privileges() -> Result<(), Failure> {
    if crate::attach::privileges::missing().is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        cli::ExitCode::NotPermitted,
        format!("watching processes from the kernel needs privileges\n{}", missing_privileges()),
    ))
}
