//! Names that are found later: frames of a stripped program, named again by its debug file.

use std::path::PathBuf;
use std::process::Command;

use stallscope::symbolize::{Frame, Renamer, UserCode};

use super::programs::{Program, Scratch, symbolizer, tool};

/// What is seen of a stripped program, and what of it with all its debug information.
struct Both {
    scratch: Scratch,
    stripped: Vec<Vec<Frame>>,
    full: Vec<Vec<Frame>>,
}

/// Frames from the root to the leaf at each place that the program knows.
fn frames(binary: &std::path::Path) -> Vec<Vec<Frame>> {
    let program = Program::start(&mut Command::new(binary));
    let maps = program.maps();
    let mut symbolizer = symbolizer(&[]);
    let of = |place: &super::programs::Place| {
        let mut frames = symbolizer.frames(&maps, place.address);
        frames.reverse();
        frames
    };
    program.places.iter().map(of).collect()
}

fn both() -> Both {
    let scratch = Scratch::new();
    let full = scratch.compile("native.c", "full", &["-g", "-O2", "-Wl,--build-id"]);
    let (stripped, debug) = (scratch.path("stripped"), scratch.path("native.debug"));
    tool("objcopy", &[&"--only-keep-debug", &full, &debug]);
    tool("objcopy", &[&"--strip-all", &full, &stripped]);
    Both { stripped: frames(&stripped), full: frames(&full), scratch }
}

fn renamer(paths: &[PathBuf]) -> Renamer {
    Renamer::new(paths, UserCode::default()).expect("readable")
}

/// Names, files, lines and inlining are those of the full program; the module remains.
fn check(both: &Both, renamer: &mut Renamer) {
    assert!(both.stripped.len() > 3 && both.stripped.len() == both.full.len());
    for (stripped, full) in both.stripped.iter().zip(&both.full) {
        let named = renamer.stack(stripped).unwrap_or_else(|| panic!("no names: {stripped:?}"));
        let module = stripped[0].module.clone();
        let wanted: Vec<Frame> =
            full.iter().map(|frame| Frame { module: module.clone(), ..frame.clone() }).collect();
        assert_eq!(named, wanted);
        assert!(renamer.stack(&named).is_none(), "nothing more is known of {named:?}");
    }
}

#[test]
fn a_debug_file_names_what_was_stripped() {
    let both = both();
    assert!(both.stripped.iter().flatten().all(|frame| !frame.named), "{:?}", both.stripped);
    check(&both, &mut renamer(&[both.scratch.path("native.debug")]));
    // In a folder beside other files, the binary itself, and where distributions put it.
    check(&both, &mut renamer(std::slice::from_ref(&both.scratch.0)));
    check(&both, &mut renamer(&[both.scratch.path("full")]));
    let id = both.stripped[0][0].origin.build_id.clone().expect("linked with one");
    let folder = both.scratch.path("debug");
    let place = folder.join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&place).expect("a folder");
    std::fs::rename(both.scratch.path("native.debug"), place.join(format!("{}.debug", &id[2..])))
        .expect("moves");
    let mut renamer = renamer(&[folder]);
    check(&both, &mut renamer);
    assert_eq!(renamer.warnings(), Vec::<String>::new());
}

#[test]
fn a_file_of_another_build_names_nothing() {
    let both = both();
    let other = both.scratch.compile("native.c", "other", &["-g", "-O1", "-Wl,--build-id"]);
    let mut one = renamer(&[other]);
    assert!(both.stripped.iter().all(|stack| one.stack(stack).is_none()));
    assert!(one.warnings()[0].contains("build id"), "{:?}", one.warnings());
    // Under a name that claims to be right.
    let id = both.stripped[0][0].origin.build_id.clone().expect("linked with one");
    let place = both.scratch.path(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&place).expect("a folder");
    std::fs::rename(both.scratch.path("other"), place.join(&id[2..])).expect("moves");
    for name in ["full", "native.debug"] {
        std::fs::remove_file(both.scratch.path(name)).expect("it is there");
    }
    let mut one = renamer(std::slice::from_ref(&both.scratch.0));
    assert!(both.stripped.iter().all(|stack| one.stack(stack).is_none()));
    assert!(one.warnings()[0].contains("another build id"), "{:?}", one.warnings());
}

#[test]
fn garbage_and_hostile_build_ids_cost_nothing() {
    let both = both();
    let garbage = both.scratch.path("garbage");
    std::fs::write(&garbage, b"\x7fELF and nothing else").expect("writes");
    let mut one = renamer(&[garbage]);
    assert!(one.warnings()[0].contains("garbage"), "{:?}", one.warnings());
    assert!(one.stack(&both.stripped[0]).is_none());
    for id in ["", "ab", "../../../../etc/passwd", "zz\u{e9}\u{e9}", "ab\n"] {
        let mut frame = both.stripped[0][0].clone();
        frame.origin.build_id = Some(id.into());
        assert!(one.stack(&[frame]).is_none(), "{id}");
    }
    assert!(Renamer::new(&[both.scratch.path("nowhere")], UserCode::default()).is_err());
}
