//! The interpreters that there are: those of this machine, and those of other root directories.

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
        let source = script(&format!("python/{name}"));
        let Some(root) = &self.root else {
            let mut command = Command::new(&self.program);
            command.arg(source).args(arguments);
            return (command, None);
        };
        let folder = Folder::below(&root.join("tmp"), "python");
        let copy = folder.path().join(name);
        std::fs::copy(&source, &copy).expect("the root's temporary folder is writable");
        let mut command = Command::new("chroot");
        command.arg(root).arg(&self.program);
        command.arg(Path::new("/").join(copy.strip_prefix(root).expect("below it")));
        command.args(arguments);
        (command, Some(folder))
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
