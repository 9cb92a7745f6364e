//! The interpreters that there are: those of this machine, and those of other root directories.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixtures::{Folder, script};

/// One interpreter.
#[derive(Debug, Clone)]
pub(crate) struct Python {
    /// Where it lives, if it is not here.
    root: Option<PathBuf>,
    program: PathBuf,
}

impl Python {
    /// A command that runs a script of the fixtures. In another root the script is copied there,
    /// into the folder, which is removed with the returned value.
    pub(crate) fn run(&self, name: &str, arguments: &[&str]) -> (Command, Option<Folder>) {
        if self.root.is_some() {
            let (mut command, folder) = self.run_copy(&[], name);
            command.args(arguments);
            return (command, Some(folder));
        }
        let mut command = Command::new(&self.program);
        // Nothing is written next to the sources.
        command.arg("-B").arg(script(&format!("python/{name}"))).args(arguments);
        (command, None)
    }

    /// A command that runs a copy of a script, by way of another program. The copy is gone with the
    /// returned folder.
    pub(crate) fn run_copy(&self, through: &[&str], name: &str) -> (Command, Folder) {
        let folder = match &self.root {
            Some(root) => Folder::below(&root.join("tmp"), "python"),
            None => Folder::new("python"),
        };
        let copy = folder.path().join(name);
        // With the module that scripts share.
        for name in [name, "ground_truth.py"] {
            std::fs::copy(script(&format!("python/{name}")), folder.path().join(name))
                .expect("the folder is writable");
        }
        let mut line: Vec<&OsStr> = through.iter().map(OsStr::new).collect();
        let seen = match &self.root {
            Some(root) => {
                line.extend([OsStr::new("chroot"), root.as_os_str()]);
                Path::new("/").join(copy.strip_prefix(root).expect("below it"))
            }
            None => copy,
        };
        line.extend([self.program.as_os_str(), seen.as_os_str()]);
        let mut command = Command::new(line[0]);
        command.args(&line[1..]);
        (command, folder)
    }

    /// Whether it can import all of these modules.
    fn imports(&self, modules: &[&str]) -> bool {
        self.succeeds(&format!("import {}", modules.join(", ")))
    }

    /// Whether its threads exclude each other: those of free-threaded builds do not.
    pub(crate) fn has_lock(&self) -> bool {
        self.succeeds("import sysconfig; assert not sysconfig.get_config_var('Py_GIL_DISABLED')")
    }

    fn succeeds(&self, code: &str) -> bool {
        let mut command = match &self.root {
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.arg("-c").arg(code);
        command.output().is_ok_and(|output| output.status.success())
    }

    pub(crate) fn is_here(&self) -> bool {
        self.root.is_none()
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Its minor version, by its name.
    pub(crate) fn minor(&self) -> u32 {
        let name = self.program.to_string_lossy();
        let digits = |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
        let told = name.rsplit_once("python3.").and_then(|(_, rest)| digits(rest));
        told.unwrap_or_else(|| panic!("no version in {name}"))
    }
}

/// Those that can import all of these modules, one of each version: of `STALLSCOPE_PYTHONS`, of virtual
/// environments below `opt` of other roots, and all of [`pythons`].
pub(crate) fn with_packages(modules: &[&str]) -> Vec<Python> {
    let given = std::env::var_os("STALLSCOPE_PYTHONS").unwrap_or_default();
    let given = std::env::split_paths(&given).filter(|program| program.is_file());
    let given: Vec<_> = given.map(|program| Python { root: None, program }).collect();
    let mut found: Vec<Python> = given.into_iter().chain(environments()).chain(pythons()).collect();
    found.sort_by_key(Python::minor);
    found.retain(|python| python.imports(modules));
    found.dedup_by_key(|python| python.minor());
    found
}

/// Virtual environments below `opt` of other roots.
fn environments() -> Vec<Python> {
    let roots = std::env::var_os("STALLSCOPE_PYTHON_ROOTS").unwrap_or_default();
    let mut found = Vec::new();
    for root in std::env::split_paths(&roots) {
        let folders = std::fs::read_dir(root.join("opt")).into_iter().flatten().flatten();
        for folder in folders {
            for minor in 8..=30 {
                let inside = format!("bin/python3.{minor}");
                // The link leads to a file of that root.
                if folder.path().join(&inside).symlink_metadata().is_ok() {
                    let program = Path::new("/opt").join(folder.file_name()).join(inside);
                    found.push(Python { root: Some(root.clone()), program });
                }
            }
        }
    }
    found
}

/// Every interpreter of version 3.8 or later: the system's own, those that pyenv keeps, and those
/// of the root directories in `STALLSCOPE_PYTHON_ROOTS`.
pub(crate) fn pythons() -> Vec<Python> {
    let mut found = Vec::new();
    let system = (8..=30).map(|minor| PathBuf::from(format!("/usr/bin/python3.{minor}")));
    found.extend(system.filter(|path| path.is_file()));
    let home = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions = home.and_then(|home| std::fs::read_dir(home.join("versions")).ok());
    for version in versions.into_iter().flatten().flatten() {
        for minor in 8..=30 {
            let program = version.path().join(format!("bin/python3.{minor}"));
            if program.is_file() {
                found.push(program);
            }
        }
    }
    found.iter_mut().for_each(|path| *path = path.canonicalize().unwrap_or_else(|_| path.clone()));
    found.sort();
    found.dedup();
    let mut pythons: Vec<_> =
        found.into_iter().map(|program| Python { root: None, program }).collect();
    let roots = std::env::var_os("STALLSCOPE_PYTHON_ROOTS").unwrap_or_default();
    for root in std::env::split_paths(&roots) {
        for minor in 8..=30 {
            let program = PathBuf::from(format!("/usr/bin/python3.{minor}"));
            if root.join(format!("usr/bin/python3.{minor}")).is_file() {
                pythons.push(Python { root: Some(root.clone()), program });
            }
        }
    }
    pythons
}
