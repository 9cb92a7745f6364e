//! Builds the programs under `tests/fixtures`, once, and starts them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::load::loopback;
use crate::process::Process;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Where built fixtures are: `STALLSCOPE_FIXTURES`, or the workspace's `target/fixtures`.
fn built() -> PathBuf {
    given().unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("fixtures"))
}

fn given() -> Option<PathBuf> {
    std::env::var_os("STALLSCOPE_FIXTURES").map(PathBuf::from)
}

/// A path below `tests/fixtures`, for programs that are interpreted.
pub(crate) fn script(path: &str) -> PathBuf {
    sources().join(path)
}

/// The axum service's binary, with its own release profile.
pub(crate) fn axum_service() -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| build("axum-service", &["--release"], ""));
    built().join("release/axum-service")
}

/// The program whose tasks wait for threads of other crates.
pub(crate) fn tokio_crates() -> PathBuf {
    crates("tokio-crates")
}

/// The program with event loops that are not tokio's.
pub(crate) fn executors() -> PathBuf {
    crates("executors")
}

fn crates(program: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| build("tokio-crates", &["--release"], ""));
    built().join("release").join(program)
}

/// Builds a fixture's package, unless it was given, into a folder below [`built`].
fn build(package: &str, profile: &[&str], target: &str) {
    build_with("", package, profile, target);
}

/// The same with flags for the compiler.
fn build_with(flags: &str, package: &str, profile: &[&str], target: &str) {
    if given().is_some() {
        return;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(sources().join(package).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(built().join(target))
        .args(profile)
        // Flags of the outer build (coverage, frame pointers) would make it another program.
        .env("RUSTFLAGS", flags)
        .env_remove("CARGO_ENCODED_RUSTFLAGS"));
}

/// A build of the `tokio-tasks` fixture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tasks {
    /// The newest tokio, fat LTO, debug information.
    Newest,
    /// The same without debug information.
    SymbolsOnly,
    /// The same without symbols.
    Stripped,
    /// tokio 1.38, thin LTO, line tables only.
    Tokio138,
    /// tokio 1.20, not optimised.
    Tokio120,
    /// The newest tokio, which counts its polls itself.
    Metered,
}

impl Tasks {
    /// Its binary, built once.
    pub(crate) fn binary(self) -> PathBuf {
        static BUILT: [OnceLock<()>; 6] = [const { OnceLock::new() }; 6];
        let release = built().join("release/tokio-tasks");
        let stripped = |name: &str| built().join("release").join(name);
        let path = match self {
            Self::Newest => release.clone(),
            Self::SymbolsOnly => stripped("tokio-tasks-symbols"),
            Self::Stripped => stripped("tokio-tasks-stripped"),
            Self::Tokio138 => built().join("tokio-1.38/release/tokio-tasks"),
            Self::Tokio120 => built().join("tokio-1.20/debug/tokio-tasks"),
            Self::Metered => built().join("tokio-unstable/thin/tokio-tasks"),
        };
        BUILT[self as usize].get_or_init(|| match self {
            Self::Newest => build("tokio-tasks", &["--release"], ""),
            Self::SymbolsOnly => Self::strip("--strip-debug", &path),
            Self::Stripped => Self::strip("--strip-all", &path),
            Self::Tokio138 => build("tokio-tasks/tokio-1.38", &["--release"], "tokio-1.38"),
            Self::Tokio120 => build("tokio-tasks/tokio-1.20", &[], "tokio-1.20"),
            Self::Metered => {
                let (flags, profile) = ("--cfg tokio_unstable", &["--profile", "thin"]);
                build_with(flags, "tokio-tasks", profile, "tokio-unstable");
            }
        });
        path
    }

    fn strip(how: &str, to: &Path) {
        let from = Self::Newest.binary();
        if given().is_none() {
            run(Command::new("strip").arg(how).arg("-o").arg(to).arg(from));
        }
    }
}

/// A C program of `fixtures/c`, by its name without `.c`.
pub(crate) fn c(name: &str) -> PathBuf {
    compiled(name, "c", "cc", &[])
}

/// A C++ program of `fixtures/c`, by its name without `.cpp`.
pub(crate) fn cxx(name: &str) -> PathBuf {
    compiled(name, "cpp", "c++", &["-std=c++20", "-lre2"])
}

