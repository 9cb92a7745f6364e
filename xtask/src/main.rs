//! Everything a developer runs. One module per command; `cargo xtask help` lists them.
//!
//! The commands use only programs that the machine has: nothing here installs anything.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool talks to a terminal; a closed pipe may end it"
)]

mod bench;
mod build_ebpf;
mod commands;
mod demo;
mod dist;
mod kernels;
mod object_record;
mod python_offsets;
mod rustc_wrapper;
mod source_tree;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Everything a developer runs", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compile the kernel programs and check the object in, or check that it is what they make
    BuildEbpf(build_ebpf::Options),
    /// Build stallscope and let it watch its bundled demo service (asks for root through sudo)
    Demo(demo::Options),
    /// Run the tests; those that need root skip themselves without it
    Test(test::Options),
    /// Run the core of the live tests under stock kernels, in an emulator
    Kernels(kernels::Options),
    /// Measure what watching costs redis-server
    Bench(bench::Options),
    /// Ask builds of CPython that have debug information where the fields of its structures lie
    PythonOffsets(python_offsets::Options),
    /// Check what the compiler does not: object, links, names, sizes, leftovers, format, lints
    Tidy(tidy::Options),
    /// Pack a release tarball
    Dist(dist::Options),
}

fn main() -> ExitCode {
    if let Some(code) = rustc_wrapper::run_if_asked() {
        return code;
    }
    let outcome = match Arguments::parse().command {
        Command::BuildEbpf(options) => build_ebpf::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Kernels(options) => kernels::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::PythonOffsets(options) => python_offsets::run(&options),
        Command::Tidy(options) => tidy::run(&options),
        Command::Dist(options) => dist::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            commands::exit_code_of(&error)
        }
    }
}
