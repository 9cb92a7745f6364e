//! Swap of a test's own, in a file that is gone at its end.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};

use crate::fixtures::Folder;
use crate::gate::{has_programs, skip};

/// Bytes of it.
const BYTES: usize = 64 << 20;

/// Room to swap to.
pub(crate) struct Swap {
    file: CString,
    disk: String,
    _folder: Folder,
}

impl Swap {
    /// `None` where there can't be any: the skip has been printed.
    pub(crate) fn on() -> Option<Self> {
        if !has_programs(&["mkswap"]) {
            return None;
        }
        let folder = Folder::new("swap");
        // Written, since a swap file must have no holes.
        let path = folder.path().join("swap");
        std::fs::write(&path, vec![0; BYTES]).expect("the temporary folder is writable");
        let own = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, own).expect("it is ours");
        let made = Command::new("mkswap").arg(&path).stdout(Stdio::null()).status();
        assert!(made.as_ref().is_ok_and(|status| status.success()), "mkswap: {made:?}");
        let file = CString::new(path.as_os_str().as_bytes()).expect("a path");
        // SAFETY: a string that ends.
        if unsafe { libc::swapon(file.as_ptr(), 0) } != 0 {
            let error = std::io::Error::last_os_error();
            skip(&format!("no swap file can be used here: {error}"));
            return None;
        }
        let disk = disk_of(path.metadata().expect("it is there").dev());
        Some(Self { file, disk, _folder: folder })
    }

    /// The numbers of the disk that it lies on.
    pub(crate) fn disk(&self) -> &str {
        &self.disk
    }
}

/// The disk that a device is, or is a part of.
fn disk_of(device: u64) -> String {
    let numbers = format!("{}:{}", libc::major(device), libc::minor(device));
    let place = format!("/sys/dev/block/{numbers}");
    let whole = std::fs::read_to_string(format!("{place}/../dev"));
    let is_part = std::path::Path::new(&place).join("partition").exists();
    whole.ok().filter(|_| is_part).map_or(numbers, |whole| whole.trim().to_owned())
}

impl Drop for Swap {
    fn drop(&mut self) {
        // SAFETY: a string that ends.
        unsafe { libc::swapoff(self.file.as_ptr()) };
    }
}
