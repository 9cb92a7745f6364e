//! `completions` and `man`: from the definition that the help comes from.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use clap_complete::Shell;

use crate::cli::{self, ExitCode};

use super::failure::{Failure, say};

pub(super) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "stallscope", &mut script);
    print(&script)
}

pub(super) fn man(folder: Option<&Path>) -> Result<ExitCode, Failure> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(cli::command()).render(&mut page)?;
        return print(&page);
    };
    let cannot = |error: io::Error| {
        Failure::new(ExitCode::Failed, format!("{} can't be written: {error}", folder.display()))
    };
    std::fs::create_dir_all(folder).map_err(cannot)?;
    clap_mangen::generate_to(cli::command(), folder).map_err(cannot)?;
    say(&format!("wrote the pages to {}", folder.display()));
    Ok(ExitCode::Done)
}

fn print(bytes: &[u8]) -> Result<ExitCode, Failure> {
    let mut out = io::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::Done),
    }
}
