//! A recording to its entries, whatever state the file is in.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use thiserror::Error;
use zstd::bulk::Decompressor;

use super::block::{Packed, next_marker};
use super::decode::Decoder;
use super::entry::{Entry, Start};
use super::rename::rename;
use super::{HEADER, MAGIC, VERSION};
use crate::symbolize::Renamer;

/// Larger files are refused. (The bound while recording is smaller.)
const MAX_FILE: u64 = 4 << 30;

/// Why a file can't be read as a recording.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The file system.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Some other file.
    #[error("it is no recording of stallscope")]
    Other,
    /// A later version of the format.
    #[error("it is of format version {0}; this stallscope reads up to {VERSION}: use a newer one")]
    Version(u32),
    /// Nothing in it, or nothing that is left intact.
    #[error("it holds nothing that can be read: it is cut off or damaged at its very beginning")]
    Nothing,
    /// Absurdly large.
    #[error("it is larger than 4 GiB")]
    TooLarge,
}

/// What a file lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Damage {
    /// Bytes that belong to no intact block.
    pub bytes: u64,
    /// Entries in intact blocks that could not be understood.
    pub odd_entries: u64,
    /// Entries of kinds that this version does not know.
    pub unknown_entries: u64,
}

impl Damage {
    /// The damage in words, where there is any.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.bytes > 0 {
            warnings.push(format!(
                "{} bytes of the recording are cut off or damaged: what they held is missing",
                self.bytes
            ));
        }
        if self.odd_entries > 0 {
            warnings.push(format!(
                "{} entries of the recording could not be understood",
                self.odd_entries
            ));
        }
        if self.unknown_entries > 0 {
            warnings.push(format!(
                "{} entries of the recording are of kinds that a later stallscope knows",
                self.unknown_entries
            ));
        }
        warnings
    }
}

/// Reads a recording entry by entry.
pub struct Reader {
    bytes: Vec<u8>,
    at: usize,
    start: Start,
    decoder: Decoder,
    zstd: Decompressor<'static>,
    damaged_bytes: u64,
    ready: std::vec::IntoIter<Entry>,
    renamer: Option<Renamer>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("start", &self.start).finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// It can't be read, or holds nothing that is a recording.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let mut file = File::open(path)?;
        let mut bytes = Vec::new();
        // Something else may be endless.
        Read::by_ref(&mut file).take(HEADER as u64).read_to_end(&mut bytes)?;
        check_header(&bytes)?;
        file.take(MAX_FILE).read_to_end(&mut bytes)?;
        if bytes.len() as u64 >= MAX_FILE {
            return Err(RecordingError::TooLarge);
        }
        Self::new(bytes)
    }

    /// Reads a recording from memory.
    ///
    /// # Errors
    /// It holds nothing that is a recording.
    pub fn new(bytes: Vec<u8>) -> Result<Self, RecordingError> {
        check_header(&bytes)?;
        let mut reader = Self {
            bytes,
            at: HEADER,
            start: Start::default(),
            decoder: Decoder::default(),
            zstd: Decompressor::new()?,
            damaged_bytes: 0,
            ready: Vec::new().into_iter(),
            renamer: None,
        };
        let mut entries = reader.next_block().ok_or(RecordingError::Nothing)?;
        if matches!(entries.first(), Some(Entry::Start(_)))
            && let Entry::Start(start) = entries.remove(0)
        {
            reader.start = start;
        }
        reader.ready = entries.into_iter();
        Ok(reader)
    }

    /// What was known when the recording began; without anything if that part is damaged.
    #[must_use]
    pub const fn start(&self) -> &Start {
        &self.start
    }

    /// Names the stalls again that are read from now on.
    pub fn rename(&mut self, renamer: Renamer) {
        self.renamer = Some(renamer);
    }

    /// What names stalls again, if something does.
    #[must_use]
    pub const fn renamer(&self) -> Option<&Renamer> {
        self.renamer.as_ref()
    }

    /// What was missing in what has been read so far.
    #[must_use]
    pub const fn damage(&self) -> Damage {
        Damage {
            bytes: self.damaged_bytes,
            odd_entries: self.decoder.odd,
            unknown_entries: self.decoder.unknown,
        }
    }

    /// The entries of the next intact block.
    fn next_block(&mut self) -> Option<Vec<Entry>> {
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            if let Some(packed) = Packed::at(rest) {
                self.at += packed.bytes.len();
                let mut entries = Vec::new();
                match packed.unpack(&mut self.zstd) {
                    Ok(contents) => self.decoder.entries(&contents, &mut entries),
                    Err(_) => self.decoder.odd += 1,
                }
                return Some(entries);
            }
            let skipped = next_marker(rest).unwrap_or(rest.len());
            self.damaged_bytes += skipped as u64;
            self.at += skipped;
        }
        None
    }
}

impl Iterator for Reader {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            match self.ready.next() {
                // Only the first says how it began.
                Some(Entry::Start(_)) => {}
                Some(Entry::Stall(mut stall)) => {
                    if let Some(renamer) = &mut self.renamer {
                        rename(&mut stall, renamer);
                    }
                    return Some(Entry::Stall(stall));
                }
                Some(entry) => return Some(entry),
                None => self.ready = self.next_block()?.into_iter(),
            }
        }
    }
}

fn check_header(bytes: &[u8]) -> Result<(), RecordingError> {
    let Some(rest) = bytes.strip_prefix(&MAGIC) else {
        // What was cut off within the magic was one.
        let cut = MAGIC.starts_with(bytes);
        return Err(if cut { RecordingError::Nothing } else { RecordingError::Other });
    };
    let version = rest.first_chunk().copied().map(u32::from_le_bytes);
    match version.ok_or(RecordingError::Nothing)? {
        VERSION => Ok(()),
        newer => Err(RecordingError::Version(newer)),
    }
}
