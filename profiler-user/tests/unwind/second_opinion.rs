//! The same stack through framehop.

use std::os::unix::fs::FileExt as _;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use object::{Object, ObjectSection, ObjectSegment, ReadRef};
use stallscope::binaries::{Mapping, ProcessMaps, open_mapping};
use stallscope::unwind::Registers;

pub(crate) struct Framehop {
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
}

/// The addresses that framehop finds, and whether it ended without an error.
pub(crate) struct Opinion {
    pub(crate) ips: Vec<u64>,
    pub(crate) ended: bool,
}

impl Framehop {
    pub(crate) fn new(maps: &ProcessMaps) -> Self {
        let mut unwinder = UnwinderX86_64::new();
        for mapping in maps.all().iter().filter(|m| m.executable) {
            let module = if &*mapping.path == "[vdso]" {
                vdso(maps, mapping)
            } else if mapping.is_file() {
                open_mapping(maps, mapping).ok().and_then(|binary| {
                    let data = object::ReadCache::new(binary.file);
                    module(&object::File::parse(&data).ok()?, mapping)
                })
            } else {
                None
            };
            module.into_iter().for_each(|module| unwinder.add_module(module));
        }
        Self { unwinder, cache: CacheX86_64::new() }
    }

    pub(crate) fn unwind(
        &mut self,
        regs: &Registers,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Opinion {
        let mut read = |address| read(address).ok_or(());
        let start = UnwindRegsX86_64::new(regs.ip, regs.sp(), regs.gpr[6]);
        let mut frames = self.unwinder.iter_frames(regs.ip, start, &mut self.cache, &mut read);
        let mut ips = Vec::new();
        loop {
            match frames.next() {
                Ok(Some(frame)) if ips.len() < 512 => ips.push(frame.address()),
                Ok(Some(_)) | Err(_) => return Opinion { ips, ended: false },
                Ok(None) => return Opinion { ips, ended: true },
            }
        }
    }
}

/// The kernel's code in the process, which no file holds.
fn vdso(maps: &ProcessMaps, mapping: &Mapping) -> Option<Module<Vec<u8>>> {
    let mut image = vec![0; usize::try_from(mapping.end - mapping.start).ok()?];
    let memory = std::fs::File::open(format!("/proc/{}/mem", maps.pid)).ok()?;
    memory.read_exact_at(&mut image, mapping.start).ok()?;
    module(&object::File::parse(&*image).ok()?, mapping)
}

fn module<'a, R: ReadRef<'a>>(
    elf: &object::File<'a, R>,
    mapping: &Mapping,
) -> Option<Module<Vec<u8>>> {
    let segment = elf.segments().find(|s| {
        let (start, size) = s.file_range();
        (start - start % 4096..start + size).contains(&mapping.offset)
    })?;
    let (file_start, _) = segment.file_range();
    let address = segment.address() + mapping.offset - file_start;
    let range = |name: &str| {
        let section = elf.section_by_name(name)?;
        Some(section.address()..section.address() + section.size())
    };
    let bytes = |name: &str| Some(elf.section_by_name(name)?.data().ok()?.to_vec());
    Some(Module::new(
        mapping.path.to_string(),
        mapping.start..mapping.end,
        mapping.start.wrapping_sub(address),
        ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(".text"),
            text: bytes(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: bytes(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: bytes(".eh_frame_hdr"),
            ..Default::default()
        },
    ))
}
