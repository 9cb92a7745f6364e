//! Attaching: sets up the kernel side, then begins where every thread is found.

use std::collections::HashMap;
use std::time::Instant;

use aya::maps::{MapData, RingBuf};
use profiler_common::arch::park_class;
use profiler_common::config::{TARGET_HAS_EPOLL, TARGET_LEARN_FUTEXES};
use profiler_common::turn::PARK_EPOLL;

use super::blocking::BlockingThreads;
use super::event_stream::StreamRecorder;
use super::found::{self, Found};
use super::governor::Governor;
use super::outputs::Outputs;
use super::parked::ParkedTurns;
use super::pipeline::Pipeline;
use super::processes;
use super::summary::Loops;
use super::watch::{Settings, WatchError};
use super::watcher::Watcher;
use crate::aggregate::{Aggregate, Pools, Unfinished};
use crate::attach::{Boundaries, Kernel, KernelOptions, Pinned, proc};
use crate::cli;
use crate::events::{self, Clock, Event, SnapshotEvent, monotonic_ns};
use crate::runtimes::Interpreter;
use crate::symbolize::Symbolizer;
use crate::unwind::{LiveModules, Unwinder};

impl<'a> Watcher<'a> {
    pub(super) fn attach(
        settings: &'a Settings,
        pids: &[u32],
        symbolizer: Symbolizer,
        outputs: &'a mut Outputs,
    ) -> Result<(Self, RingBuf<MapData>), WatchError> {
        let threads: usize = pids.iter().map(|&pid| proc::threads(pid).len()).sum();
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        // Slow things first: between attaching the programs and looking at the threads nothing
        // should take time.
        let unwinder = Unwinder::new(Box::new(LiveModules));
        let clock = Clock::now();
        let mut pipeline = Pipeline::new(clock, settings.threshold_ns, unwinder, symbolizer);
        pipeline.processes.leave_python(!settings.python);
        // Reading symbols and verifying programs take about as long, and know nothing of each other.
        let (polls, kernel) = std::thread::scope(|scope| {
            let exact = settings.boundaries != cli::Boundaries::Sched;
            let (tell, told) = std::sync::mpsc::channel();
            let pipeline = &mut pipeline;
            let read = scope.spawn(move || {
                let polls = pipeline.prepare(pids);
                let _ = tell.send(polls.iter().any(|(_, offsets)| !offsets.is_empty()));
                polls
            });
            let kernel = Kernel::load(&KernelOptions {
                threshold_ns: settings.threshold_ns,
                sample_rate: settings.sample_rate,
                stack_bytes: settings.stack_bytes,
                max_loops: threads.saturating_add(16).clamp(32, 256),
                max_threads: threads.saturating_mul(4).clamp(4096, 1 << 16),
                follow_forks: true,
                exact: settings.boundaries != cli::Boundaries::Sched,
            })
            .and_then(|mut kernel| {
                kernel.verify(exact, move || told.recv().unwrap_or(false))?;
                Ok(kernel)
            });
            (read.join(), kernel)
        });
        let mut kernel = kernel?;
        // Without symbols stalls are measured all the same.
        let polls = polls.unwrap_or_default();
        let ring = kernel.take_events()?;
        let mut warnings = Vec::new();
        for (pid, offsets) in polls {
            pipeline.task_polls_found(pid, offsets.clone());
            kernel.set_task_polls(pid, offsets);
        }
        let boundaries = arm(&mut kernel, settings.boundaries, &mut warnings)?;
        if kernel.task_poll_error().is_some() {
            pids.iter().for_each(|&pid| pipeline.task_polls_found(pid, Vec::new()));
        }
        let governed = settings.boundaries == cli::Boundaries::Auto;
        let governor = (governed && boundaries != Boundaries::Sched)
            .then(|| Governor::new(settings.overhead_budget));
        let now = Instant::now();
        let mut watcher = Self {
            settings,
            kernel,
            pipeline,
            outputs,
            aggregate: Aggregate::new(),
            unfinished: Unfinished::default(),
            loops: Loops::new(),
            stuck: Vec::new(),
            found_asleep: HashMap::new(),
            inside: Vec::new(),
            parks: Vec::new(),
            home_looks: 0,
            parked: ParkedTurns::default(),
            pids: Vec::new(),
            armed: boundaries != Boundaries::Sched,
            boundaries,
            governor,
            began: now,
            began_ns: monotonic_ns(),
            ended_ns: None,
            last_decision: now,
            last_quota_look: now,
            last_interval: now,
            last_checkpoint: now,
            pools: Pools::default(),
            last_pools: now,
            blocking: BlockingThreads::default(),
            warnings,
            decode_errors: 0,
            recorder: None,
        };
        watcher.look_for_quotas(pids)?;
        // The programs first: from here on no thread and no event of a target is missed.
        watcher.kernel.attach_scheduler()?;
        for &pid in pids {
            watcher.watch_process(pid)?;
        }
        watcher.began = Instant::now();
        watcher.began_ns = monotonic_ns();
        if watcher.pids.is_empty() {
            return Err(WatchError::Gone);
        }
        watcher.recorder = StreamRecorder::asked_for(
            &clock,
            settings.threshold_ns,
            &watcher.pids,
            &mut watcher.pipeline,
        )?;
        Ok((watcher, ring))
    }

