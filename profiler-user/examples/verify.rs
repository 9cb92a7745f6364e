//! What the verifier of the running kernel makes of each program: how long it took, how many
//! instructions it followed, or why it refuses. For work on the kernel programs, under any kernel:
//! `cargo xtask kernels 5.10 --command target/release/examples/verify`.
//!
//! `verify [OBJECT [LINES]]`: another object than the one that is built in, and how many of the last
//! lines are printed that the verifier said of a program it refused.

#![expect(clippy::print_stdout, reason = "this is its output")]

use std::time::Instant;

use stallscope::attach::{Kernel, KernelError, KernelOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let object = arguments.next().map(std::fs::read).transpose()?;
    let log_lines = arguments.next().and_then(|lines| lines.parse().ok());
    let options = KernelOptions {
        threshold_ns: 10_000_000,
        sample_rate: 1000,
        stack_bytes: 36 << 10,
        max_loops: 32,
        max_threads: 4096,
        follow_forks: true,
        exact: true,
    };
    let began = Instant::now();
    let mut kernel = match object {
        Some(object) => Kernel::load_object(&object, &options)?,
        None => Kernel::load(&options)?,
    };
    println!("{:28} {:7.1} ms", "object and maps", began.elapsed().as_secs_f64() * 1e3);
    let mut refused = false;
    for name in kernel.programs() {
        let began = Instant::now();
        let result = kernel.verify_one(&name);
        let took = began.elapsed().as_secs_f64() * 1e3;
        match result {
            Ok(instructions) => {
                let followed =
                    instructions.map_or_else(String::new, |n| format!("{n:8} instructions"));
                println!("{name:28} {took:7.1} ms {followed}");
            }
            Err(error) => {
                refused = true;
                println!("{name:28} {took:7.1} ms refused: {error}");
                if let Some(lines) = log_lines {
                    print_log(&error, lines);
                }
            }
        }
    }
    if refused { Err("a program was refused".into()) } else { Ok(()) }
}

fn print_log(error: &KernelError, lines: usize) {
    if let KernelError::Program {
        source: aya::programs::ProgramError::LoadError { verifier_log, .. },
        ..
    } = error
    {
        let log = verifier_log.to_string();
        let all: Vec<&str> = log.lines().collect();
        for line in &all[all.len().saturating_sub(lines)..] {
            println!("    {line}");
        }
    }
}
