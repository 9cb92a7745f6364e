//! Where loops park, and waits for other epoll instances or rings inside of their turns.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use profiler_common::arch::{UserRegs, park_class};
use profiler_common::config::{EPOLL_KEY, FUTEX_LOCK, FUTEX_PARK, FutexKey};
use profiler_common::turn::{PARK_EPOLL, Phase};

use super::found::read_stack;
use super::not_stalls::park_in;
use super::ongoing::last_sleep;
use super::pipeline::{Pipeline, Walked};
use super::watcher::Watcher;
use crate::attach::{blocked, proc};
use crate::blame::{Runtime, Stack};
use crate::events::CaptureEvent;
use crate::runtimes::{
    Call, FutexUse, NamedPythonStack, ProcessRuntime, Site, futex_use, is_c_library, is_inside,
    is_nested, runs_a_loop,
};
use crate::stalls::{Captured, Cause, RawStall};
use crate::unwind::UnwoundStack;

/// How long a wait is taken for one inside of a turn without asking again: its descriptor may become
/// another's.
const ANSWER_HOLDS: Duration = Duration::from_secs(1);
/// Loops that are looked at in one period.
const LOOKS: usize = 8;
/// Calls next to the poll among which the loop is looked for by name.
const NEAR: usize = 4;

/// Where a loop parks.
#[derive(Debug, Clone)]
struct Home {
    pid: u32,
    /// Which epoll instance or ring: [`UserRegs::park_place`].
    place: u32,
    /// The stack pointer in the call.
    sp: u64,
    /// From the poll on.
    calls: Vec<Call>,
    /// The interpreter's frames, if it parks in Python.
    python: Vec<Site>,
}

/// Where all loops park, by thread.
#[derive(Debug, Default)]
pub(super) struct Homes(HashMap<u32, Home>);

impl Home {
    fn has_inside(&self, calls: &[Call], python: &[Site]) -> bool {
        is_inside(&self.python, python) || is_nested(&self.calls, calls)
    }

    /// Whether it is the outer one of two, as far as that can be told: a loop's poll may need more of the
    /// stack than all that its turn calls.
    fn is_outside_of(&self, other: &Self) -> bool {
        self.has_inside(&other.calls, &other.python)
            || (self.sp > other.sp && !other.has_inside(&self.calls, &self.python))
    }
}

impl Homes {
    pub(super) fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }
}

impl Pipeline {
    /// Takes note of where a thread parks that sleeps with these registers; whether that is news. Of
    /// several places the outermost is its home.
    fn learn_home(&mut self, pid: u32, tid: u32, regs: &UserRegs) -> bool {
        let place = regs.park_place();
        let known = self.homes.0.get(&tid).cloned();
        if known.as_ref().is_some_and(|known| known.place == place) {
            return false;
        }
        let Some(sleeps) = blocked::sleeps(pid, tid) else { return false };
        if park_class(regs.syscall()) != PARK_EPOLL || !blocked::is_blocked(pid, tid, regs) {
            return false;
        }
        let stack = read_stack(self, pid, regs);
        let python = self.python_of_sleeping(pid, tid);
        if blocked::sleeps(pid, tid) != Some(sleeps) {
            return false;
        }
        let python = sites(python.as_ref()).to_vec();
        let home = Home { pid, place, sp: regs.sp(), calls: self.calls(pid, &stack), python };
        let known = known.filter(|known| proc::is_polled(pid, known.place));
        if known.is_some_and(|known| !home.is_outside_of(&known)) {
            return false;
        }
        self.homes.0.insert(tid, home);
        true
    }

    /// The calls of a stack, the poll first: where the C library makes that in several functions
    /// (glibc 2.41), it is the outermost of them.
    fn calls(&mut self, pid: u32, stack: &UnwoundStack) -> Vec<Call> {
        let maps = &self.processes.get(pid, &mut self.symbolizer).maps;
        let in_c_library =
            |address| maps.find(address).is_some_and(|mapping| is_c_library(&mapping.path));
        let inner = stack.frames.iter().take_while(|frame| in_c_library(frame.lookup)).count();
        let mut calls = Vec::new();
        for (index, frame) in stack.frames.iter().skip(inner.saturating_sub(1)).enumerate() {
            let function = self.unwinder.function(maps, frame.lookup).map(|range| range.start);
            let is_loop = (1..NEAR).contains(&index)
                && self
                    .symbolizer
                    .symbol_name(maps, frame.lookup)
                    .is_some_and(|name| runs_a_loop(&name));
            calls.push(Call { ip: frame.ip, sp: frame.sp, function, is_loop });
        }
        calls
    }

    /// Whether a wait for an epoll instance lies inside of a turn of its thread's loop.
    fn is_inside(
        &mut self,
        tid: u32,
        stack: &UnwoundStack,
        python: Option<&NamedPythonStack>,
    ) -> bool {
        let Some(home) = self.homes.0.get(&tid).cloned() else { return false };
        home.has_inside(&self.calls(home.pid, stack), sites(python))
    }

