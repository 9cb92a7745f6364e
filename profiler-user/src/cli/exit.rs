//! How stallscope ends.

/// Exit codes, part of the public interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExitCode {
    /// Done; Ctrl-C and a closed pipe included.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// Wrong usage.
    Usage = 2,
    /// Not permitted or not supported here.
    NotPermitted = 3,
    /// The target is gone or was never there.
    TargetGone = 4,
    /// A budget of `check` was broken.
    BudgetBroken = 5,
}

impl ExitCode {
    /// The number the shell sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.code())
    }
}
