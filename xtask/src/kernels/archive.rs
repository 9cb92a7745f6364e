//! Which stock kernels Debian's archive has, and getting their packages.
//!
//! apt does the work with folders of its own: the machine's package lists and system are left alone,
//! signatures are checked with the machine's keyring, and the mirror is the one the machine uses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use crate::commands;

/// Suites with kernels worth testing, and whether they have a security archive.
const SUITES: [(&str, bool); 5] = [
    ("bullseye", true),
    ("bookworm", true),
    ("trixie", true),
    ("trixie-backports", false),
    ("sid", false),
];
/// Kernels before this one lack the ring buffer or BTF; stallscope does not run there.
const OLDEST_SUPPORTED: [u32; 2] = [5, 10];
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const LISTS_KEEP_FOR: Duration = Duration::from_secs(24 * 3600);

/// A kernel that can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// As in `uname -r`: `6.1.0-57-amd64`.
    pub(crate) release: String,
    suite: &'static str,
}

impl Kernel {
    fn numbers(&self) -> Vec<u32> {
        numbers(&self.release)
    }

    fn series(&self) -> [u32; 2] {
        let numbers = self.numbers();
        [numbers.first().copied().unwrap_or(0), numbers.get(1).copied().unwrap_or(0)]
    }
}

/// The archive as seen from this machine.
pub(crate) struct Archive {
    state: PathBuf,
    /// Oldest first.
    pub(crate) kernels: Vec<Kernel>,
}

impl Archive {
    /// Reads the package lists of all suites; says which can't be had.
    pub(crate) fn open(state: &Path) -> Result<Self> {
        let mirrors = Mirrors::of_this_machine()?;
        let mut kernels: Vec<Kernel> = Vec::new();
        for (suite, has_security) in SUITES {
            if let Err(error) = update(state, suite, has_security, &mirrors) {
                eprintln!("suite {suite} is left out: {error:#}");
                continue;
            }
            let mut search = apt(state, suite, "apt-cache");
            search.args(["search", "--names-only", "^linux-image-[0-9]"]);
            for line in commands::output(&mut search)?.lines() {
                let name = line.split(' ').next().unwrap_or(line);
                let Some(release) = kernel_release(name) else { continue };
                if !kernels.iter().any(|kernel| kernel.release == release) {
                    kernels.push(Kernel { release: release.to_owned(), suite });
                }
            }
        }
        kernels.retain(|kernel| kernel.series() >= OLDEST_SUPPORTED);
        kernels.sort_by_key(Kernel::numbers);
        Ok(Self { state: state.to_owned(), kernels })
    }

    /// The newest release of the oldest series that works.
    pub(crate) fn oldest(&self) -> Option<&Kernel> {
        let series = self.kernels.first()?.series();
        self.kernels.iter().rfind(|kernel| kernel.series() == series)
    }

    /// The newest release there is.
    pub(crate) fn newest(&self) -> Option<&Kernel> {
        self.kernels.last()
    }

    /// The newest release of a version such as `6`, `6.1` or `6.1.0-57-amd64`.
    pub(crate) fn find(&self, version: &str) -> Option<&Kernel> {
        self.kernels.iter().rfind(|kernel| {
            kernel
                .release
                .strip_prefix(version)
                .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
        })
    }

    /// Unpacks the packages of a kernel into `folder`.
    pub(crate) fn unpack(&self, kernel: &Kernel, folder: &Path) -> Result<()> {
        let release = &kernel.release;
        let split = apt(&self.state, kernel.suite, "apt-cache")
            .args(["show", &format!("linux-modules-{release}")])
            .output()?
            .status
            .success();
        let packages =
            if split { ["linux-modules", "linux-binary"].as_slice() } else { &["linux-image"] };
        fs::create_dir_all(folder)?;
        let mut download = apt(&self.state, kernel.suite, "apt-get");
        download.current_dir(folder).args(["-qq", "download"]);
        download.args(packages.iter().map(|package| format!("{package}-{release}")));
        commands::output(&mut download).with_context(|| format!("cannot download {release}"))?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                commands::output(Command::new("dpkg-deb").arg("-x").arg(&path).arg(folder))?;
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

/// Where this machine gets Debian's packages from.
struct Mirrors {
    main: String,
    security: Option<String>,
}

impl Mirrors {
    fn of_this_machine() -> Result<Self> {
        let text = commands::output(Command::new("apt-get").args([
            "indextargets",
            "--format",
            "$(LABEL) $(REPO_URI)",
            "Created-By: Packages",
        ]))?;
        let find = |label: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(' '));
            line.map(str::to_owned)
        };
        let Some(main) = find("Debian") else {
            bail!(
                "apt on this machine knows no Debian mirror: kernels come from Debian's archive \
                 (on Debian itself, `apt-get update` first)"
            );
        };
        Ok(Self { main, security: find("Debian-Security") })
    }
}

