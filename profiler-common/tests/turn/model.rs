//! What turns and ledgers ought to be: the overlap of what the thread did with its turns.

use profiler_common::cause;
use profiler_common::turn::{SYSCALLS, SyscallUse};

use crate::history::{Boundary, Doing, History};

/// A turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) ledger: [u64; cause::COUNT],
    /// In the order in which they were first slept in.
    pub(crate) syscalls: Vec<SyscallUse>,
    /// Sleeps in other system calls than those.
    pub(crate) other_sleeps: u32,
    pub(crate) exact: bool,
    pub(crate) at_attach: bool,
    pub(crate) exited: bool,
}

/// What is to be reported of a history.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(crate) turns: Vec<Turn>,
    pub(crate) parked_ns: u64,
    /// Beginning of the turn or park that was seen first.
    pub(crate) since: Option<u64>,
    /// Beginning of the turn that is still open.
    pub(crate) open: Option<u64>,
}

impl Expected {
    pub(crate) fn of(history: &History) -> Self {
        let mut expected = Self::default();
        let mut attached = false;
        for boundary in &history.boundaries {
            match *boundary {
                Boundary::Attached { start } => {
                    attached = true;
                    expected.open_at(start);
                    continue;
                }
                Boundary::Polled { at, armed_since } => {
                    expected.end(history, at, armed_since, attached, false);
                    expected.open_at(at);
                }
                Boundary::Parked { entered, out, wake, armed_since } => {
                    // If the entry was seen, and every one since, the turn before ended there.
                    let from = match entered {
                        Some(entered) if (1..=entered).contains(&armed_since) => entered,
                        _ => {
                            expected.end(history, out, armed_since, attached, false);
                            out
                        }
                    };
                    expected.since.get_or_insert(from);
                    expected.parked_ns += wake - from;
                    expected.open_at(wake);
                }
                Boundary::WasParked { since, wake } => {
                    expected.since = Some(since);
                    expected.parked_ns += wake - since;
                    expected.open_at(wake);
                }
                Boundary::Exited { at, armed_since } => {
                    expected.end(history, at, armed_since, attached, true);
                    expected.open = None;
                }
            }
            attached = false;
        }
        expected
    }

    fn open_at(&mut self, start: u64) {
        self.since.get_or_insert(start);
        self.open = Some(start);
    }

    fn end(&mut self, history: &History, end: u64, armed: u64, at_attach: bool, exited: bool) {
        let Some(start) = self.open else { return };
        let mut turn = Turn {
            start,
            end,
            ledger: [0; cause::COUNT],
            syscalls: Vec::new(),
            other_sleeps: 0,
            exact: armed != 0 && armed <= start,
            at_attach,
            exited,
        };
        let inside = history.truth.iter().filter(|s| s.from >= start && s.to <= end);
        for stretch in inside {
            let ns = stretch.to - stretch.from;
            match stretch.doing {
                Doing::Running => turn.ledger[cause::CPU as usize] += ns,
                Doing::Starved => turn.ledger[cause::RUNQUEUE as usize] += ns,
                Doing::Asleep { cause, nr } => {
                    turn.ledger[cause as usize] += ns;
                    if nr >= 0 {
                        turn.slept(nr, ns);
                    }
                }
                // A sleep of no length at the boundary itself.
                Doing::Parked => assert_eq!(ns, 0, "parked inside a turn"),
            }
        }
        self.turns.push(turn);
    }
}

impl Turn {
    fn slept(&mut self, nr: i32, ns: u64) {
        if let Some(known) = self.syscalls.iter_mut().find(|known| known.nr == nr) {
            known.total_ns += ns;
            known.max_ns = known.max_ns.max(ns);
            known.count += 1;
        } else if self.syscalls.len() < SYSCALLS {
            self.syscalls.push(SyscallUse { total_ns: ns, max_ns: ns, nr, count: 1 });
        } else {
            self.other_sleeps += 1;
        }
    }
}
