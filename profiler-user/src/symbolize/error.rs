//! Why a binary gave no names.

use std::io;

/// Why a file could not be used for symbols.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    /// The file could not be opened or read; a file truncated under us ends here.
    #[error("can't be read: {0}")]
    Io(#[from] io::Error),
    /// Not an ELF file, or one whose headers contradict themselves.
    #[error("no usable ELF file: {0}")]
    Elf(#[from] object::Error),
    /// The debug information contradicts itself.
    #[error("damaged debug information: {0}")]
    Dwarf(#[from] gimli::Error),
    /// Refused because reading it could exhaust memory or time.
    #[error("refused: {0}")]
    Refused(&'static str),
}
