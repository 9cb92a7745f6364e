//! What a stalled thread waits for at the moment, and for whom: asked while it lasts.
//!
//! The kernel side tells of waits that have ended. One that lasts can be looked at instead: nothing
//! about it changes until it ends, and whether it ended meanwhile is seen from how often the thread
//! has gone to sleep.

use std::sync::Arc;

use profiler_common::arch::{UserRegs, is_futex};
use profiler_common::waits::{FUTEX_WORDS, Resource};

use super::found::read_stack;
use super::kernel_frames;
use super::pipeline::{Pipeline, Walked, syscall_name};
use crate::attach::{blocked, proc};
use crate::blame::{Holder, owner_words, resource_text, waiting};
use crate::symbolize::Frame;

/// Threads that are followed from one that waits to one that it waits for.
const MOST_FOLLOWED: usize = 16;

/// A sleep that goes on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sleep {
    /// Process.
    pub(super) pid: u32,
    /// Thread.
    pub(super) tid: u32,
    /// The registers that it went to sleep with.
    pub(super) regs: UserRegs,
    /// The stack in its turn's table that sleeps.
    pub(super) stack: u32,
    /// Now (`CLOCK_MONOTONIC`).
    pub(super) now_ns: u64,
    /// How long it has been asleep.
    pub(super) slept_ns: u64,
}

/// What was found out about a sleep that goes on.
#[derive(Debug)]
pub(super) struct Asked {
    /// The stack in its turn's table that sleeps.
    pub(super) stack: u32,
    /// The system call.
    pub(super) nr: i32,
    /// How long it has been asleep.
    pub(super) slept_ns: u64,
    /// What the call, or the fault, waits for.
    pub(super) resource: Option<String>,
    /// Who holds what it waits for.
    pub(super) holder: Option<Holder>,
    /// Who may hold it, where that is not known.
    pub(super) candidates: Vec<Holder>,
    /// Threads of which each waits for the next and the last for the first; none if there is no such
    /// circle.
    pub(super) circle: Vec<(u32, Arc<str>)>,
}

/// A thread on the way from one that waits to one that it waits for.
struct Member {
    tid: u32,
    frames: Vec<Frame>,
    /// Who has what it waits for.
    owner: Option<u32>,
    /// Whether it gives up waiting after a time.
    gives_up: bool,
    /// How often it had gone to sleep.
    sleeps: u64,
}

impl Pipeline {
    /// Asks what a sleep is for; `None` if it has ended. `regs_of` gives the registers that another
    /// thread of the process last went to sleep with, `fault` what the kernel side knows of a page fault.
    pub(super) fn ask(
        &mut self,
        sleep: &Sleep,
        regs_of: &dyn Fn(u32) -> Option<UserRegs>,
        fault: Option<&Resource>,
    ) -> Option<Asked> {
        let Sleep { pid, tid, regs, .. } = *sleep;
        let before = blocked::sleeps(pid, tid)?;
        if !blocked::is_blocked(pid, tid, &regs) {
            return None;
        }
        let nr = i32::try_from(regs.syscall()).unwrap_or(-1);
        let resource = if is_futex(regs.syscall()) {
            None
        } else if nr < 0 {
            fault.and_then(|fault| resource_text(fault, ""))
        } else {
            let call = syscall_name(nr);
            blocked::resource(pid, tid, &regs, call, sleep.now_ns, sleep.slept_ns)
                .and_then(|resource| resource_text(&resource, call))
        };
        let (holder, circle) = self.who_is_waited_for(sleep, regs_of);
        let candidates = if is_futex(regs.syscall()) && holder.is_none() {
            self.candidates(sleep, regs_of)
        } else {
            Vec::new()
        };
        // Whatever was found belongs to this sleep only if it still lasts.
        (blocked::sleeps(pid, tid) == Some(before)).then_some(Asked {
            stack: sleep.stack,
            nr,
            slept_ns: sleep.slept_ns,
            resource,
            holder,
            candidates,
            circle,
        })
    }