    /// How long a turn slept, and in what, if that is known by now to have been a park.
    pub(super) fn hidden_park(
        &mut self,
        raw: &RawStall<Walked>,
        stacks: &[Stack],
        runtime: ProcessRuntime,
    ) -> Option<(Cause, u64)> {
        if let Some(ns) = self.park_in_epoll(raw) {
            return Some((Cause::Syscall, ns));
        }
        let in_futex = match (runtime.parks_in_futex, runtime.stripped) {
            (false, _) => None,
            (true, true) => self.stripped_park(raw),
            (true, false) => park_in(runtime.runtime, &raw.ledger, stacks),
        };
        in_futex.map(|ns| (Cause::Lock, ns))
    }

    /// As [`park_in`], of a sleep in another epoll instance than the thread's own that does not lie
    /// inside of a turn: the answer to that came late.
    fn park_in_epoll(&mut self, raw: &RawStall<Walked>) -> Option<u64> {
        if raw.ledger.largest() != Cause::Syscall {
            return None;
        }
        let sleeps = |one: &&Captured<Walked>| one.cause == Cause::Syscall;
        let longest = raw.stacks.iter().filter(sleeps).max_by_key(|one| one.total_ns)?;
        let most = longest.total_ns.saturating_mul(2) > raw.ledger.get(Cause::Syscall);
        let parks = most && longest.nr.is_some_and(|nr| park_class(i64::from(nr)) == PARK_EPOLL);
        (parks && !self.is_inside(raw.tid, &longest.stack.user, longest.stack.python.as_ref()))
            .then_some(longest.total_ns)
    }

    /// As [`park_in`], by stacks without names.
    fn stripped_park(&mut self, raw: &RawStall<Walked>) -> Option<u64> {
        let of_cause = raw.ledger.get(Cause::Lock);
        let waits = raw.stacks.iter().filter(|captured| captured.cause == Cause::Lock);
        let longest = waits.max_by_key(|captured| captured.total_ns)?;
        let most = raw.ledger.largest() == Cause::Lock && longest.total_ns * 2 > of_cause;
        if !most {
            return None;
        }
        let frames = self.runtime_frames(raw.tgid, &longest.stack.user);
        (futex_use(Runtime::Tokio, &frames) != FutexUse::Lock).then_some(longest.total_ns)
    }
}

/// Where the interpreter's frames are, as far as they reach the thread's first.
fn sites(python: Option<&NamedPythonStack>) -> &[Site] {
    python.and_then(NamedPythonStack::sites).unwrap_or_default()
}

impl Watcher<'_> {
    /// What a thread waits for that sleeps in another epoll instance than its own.
    pub(super) fn judge_epoll(&mut self, address: u64, capture: &CaptureEvent) -> u32 {
        let CaptureEvent { tgid, tid, .. } = *capture;
        let stack = self.pipeline.walk(tgid, &capture.regs, &capture.stack);
        let python = self.pipeline.python_of_question(tgid, tid);
        // Only a loop that still has the instance it parks in can be waited in.
        let home = self.pipeline.homes.0.get(&tid);
        let lasts = home.is_some_and(|home| proc::is_polled(home.pid, home.place));
        if lasts && self.pipeline.is_inside(tid, &stack, python.as_ref()) {
            self.inside.push((FutexKey { address, tgid, tid }, Instant::now()));
            FUTEX_LOCK
        } else {
            self.parks.push(FutexKey { address, tgid, tid });
            FUTEX_PARK
        }
    }

    /// Looks where loops park that were not seen parked before, and forgets old answers.
    pub(super) fn learn_homes(&mut self) {
        let (old, young) = std::mem::take(&mut self.inside)
            .into_iter()
            .partition(|(_, since): &(FutexKey, Instant)| since.elapsed() >= ANSWER_HOLDS);
        self.inside = young;
        for (key, _) in old {
            debug_assert!(key.address & EPOLL_KEY != 0);
            self.kernel.forget_futex(key);
        }
        let loops: Vec<(u32, u32)> = self
            .loops
            .iter()
            .filter(|(_, known)| known.last.is_none())
            .map(|(&tid, known)| (known.pid, tid))
            .collect();
        let mut looks = 0;
        for (pid, tid) in loops {
            let known = self.pipeline.homes.0.contains_key(&tid);
            if known && !self.parks.iter().any(|key| key.tid == tid) {
                continue;
            }
            // Not always the same ones: some never park in an epoll instance.
            looks += 1;
            if looks <= self.home_looks || looks > self.home_looks + LOOKS {
                continue;
            }
            let parked = self.kernel.thread(tid).is_some_and(|state| state.phase() != Phase::Busy);
            if parked
                && let Some(regs) = last_sleep(&self.kernel, &self.found_asleep, tid)
                && self.pipeline.learn_home(pid, tid, &regs)
            {
                // What was answered without knowing this is asked again, but for where it is.
                let here = EPOLL_KEY | u64::from(regs.park_place());
                let old = |key: &mut FutexKey| key.tid == tid && key.address != here;
                for key in self.parks.extract_if(.., old) {
                    self.kernel.forget_futex(key);
                }
            }
        }
        let all_seen = looks <= self.home_looks + LOOKS;
        self.home_looks = if all_seen { 0 } else { self.home_looks + LOOKS };
    }
}
