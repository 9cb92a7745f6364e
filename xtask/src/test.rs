//! `test`: every test of the workspace, with the release build of stallscope for the live ones.
//!
//! Live tests need root and skip themselves, visibly, without it; so the command is the same for all.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::{commands, source_tree};

/// The test target that watches real programs.
const LIVE: &str = "live";

#[derive(Args)]
pub(crate) struct Options {
    /// Only the tests that watch real programs
    #[arg(long, conflicts_with = "no_live")]
    live_only: bool,
    /// Everything but the tests that watch real programs
    #[arg(long)]
    no_live: bool,
    /// Handed to the test programs: a filter, `--nocapture` …
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let root = source_tree::root();
    if options.no_live {
        let mut tests = commands::cargo(root);
        tests.args(["test", "--workspace", "--no-fail-fast", "--lib", "--bins"]);
        for name in test_targets(root)?.iter().filter(|name| *name != LIVE) {
            tests.args(["--test", name]);
        }
        let tests = commands::run(tests.arg("--").args(&options.arguments));
        let mut examples = commands::cargo(root);
        examples.args(["test", "--workspace", "--doc", "--"]).args(&options.arguments);
        return tests.and(commands::run(&mut examples));
    }
    let mut tests = commands::cargo(root);
    tests.env("STALLSCOPE_BIN", build_stallscope(root)?).args(["test", "--no-fail-fast"]);
    if options.live_only {
        tests.args(["-p", "stallscope", "--test", LIVE]);
    } else {
        tests.arg("--workspace");
    }
    if !commands::is_root() {
        eprintln!("not root: the live tests will say what they skip");
    }
    commands::run(tests.arg("--").args(&options.arguments))
}

/// Builds the release binary and says where it is.
pub(crate) fn build_stallscope(root: &Path) -> Result<PathBuf> {
    commands::run(commands::cargo(root).args(["build", "--release", "-p", "stallscope"]))?;
    Ok(target_folder(root)?.join("release/stallscope"))
}

/// Where cargo puts what it makes.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf> {
    let metadata = metadata(root)?;
    let folder = metadata["target_directory"].as_str().map(PathBuf::from);
    folder.context("cargo metadata names no target directory")
}

/// Compiles the live tests and says where the program is.
pub(crate) fn compiled_live_tests(root: &Path) -> Result<PathBuf> {
    if !test_targets(root)?.iter().any(|name| name == LIVE) {
        bail!("there is no test target `{LIVE}`");
    }
    let messages = commands::output(commands::cargo(root).args([
        "test",
        "-p",
        "stallscope",
        "--test",
        LIVE,
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]))?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == LIVE)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo did not say where the live tests are")
}

/// The names of all integration tests of the workspace.
fn test_targets(root: &Path) -> Result<Vec<String>> {
    let metadata = metadata(root)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    Ok(packages
        .iter()
        .filter_map(|package| package["targets"].as_array())
        .flatten()
        .filter(|target| target["kind"] == serde_json::json!(["test"]))
        .filter_map(|target| target["name"].as_str().map(str::to_owned))
        .collect())
}

fn metadata(root: &Path) -> Result<Value> {
    let mut command: Command = commands::cargo(root);
    let text = commands::output(command.args(["metadata", "--no-deps", "--format-version", "1"]))?;
    serde_json::from_str(&text).context("cargo metadata is not JSON")
}
