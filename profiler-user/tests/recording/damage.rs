//! Damaged, alien and hostile files.

use proptest::prelude::*;
use stallscope::aggregate::Filter;
use stallscope::record::{Encoder, MAGIC, Reader, RecordingError};

use crate::samples::{requests, session, tokio};
use crate::{read, recorded, start};

/// A recording with a block for each stall, so that much of it is boundaries.
fn of_many_blocks(blocks: u64) -> Vec<u8> {
    let mut bytes = Encoder::head(&start()).expect("encodes");
    let mut encoder = Encoder::default();
    for at in 0..blocks {
        let stall = if at % 2 == 0 { requests(at * 10, 100 + at) } else { tokio(at * 10) };
        encoder.stall(&stall, &mut |_| None).expect("encodes");
        bytes.extend(encoder.block().expect("encodes"));
    }
    bytes
}

/// Stalls that could be read; `None` where the file was refused.
fn stalls(bytes: &[u8]) -> Option<usize> {
    match Reader::new(bytes.to_vec()) {
        Ok(_) => Some(read(bytes.to_vec(), &Filter::default()).0.len()),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

#[test]
fn a_file_cut_at_any_byte_of_its_last_64_kib_opens_or_says_why_not() {
    const BLOCKS: usize = 8;
    let mut bytes = Encoder::head(&start()).expect("encodes");
    let mut encoder = Encoder::default();
    let mut state = 1_u64;
    for at in 0..BLOCKS {
        let mut stall = requests(at as u64, 100);
        // What does not compress, so that eight blocks fill more than 64 KiB.
        let digits = (0..9_500).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(33 + (state >> 57) as u8 % 90)
        });
        stall.advice = Some(digits.collect());
        encoder.stall(&stall, &mut |_| None).expect("encodes");
        bytes.extend(encoder.block().expect("encodes"));
    }
    let from = bytes.len().checked_sub(64 << 10).expect("larger than what is cut");
    let mut last = Reader::new(bytes[..from].to_vec()).map_or(0, Iterator::count);
    for length in from..=bytes.len() {
        match Reader::new(bytes[..length].to_vec()) {
            Ok(mut reader) => {
                let found = reader.by_ref().count();
                // No block is read that is not whole, and none is lost that is.
                assert!(found >= last && found <= last + 1, "{found} after {last} at {length}");
                last = found;
            }
            Err(RecordingError::Nothing) => assert_eq!(last, 0, "cut at {length}"),
            Err(error) => panic!("cut at {length}: {error}"),
        }
    }
    assert_eq!(last, BLOCKS);
}

#[test]
fn damage_in_the_middle_costs_the_blocks_it_hits() {
    let bytes = of_many_blocks(20);
    for at in (100..bytes.len()).step_by(41) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        let mut reader = Reader::new(damaged).expect("the beginning is intact");
        let found = reader.by_ref().count();
        assert!(found >= 19, "{found} stalls left after damage at {at}");
        assert!(found == 20 || reader.damage().bytes > 0, "silent loss at {at}");
    }
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let refused = |bytes: &[u8]| Reader::new(bytes.to_vec()).expect_err("refused");
    assert!(matches!(refused(b"%PDF-1.7 and so on"), RecordingError::Other));
    assert!(matches!(refused(b""), RecordingError::Nothing));
    assert!(matches!(refused(&MAGIC[..3]), RecordingError::Nothing));
    assert!(matches!(refused(&MAGIC), RecordingError::Nothing));
    let mut later = recorded(&session());
    later[8] = 2;
    assert!(matches!(refused(&later), RecordingError::Version(2)));
    // Text mode changes line ends; that is told apart from other files by the checksum of nothing.
    let text = String::from_utf8_lossy(&recorded(&session())).replace("\r\n", "\n");
    assert!(matches!(refused(text.as_bytes()), RecordingError::Other));
}

#[test]
fn a_bomb_is_not_unpacked() {
    // A block whose contents claim to be small and unpack to gigabytes.
    let zeros = vec![0_u8; 256 << 20];
    let compressed = zstd::bulk::compress(&zeros, 3).expect("compresses");
    let mut block = b"\xb7STL".to_vec();
    block.extend((compressed.len() as u32).to_le_bytes());
    block.extend((32_u32 << 20).to_le_bytes());
    block.extend(0_u32.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&block[4..16]);
    hasher.update(&compressed);
    block.extend(hasher.finalize().to_le_bytes());
    block.extend(compressed);
    let mut bytes = Encoder::head(&start()).expect("encodes");
    bytes.extend(block);
    let mut reader = Reader::new(bytes).expect("the beginning is intact");
    assert_eq!(reader.by_ref().count(), 0);
    assert_eq!(reader.damage().odd_entries, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn garbage_never_panics(
        at in 0_usize..4000,
        garbage in proptest::collection::vec(any::<u8>(), 0..64),
        insert in any::<bool>(),
    ) {
        let mut bytes = recorded(&session());
        let at = at.min(bytes.len());
        let end = if insert { at } else { (at + garbage.len()).min(bytes.len()) };
        bytes.splice(at..end, garbage);
        stalls(&bytes);
    }

    /// Contents whose checksum is right and whose meaning is garbage.
    #[test]
    fn hostile_contents_never_panic(contents in proptest::collection::vec(any::<u8>(), 0..300)) {
        let compressed = zstd::bulk::compress(&contents, 1).expect("compresses");
        let mut block = b"\xb7STL".to_vec();
        block.extend((compressed.len() as u32).to_le_bytes());
        block.extend((contents.len() as u32).to_le_bytes());
        block.extend(0_u32.to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&block[4..16]);
        hasher.update(&compressed);
        block.extend(hasher.finalize().to_le_bytes());
        block.extend(compressed);
        let mut bytes = recorded(&session());
        bytes.extend(block);
        prop_assert_eq!(stalls(&bytes), Some(10));
    }
}
