//! From a kernel's packages to what an emulator boots: the kernel image and an initramfs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::commands;

/// What the guest needs before the host's `/` gives it everything else.
const MODULES: [&str; 5] = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_rng"];
const INIT: &str = include_str!("init.sh");

/// What boots.
pub(crate) struct Image {
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
}

impl Image {
    /// Makes the image of a kernel whose packages are unpacked in `folder`.
    pub(crate) fn make(folder: &Path, release: &str) -> Result<Self> {
        // Since trixie the packages put everything below /usr.
        let base = [folder.join("usr"), folder.to_owned()]
            .into_iter()
            .find(|base| base.join("lib/modules").join(release).is_dir())
            .with_context(|| format!("no modules in {}", folder.display()))?;
        let kernel = [
            folder.join(format!("boot/vmlinuz-{release}")),
            base.join("lib/modules").join(release).join("vmlinuz"),
        ]
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| format!("no kernel image in {}", folder.display()))?;

        let tree = folder.join("initramfs.d");
        let _ = fs::remove_dir_all(&tree);
        for name in ["bin", "proc", "sys", "dev", "modules", "lower", "layer", "new"] {
            fs::create_dir_all(tree.join(name))?;
        }
        let busybox = commands::find("busybox").context("busybox is gone")?;
        fs::copy(busybox, tree.join("bin/busybox"))?;
        fs::write(tree.join("init"), INIT)?;
        fs::set_permissions(tree.join("init"), PermissionsExt::from_mode(0o755))?;
        let mut order = String::new();
        for module in modules_in_order(&base, release)? {
            order.push_str(&copy_module(&module, &tree.join("modules"))?);
            order.push('\n');
        }
        fs::write(tree.join("modules/order"), order)?;

        let initramfs = folder.join("initramfs.cpio");
        pack(&tree, &initramfs)?;
        fs::remove_dir_all(&tree)?;
        Ok(Self { kernel, initramfs })
    }
}

/// The files of the modules and of what they depend on, each after what it depends on.
fn modules_in_order(base: &Path, release: &str) -> Result<Vec<PathBuf>> {
    // The packages lack the lists of built-in modules and depmod says so; none is needed here.
    let depmod = commands::installed("depmod").arg("-b").arg(base).arg(release).output()?;
    if !depmod.status.success() {
        bail!("depmod: {}\n{}", depmod.status, String::from_utf8_lossy(&depmod.stderr));
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for module in MODULES {
        // One that is built into the kernel, or does not exist there, has no file to load.
        let listed = commands::installed("modprobe")
            .arg("-d")
            .arg(base)
            .args(["-S", release, "--show-depends", module])
            .stderr(Stdio::null())
            .output()?;
        for line in String::from_utf8_lossy(&listed.stdout).lines() {
            let file = line.strip_prefix("insmod ").map(|rest| PathBuf::from(rest.trim()));
            if let Some(file) = file.filter(|file| !files.contains(file)) {
                files.push(file);
            }
        }
    }
    Ok(files)
}

/// Copies a module uncompressed, because the guest can't unpack it; returns its name.
fn copy_module(module: &Path, folder: &Path) -> Result<String> {
    let name = module.file_name().context("a module without a name")?.to_string_lossy();
    let (program, plain) = match name.rsplit_once('.') {
        Some((plain, "xz")) => ("xz", plain),
        Some((plain, "zst")) => ("zstd", plain),
        Some((plain, "gz")) => ("gzip", plain),
        _ => ("cat", name.as_ref()),
    };
    let mut unpack = Command::new(program);
    if program != "cat" {
        unpack.arg("-dc");
    }
    let unpacked = fs::File::create(folder.join(plain))?;
    let status = unpack.arg(module).stdout(unpacked).status()?;
    if !status.success() {
        bail!("{program} cannot unpack {}: {status}", module.display());
    }
    Ok(plain.to_owned())
}

fn pack(tree: &Path, initramfs: &Path) -> Result<()> {
    let script = "find . | cpio --create --format newc --quiet";
    let status = Command::new("sh")
        .args(["-c", script])
        .current_dir(tree)
        .stdout(fs::File::create(initramfs)?)
        .status()?;
    if !status.success() {
        bail!("cpio: {status}");
    }
    Ok(())
}
