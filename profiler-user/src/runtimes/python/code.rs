//! Code objects: file, name, lines. Their addresses are used again after they were freed, so what is
//! read is believed only if the object is the one that the kernel side saw.

use std::collections::HashMap;
use std::sync::Arc;

use profiler_common::python::{PythonFrame, identity};

use super::interpreter::Interpreter;
use super::lines::line_at;
use crate::symbolize::printable;

/// Bits of a pointer to a code object that are tags.
pub(super) const TAGS: u64 = 7;
/// Code objects that are kept.
const MAX_CACHED: usize = 64 << 10;

/// One code object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) name: Arc<str>,
    pub(super) file: Arc<str>,
    pub(super) flags: u32,
    first_line: u32,
    lines: Vec<u8>,
    minor: u8,
    /// Where its instructions begin, in versions whose frames point at them.
    bytes: Option<u16>,
}

impl Code {
    /// The line of an instruction as a frame has it.
    pub(super) fn line(&self, frame: &PythonFrame) -> Option<u32> {
        self.line_of(frame.instr.wrapping_sub(match self.bytes {
            Some(_) => frame.code & !TAGS,
            None => 0,
        }))
    }

    /// The line of an instruction by its distance from the code object, or its index.
    pub(super) fn line_of(&self, instr: u64) -> Option<u32> {
        let offset = match self.bytes {
            Some(bytes) => instr.wrapping_sub(u64::from(bytes)).cast_signed(),
            // 32 bits, -1 before the first instruction; in 3.10 an index of code units.
            None => {
                let index = i64::from((instr as u32).cast_signed());
                if self.minor == 10 { index * 2 } else { index }
            }
        };
        line_at(self.minor, &self.lines, self.first_line, offset)
    }
}

/// Everything that was read so far.
#[derive(Debug, Default)]
pub(super) struct Codes {
    known: HashMap<(u32, u64, u64), Arc<Code>>,
    names: HashMap<String, Arc<str>>,
}

impl Codes {
    /// The code of a frame; `None` if it was freed meanwhile or can't be read.
    pub(super) fn get(&mut self, of: &Interpreter, frame: &PythonFrame) -> Option<Arc<Code>> {
        let object = frame.code & !TAGS;
        let key = (of.pid, object, frame.identity);
        if let Some(known) = self.known.get(&key) {
            return Some(Arc::clone(known));
        }
        let code = self.read(of, object, frame.identity)?;
        if self.known.len() >= MAX_CACHED {
            self.known.clear();
            self.names.clear();
        }
        let code = Arc::new(code);
        self.known.insert(key, Arc::clone(&code));
        Some(code)
    }

    pub(super) fn forget(&mut self, pid: u32) {
        self.known.retain(|key, _| key.0 != pid);
    }

    fn read(&mut self, of: &Interpreter, object: u64, seen: u64) -> Option<Code> {
        let (memory, offsets) = (&of.memory, &of.offsets);
        if object == 0 || seen == 0 || !is_it(of, object, seen) {
            return None;
        }
        let text = |field| memory.text(offsets, memory.field(object, field)?);
        let name = text(offsets.code_qualname.unwrap_or(offsets.code_name))?;
        let file = text(offsets.code_filename)?;
        let lines = memory.bytes(offsets, memory.field(object, offsets.code_lines)?)?;
        let half = |field: u16| memory.half(object.checked_add(u64::from(field))?);
        let (flags, first_line) = (half(offsets.code_flags)?, half(offsets.code_first_line)?);
        // It may have been freed while it was read.
        if !is_it(of, object, seen) {
            return None;
        }
        let (name, file) = (self.intern(&name), self.intern(&file));
        let (minor, bytes) = (offsets.minor, offsets.code_bytes);
        Some(Code { name, file, flags, first_line, lines, minor, bytes })
    }

    fn intern(&mut self, text: &str) -> Arc<str> {
        let text = printable(text);
        if let Some(known) = self.names.get(&*text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = Arc::from(&*text);
        self.names.insert(text.to_string(), Arc::clone(&new));
        new
    }
}

/// Whether an object is the one that was seen, and alive: the words of one that was freed may still
/// be there, while what they point at is something else.
fn is_it(of: &Interpreter, object: u64, seen: u64) -> bool {
    let alive = of.offsets.free_threaded || of.memory.word(object).is_some_and(is_reference_count);
    alive && identity_of(of, object) == Some(seen)
}

/// Tells the count of references that an object begins with from what allocators write there when
/// it is freed: zero, or an address. Objects that are never freed count from 2^31 on, and in 3.11, whose
/// binary has the code of the import system, from about 999,999,999 (`_PyObject_IMMORTAL_REFCNT`).
fn is_reference_count(word: u64) -> bool {
    const MOST: u32 = 10_000_000;
    const IN_BINARY: u32 = 999_999_999;
    // From 3.14 on the upper bits are flags.
    let (count, middle) = (word as u32, (word >> 32) as u16);
    let in_binary = count.abs_diff(IN_BINARY) < 1_000_000;
    middle == 0 && ((1..=MOST).contains(&count) || in_binary || count >= 1 << 31)
}

/// As the kernel side computes it.
pub(super) fn identity_of(of: &Interpreter, object: u64) -> Option<u64> {
    let mut words = [0; 24];
    let from = object.checked_add(u64::from(of.offsets.code_filename))?;
    if !of.memory.fill(from, &mut words) {
        return None;
    }
    let word = |at: usize| words[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(0);
    let hash = of.memory.field(word(8), of.offsets.text_hash()).unwrap_or(0);
    Some(identity([word(0), word(8), word(16), hash]))
}

#[cfg(test)]
mod tests {
    use super::is_reference_count;

    #[test]
    fn a_freed_object_does_not_look_alive() {
        for count in
            [1, 2, 1_000_000, 1_000_000_012, 0xffff_ffff, 0xc000_0000, 0x0040_0000_c000_0000]
        {
            assert!(is_reference_count(count), "{count:#x}");
        }
        for word in [0, 0x7f12_3456_7890, 0x5512_3456_7890, 0x029f_1000] {
            assert!(!is_reference_count(word), "{word:#x}");
        }
    }
}
