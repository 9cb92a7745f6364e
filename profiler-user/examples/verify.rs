//! What the verifier of the running kernel makes of each program: how long it took, how many
//! instructions it followed, or why it refuses. For work on the kernel programs, under any kernel:
//! `cargo xtask kernels 5.10 --command target/release/examples/verify`. With a number it prints that
//! many of the last lines that the verifier said of a program that it refused.

#![expect(clippy::print_stdout, reason = "this is its output")]

use std::time::Instant;

use stallscope::attach::{Kernel, KernelError, KernelOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let log_lines = std::env::args().nth(1).and_then(|lines| lines.parse().ok());
    let options = KernelOptions {
        threshold_ns: 10_000_000,
        sample_rate: 1000,
        stack_bytes: 36 << 10,
        max_loops: 32,
        max_threads: 4096,
        follow_forks: true,
    };
    let began = Instant::now();
    let mut kernel = Kernel::load(&options)?;
    println!("{:28} {:7.1} ms", "object and maps", began.elapsed().as_secs_f64() * 1e3);
    let mut refused = false;
    for name in Kernel::SCHEDULER_PROGRAMS {
        let began = Instant::now();
        let result = kernel.verify_one(name);
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
