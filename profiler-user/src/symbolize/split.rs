//! Split DWARF: `.dwo` files beside the object files, or all of them packed in one `.dwp`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::SplitDwarfLoad;
use gimli::{DwarfPackage, Reader as _, RunTimeEndian, SectionId};

use super::elf::{Elf, Source};
use super::error::LoadError;
use super::reader::{Meter, Reader};
use crate::binaries::open_in_root;

/// Most bytes of split debug information read for one binary.
const MAX_SPLIT_BYTES: usize = 1 << 30;

/// Where the split debug information of one binary may be.
pub(super) struct SplitDwarf {
    /// Root of the target's mount namespace.
    root: PathBuf,
    /// Names that a package may have: that of the binary or of its debug file, and `.dwp`.
    packages: Vec<PathBuf>,
    package: Option<Option<DwarfPackage<Reader>>>,
    units: HashMap<u64, Option<Arc<gimli::Dwarf<Reader>>>>,
    bytes: usize,
}

impl SplitDwarf {
    pub(super) fn new(root: &Path, packages: Vec<PathBuf>) -> Self {
        Self { root: root.to_owned(), packages, package: None, units: HashMap::new(), bytes: 0 }
    }

    /// The unit that a skeleton asks for, from the package or its own file; searched once.
    pub(super) fn find(
        &mut self,
        wanted: &SplitDwarfLoad<Reader>,
        meter: &Arc<Meter>,
    ) -> Option<Arc<gimli::Dwarf<Reader>>> {
        if let Some(known) = self.units.get(&wanted.dwo_id.0) {
            return known.clone();
        }
        let found =
            self.find_in_package(wanted, meter).or_else(|| self.find_in_file(wanted, meter));
        self.units.insert(wanted.dwo_id.0, found.clone());
        found
    }

    fn find_in_package(
        &mut self,
        wanted: &SplitDwarfLoad<Reader>,
        meter: &Arc<Meter>,
    ) -> Option<Arc<gimli::Dwarf<Reader>>> {
        if self.package.is_none() {
            let names = self.packages.clone();
            self.package = Some(names.iter().find_map(|name| self.open_package(name, meter).ok()));
        }
        let package = self.package.as_ref()?.as_ref()?;
        package.find_cu(wanted.dwo_id, &wanted.parent).ok().flatten().map(Arc::new)
    }

    fn open_package(
        &mut self,
        name: &Path,
        meter: &Arc<Meter>,
    ) -> Result<DwarfPackage<Reader>, LoadError> {
        let elf = Elf::parse(Source::File(open_in_root(&self.root, name)?))?;
        let empty = Reader::new(Arc::from([]), elf.endian, Arc::clone(meter));
        DwarfPackage::load(|id| self.section(&elf, id, meter), empty)
    }

    fn find_in_file(
        &mut self,
        wanted: &SplitDwarfLoad<Reader>,
        meter: &Arc<Meter>,
    ) -> Option<Arc<gimli::Dwarf<Reader>>> {
        let path = |part: &Option<Reader>| {
            let bytes = part.as_ref()?.to_slice().ok()?.into_owned();
            Some(PathBuf::from(OsStr::from_bytes(&bytes)))
        };
        let name = path(&wanted.path)?;
        let name = path(&wanted.comp_dir).unwrap_or_default().join(name);
        let elf = Elf::parse(Source::File(open_in_root(&self.root, &name).ok()?)).ok()?;
        let mut dwarf = gimli::Dwarf::load(|id| self.section(&elf, id, meter)).ok()?;
        dwarf.make_dwo(&wanted.parent);
        // A file rebuilt since has another id.
        let header = dwarf.units().next().ok()??;
        let unit = dwarf.unit(header).ok()?;
        (unit.dwo_id == Some(wanted.dwo_id)).then(|| Arc::new(dwarf))
    }

    fn section(
        &mut self,
        file: &Elf,
        id: SectionId,
        meter: &Arc<Meter>,
    ) -> Result<Reader, LoadError> {
        // All of them: the index of a package refers to the ones nobody needs, too.
        let bytes = match id.dwo_name() {
            Some(name) => file.read_section(name)?,
            None => Arc::from([]),
        };
        self.bytes += bytes.len();
        if self.bytes > MAX_SPLIT_BYTES {
            return Err(LoadError::Refused("more than 1 GiB of split debug information"));
        }
        let endian: RunTimeEndian = file.endian;
        Ok(Reader::new(bytes, endian, Arc::clone(meter)))
    }
}
