//! `tidy`: what the compiler does not check. The parts that take no time are tests of xtask as well,
//! so that plain `cargo test` sees them.

mod links;
mod sources;

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

use crate::{commands, object_record, source_tree};

#[derive(Args)]
pub(crate) struct Options {
    /// Leave out rustfmt and clippy
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let root = source_tree::root();
    let mut complaints = Vec::new();
    for (what, found) in [
        ("object", object_record::check(root).err().map(|error| vec![format!("{error:#}")])),
        ("links", Some(links::dead(root)?)),
        ("names", Some(sources::bad_names(root)?)),
        ("sizes", Some(sources::too_long(root)?)),
        ("leftovers", Some(sources::leftovers(root)?)),
        ("module docs", Some(sources::without_docs(root)?)),
    ] {
        let found = found.unwrap_or_default();
        println!("tidy: {what}: {}", if found.is_empty() { "ok" } else { "FAILED" });
        for complaint in &found {
            println!("  {complaint}");
        }
        complaints.extend(found);
    }
    for warning in sources::long(root)? {
        println!("tidy: warning: {warning}");
    }
    if !options.quick {
        for (what, outcome) in [("format", format(root)), ("clippy", clippy(root))] {
            if let Err(error) = outcome {
                println!("tidy: {what}: FAILED");
                complaints.push(format!("{what}: {error:#}"));
            } else {
                println!("tidy: {what}: ok");
            }
        }
    }
    if !complaints.is_empty() {
        bail!("tidy has {} complaints, see above", complaints.len());
    }
    Ok(())
}

fn format(root: &Path) -> Result<()> {
    commands::run(commands::cargo(root).args(["fmt", "--all", "--check"]))?;
    // Crates outside the workspace: rustfmt follows their modules and needs no dependency.
    for crate_root in outside_the_workspace(root)? {
        let mut rustfmt = Command::new("rustfmt");
        commands::run(rustfmt.args(["--check", "--edition", "2024"]).arg(root.join(crate_root)))?;
    }
    Ok(())
}

fn clippy(root: &Path) -> Result<()> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    commands::run(commands::cargo(root).args(arguments))
}

fn outside_the_workspace(root: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut roots = source_tree::files_ending(root, "rs")?;
    roots.retain(|path| {
        let outside =
            path.starts_with("profiler-ebpf") || path.starts_with("profiler-user/tests/fixtures");
        outside && (path.ends_with("src/main.rs") || path.ends_with("src/lib.rs"))
    });
    Ok(roots)
}
