//! Where the fields of the interpreter's structures lie.
//!
//! From 3.13 on `_PyRuntime` begins with a table of them (`_Py_DebugOffsets`), which each version
//! lays out in its own way. For 3.8 to 3.12 they were read from the debug information of real builds
//! (`cargo xtask python-offsets`).

use std::collections::HashMap;
use std::sync::OnceLock;

use profiler_common::python::FRAME_MASK;
use serde::Deserialize;

use super::memory::Memory;

/// Offsets in bytes, for one version. What a version does not have is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Offsets {
    #[serde(skip)]
    pub(super) minor: u8,
    #[serde(skip)]
    pub(super) free_threaded: bool,
    pub(super) interpreters_head: u16,
    pub(super) interp_next: u16,
    pub(super) interp_threads: u16,
    pub(super) interp_modules: u16,
    pub(super) interp_gil: Option<u16>,
    pub(super) runtime_gil: Option<u16>,
    pub(super) interp_gc_collecting: Option<u16>,
    pub(super) runtime_gc_collecting: Option<u16>,
    pub(super) gil_last_holder: u16,
    pub(super) gil_locked: u16,
    pub(super) gil_bytes: u16,
    pub(super) thread_prev: u16,
    pub(super) thread_next: u16,
    pub(super) thread_interp: u16,
    pub(super) thread_id: u16,
    pub(super) thread_frame: u16,
    pub(super) cframe_frame: Option<u16>,
    pub(super) frame_previous: u16,
    pub(super) frame_code: u16,
    pub(super) frame_instr: u16,
    pub(super) frame_mark: Option<u16>,
    pub(super) frame_locals: u16,
    pub(super) code_filename: u16,
    pub(super) code_name: u16,
    pub(super) code_qualname: Option<u16>,
    pub(super) code_first_line: u16,
    pub(super) code_flags: u16,
    pub(super) code_lines: u16,
    pub(super) code_bytes: Option<u16>,
    /// Where threads' own copies of the instructions are listed (free-threaded builds since 3.14).
    #[serde(default)]
    pub(super) code_copies: Option<u16>,
    pub(super) unicode_length: u16,
    pub(super) unicode_state: u16,
    pub(super) unicode_ascii: u16,
    pub(super) unicode_compact: u16,
    pub(super) bytes_size: u16,
    pub(super) bytes_data: u16,
    pub(super) type_name: u16,
    pub(super) dict_keys: u16,
    pub(super) keys_entries: u16,
    pub(super) keys_indices: u16,
    pub(super) task_name: Option<u16>,
    pub(super) task_coro: Option<u16>,
}

/// Oldest version whose structures are known.
pub(super) const OLDEST_MINOR: u8 = 8;
/// First version that tells its offsets itself.
pub(super) const FIRST_WITH_TABLE: u8 = 13;
/// First version that keeps the running task in the thread.
pub(super) const FIRST_WITH_TASK_IN_THREAD: u8 = 14;

/// `sizeof(PyObject)`: a count and a type; without the lock the owner, flags and a second count as well.
const HEADER: u16 = 16;
const FREE_HEADER: u16 = 32;

fn table() -> &'static HashMap<String, Offsets> {
    static TABLE: OnceLock<HashMap<String, Offsets>> = OnceLock::new();
    TABLE.get_or_init(|| {
        // Its test reads it as well: a table that can't be read never gets here.
        serde_json::from_str(include_str!("offsets.json")).unwrap_or_default()
    })
}

/// Where in `_Py_DebugOffsets` the fields stand: numbers of 64-bit words behind the version.
struct Places {
    minor: u8,
    interpreter: usize,
    holder: usize,
    thread: usize,
    thread_id: usize,
    frame: usize,
    code: usize,
    kind: usize,
    dict: usize,
    bytes: usize,
    unicode: usize,
    collecting: usize,
    words: usize,
}

