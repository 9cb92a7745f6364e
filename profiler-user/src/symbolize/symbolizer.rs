//! Addresses to frames.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::cache::{ModuleId, Modules};
use super::counters::{Failures, SymbolCounters};
use super::demangle::demangle;
use super::frame::{Frame, FrameKind, Origin};
use super::kernel::KernelSymbols;
use super::printable::printable;
use super::user_code::{CodePlace, UserCode};
use crate::binaries::{Mapping, ProcessMaps};

/// Most addresses whose frames are kept; a busy program has some thousands of hot ones.
const MAX_CACHED: usize = 256 << 10;

/// Where to look for symbols, and whose code is whose.
#[derive(Debug, Clone)]
pub struct SymbolOptions {
    /// Directories with separate debug files, searched in the target's root first, then in ours.
    pub debug_dirs: Vec<PathBuf>,
    /// The rules that tell the user's own code.
    pub user_code: UserCode,
}

impl Default for SymbolOptions {
    fn default() -> Self {
        Self { debug_dirs: vec![PathBuf::from("/usr/lib/debug")], user_code: UserCode::default() }
    }
}

/// Which symbols a question is about. Names are as the binary spells them: mangled, no version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SymbolPattern<'a> {
    /// The very name.
    Exact(&'a str),
    /// Names that start with it.
    Prefix(&'a str),
    /// Names that contain it.
    Contains(&'a str),
}

impl SymbolPattern<'_> {
    fn matches(self, name: &[u8]) -> bool {
        match self {
            Self::Exact(text) => name == text.as_bytes(),
            Self::Prefix(text) => name.starts_with(text.as_bytes()),
            Self::Contains("") => true,
            Self::Contains(text) => name.windows(text.len()).any(|part| part == text.as_bytes()),
        }
    }
}

/// A symbol that a binary defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinedSymbol {
    /// Its name as the binary spells it.
    pub name: Arc<str>,
    /// The address that the linker gave it.
    pub address: u64,
    /// Where it lies in the file, which is what a uprobe needs; `None` for `.bss`.
    pub file_offset: Option<u64>,
}

/// Turns addresses of processes and of the kernel into frames, and remembers them.
///
/// Binaries are read when the first address in them is asked for, so it must be asked while the
/// process still lives, or the file must still be at its path.
pub struct Symbolizer {
    options: SymbolOptions,
    modules: Modules,
    failures: Failures,
    unsymbolized: u64,
    frames: HashMap<(ModuleId, u64), Arc<[Frame]>>,
    names: HashMap<(ModuleId, u64), Option<Arc<str>>>,
    answers: HashMap<(ModuleId, String), bool>,
    strings: HashSet<Arc<str>>,
    kernel: Option<KernelSymbols>,
    kernel_frames: HashMap<u64, Frame>,
}

impl Symbolizer {
    /// A symbolizer that has read nothing yet.
    #[must_use]
    pub fn new(options: SymbolOptions) -> Self {
        Self {
            options,
            modules: Modules::default(),
            failures: Failures::default(),
            unsymbolized: 0,
            frames: HashMap::new(),
            names: HashMap::new(),
            answers: HashMap::new(),
            strings: HashSet::new(),
            kernel: None,
            kernel_frames: HashMap::new(),
        }
    }

    /// The frames at one address of a process, innermost (inlined) first; at least one.
    ///
    /// `lookup` is the address of the instruction that runs: for a return address, one less. Code
    /// without a symbol gives one unnamed frame, `module+0x…` with the address as linked, or
    /// `0x…` outside all binaries. Asking again for the same code is a hash lookup.
    pub fn frames(&mut self, maps: &ProcessMaps, lookup: u64) -> Vec<Frame> {
        let frames = self.find_frames(maps, lookup);
        self.unsymbolized += frames.iter().filter(|frame| !frame.named).count() as u64;
        frames
    }

    /// Reads what [`frames`](Self::frames) will need of the binary at an address.
    pub fn read_module(&mut self, maps: &ProcessMaps, address: u64) {
        self.find_frames(maps, address);
    }

