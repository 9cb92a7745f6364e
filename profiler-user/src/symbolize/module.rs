//! One binary: its headers, symbols and debug information, and what they say about an address.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::debuglink;
use super::demangle::demangle;
use super::dwarf::{Dwarf, Level};
use super::elf::{Elf, Source};
use super::error::LoadError;
use super::printable::printable;
use super::split::SplitDwarf;
use super::symbols::SymbolTable;
use crate::binaries::Binary;

/// A binary with what is known about it so far.
pub(super) struct Module {
    /// Its path as the target sees it, printable.
    pub(super) path: Arc<str>,
    /// Whether it holds Rust code.
    pub(super) rust: bool,
    /// Its build id in hexadecimal digits.
    pub(super) build_id: Option<Arc<str>>,
    elf: Elf,
    symbols: SymbolTable,
    dwarf: Debug,
}

/// The debug information of a module, read when the first line is asked for.
enum Debug {
    Unread(Box<Unread>),
    Read(Box<Dwarf>),
    Absent,
}

struct Unread {
    /// The separate debug file; `None` where the binary has its own.
    file: Option<Elf>,
    split: SplitDwarf,
}

/// A function at an address, before it becomes a frame.
pub(super) struct Place {
    /// Demangled, printable; `None` where nothing names the code.
    pub(super) function: Option<String>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) inlined: bool,
}

impl Module {
    /// Reads headers and symbols of a binary, and finds its debug file.
    ///
    /// Damaged symbols cost only the names; the reason is appended to `warnings`.
    pub(super) fn load(
        binary: Binary,
        debug_dirs: &[PathBuf],
        warnings: &mut Vec<LoadError>,
    ) -> Result<Self, LoadError> {
        let elf = Elf::parse(Source::File(binary.file))?;
        let path = Path::new(&*binary.path);
        let own_lines = has_dwarf(&elf);
        let debug = if own_lines && elf.holds(".symtab") {
            None
        } else {
            debuglink::find(&elf, path, &binary.root, debug_dirs)
        };
        let mut packages = vec![with_dwp(path)];
        packages.extend(debug.as_ref().map(|d| with_dwp(&d.path)));
        let split = SplitDwarf::new(&binary.root, packages);
        let symbols = symbols(&elf, debug.as_ref().map(|d| &d.elf), warnings);
        let dwarf = match debug {
            _ if own_lines => Debug::Unread(Box::new(Unread { file: None, split })),
            Some(debug) if has_dwarf(&debug.elf) => {
                Debug::Unread(Box::new(Unread { file: Some(debug.elf), split }))
            }
            _ => Debug::Absent,
        };
        Ok(Self::new(&binary.path, elf, symbols, dwarf))
    }

    /// Reads a binary that exists only in memory: the vdso.
    pub(super) fn from_memory(
        path: &str,
        bytes: Arc<[u8]>,
        warnings: &mut Vec<LoadError>,
    ) -> Result<Self, LoadError> {
        let elf = Elf::parse(Source::Bytes(bytes))?;
        let symbols = symbols(&elf, None, warnings);
        Ok(Self::new(path, elf, symbols, Debug::Absent))
    }

    fn new(path: &str, elf: Elf, symbols: SymbolTable, dwarf: Debug) -> Self {
        let rust = symbols.defined(is_rust_symbol).next().is_some();
        let build_id = elf.build_id_digits().map(Arc::from);
        Self { path: Arc::from(&*printable(path)), rust, build_id, elf, symbols, dwarf }
    }

    /// The address that the linker gave to a byte of the file.
    pub(super) fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.elf.address_of(file_offset)
    }

    /// Where in the file the byte at a linked address is.
    pub(super) fn offset_of(&self, address: u64) -> Option<u64> {
        self.elf.offset_of(address)
    }

    /// The address that the linker gave to a section.
    pub(super) fn section_address(&self, name: &str) -> Option<u64> {
        self.elf.section(name).map(|section| section.address)
    }

    pub(super) const fn symbols(&self) -> &SymbolTable {
        &self.symbols
    }

    /// The functions at a linked address, innermost first; at least one.
    ///
    /// Damaged debug information costs lines and inlining; the reason is appended to `warnings`.
    pub(super) fn places(&mut self, address: u64, warnings: &mut Vec<LoadError>) -> Vec<Place> {
        let mut levels = self.levels(address, warnings);
        let symbol = self.symbols.function_at(address);
        let outermost = levels.pop().unwrap_or(Level { function: None, file: None, line: None });
        let mut places: Vec<Place> = levels
            .into_iter()
            .map(|level| Place {
                function: level.function.map(|name| demangle(&name)),
                file: level.file,
                line: level.line,
                inlined: true,
            })
            .collect();
        // The symbol has the full path where DWARF may have the last segment only; but a symbol
        // without a size may reach over functions that have no symbol.
        let name = match (symbol, outermost.function) {
            (Some((_, false)), Some(from_dwarf)) => Some(demangle(&from_dwarf)),
            (Some((symbol, _)), _) => Some(demangle(&symbol)),
            (None, from_dwarf) => from_dwarf.map(|name| demangle(&name)),
        };
        places.push(Place {
            function: name.filter(|name| !name.is_empty()),
            file: outermost.file,
            line: outermost.line,
            inlined: false,
        });
        places
    }

    fn levels(&mut self, address: u64, warnings: &mut Vec<LoadError>) -> Vec<Level> {
        if matches!(self.dwarf, Debug::Unread(_))
            && let Debug::Unread(unread) = std::mem::replace(&mut self.dwarf, Debug::Absent)
        {
            let Unread { file, split } = *unread;
            match Dwarf::load(file.as_ref().unwrap_or(&self.elf), split) {
                Ok(dwarf) => self.dwarf = Debug::Read(Box::new(dwarf)),
                Err(error) => warnings.push(error),
            }
        }
        let Debug::Read(dwarf) = &mut self.dwarf else { return Vec::new() };
        match dwarf.levels(address) {
            Ok(levels) => levels,
            Err(error) => {
                // What was too costly once is not tried again.
                if matches!(error, LoadError::Refused(_)) {
                    self.dwarf = Debug::Absent;
                }
                warnings.push(error);
                Vec::new()
            }
        }
    }

    /// How much it can say, to compare files of one build: lines first, then symbols.
    pub(super) fn knows(&self) -> (bool, usize) {
        let lines = !matches!(self.dwarf, Debug::Absent);
        (lines, self.symbols.defined(|_| true).count())
    }

    /// Bytes of memory in use, about.
    pub(super) fn bytes(&self) -> usize {
        let dwarf = match &self.dwarf {
            // Indexes and parsed units come to about as much again.
            Debug::Read(dwarf) => dwarf.bytes * 2,
            _ => 0,
        };
        self.symbols.bytes() + dwarf
    }
}

fn symbols(elf: &Elf, debug: Option<&Elf>, warnings: &mut Vec<LoadError>) -> SymbolTable {
    SymbolTable::load(elf, debug).unwrap_or_else(|error| {
        warnings.push(error);
        SymbolTable::default()
    })
}

fn has_dwarf(elf: &Elf) -> bool {
    elf.holds(".debug_info") || elf.holds(".zdebug_info")
}

fn with_dwp(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".dwp");
    PathBuf::from(name)
}

/// Symbols that every Rust program defines: the runtime's, in both manglings.
fn is_rust_symbol(name: &[u8]) -> bool {
    name.starts_with(b"_ZN3std2rt")
        || name == b"rust_eh_personality"
        || name == b"rust_begin_unwind"
        || (name.starts_with(b"_R") && name.windows(7).any(|part| part == b"3std2rt"))
}
