//! `kernels`: the core of the live tests under stock kernels.
//!
//! Everything the host has runs in the guest, because the host's `/` is the guest's root; nothing the
//! guest writes reaches it. State is kept in `$STALLSCOPE_KERNELS`, else `~/.cache/stallscope-kernels`.

mod archive;
mod guest;
mod image;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result, bail};
use clap::Args;

use self::archive::{Archive, Kernel};
use self::guest::{Accelerator, Machine, Outcome, Task, quoted};
use self::image::Image;
use crate::commands::{self, Failed};
use crate::{source_tree, test};

/// What the kernels need, and the Debian packages that have it.
const PROGRAMS: [(&str, &str); 11] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("depmod", "kmod"),
    ("modprobe", "kmod"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("apt-get", "apt"),
    ("apt-cache", "apt"),
    ("dpkg-deb", "dpkg"),
    ("bash", "bash"),
];

#[derive(Args)]
pub(crate) struct Options {
    /// Versions as in `6.1` (its newest release) or `6.1.0-57-amd64`
    versions: Vec<String>,
    /// The oldest kernel that stallscope supports
    #[arg(long)]
    oldest: bool,
    /// The newest kernel in Debian's archive
    #[arg(long)]
    newest: bool,
    /// Print which kernels can be had
    #[arg(long)]
    list: bool,
    /// A line for bash to run in the guest instead of the core of the live tests
    #[arg(long, value_name = "LINE")]
    command: Option<String>,
    /// Who executes the guest
    #[arg(long, value_enum, default_value_t = Accelerator::Tcg)]
    accelerator: Accelerator,
    /// Memory of the guest in MiB; half of it holds what the guest writes
    #[arg(long, default_value_t = 2048)]
    memory: u32,
    /// Processors of the guest. With more than one, QEMU 7.2 may go on running the old translation
    /// of kernel code that another processor has just patched (a tracepoint switched on): it hangs
    #[arg(long, default_value_t = 1)]
    processors: u32,
    /// Guests at a time
    #[arg(long, default_value = "1")]
    jobs: NonZeroUsize,
    /// Seconds until a guest is killed
    #[arg(long, default_value_t = 900)]
    timeout: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    commands::require(&PROGRAMS)?;
    let state = state_folder()?;
    let archive = Archive::open(&state)?;
    if options.list {
        for kernel in &archive.kernels {
            println!("{}", kernel.release);
        }
        return Ok(());
    }
    let kernels = wanted(options, &archive)?;
    let task = match &options.command {
        Some(command) => Task { command: command.clone(), environment: environment() },
        None => core_of_the_live_tests(options.accelerator)?,
    };
    let machine = Machine {
        accelerator: options.accelerator,
        memory_mib: options.memory,
        processors: options.processors,
        timeout: Duration::from_secs(options.timeout),
    };
    let mut lines = Vec::new();
    let mut first_failure = None;
    let boot = |kernel, image| run_under(kernel, image, &state, &machine, &task, options);
    for together in kernels.chunks(options.jobs.get()) {
        // One after the other: all of them come through the same archive.
        let images: Vec<_> =
            together.iter().map(|kernel| (kernel, prepared(&archive, kernel, &state))).collect();
        let ends: Vec<_> = thread::scope(|scope| {
            let start = |(kernel, image)| scope.spawn(move || boot(kernel, image));
            let guests: Vec<_> = images.into_iter().map(start).collect();
            guests.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        for end in ends {
            let (line, code) = end.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            lines.push(line);
            if code != 0 {
                first_failure.get_or_insert(code);
            }
        }
    }
    println!("\n{}", lines.join("\n"));
    match first_failure {
        None => Ok(()),
        Some(code) => {
            Err(Failed { what: "not every kernel is green".to_owned(), code: Some(code) }.into())
        }
    }
}

/// The kernels that were asked for and exist; the others are named.
fn wanted(options: &Options, archive: &Archive) -> Result<Vec<Kernel>> {
    let mut asked: Vec<(String, Option<&Kernel>)> = Vec::new();
    if options.oldest {
        asked.push(("oldest".to_owned(), archive.oldest()));
    }
    asked.extend(options.versions.iter().map(|version| (version.clone(), archive.find(version))));
    if options.newest {
        asked.push(("newest".to_owned(), archive.newest()));
    }
    if asked.is_empty() {
        bail!("which kernels? give versions, --oldest or --newest; --list prints what there is");
    }
    let mut kernels: Vec<Kernel> = Vec::new();
    for (name, found) in asked {
        match found {
            Some(kernel) if !kernels.contains(kernel) => kernels.push(kernel.clone()),
            Some(_) => {}
            None => eprintln!("{name:<24} SKIPPED: not in Debian's archive as seen from here"),
        }
    }
    if kernels.is_empty() {
        bail!("none of the kernels can be had, so nothing was tested");
    }
    Ok(kernels)
}

/// Runs the task under one kernel: a line that tells how it went, and its exit code.
fn run_under(
    kernel: &Kernel,
    image: Result<Image>,
    state: &Path,
    machine: &Machine,
    task: &Task,
    options: &Options,
) -> (String, i32) {
    let release = &kernel.release;
    let image = match image {
        Ok(image) => image,
        Err(error) => return (format!("{release:<24} FAILED: no image: {error:#}"), 1),
    };
    eprintln!("{release}: booting");
    let folder = state.join("runs").join(format!("{release}-{}", std::process::id()));
    let outcome = match machine.run(&image, task, &folder) {
        Ok(outcome) => outcome,
        // The folder stays: it has the console's log.
        Err(error) => return (format!("{release:<24} FAILED: {error:#}"), 125),
    };
    let _ = fs::remove_dir_all(&folder);
    let (line, code) = judge(release, &outcome, options.command.is_none());
    // In one piece: another guest may end at the same time.
    print!("{}", outcome.stdout);
    eprintln!("{}{line}", outcome.stderr);
    (line, code)
}

fn judge(release: &str, outcome: &Outcome, is_test: bool) -> (String, i32) {
    let summary = outcome.stdout.lines().rfind(|line| line.starts_with("test result:"));
    // Zero tests that all pass show nothing.
    let hollow = is_test && summary.is_none_or(|line| line.contains(" 0 passed"));
    let code = if outcome.code == 0 && hollow { 1 } else { outcome.code };
    let verdict = match code {
        0 => "ok".to_owned(),
        _ if hollow && outcome.code == 0 => "FAILED: no test ran".to_owned(),
        code => format!("FAILED: exit code {code}"),
    };
    let line = format!(
        "{release:<24} {verdict}, {:.1} s, booted in {} s{}{}",
        outcome.wall.as_secs_f64(),
        outcome.boot,
        if summary.is_some() { "; " } else { "" },
        summary.unwrap_or_default()
    );
    (line, code)
}

/// The image of a kernel, made once; an unfinished one is made again.
fn prepared(archive: &Archive, kernel: &Kernel, state: &Path) -> Result<Image> {
    let folder = state.join("kernels").join(&kernel.release);
    let unpacked = folder.join("unpacked");
    if !unpacked.exists() {
        let _ = fs::remove_dir_all(&folder);
        archive.unpack(kernel, &folder)?;
        fs::write(&unpacked, "")?;
    }
    Image::make(&folder, &kernel.release)
}

/// Builds everything that the core of the live tests needs, because a guest has neither the network
/// nor the time to compile.
fn core_of_the_live_tests(accelerator: Accelerator) -> Result<Task> {
    let root = source_tree::root();
    let stallscope = test::build_stallscope(root)?;
    let live = test::compiled_live_tests(root)?;
    // The tests of the module that builds the watched programs build them.
    commands::run(Command::new(&live).arg("fixtures::").current_dir(root.join("profiler-user")))?;
    let fixtures = test::target_folder(root)?.join("fixtures");
    let slow = if accelerator == Accelerator::Tcg { "10" } else { "2" };
    let mut environment = environment();
    environment.push(("STALLSCOPE_BIN".to_owned(), text(&stallscope)?));
    environment.push(("STALLSCOPE_SLOW".to_owned(), slow.to_owned()));
    environment.push(("STALLSCOPE_NO_SKIP".to_owned(), "1".to_owned()));
    if fixtures.is_dir() {
        environment.push(("STALLSCOPE_FIXTURES".to_owned(), text(&fixtures)?));
    }
    let folder = quoted(&text(&root.join("profiler-user"))?);
    let live = quoted(&text(&live)?);
    Ok(Task {
        command: format!("cd {folder} && {live} core:: a_quota_of_a_unified --test-threads=1"),
        environment,
    })
}

/// What a program of the host expects around it.
fn environment() -> Vec<(String, String)> {
    let mut environment = vec![("LANG".to_owned(), "C.UTF-8".to_owned())];
    for name in ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "RUST_BACKTRACE"] {
        if let Ok(value) = env::var(name) {
            environment.push((name.to_owned(), value));
        }
    }
    environment
}

fn state_folder() -> Result<PathBuf> {
    let folder = match env::var_os("STALLSCOPE_KERNELS") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&env::var_os("HOME").context("HOME is not set")?)
            .join(".cache/stallscope-kernels"),
    };
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder.canonicalize()?)
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(code: i32, stdout: &str) -> Outcome {
        Outcome {
            code,
            stdout: stdout.to_owned(),
            stderr: String::new(),
            boot: "17.00".to_owned(),
            wall: Duration::from_secs(60),
        }
    }

    #[test]
    fn a_run_without_a_test_is_no_success() {
        let none = "running 0 tests\ntest result: ok. 0 passed; 0 failed; 0 ignored\n";
        assert_eq!(judge("6.1", &outcome(0, none), true).1, 1);
        assert_eq!(judge("6.1", &outcome(0, ""), true).1, 1);
        assert_eq!(judge("6.1", &outcome(0, ""), false).1, 0);
    }

    #[test]
    fn the_exit_code_and_the_summary_pass_through() {
        let ten = "test result: ok. 10 passed; 0 failed; 0 ignored\n";
        let (line, code) = judge("6.1", &outcome(0, ten), true);
        assert_eq!(code, 0);
        assert!(line.contains("10 passed"), "{line}");
        assert_eq!(judge("6.1", &outcome(101, ten), true).1, 101);
    }
}
