//! `demo`: stallscope watches its bundled service; the README's first command.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::{commands, source_tree, test};

#[derive(Args)]
pub(crate) struct Options {
    /// Handed to `stallscope demo`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let stallscope = test::build_stallscope(source_tree::root())?;
    let mut demo = if commands::is_root() {
        Command::new(&stallscope)
    } else {
        // Kernel programs need root; cargo does not, so only the finished program gets it.
        let mut sudo = Command::new(
            commands::find("sudo")
                .context("the demo needs root and there is no sudo: run it as root")?,
        );
        sudo.arg(&stallscope);
        sudo
    };
    // In place of xtask, so that Ctrl-C and the exit code are stallscope's.
    Err(demo.arg("demo").args(&options.arguments).exec()).context("cannot run stallscope")
}
