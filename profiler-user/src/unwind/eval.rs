//! A row and the registers of a frame -> the registers of its caller.

use super::arch::{RED_ZONE, REGISTERS, RETURN_ADDRESS, Registers, STACK_POINTER};
use super::expression::evaluate;
use super::rows::{CfaRule, RowRules, Rule};
use super::stack::StackEnd;

/// Reads the 8 bytes at an address of the captured stack.
pub(super) type ReadStack<'a> = &'a mut dyn FnMut(u64) -> Option<u64>;

/// The registers of a frame, and which of them are not known.
///
/// Registers that a callee need not preserve keep the value they have in the callee, as libgcc's
/// unwinder does it: assembly calls helpers that leave them alone by agreement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub(super) registers: Registers,
    /// Bit per register: the frame information says it can't be recovered.
    undefined: u32,
    /// Bit per register: it was saved in memory that is not in the copy.
    not_captured: u32,
}

impl Context {
    pub(super) const fn new(registers: Registers) -> Self {
        Self { registers, undefined: 0, not_captured: 0 }
    }

    /// The value of a register by DWARF number, the return-address column being the instruction
    /// pointer.
    ///
    /// # Errors
    /// The value is not known, or the register is not tracked.
    pub(super) fn get(&self, register: u16) -> Result<u64, StackEnd> {
        if register == RETURN_ADDRESS {
            return Ok(self.registers.ip);
        }
        let value = self.registers.gpr.get(usize::from(register)).ok_or(StackEnd::BadUnwindInfo)?;
        let bit = 1 << register;
        if self.not_captured & bit != 0 {
            Err(StackEnd::MemoryNotCaptured)
        } else if self.undefined & bit != 0 {
            Err(StackEnd::BadUnwindInfo)
        } else {
            Ok(*value)
        }
    }

    /// Sets a general-purpose register to a value, or to not known and why.
    pub(super) fn set(&mut self, register: u16, value: Result<u64, StackEnd>) {
        let Some(slot) = self.registers.gpr.get_mut(usize::from(register)) else { return };
        let bit = 1 << register;
        self.undefined &= !bit;
        self.not_captured &= !bit;
        match value {
            Ok(value) => *slot = value,
            Err(StackEnd::MemoryNotCaptured) => self.not_captured |= bit,
            Err(_) => self.undefined |= bit,
        }
    }

    /// Forgets all registers but the given ones.
    pub(super) fn keep_only(&mut self, registers: &[u16]) {
        for register in (0..REGISTERS).filter(|r| !registers.contains(r)) {
            self.set(register, Err(StackEnd::BadUnwindInfo));
        }
    }
}

/// Applies a row: the caller's registers, `ip` being the return address.
///
/// # Errors
/// `Complete` if the row says that there is no caller (return address undefined: psABI, section
/// 6.4 of DWARF 5); else why the caller can't be found.
pub(super) fn caller(
    row: RowRules<'_>,
    section: &[u8],
    bias: u64,
    callee: &Context,
    read: ReadStack<'_>,
) -> Result<Context, StackEnd> {
    let return_rule = row.registers.iter().find(|(r, _)| u16::from(*r) == RETURN_ADDRESS);
    let Some((_, return_rule)) = return_rule else { return Err(StackEnd::BadUnwindInfo) };
    match return_rule {
        Rule::Undefined => return Err(StackEnd::Complete),
        Rule::SameValue => return Err(StackEnd::BadUnwindInfo),
        _ => {}
    }
    let cfa = match row.cfa {
        CfaRule::Register { register, offset } => {
            callee.get(register.into())?.wrapping_add_signed(offset.into())
        }
        CfaRule::Expression(at) => evaluate(section, at, None, callee, bias, &mut *read)?,
    };
    let mut value = |rule: Rule, register: u16| match rule {
        Rule::Undefined => Err(StackEnd::BadUnwindInfo),
        Rule::SameValue => callee.get(register),
        Rule::ValOffset(offset) => Ok(cfa.wrapping_add_signed(offset.into())),
        Rule::Register(other) => callee.get(other.into()),
        Rule::Offset(offset) => {
            saved(callee, register, cfa.wrapping_add_signed(offset.into()), &mut *read)
        }
        Rule::Expression(at) => {
            let address = evaluate(section, at, Some(cfa), callee, bias, &mut *read)?;
            saved(callee, register, address, &mut *read)
        }
        Rule::ValExpression(at) => evaluate(section, at, Some(cfa), callee, bias, &mut *read),
    };
    let mut result = *callee;
    result.registers.ip = value(*return_rule, RETURN_ADDRESS)?;
    // The stack pointer of the caller is the CFA by definition, unless a rule says otherwise.
    result.set(STACK_POINTER, Ok(cfa));
    for (register, rule) in row.registers {
        let register = u16::from(*register);
        if register != RETURN_ADDRESS {
            result.set(register, value(*rule, register));
        }
    }
    result.get(STACK_POINTER)?;
    Ok(result)
}

/// Reads a saved register. Compilers don't say when an epilogue pops a register, so its slot may
/// lie below the stack pointer, where a copy need not reach; it holds what the register holds.
fn saved(
    callee: &Context,
    register: u16,
    address: u64,
    read: ReadStack<'_>,
) -> Result<u64, StackEnd> {
    match read(address) {
        Some(value) => Ok(value),
        None if (1..=RED_ZONE).contains(&callee.registers.sp().wrapping_sub(address))
            && register != RETURN_ADDRESS =>
        {
            callee.get(register)
        }
        None => Err(StackEnd::MemoryNotCaptured),
    }
}
