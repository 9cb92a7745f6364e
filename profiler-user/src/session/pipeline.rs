//! Events to stalls: unwinding as captures arrive, names and verdict when a turn ends.
//!
//! It knows nothing of the kernel programs: a recorded stream goes through it as a live one does.

use std::collections::{BTreeMap, HashMap};

use profiler_common::record::{FLAG_AT_ATTACH, FLAG_EXACT, FLAG_UNPROVEN};

use crate::attach::NotedWaits;
use crate::blame::{Runtime, Stall};
use crate::events::{CaptureEvent, Clock, Event, PythonEvent, TurnEvent};
use crate::runtimes::{NamedPythonStack, PythonFrames};
use crate::session::asked::Asked;
use crate::session::nested::Homes;
use crate::session::not_stalls::NotStalls;
use crate::session::processes::Processes;
use crate::stalls::{Assembler, Captured, Cause, LeafUse, RawStall, TurnWaits, WaitNotes};
use crate::symbolize::Symbolizer;
use crate::unwind::{StackEnd, Unwinder, UnwoundStack};

/// Stalls kept of a thread until it proves to be a loop, which takes three polls.
const UNPROVEN_MAX: usize = 8;

/// A stack without names yet.
#[derive(Debug, Clone)]
pub struct Walked {
    /// The user part.
    pub user: UnwoundStack,
    /// Kernel frames, innermost first.
    pub kernel: Vec<u64>,
    /// The interpreter's frames, with names already: they may be gone soon.
    pub python: Option<NamedPythonStack>,
}

/// Everything between the events and the report.
#[derive(Debug)]
pub struct Pipeline {
    pub(super) clock: Clock,
    pub(super) threshold_ns: u64,
    assembler: Assembler<Walked>,
    waits: WaitNotes<Walked>,
    /// Stalls of threads that have not proved to be loops, by thread.
    unproven: HashMap<u32, Vec<Stall>>,
    /// Where processes with tasks begin to poll one; none where that is not known.
    pub(super) task_polls: BTreeMap<u32, Vec<u64>>,
    /// What threads slept in when stallscope attached, until that turn has ended.
    found_asleep: HashMap<u32, (Cause, Option<i32>, Walked)>,
    /// Interpreter's frames whose capture comes next, by thread.
    pub(super) python_frames: HashMap<u32, Box<PythonEvent>>,
    /// Names of the interpreter's frames.
    pub python: PythonFrames,
    pub(super) unwinder: Unwinder,
    /// Names.
    pub symbolizer: Symbolizer,
    /// Processes and threads.
    pub processes: Processes,
    /// Stacks that do not reach their thread's start.
    pub truncated_stacks: u64,
    /// Where loops park.
    pub(super) homes: Homes,
    /// Long turns that were not reported.
    pub(super) not_stalls: NotStalls,
}

impl Pipeline {
    /// A pipeline that has seen nothing.
    #[must_use]
    pub fn new(
        clock: Clock,
        threshold_ns: u64,
        unwinder: Unwinder,
        symbolizer: Symbolizer,
    ) -> Self {
        Self {
            clock,
            assembler: Assembler::default(),
            waits: WaitNotes::default(),
            unproven: HashMap::new(),
            task_polls: BTreeMap::new(),
            found_asleep: HashMap::new(),
            python_frames: HashMap::new(),
            python: PythonFrames::default(),
            unwinder,
            symbolizer,
            processes: Processes::default(),
            truncated_stacks: 0,
            homes: Homes::default(),
            not_stalls: NotStalls::default(),
            threshold_ns,
        }
    }

    /// Takes an event. Returns the stall that it completes.
    pub fn event(&mut self, event: &Event) -> Option<Stall> {
        match event {
            Event::Python(python) => {
                self.python_frames.insert(python.tid, python.clone());
                None
            }
            Event::Capture(capture) => {
                let python = self.python_frames.remove(&capture.tid);
                let python = capture.python.clone().or(python);
                let captured = self.captured(capture, python);
                self.assembler.capture(capture.tid, capture.turn, captured);
                None
            }
            Event::Resource(resource) => {
                self.waits.resource(resource);
                None
            }
            Event::Waits(waits) => {
                self.waits.waits(waits);
                None
            }
            Event::Holder { waiter, capture } => {
                let python = self.python_frames.remove(&capture.tid);
                let stack = self.captured(capture, python).stack;
                self.waits.holder(*waiter, capture.turn, capture.tid, stack);
                None
            }
            Event::Leaf(leaf) => {
                self.assembler.leaf(
                    leaf.tid,
                    leaf.turn,
                    leaf.id,
                    LeafUse { ip: leaf.ip, instr: leaf.instr, weight_ns: leaf.weight_ns },
                );
                None
            }
            Event::Turn(turn) => {
                let stall = self.ended(turn)?;
                if turn.flags & FLAG_UNPROVEN == 0 {
                    return Some(stall);
                }
                let held = self.unproven.entry(turn.tid).or_default();
                if held.len() < UNPROVEN_MAX {
                    held.push(stall);
                }
                None
            }
            Event::Exit { tid, .. } => {
                self.assembler.forget(*tid);
                self.waits.forget(*tid);
                self.unproven.remove(tid);
                self.homes.forget(*tid);
                None
            }
            _ => None,
        }
    }

    /// Takes note of where a process's runtime begins to poll a task. If it has tasks and that is not
    /// known, what happens between two parks may be many polls.
    pub fn task_polls_found(&mut self, pid: u32, polls: Vec<u64>) {
        let runtime = self.processes.get(pid, &mut self.symbolizer).runtime.runtime;
        if runtime == Runtime::Tokio {
            self.task_polls.insert(pid, polls);
        } else {
            self.task_polls.remove(&pid);
        }
    }

