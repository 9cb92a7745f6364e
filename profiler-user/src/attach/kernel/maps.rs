//! The maps that both sides share: targets, threads, futexes, captures, counters.

use std::time::Duration;

use aya::maps::{Array, HashMap, MapError, PerCpuArray};
use aya::programs::PerfEvent;
use profiler_common::capture::{BUFFERS, Capture};
use profiler_common::config::{Adopt, FUTEX_IDLE, FUTEX_PARK, FutexKey, Target};
use profiler_common::counters::Counter;
use profiler_common::histogram::BUCKETS;
use profiler_common::python::{Python, PythonStack, inner_key};
use profiler_common::turn::{Phase, ThreadState};
use profiler_common::waits::{Notes, RESOURCES, Resource, Waits, Wake};

use super::{Kernel, KernelError, TICK, program};
use crate::attach::proc;
use crate::events::monotonic_ns;

/// Length of the kernel's cheap filter by process id.
const FILTER_BYTES: usize = 1 << 16;
/// How often a state is read until it was at rest: 10 ms in all.
const READ_ATTEMPTS: u32 = 100;
/// The first of them without a pause.
const READS_AT_ONCE: u32 = 4;
/// The pause between the others.
const READ_PAUSE: Duration = Duration::from_micros(50);
/// What a program needs at most to end that has begun already.
const IN_FLIGHT: Duration = Duration::from_millis(2);

/// What the kernel side has noted of a turn.
#[expect(missing_debug_implementations, reason = "a copy of a stack is not for reading")]
pub struct NotedWaits {
    /// Who made it wait; of the header, the turn alone is set.
    pub waits: Box<Waits>,
    /// What its system calls waited for; the headers are not set.
    pub resources: Vec<Resource>,
    /// The stack of the thread that ended its longest wait for a lock.
    pub holder: Option<Box<Capture>>,
}

impl Kernel {
    pub(super) fn map_mut<'a, M>(&'a mut self, name: &'static str) -> Result<M, KernelError>
    where
        M: TryFrom<&'a mut aya::maps::Map, Error = MapError>,
    {
        Ok(self.ebpf.map_mut(name).ok_or(KernelError::Mismatch(name))?.try_into()?)
    }

    pub(super) fn map<'a, M>(&'a self, name: &'static str) -> Result<M, KernelError>
    where
        M: TryFrom<&'a aya::maps::Map, Error = MapError>,
    {
        Ok(self.ebpf.map(name).ok_or(KernelError::Mismatch(name))?.try_into()?)
    }

    /// Makes a process a target, or changes what is known of it.
    ///
    /// # Errors
    /// The table of targets is full.
    pub fn set_target(&mut self, tgid: u32, target: &Target) -> Result<(), KernelError> {
        let mut targets: HashMap<_, u32, Target> = self.map_mut("TARGETS")?;
        targets.insert(tgid, target, 0)?;
        let mut filter: Array<_, [u8; FILTER_BYTES]> = self.map_mut("FILTER")?;
        let mut marks = filter.get(&0, 0)?;
        marks[tgid as usize % FILTER_BYTES] = 1;
        Ok(filter.set(0, marks, 0)?)
    }

    /// What the kernel side knows of a target.
    #[must_use]
    pub fn target(&self, tgid: u32) -> Option<Target> {
        let targets: HashMap<_, u32, Target> = self.map("TARGETS").ok()?;
        targets.get(&tgid, 0).ok()
    }

    /// Forgets a process.
    pub fn remove_target(&mut self, tgid: u32) {
        if let Ok(mut targets) = self.map_mut::<HashMap<_, u32, Target>>("TARGETS") {
            let _ = targets.remove(&tgid);
        }
        self.set_python(tgid, None);
    }

    /// Has waits for CPU quota told apart from waits for a CPU, which costs each switch a little.
    ///
    /// # Errors
    /// The map can't be written.
    pub fn set_quotas_matter(&mut self, matter: bool) -> Result<(), KernelError> {
        let mut shared: Array<_, u64> = self.map_mut("SHARED")?;
        Ok(shared.set(2, u64::from(matter), 0)?)
    }

    /// Begins to watch an existing thread; one that is watched already stays as it is.
    ///
    /// # Errors
    /// The table of threads is full.
    pub fn watch_thread(&mut self, tgid: u32, tid: u32) -> Result<(), KernelError> {
        /// `BPF_NOEXIST`
        const NO_EXIST: u64 = 1;
        match self.threads.insert(tid, ThreadState::new(tgid, tid), NO_EXIST) {
            Err(MapError::SyscallError(error))
                if error.io_error.raw_os_error() == Some(libc::EEXIST) =>
            {
                Ok(())
            }
            result => Ok(result?),
        }
    }

