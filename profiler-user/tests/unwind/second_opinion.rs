//! The same stack through framehop.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use object::{Object, ObjectSection, ObjectSegment};
use stallscope::binaries::{ProcessMaps, open_mapping};
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
        for mapping in maps.all().iter().filter(|m| m.executable && m.is_file()) {
            let Ok(binary) = open_mapping(maps, mapping) else { continue };
            let data = object::ReadCache::new(binary.file);
            let Ok(elf) = object::File::parse(&data) else { continue };
            let Some(segment) = elf.segments().find(|s| {
                let (start, size) = s.file_range();
                (start - start % 4096..start + size).contains(&mapping.offset)
            }) else {
                continue;
            };
            let (file_start, _) = segment.file_range();
            let address = segment.address() + mapping.offset - file_start;
            let range = |name: &str| {
                let section = elf.section_by_name(name)?;
                Some(section.address()..section.address() + section.size())
            };
            let bytes = |name: &str| Some(elf.section_by_name(name)?.data().ok()?.to_vec());
            unwinder.add_module(Module::new(
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
            ));
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
