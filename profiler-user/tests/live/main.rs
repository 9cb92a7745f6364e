//! Live tests: real, unmodified programs, watched from outside by the `stallscope` binary.
//!
//! They need root, and skip visibly without it. They share the CPU, so they take turns by
//! themselves ([`gate`]); `cargo test` needs no flags. What each file protects:
//!
//! | file | protects |
//! |---|---|
//! | `core.rs` | the least that must work on every kernel; runs inside the kernel matrix's guests too |
//! | `tokio.rs` | a release-built axum service: every stall, its cause, its line, its duration |
//! | `tasks.rs` | tokio of three ages, four kinds of runtime, with and without symbols: which task stalled |
//! | `pools.rs` | who blocks a task from outside of it: a full blocking pool, rayon, a blocking client, a slow file |
//! | `executors.rs` | async-std, async-executor and a loop written by hand |
//! | `redis.rs` | Debian's redis-server, untouched: causes and function names without debug information |
//! | `python.rs` | CPython, every version: lines, tasks, the holder of the interpreter's lock |
//! | `fastapi.rs` | FastAPI under load on asyncio and uvloop; profilers that come and go |
//! | `loops.rs` | Python on trio and Twisted, and inside of a C program |
//! | `peers.rs` | Python's frames are those that py-spy sees |
//! | `scenarios.rs` | asyncio's ways to stall and their harmless look-alikes, each on every CPython |
//! | `runtimes.rs` | nginx, CPython's asyncio, Node: loops found and stalls measured |
//! | `waits.rs` | what was waited for, and who made it wait: one row for each kind |
//! | `words.rs` | what is waited for in Python's words, and who ended the wait |
//! | `inside.rs` | what the kernel did for a thread, or waited for: forks, faults, slow files |
//! | `lasting.rs` | stalls that still last, deadlocks among them |
//! | `outside.rs` | who kept a process from running: hogs, quotas, signals, debuggers, the freezer |
//! | `quiet.rs` | healthy programs: nothing is reported |
//! | `lifecycle.rs` | targets and profilers that come and go; exit codes |
//! | `stdout.rs` | standard output that is closed, full or goes nowhere |
//! | `recording.rs` | a recording of a real session, also of a killed profiler |
//!
//! The rest is the harness:
//!
//! | file | does |
//! |---|---|
//! | `gate.rs` | privileges, turn-taking, visible skips, slower machines |
//! | `group.rs` | control groups of a test's own |
//! | `swap.rs` | swap of a test's own |
//! | `fixtures.rs` | builds the programs under `tests/fixtures` and starts them |
//! | `pythons.rs` | the interpreters that there are |
//! | `process.rs` | child processes that never outlive their test, and their output |
//! | `stallscope.rs` | starts the binary, stops it, collects its report |
//! | `report.rs` | the JSON report with its invariants checked |
//! | `truth.rs` | what a program says about its own stalls, matched with what was reported |
//! | `service.rs` | the Python service with an endpoint for each way to stall, and what it knows |
//! | `upstream.rs` | a server that answers slowly |
//! | `load.rs` | a small HTTP client and many of them at once |
//!
//! Environment: `STALLSCOPE_BIN` (the binary to test), `STALLSCOPE_FIXTURES` (fixtures built
//! before, nothing is compiled), `STALLSCOPE_SLOW=N` (time-outs times N), `STALLSCOPE_NO_SKIP=1`
//! (what would be skipped fails), `STALLSCOPE_PYTHON_ROOTS` (root directories with other
//! interpreters), `STALLSCOPE_PYTHONS` (interpreters of virtual environments with packages),
//! `STALLSCOPE_ROUNDS` (how often a profiler comes and goes).

mod fixtures;
mod gate;
mod group;
mod load;
mod process;
mod pythons;
mod report;
mod service;
mod stallscope;
mod swap;
mod truth;
mod upstream;

mod core;
mod executors;
mod fastapi;
mod gil;
mod inside;
mod lasting;
mod lifecycle;
mod loops;
mod nested;
mod outside;
mod peers;
mod pools;
mod python;
mod quiet;
mod recording;
mod redis;
mod runtimes;
mod scenarios;
mod stdout;
mod tasks;
mod tokio;
mod waits;
mod words;
