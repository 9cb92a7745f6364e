//! Files that are no ELF, truncated, flipped or hostile: names are lost, nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use stallscope::symbolize::{SymbolPattern, Symbolizer};

use super::programs::{Scratch, as_if_mapped, symbolizer, tool};

/// Asks everything of a file, everywhere.
fn exercise(path: &Path) -> Symbolizer {
    let maps = as_if_mapped(path);
    let mapping = maps.all()[0].clone();
    let mut symbolizer = symbolizer(&[]);
    for address in (mapping.start..mapping.end).step_by(0x35) {
        let frames = symbolizer.frames(&maps, address);
        assert!(!frames.is_empty());
        symbolizer.symbol_name(&maps, address);
    }
    symbolizer.find_symbols(&maps, &mapping, SymbolPattern::Contains("a"));
    symbolizer
}

#[test]
fn no_elf_file_gives_an_unnamed_frame_and_a_reason() {
    let scratch = Scratch::new();
    for (i, bytes) in [&b""[..], b"\x7fELF", b"#!/bin/sh\nexit\n", &[0; 5000]].iter().enumerate() {
        let path = scratch.path(&format!("garbage{i}"));
        fs::write(&path, bytes).expect("writable");
        let symbolizer = exercise(&path);
        let counters = symbolizer.counters();
        assert!(counters.unsymbolized_frames > 0);
        assert_eq!(counters.failed.len(), 1, "{counters:?}");
        assert_eq!(counters.binaries, 0);
    }
}

#[test]
fn a_truncated_file_never_panics() {
    let scratch = Scratch::new();
    let whole = fs::read(scratch.compile("native.c", "native", &["-g", "-O2"])).expect("readable");
    let path = scratch.path("cut");
    for i in 0..64 {
        fs::write(&path, &whole[..whole.len() * i / 64]).expect("writable");
        let counters = exercise(&path).counters();
        assert!(!counters.failed.is_empty(), "{i}/64");
    }
}

#[test]
fn damaged_lines_cost_the_lines_but_not_the_names() {
    let scratch = Scratch::new();
    let binary = scratch.compile("native.c", "native", &["-g", "-O2", "-no-pie"]);
    let noise = scratch.path("noise");
    fs::write(&noise, [0xa5_u8; 4096]).expect("writable");
    let damaged = scratch.path("damaged");
    let update = format!(".debug_info={}", noise.display());
    tool("objcopy", &[&"--update-section", &update, &binary, &damaged]);
    let maps = as_if_mapped(&damaged);
    let mut symbolizer = symbolizer(&[]);
    let outer = symbolizer.find_symbols(&maps, &maps.all()[0], SymbolPattern::Exact("outer"));
    let address = 0x10_0000 + outer[0].file_offset.expect("code is in the file");
    let frames = symbolizer.frames(&maps, address);
    assert_eq!((&*frames[0].function, frames[0].line), ("outer", None));
    assert_eq!(symbolizer.counters().failed.len(), 1, "{:?}", symbolizer.counters());
}

