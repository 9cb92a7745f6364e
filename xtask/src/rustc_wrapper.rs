//! xtask as cargo's `RUSTC_WRAPPER`, so that the object does not depend on where it was built.
//!
//! Cargo mixes the absolute paths of path dependencies and of the standard library's sources into
//! `-C metadata`, and rustc mixes that into every symbol name. No flag turns this off, so the
//! wrapper replaces the value by one made of the package's name and version.

use std::env;
use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// Set by `build-ebpf` for the wrapped compilation; other uses of xtask never see it.
pub(crate) const ASKED: &str = "STALLSCOPE_XTASK_WRAPS_RUSTC";

/// Runs rustc in place of xtask if that is what this process was started for.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    env::var_os(ASKED)?;
    let mut arguments = env::args_os().skip(1);
    let Some(rustc) = arguments.next() else {
        eprintln!("error: {ASKED} is set, but no rustc was given");
        return Some(ExitCode::FAILURE);
    };
    let package = format!(
        "{}-{}",
        env::var("CARGO_PKG_NAME").unwrap_or_default(),
        env::var("CARGO_PKG_VERSION").unwrap_or_default()
    );
    let status = Command::new(&rustc).args(with_metadata(arguments, &package)).status();
    Some(match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: cannot run {}: {error}", rustc.display());
            ExitCode::FAILURE
        }
    })
}

fn with_metadata(
    arguments: impl Iterator<Item = OsString>,
    package: &str,
) -> impl Iterator<Item = OsString> {
    arguments.map(move |argument| match argument.to_str() {
        Some(text) if text.starts_with("metadata=") => format!("metadata={package}").into(),
        Some(text) if text.starts_with("-Cmetadata=") => format!("-Cmetadata={package}").into(),
        _ => argument,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_metadata_is_replaced() {
        let given = ["--crate-name", "a", "-C", "metadata=123", "-C", "extra-filename=-123"];
        let made: Vec<_> = with_metadata(given.into_iter().map(OsString::from), "a-1.0").collect();
        assert_eq!(
            made,
            ["--crate-name", "a", "-C", "metadata=a-1.0", "-C", "extra-filename=-123"]
        );
    }
}
