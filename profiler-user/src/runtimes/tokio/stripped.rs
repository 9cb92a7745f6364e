//! tokio without symbols: what its code refers to tells the parts of it that matter.
//!
//! A panic of tokio names its source file, and the code that may panic refers to that name; that is in
//! every binary, stripped or not. So a function is known to hold code of a source file of tokio's. And
//! the tables that tokio keeps of each kind of task (`Vtable`: seven functions and three offsets, as
//! they are since 1.38 at the latest) look like nothing else in a program: the first function of
//! each polls a task. Both are read from the memory of the process, where addresses are final.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use regex::bytes::Regex;

use crate::binaries::{Mapping, ProcessMaps};
use crate::runtimes::recognise::executable;
use crate::symbolize::Frame;

/// Most bytes of a mapping that are searched: more than the constants of any program.
const MAPPING_MAX: u64 = 256 << 20;
/// Most bytes of a function that are searched.
const FUNCTION_MAX: u64 = 256 << 10;
/// Longest path of a source file.
const PATH_MAX: u64 = 512;
/// Functions of a task table, and offsets behind them.
const TABLE_FUNCTIONS: usize = 7;
const TABLE_WORDS: usize = TABLE_FUNCTIONS + 3;
/// The header of a task and its alignment bound where its scheduler lies; a task is rarely large.
const SCHEDULER_AT: Range<u64> = 24..257;
const TASK_MAX: u64 = 16 << 20;
/// A single match would be a coincidence: even a runtime without tasks has a few kinds of its own.
const TABLES_MIN: usize = 2;

/// What a process's memory tells, opened once.
struct Memory(File);

impl Memory {
    fn of(pid: u32) -> Option<Self> {
        File::open(format!("/proc/{pid}/mem")).ok().map(Self)
    }

    fn read(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(range.end.checked_sub(range.start)?).ok()?];
        self.0.read_exact_at(&mut bytes, range.start).ok()?;
        Some(bytes)
    }

    fn words<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let bytes = self.read(address..address.checked_add(8 * N as u64)?)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        Some(words)
    }
}

/// The constants of the main program.
fn constants(maps: &ProcessMaps) -> Vec<&Mapping> {
    let Some(program) = executable(maps) else { return Vec::new() };
    let of_program = |m: &&Mapping| m.path == program.path && !m.executable;
    maps.all().iter().filter(of_program).filter(|m| m.end - m.start <= MAPPING_MAX).collect()
}

fn code(maps: &ProcessMaps) -> Vec<Range<u64>> {
    let Some(program) = executable(maps) else { return Vec::new() };
    let of_program = |m: &&Mapping| m.path == program.path && m.executable;
    maps.all().iter().filter(of_program).map(|m| m.start..m.end).collect()
}

/// Whether the main program names source files of tokio's runtime.
#[must_use]
pub(crate) fn names_tokio(maps: &ProcessMaps) -> bool {
    let Some(memory) = Memory::of(maps.pid) else { return false };
    let Ok(path) = Regex::new(r"/tokio(-1\.[0-9.]+)?/src/runtime/[a-z_/]+\.rs") else {
        return false;
    };
    constants(maps)
        .iter()
        .filter_map(|mapping| memory.read(mapping.start..mapping.end))
        .any(|bytes| path.is_match(&bytes))
}

/// Where in the executable the functions begin that poll one task: offsets in the file, by the tables
/// that hold them. Empty where there are none that look like it.
pub(super) fn polls_by_tables(maps: &ProcessMaps) -> Vec<u64> {
    let Some(memory) = Memory::of(maps.pid) else { return Vec::new() };
    let code = code(maps);
    let mut polls = Vec::new();
    for mapping in constants(maps) {
        let Some(bytes) = memory.read(mapping.start..mapping.end) else { continue };
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        polls.extend(words.windows(TABLE_WORDS).filter_map(|table| poll_of(table, &code)));
    }
    if polls.len() < TABLES_MIN {
        return Vec::new();
    }
    let offset = |address: u64| maps.find(address).map(|mapping| mapping.file_offset(address));
    polls.into_iter().filter_map(offset).collect()
}

