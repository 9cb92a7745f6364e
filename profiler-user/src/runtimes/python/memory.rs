//! Reading a process's memory and the plain objects in it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::offsets::Offsets;

/// Longest text that is read; a name or a path is shorter.
const TEXT_MAX: u64 = 4096;
/// Longest line table that is read.
const BYTES_MAX: u64 = 4 << 20;
/// Most entries of a dictionary that are looked at.
const ENTRIES_MAX: u64 = 1 << 16;

/// The memory of one process.
#[derive(Debug)]
pub(super) struct Memory(File);

impl Memory {
    /// Opens it; it stays this program's, even if the process executes another one.
    pub(super) fn open(pid: u32) -> Option<Self> {
        File::open(format!("/proc/{pid}/mem")).ok().map(Self)
    }

    /// Fills a buffer; false if not all of it is there.
    pub(super) fn fill(&self, address: u64, into: &mut [u8]) -> bool {
        // Offsets above the signed range are refused by the system call with a misleading error.
        i64::try_from(address).is_ok() && self.0.read_exact_at(into, address).is_ok()
    }

    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.fill(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    pub(super) fn half(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.fill(address, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    pub(super) fn field(&self, object: u64, offset: u16) -> Option<u64> {
        self.word(object.checked_add(u64::from(offset))?)
    }

    /// A C string of at most 64 bytes.
    pub(super) fn c_string(&self, address: u64) -> Option<String> {
        let mut bytes = [0; 64];
        // It may lie at the end of what is mapped.
        if !self.fill(address, &mut bytes) && !self.fill(address, &mut bytes[..16]) {
            return None;
        }
        let end = bytes.iter().position(|&byte| byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// The text of a `str` object.
    pub(super) fn text(&self, offsets: &Offsets, object: u64) -> Option<String> {
        let mut head = [0; 64];
        let header = usize::from(offsets.unicode_ascii).min(head.len());
        if !self.fill(object, &mut head[..header]) {
            return None;
        }
        let shape = TextShape::of(offsets, &head)?;
        let mut data = vec![0; shape.bytes()?];
        if !self.fill(object.checked_add(u64::from(shape.data))?, &mut data) {
            return None;
        }
        shape.decode(&data)
    }

    /// The bytes of a `bytes` object.
    pub(super) fn bytes(&self, offsets: &Offsets, object: u64) -> Option<Vec<u8>> {
        let length = self.field(object, offsets.bytes_size)?;
        if length > BYTES_MAX {
            return None;
        }
        let mut data = vec![0; usize::try_from(length).ok()?];
        self.fill(object.checked_add(u64::from(offsets.bytes_data))?, &mut data).then_some(data)
    }

    /// Keys and values of a dictionary that does not share its keys with others.
    pub(super) fn entries(&self, offsets: &Offsets, dict: u64) -> Option<Vec<(u64, u64)>> {
        let keys = self.field(dict, offsets.dict_keys)?;
        let entries = self.table(offsets, keys)?;
        Some(entries.into_iter().filter(|entry| entry.1 != 0).collect())
    }

    /// All entries of a dictionary's keys, in the order in which they were made. Values are zero where
    /// they are kept elsewhere, or gone.
    pub(super) fn table(&self, offsets: &Offsets, keys: u64) -> Option<Vec<(u64, u64)>> {
        let used = self.field(keys, offsets.keys_entries)?;
        if used > ENTRIES_MAX {
            return None;
        }
        let shape = self.word(keys.checked_add(8)?)?;
        let (index_bytes, has_hash) = if offsets.keys_have_logarithms() {
            (1_u64.checked_shl(u32::from(shape.to_le_bytes()[1]))?, shape.to_le_bytes()[2] == 0)
        } else {
            let width = match shape {
                0..=0xff => 1,
                0x100..=0xffff => 2,
                0x1_0000..=0xffff_ffff => 4,
                _ => 8,
            };
            (shape.checked_mul(width)?, true)
        };
        let first = keys.checked_add(u64::from(offsets.keys_indices))?.checked_add(index_bytes)?;
        let words = if has_hash { 3 } else { 2 };
        let mut data = vec![0; usize::try_from(used * words * 8).ok()?];
        if !self.fill(first, &mut data) {
            return None;
        }
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
        let entry = |entry: &[u8]| {
            let key = entry.len() - 16;
            (word(&entry[key..key + 8]), word(&entry[key + 8..]))
        };
        Some(data.chunks_exact(words as usize * 8).map(entry).collect())
    }

    /// The value of a text key.
    pub(super) fn lookup(&self, offsets: &Offsets, dict: u64, name: &str) -> Option<u64> {
        let entries = self.entries(offsets, dict)?;
        let is_it = |key: u64| {
            self.field(key, offsets.unicode_length) == Some(name.len() as u64)
                && self.text(offsets, key).as_deref() == Some(name)
        };
        entries.into_iter().find(|&(key, _)| is_it(key)).map(|(_, value)| value)
    }

    /// The name of a type.
    pub(super) fn name_of_type(&self, offsets: &Offsets, kind: u64) -> Option<String> {
        self.c_string(self.field(kind, offsets.type_name)?)
    }
}

/// How the characters of a `str` object are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextShape {
    /// Characters.
    length: u64,
    /// Bytes of a character.
    width: u64,
    /// Where they begin in the object.
    pub(super) data: u16,
}

impl TextShape {
    /// Reads the first bytes of an object; `None` for one that is not compact.
    pub(super) fn of(offsets: &Offsets, head: &[u8]) -> Option<Self> {
        let at = usize::from(offsets.unicode_length);
        let length = u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?);
        let at = usize::from(offsets.unicode_state);
        let state = u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?);
        let state = state >> offsets.unicode_kind_bit();
        let (width, compact, ascii) = (u64::from(state & 7), state >> 3 & 1, state >> 4 & 1);
        let data = if ascii != 0 { offsets.unicode_ascii } else { offsets.unicode_compact };
        (compact != 0 && matches!(width, 1 | 2 | 4)).then_some(Self { length, width, data })
    }

    pub(super) fn bytes(self) -> Option<usize> {
        usize::try_from(self.length.checked_mul(self.width).filter(|&b| b <= TEXT_MAX)?).ok()
    }

    pub(super) fn decode(self, data: &[u8]) -> Option<String> {
        let character = |bytes: &[u8]| {
            let mut wide = [0; 4];
            wide[..bytes.len()].copy_from_slice(bytes);
            char::from_u32(u32::from_le_bytes(wide)).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        let data = data.get(..self.bytes()?)?;
        Some(data.chunks_exact(usize::try_from(self.width).ok()?).map(character).collect())
    }
}
