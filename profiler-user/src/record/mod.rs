//! The recording: everything a report needs, in one file that is written as it goes.
//!
//! `docs/recording.md` describes the format. A file is a header and *blocks*; each block is compressed by
//! itself, has a checksum, and needs no other block to be read. So a killed profiler loses what it
//! had not written yet and nothing else, damage costs the blocks it hits, and the oldest blocks can
//! be dropped to keep a file within its bound.
//!
//! - `entry`: what a block holds.
//! - `encode`, `decode`: entries to the contents of a block and back; frames are kept once a block.
//! - `block`: contents to bytes of the file and back.
//! - `rolling`: a file that never outgrows its bound.
//! - `reader`: a file to entries, whatever state it is in.
//! - `rename`: stalls, named again by better debug files.
//! - `replay`: entries to what a report is told, through a filter.
//!
//! Nothing here trusts the file: lengths are bounded before anything is allocated.

mod block;
mod decode;
mod encode;
mod entry;
mod reader;
mod rename;
mod replay;
mod rolling;

pub use encode::{Encoder, Source};
pub use entry::{Checkpoint, Entry, Start};
pub use reader::{Damage, Reader, RecordingError};
pub use replay::{Told, replay};
pub use rolling::{MIN_BOUND, RollingFile};

/// How every recording begins. The first byte is no ASCII and the last ones are the line ends that
/// transfers in text mode would change.
pub const MAGIC: [u8; 8] = *b"\x89STALL\r\n";
/// The version of the format, which follows the magic as 32 bits, little-endian.
pub const VERSION: u32 = 1;
/// Bytes of magic and version.
const HEADER: usize = 12;
