//! Files that are deleted, replaced, or in another root or mount namespace.

use std::os::unix::fs::symlink;
use std::process::Command;

use stallscope::binaries::ProcessMaps;

use super::programs::{Program, Scratch, is_root, symbolizer, tool};

#[test]
fn a_deleted_binary_is_the_one_that_runs() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let binary = scratch.compile("native.c", "native", &["-g", "-O2"]);
    let program = Program::start(&mut Command::new(&binary));
    std::fs::remove_file(&binary).expect("removable");
    program.check(&mut symbolizer(&[]), "native.c");
}

#[test]
fn a_replaced_binary_is_the_one_that_runs() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let binary = scratch.compile("native.c", "native", &["-g", "-O2"]);
    let program = Program::start(&mut Command::new(&binary));
    let other = scratch.compile("native.cpp", "other", &["-g", "-O0"]);
    std::fs::rename(other, &binary).expect("renamed");
    program.check(&mut symbolizer(&[]), "native.c");
}

#[test]
fn another_root_has_its_own_debug_files() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let flags = ["-g", "-O2", "-static", "-Wl,--build-id=0xabcdef0123456789"];
    let binary = scratch.compile("native.c", "native", &flags);
    let dir = scratch.path("debug-files/ab");
    std::fs::create_dir_all(&dir).expect("created");
    tool("objcopy", &[&"--only-keep-debug", &binary, &dir.join("cdef0123456789.debug")]);
    tool("strip", &[&binary]);
    // An absolute link inside the root, which leads nowhere in ours.
    std::fs::create_dir_all(scratch.path("usr/lib/debug")).expect("created");
    symlink("/debug-files", scratch.path("usr/lib/debug/.build-id")).expect("linked");
    let program = Program::start(Command::new("chroot").arg(&scratch.0).arg("/native"));
    let mut symbolizer = symbolizer(&["/usr/lib/debug".as_ref()]);
    program.check(&mut symbolizer, "native.c");
}

#[test]
fn another_mount_namespace_is_seen_through() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let binary = scratch.compile("native.c", "native", &["-g", "-O2"]);
    let script = format!(
        "mount -t tmpfs none /mnt && cp {} /mnt/inside && exec /mnt/inside",
        binary.display()
    );
    let program = Program::start(Command::new("unshare").args(["--mount", "sh", "-c"]).arg(script));
    let mut symbolizer = symbolizer(&[]);
    program.check(&mut symbolizer, "native.c");
    let frames = symbolizer.frames(&program.maps(), program.places[0].address);
    assert_eq!(frames[0].module.as_deref(), Some("/mnt/inside"));
}

#[test]
fn what_was_known_of_a_process_outlives_it() {
    let scratch = Scratch::new();
    let binary = scratch.compile("native.c", "native", &["-g", "-O2"]);
    let program = Program::start(&mut Command::new(&binary));
    let (maps, place) = (program.maps(), program.places[0].clone());
    let mut known = symbolizer(&[]);
    let before = known.frames(&maps, place.address);
    drop(program);
    // Never asked while it lived, but its file is still there.
    assert_eq!(symbolizer(&[]).frames(&maps, place.address), before);
    std::fs::remove_file(&binary).expect("removable");
    assert_eq!(known.frames(&maps, place.address), before);
    let mut late = symbolizer(&[]);
    let frames = late.frames(&maps, place.address);
    assert!(frames.len() == 1 && !frames[0].named && frames[0].function.starts_with("native+0x"));
    assert_eq!(late.counters().failed.len(), 1);
    assert_eq!(late.counters().unsymbolized_frames, 1);
}

#[test]
fn addresses_outside_all_files_have_no_module() {
    let maps = ProcessMaps::parse(std::process::id(), "1000-2000 r-xp 00000000 00:00 0 \n");
    let mut symbolizer = symbolizer(&[]);
    for address in [0, 0x1800, 0x5000, u64::MAX] {
        let frames = symbolizer.frames(&maps, address);
        assert_eq!(frames.len(), 1);
        assert_eq!(&*frames[0].function, format!("{address:#x}"));
        assert!(!frames[0].named && !frames[0].user_code && frames[0].module.is_none());
    }
}