    /// How often boundaries were hit in all, a breakpoint counted twice.
    ///
    /// # Errors
    /// The map can't be read.
    pub fn hits(&self) -> Result<u64, KernelError> {
        let counters = self.counters()?;
        let hits = counters.iter().find(|(counter, _)| *counter == Counter::ParkEnterHits);
        Ok(hits.map_or(0, |(_, hits)| *hits))
    }

    /// A consistent copy of a thread's state; `None` if it is not watched, or not once at rest for as
    /// long as a program may take (a capture is some 100 us, and the host may stop its CPU meanwhile).
    #[must_use]
    pub fn thread(&self, tid: u32) -> Option<ThreadState> {
        for attempt in 0..READ_ATTEMPTS {
            if attempt >= READS_AT_ONCE {
                std::thread::sleep(READ_PAUSE);
            }
            let first = self.threads.get(&tid, 0).ok()?;
            let second = self.threads.get(&tid, 0).ok()?;
            if first.version == second.version && first.version % 2 == 0 {
                return Some(second);
            }
        }
        None
    }

    /// Ends the watching: no program changes a state or sends a record from then on. Returns the
    /// moment up to which everything was seen.
    ///
    /// # Errors
    /// The map can't be written.
    pub fn freeze(&mut self) -> Result<u64, KernelError> {
        let seen_until = monotonic_ns();
        let mut filter: Array<_, [u8; FILTER_BYTES]> = self.map_mut("FILTER")?;
        filter.set(0, [0; FILTER_BYTES], 0)?;
        std::thread::sleep(IN_FLIGHT);
        Ok(seen_until)
    }

    /// Forgets a thread and frees its slot.
    pub fn forget_thread(&mut self, tid: u32) {
        if let Some(link) = self.ticks.remove(&tid)
            && let Ok(program) = program::<PerfEvent>(&mut self.ebpf, TICK)
        {
            let _ = program.detach(link);
        }
        let slot = self.threads.get(&tid, 0).ok().map_or(0, |state| state.slot);
        let _ = self.threads.remove(&tid);
        if slot != 0
            && let Ok(mut slots) = self.map_mut::<HashMap<_, u32, u32>>("SLOTS")
        {
            let _ = slots.remove(&(slot - 1));
        }
        if slot != 0
            && let Ok(mut histograms) = self.map_mut::<Array<_, [u64; BUCKETS]>>("HISTOGRAMS")
        {
            let _ = histograms.set(slot - 1, [0; BUCKETS], 0);
        }
    }

    /// Ids of all watched threads.
    #[must_use]
    pub fn watched_threads(&self) -> Vec<u32> {
        self.threads.keys().filter_map(Result::ok).collect()
    }

    /// Tells where a thread's stack ends.
    pub fn set_stack_end(&mut self, tid: u32, end: u64) {
        if let Ok(mut ends) = self.map_mut::<HashMap<_, u32, u64>>("STACK_ENDS") {
            let _ = ends.insert(tid, end, 0);
        }
    }

    /// Has a thread's next event begin the turn that it was found in.
    ///
    /// # Errors
    /// The map is full.
    pub fn adopt(&mut self, tid: u32, adopt: Adopt) -> Result<(), KernelError> {
        let mut map: HashMap<_, u32, Adopt> = self.map_mut("ADOPT")?;
        Ok(map.insert(tid, adopt, 0)?)
    }

    /// What is known of the futex a thread sleeps on.
    #[must_use]
    pub fn futex(&self, state: &ThreadState) -> Option<u32> {
        let header = &state.record.header;
        if state.futex == 0 {
            return None;
        }
        let key = FutexKey { address: state.futex, tgid: header.tgid, tid: header.tid };
        self.map::<HashMap<_, FutexKey, u32>>("FUTEXES").ok()?.get(&key, 0).ok()
    }

    /// Whether a thread in a turn sleeps in what is known as a park by now: its turn ended when the
    /// sleep began.
    #[must_use]
    pub fn is_parked(&self, state: &ThreadState) -> bool {
        state.phase() == Phase::Busy
            && state.is_asleep()
            && matches!(self.futex(state), Some(FUTEX_PARK | FUTEX_IDLE))
    }