    fn watch_process(&mut self, pid: u32) -> Result<(), WatchError> {
        self.describe_target(pid)?;
        // Threads that start during the first pass are seen by the fork program or by the second.
        for _ in 0..2 {
            for tid in proc::threads(pid) {
                self.kernel.watch_thread(pid, tid)?;
            }
        }
        if proc::is_alive(pid) {
            self.pids.push(pid);
        }
        Ok(())
    }

    /// Tells the kernel side where a process's code lies and how its runtime parks.
    pub(super) fn describe_target(&mut self, pid: u32) -> Result<(), WatchError> {
        let known = self.kernel.target(pid).map_or(0, |target| target.flags);
        let process = self.pipeline.processes.get(pid, &mut self.pipeline.symbolizer);
        let learn = if process.runtime.parks_in_futex { TARGET_LEARN_FUTEXES } else { 0 };
        let epoll = if proc::has_epoll(pid) { TARGET_HAS_EPOLL } else { 0 };
        let target = processes::target(&process.maps, known | learn | epoll);
        let python = process.python.as_ref().map(Interpreter::for_kernel);
        self.kernel.set_target(pid, &target)?;
        self.kernel.set_python(pid, python.as_ref());
        Ok(())
    }

    /// Looks at what the targets' threads are doing at the moment.
    pub(super) fn snapshot(&mut self, ring: &mut RingBuf<MapData>) -> Result<(), WatchError> {
        if let Err(error) = self.kernel.snapshot() {
            self.warnings.push(format!("loops that are stuck already can't be seen: {error}"));
            return Ok(());
        }
        let seen = self.snapshots(ring)?;
        let asleep = seen.iter().filter(|snapshot| snapshot.state != 0);
        self.found_asleep.extend(asleep.map(|snapshot| (snapshot.tid, snapshot.regs)));
        let parked = |pid: u32| {
            seen.iter().any(|s| {
                let waits = s.state != 0 && s.state & found::STOPPED == 0;
                s.tgid == pid && waits && park_class(s.regs.syscall()) == PARK_EPOLL
            })
        };
        let lone: Vec<u32> =
            self.pids.iter().copied().filter(|&pid| !parked(pid) && proc::has_epoll(pid)).collect();
        // Parked loops first: that takes no symbols, and their next turn is not to be missed.
        let (quick, slow): (Vec<_>, Vec<_>) = seen
            .into_iter()
            .partition(|snapshot| snapshot.state != 0 && park_class(snapshot.regs.syscall()) != 0);
        for snapshot in quick.into_iter().chain(slow) {
            self.take_note(ring, snapshot, &lone)?;
        }
        // Verifying the programs took a while, in which one that has just started loads its runtime.
        for pid in self.pids.clone() {
            self.look_again(pid)?;
        }
        Ok(())
    }