/// An apt program that sees only one suite, and only through our own folders.
fn apt(state: &Path, suite: &str, program: &str) -> Command {
    let folder = state.join("apt").join(suite);
    let mut command = Command::new(program);
    for (name, value) in [
        ("Dir::Etc::sourcelist", folder.join("sources.list")),
        ("Dir::Etc::sourceparts", "/dev/null".into()),
        ("Dir::State::lists", folder.join("lists")),
        ("Dir::Cache", folder.join("cache")),
        ("APT::Architecture", "amd64".into()),
        ("APT::Sandbox::User", "root".into()),
        ("Acquire::Languages", "none".into()),
    ] {
        command.arg("-o").arg(format!("{name}={}", value.display()));
    }
    command
}

fn update(state: &Path, suite: &str, has_security: bool, mirrors: &Mirrors) -> Result<()> {
    let folder = state.join("apt").join(suite);
    let stamp = folder.join("updated");
    let age = fs::metadata(&stamp).and_then(|stamp| stamp.modified()).ok();
    let age = age.and_then(|time| SystemTime::now().duration_since(time).ok());
    if age.is_some_and(|age| age < LISTS_KEEP_FOR) {
        return Ok(());
    }
    fs::create_dir_all(folder.join("lists/partial"))?;
    fs::create_dir_all(folder.join("cache/archives/partial"))?;
    // Old suites are archived and their Release files expire; signatures are checked all the same.
    let line = |mirror: &str, suite: &str| {
        format!("deb [arch=amd64 signed-by={KEYRING} check-valid-until=no] {mirror} {suite} main\n")
    };
    let mut sources = line(&mirrors.main, suite);
    if has_security && let Some(security) = &mirrors.security {
        sources.push_str(&line(security, &format!("{suite}-security")));
    }
    fs::write(folder.join("sources.list"), sources)?;
    commands::output(apt(state, suite, "apt-get").args(["-q", "update"]))?;
    fs::write(&stamp, "")?;
    Ok(())
}

/// The release of a kernel package, if it is a plain one: no cloud, real-time or debug flavour.
fn kernel_release(package: &str) -> Option<&str> {
    let release = package.strip_prefix("linux-image-")?;
    let version = release.strip_suffix("-amd64")?;
    let (version, abi) = version.split_once('-').unwrap_or((version, "0"));
    // `6.1` alone names whatever is the newest 6.1.
    let plain = numbers(version).len() >= 3 && abi.bytes().all(|byte| byte.is_ascii_digit());
    plain.then_some(release)
}

/// The numbers in a release, which is what its age goes by.
fn numbers(release: &str) -> Vec<u32> {
    let release = release.strip_suffix("-amd64").unwrap_or(release);
    let words = release.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(releases: &[&str]) -> Archive {
        let mut kernels: Vec<Kernel> = releases
            .iter()
            .map(|release| Kernel { release: (*release).to_owned(), suite: "sid" })
            .collect();
        kernels.sort_by_key(Kernel::numbers);
        Archive { state: PathBuf::new(), kernels }
    }

    #[test]
    fn only_plain_kernels_count() {
        assert_eq!(kernel_release("linux-image-5.10.0-35-amd64"), Some("5.10.0-35-amd64"));
        assert_eq!(kernel_release("linux-image-6.12.9+deb13-amd64"), Some("6.12.9+deb13-amd64"));
        for other in [
            "linux-image-amd64",
            "linux-image-6.1-amd64",
            "linux-image-6.1.0-57-cloud-amd64",
            "linux-image-6.1.0-57-rt-amd64",
            "linux-image-6.1.0-57-amd64-dbg",
            "linux-image-6.1.0-57-amd64-unsigned",
        ] {
            assert_eq!(kernel_release(other), None, "{other}");
        }
    }

    #[test]
    fn a_version_means_its_newest_release_and_no_other_version() {
        let archive = archive(&[
            "6.1.0-9-amd64",
            "6.1.0-57-amd64",
            "6.12.9+deb13-amd64",
            "5.10.0-35-amd64",
            "5.10.0-8-amd64",
            "7.3.4+deb13-amd64",
        ]);
        let release = |kernel: Option<&Kernel>| kernel.map(|kernel| kernel.release.clone());
        assert_eq!(release(archive.find("6.1")).as_deref(), Some("6.1.0-57-amd64"));
        assert_eq!(release(archive.find("6")).as_deref(), Some("6.12.9+deb13-amd64"));
        assert_eq!(release(archive.find("6.1.0-9-amd64")).as_deref(), Some("6.1.0-9-amd64"));
        assert_eq!(archive.find("6.2"), None);
        assert_eq!(release(archive.oldest()).as_deref(), Some("5.10.0-35-amd64"));
        assert_eq!(release(archive.newest()).as_deref(), Some("7.3.4+deb13-amd64"));
    }
}
