//! ELF files, read section by section and never mapped.

use std::fs::File;
use std::io::{self, Cursor};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use gimli::RunTimeEndian;
use object::read::elf::ElfFile;
use object::{
    Architecture, CompressedFileRange, CompressionFormat, Object, ObjectSection, ObjectSegment,
    ReadCache, ReadRef, SectionFlags, elf,
};

use super::error::LoadError;
use super::inflate::inflate;

/// Largest section that is read, in bytes, packed or unpacked.
pub(super) const MAX_SECTION: u64 = 2 << 30;
/// Most section headers that are looked at; linked programs have some dozens.
const MAX_SECTIONS: usize = 4096;

/// Where the bytes of an ELF file come from.
#[derive(Debug)]
pub(super) enum Source {
    /// An open file.
    File(File),
    /// A copy of memory: the vdso has no file.
    Bytes(Arc<[u8]>),
}

impl Source {
    fn len(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Bytes(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Reads `size` bytes at `offset`, which must lie in the file as long as it is now.
    pub(super) fn read(&self, offset: u64, size: u64) -> Result<Arc<[u8]>, LoadError> {
        if size > MAX_SECTION {
            return Err(LoadError::Refused("a section is larger than 2 GiB"));
        }
        // Checked before the allocation: a header may claim any size.
        if offset.checked_add(size).is_none_or(|end| self.len().is_ok_and(|len| end > len)) {
            return Err(LoadError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        let size = usize::try_from(size).map_err(|_| LoadError::Refused("too large to address"))?;
        match self {
            Self::File(file) => {
                let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
                if let Some(space) = Arc::get_mut(&mut bytes) {
                    file.read_exact_at(space, offset)?;
                }
                Ok(bytes)
            }
            Self::Bytes(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let part = bytes.get(start..).and_then(|rest| rest.get(..size));
                part.map(Arc::from)
                    .ok_or_else(|| LoadError::Io(io::ErrorKind::UnexpectedEof.into()))
            }
        }
    }
}

/// One section header.
#[derive(Debug, Clone)]
pub(super) struct Section {
    pub(super) name: Box<str>,
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) executable: bool,
    /// Bytes per entry of a table section; zero where it does not say.
    pub(super) entry_size: u64,
    /// Where its bytes are; empty for `SHT_NOBITS` (all code in a separate debug file).
    range: CompressedFileRange,
}

impl Section {
    /// Whether the file holds any bytes of it.
    pub(super) fn has_bytes(&self) -> bool {
        self.range.compressed_size > 0
    }
}

/// One loadable segment: `size` bytes from `offset` in the file appear at `address`.
#[derive(Debug, Clone, Copy)]
struct Load {
    offset: u64,
    size: u64,
    address: u64,
}

/// The headers of an ELF file, and the way to its bytes.
#[derive(Debug)]
pub(super) struct Elf {
    source: Source,
    sections: Vec<Section>,
    loads: Vec<Load>,
    /// Contents of the `NT_GNU_BUILD_ID` note.
    pub(super) build_id: Option<Box<[u8]>>,
    /// File name and CRC-32 of the separate debug file.
    pub(super) debuglink: Option<(Box<[u8]>, u32)>,
    pub(super) endian: RunTimeEndian,
    pub(super) is_64: bool,
    pub(super) architecture: Architecture,
}

impl Elf {
    /// The build id in hexadecimal digits.
    pub(super) fn build_id_digits(&self) -> Option<String> {
        let id = self.build_id.as_deref()?;
        Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Reads the headers.
    pub(super) fn parse(source: Source) -> Result<Self, LoadError> {
        let headers = match &source {
            Source::File(file) => Headers::parse(&ReadCache::new(file))?,
            Source::Bytes(bytes) => Headers::parse(&ReadCache::new(Cursor::new(&**bytes)))?,
        };
        let Headers { sections, loads, build_id, debuglink, endian, is_64, architecture } = headers;
        Ok(Self { source, sections, loads, build_id, debuglink, endian, is_64, architecture })
    }

    /// The bytes behind the headers.
    pub(super) const fn source(&self) -> &Source {
        &self.source
    }

    /// All sections, in the order of their headers.
    pub(super) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The first section of that name.
    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| &*s.name == name)
    }

    /// Whether a section of that name exists and has bytes in this file.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.section(name).is_some_and(Section::has_bytes)
    }

    /// The bytes of a section, unpacked; empty where there is none.
    ///
    /// Also finds the old form of packed sections, `.zdebug_info` for `.debug_info`.
    pub(super) fn read_section(&self, name: &str) -> Result<Arc<[u8]>, LoadError> {
        let old = || self.section(&name.replacen(".debug_", ".zdebug_", 1));
        let Some(section) = self.section(name).filter(|s| s.has_bytes()).or_else(old) else {
            return Ok(Arc::from([]));
        };
        let range = section.range;
        let bytes = self.source.read(range.offset, range.compressed_size)?;
        match range.format {
            CompressionFormat::None => Ok(bytes),
            _ => inflate(range.format, &bytes, range.uncompressed_size),
        }
    }

    /// The address that the linker gave to a byte of the file.
    pub(super) fn address_of(&self, file_offset: u64) -> Option<u64> {
        let load = self
            .loads
            .iter()
            .find(|l| file_offset >= l.offset && file_offset - l.offset < l.size)?;
        load.address.checked_add(file_offset - load.offset)
    }

    /// Where in the file the byte at a linked address is.
    pub(super) fn offset_of(&self, address: u64) -> Option<u64> {
        let load =
            self.loads.iter().find(|l| address >= l.address && address - l.address < l.size)?;
        load.offset.checked_add(address - load.address)
    }
}

/// What [`Elf::parse`] takes from the headers.
struct Headers {
    sections: Vec<Section>,
    loads: Vec<Load>,
    build_id: Option<Box<[u8]>>,
    debuglink: Option<(Box<[u8]>, u32)>,
    endian: RunTimeEndian,
    is_64: bool,
    architecture: Architecture,
}

impl Headers {
    fn parse<'data, R: ReadRef<'data>>(data: R) -> Result<Self, LoadError> {
        let ident =
            data.read_bytes_at(0, 16).map_err(|()| LoadError::Refused("not an ELF file"))?;
        if ident[..4] != elf::ELFMAG {
            return Err(LoadError::Refused("not an ELF file"));
        }
        if ident[4] == elf::ELFCLASS32 {
            Self::of(&ElfFile::<elf::FileHeader32<object::Endianness>, R>::parse(data)?)
        } else {
            Self::of(&ElfFile::<elf::FileHeader64<object::Endianness>, R>::parse(data)?)
        }
    }