    /// Has the kernel side begin where a thread was found.
    fn take_note(
        &mut self,
        ring: &mut RingBuf<MapData>,
        mut snapshot: SnapshotEvent,
        lone: &[u32],
    ) -> Result<(), WatchError> {
        let SnapshotEvent { tgid, tid, time_ns, .. } = snapshot;
        let lone_main = lone.contains(&tgid);
        snapshot.idle_ns = 0;
        match found::judge(&mut self.pipeline, &snapshot, lone_main) {
            Found::Parked { adopt } => {
                self.kernel.adopt(tid, adopt)?;
                self.found_loop(tgid, tid, time_ns);
            }
            Found::Polling { adopt } => self.kernel.adopt(tid, adopt)?,
            Found::ParkedOnFutex { key, class, adopt } => {
                self.kernel.set_futex(key, class);
                self.kernel.adopt(tid, adopt)?;
                self.found_loop(tgid, tid, time_ns);
            }
            Found::Stuck(_) => {
                let since = self.asleep_since(ring, &snapshot)?;
                snapshot.idle_ns = time_ns.saturating_sub(since);
                if let Found::Stuck(stuck) = found::judge(&mut self.pipeline, &snapshot, lone_main)
                {
                    self.kernel.adopt(tid, stuck.adopt)?;
                    self.found_loop(tgid, tid, stuck.start_ns);
                    if let Some(stack) = stuck.stack() {
                        if let Some(known) = self.loops.get_mut(&tid) {
                            known.stuck = Some((stack.0, stuck.start_ns));
                        }
                        self.pipeline.slept_at_attach(tid, stack);
                    }
                    self.stuck.push((*stuck, 0));
                }
            }
            Found::Nothing => {}
        }
        Ok(())
    }

    /// Since when at the latest a thread has been asleep. The scheduler notes it on a clock of the
    /// CPU where the thread last ran, so it is read from there.
    fn asleep_since(
        &mut self,
        ring: &mut RingBuf<MapData>,
        first: &SnapshotEvent,
    ) -> Result<u64, WatchError> {
        let Some(cpu) = proc::last_cpu(first.tgid, first.tid) else { return Ok(first.time_ns) };
        let Some(_pinned) = Pinned::to(cpu) else { return Ok(first.time_ns) };
        if self.kernel.snapshot().is_err() {
            return Ok(first.time_ns);
        }
        let again = self.snapshots(ring)?.into_iter().find(|s| s.tid == first.tid);
        Ok(match again {
            Some(again) if again.regs == first.regs && again.state == first.state => {
                again.time_ns.saturating_sub(again.idle_ns)
            }
            _ => first.time_ns,
        })
    }

    /// Takes the records up to here; returns the snapshots among them.
    fn snapshots(&mut self, ring: &mut RingBuf<MapData>) -> Result<Vec<SnapshotEvent>, WatchError> {
        let mut seen = Vec::new();
        while let Some(record) = ring.next() {
            self.record(&record)?;
            match events::decode(&record) {
                Ok(Event::Snapshot(snapshot)) => seen.push(*snapshot),
                Ok(event) => {
                    drop(record);
                    self.event(&event)?;
                }
                Err(_) => self.decode_errors += 1,
            }
        }
        Ok(seen)
    }
}

/// Arms the best way to see polls that the choice and the kernel allow.
fn arm(
    kernel: &mut Kernel,
    choice: cli::Boundaries,
    warnings: &mut Vec<String>,
) -> Result<Boundaries, WatchError> {
    if choice == cli::Boundaries::Sched {
        return Ok(Boundaries::Sched);
    }
    if kernel.arm(Boundaries::Fentry).is_ok() {
        return Ok(Boundaries::Fentry);
    }
    match kernel.arm(Boundaries::SysEnter) {
        Ok(()) => Ok(Boundaries::SysEnter),
        Err(error) if choice == cli::Boundaries::Exact => Err(error.into()),
        Err(error) => {
            warnings.push(format!("polls that do not sleep are not seen: {error}"));
            Ok(Boundaries::Sched)
        }
    }
}