    /// Processes with tasks whose polls are not seen.
    pub fn unseen_polls(&self) -> impl Iterator<Item = u32> + '_ {
        self.task_polls.iter().filter(|(_, polls)| polls.is_empty()).map(|(&pid, _)| pid)
    }

    /// A thread was found asleep in a turn: that turn's stack, which the kernel side has not.
    pub(super) fn slept_at_attach(&mut self, tid: u32, stack: (Cause, Option<i32>, Walked)) {
        self.found_asleep.insert(tid, stack);
    }

    /// Stalls of a thread from the time before it proved to be a loop.
    pub fn proved(&mut self, tid: u32) -> Vec<Stall> {
        self.unproven.remove(&tid).unwrap_or_default()
    }

    fn ended(&mut self, event: &TurnEvent) -> Option<Stall> {
        let waits = self.waits.take(event.tid, event.turn.number);
        let unseen = self.task_polls.get(&event.tgid).is_some_and(Vec::is_empty);
        let unseen = if unseen { FLAG_EXACT } else { 0 };
        let flags = event.flags & !unseen;
        let known = flags & (FLAG_EXACT | FLAG_AT_ATTACH) != 0;
        if !known && event.turn.longest_ns < self.threshold_ns {
            // Polls were not seen, and no single stretch is a stall: this may be many short turns.
            self.not_stalls
                .add_ambiguous(event.tid, event.end_ns.saturating_sub(event.turn.start_ns));
            self.assembler.forget(event.tid);
            return None;
        }
        let mut raw = self.assembler.ended(event.tgid, event.tid, event.end_ns, flags, &event.turn);
        if let Some(found) = self.found_asleep.remove(&event.tid)
            && raw.at_attach
        {
            add_first_sleep(&mut raw, found);
        }
        self.stall(raw, &waits, None, &[])
    }

    /// A stall from the kernel side's own state: one that still lasts, or that is known here, though not
    /// there, to have ended.
    pub(super) fn stall_of_state(
        &mut self,
        event: &TurnEvent,
        waiting: &[CaptureEvent],
        ongoing: bool,
        asked: Option<&Asked>,
    ) -> Option<Stall> {
        let waiting =
            waiting.iter().map(|capture| self.captured(capture, capture.python.clone())).collect();
        let mut raw = self.assembler.ongoing(
            event.tgid,
            event.tid,
            event.end_ns,
            event.flags,
            &event.turn,
            waiting,
        );
        raw.ongoing = ongoing;
        if let Some(found) = self.found_asleep.get(&event.tid).filter(|_| raw.at_attach) {
            add_first_sleep(&mut raw, found.clone());
        }
        let waits = if ongoing {
            TurnWaits::default()
        } else {
            self.waits.take(event.tid, event.turn.number)
        };
        self.stall(raw, &waits, asked, &[])
    }

    /// Notes what a thread waited for in a turn, and who made it wait, where the kernel side has not sent
    /// that.
    pub(super) fn noted(&mut self, tid: u32, turn: u64, noted: &NotedWaits) {
        let holder = noted.holder.as_deref().and_then(|copy| CaptureEvent::waiting(copy).ok());
        let holder = holder.map(|capture| (capture.tid, self.captured(&capture, None).stack));
        let resources = noted.resources.clone();
        self.waits.set(
            tid,
            turn,
            TurnWaits { resources, waits: Some(noted.waits.clone()), holder },
        );
    }

    fn captured(
        &mut self,
        capture: &CaptureEvent,
        python: Option<Box<PythonEvent>>,
    ) -> Captured<Walked> {
        let python = python
            .filter(|python| python.turn == capture.turn && python.id == capture.id)
            .and_then(|python| {
                let process = self.processes.get(capture.tgid, &mut self.symbolizer);
                Some(self.python.name(process.python.as_ref()?, &python))
            });
        let mut user = self.walk(capture.tgid, &capture.regs, &capture.stack);
        if user.end != StackEnd::Complete {
            self.truncated_stacks += 1;
        }
        let asleep_in_call = capture.nr >= 0 && Cause::from_raw(capture.cause) != Cause::Cpu;
        if asleep_in_call && let Some(leaf) = user.frames.first_mut() {
            // Like a return address: the instruction pointer stands behind the system call.
            leaf.lookup = leaf.ip.wrapping_sub(1);
        }
        Captured {
            id: capture.id,
            cause: Cause::from_raw(capture.cause),
            nr: (capture.nr >= 0).then_some(capture.nr),
            total_ns: capture.total_ns,
            max_ns: 0,
            count: capture.count,
            leaves: Vec::new(),
            stack: Walked { user, kernel: capture.kernel.clone(), python },
        }
    }
}

/// Adds the sleep in which a thread was found when stallscope attached: it accounts for what the
/// captures of the same cause do not.
fn add_first_sleep(raw: &mut RawStall<Walked>, found: (Cause, Option<i32>, Walked)) {
    let (cause, nr, stack) = found;
    let captured: u64 = raw.stacks.iter().filter(|s| s.cause == cause).map(|s| s.total_ns).sum();
    let total_ns = raw.ledger.get(cause).saturating_sub(captured);
    raw.stacks.push(Captured {
        id: u32::MAX,
        cause,
        nr,
        total_ns,
        max_ns: total_ns,
        count: 1,
        leaves: Vec::new(),
        stack,
    });
}

/// The name of a system call of this architecture.
#[must_use]
pub fn syscall_name(nr: i32) -> &'static str {
    usize::try_from(nr)
        .ok()
        .and_then(syscalls::Sysno::new)
        .map_or("unknown system call", |call| call.name())
}
