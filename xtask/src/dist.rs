//! `dist`: the tarball of a release.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::{commands, source_tree, test};

/// What goes beside the binary.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

#[derive(Args)]
pub(crate) struct Options {}

pub(crate) fn run(_: &Options) -> Result<()> {
    let root = source_tree::root();
    let stallscope = test::build_stallscope(root)?;
    let target = stallscope.ancestors().nth(2).context("the binary is in no target folder")?;
    let name = format!("stallscope-{}-{}-linux", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let dist = target.join("dist");
    let folder = dist.join(&name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    fs::copy(&stallscope, folder.join("stallscope"))?;
    for document in DOCUMENTS {
        fs::copy(root.join(document), folder.join(document))
            .with_context(|| format!("cannot copy {document}"))?;
    }
    // The manual and the completions, by the binary itself.
    commands::run(Command::new(&stallscope).arg("man").arg(folder.join("man")))?;
    let completions = folder.join("completions");
    fs::create_dir_all(&completions)?;
    for shell in ["bash", "zsh", "fish"] {
        let script = commands::output(Command::new(&stallscope).args(["completions", shell]))?;
        fs::write(completions.join(format!("stallscope.{shell}")), script)?;
    }
    let archive = format!("{name}.tar.gz");
    // Owner, order and time are fixed so that the same files make the same archive.
    commands::run(
        Command::new("tar")
            .current_dir(&dist)
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .args(["--mtime=@0", "--use-compress-program=gzip -n"])
            .args(["-cf", &archive, &name]),
    )?;
    println!("{}", dist.join(archive).display());
    Ok(())
}