/// The first function of a task table; `None` if these words are none.
fn poll_of(words: &[u64], code: &[Range<u64>]) -> Option<u64> {
    let (functions, offsets) = words.split_at_checked(TABLE_FUNCTIONS)?;
    let &[trailer, scheduler, id] = offsets else { return None };
    let plausible = SCHEDULER_AT.contains(&scheduler)
        && scheduler <= id
        && id < trailer
        && trailer < TASK_MAX
        && [trailer, scheduler, id].iter().all(|offset| offset % 8 == 0);
    let is_code = |address: &u64| code.iter().any(|range| range.contains(address));
    (plausible && functions.iter().all(is_code)).then(|| functions[0])
}

/// A stand-in for a frame without a symbol, as far as its function tells whose code it holds: its
/// `file` is one of tokio's. `function` is where the code of the frame's function lies.
#[must_use]
pub fn stand_in(maps: &ProcessMaps, function: Range<u64>, polls: &[u64]) -> Frame {
    let start = maps.find(function.start).map(|mapping| mapping.file_offset(function.start));
    let polls_a_task = start.is_some_and(|start| polls.binary_search(&start).is_ok());
    let files = files_of(maps, function);
    let mentions = |part: &str| files.iter().any(|file| file.contains(part));
    // The worker's loop may have everything inlined, and so comes first.
    let file = if mentions("/multi_thread/worker.rs") || mentions("/thread_pool/worker.rs") {
        Some("/runtime/scheduler/multi_thread/worker.rs")
    } else if polls_a_task || mentions("/runtime/task/core.rs") || mentions("/task/harness.rs") {
        Some("/runtime/task/raw.rs")
    } else if mentions("/park.rs") || mentions("/park/thread.rs") {
        Some("/runtime/park.rs")
    } else if mentions("/runtime/blocking/pool.rs") || mentions("/runtime/blocking/sharded.rs") {
        Some("/runtime/blocking/pool.rs")
    } else {
        None
    };
    Frame { file: file.map(Arc::from), ..Frame::of_symbol(Arc::from("")) }
}

/// Source files of tokio's runtime that a function refers to: by `lea` of a `Location`, which begins
/// with the address and length of the path.
fn files_of(maps: &ProcessMaps, function: Range<u64>) -> Vec<String> {
    let Some(memory) = Memory::of(maps.pid) else { return Vec::new() };
    let end = function.end.min(function.start.saturating_add(FUNCTION_MAX));
    let Some(code) = memory.read(function.start..end) else { return Vec::new() };
    let constants = constants(maps);
    let is_constant = |address: u64| constants.iter().any(|m| (m.start..m.end).contains(&address));
    let mut files = Vec::new();
    for (at, bytes) in code.windows(7).enumerate() {
        // REX.W (R) lea r64, [rip + disp32]
        let &[0x48 | 0x4c, 0x8d, modrm, a, b, c, d] = bytes else { continue };
        if modrm & 0xc7 != 0x05 {
            continue;
        }
        let next = function.start + at as u64 + 7;
        let target = next.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into());
        if target % 8 != 0 || !is_constant(target) {
            continue;
        }
        let Some([path, length]) = memory.words::<2>(target) else { continue };
        if length > PATH_MAX || !is_constant(path) {
            continue;
        }
        let text = memory.read(path..path + length).and_then(|text| String::from_utf8(text).ok());
        if let Some(text) = text.filter(|text| text.ends_with(".rs") && text.contains("tokio")) {
            files.push(text);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_table_has_seven_functions_and_three_offsets() {
        let code = [0x1000..0x8000, 0x8000..0x9000];
        let table = [0x1010, 0x1020, 0x1030, 0x1040, 0x1050, 0x1060, 0x1070, 0x100, 0x20, 0x28];
        assert_eq!(poll_of(&table, &code), Some(0x1010));
        // Functions that are none; a trait object's table (drop, size, align, methods); offsets that
        // lie in no task.
        for (at, odd) in [(3, 0xa000), (1, 0x18), (7, 0x20), (8, 0), (9, 0x23), (7, u64::MAX)] {
            let mut other = table;
            other[at] = odd;
            assert_eq!(poll_of(&other, &code), None, "word {at} is {odd:#x}");
        }
        assert_eq!(poll_of(&table[..5], &code), None);
    }

    #[test]
    fn a_program_without_tokio_names_none_of_its_files() {
        assert!(!names_tokio(&ProcessMaps::default()));
        assert!(polls_by_tables(&ProcessMaps::default()).is_empty());
    }
}
