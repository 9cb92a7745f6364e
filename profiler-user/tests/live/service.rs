//! `fixtures/python/service.py` under watch: its endpoints, what it knows of its own calls, and which
//! stalls were reported meanwhile.

use std::net::SocketAddr;

use serde::Deserialize;

use crate::fixtures::Folder;
use crate::load::{get_ok, loopback};
use crate::process::{Process, unix_ns};
use crate::pythons::Python;
use crate::report::{Report, Stall};
use crate::truth::lies_in;
use crate::upstream::Upstream;

/// One call that kept a thread busy, as the program that made it measured it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Call {
    pub(crate) row: String,
    pub(crate) start_unix_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) tid: u64,
    pub(crate) file: String,
    pub(crate) line: u64,
    pub(crate) function: String,
}

impl Call {
    /// Whether it was made in that stall.
    pub(crate) fn is_in(&self, stall: &Stall) -> bool {
        lies_in(self.tid, self.start_unix_ns, self.duration_ns, stall)
    }

    /// Whether a place in the source is its own.
    pub(crate) fn is_at(&self, file: Option<&str>, line: Option<u64>) -> bool {
        file == Some(self.file.as_str()) && line == Some(self.line)
    }
}

/// A running service.
pub(crate) struct Service {
    pub(crate) process: Process,
    pub(crate) tid: u32,
    pub(crate) cpus: u64,
    address: SocketAddr,
    _folder: Option<Folder>,
}

/// When the requests of one row were in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    from: u64,
    to: u64,
}

impl Service {
    /// Starts it and lets it make its pools and its data.
    pub(crate) fn start(python: &Python, upstream: Upstream, more: &[&str]) -> Self {
        let address = upstream.address();
        let arguments = [&["--upstream", &address][..], more].concat();
        let (mut command, folder) = python.run("service.py", &arguments);
        let process = Process::start(&mut command);
        let started = process
            .wait_for_json(crate::gate::patience(20), |json| Some(json.clone()))
            .unwrap_or_else(|| panic!("{python:?}: {}", process.stderr()));
        let number = |key: &str| started[key].as_u64().expect("a number");
        let service = Self {
            tid: u32::try_from(number("tid")).expect("a thread"),
            cpus: number("cpus"),
            address: loopback(number("port")),
            process,
            _folder: folder,
        };
        service.ask("prepare", 1);
        service
    }

    /// So many clients at once, one request each.
    pub(crate) fn ask(&self, endpoint: &str, clients: usize) -> Span {
        let from = unix_ns();
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| get_ok(self.address, &format!("/{endpoint}")));
            }
        });
        // The turn goes on for a moment after the answer was sent.
        std::thread::sleep(std::time::Duration::from_millis(30));
        Span { from, to: unix_ns() }
    }

    /// What it knows of the calls of a row.
    pub(crate) fn calls(&self, row: &str, span: Span) -> Vec<Call> {
        let lines = self.process.lines();
        let calls = lines.iter().filter_map(|line| serde_json::from_str::<Call>(&line.text).ok());
        // A row may have calls of several kinds: `k_burn`, `k_nap`.
        let of_row = |call: &Call| call.row.split('_').next() == row.split('_').next();
        calls.filter(|call| of_row(call) && span.has(call.start_unix_ns)).collect()
    }
}

impl Span {
    fn has(self, unix_ns: u64) -> bool {
        (self.from..self.to).contains(&unix_ns)
    }

    /// Stalls that began in it.
    pub(crate) fn stalls(self, report: &Report) -> Vec<&Stall> {
        let begun = |stall: &&Stall| !stall.ongoing && self.has(stall.start_unix_ns);
        report.stalls.iter().filter(begun).collect()
    }
}
