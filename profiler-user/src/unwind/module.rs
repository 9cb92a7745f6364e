//! One ELF image: its unwind sections, where its code lies, and its compiled functions.

use std::collections::BTreeMap;

use gimli::{BaseAddresses, DebugFrame, EhFrame, LittleEndian, UnwindContext};
use object::elf::{FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD, ProgramHeader64};
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{LittleEndian as Little, Object as _, ObjectSection as _, ReadCache, ReadRef};

use super::arch::ELF_MACHINE;
use super::index::{HeaderTable, Index};
use super::rows::CompiledFde;
use super::source::Content;

/// Sections above this (bytes) are refused; those of browsers have some 30 MB.
const SECTION_MAX: u64 = 1 << 29;
/// Upper bound for the length of a `_start` without call frame information (musl's has 22 bytes).
const ENTRY_BYTES: u64 = 48;

/// Why a module can't serve to unwind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ModuleError {
    #[error("not an ELF file that can be read")]
    NotElf,
    #[error("for another architecture")]
    Architecture,
    #[error("neither .eh_frame nor .debug_frame")]
    NoSections,
}

/// A loaded module. Addresses are the file's own virtual addresses.
#[derive(Debug)]
pub(super) struct Module {
    segments: Vec<Segment>,
    entry: u64,
    bases: BaseAddresses,
    eh_frame: Option<Table>,
    debug_frame: Option<Table>,
    scratch: UnwindContext<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    offset: u64,
    address: u64,
    size: u64,
    executable: bool,
}

/// A section of call frame information and the functions of it compiled so far, by start.
#[derive(Debug)]
struct Table {
    bytes: Box<[u8]>,
    index: Index,
    compiled: BTreeMap<u64, CompiledFde>,
}

/// A function's rows, and the section that their expressions lie in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) fde: &'a CompiledFde,
    pub(super) section: &'a [u8],
}

impl Module {
    /// Reads what unwinding needs of an image.
    ///
    /// # Errors
    /// It is no ELF file for this architecture, or has no unwind information.
    pub(super) fn load(content: Content) -> Result<Self, ModuleError> {
        match content {
            Content::File(file) => Self::parse(&ReadCache::new(file)),
            Content::Bytes(bytes) => Self::parse(&*bytes),
        }
    }

    fn parse<'d, R: ReadRef<'d>>(data: R) -> Result<Self, ModuleError> {
        let header = FileHeader64::<Little>::parse(data).map_err(|_| ModuleError::NotElf)?;
        if header.e_machine.get(Little) != ELF_MACHINE {
            return Err(ModuleError::Architecture);
        }
        let headers = header.program_headers(Little, data).map_err(|_| ModuleError::NotElf)?;
        // Without usable section headers the program headers must do.
        let elf = ElfFile64::<Little, R>::parse(data).ok();
        let section = |name: &str| elf.as_ref().and_then(|elf| read_section(elf, name));
        let address = |name: &str| Some(elf.as_ref()?.section_by_name(name)?.address());

        let header_table = section(".eh_frame_hdr")
            .or_else(|| read_segment(headers, data, PT_GNU_EH_FRAME))
            .and_then(|(bytes, address)| HeaderTable::parse(bytes, address));
        let eh_frame = section(".eh_frame").or_else(|| {
            let start = header_table.as_ref()?.section();
            Some((read_from(headers, data, start)?, start))
        });
        let debug_frame = section(".debug_frame");
        if eh_frame.is_none() && debug_frame.is_none() {
            return Err(ModuleError::NoSections);
        }

        let mut bases = BaseAddresses::default();
        if let Some(text) = address(".text") {
            bases = bases.set_text(text);
        }
        if let Some(got) = address(".got") {
            bases = bases.set_got(got);
        }
        if let Some((_, address)) = &eh_frame {
            bases = bases.set_eh_frame(*address);
        }
        let segments: Vec<_> = headers.iter().filter_map(load_segment).collect();
        let is_code = |pc| {
            segments.iter().any(|s| s.executable && pc >= s.address && pc - s.address < s.size)
        };
        let eh_frame = eh_frame.map(|(bytes, address)| {
            let index = match header_table {
                // A table for another section than the one read is of no use.
                Some(table) if table.section() == address => Index::Header(table),
                _ => Index::build(&EhFrame::new(&bytes, LittleEndian), &bases, is_code),
            };
            Table { bytes, index, compiled: BTreeMap::new() }
        });
        let debug_frame = debug_frame.map(|(bytes, _)| {
            let index = Index::build(&debug_section(&bytes), &bases, is_code);
            Table { bytes, index, compiled: BTreeMap::new() }
        });
        Ok(Self {
            entry: header.e_entry.get(Little),
            segments,
            bases,
            eh_frame,
            debug_frame,
            scratch: UnwindContext::new(),
        })
    }

