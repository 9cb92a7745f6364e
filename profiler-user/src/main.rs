//! The `stallscope` binary: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == stallscope::session::command::START) {
        let command: Vec<_> = arguments.collect();
        return stallscope::commands::start_when_told(&command);
    }
    match stallscope::cli::parse() {
        Ok(command) => stallscope::commands::run(command),
        Err(error) => {
            // A closed pipe under --help is no error.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}
