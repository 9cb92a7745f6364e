//! One run: boots a kernel in QEMU with the host's `/` as its root, and brings the result back.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::image::Image;
use crate::commands;

/// How the guest's instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accelerator {
    /// Emulated: works everywhere, about ten times slower
    Tcg,
    /// By the processor, where /dev/kvm runs stock kernels
    Kvm,
}

/// The machine that a kernel boots on.
pub(crate) struct Machine {
    pub(crate) accelerator: Accelerator,
    pub(crate) memory_mib: u32,
    pub(crate) processors: u32,
    pub(crate) timeout: Duration,
}

/// What the guest is to do.
pub(crate) struct Task {
    /// A line for bash.
    pub(crate) command: String,
    pub(crate) environment: Vec<(String, String)>,
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The guest's uptime when the command started.
    pub(crate) boot: String,
    pub(crate) wall: Duration,
}

impl Machine {
    /// Boots, runs the task, returns what it wrote. `folder` is shared with the guest; only what is
    /// written there outlives it.
    pub(crate) fn run(&self, image: &Image, task: &Task, folder: &Path) -> Result<Outcome> {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder)?;
        fs::write(folder.join("run"), task.script())?;
        let begin = Instant::now();
        let ended = self.boot(image, folder)?;
        let wall = begin.elapsed();
        let read = |name: &str| {
            let content = fs::read(folder.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&content).into_owned()
        };
        let Ok(code) = read("code").trim().parse() else {
            let ended = if ended { "it ended" } else { "it was killed at the timeout" };
            let (console, qemu) = (read("console"), read("qemu.log"));
            bail!(
                "no result, {ended} after {:.0} s\n--- stdout\n{}--- stderr\n{}--- console, qemu\n{}{}",
                wall.as_secs_f64(),
                last_lines(&read("stdout"), 30),
                last_lines(&read("stderr"), 30),
                last_lines(&console, 20),
                last_lines(&qemu, 20),
            );
        };
        let boot = read("ready").trim().to_owned();
        Ok(Outcome { code, stdout: read("stdout"), stderr: read("stderr"), boot, wall })
    }

    /// Whether the emulator ended by itself within the timeout.
    fn boot(&self, image: &Image, folder: &Path) -> Result<bool> {
        let log = fs::File::create(folder.join("qemu.log"))?;
        let (accelerator, processor) = match self.accelerator {
            Accelerator::Tcg => ("tcg,thread=multi", "max"),
            Accelerator::Kvm => ("kvm", "host"),
        };
        let share = |id: &str, path: &str, read_only: &str| {
            format!(
                "local,id={id},path={path},security_model=none,readonly={read_only},multidevs=remap"
            )
        };
        let folder_name = folder.to_str().context("the folder's name is not UTF-8")?;
        let mut command = commands::installed("qemu-system-x86_64");
        command
            .args(["-accel", accelerator, "-cpu", processor, "-M", "q35"])
            .args(["-m", &self.memory_mib.to_string(), "-smp", &self.processors.to_string()])
            .args(["-nodefaults", "-no-user-config", "-no-reboot"])
            .args(["-display", "none", "-monitor", "none", "-net", "none"])
            .args(["-serial", &format!("file:{folder_name}/console")])
            .arg("-kernel")
            .arg(&image.kernel)
            .arg("-initrd")
            .arg(&image.initramfs)
            .args(["-append", "console=ttyS0 quiet panic=-1 tsc=reliable nokaslr mitigations=off"])
            .args(["-fsdev", &share("root", "/", "on")])
            .args(["-device", "virtio-9p-pci,fsdev=root,mount_tag=root"])
            .args(["-fsdev", &share("out", folder_name, "off")])
            .args(["-device", "virtio-9p-pci,fsdev=out,mount_tag=out"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut emulator = Emulator::start(&mut command)?;
        let deadline = Instant::now() + self.timeout;
        while Instant::now() < deadline {
            if emulator.0.try_wait()?.is_some() {
                return Ok(true);
            }
            sleep(Duration::from_millis(100));
        }
        Ok(false)
    }
}

impl Task {
    fn script(&self) -> String {
        let mut script = String::from("cd /run/out\n");
        for (name, value) in &self.environment {
            let _ = writeln!(script, "export {name}={}", quoted(value));
        }
        let _ = writeln!(
            script,
            "bash -c {} >/run/out/stdout 2>/run/out/stderr </dev/null\necho $? >/run/out/code",
            quoted(&self.command)
        );
        script
    }
}

/// A running emulator; it does not outlive xtask's interest in it.
struct Emulator(Child);

impl Emulator {
    fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(command.spawn().context("cannot start qemu-system-x86_64")?))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One word for a shell, whatever is in it.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    let mut kept = lines[lines.len().saturating_sub(count)..].join("\n");
    if !kept.is_empty() {
        kept.push('\n');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_in_a_command_stays_inside_its_word() {
        let task = Task {
            command: "echo 'a b'".to_owned(),
            environment: vec![("NAME".to_owned(), "it's".to_owned())],
        };
        let script = task.script();
        assert!(script.contains(r"export NAME='it'\''s'"), "{script}");
        assert!(script.contains(r"bash -c 'echo '\''a b'\''' >"), "{script}");
    }

    #[test]
    fn the_end_of_a_text_is_kept() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(last_lines("a", 5), "a\n");
        assert_eq!(last_lines("", 5), "");
    }
}
