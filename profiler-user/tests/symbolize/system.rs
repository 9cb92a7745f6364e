//! Binaries of this machine, the vdso and the kernel, with binutils as second opinion.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use stallscope::binaries::ProcessMaps;
use stallscope::symbolize::{FrameKind, SymbolPattern, Symbolizer};

use super::programs::{as_if_mapped, symbolizer, tool};

#[test]
fn a_symbolizer_can_move_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Symbolizer>();
}

/// Our own test executable is large, and full of inlined Rust.
#[test]
fn binutils_sees_the_same_lines_in_a_large_rust_program() {
    let binary = std::env::current_exe().expect("running");
    let maps = as_if_mapped(&binary);
    let mut symbolizer = symbolizer(&[]);
    let found =
        symbolizer.find_symbols(&maps, &maps.all()[0], SymbolPattern::Contains("stallscope"));
    assert!(found.len() > 100, "{}", found.len());
    let step = (found.len() / 150).max(1);
    let mut addresses: Vec<(u64, u64)> = Vec::new();
    for symbol in found.iter().step_by(step) {
        if let Some(offset) = symbol.file_offset {
            addresses.push((symbol.address + 5, 0x10_0000 + offset + 5));
        }
    }
    let mut child = Command::new("addr2line")
        .args(["-a", "-e"])
        .arg(&binary)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("binutils is installed");
    let mut input = child.stdin.take().expect("piped");
    for (address, _) in &addresses {
        writeln!(input, "{address:#x}").expect("read");
    }
    drop(input);
    let output = child.wait_with_output().expect("ends");
    let output = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = output.lines().filter(|line| !line.starts_with("0x")).collect();
    assert_eq!(lines.len(), addresses.len());
    let (mut same, mut compared) = (0, 0);
    for ((_, lookup), theirs) in addresses.iter().zip(lines) {
        let theirs = theirs.split(" (disc").next().unwrap_or(theirs);
        if theirs.contains('?') {
            continue;
        }
        let frames = symbolizer.frames(&maps, *lookup);
        let ours = (frames[0].file.as_deref().unwrap_or("?"), frames[0].line.unwrap_or(0));
        compared += 1;
        same += usize::from(format!("{}:{}", ours.0, ours.1) == theirs);
    }
    assert!(compared > 50 && same * 100 >= compared * 95, "{same} of {compared}");
}

#[test]
fn redis_has_its_dynamic_names_and_they_are_the_users() {
    let path = Path::new("/usr/bin/redis-server");
    let Ok(path) = path.canonicalize() else { return };
    let maps = as_if_mapped(&path);
    let mut symbolizer = symbolizer(&[]);
    let nm = tool("nm", &[&"-D", &"--defined-only", &path]);
    let (mut checked, mut aliased) = (0, 0);
    for line in nm.lines().step_by(7) {
        let mut words = line.split(' ');
        let (Some(address), Some("T"), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let address = u64::from_str_radix(address, 16).expect("hex");
        let frames = symbolizer.frames(&maps, 0x10_0000 + address);
        checked += 1;
        aliased += usize::from(*frames[0].function != *name);
        assert!(frames[0].named, "{line}");
    }
    assert!(checked > 50 && aliased * 20 < checked, "{aliased} of {checked}");
    let command =
        symbolizer.find_symbols(&maps, &maps.all()[0], SymbolPattern::Exact("processCommand"));
    let frames = symbolizer.frames(&maps, 0x10_0000 + command[0].file_offset.expect("code"));
    assert!(frames[0].user_code && &*frames[0].function == "processCommand");
}

#[test]
fn the_vdso_is_read_from_memory() {
    let maps = ProcessMaps::read(std::process::id()).expect("alive");
    let vdso = maps.all().iter().find(|m| &*m.path == "[vdso]").expect("mapped").clone();
    let mut symbolizer = symbolizer(&[]);
    let pattern = SymbolPattern::Exact("__vdso_clock_gettime");
    assert!(symbolizer.has_symbol(&maps, &vdso, pattern));
    let symbol = symbolizer.find_symbols(&maps, &vdso, pattern).remove(0);
    let frames = symbolizer.frames(&maps, vdso.start + symbol.address + 1);
    assert!(frames[0].function.ends_with("clock_gettime"), "{frames:?}");
    assert!(!frames[0].user_code && frames[0].named);
}

#[test]
fn our_own_libc_is_named_and_not_the_users() {
    let maps = ProcessMaps::read(std::process::id()).expect("alive");
    let address = libc::epoll_wait as *const () as usize as u64;
    let frames = symbolizer(&[]).frames(&maps, address + 1);
    let outer = frames.last().expect("at least one");
    assert!(outer.function.contains("epoll_wait") && !outer.user_code, "{frames:?}");
}

#[test]
fn kernel_functions_are_named_where_the_kernel_shows_them() {
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let mut symbolizer = symbolizer(&[]);
    let mut starts = HashSet::new();
    let functions = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let is_function =
            words.next()? == "T" && !line.contains(" __pfx_") && starts.insert(address);
        is_function.then_some((address, words.next()?))
    });
    let (mut same, mut checked) = (0, 0);
    for (address, name) in functions.step_by(997) {
        let frame = symbolizer.kernel_frame(address + 1);
        assert_eq!((frame.kind, frame.user_code), (FrameKind::Kernel, false));
        if address == 0 {
            assert!(!frame.named);
            continue;
        }
        checked += 1;
        same += usize::from(&*frame.function == name);
    }
    // Aliases share an address, and one-byte functions end before the next byte.
    assert!(same * 10 >= checked * 9, "{same} of {checked}");
    assert!(!symbolizer.kernel_frame(0xffff_0000_0000_0000).named);
}
