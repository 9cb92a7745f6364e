//! Why the kernel side could not be set up.

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use thiserror::Error;

use crate::attach::btf::BtfError;

/// Why the kernel side could not be set up.
#[derive(Debug, Error)]
pub enum KernelError {
    /// Type information is missing or lacks a field.
    #[error(transparent)]
    Types(#[from] BtfError),
    /// aya could not read the kernel's type information.
    #[error("the kernel's type information can't be used: {0}")]
    Btf(#[from] aya::BtfError),
    /// The object or its maps could not be loaded.
    #[error("loading the kernel programs failed: {0}")]
    Load(#[from] EbpfError),
    /// A program was refused.
    #[error("the kernel refused the program {program}: {}", refusal(source))]
    Program {
        /// Which program.
        program: &'static str,
        /// Why.
        source: ProgramError,
    },
    /// A map could not be read or written.
    #[error("a map of the kernel programs failed: {0}")]
    Map(#[from] MapError),
    /// The object lacks something that this binary expects.
    #[error("the kernel programs and this binary do not fit together: no {0}")]
    Mismatch(&'static str),
    /// The iterator could not be read.
    #[error("reading the task iterator failed: {0}")]
    Iterator(std::io::Error),
}

impl KernelError {
    /// Whether the cause is a missing permission.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = source {
            if let Some(io) = error.downcast_ref::<std::io::Error>()
                && matches!(io.raw_os_error(), Some(libc::EPERM | libc::EACCES))
            {
                return true;
            }
            source = error.source();
        }
        false
    }
}

/// In one line: what the verifier said last is why it refused a program; all it said is thousands.
fn refusal(error: &ProgramError) -> String {
    let ProgramError::LoadError { io_error, verifier_log } = error else {
        return error.to_string();
    };
    let log = verifier_log.to_string();
    let statistics = ["processed ", "stack depth ", "verification time "];
    let says = |line: &&str| !line.is_empty() && !statistics.iter().any(|s| line.starts_with(s));
    let said = log.lines().rev().find(says);
    said.map_or_else(|| io_error.to_string(), |line| format!("{io_error}: {line}"))
}
