//! `build-ebpf`: from the kernel programs' sources to the object that is checked in.
//!
//! The same toolchain makes the same bytes in any folder: paths are remapped, and
//! [`rustc_wrapper`] takes them out of symbol names.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::object_record::{self, OBJECT, RECORD, Record};
use crate::{commands, rustc_wrapper, source_tree};

const TARGET: &str = "bpfel-unknown-none";

#[derive(Args)]
pub(crate) struct Options {
    /// Compile into a temporary folder and compare with what is checked in
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let root = source_tree::root();
    if options.check { check(root) } else { make(root) }
}

fn make(root: &Path) -> Result<()> {
    let toolchain = Toolchain::find()?;
    let object = compile(root, &toolchain, &root.join("target/ebpf"), &[])?;
    let record = Record::of(root, toolchain.versions(), &object)?;
    let path = root.join(OBJECT);
    fs::create_dir_all(path.parent().context("the object has no folder")?)?;
    fs::write(&path, &object).with_context(|| format!("cannot write {OBJECT}"))?;
    fs::write(root.join(RECORD), record.render())
        .with_context(|| format!("cannot write {RECORD}"))?;
    println!("{OBJECT}: {} bytes, sha256 {}", object.len(), record.object);
    Ok(())
}

fn check(root: &Path) -> Result<()> {
    object_record::check(root)?;
    println!("{RECORD}: object and sources are the recorded ones");
    let record = Record::checked_in(root)?;
    let toolchain = Toolchain::find()?;
    if toolchain.versions() != record.toolchain {
        println!(
            "bytes not compared: the object was made by {}, here is {}",
            record.toolchain,
            toolchain.versions()
        );
        return Ok(());
    }
    // A folder of its own: what an earlier build left in target/ must not decide.
    let folder = env::temp_dir().join(format!("stallscope-ebpf-{}", std::process::id()));
    let compiled = compile(root, &toolchain, &folder, &["--locked"]);
    let kept = fs::read(root.join(OBJECT)).with_context(|| format!("cannot read {OBJECT}"));
    let (compiled, kept) = (compiled?, kept?);
    if compiled != kept {
        let other = folder.join("stallscope.bpf.o");
        fs::write(&other, &compiled)?;
        bail!(
            "{OBJECT} is not what its sources make with the same toolchain ({}): \
             {} bytes checked in, {} bytes made, first difference at byte {}\n  compare it with {}",
            record.toolchain,
            kept.len(),
            compiled.len(),
            compiled.iter().zip(&kept).take_while(|(a, b)| a == b).count(),
            other.display()
        );
    }
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    println!("{OBJECT}: rebuilt, {} bytes, all the same", kept.len());
    Ok(())
}

/// What compiles and links kernel programs on this machine.
struct Toolchain {
    rustc: String,
    linker: String,
    sysroot: String,
}

impl Toolchain {
    fn find() -> Result<Self> {
        let how = "building the object needs a nightly toolchain with its sources and a linker:\n  \
                   rustup toolchain install nightly --component rust-src\n  \
                   cargo install --locked bpf-linker\n  \
                   (using stallscope needs neither: the object is checked in)";
        if commands::find("bpf-linker").is_none() {
            bail!("bpf-linker is not installed; {how}");
        }
        let line =
            |command: &mut Command| commands::output(command).map(|out| out.trim().to_owned());
        let rustc = line(nightly("rustc").arg("--version")).context(how)?;
        let sysroot = line(nightly("rustc").args(["--print", "sysroot"])).context(how)?;
        let core = Path::new(&sysroot).join("lib/rustlib/src/rust/library/core/src/lib.rs");
        if !core.is_file() {
            bail!("the nightly toolchain has no rust-src component; {how}");
        }
        let linker = line(Command::new("bpf-linker").arg("--version"))?;
        Ok(Self { rustc, linker, sysroot })
    }

    fn versions(&self) -> String {
        format!("{}, {}", self.rustc, self.linker)
    }
}

/// A program of the nightly toolchain, free of what the stable cargo that runs us has set.
fn nightly(program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", program]);
    let set_by_cargo = env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_")
            || name.starts_with("CARGO_PROFILE_")
            || name.starts_with("CARGO_BUILD_")
            || matches!(
                name.as_ref(),
                "CARGO"
                    | "CARGO_ENCODED_RUSTFLAGS"
                    | "CARGO_INCREMENTAL"
                    | "RUSTFLAGS"
                    | "RUSTC"
                    | "RUSTC_WRAPPER"
                    | "RUSTC_WORKSPACE_WRAPPER"
                    | "RUSTUP_TOOLCHAIN"
            )
    });
    for name in set_by_cargo.collect::<Vec<_>>() {
        command.env_remove(name);
    }
    command
}

fn compile(
    root: &Path,
    toolchain: &Toolchain,
    target: &Path,
    arguments: &[&str],
) -> Result<Vec<u8>> {
    // As configuration and not as RUSTFLAGS, which would hide the flags of profiler-ebpf/.cargo.
    let flags = [
        (root.to_path_buf(), "/stallscope"),
        (cargo_home()?, "/cargo"),
        (PathBuf::from(&toolchain.sysroot), "/rust"),
    ]
    .map(|(path, name)| format!("{:?}", format!("--remap-path-prefix={}={name}", path.display())))
    .join(",");
    let mut command = nightly("cargo");
    command
        .current_dir(root.join("profiler-ebpf"))
        .args(["build", "--release", "-Z", "build-std=core", "--target", TARGET])
        .args(["--config", &format!("target.{TARGET}.rustflags=[{flags}]")])
        .args(arguments)
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTC_WRAPPER", env::current_exe().context("where is xtask?")?)
        .env(rustc_wrapper::ASKED, "1");
    commands::run(&mut command)?;
    let made = target.join(TARGET).join("release/profiler-ebpf");
    fs::read(&made).with_context(|| format!("cannot read {}", made.display()))
}

fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    Ok(Path::new(&env::var_os("HOME").context("HOME is not set")?).join(".cargo"))
}
