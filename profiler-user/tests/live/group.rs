//! Control groups of a test's own, removed at its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::gate::skip;
use crate::process::Process;

/// A control group with one controller.
pub(crate) struct Group {
    folder: PathBuf,
    pub(crate) name: String,
    /// It is of the controller's own hierarchy (version 1).
    pub(crate) old: bool,
}

impl Group {
    /// A group of the controller's own hierarchy, else of the unified one.
    pub(crate) fn of_either(controller: &str, file: &str, unified_file: &str) -> Option<Self> {
        let old = Self::make(Path::new("/sys/fs/cgroup").join(controller), controller, file, true);
        let group = old.or_else(|| Self::make_unified(controller, unified_file));
        if group.is_none() {
            skip(&format!("no control group with {controller} can be made here"));
        }
        group
    }

    /// A group of the controller's own hierarchy (version 1).
    pub(crate) fn of_hierarchy(controller: &str, file: &str) -> Option<Self> {
        let group =
            Self::make(Path::new("/sys/fs/cgroup").join(controller), controller, file, true);
        if group.is_none() {
            skip(&format!("no control group with {controller} of its own can be made here"));
        }
        group
    }

    /// A group of the unified hierarchy (version 2).
    pub(crate) fn unified(controller: &str, file: &str) -> Option<Self> {
        let group = Self::make_unified(controller, file);
        if group.is_none() {
            skip(&format!("no unified control group with {controller} can be made here"));
        }
        group
    }

    fn make_unified(controller: &str, file: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let root = mounts.lines().find_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            (fields.get(2) == Some(&"cgroup2")).then(|| PathBuf::from(fields[1]))
        })?;
        // May fail where it is enabled already, or where it always is.
        let _ = fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
        Self::make(root, controller, file, false)
    }

    fn make(root: PathBuf, controller: &str, file: &str, old: bool) -> Option<Self> {
        let name = format!("stallscope-{controller}-{}", std::process::id());
        let folder = root.join(&name);
        fs::create_dir(&folder).ok()?;
        let group = Self { folder, name, old };
        group.folder.join(file).exists().then_some(group)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.folder.join(file);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// The file that processes become members by.
    pub(crate) fn members(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    pub(crate) fn add(&self, process: &Process) {
        self.write("cgroup.procs", &process.pid().to_string());
    }

    pub(crate) fn freeze(&self, freeze: bool) {
        match (self.old, freeze) {
            (true, true) => self.write("freezer.state", "FROZEN"),
            (true, false) => self.write("freezer.state", "THAWED"),
            (false, _) => self.write("cgroup.freeze", if freeze { "1" } else { "0" }),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its members are gone or about to be: nothing else keeps it.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
