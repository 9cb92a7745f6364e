//! The symbol tables of a binary: which function covers an address, which names are defined.

use std::sync::Arc;

use object::elf;

use super::elf::{Elf, Section};
use super::error::LoadError;

/// Most entries taken from one table; Chromium has about two million.
const MAX_SYMBOLS: usize = 16 << 20;
/// How many preceding symbols a lookup inspects for one that encloses the address.
const MAX_STEPS_BACK: usize = 256;

/// A function and the addresses it covers.
#[derive(Debug, Clone, Copy)]
struct Function {
    start: u64,
    /// Address after the last.
    end: u64,
    name: Name,
    /// Whether the table states the size, or it was taken from what follows.
    sized: bool,
}

/// Place of a name: which string table, and where in it.
#[derive(Debug, Clone, Copy)]
struct Name {
    table: u16,
    offset: u32,
}

/// A defined symbol of any type.
#[derive(Debug, Clone, Copy)]
struct Defined {
    name: Name,
    value: u64,
}

/// The symbols of one binary, from all its tables and its separate debug file.
#[derive(Debug, Default)]
pub(super) struct SymbolTable {
    strings: Vec<Arc<[u8]>>,
    /// By start; at most one for each start.
    functions: Vec<Function>,
    /// `furthest_end[i]` is the largest end among `functions[..=i]`.
    furthest_end: Vec<u64>,
    defined: Vec<Defined>,
}

/// A function while it competes with others at the same address.
struct Candidate {
    function: Function,
    rank: u8,
}

impl SymbolTable {
    /// Reads `.symtab` and `.dynsym` of the binary and `.symtab` of its debug file, and names the
    /// stubs of the procedure linkage table.
    pub(super) fn load(binary: &Elf, debug: Option<&Elf>) -> Result<Self, LoadError> {
        let mut table = Self::default();
        let code: Vec<&Section> = binary.sections().iter().filter(|s| s.executable).collect();
        let mut candidates = Vec::new();
        let mut failed = None;
        // Each table that can be read counts; .dynsym adds nothing where .symtab is complete.
        let own_symtab = binary.holds(".symtab");
        let tables = [
            (debug, ".symtab", ".strtab"),
            (Some(binary), ".symtab", ".strtab"),
            (Some(binary).filter(|_| !own_symtab), ".dynsym", ".dynstr"),
        ];
        for (file, symbols, strings) in tables {
            let Some(file) = file else { continue };
            if let Err(error) = table.read(file, symbols, strings, &code, &mut candidates) {
                failed = Some(error);
            }
        }
        // Damage to the stubs' relocations costs their names only.
        let _ = super::plt::stubs(binary, |start, end, name| {
            if let Some(name) = table.add_name(&name) {
                let function = Function { start, end, name, sized: true };
                candidates.push(Candidate { function, rank: 0 });
            }
        });
        table.index(candidates);
        match failed {
            Some(error) if table.functions.is_empty() => Err(error),
            _ => Ok(table),
        }
    }

    fn add_name(&mut self, name: &str) -> Option<Name> {
        if self.strings.len() >= usize::from(u16::MAX) {
            return None;
        }
        self.strings.push(name.bytes().chain([0]).collect());
        Some(Name { table: u16::try_from(self.strings.len() - 1).ok()?, offset: 0 })
    }

    fn read(
        &mut self,
        file: &Elf,
        symbols: &str,
        strings: &str,
        code: &[&Section],
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), LoadError> {
        let bytes = file.read_section(symbols)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let Ok(table) = u16::try_from(self.strings.len()) else { return Ok(()) };
        self.strings.push(file.read_section(strings)?);
        for symbol in Symbols::new(file, &bytes).take(MAX_SYMBOLS) {
            if symbol.section == elf::SHN_UNDEF || symbol.name == 0 {
                continue;
            }
            let name = Name { table, offset: symbol.name };
            let kind = symbol.info & 15;
            if !matches!(kind, elf::STT_SECTION | elf::STT_FILE | elf::STT_TLS) {
                self.defined.push(Defined { name, value: symbol.value });
            }
            if let Some(candidate) = self.candidate(&symbol, name, code) {
                candidates.push(candidate);
            }
        }
        Ok(())
    }

    /// A symbol as a candidate for naming code: of a code-like type and inside a code section.
    fn candidate(&self, symbol: &Symbol, name: Name, code: &[&Section]) -> Option<Candidate> {
        let kind = match symbol.info & 15 {
            elf::STT_FUNC | elf::STT_GNU_IFUNC => 0,
            elf::STT_NOTYPE => 4,
            _ => return None,
        };
        let section =
            code.iter().find(|s| symbol.value >= s.address && symbol.value - s.address < s.size)?;
        let text = self.text(name)?;
        // Mapping symbols ($x, $d) and assembler-local labels name no function.
        if text.is_empty() || text[0] == b'$' || text.starts_with(b".L") {
            return None;
        }
        let binding = match symbol.info >> 4 {
            elf::STB_LOCAL => 2,
            elf::STB_WEAK => 1,
            _ => 0,
        };
        let section_end = section.address.saturating_add(section.size);
        let sized = symbol.size > 0;
        let end = if sized {
            symbol.value.saturating_add(symbol.size).min(section_end)
        } else {
            section_end
        };
        let function = Function { start: symbol.value, end, name, sized };
        Some(Candidate { function, rank: 1 + kind + binding })
    }