/// Inlined functions nested a million deep: followed by recursion, they would end the process.
#[test]
fn endless_nesting_is_refused() {
    let scratch = Scratch::new();
    let source = scratch.path("deep.s");
    let text = ".globl main\n.type main,@function\nmain: nop\n nop\n ret\n.Lend:\n.size main,.-main\n\
        .section .debug_abbrev,\"\",@progbits\n\
        .uleb128 1\n.uleb128 0x11\n.byte 1\n.uleb128 0x11\n.uleb128 1\n.uleb128 0x12\n.uleb128 7\n.byte 0,0\n\
        .uleb128 2\n.uleb128 0x2e\n.byte 1\n.uleb128 0x11\n.uleb128 1\n.uleb128 0x12\n.uleb128 7\n.byte 0,0\n\
        .uleb128 3\n.uleb128 0x1d\n.byte 1\n.byte 0,0\n.byte 0\n\
        .section .debug_info,\"\",@progbits\n.long .Li1-.Li0\n.Li0: .short 4\n.long 0\n.byte 8\n\
        .byte 1\n.quad main\n.quad .Lend-main\n.byte 2\n.quad main\n.quad .Lend-main\n\
        .rept 4000000\n.byte 3\n.endr\n.Li1:\n.section .note.GNU-stack,\"\",@progbits\n";
    fs::write(&source, text).expect("writable");
    let binary = scratch.path("deep");
    tool("cc", &[&"-no-pie", &"-o", &binary, &source]);
    let maps = as_if_mapped(&binary);
    let mut symbolizer = symbolizer(&[]);
    let main = symbolizer.find_symbols(&maps, &maps.all()[0], SymbolPattern::Exact("main"));
    let offset = main[0].file_offset.expect("code is in the file");
    let started = Instant::now();
    let frames = symbolizer.frames(&maps, 0x10_0000 + offset + 1);
    assert_eq!(&*frames[0].function, "main");
    let counters = symbolizer.counters();
    assert!(counters.failed.iter().any(|f| f.reason.contains("nested")), "{counters:?}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn a_fifo_in_place_of_a_debug_file_does_not_block() {
    let scratch = Scratch::new();
    let binary = scratch.compile("native.c", "native", &["-O2", "-Wl,--build-id=0xabcdef"]);
    fs::create_dir_all(scratch.path("debug/.build-id/ab")).expect("created");
    let fifo = scratch.path("debug/.build-id/ab/cdef.debug");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    tool("strip", &[&binary]);
    let maps = as_if_mapped(&binary);
    symbolizer(&[&scratch.path("debug")]).frames(&maps, 0x10_1000);
}

#[test]
fn names_chosen_by_the_target_are_printable() {
    let scratch = Scratch::new();
    let source = scratch.path("evil.s");
    let text = ".globl \"x\\033[2Jy\\ny\"\n.type \"x\\033[2Jy\\ny\",@function\n\"x\\033[2Jy\\ny\": ret\n\
                .size \"x\\033[2Jy\\ny\",1\n.globl main\nmain: ret\n.section .note.GNU-stack,\"\",@progbits\n";
    fs::write(&source, text).expect("writable");
    let binary = scratch.path("evil");
    tool("cc", &[&"-o", &binary, &source]);
    let maps = as_if_mapped(&binary);
    let mut symbolizer = symbolizer(&[]);
    let evil = symbolizer.find_symbols(&maps, &maps.all()[0], SymbolPattern::Prefix("x"));
    let offset = evil[0].file_offset.expect("code is in the file");
    let name = &symbolizer.frames(&maps, 0x10_0000 + offset)[0].function;
    assert!(name.starts_with('x') && !name.contains(char::is_control), "{name:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let scratch = Scratch::new();
        let path = scratch.path("random");
        fs::write(&path, &bytes).expect("writable");
        exercise(&path);
        // And behind a plausible header.
        let header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0";
        if bytes.len() > header.len() {
            bytes[..header.len()].copy_from_slice(header);
            fs::write(&path, &bytes).expect("writable");
            exercise(&path);
        }
    }
}

#[test]
fn flipped_bits_never_panic() {
    let scratch = Scratch::new();
    for (source, flags) in [
        ("native.c", &["-g", "-O2"][..]),
        ("native.c", &["-g", "-O2", "-gz=zlib-gnu"]),
        ("native.c", &["-g", "-O2", "-gz=zlib", "-gdwarf-4"]),
        ("native.cpp", &["-g", "-O2"]),
    ] {
        let binary = scratch.compile(source, "native", flags);
        // The decoder of zstd has never seen most of this.
        let packed = scratch.path("packed");
        tool("objcopy", &[&"--compress-debug-sections=zstd", &binary, &packed]);
        let wholes = [&binary, &packed].map(|path| fs::read(path).expect("readable"));
        let path = scratch.path("flipped");
        let flips = proptest::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..200);
        let config = ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() };
        proptest!(config, |(flips in flips, which in 0..2_usize)| {
            let mut bytes = wholes[which].clone();
            for (at, bit) in &flips {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            fs::write(&path, &bytes).expect("writable");
            exercise(&path);
        });
    }
}