    /// Answers what a futex is.
    pub fn set_futex(&mut self, key: FutexKey, class: u32) {
        if let Ok(mut futexes) = self.map_mut::<HashMap<_, FutexKey, u32>>("FUTEXES") {
            let _ = futexes.insert(key, class, 0);
        }
    }

    /// Forgets what a futex is: it will be asked again.
    pub fn forget_futex(&mut self, key: FutexKey) {
        if let Ok(mut futexes) = self.map_mut::<HashMap<_, FutexKey, u32>>("FUTEXES") {
            let _ = futexes.remove(&key);
        }
    }

    /// Histogram of the turns of the loop in a slot (from 1).
    #[must_use]
    pub fn histogram(&self, slot: u32) -> Option<Box<[u64]>> {
        let histograms: Array<_, [u64; BUCKETS]> = self.map("HISTOGRAMS").ok()?;
        let counts = histograms.get(&slot.checked_sub(1)?, 0).ok()?;
        Some(Box::new(counts))
    }

    /// A capture that still waits in its buffer.
    #[must_use]
    pub fn waiting_capture(&self, slot: u32, buffer: u32) -> Option<Box<Capture>> {
        let captures: Array<_, Capture> = self.map("CAPTURES").ok()?;
        let index = slot.checked_sub(1)? * BUFFERS + buffer;
        captures.get(&index, 0).ok().map(Box::new)
    }

    /// What is noted of a turn whose end the kernel side has not seen; `None` if nothing is.
    #[must_use]
    pub fn noted_waits(&self, slot: u32, turn: u64) -> Option<NotedWaits> {
        let index = slot.checked_sub(1)?;
        let notes: Array<_, Notes> = self.map("NOTES").ok()?;
        let wakes: Array<_, Wake> = self.map("WAKES").ok()?;
        let holders: Array<_, Capture> = self.map("HOLDERS").ok()?;
        let records: Array<_, Resource> = self.map("RESOURCE_RECORDS").ok()?;
        let notes = notes.get(&index, 0).ok().filter(|notes| notes.waits.header.extra == turn)?;
        let ended = wakes.get(&index, 0).ok().filter(|wake| wake.holder_turn == turn);
        let is_kept = |at: &usize| notes.kept_ns[*at] != 0 && *at != notes.spare as usize;
        let resources = (0..RESOURCES)
            .filter(is_kept)
            .filter_map(|at| records.get(&(index * RESOURCES as u32 + at as u32), 0).ok());
        Some(NotedWaits {
            waits: Box::new(notes.waits),
            resources: resources.collect(),
            holder: ended.and_then(|_| holders.get(&index, 0).ok()).map(Box::new),
        })
    }

    /// The interpreter's frames of a capture that still waits in its buffer.
    #[must_use]
    pub fn waiting_python(&self, slot: u32, buffer: u32) -> Option<Box<PythonStack>> {
        let stacks: Array<_, PythonStack> = self.map("PYTHON_STACKS").ok()?;
        let index = slot.checked_sub(1)? * BUFFERS + buffer;
        stacks.get(&index, 0).ok().map(Box::new)
    }

    /// Has the kernel side walk the frames of a process's interpreter; `None` if it has none.
    pub fn set_python(&mut self, tgid: u32, python: Option<&Python>) {
        if let Ok(mut interpreters) = self.map_mut::<HashMap<_, u32, Python>>("PYTHON") {
            let _ = match python {
                Some(python) => interpreters.insert(tgid, python, 0),
                None => interpreters.remove(&tgid),
            };
        }
        if python.is_none_or(|python| python.own_ids != 0) {
            return;
        }
        // Those that come later are noted when they begin.
        if let Ok(mut inner_tids) = self.map_mut::<HashMap<_, u64, u32>>("INNER_TIDS") {
            for tid in proc::threads(tgid) {
                if let Some(inner) = proc::innermost_tid(tgid, tid) {
                    let _ = inner_tids.insert(inner_key(tgid, inner), tid, 0);
                }
            }
        }
    }

    /// The kernel side's counters, summed over the CPUs.
    ///
    /// # Errors
    /// The map can't be read.
    pub fn counters(&self) -> Result<Vec<(Counter, u64)>, KernelError> {
        let map: PerCpuArray<_, u64> = self.map("COUNTERS")?;
        let mut counts = Vec::new();
        for &counter in Counter::ALL {
            let total = map.get(&(counter as u32), 0)?.iter().sum();
            counts.push((counter, total));
        }
        Ok(counts)
    }
}
