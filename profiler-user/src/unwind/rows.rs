//! An FDE compiled to rows: what to do at each pc of a function (DWARF 5, section 6.4).

use gimli::{BaseAddresses, EndianSlice, LittleEndian, UnwindContext, UnwindSection};

use super::arch::{REGISTERS, RETURN_ADDRESS};

/// How gimli sees a section here.
pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// More rows than any compiler writes for one function; a bound for broken input.
const ROWS_MAX: usize = 1 << 16;

/// A DWARF expression: where its bytes lie in the section it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expression {
    pub(super) offset: u32,
    pub(super) length: u32,
}

/// How to find the canonical frame address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CfaRule {
    Register { register: u8, offset: i32 },
    Expression(Expression),
}

/// How to find the value a register had in the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Undefined,
    SameValue,
    /// Saved at CFA + n.
    Offset(i32),
    /// Is CFA + n.
    ValOffset(i32),
    /// Is the value of another register.
    Register(u8),
    /// Saved at the address the expression yields.
    Expression(Expression),
    /// Is what the expression yields.
    ValExpression(Expression),
}

#[derive(Debug)]
struct Row {
    /// First pc, relative to the function.
    start: u32,
    rules_at: u32,
    rules: u8,
    cfa: CfaRule,
}

/// The compiled form of an FDE. Addresses are the ELF file's virtual addresses.
#[derive(Debug)]
pub(super) struct CompiledFde {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The function is a signal trampoline (augmentation `S`): its caller was interrupted.
    pub(super) signal: bool,
    rows: Box<[Row]>,
    rules: Box<[(u8, Rule)]>,
}

/// The rules for one pc; registers without one keep their value, and the stack pointer becomes
/// the CFA.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowRules<'a> {
    pub(super) cfa: CfaRule,
    pub(super) registers: &'a [(u8, Rule)],
}

impl CompiledFde {
    /// The rules at virtual address `pc`; `None` if the FDE could not be compiled.
    pub(super) fn row(&self, pc: u64) -> Option<RowRules<'_>> {
        let relative = u32::try_from(pc.checked_sub(self.start)?).ok()?;
        let after = self.rows.partition_point(|row| row.start <= relative);
        let row = self.rows.get(after.checked_sub(1)?)?;
        let at = row.rules_at as usize;
        let registers = self.rules.get(at..at + usize::from(row.rules))?;
        Some(RowRules { cfa: row.cfa, registers })
    }

    /// Compiles the FDE at `offset` of `section` if it covers `pc`. One that is broken yields an FDE
    /// without rows, so that it is not tried again; `None` means that there is none for `pc`.
    pub(super) fn compile<'a, S>(
        section: &S,
        bases: &BaseAddresses,
        offset: usize,
        pc: u64,
        scratch: &mut UnwindContext<usize>,
    ) -> Option<Self>
    where
        S: UnwindSection<Bytes<'a>>,
        S::Offset: From<usize>,
    {
        let fde = section.fde_from_offset(bases, offset.into(), S::cie_from_offset).ok()?;
        let (start, end) = (fde.initial_address(), fde.end_address());
        if !(start..end).contains(&pc) {
            return None;
        }
        let mut compiled = Self {
            start,
            end,
            signal: fde.is_signal_trampoline(),
            rows: Box::default(),
            rules: Box::default(),
        };
        let return_address = fde.cie().return_address_register();
        let mut builder =
            Builder { return_address, rows: Vec::new(), rules: Vec::new(), current: Vec::new() };
        let complete = (|| {
            let mut table = fde.rows(section, bases, scratch).ok()?;
            while let Some(row) = table.next_row().ok()? {
                builder.push(start, row)?;
            }
            Some(())
        })();
        if complete.is_some() {
            compiled.rows = builder.rows.into();
            compiled.rules = builder.rules.into();
        }
        Some(compiled)
    }
}

struct Builder {
    return_address: gimli::Register,
    rows: Vec<Row>,
    rules: Vec<(u8, Rule)>,
    current: Vec<(u8, Rule)>,
}

impl Builder {
    /// Adds a row; `None` if it holds what can't be followed.
    fn push(&mut self, function: u64, row: &gimli::UnwindTableRow<usize>) -> Option<()> {
        if self.rows.len() >= ROWS_MAX {
            return None;
        }
        let start = u32::try_from(row.start_address().checked_sub(function)?).ok()?;
        if self.rows.last().is_some_and(|last| last.start > start) {
            return None;
        }
        let cfa = match row.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } => CfaRule::Register {
                register: self.number(*register)?,
                offset: i32::try_from(*offset).ok()?,
            },
            gimli::CfaRule::Expression(at) => CfaRule::Expression(expression(at)?),
        };
        self.current.clear();
        for (register, rule) in row.registers() {
            // Vector and segment registers never lead to a caller.
            if let Some(number) = self.number(*register) {
                self.current.push((number, self.rule(rule)?));
            }
        }
        self.current.sort_unstable_by_key(|(number, _)| *number);
        let rules = u8::try_from(self.current.len()).ok()?;
        // Most rows change only the CFA, so they share the rules of the one before.
        let rules_at = match self.rows.last() {
            Some(last)
                if last.rules == rules
                    && self.rules[last.rules_at as usize..].starts_with(&self.current) =>
            {
                last.rules_at
            }
            _ => {
                let at = u32::try_from(self.rules.len()).ok()?;
                self.rules.extend_from_slice(&self.current);
                at
            }
        };
        self.rows.push(Row { start, rules_at, rules, cfa });
        Some(())
    }

    /// The number a register is known by here, whichever column the CIE chose for the return
    /// address; `None` for registers that are not tracked.
    fn number(&self, register: gimli::Register) -> Option<u8> {
        let number = if register == self.return_address { RETURN_ADDRESS } else { register.0 };
        (number < REGISTERS || number == RETURN_ADDRESS).then(|| u8::try_from(number).ok())?
    }

    fn rule(&self, rule: &gimli::RegisterRule<usize>) -> Option<Rule> {
        Some(match rule {
            gimli::RegisterRule::Undefined => Rule::Undefined,
            gimli::RegisterRule::SameValue => Rule::SameValue,
            gimli::RegisterRule::Offset(offset) => Rule::Offset(i32::try_from(*offset).ok()?),
            gimli::RegisterRule::ValOffset(offset) => Rule::ValOffset(i32::try_from(*offset).ok()?),
            gimli::RegisterRule::Register(register) => Rule::Register(self.number(*register)?),
            gimli::RegisterRule::Expression(at) => Rule::Expression(expression(at)?),
            gimli::RegisterRule::ValExpression(at) => Rule::ValExpression(expression(at)?),
            _ => return None,
        })
    }
}

fn expression(at: &gimli::UnwindExpression<usize>) -> Option<Expression> {
    Some(Expression {
        offset: u32::try_from(at.offset).ok()?,
        length: u32::try_from(at.length).ok()?,
    })
}