fn compiled(name: &str, extension: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    static COMPILER: Mutex<()> = Mutex::new(());
    let _one_at_a_time = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
    let binary = built().join("c").join(name);
    let source = sources().join("c").join(name).with_extension(extension);
    let headers = ["c/truth.h", "c/rows.h", "c/slow_files.h"].map(|header| sources().join(header));
    let is_new = headers.iter().chain([&source]).all(|file| is_newer(&binary, file));
    if given().is_none() && !is_new {
        std::fs::create_dir_all(built().join("c")).expect("target is writable");
        let mut command = Command::new(compiler);
        command.args(["-O2", "-g", "-pthread", "-o"]).arg(&binary).arg(&source);
        run(command.args(flags));
    }
    binary
}

/// The program of `fixtures/crate-causes`, whose causes are other people's crates.
pub(crate) fn crate_causes() -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| build("crate-causes", &["--release"], ""));
    built().join("release/crate-causes")
}

/// A Rust program of one file in `fixtures/rust`, by its name without `.rs`.
pub(crate) fn rust(name: &str) -> PathBuf {
    static COMPILER: Mutex<()> = Mutex::new(());
    let _one_at_a_time = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
    let binary = built().join("rust").join(name);
    let source = sources().join("rust").join(name).with_extension("rs");
    let rows = sources().join("rust/rows.rs");
    let is_new = [&source, &rows].iter().all(|file| is_newer(&binary, file));
    if given().is_none() && !is_new {
        std::fs::create_dir_all(built().join("rust")).expect("target is writable");
        let flags = ["--edition", "2024", "-O", "-g", "-o"];
        run(Command::new("rustc").args(flags).arg(&binary).arg(&source));
    }
    binary
}

fn is_newer(file: &Path, than: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    matches!((time(file), time(than)), (Some(file), Some(than)) if file >= than)
}

fn run(command: &mut Command) {
    let status = command.stdin(Stdio::null()).status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "{command:?}: {status:?}"
    );
}

/// Starts a C program and waits until it says that it is ready.
pub(crate) fn start_c(name: &str, arguments: &[&str]) -> Process {
    let process = Process::start(Command::new(c(name)).args(arguments));
    process.wait_for_key("ready");
    process
}

/// A running axum service.
pub(crate) struct AxumService {
    pub(crate) process: Process,
    pub(crate) address: std::net::SocketAddr,
}

/// Starts the axum service and waits until it listens.
pub(crate) fn start_axum() -> AxumService {
    start_axum_by(&mut Command::new(axum_service()))
}

/// The same through any command that becomes the service.
pub(crate) fn start_axum_by(command: &mut Command) -> AxumService {
    let process = Process::start(command);
    let port = process.wait_for_key("port").as_u64().expect("a number");
    AxumService { process, address: loopback(port) }
}

/// A folder that is removed at the end of the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stallscope-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary folder is writable");
        Self(path)
    }

    /// One in another place than this machine's temporary folder.
    pub(crate) fn below(parent: &Path, name: &str) -> Self {
        let path = parent.join(format!("stallscope-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("it is writable");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into it and gives its path.
    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("the temporary folder is writable");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Builds everything ahead: `cargo test --test live fixtures::` before a run without a compiler.
#[test]
fn all_fixtures_build() {
    assert!(axum_service().is_file());
    assert!(tokio_crates().is_file() && executors().is_file());
    let builds =
        [Tasks::SymbolsOnly, Tasks::Stripped, Tasks::Tokio138, Tasks::Tokio120, Tasks::Metered];
    assert!(builds.iter().all(|build| build.binary().is_file()));
    let programs = [
        "idle_loop",
        "poll_loop",
        "spin_no_loop",
        "threads_later",
        "exec_later",
        "causes",
        "kernel_causes",
        "socket_causes",
        "process_causes",
        "regex_causes",
        "memory_causes",
        "nested_causes",
        "storage_causes",
        "slow_fuse",
    ];
    for name in programs {
        assert!(c(name).is_file(), "{name}");
    }
    assert!(rust("rust_causes").is_file() && crate_causes().is_file());
}
