//! Building and running the programs under test.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use stallscope::binaries::ProcessMaps;
use stallscope::symbolize::{Frame, SymbolOptions, Symbolizer};

/// A directory that is removed with everything in it.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir()
            .join(format!("stallscope-symbolize-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles a source of `sources/` with the compiler for its ending.
    pub(crate) fn compile(&self, source: &str, name: &str, flags: &[&str]) -> PathBuf {
        let from =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/symbolize/sources").join(source);
        let to = self.path(name);
        let compiler = match from.extension().and_then(OsStr::to_str) {
            Some("rs") => "rustc",
            Some("cpp") => "g++",
            _ => "cc",
        };
        let mut command = Command::new(compiler);
        if compiler == "rustc" {
            command.args(["--edition", "2024", "--crate-name", "native"]);
        }
        // Split DWARF lands in the working directory.
        run(command.args(flags).arg("-o").arg(&to).arg(&from).current_dir(&self.0));
        to
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a tool to its end and gives its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().expect("the tool is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether this is root, who may look through deleted files and into other roots; says that the
/// running test did not happen otherwise, where the test harness does not capture it.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let root = unsafe { libc::geteuid() == 0 };
    if !root {
        let thread = std::thread::current();
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: needs root ({})", thread.name().unwrap_or("?"));
    }
    root
}

pub(crate) fn tool(name: &str, args: &[&dyn AsRef<OsStr>]) -> String {
    run(Command::new(name).args(args.iter().map(|arg| arg.as_ref())))
}

/// A place that a program knows about itself.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) address: u64,
    pub(crate) line: u32,
    /// Functions, innermost first.
    pub(crate) chain: Vec<String>,
}

/// A running program; killed when dropped.
pub(crate) struct Program {
    child: Child,
    pub(crate) places: Vec<Place>,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut program = Self { child, places: Vec::new() };
        for line in output.lines().map(|line| line.expect("text")) {
            if line == "ready" {
                return program;
            }
            let mut words = line.splitn(3, ' ');
            let mut word = || words.next().expect("three words");
            program.places.push(Place {
                address: u64::from_str_radix(word().trim_start_matches("0x"), 16).expect("hex"),
                line: word().parse().expect("a line"),
                chain: word().split(" < ").map(str::to_owned).collect(),
            });
        }
        panic!("the program ended early");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn maps(&self) -> ProcessMaps {
        ProcessMaps::read(self.pid()).expect("the program lives")
    }

    /// Checks each place against what the symbolizer says: names, innermost line, source file.
    pub(crate) fn check(&self, symbolizer: &mut Symbolizer, source: &str) {
        let maps = self.maps();
        for place in &self.places {
            let frames = symbolizer.frames(&maps, place.address);
            let names: Vec<&str> = frames.iter().map(|f| &*f.function).collect();
            assert_eq!(names, place.chain, "{place:?}: {frames:?} {:?}", symbolizer.counters());
            assert!(frames.iter().all(|f| f.named && f.user_code), "{frames:?}");
            let inlined: Vec<bool> = frames.iter().map(|f| f.inlined).collect();
            let expected: Vec<bool> = (1..=names.len()).map(|i| i < names.len()).collect();
            assert_eq!(inlined, expected);
            if place.line > 0 {
                assert_eq!(frames[0].line, Some(place.line), "{place:?}");
                assert!(frames.iter().all(|f| file(f).ends_with(source)), "{frames:?}");
            }
        }
        assert!(symbolizer.counters().failed.is_empty(), "{:?}", symbolizer.counters());
    }

    /// Checks that every place is found under the outermost function's name, without lines.
    pub(crate) fn check_names_only(
        &self,
        symbolizer: &mut Symbolizer,
        chosen: impl Fn(&Place) -> bool,
    ) {
        let maps = self.maps();
        for place in self.places.iter().filter(|place| chosen(place)) {
            let frames = symbolizer.frames(&maps, place.address);
            assert_eq!(frames.len(), 1, "{frames:?}");
            assert_eq!(Some(&*frames[0].function), place.chain.last().map(String::as_str));
            assert_eq!((frames[0].file.as_ref(), frames[0].line), (None, None));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn file(frame: &Frame) -> &str {
    frame.file.as_deref().unwrap_or_default()
}

pub(crate) fn symbolizer(debug_dirs: &[&Path]) -> Symbolizer {
    let debug_dirs = debug_dirs.iter().map(|dir| dir.to_path_buf()).collect();
    Symbolizer::new(SymbolOptions { debug_dirs, ..SymbolOptions::default() })
}

/// Maps of our own process in which a file appears whole at 1 MiB, executable.
pub(crate) fn as_if_mapped(path: &Path) -> ProcessMaps {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path).expect("the file exists");
    let text = format!(
        "100000-{:x} r-xp 00000000 00:00 {} {}\n",
        0x10_0000 + meta.len().max(0x1000),
        meta.ino(),
        path.display()
    );
    ProcessMaps::parse(std::process::id(), &text)
}
