//! Packed debug sections, with a bound on what they unpack to.

use std::sync::Arc;

use object::{CompressedData, CompressionFormat};

use super::elf::MAX_SECTION;
use super::error::LoadError;

/// Unpacks a section to exactly the size that its header states.
///
/// Nothing is unpacked that states more than 2 GiB or more than its format can reach. zlib is
/// written into a buffer of the stated size and stops there; the zstd decoder behind `object`
/// stops at nothing, so its blocks are counted before.
pub(super) fn inflate(
    format: CompressionFormat,
    packed: &[u8],
    unpacked_size: u64,
) -> Result<Arc<[u8]>, LoadError> {
    // deflate can't do better than 1032:1; a zstd block of 4 bytes may stand for 128 KiB.
    let ratio = if format == CompressionFormat::Zlib { 1032 } else { MAX_ZSTD_BLOCK / 4 };
    if unpacked_size > MAX_SECTION || unpacked_size / ratio > packed.len() as u64 {
        return Err(LoadError::Refused("a packed section claims an impossible size"));
    }
    if format == CompressionFormat::Zstandard {
        let most = most_from_zstd(packed).ok_or(LoadError::Refused("damaged zstd section"))?;
        // Encoders may cut blocks short, hence the slack; a bomb exceeds it by far.
        if most > unpacked_size.saturating_mul(32).saturating_add(64 << 20)
            || most > 4 * MAX_SECTION
        {
            return Err(LoadError::Refused("a packed section unpacks to more than it states"));
        }
    }
    let data = CompressedData { format, data: packed, uncompressed_size: unpacked_size };
    Ok(Arc::from(data.decompress()?.into_owned()))
}

/// RFC 8878, 3.1.1.2.4: no block unpacks to more.
const MAX_ZSTD_BLOCK: u64 = 128 << 10;

/// Most bytes that a zstd stream can unpack to, from its frame and block headers (RFC 8878, 3.1.1).
fn most_from_zstd(mut input: &[u8]) -> Option<u64> {
    let mut most = 0_u64;
    while !input.is_empty() {
        let magic = u32::from_le_bytes(*input.first_chunk()?);
        input = &input[4..];
        if magic & 0xffff_fff0 == 0x184d_2a50 {
            let length = u32::from_le_bytes(*input.first_chunk()?);
            input = input.get(4..)?.get(length as usize..)?;
            continue;
        }
        if magic != 0xfd2f_b528 {
            return None;
        }
        let descriptor = *input.first()?;
        let single_segment = descriptor & 0x20 != 0;
        let window = usize::from(!single_segment);
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let content = match descriptor >> 6 {
            0 => usize::from(single_segment),
            1 => 2,
            2 => 4,
            _ => 8,
        };
        input = input.get(1 + window + dictionary + content..)?;
        loop {
            let [a, b, c] = *input.first_chunk()?;
            let header = u32::from_le_bytes([a, b, c, 0]);
            let size = header >> 3;
            let (stored, unpacked) = match (header >> 1) & 3 {
                0 => (size, u64::from(size)),
                1 => (1, u64::from(size)),
                2 => (size, MAX_ZSTD_BLOCK),
                _ => return None,
            };
            most = most.saturating_add(unpacked);
            input = input.get(3 + stored as usize..)?;
            if header & 1 != 0 {
                break;
            }
        }
        if descriptor & 4 != 0 {
            input = input.get(4..)?;
        }
    }
    Some(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zstd_bomb_is_refused_before_it_is_unpacked() {
        // One frame: single segment, one byte of content size, then run-length blocks of 128 KiB.
        let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, 0xff];
        for _ in 0..100_000 {
            let header = (1_u32 << 1) | ((MAX_ZSTD_BLOCK as u32) << 3);
            bomb.extend_from_slice(&header.to_le_bytes()[..3]);
            bomb.push(0);
        }
        bomb.extend_from_slice(&[1, 0, 0]);
        assert_eq!(most_from_zstd(&bomb), Some(100_000 * MAX_ZSTD_BLOCK));
        assert!(matches!(
            inflate(CompressionFormat::Zstandard, &bomb, 1 << 20),
            Err(LoadError::Refused(_))
        ));
    }

    #[test]
    fn an_impossible_claim_is_refused_before_anything_is_allocated() {
        for format in [CompressionFormat::Zlib, CompressionFormat::Zstandard] {
            for size in [1 << 20, 1 << 31, u64::MAX] {
                assert!(inflate(format, &[0x78, 0x9c, 3], size).is_err());
            }
        }
    }
}
