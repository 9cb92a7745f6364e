//! Copies of instructions: in builds without the lock each thread specialises its own, since CPython 3.14.
//!
//! A code object's line table is of the instructions that lie in the object itself; what is known of an
//! instruction in a copy is known by its distance from the copy's beginning.

use profiler_common::python::{OWNED_BY_C, PythonFrame};

use super::code::TAGS;
use super::interpreter::Interpreter;

/// `PyVarObject.ob_size` of a code object: its units of two bytes.
const UNITS: u16 = 16;
const UNIT_BYTES: u64 = 2;
/// `_PyCodeArray`: a count, then the copies, the object's own instructions first.
const FIRST_COPY: u64 = 8;
/// More copies than that are not looked through: one for each thread that ever ran the code.
const COPIES_MAX: u64 = 4096;
const BYTES_MAX: u64 = 1 << 30;

/// Where the copies of one code object's instructions lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copies {
    /// Length of each, in bytes.
    bytes: u32,
    /// Their distances from the code object, modulo 2^32, as the kernel side tells that of a sample. The
    /// first is the object's own.
    distances: Vec<u32>,
}

impl Copies {
    /// Those of a code object; `None` where there are none but its own.
    pub(super) fn read(of: &Interpreter, object: u64) -> Option<Self> {
        let memory = &of.memory;
        let array = memory.field(object, of.offsets.code_copies?).filter(|&array| array != 0)?;
        let bytes = of.part(object, UNITS)?.checked_mul(UNIT_BYTES).filter(|&b| b < BYTES_MAX)?;
        let count = memory.word(array).filter(|&count| count <= COPIES_MAX)?;
        let mut copies = vec![0; usize::try_from(count).ok()? * 8];
        if !memory.fill(array.checked_add(FIRST_COPY)?, &mut copies) {
            return None;
        }
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
        let own = object.checked_add(u64::from(of.offsets.code_bytes?))?;
        let copies = copies.chunks_exact(8).map(word).filter(|&copy| copy != 0 && copy != own);
        let distances =
            [own].into_iter().chain(copies).map(|copy| copy.wrapping_sub(object) as u32).collect();
        Some(Self { bytes: bytes as u32, distances })
    }

    /// The distance of the same instruction in the object itself; both modulo 2^32.
    pub(super) fn in_object(&self, distance: u32) -> Option<u32> {
        let own = self.distances.first()?;
        let into = self.distances.iter().map(|copy| distance.wrapping_sub(*copy));
        into.into_iter().find(|&into| into < self.bytes).map(|into| own + into)
    }
}

impl Interpreter {
    /// A frame whose instruction is that of the code object itself, not of a thread's copy.
    pub(super) fn straightened(&self, mut frame: PythonFrame) -> PythonFrame {
        if self.offsets.code_copies.is_none() || frame.mark >= OWNED_BY_C {
            return frame;
        }
        let object = frame.code & !TAGS;
        let distance = frame.instr.wrapping_sub(object) as u32;
        if let Some(found) =
            Copies::read(self, object).and_then(|copies| copies.in_object(distance))
        {
            frame.instr = object.wrapping_add(u64::from(found));
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::Copies;

    #[test]
    fn an_instruction_of_a_copy_is_one_of_the_object() {
        let copies = Copies { bytes: 100, distances: vec![208, 0xffff_f000, 0x8000_0000] };
        assert_eq!(copies.in_object(208 + 40), Some(248));
        assert_eq!(copies.in_object(0xffff_f000 + 98), Some(208 + 98));
        assert_eq!(copies.in_object(0x8000_0000), Some(208));
        assert_eq!(copies.in_object(208 + 100), None);
        assert_eq!(copies.in_object(7), None);
    }
}