    fn of<'data, H, R>(file: &ElfFile<'data, H, R>) -> Result<Self, LoadError>
    where
        H: object::read::elf::FileHeader<Endian = object::Endianness>,
        R: ReadRef<'data>,
    {
        if file.elf_section_table().len() > MAX_SECTIONS {
            return Err(LoadError::Refused("more section headers than any linked program has"));
        }
        let mut sections = Vec::new();
        for section in file.sections() {
            // A section without a readable name or place is none that is looked for.
            let (Ok(name), Ok(range)) = (section.name(), section.compressed_file_range()) else {
                continue;
            };
            let flags = match section.flags() {
                SectionFlags::Elf { sh_flags } => sh_flags,
                _ => 0,
            };
            use object::read::elf::SectionHeader;
            sections.push(Section {
                name: name.into(),
                address: section.address(),
                size: section.elf_section_header().sh_size(file.endian()).into(),
                executable: flags & u64::from(elf::SHF_EXECINSTR) != 0,
                entry_size: section.elf_section_header().sh_entsize(file.endian()).into(),
                range,
            });
        }
        let loads = file.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            Load { offset, size, address: segment.address() }
        });
        Ok(Self {
            sections,
            loads: loads.collect(),
            build_id: file.build_id().ok().flatten().filter(|id| id.len() >= 2).map(Box::from),
            debuglink: file.gnu_debuglink().ok().flatten().map(|(name, crc)| (name.into(), crc)),
            endian: if file.is_little_endian() {
                RunTimeEndian::Little
            } else {
                RunTimeEndian::Big
            },
            is_64: file.is_64(),
            architecture: file.architecture(),
        })
    }
}
