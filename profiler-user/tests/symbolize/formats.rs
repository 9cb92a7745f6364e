//! Compilers, debug formats and separate debug files.

use std::path::Path;
use std::process::Command;

use super::programs::{Program, Scratch, file, symbolizer, tool};

const DEBUG: [&str; 2] = ["-g", "-O2"];

#[test]
fn c_functions_inlining_aliases_and_assembly() {
    let scratch = Scratch::new();
    for (i, flags) in [
        &["-g", "-O2"][..],
        &["-g", "-O2", "-gdwarf-4", "-no-pie"],
        &["-g", "-O2", "-gz=zlib"],
        &["-g", "-O2", "-gz=zlib-gnu", "-ffunction-sections"],
    ]
    .iter()
    .enumerate()
    {
        let binary = scratch.compile("native.c", &format!("native{i}"), flags);
        let program = Program::start(&mut Command::new(&binary));
        program.check(&mut symbolizer(&[]), "native.c");
        let packed = scratch.path(&format!("packed{i}"));
        tool("objcopy", &[&"--compress-debug-sections=zstd", &binary, &packed]);
        let program = Program::start(&mut Command::new(&packed));
        program.check(&mut symbolizer(&[]), "native.c");
    }
}

#[test]
fn the_label_inside_an_unsized_function_ends_it() {
    let scratch = Scratch::new();
    let binary = scratch.compile("native.c", "native", &DEBUG);
    let program = Program::start(&mut Command::new(binary));
    let maps = program.maps();
    let place = program.places.iter().find(|p| p.chain == ["assembled"]).expect("printed");
    let mut symbolizer = symbolizer(&[]);
    let mut name = |at| symbolizer.symbol_name(&maps, at).expect("named").to_string();
    assert_eq!(name(place.address), "assembled");
    assert_eq!(name(place.address + 3), "after_assembled");
}

#[test]
fn cpp_names_are_demangled() {
    let scratch = Scratch::new();
    let binary = scratch.compile("native.cpp", "native", &DEBUG);
    let program = Program::start(&mut Command::new(binary));
    program.check(&mut symbolizer(&[]), "native.cpp");
}

#[test]
fn rust_names_are_demangled_in_both_schemes() {
    let scratch = Scratch::new();
    for flags in [
        &["-g", "-O"][..],
        &["-g", "-O", "-Csymbol-mangling-version=v0"],
        &["-g", "-O", "-Csplit-debuginfo=packed"],
    ] {
        let binary = scratch.compile("native.rs", "native", flags);
        let program = Program::start(&mut Command::new(&binary));
        program.check(&mut symbolizer(&[]), "native.rs");
    }
}

#[test]
fn rust_with_line_tables_only_keeps_inlining_and_the_outer_path() {
    let scratch = Scratch::new();
    let binary = scratch.compile("native.rs", "native", &["-O", "-Cdebuginfo=line-tables-only"]);
    let program = Program::start(&mut Command::new(&binary));
    let maps = program.maps();
    let mut symbolizer = symbolizer(&[]);
    for place in &program.places {
        let frames = symbolizer.frames(&maps, place.address);
        assert_eq!(frames.len(), place.chain.len());
        assert_eq!(frames.last().map(|f| &*f.function), place.chain.last().map(String::as_str));
        assert!(place.chain[0].ends_with(&*frames[0].function), "{frames:?}");
        assert_eq!(frames[0].line, Some(place.line));
        assert!(frames.iter().all(|f| f.user_code && file(f).ends_with("native.rs")));
    }
    // The shim that C calls, and the standard library inside the same executable.
    let nm = tool("nm", &[&binary]);
    let mut foreign = 0;
    let base = maps.all().iter().find(|m| m.is_file()).map_or(0, |m| m.start);
    for line in nm.lines().filter(|l| l.contains(" T main") || l.contains("lang_start_internal")) {
        let address = u64::from_str_radix(&line[..16], 16).expect("hex");
        let frames = symbolizer.frames(&maps, base + address + 4);
        assert!(frames.iter().all(|f| !f.user_code), "{frames:?}");
        foreign += 1;
    }
    assert!(foreign >= 2, "{nm}");
}

#[test]
fn split_dwarf_is_read_from_dwo_files_and_packages() {
    let scratch = Scratch::new();
    for (i, flags) in
        [&["-g", "-O2", "-gsplit-dwarf"][..], &["-g", "-O2", "-gsplit-dwarf", "-gdwarf-4"]]
            .iter()
            .enumerate()
    {
        let binary = scratch.compile("native.c", &format!("native{i}"), flags);
        let program = Program::start(&mut Command::new(&binary));
        program.check(&mut symbolizer(&[]), "native.c");
        let package = binary.with_extension("dwp");
        tool("llvm-dwp", &[&"-e", &binary, &"-o", &package]);
        for entry in std::fs::read_dir(&scratch.0).expect("readable").flatten() {
            if entry.path().extension().is_some_and(|e| e == "dwo") {
                std::fs::remove_file(entry.path()).expect("removable");
            }
        }
        program.check(&mut symbolizer(&[]), "native.c");
    }
}