    /// Chooses one symbol for each start, ends the unsized ones, and prepares the lookup.
    fn index(&mut self, mut candidates: Vec<Candidate>) {
        // Aliases: sized before unsized, then by rank, then the name nearest to what a user wrote
        // (fewest underscores in front, then the shorter).
        candidates.sort_by_cached_key(|c| {
            let text = self.text(c.function.name).unwrap_or_default();
            let underscores = text.iter().take_while(|b| **b == b'_').count();
            (c.function.start, !c.function.sized, c.rank, underscores, text.len())
        });
        candidates.dedup_by_key(|c| c.function.start);
        let mut covered_to = 0;
        let starts: Vec<u64> = candidates.iter().map(|c| c.function.start).collect();
        for (i, Candidate { mut function, .. }) in candidates.into_iter().enumerate() {
            if !function.sized {
                // A label inside a sized function is no function of its own.
                if function.start < covered_to {
                    continue;
                }
                function.end = starts.get(i + 1).map_or(function.end, |&s| function.end.min(s));
            }
            covered_to = covered_to.max(function.end);
            self.functions.push(function);
            self.furthest_end.push(covered_to);
        }
    }

    fn text(&self, name: Name) -> Option<&[u8]> {
        let rest = self.strings.get(usize::from(name.table))?.get(name.offset as usize..)?;
        // Longer names exist only to hurt; reports cut at 4096 characters anyway.
        let rest = &rest[..rest.len().min(64 << 10)];
        Some(&rest[..rest.iter().position(|b| *b == 0).unwrap_or(rest.len())])
    }

    /// The mangled name of the function that covers a linked address, and whether its table states
    /// the size (so that the name is certain).
    pub(super) fn function_at(&self, address: u64) -> Option<(std::borrow::Cow<'_, str>, bool)> {
        let after = self.functions.partition_point(|f| f.start <= address);
        for i in (0..after).rev().take(MAX_STEPS_BACK) {
            if self.furthest_end[i] <= address {
                return None;
            }
            let function = &self.functions[i];
            if address < function.end {
                let text = String::from_utf8_lossy(self.text(function.name)?);
                return Some((text, function.sized));
            }
        }
        None
    }

    /// Every defined symbol whose mangled name passes `test`, with its linked address.
    pub(super) fn defined<'a>(
        &'a self,
        test: impl Fn(&[u8]) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a [u8], u64)> + 'a {
        self.defined.iter().filter_map(move |d| {
            let text = self.text(d.name)?;
            // Versions are no part of a name.
            let text = text.split(|b| *b == b'@').next().unwrap_or(text);
            test(text).then_some((text, d.value))
        })
    }

    /// Bytes of memory in use, about.
    pub(super) fn bytes(&self) -> usize {
        self.strings.iter().map(|s| s.len()).sum::<usize>()
            + self.functions.len() * (size_of::<Function>() + 8)
            + self.defined.len() * size_of::<Defined>()
    }
}

/// One entry of a symbol table (`Elf32_Sym` or `Elf64_Sym`).
pub(super) struct Symbol {
    /// Offset of the name in the string table.
    pub(super) name: u32,
    info: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// The entries of a symbol table.
pub(super) struct Symbols<'a> {
    bytes: &'a [u8],
    is_64: bool,
    little: bool,
}

impl<'a> Symbols<'a> {
    pub(super) fn new(file: &Elf, bytes: &'a [u8]) -> Self {
        Self { bytes, is_64: file.is_64, little: file.endian == gimli::RunTimeEndian::Little }
    }

    fn take_bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        let mut head = *head;
        if !self.little {
            head.reverse();
        }
        Some(head)
    }
}

impl Iterator for Symbols<'_> {
    type Item = Symbol;

    fn next(&mut self) -> Option<Symbol> {
        let name = u32::from_le_bytes(self.take_bytes()?);
        if self.is_64 {
            let [info, _other] = self.bytes.first_chunk().copied()?;
            self.bytes = &self.bytes[2..];
            let section = u16::from_le_bytes(self.take_bytes()?);
            let value = u64::from_le_bytes(self.take_bytes()?);
            let size = u64::from_le_bytes(self.take_bytes()?);
            return Some(Symbol { name, info, section, value, size });
        }
        let value = u32::from_le_bytes(self.take_bytes()?).into();
        let size = u32::from_le_bytes(self.take_bytes()?).into();
        let [info, _other] = self.bytes.first_chunk().copied()?;
        self.bytes = &self.bytes[2..];
        let section = u16::from_le_bytes(self.take_bytes()?);
        Some(Symbol { name, info, section, value, size })
    }
}
