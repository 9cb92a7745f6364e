//! Names frames again that were named before, where better debug files have turned up since.
//!
//! A frame keeps the address that the linker gave to its code, and the build id of its binary. A file
//! with that build id names the code as well as on the day it ran, be it the binary itself or the
//! debug file that was split off it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::elf::{Elf, Source};
use super::error::LoadError;
use super::frame::{Frame, Origin};
use super::module::{Module, Place};
use super::printable::printable;
use super::user_code::{CodePlace, UserCode};
use crate::binaries::Binary;

/// Most files of one folder that are looked at; a folder of debug files has some thousands.
const MAX_FILES: usize = 64 << 10;

/// Files to name frames by.
pub struct Renamer {
    folders: Vec<PathBuf>,
    /// Files that lie beside each other rather than under `.build-id`, by their build id.
    files: HashMap<String, Vec<PathBuf>>,
    modules: HashMap<Arc<str>, Option<Box<Module>>>,
    user_code: UserCode,
    failed: Vec<String>,
    renamed: u64,
}

impl std::fmt::Debug for Renamer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renamer").field("folders", &self.folders).finish_non_exhaustive()
    }
}

impl Renamer {
    /// Names frames by these files, and by those in these folders: under `.build-id`, as GDB
    /// documents it ("Separate Debug Files"), or in the folder itself.
    ///
    /// # Errors
    /// A path can't be read.
    pub fn new(paths: &[PathBuf], user_code: UserCode) -> io::Result<Self> {
        let mut renamer = Self {
            folders: Vec::new(),
            files: HashMap::new(),
            modules: HashMap::new(),
            user_code,
            failed: Vec::new(),
            renamed: 0,
        };
        for path in paths {
            let failed = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            if !std::fs::metadata(path).map_err(failed)?.is_dir() {
                if let Err(reason) = renamer.take(path) {
                    renamer.failed.push(format!("{}: {reason}", path.display()));
                }
                continue;
            }
            renamer.folders.push(path.clone());
            for entry in std::fs::read_dir(path).map_err(failed)?.flatten().take(MAX_FILES) {
                if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                    // A folder may hold other files too.
                    let _ = renamer.take(&entry.path());
                }
            }
        }
        Ok(renamer)
    }

    /// Takes note of a file that has a build id.
    fn take(&mut self, path: &Path) -> Result<(), String> {
        let binary = open(path).map_err(|error| error.to_string())?;
        let elf = Elf::parse(Source::File(binary.file)).map_err(|error| error.to_string())?;
        let id = elf.build_id_digits().ok_or_else(|| "it has no build id".to_owned())?;
        self.files.entry(id).or_default().push(path.to_owned());
        Ok(())
    }

    /// A stack, from the root to the leaf, with better names; `None` if there are none.
    pub fn stack(&mut self, frames: &[Frame]) -> Option<Vec<Frame>> {
        let mut named = Vec::with_capacity(frames.len());
        let mut better = false;
        let mut rest = frames;
        while let Some(first) = rest.first() {
            let inlined =
                rest[1..].iter().take_while(|next| next.inlined && same_code(first, next));
            let (group, others) = rest.split_at(1 + inlined.count());
            rest = others;
            match self.group(group) {
                Some(frames) => {
                    better = true;
                    named.extend(frames);
                }
                None => named.extend_from_slice(group),
            }
        }
        better.then_some(named)
    }

    /// Files that should have helped and could not be read, or that nothing was found to help.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> =
            self.failed.iter().map(|failed| format!("no better names from {failed}")).collect();
        if self.renamed == 0 {
            warnings.push(
                "no frame got a better name: no binary in it has the build id of such a file, \
                           or all was known"
                    .to_owned(),
            );
        }
        warnings
    }

    /// One function with what was inlined into it: all of one address.
    fn group(&mut self, group: &[Frame]) -> Option<Vec<Frame>> {
        let old = group.first()?;
        let address = old.origin.address?;
        let id = old.origin.build_id.clone()?;
        let module = self.module(&id)?;
        let rust = module.rust;
        let places = module.places(address, &mut Vec::new());
        if !says_more(&places, group) {
            return None;
        }
        self.renamed += 1;
        let frames = places.into_iter().rev().map(|place| {
            let file = place.file.as_deref().map(printable);
            let user_code = self.user_code.is_user(&CodePlace {
                function: place.function.as_deref(),
                file: file.as_deref(),
                module: old.module.as_deref(),
                rust,
            });
            let named = place.function.is_some();
            Frame {
                function: place.function.map_or_else(|| old.function.clone(), Arc::from),
                file: file.map(|file| Arc::from(&*file)),
                line: place.line,
                inlined: place.inlined,
                user_code,
                named,
                origin: Origin { source: None, ..old.origin.clone() },
                ..old.clone()
            }
        });
        Some(frames.collect())
    }

    fn module(&mut self, id: &Arc<str>) -> Option<&mut Module> {
        if !self.modules.contains_key(id) {
            let module = self.find(id);
            self.modules.insert(id.clone(), module);
        }
        self.modules.get_mut(id)?.as_deref_mut()
    }

    fn find(&mut self, id: &str) -> Option<Box<Module>> {
        // From a file that may be anybody's: digits only, or it might lead elsewhere.
        if id.len() < 4 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let (first, rest) = id.split_at(2);
        let of_folder = self.folders.iter().flat_map(|folder| {
            [format!("{rest}.debug"), rest.to_owned()]
                .map(|name| folder.join(".build-id").join(first).join(name))
        });
        let candidates: Vec<PathBuf> =
            self.files.get(id).into_iter().flatten().cloned().chain(of_folder).collect();
        let mut best: Option<Module> = None;
        for path in candidates.iter().filter(|path| path.exists()) {
            match load(path) {
                Ok(module) if module.build_id.as_deref() == Some(id) => {
                    if best.as_ref().is_none_or(|best| module.knows() > best.knows()) {
                        best = Some(module);
                    }
                }
                Ok(_) => self.failed.push(format!("{}: another build id", path.display())),
                Err(error) => self.failed.push(format!("{}: {error}", path.display())),
            }
        }
        best.map(Box::new)
    }
}

fn open(path: &Path) -> io::Result<Binary> {
    Binary::open(path, Arc::from(&*path.to_string_lossy()), PathBuf::from("/"))
}

fn load(path: &Path) -> Result<Module, LoadError> {
    let binary = open(path)?;
    // Its own debug link may lead to lines that it has not itself.
    let beside = path.parent().map(Path::to_owned);
    Module::load(binary, beside.as_slice(), &mut Vec::new())
}

/// Whether two frames are levels of one address.
fn same_code(one: &Frame, other: &Frame) -> bool {
    one.origin.address == other.origin.address && one.origin.build_id == other.origin.build_id
}

/// Whether there is a name, a line or an inlined function that was missing.
fn says_more(places: &[Place], group: &[Frame]) -> bool {
    let known = |places: &[Place]| {
        let names = places.iter().filter(|place| place.function.is_some()).count();
        (names, places.iter().filter(|place| place.line.is_some()).count())
    };
    let (names, lines) = known(places);
    let old_names = group.iter().filter(|frame| frame.named).count();
    let old_lines = group.iter().filter(|frame| frame.line.is_some()).count();
    names >= old_names && lines >= old_lines && (names, lines) != (old_names, old_lines)
}
