//! Where the bytes of a module come from.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::FileExt;

use crate::binaries::{BinaryId, Mapping, ProcessMaps, open_mapping};

/// What makes two mappings the same module, so that it is compiled once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModuleId {
    /// A file.
    File(BinaryId),
    /// Bytes that have no file (the vdso), by their hash.
    Bytes(u64),
}

/// The bytes of an ELF image.
#[derive(Debug)]
pub enum Content {
    /// An open file; only the needed parts are read.
    File(File),
    /// The whole image.
    Bytes(Vec<u8>),
}

/// A module ready to be read.
#[derive(Debug)]
pub struct OpenModule {
    /// Key of the cache.
    pub id: ModuleId,
    /// The image. Offsets in the mapping are offsets in it.
    pub content: Content,
}

impl OpenModule {
    /// A module from bytes in memory.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Self { id: ModuleId::Bytes(hasher.finish()), content: Content::Bytes(bytes) }
    }
}

/// Opens what stands behind a mapping. Injected, so that recorded stacks can be unwound on any
/// machine.
pub trait ModuleSource: Send {
    /// Opens the module that `mapping` (a file mapping or the vdso) belongs to.
    ///
    /// # Errors
    /// It can't be opened; the unwinder counts this and treats its code as without information.
    fn open(&self, maps: &ProcessMaps, mapping: &Mapping) -> io::Result<OpenModule>;
}

/// The modules of running processes.
#[derive(Debug, Clone, Copy, Default)]
pub struct LiveModules;

/// Upper bound for the vdso's size; it is two pages on current kernels.
const VDSO_MAX: u64 = 1 << 20;

impl ModuleSource for LiveModules {
    fn open(&self, maps: &ProcessMaps, mapping: &Mapping) -> io::Result<OpenModule> {
        if &*mapping.path != "[vdso]" {
            let binary = open_mapping(maps, mapping)?;
            return Ok(OpenModule {
                id: ModuleId::File(binary.id),
                content: Content::File(binary.file),
            });
        }
        if maps.files().is_some() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the vdso was not recorded"));
        }
        // Every process of a kernel has the same vdso, so ours will do for one we may not read
        // or that is gone.
        read_image(maps.pid, mapping).or_else(|error| {
            let own = ProcessMaps::read(std::process::id())?;
            let vdso = own.all().iter().find(|m| &*m.path == "[vdso]").ok_or(error)?;
            read_image(own.pid, vdso)
        })
    }
}

fn read_image(pid: u32, mapping: &Mapping) -> io::Result<OpenModule> {
    let length = (mapping.end - mapping.start).min(VDSO_MAX);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(&mut bytes, mapping.start)?;
    Ok(OpenModule::from_bytes(bytes))
}