    fn find_frames(&mut self, maps: &ProcessMaps, lookup: u64) -> Vec<Frame> {
        let Some(mapping) = maps.find(lookup) else {
            return vec![unnamed(Arc::from(format!("{lookup:#x}")), None, false)];
        };
        let offset = mapping.file_offset(lookup);
        let dirs = &self.options.debug_dirs;
        let Some((id, module)) = self.modules.get(maps, mapping, dirs, &mut self.failures) else {
            return vec![self.outside_modules(mapping, lookup, offset)];
        };
        let address = module.address_of(offset).unwrap_or(offset);
        if let Some(frames) = self.frames.get(&(id, address)) {
            let mut frames = frames.to_vec();
            // The same file may be mapped under another path, in another container.
            if *module.path != *mapping.path {
                let path = intern(&mut self.strings, &printable(&mapping.path));
                frames.iter_mut().for_each(|frame| frame.module = Some(Arc::clone(&path)));
            }
            return frames;
        }
        let mut warnings = Vec::new();
        let places = module.places(address, &mut warnings);
        for warning in &warnings {
            self.failures.add(&mapping.path, warning);
        }
        if self.strings.len() > MAX_CACHED {
            self.strings.clear();
        }
        let strings = &mut self.strings;
        let path = intern(strings, &module.path);
        let mut frames = Vec::with_capacity(places.len());
        for place in places {
            let file = place.file.as_deref().map(printable);
            let user_code = self.options.user_code.is_user(&CodePlace {
                function: place.function.as_deref(),
                file: file.as_deref(),
                module: Some(&path),
                rust: module.rust,
            });
            let function = match &place.function {
                Some(name) => intern(strings, name),
                None => Arc::from(made_up(&path, address)),
            };
            frames.push(Frame {
                function,
                file: file.map(|file| intern(strings, &file)),
                line: place.line,
                module: Some(Arc::clone(&path)),
                kind: FrameKind::Native,
                inlined: place.inlined,
                user_code,
                named: place.function.is_some(),
                origin: Origin {
                    address: Some(address),
                    build_id: module.build_id.clone(),
                    source: None,
                },
            });
        }
        if self.frames.len() >= MAX_CACHED {
            self.frames.clear();
        }
        self.frames.insert((id, address), Arc::from(frames.as_slice()));
        frames
    }

    /// A frame in anonymous memory, or in a binary that can't be read.
    fn outside_modules(&mut self, mapping: &Mapping, lookup: u64, offset: u64) -> Frame {
        if !mapping.is_file() {
            let module = (!mapping.path.is_empty())
                .then(|| intern(&mut self.strings, &printable(&mapping.path)));
            return unnamed(Arc::from(format!("{lookup:#x}")), module, false);
        }
        let path = intern(&mut self.strings, &printable(&mapping.path));
        let code = CodePlace { module: Some(&path), ..CodePlace::default() };
        let user_code = self.options.user_code.is_user(&code);
        unnamed(Arc::from(made_up(&path, offset)), Some(path), user_code)
    }

    /// The frame of an address in the kernel, by `/proc/kallsyms`, which is read once.
    ///
    /// Unnamed (`0x…`) where the kernel hides its addresses (`kptr_restrict`, no `CAP_SYSLOG`).
    pub fn kernel_frame(&mut self, address: u64) -> Frame {
        if let Some(frame) = self.kernel_frames.get(&address) {
            self.unsymbolized += u64::from(!frame.named);
            return frame.clone();
        }
        let symbols = self.kernel.get_or_insert_with(KernelSymbols::read);
        let frame = match symbols.find(address) {
            Some((name, module)) => Frame {
                function: intern(&mut self.strings, &demangle(name)),
                module: Some(intern(&mut self.strings, &printable(module))),
                named: true,
                kind: FrameKind::Kernel,
                ..unnamed(Arc::from(""), None, false)
            },
            None => Frame {
                kind: FrameKind::Kernel,
                ..unnamed(Arc::from(format!("{address:#x}")), Some(Arc::from("[kernel]")), false)
            },
        };
        if self.kernel_frames.len() >= MAX_CACHED {
            self.kernel_frames.clear();
        }
        self.kernel_frames.insert(address, frame.clone());
        self.unsymbolized += u64::from(!frame.named);
        frame
    }

    /// Names kernel addresses by this text, written as kallsyms is, instead of the running kernel's.
    pub fn set_kernel_symbols(&mut self, kallsyms: &str) {
        self.kernel = Some(KernelSymbols::parse(kallsyms));
        self.kernel_frames.clear();
    }

