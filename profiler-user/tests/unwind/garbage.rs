//! Hostile and broken input: nothing may panic, loop or be called complete without reason.

use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use stallscope::binaries::{Mapping, ProcessMaps};
use stallscope::unwind::{ModuleSource, OpenModule, Registers, StackEnd, Unwinder};

use crate::target::stacks_program;

/// Yields the same bytes for every mapping.
struct Fixed(Vec<u8>);

impl ModuleSource for Fixed {
    fn open(&self, _: &ProcessMaps, _: &Mapping) -> std::io::Result<OpenModule> {
        Ok(OpenModule::from_bytes(self.0.clone()))
    }
}

const BASE: u64 = 0x7f00_0000_0000;
const STACK: u64 = 0x7ffd_0000_0000;

fn maps(length: usize) -> ProcessMaps {
    let end = BASE + (length as u64).next_multiple_of(4096).max(4096);
    let text = format!(
        "{BASE:x}-{end:x} r-xp 00000000 fd:01 7 /usr/lib/odd.so\n\
         {STACK:x}-{:x} rw-p 00000000 00:00 0 [stack]\n",
        STACK + 0x10_0000
    );
    ProcessMaps::parse(1, &text)
}

/// Memory whose words are often addresses in the module, on the stack, or zero.
fn memory(seed: u64, length: u64) -> impl FnMut(u64) -> Option<u64> {
    move |address| {
        let mut word = (address ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word ^= word >> 29;
        word = word.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        match word >> 61 {
            0 => None,
            1 => Some(0),
            2 => Some(word),
            3 => Some(address.wrapping_add(word % 512)),
            _ => Some(BASE + word % length.max(1)),
        }
    }
}

fn unwind_everywhere(image: Vec<u8>, seed: u64, ips: &[u64], gpr: [u64; 16]) -> Unwinder {
    let length = image.len() as u64;
    let maps = maps(image.len());
    let mut unwinder = Unwinder::new(Box::new(Fixed(image)));
    for ip in ips {
        let mut regs = Registers { ip: BASE + ip % length.max(1), gpr };
        regs.gpr[7] = STACK + regs.gpr[7] % 0x8_0000;
        let stack = unwinder.unwind(&maps, &regs, &mut memory(seed, length));
        assert!((1..=512).contains(&stack.frames.len()));
        assert_eq!(stack.end.reason().is_none(), stack.end == StackEnd::Complete);
    }
    unwinder
}

/// Real images with call frame information of all kinds: PLT, signal trampoline, realigned frames.
fn real_images() -> Vec<Vec<u8>> {
    let own = ProcessMaps::read(std::process::id()).expect("maps");
    let vdso = own.all().iter().find(|m| &*m.path == "[vdso]").expect("a vdso");
    let mut image = vec![0; usize::try_from(vdso.end - vdso.start).expect("small")];
    let memory = std::fs::File::open("/proc/self/mem").expect("own memory");
    memory.read_exact_at(&mut image, vdso.start).expect("readable");
    vec![image, std::fs::read(stacks_program()).expect("readable")]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes_are_no_module(
        image in prop::collection::vec(any::<u8>(), 0..4096),
        magic in any::<bool>(),
        seed in any::<u64>(),
        gpr in any::<[u64; 16]>(),
    ) {
        let mut image = image;
        if magic && image.len() > 64 {
            image[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0");
        }
        let unwinder = unwind_everywhere(image, seed, &[0, 100, 4000], gpr);
        let counters = unwinder.counters();
        prop_assert_eq!((counters.modules_loaded, counters.modules_failed), (0, 1));
        prop_assert_eq!(counters.failed.len(), 1);
    }

    #[test]
    fn broken_images_are_survived(
        which in 0..2_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..64),
        in_frames in any::<bool>(),
        ips in prop::collection::vec(any::<u64>(), 1..40),
        seed in any::<u64>(),
        gpr in any::<[u64; 16]>(),
    ) {
        let mut image = real_images().swap_remove(which);
        let frames = frames_range(&image);
        for (at, byte) in &changes {
            let at = if in_frames { frames.start + at.index(frames.len()) } else { at.index(image.len()) };
            image[at] = *byte;
        }
        unwind_everywhere(image, seed, &ips, gpr);
    }

    #[test]
    fn random_frame_information_is_survived(
        bytes in prop::collection::vec(any::<u8>(), 512),
        ips in prop::collection::vec(any::<u64>(), 1..40),
        seed in any::<u64>(),
        gpr in any::<[u64; 16]>(),
    ) {
        let mut image = real_images().swap_remove(1);
        let frames = frames_range(&image);
        let length = frames.len().min(bytes.len());
        image[frames.start..][..length].copy_from_slice(&bytes[..length]);
        unwind_everywhere(image, seed, &ips, gpr);
    }
}

/// Where `.eh_frame_hdr` and `.eh_frame` lie in an image.
fn frames_range(image: &[u8]) -> std::ops::Range<usize> {
    use object::{Object, ObjectSection};
    let elf = object::File::parse(image).expect("an ELF file");
    let range = |name| elf.section_by_name(name)?.file_range();
    let (start, _) = range(".eh_frame_hdr").expect("present");
    let (last, size) = range(".eh_frame").expect("present");
    usize::try_from(start).expect("fits")..usize::try_from(last + size).expect("fits")
}

#[test]
fn a_module_that_is_no_elf_file_gives_no_information() {
    let maps = maps(64);
    let mut unwinder = Unwinder::new(Box::new(Fixed(vec![7; 64])));
    let regs = Registers { ip: BASE + 5, gpr: [STACK; 16] };
    let stack = unwinder.unwind(&maps, &regs, &mut |_| None);
    assert_eq!((stack.end, stack.frames.len()), (StackEnd::MemoryNotCaptured, 1));
    let regs = Registers { gpr: [0; 16], ..regs };
    assert_eq!(unwinder.unwind(&maps, &regs, &mut |_| None).end, StackEnd::NoUnwindInfo);
    let failed = &unwinder.counters().failed;
    assert_eq!((failed.len(), &*failed[0].path), (1, "/usr/lib/odd.so"));
}

#[test]
fn an_address_outside_every_mapping_is_said_to_be_so() {
    let mut unwinder = Unwinder::new(Box::new(Fixed(Vec::new())));
    let regs = Registers { ip: 0, gpr: [STACK; 16] };
    let stack = unwinder.unwind(&maps(64), &regs, &mut |_| None);
    assert_eq!((stack.end, stack.frames.len()), (StackEnd::NoMapping, 1));
}
