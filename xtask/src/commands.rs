//! Starting other programs: what to run is shown, how it ended decides.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

/// A program that xtask ran for the developer ended badly; xtask ends with the same code.
#[derive(Debug)]
pub(crate) struct Failed {
    /// What ran and how it ended.
    pub(crate) what: String,
    /// Its exit code, if it had one.
    pub(crate) code: Option<i32>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failed {}

/// The exit code that an error of a command stands for.
pub(crate) fn exit_code_of(error: &anyhow::Error) -> ExitCode {
    error
        .downcast_ref::<Failed>()
        .and_then(|failed| failed.code)
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Runs a command with the terminal as its own and fails as it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("+ {}", shown(command));
    let status = command.status().with_context(|| format!("cannot run {}", shown(command)))?;
    if status.success() {
        return Ok(());
    }
    Err(Failed { what: format!("{}: {status}", shown(command)), code: status.code() }.into())
}

/// Runs a command and returns what it wrote to stdout; its stderr goes to the terminal.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    let status = output.status;
    if !status.success() {
        let what = format!("{}: {status}", shown(command));
        return Err(Failed { what, code: status.code() }.into());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{}: not UTF-8", shown(command)))
}

/// The cargo that runs us, in the root of the repository.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Fails unless every program is there; each comes with the Debian package that has it.
pub(crate) fn require(programs: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<_> = programs.iter().filter(|(program, _)| find(program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    bail!(
        "not installed: {}\n  on Debian: sudo apt-get install --no-install-recommends {}",
        names.join(", "),
        packages.join(" ")
    )
}

/// Where a program is; the places of system programs count even if `PATH` lacks them.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// A command for a program that `require` has seen.
pub(crate) fn installed(program: &str) -> Command {
    Command::new(find(program).unwrap_or_else(|| program.into()))
}

/// Whether we run as root.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