/// Splits a binary into itself, stripped, and a debug file, linked by name and CRC.
fn split(binary: &Path, debug: &Path) {
    tool("objcopy", &[&"--only-keep-debug", &binary, &debug]);
    tool("strip", &[&binary]);
    tool("objcopy", &[&format!("--add-gnu-debuglink={}", debug.display()), &binary]);
}

#[test]
fn the_debug_link_is_followed_and_its_crc_checked() {
    let scratch = Scratch::new();
    let flags = ["-g", "-O2", "-Wl,--build-id=none"];
    let binary = scratch.compile("native.c", "native", &flags);
    let debug = scratch.path("native.debug");
    split(&binary, &debug);
    let program = Program::start(&mut Command::new(&binary));
    program.check(&mut symbolizer(&[]), "native.c");

    std::fs::create_dir(scratch.path(".debug")).expect("created");
    let hidden = scratch.path(".debug/native.debug");
    std::fs::rename(&debug, &hidden).expect("renamed");
    program.check(&mut symbolizer(&[]), "native.c");

    let global = scratch.path("global");
    let inside = global.join(scratch.0.strip_prefix("/").expect("absolute"));
    std::fs::create_dir_all(&inside).expect("created");
    std::fs::rename(&hidden, inside.join("native.debug")).expect("renamed");
    program.check(&mut symbolizer(&[&global]), "native.c");

    let mut bytes = std::fs::read(inside.join("native.debug")).expect("readable");
    bytes.push(0);
    std::fs::write(&debug, bytes).expect("writable");
    let frames = symbolizer(&[]).frames(&program.maps(), program.places[0].address);
    assert!(!frames[0].named && frames[0].line.is_none(), "another file's names: {frames:?}");
}

#[test]
fn the_build_id_leads_to_the_debug_file_and_must_match() {
    let scratch = Scratch::new();
    let flags = ["-g", "-O2", "-Wl,--build-id=0xabcdef0123456789"];
    let binary = scratch.compile("native.c", "native", &flags);
    let dir = scratch.path("debug/.build-id/ab");
    std::fs::create_dir_all(&dir).expect("created");
    let debug = dir.join("cdef0123456789.debug");
    tool("objcopy", &[&"--only-keep-debug", &binary, &debug]);
    tool("strip", &[&binary]);
    let program = Program::start(&mut Command::new(&binary));
    let dirs = scratch.path("debug");
    program.check(&mut symbolizer(&[&dirs]), "native.c");

    let other = scratch.compile("native.c", "other", &["-g", "-O2", "-Wl,--build-id=0xab00"]);
    tool("objcopy", &[&"--only-keep-debug", &other, &debug]);
    let frames = symbolizer(&[&dirs]).frames(&program.maps(), program.places[0].address);
    assert!(!frames[0].named, "another build's names: {frames:?}");
}

#[test]
fn a_stripped_binary_has_its_exported_names() {
    let scratch = Scratch::new();
    let binary = scratch.compile("native.c", "native", &["-O2", "-rdynamic"]);
    tool("strip", &[&binary]);
    let program = Program::start(&mut Command::new(&binary));
    let mut symbolizer = symbolizer(&[]);
    let hidden = ["hidden", "chosen_implementation"];
    let exported = |chain: &[String]| !hidden.iter().any(|name| chain.iter().any(|c| c == name));
    program.check_names_only(&mut symbolizer, |place| exported(&place.chain));
    assert_eq!(symbolizer.counters().unsymbolized_frames, 0);

    let maps = program.maps();
    let place = program.places.iter().find(|p| p.chain == ["hidden"]).expect("printed");
    let frames = symbolizer.frames(&maps, place.address);
    assert!(frames.len() == 1 && !frames[0].named && frames[0].user_code);
    let base = maps.all().iter().find(|m| m.is_file()).map_or(0, |m| m.start);
    assert_eq!(&*frames[0].function, format!("native+{:#x}", place.address - base));
    symbolizer.frames(&maps, place.address);
    assert_eq!(symbolizer.counters().unsymbolized_frames, 2);
}

#[test]
fn stubs_of_the_procedure_linkage_table_have_names() {
    let scratch = Scratch::new();
    for flags in
        [&["-O2", "-fcf-protection=full"][..], &["-O2", "-fcf-protection=none", "-Wl,-z,lazy"]]
    {
        let binary = scratch.compile("native.c", "native", flags);
        let program = Program::start(&mut Command::new(&binary));
        let maps = program.maps();
        let base = maps.all().iter().find(|m| m.is_file()).map_or(0, |m| m.start);
        let mut symbolizer = symbolizer(&[]);
        let mut seen = 0;
        for line in tool("objdump", &[&"-d", &binary]).lines().filter(|l| l.ends_with("@plt>:")) {
            let (address, name) = line.split_once(' ').expect("address and name");
            // The ifunc's own stub is local and has no symbol name of its own.
            if name.contains("ABS") {
                continue;
            }
            let address = base + u64::from_str_radix(address, 16).expect("hex");
            let frame = symbolizer.frames(&maps, address + 1).remove(0);
            assert_eq!(format!("<{}>:", frame.function), name);
            assert!(!frame.user_code);
            seen += 1;
        }
        assert!(seen >= 3, "only {seen} stubs");
    }
}