/// CPython's `Include/internal/pycore_runtime.h` (3.13) and `pycore_debug_offsets.h` (3.14, 3.15).
const PLACES: [Places; 3] = [
    Places {
        minor: 13,
        interpreter: 4,
        holder: 16,
        thread: 17,
        thread_id: 22,
        frame: 26,
        code: 32,
        kind: 45,
        dict: 54,
        bytes: 62,
        unicode: 65,
        collecting: 70,
        words: 71,
    },
    Places {
        minor: 14,
        interpreter: 4,
        holder: 17,
        thread: 20,
        thread_id: 25,
        frame: 29,
        code: 37,
        kind: 51,
        dict: 64,
        bytes: 72,
        unicode: 75,
        collecting: 80,
        words: 81,
    },
    Places {
        minor: 15,
        interpreter: 4,
        holder: 17,
        thread: 20,
        thread_id: 28,
        frame: 37,
        code: 45,
        kind: 59,
        dict: 76,
        bytes: 84,
        unicode: 87,
        collecting: 93,
        words: 94,
    },
];

impl Offsets {
    /// Those of a version that does not tell them.
    pub(super) fn of_version(minor: u8) -> Option<Self> {
        let mut offsets = table().get(&format!("3.{minor}"))?.clone();
        offsets.minor = minor;
        Some(offsets)
    }

    /// Those that `_PyRuntime` at this address begins with.
    pub(super) fn of_runtime(memory: &Memory, runtime: u64) -> Option<Self> {
        const COOKIE: &[u8; 8] = b"xdebugpy";
        let mut head = [0; 16];
        if !memory.fill(runtime, &mut head) || head[..8] != COOKIE[..] {
            return None;
        }
        // PY_VERSION_HEX: 0x030d00f0
        let minor = head[10];
        let places = PLACES.iter().find(|places| places.minor == minor && head[11] == 3)?;
        let mut bytes = vec![0; places.words * 8];
        if !memory.fill(runtime + 16, &mut bytes) {
            return None;
        }
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .filter_map(|word| word.try_into().ok().map(u64::from_le_bytes))
            .collect();
        Self::read_table(places, &words)
    }

    fn read_table(places: &Places, words: &[u64]) -> Option<Self> {
        let at = |word: usize| words.get(word).and_then(|&w| u16::try_from(w).ok());
        let interp = |field: usize| at(places.interpreter + field);
        let thread = |field: usize| at(places.thread + field);
        let frame = |field: usize| at(places.frame + field);
        let code = |field: usize| at(places.code + field);
        // size, …, gil_runtime_state (three before the holder), enabled, locked, holder
        let (gil, locked, holder) =
            (at(places.holder - 3)?, at(places.holder - 1)?, at(places.holder)?);
        let known = Self::of_version(FIRST_WITH_TABLE)?;
        let gc = interp(if places.minor == FIRST_WITH_TABLE { 4 } else { 5 })?;
        let modules = interp(if places.minor == FIRST_WITH_TABLE { 5 } else { 6 })?;
        let free_threaded = *words.first()? != 0;
        // The table is of builds with the lock; without it, the header alone is longer (`_asyncio` of
        // 3.13.15 says so).
        let longer = if free_threaded { FREE_HEADER - HEADER } else { 0 };
        let task = |field: Option<u16>| {
            field.filter(|_| places.minor == FIRST_WITH_TABLE).map(|field| field + longer)
        };
        let offsets = Self {
            minor: places.minor,
            free_threaded,
            interpreters_head: at(3)?,
            interp_next: interp(2)?,
            interp_threads: interp(3)?,
            interp_modules: modules,
            interp_gil: Some(at(places.holder - 4)?),
            runtime_gil: None,
            interp_gc_collecting: Some(gc.checked_add(at(places.collecting)?)?),
            runtime_gc_collecting: None,
            gil_last_holder: holder.checked_sub(gil)?,
            gil_locked: locked.checked_sub(gil)?,
            gil_bytes: known.gil_bytes,
            thread_prev: thread(1)?,
            thread_next: thread(2)?,
            thread_interp: thread(3)?,
            thread_frame: thread(4)?,
            thread_id: at(places.thread_id)?,
            cframe_frame: None,
            frame_previous: frame(1)?,
            frame_code: frame(2)?,
            frame_instr: frame(3)?,
            frame_mark: Some(frame(5)?),
            frame_locals: frame(4)?,
            code_filename: code(1)?,
            code_name: code(2)?,
            code_qualname: Some(code(3)?),
            code_lines: code(4)?,
            code_first_line: code(5)?,
            // `int co_flags; int co_argcount;` since 3.11.
            code_flags: code(6)?.checked_sub(4)?,
            code_bytes: Some(code(9)?),
            code_copies: code(10).filter(|_| free_threaded && places.minor > FIRST_WITH_TABLE),
            type_name: at(places.kind)?,
            dict_keys: at(places.dict + 1)?,
            bytes_size: at(places.bytes + 1)?,
            bytes_data: at(places.bytes + 2)?,
            unicode_state: at(places.unicode + 1)?,
            unicode_length: at(places.unicode + 2)?,
            unicode_ascii: at(places.unicode + 3)?,
            // `PyCompactUnicodeObject` adds a length and a pointer.
            unicode_compact: at(places.unicode + 3)?.checked_add(16)?,
            keys_entries: known.keys_entries,
            keys_indices: known.keys_indices,
            task_name: task(known.task_name),
            task_coro: task(known.task_coro),
        };
        offsets.are_plausible().then_some(offsets)
    }

