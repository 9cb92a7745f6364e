//! pc -> offset of the FDE that covers it.

use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, UnwindSection};

use super::rows::Bytes;

/// Finds the FDE of an address.
#[derive(Debug)]
pub(super) enum Index {
    /// The linker's own table, searched in place.
    Header(HeaderTable),
    /// A table made by reading all entries, sorted by start.
    Built(Vec<BuiltEntry>),
}

#[derive(Debug)]
pub(super) struct BuiltEntry {
    range: Range<u64>,
    offset: usize,
}

/// The binary search table of `.eh_frame_hdr` (LSB core, "Exception Frame Header") in the one
/// encoding that linkers write: pairs of `i32` relative to the header's address.
#[derive(Debug)]
pub(super) struct HeaderTable {
    bytes: Box<[u8]>,
    address: u64,
    entries: usize,
    section: u64,
}

const DW_EH_PE_UDATA4: u8 = 0x03;
const DW_EH_PE_PCREL_SDATA4: u8 = 0x1b;
const DW_EH_PE_DATAREL_SDATA4: u8 = 0x3b;
/// Version, three encodings, the address of `.eh_frame`, the number of entries.
const TABLE_AT: usize = 12;
const ENTRY: usize = 8;

impl HeaderTable {
    /// Reads the header at virtual address `address`. `None` if it has no table, or one in another
    /// encoding.
    pub(super) fn parse(bytes: Box<[u8]>, address: u64) -> Option<Self> {
        let encodings = [DW_EH_PE_PCREL_SDATA4, DW_EH_PE_UDATA4, DW_EH_PE_DATAREL_SDATA4];
        if *bytes.first()? != 1 || bytes.get(1..4)? != encodings {
            return None;
        }
        let section = address.checked_add(4)?.checked_add_signed(word(&bytes, 4)?.into())?;
        let claimed = usize::try_from(word(&bytes, 8)?).ok()?;
        let entries = claimed.min(bytes.len().saturating_sub(TABLE_AT) / ENTRY);
        (entries > 0).then_some(Self { bytes, address, entries, section })
    }

    /// Virtual address of `.eh_frame`.
    pub(super) const fn section(&self) -> u64 {
        self.section
    }

    fn entry(&self, index: usize) -> Option<(u64, u64)> {
        let at = TABLE_AT + index * ENTRY;
        let resolve = |at| self.address.checked_add_signed(word(&self.bytes, at)?.into());
        Some((resolve(at)?, resolve(at + 4)?))
    }

    fn find(&self, pc: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle)?.0 <= pc {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let (_, fde) = self.entry(low.checked_sub(1)?)?;
        usize::try_from(fde.checked_sub(self.section)?).ok()
    }
}

impl Index {
    /// Offset of the FDE that covers the virtual address `pc`, if any does; the header's table knows
    /// only where functions start, so the caller checks the FDE's range.
    pub(super) fn find(&self, pc: u64) -> Option<usize> {
        match self {
            Self::Header(table) => table.find(pc),
            Self::Built(entries) => {
                let after = entries.partition_point(|e| e.range.start <= pc);
                // Broken input may overlap; sound input is found at once.
                entries[..after]
                    .iter()
                    .rev()
                    .take(4)
                    .find(|e| e.range.contains(&pc))
                    .map(|e| e.offset)
            }
        }
    }

    /// Reads all entries of a section, up to the first that is broken. Entries for code that `is_code`
    /// denies (functions the linker threw away keep theirs in `.debug_frame`, at address 0) are
    /// left out.
    pub(super) fn build<'a, S: UnwindSection<Bytes<'a>>>(
        section: &S,
        bases: &BaseAddresses,
        is_code: impl Fn(u64) -> bool,
    ) -> Self {
        let mut found = Vec::new();
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(S::cie_from_offset) else { continue };
            let range = fde.initial_address()..fde.end_address();
            if range.start < range.end && is_code(range.start) {
                found.push(BuiltEntry { range, offset: fde.offset() });
            }
        }
        found.sort_by_key(|e| e.range.start);
        Self::Built(found)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<i32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(i32::from_le_bytes(bytes.try_into().ok()?))
}
