//! Blocks: compressed contents behind a marker, lengths and a checksum.
//!
//! `marker, compressed length, contents' length, stalls, checksum`, each 4 bytes and little-endian,
//! then a zstd frame. The checksum covers what follows the marker, itself excepted.

use std::io;

use zstd::bulk::Decompressor;

/// How a block begins: where reading goes on after damage.
const MARKER: [u8; 4] = *b"\xb7STL";
/// Bytes before the compressed contents.
const HEAD: usize = 20;
/// The largest contents that are written or accepted. One stall is far smaller.
pub(super) const MAX_CONTENTS: usize = 32 << 20;
/// zstd's own default: much smaller files than with 1, hardly larger ones than with 9.
const LEVEL: i32 = 3;

/// Bytes of the file for contents with this many stalls.
pub(super) fn pack(contents: &[u8], stalls: u32) -> io::Result<Vec<u8>> {
    let compressed = zstd::bulk::compress(contents, LEVEL)?;
    let length = |bytes: usize| u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput);
    let mut block = Vec::with_capacity(HEAD + compressed.len());
    block.extend(MARKER);
    block.extend(length(compressed.len())?.to_le_bytes());
    block.extend(length(contents.len())?.to_le_bytes());
    block.extend(stalls.to_le_bytes());
    let checksum = checksum(&block[4..16], &compressed);
    block.extend(checksum.to_le_bytes());
    block.extend(compressed);
    Ok(block)
}

fn checksum(head: &[u8], compressed: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(compressed);
    hasher.finalize()
}

/// A block as it lies in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed<'a> {
    /// All its bytes.
    pub(super) bytes: &'a [u8],
    /// Stalls in it.
    pub(super) stalls: u32,
    contents_length: usize,
}

impl<'a> Packed<'a> {
    /// The block at the beginning of some bytes, if a whole one with the right checksum is there.
    pub(super) fn at(bytes: &'a [u8]) -> Option<Self> {
        if !bytes.starts_with(&MARKER) || bytes.len() < HEAD {
            return None;
        }
        let number = |at: usize| {
            bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
        };
        let end = HEAD.checked_add(number(4)? as usize)?;
        let contents_length = number(8)? as usize;
        let compressed = bytes.get(HEAD..end)?;
        let intact = number(16)? == checksum(&bytes[4..16], compressed);
        (intact && contents_length <= MAX_CONTENTS).then_some(Self {
            bytes: &bytes[..end],
            stalls: number(12)?,
            contents_length,
        })
    }

    /// The contents.
    pub(super) fn unpack(&self, zstd: &mut Decompressor<'_>) -> io::Result<Vec<u8>> {
        let contents = zstd.decompress(&self.bytes[HEAD..], self.contents_length)?;
        if contents.len() == self.contents_length {
            Ok(contents)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

/// Where the next marker after the first byte is.
pub(super) fn next_marker(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.get(1..)?;
    rest.windows(MARKER.len()).position(|window| window == MARKER).map(|at| at + 1)
}