    fn are_plausible(&self) -> bool {
        let words = [
            self.interpreters_head,
            self.interp_threads,
            self.thread_next,
            self.thread_id,
            self.thread_frame,
            self.frame_previous,
            self.frame_instr,
            self.code_filename,
            self.code_name,
            self.code_lines,
        ];
        words.iter().all(|offset| offset.is_multiple_of(8))
            && u32::from(self.frame_bytes()) <= FRAME_MASK
            && self.code_name == self.code_filename + 8
            && self.gil_last_holder < self.gil_bytes
            && self.gil_locked < self.gil_bytes
    }

    /// Bytes of a frame that hold everything that is asked for.
    pub(super) fn frame_bytes(&self) -> u16 {
        let ends = [self.frame_previous, self.frame_code, self.frame_instr];
        let mark = self.frame_mark.map_or(0, |mark| (mark & !7) + 8);
        ends.into_iter().map(|start| start + 8).max().unwrap_or(0).max(mark)
    }

    /// Bytes that each object begins with; the last eight are its type.
    pub(super) const fn header(&self) -> u16 {
        if self.free_threaded { FREE_HEADER } else { HEADER }
    }

    /// Where a field of an object is that lies at `field` in builds with the lock.
    pub(super) const fn shifted(&self, field: u16) -> u16 {
        field + (self.header() - HEADER)
    }

    /// Where a text keeps its hash: behind its length, since CPython 3.3.
    pub(super) const fn text_hash(&self) -> u16 {
        self.unicode_length + 8
    }

    /// Bit of the state of a text at which the width of its characters begins.
    pub(super) fn unicode_kind_bit(&self) -> u32 {
        // Without the lock, from 3.14 on, the bits before it are a byte of their own, for atomic access.
        if self.free_threaded && self.minor > FIRST_WITH_TABLE { 8 } else { 2 }
    }

    /// Whether a dictionary's keys tell logarithms of sizes (3.11).
    pub(super) const fn keys_have_logarithms(&self) -> bool {
        self.minor >= 11
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_version_that_does_not_tell() {
        for minor in OLDEST_MINOR..FIRST_WITH_TABLE {
            let offsets = Offsets::of_version(minor).expect("in the table");
            assert!(offsets.are_plausible(), "3.{minor}: {offsets:?}");
            assert_eq!(offsets.frame_mark.is_some(), minor >= 11);
            assert_eq!(offsets.runtime_gil.is_some(), minor < 12);
            assert!(offsets.task_name.is_some());
        }
        assert!(Offsets::of_version(7).is_none());
    }

    /// As CPython 3.13.15 and the headers of 3.14 have it.
    #[test]
    fn objects_without_the_lock_have_a_longer_header() {
        let with = Offsets { unicode_length: 16, minor: 13, ..Offsets::default() };
        assert_eq!((with.header(), with.text_hash(), with.unicode_kind_bit()), (16, 24, 2));
        let without = Offsets { unicode_length: 32, free_threaded: true, ..with };
        assert_eq!(
            (without.header(), without.text_hash(), without.unicode_kind_bit()),
            (32, 40, 2)
        );
        assert_eq!(Offsets { minor: 14, ..without }.unicode_kind_bit(), 8);
    }

    #[test]
    fn a_table_of_zeros_is_refused() {
        for places in &PLACES {
            assert_eq!(Offsets::read_table(places, &vec![0; places.words]), None);
            assert_eq!(Offsets::read_table(places, &vec![u64::MAX; places.words]), None);
            assert_eq!(Offsets::read_table(places, &[]), None);
        }
    }
}