    /// The ELF symbol that covers an address, demangled; no debug information is read for it.
    pub fn symbol_name(&mut self, maps: &ProcessMaps, address: u64) -> Option<Arc<str>> {
        let mapping = maps.find(address)?;
        let dirs = &self.options.debug_dirs;
        let (id, module) = self.modules.get(maps, mapping, dirs, &mut self.failures)?;
        let address = module.address_of(mapping.file_offset(address))?;
        if let Some(name) = self.names.get(&(id, address)) {
            return name.clone();
        }
        let name = module.symbols().function_at(address).map(|(name, _)| demangle(&name));
        let name = name.map(|name| intern(&mut self.strings, &name));
        if self.names.len() >= MAX_CACHED {
            self.names.clear();
        }
        self.names.insert((id, address), name.clone());
        name
    }

    /// Whether the binary behind a mapping defines such a symbol, function or data.
    ///
    /// The answer is kept for each binary and pattern.
    pub fn has_symbol(
        &mut self,
        maps: &ProcessMaps,
        mapping: &Mapping,
        pattern: SymbolPattern<'_>,
    ) -> bool {
        let dirs = &self.options.debug_dirs;
        let Some((id, module)) = self.modules.get(maps, mapping, dirs, &mut self.failures) else {
            return false;
        };
        if self.answers.len() >= MAX_CACHED {
            self.answers.clear();
        }
        *self.answers.entry((id, format!("{pattern:?}"))).or_insert_with(|| {
            module.symbols().defined(|name| pattern.matches(name)).next().is_some()
        })
    }

    /// The symbols of a binary that match, functions and data, in the order of its tables; one that
    /// stands in two tables may come twice. Walks all symbols each time.
    pub fn find_symbols(
        &mut self,
        maps: &ProcessMaps,
        mapping: &Mapping,
        pattern: SymbolPattern<'_>,
    ) -> Vec<DefinedSymbol> {
        let dirs = &self.options.debug_dirs;
        let Some((_, module)) = self.modules.get(maps, mapping, dirs, &mut self.failures) else {
            return Vec::new();
        };
        let symbols = module.symbols().defined(|name| pattern.matches(name));
        let found = symbols.map(|(name, address)| DefinedSymbol {
            name: Arc::from(&*String::from_utf8_lossy(name)),
            address,
            file_offset: module.offset_of(address),
        });
        found.collect()
    }

    /// Where a symbol of the binary behind a mapping lies in the process.
    pub fn address_in_process(
        &mut self,
        maps: &ProcessMaps,
        mapping: &Mapping,
        name: &str,
    ) -> Option<u64> {
        let dirs = &self.options.debug_dirs;
        let (_, module) = self.modules.get(maps, mapping, dirs, &mut self.failures)?;
        let bias = mapping.start.wrapping_sub(module.address_of(mapping.offset)?);
        let (_, address) = module.symbols().defined(|n| n == name.as_bytes()).next()?;
        Some(address.wrapping_add(bias))
    }

    /// Where a section of the binary behind a mapping lies in the process.
    pub fn section_in_process(
        &mut self,
        maps: &ProcessMaps,
        mapping: &Mapping,
        name: &str,
    ) -> Option<u64> {
        let dirs = &self.options.debug_dirs;
        let (_, module) = self.modules.get(maps, mapping, dirs, &mut self.failures)?;
        let bias = mapping.start.wrapping_sub(module.address_of(mapping.offset)?);
        Some(module.section_address(name)?.wrapping_add(bias))
    }

    /// How it went so far.
    #[must_use]
    pub fn counters(&self) -> SymbolCounters {
        SymbolCounters {
            unsymbolized_frames: self.unsymbolized,
            binaries: self.modules.count(),
            failed: self.failures.all().to_vec(),
        }
    }
}

impl std::fmt::Debug for Symbolizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Symbolizer").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

fn unnamed(function: Arc<str>, module: Option<Arc<str>>, user_code: bool) -> Frame {
    Frame {
        function,
        file: None,
        line: None,
        module,
        kind: FrameKind::Native,
        inlined: false,
        user_code,
        named: false,
        origin: Origin::default(),
    }
}

/// `module+0x…`: enough to look the address up later, with the debug file at hand.
fn made_up(path: &str, address: u64) -> String {
    format!("{}+{address:#x}", path.rsplit('/').next().unwrap_or(path))
}

/// The shared copy of a string.
fn intern(strings: &mut HashSet<Arc<str>>, text: &str) -> Arc<str> {
    if let Some(known) = strings.get(text) {
        return Arc::clone(known);
    }
    let new: Arc<str> = Arc::from(text);
    strings.insert(Arc::clone(&new));
    new
}
