//! x86-64: System V psABI, "DWARF register number mapping" (table 3.36) and section 3.4.1.

/// `e_machine` of the binaries that can be unwound.
pub(in crate::unwind) const ELF_MACHINE: u16 = object::elf::EM_X86_64;
/// Registers with DWARF numbers below this are tracked: the general-purpose ones.
pub(in crate::unwind) const REGISTERS: u16 = 16;
/// DWARF number of `rsp`.
pub(in crate::unwind) const STACK_POINTER: u16 = 7;
/// DWARF number of `rbp`.
pub(in crate::unwind) const FRAME_POINTER: u16 = 6;
/// DWARF number of the return-address column; as an operand of an expression it is `rip`.
pub(in crate::unwind) const RETURN_ADDRESS: u16 = 16;
/// Bytes below the stack pointer that signals leave alone (psABI, section 3.2.2).
pub(in crate::unwind) const RED_ZONE: u64 = 128;

/// Bytes a saved frame pointer takes, from its address to the caller's stack pointer.
const FRAME_RECORD: u64 = 16;

/// The user registers of a thread at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// General-purpose registers by DWARF number: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8-r15.
    pub gpr: [u64; 16],
}

impl Registers {
    /// From the words of the kernel's `struct pt_regs` (and of `PTRACE_GETREGS`, whose first 21
    /// words are the same): r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di `orig_ax` ip cs
    /// flags sp ss.
    #[must_use]
    pub const fn from_pt_regs(words: &[u64; 21]) -> Self {
        let [r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, _, ip, _, _, sp, _] =
            *words;
        Self { ip, gpr: [ax, dx, cx, bx, si, di, bp, sp, r8, r9, r10, r11, r12, r13, r14, r15] }
    }

    /// The stack pointer.
    #[must_use]
    pub const fn sp(&self) -> u64 {
        self.gpr[STACK_POINTER as usize]
    }
}

/// Where a function that keeps `rbp` as its frame pointer leaves things: the addresses of the
/// caller's frame pointer and of the return address, and the caller's stack pointer (psABI,
/// figure 3.3). `None` if `frame_pointer` can't be one.
pub(in crate::unwind) const fn frame_pointer_slots(frame_pointer: u64) -> Option<(u64, u64, u64)> {
    if frame_pointer == 0 || !frame_pointer.is_multiple_of(8) {
        return None;
    }
    match frame_pointer.checked_add(FRAME_RECORD) {
        Some(caller_sp) => Some((frame_pointer, frame_pointer + 8, caller_sp)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_registers_get_their_dwarf_numbers() {
        let words: [u64; 21] = std::array::from_fn(|i| i as u64);
        let regs = Registers::from_pt_regs(&words);
        assert_eq!((regs.ip, regs.sp()), (16, 19));
        assert_eq!(regs.gpr, [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0]);
    }
}