    fn who_is_waited_for(
        &mut self,
        sleep: &Sleep,
        regs_of: &dyn Fn(u32) -> Option<UserRegs>,
    ) -> (Option<Holder>, Vec<(u32, Arc<str>)>) {
        let pid = sleep.pid;
        let mut members: Vec<Member> = Vec::new();
        let mut circle = 0..0;
        let mut next = Some((sleep.tid, sleep.regs));
        while let Some((tid, regs)) = next.take()
            && members.len() < MOST_FOLLOWED
            && let Some(member) = self.member(pid, tid, &regs)
        {
            let owner = member.owner;
            members.push(member);
            let known = members.iter().position(|member| Some(member.tid) == owner);
            if let Some(at) = known {
                circle = at..members.len();
            } else {
                next = owner.and_then(|owner| Some((owner, regs_of(owner)?)));
            }
        }
        let Some(owner) = members.first().and_then(|first| first.owner) else {
            return (None, Vec::new());
        };
        let frames = members
            .iter()
            .find(|member| member.tid == owner && owner != sleep.tid)
            .map(|member| member.frames.clone())
            .unwrap_or_default();
        let thread = self.processes.thread_name(pid, owner);
        let holder = Holder { tid: owner, thread, asleep_in: None, frames };
        // A circle stands only if all of it was there at the same time and nobody will leave it.
        let stands = |member: &Member| {
            !member.gives_up && blocked::sleeps(pid, member.tid) == Some(member.sleeps)
        };
        let circle =
            if members[circle.clone()].iter().all(stands) { &members[circle] } else { &[] };
        let named = |member: &Member| (member.tid, self.processes.thread_name(pid, member.tid));
        let circle = circle.iter().map(named).collect();
        (Some(holder), circle)
    }

    /// The frames of a thread that is asleep all the time while they are read.
    pub(super) fn frames_while_asleep(
        &mut self,
        pid: u32,
        tid: u32,
        regs: &UserRegs,
    ) -> Option<Vec<Frame>> {
        let before = blocked::sleeps(pid, tid)?;
        let frames = self.frames_of_sleeping(pid, tid, regs);
        (blocked::sleeps(pid, tid) == Some(before)).then_some(frames)
    }

    /// A thread that is asleep: its stack, and whom it waits for; `None` if it is not asleep.
    fn member(&mut self, pid: u32, tid: u32, regs: &UserRegs) -> Option<Member> {
        let sleeps = blocked::sleeps(pid, tid)?;
        if !blocked::is_blocked(pid, tid, regs) {
            return None;
        }
        let frames = self.frames_of_sleeping(pid, tid, regs);
        let futex = is_futex(regs.syscall());
        let memory =
            if futex { blocked::memory(pid, regs.arg0(), FUTEX_WORDS * 4) } else { Vec::new() };
        let words: Vec<u32> =
            memory.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let owner = if futex { owner_words(waiting(&frames), &words) } else { None };
        let owner = owner.and_then(|own| self.processes.host_thread(pid, own));
        (blocked::sleeps(pid, tid) == Some(sleeps)).then_some(Member {
            tid,
            frames,
            owner,
            // The fourth argument is the time after which it does.
            gives_up: futex && regs.args()[3] != 0,
            sleeps,
        })
    }

    /// The frames of a thread that is asleep, the kernel's last.
    fn frames_of_sleeping(&mut self, pid: u32, tid: u32, regs: &UserRegs) -> Vec<Frame> {
        let user = read_stack(self, pid, regs);
        let stack = Walked { user, kernel: Vec::new(), python: self.python_of_sleeping(pid, tid) };
        let kernel = kernel_frames::from_names(&proc::kernel_stack(pid, tid));
        self.frames_of(pid, None, stack, &kernel)
    }
}
