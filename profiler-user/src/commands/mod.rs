//! What each command does: from a resolved configuration to an exit code.

mod compare;
mod demo;
mod doctor;
mod failure;
mod loops;
mod manual;
mod reading;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::cli::Command;

use failure::Failure;

/// Runs a command.
#[must_use]
pub fn run(command: Command) -> ExitCode {
    let result = match command {
        Command::Attach(config) | Command::Profile(config) => watch::processes(&config),
        Command::Run(config, command) => watch::command(&config, &command),
        Command::Loops(config) => loops::run(&config),
        Command::Report(config) => reading::report(&config),
        Command::Flamegraph(config) => reading::flamegraph(&config),
        Command::Diff(config) => compare::diff(&config),
        Command::Check(config) => compare::check(&config),
        Command::Completions(shell) => manual::completions(shell),
        Command::Man(folder) => manual::man(folder.as_deref()),
        Command::Doctor(format) => doctor::run(format),
        Command::Demo(config) => demo::run(&config),
        Command::DemoService(arguments) => crate::demo::serve(&arguments)
            .map(|()| crate::cli::ExitCode::Done)
            .map_err(Failure::from),
    };
    match result {
        Ok(code) => code.into(),
        Err(failure) => failure.tell(),
    }
}

/// What the child of `run` does until it is told to become the command.
#[must_use]
pub fn start_when_told(command: &[OsString]) -> ExitCode {
    let error = crate::session::command::start_when_told(command);
    failure::say(&format!("the command can't be run: {error}"));
    // What shells answer for a command that can't be run.
    ExitCode::from(127)
}

/// The executor of one command.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
