//! Looks at tokio's blocking pool from outside: which of its threads work, and at what.
//!
//! Its threads are told by their stacks, which are read while they sleep. One that has not moved since
//! the last look is not looked at again, and one that waits for work where it waited before costs a
//! comparison: a pool that is idle, or stuck, costs next to nothing.

use std::collections::HashMap;

use profiler_common::arch::{UserRegs, is_futex};
use profiler_common::turn::Phase;

use super::found::read_stack;
use super::ongoing::last_sleep;
use super::pipeline::Pipeline;
use super::watcher::Watcher;
use crate::aggregate::{BusyThread, PoolLook};
use crate::attach::{blocked, proc};
use crate::runtimes::{BLOCKING_THREADS, BlockingUse, blocking_use};
use crate::stalls::Cause;
use crate::unwind::StackEnd;

/// What is known of threads that are no loops.
#[derive(Debug, Default)]
pub(super) struct BlockingThreads(HashMap<u32, Seen>);

/// A thread as of the last look.
#[derive(Debug)]
struct Seen {
    /// The version of its state: while that stays, it has not moved. `None`: it never is one of the pool.
    version: Option<u64>,
    /// Where it waits for work.
    idle_at: Option<UserRegs>,
    does: Does,
}

#[derive(Debug, Clone)]
enum Does {
    /// It is no thread of the pool, as far as is known.
    Else,
    Waits,
    Works(BusyThread),
}

impl BlockingThreads {
    /// A thread has ended; another one may get its number.
    pub(super) fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }
}

impl Watcher<'_> {
    /// The threads of a process's blocking pool at this moment; `None` if it has none. Several runtimes of
    /// one process count as one pool, whose limit then is not known.
    pub(super) fn look_at_blocking(&mut self, pid: u32) -> Option<PoolLook> {
        let (mut threads, mut busy) = (0, Vec::new());
        for tid in proc::threads(pid) {
            match self.what_does(pid, tid) {
                Does::Else => continue,
                Does::Waits => {}
                Does::Works(thread) => busy.push(thread),
            }
            threads += 1;
        }
        (threads > 0).then(|| PoolLook {
            threads,
            busy,
            queued: None,
            taken: None,
            limit: None,
            // A pool grows to its limit and stays there. Another limit than the default one does not
            // show.
            default_limit: (threads >= BLOCKING_THREADS).then_some(BLOCKING_THREADS),
        })
    }

    fn what_does(&mut self, pid: u32, tid: u32) -> Does {
        let known = self.blocking.0.get(&tid);
        if known.is_some_and(|seen| seen.version.is_none()) {
            return Does::Else;
        }
        let Some(state) = self.kernel.thread(tid) else { return Does::Else };
        if self.loops.contains_key(&tid) && state.phase() != Phase::Unknown {
            return Does::Else;
        }
        if let Some(seen) = known.filter(|seen| seen.version == Some(state.version)) {
            return seen.does.clone();
        }
        let mut idle_at = known.and_then(|seen| seen.idle_at);
        let before = known.map_or(Does::Else, |seen| seen.does.clone());
        let regs = last_sleep(&self.kernel, &self.found_asleep, tid);
        let asleep = regs.filter(|regs| blocked::is_blocked(pid, tid, regs));
        let mut version = Some(state.version);
        let does = match asleep {
            Some(regs) if idle_at.is_some_and(|at| same_wait(&at, &regs)) => Does::Waits,
            Some(regs) => {
                // If it moves meanwhile, the next look is as good.
                let Some(told) = self.pipeline.sleeps_in(pid, tid, &regs) else { return before };
                if told.never {
                    version = None;
                } else if matches!(told.does, Does::Waits) {
                    idle_at = Some(regs);
                }
                told.does
            }
            // Nobody knows at what.
            None if !matches!(before, Does::Else) => {
                Does::Works(BusyThread { cause: Cause::Cpu, frames: Vec::new() })
            }
            None => return Does::Else,
        };
        self.blocking.0.insert(tid, Seen { version, idle_at, does: does.clone() });
        does
    }
}

/// What the stack of a thread tells.
struct Told {
    does: Does,
    /// Whether it is no thread of the pool, and can't become one.
    never: bool,
}

impl Pipeline {
    /// What a thread does that is asleep all the while; `None` if it is not.
    fn sleeps_in(&mut self, pid: u32, tid: u32, regs: &UserRegs) -> Option<Told> {
        let before = blocked::sleeps(pid, tid)?;
        let user = read_stack(self, pid, regs);
        let told = blocking_use(&self.runtime_frames(pid, &user));
        let does = match told {
            BlockingUse::Outside | BlockingUse::Unclear => Does::Else,
            BlockingUse::Waits => Does::Waits,
            BlockingUse::Works => {
                let cause = match regs.syscall() {
                    nr if nr < 0 => Cause::Fault,
                    nr if is_futex(nr) => Cause::Lock,
                    _ => Cause::Syscall,
                };
                Does::Works(BusyThread { cause, frames: self.user_frames(pid, &user) })
            }
        };
        let never = told == BlockingUse::Outside && user.end == StackEnd::Complete;
        (blocked::sleeps(pid, tid) == Some(before)).then_some(Told { does, never })
    }
}

/// Whether two sleeps of a thread are in the same call of the same code for the same thing.
fn same_wait(one: &UserRegs, other: &UserRegs) -> bool {
    let place = |regs: &UserRegs| (regs.syscall(), regs.ip(), regs.sp(), regs.arg0());
    place(one) == place(other)
}
