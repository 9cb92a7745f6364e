//! What could not be symbolized, and why.

use super::error::LoadError;
use super::printable::printable;

/// Most failures kept with their reason.
const MAX_FAILURES: usize = 256;

/// How symbolization went so far; goes into the health line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SymbolCounters {
    /// Frames given out without a real name, repeated ones included.
    pub unsymbolized_frames: u64,
    /// Binaries held in memory at the moment.
    pub binaries: u64,
    /// Binaries with something unreadable in them; each reason once.
    pub failed: Vec<FailedBinary>,
}

/// A binary that gave no names, or fewer than it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedBinary {
    /// Its path as the target sees it, printable.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The failures so far, without repetition.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<FailedBinary>);

impl Failures {
    pub(super) fn add(&mut self, path: &str, error: &LoadError) {
        if self.0.len() >= MAX_FAILURES {
            return;
        }
        let failure = FailedBinary {
            path: printable(path).into_owned(),
            reason: printable(&error.to_string()).into_owned(),
        };
        if !self.0.contains(&failure) {
            self.0.push(failure);
        }
    }

    pub(super) fn all(&self) -> &[FailedBinary] {
        &self.0
    }
}
