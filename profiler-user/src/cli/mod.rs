//! The command line, in two stages: what was typed ([`args`]), then a configuration in which every
//! choice is made and every number has been checked ([`config`]).

mod args;
mod config;
mod exit;
mod reading;
mod resolve;
mod resolve_reading;
mod terminal;
mod values;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};

pub use config::{
    Backend, Boundaries, CheckConfig, Command, DemoConfig, DiffConfig, FlamegraphConfig,
    LoopsConfig, Reading, ReportConfig, Targets, UserCode, Watch,
};
pub use exit::ExitCode;
pub use terminal::Surroundings;
pub use values::Moment;

/// The definition that help, man page and completions are made from.
#[must_use]
pub fn command() -> clap::Command {
    args::Args::command()
}

/// Resolves the command line of this process.
///
/// # Errors
/// As [`parse_from`].
pub fn parse() -> Result<Command, clap::Error> {
    parse_from(std::env::args_os(), &Surroundings::of_this_process())
}

/// Resolves a command line, the program's name first.
///
/// # Errors
/// The command line is wrong, or asks for help or the version. The caller prints the error with
/// [`clap::Error::print`] (to stdout for help) and ends with its `exit_code()`: 2 for wrong usage,
/// 0 for help.
pub fn parse_from<I, T>(args: I, surroundings: &Surroundings) -> Result<Command, clap::Error>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let mut command = command();
    let matches = command.try_get_matches_from_mut(args)?;
    let args =
        args::Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    resolve::resolve(args, surroundings).map_err(|wrong| {
        // Blame the subcommand, so that the usage shown is the one that helps.
        let used = matches.subcommand_name().and_then(|name| command.find_subcommand_mut(name));
        match used {
            Some(used) => used.error(wrong.kind, wrong.message),
            None => command.error(wrong.kind, wrong.message),
        }
    })
}

#[cfg(test)]
mod tests;
