//! DWARF expressions inside call frame information (DWARF 5, sections 2.5 and 6.4.2).

use gimli::{Encoding, EvaluationResult, Format, Location, Value};

use super::eval::{Context, ReadStack};
use super::rows::{Bytes, Expression};
use super::stack::StackEnd;

/// Real expressions take fewer than twenty operations; a bound for broken input.
const OPERATIONS_MAX: u32 = 1000;

const ENCODING: Encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 5 };

/// Evaluates an expression of `section` with the registers of the callee.
///
/// `initial` is pushed first (the CFA, for register rules); `bias` is what loading added to
/// addresses in the file.
///
/// # Errors
/// `MemoryNotCaptured` if it reads memory that is not in the copy, `BadUnwindInfo` for anything that
/// can't be followed.
pub(super) fn evaluate(
    section: &[u8],
    expression: Expression,
    initial: Option<u64>,
    context: &Context,
    bias: u64,
    read: ReadStack<'_>,
) -> Result<u64, StackEnd> {
    const BAD: StackEnd = StackEnd::BadUnwindInfo;
    let start = expression.offset as usize;
    let bytes = section.get(start..start.saturating_add(expression.length as usize)).ok_or(BAD)?;
    let mut evaluation =
        gimli::Expression(Bytes::new(bytes, gimli::LittleEndian)).evaluation(ENCODING);
    evaluation.set_max_iterations(OPERATIONS_MAX);
    if let Some(value) = initial {
        evaluation.set_initial_value(value);
    }
    let mut state = evaluation.evaluate();
    loop {
        state = match state.map_err(|_| BAD)? {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                evaluation.resume_with_register(Value::Generic(context.get(register.0)?))
            }
            EvaluationResult::RequiresMemory { address, size, space: None, .. } => {
                let value = read_sized(address, size, read).ok_or(StackEnd::MemoryNotCaptured)?;
                evaluation.resume_with_memory(Value::Generic(value))
            }
            EvaluationResult::RequiresRelocatedAddress(address) => {
                evaluation.resume_with_relocated_address(address.wrapping_add(bias))
            }
            // Call frame information may use none of the others (DWARF 5, section 6.4.2).
            _ => return Err(BAD),
        };
    }
    match evaluation.as_result() {
        [piece] => match piece.location {
            Location::Address { address } => Ok(address),
            Location::Value { value } => value.to_u64(u64::MAX).map_err(|_| BAD),
            Location::Register { register } => context.get(register.0),
            _ => Err(BAD),
        },
        _ => Err(BAD),
    }
}

/// Reads `size` (1 to 8) bytes; the copy is read in words, and the last word may be the one that
/// only ends with them.
fn read_sized(address: u64, size: u8, read: ReadStack<'_>) -> Option<u64> {
    let unused = 64_u32.checked_sub(u32::from(size).checked_mul(8)?).filter(|bits| *bits < 64)?;
    let mask = u64::MAX >> unused;
    if let Some(word) = read(address) {
        return Some(word & mask);
    }
    let before = address.checked_sub(u64::from(unused / 8))?;
    (unused > 0).then(|| read(before)).flatten().map(|word| word >> unused)
}