    /// The virtual address of what lies at `offset` of the file, for code. The kernel maps whole
    /// pages, so the ends of a segment's pages count as part of it.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        const PAGE: u64 = 4096;
        let holds = |s: &&Segment, slack: u64| {
            let start = s.offset - s.offset % slack.max(1);
            let end = s.offset.saturating_add(s.size).checked_next_multiple_of(slack.max(1));
            offset >= start && end.is_none_or(|end| offset < end)
        };
        let code = || self.segments.iter().filter(|s| s.executable);
        let segment = code().find(|s| holds(s, 1)).or_else(|| code().find(|s| holds(s, PAGE)))?;
        Some(segment.address.wrapping_add(offset).wrapping_sub(segment.offset))
    }

    /// Whether an address without unwind information lies in the program's entry code.
    pub(super) fn is_entry(&self, pc: u64) -> bool {
        self.entry != 0 && pc.checked_sub(self.entry).is_some_and(|past| past < ENTRY_BYTES)
    }

    /// The function that covers the virtual address `pc`, compiled at first use.
    pub(super) fn find(&mut self, pc: u64) -> Option<Found<'_>> {
        let Self { bases, eh_frame, debug_frame, scratch, .. } = self;
        if let Some(table) = eh_frame {
            let found = table.compiled(pc, |bytes, offset| {
                let section = EhFrame::new(bytes, LittleEndian);
                CompiledFde::compile(&section, bases, offset, pc, scratch)
            });
            if let Some(start) = found {
                return table.get(start);
            }
        }
        let table = debug_frame.as_mut()?;
        let start = table.compiled(pc, |bytes, offset| {
            CompiledFde::compile(&debug_section(bytes), bases, offset, pc, scratch)
        })?;
        table.get(start)
    }
}

impl Table {
    /// Makes sure that the function covering `pc` is compiled; its start.
    fn compiled(
        &mut self,
        pc: u64,
        compile: impl FnOnce(&[u8], usize) -> Option<CompiledFde>,
    ) -> Option<u64> {
        if let Some((start, fde)) = self.compiled.range(..=pc).next_back()
            && pc < fde.end
        {
            return Some(*start);
        }
        let fde = compile(&self.bytes, self.index.find(pc)?)?;
        let start = fde.start;
        self.compiled.insert(start, fde);
        Some(start)
    }

    fn get(&self, start: u64) -> Option<Found<'_>> {
        Some(Found { fde: self.compiled.get(&start)?, section: &self.bytes })
    }
}

fn debug_section(bytes: &[u8]) -> DebugFrame<gimli::EndianSlice<'_, LittleEndian>> {
    let mut section = DebugFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section
}

fn load_segment(header: &ProgramHeader64<Little>) -> Option<Segment> {
    (header.p_type(Little) == PT_LOAD).then(|| Segment {
        offset: header.p_offset(Little),
        address: header.p_vaddr(Little),
        size: header.p_filesz(Little),
        executable: header.p_flags(Little) & PF_X != 0,
    })
}

/// The bytes and the virtual address of a section; `None` if there is none with bytes.
fn read_section<'d, R: ReadRef<'d>>(
    elf: &ElfFile64<'d, Little, R>,
    name: &str,
) -> Option<(Box<[u8]>, u64)> {
    let section = elf.section_by_name(name).filter(|s| s.size() <= SECTION_MAX)?;
    let compressed = section.compressed_data().ok()?;
    if compressed.uncompressed_size > SECTION_MAX {
        return None;
    }
    let bytes = compressed.decompress().ok()?;
    (!bytes.is_empty()).then(|| (bytes.into_owned().into_boxed_slice(), section.address()))
}

fn read_segment<'d, R: ReadRef<'d>>(
    headers: &[ProgramHeader64<Little>],
    data: R,
    kind: u32,
) -> Option<(Box<[u8]>, u64)> {
    let header =
        headers.iter().find(|h| h.p_type(Little) == kind && h.p_filesz(Little) <= SECTION_MAX)?;
    let bytes = data.read_bytes_at(header.p_offset(Little), header.p_filesz(Little)).ok()?;
    Some((bytes.into(), header.p_vaddr(Little)))
}

/// The bytes from a virtual address to the end of the segment that holds it.
fn read_from<'d, R: ReadRef<'d>>(
    headers: &[ProgramHeader64<Little>],
    data: R,
    start: u64,
) -> Option<Box<[u8]>> {
    let holds = |s: &Segment| start >= s.address && start - s.address < s.size;
    let segment = headers.iter().filter_map(load_segment).find(holds)?;
    let skip = start - segment.address;
    let length = (segment.size - skip).min(SECTION_MAX);
    Some(data.read_bytes_at(segment.offset.checked_add(skip)?, length).ok()?.into())
}
