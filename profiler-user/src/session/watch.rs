//! Attach, run until the end, report.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use aya::maps::{MapData, RingBuf};
use profiler_common::capture::BUFFERS;
use profiler_common::config::{TARGET_HAS_EPOLL, TARGET_LEARN_FUTEXES};
use profiler_common::record::FLAG_EXACT;
use profiler_common::turn::{NO_ENTRY, Phase, ThreadState};
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

use super::found::{self, Found, Stuck};
use super::governor::{Decision, Governor};
use super::outputs::Outputs;
use super::pipeline::Pipeline;
use super::processes;
use super::summary::{self, KnownLoop, Loops};
use crate::aggregate::{Aggregate, Ended, LoopSummary, Summary, Unfinished};
use crate::attach::{Boundaries, Kernel, KernelError, KernelOptions, proc};
use crate::blame::Stall;
use crate::cli;
use crate::events::{self, CaptureEvent, Clock, Event, SnapshotEvent, TurnEvent, monotonic_ns};
use crate::runtimes::FutexUse;
use crate::symbolize::Symbolizer;
use crate::unwind::{LiveModules, Unwinder};

/// How often the state of the loops is looked at.
const PERIOD: Duration = Duration::from_millis(100);
/// A stall is reported as ongoing from this age on, then at twice the age each time.
const FIRST_ONGOING_NS: u64 = 1_000_000_000;
/// Records handled before the rest of the work gets its turn.
const BATCH: usize = 256;

/// Why an observation failed.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The kernel side.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The report could not be written, or signals not be received.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Every target was gone before it could be watched.
    #[error("the target is gone")]
    Gone,
}

/// How to watch.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// From which duration a turn is a stall.
    pub threshold_ns: u64,
    /// How long to watch; until told to stop if `None`.
    pub duration: Option<Duration>,
    /// Whether stalls are told while they last.
    pub live: bool,
    /// How turns are told apart.
    pub boundaries: cli::Boundaries,
    /// Share of one CPU that exact boundaries may cost.
    pub overhead_budget: f64,
    /// Bytes of user stack in a capture.
    pub stack_bytes: usize,
    /// Samples per second of a loop thread on CPU.
    pub sample_rate: u32,
    /// How often to tell how the loops are doing.
    pub interval: Option<Duration>,
}

/// What to watch.
#[derive(Debug)]
pub enum Subject {
    /// Running processes.
    Processes(Vec<u32>),
    /// A child that waits to be let go, started by us.
    Child(super::command::Child),
}

/// How it went.
#[derive(Debug)]
pub struct Outcome {
    /// Everything that was said at the end.
    pub summary: Summary,
    /// Whether any loop was found.
    pub found_loops: bool,
}

/// Watches until the duration is over, the targets are gone or a signal comes.
///
/// # Errors
/// The kernel side can't be set up, or the report not be written.
pub async fn watch(
    settings: &Settings,
    subject: Subject,
    symbolizer: Symbolizer,
    outputs: &mut Outputs,
) -> Result<Outcome, WatchError> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (pids, mut child) = match subject {
        Subject::Processes(pids) => (pids, None),
        Subject::Child(child) => (vec![child.pid()], Some(child)),
    };
    let (mut watcher, ring) = Watcher::attach(settings, &pids, symbolizer, outputs)?;
    // SAFETY: the ring buffer owns its descriptor, which stays the same and open until it is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
    let mut ring = registered.map_err(io::Error::from)?;
    if let Some(child) = &mut child {
        child.release()?;
    }
    watcher.snapshot(ring.get_mut())?;
    let deadline = settings.duration.map(|duration| watcher.began + duration);
    let mut period = tokio::time::interval(PERIOD);
    period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let ended = loop {
        tokio::select! {
            biased;
            _ = interrupt.recv() => break Ended::Interrupted,
            _ = terminate.recv() => break Ended::Interrupted,
            () = until(deadline) => break Ended::Duration,
            _ = period.tick() => {
                watcher.periodic()?;
                if watcher.pids.is_empty() {
                    break Ended::TargetExited { status: watcher.exit_status(child.as_mut()) };
                }
            }
            ready = ring.readable_mut() => {
                let mut guard = ready?;
                if watcher.drain(guard.get_inner_mut(), BATCH)? < BATCH {
                    guard.clear_ready();
                }
            }
        }
        if watcher.outputs.closed {
            break Ended::Interrupted;
        }
    };
    while watcher.drain(ring.get_mut(), usize::MAX)? > 0 {}
    watcher.finish(ended)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

struct Watcher<'a> {
    settings: &'a Settings,
    kernel: Kernel,
    pipeline: Pipeline,
    outputs: &'a mut Outputs,
    aggregate: Aggregate,
    unfinished: Unfinished,
    loops: Loops,
    stuck: Vec<(Stuck, u64)>,
    /// Turns told of before the kernel side knew that they had ended, by thread.
    closed: HashMap<u32, u64>,
    /// Targets that are alive, children included.
    pids: Vec<u32>,
    boundaries: Boundaries,
    governor: Option<Governor>,
    armed: bool,
    began: Instant,
    began_ns: u64,
    last_decision: Instant,
    last_interval: Instant,
    warnings: Vec<String>,
    decode_errors: u64,
}

impl<'a> Watcher<'a> {
    fn attach(
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
        let mut pipeline = Pipeline::new(Clock::now(), settings.threshold_ns, unwinder, symbolizer);
        let polls: Vec<_> = pids
            .iter()
            .map(|&pid| (pid, pipeline.processes.task_polls(pid, &mut pipeline.symbolizer)))
            .collect();
        let mut kernel = Kernel::load(&KernelOptions {
            threshold_ns: settings.threshold_ns,
            sample_rate: settings.sample_rate,
            stack_bytes: settings.stack_bytes,
            max_loops: threads.saturating_add(16).clamp(32, 256),
            max_threads: threads.saturating_mul(4).clamp(4096, 1 << 16),
            follow_forks: true,
        })?;
        let ring = kernel.take_events()?;
        let mut warnings = Vec::new();
        kernel.verify()?;
        for (pid, offsets) in polls {
            kernel.set_task_polls(pid, offsets);
        }
        let boundaries = arm(&mut kernel, settings.boundaries, &mut warnings)?;
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
            closed: HashMap::new(),
            pids: Vec::new(),
            armed: boundaries != Boundaries::Sched,
            boundaries,
            governor,
            began: now,
            began_ns: monotonic_ns(),
            last_decision: now,
            last_interval: now,
            warnings,
            decode_errors: 0,
        };
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
    fn describe_target(&mut self, pid: u32) -> Result<(), WatchError> {
        let known = self.kernel.target(pid).map_or(0, |target| target.flags);
        let process = self.pipeline.processes.get(pid, &mut self.pipeline.symbolizer);
        let learn = if process.runtime.parks_in_futex { TARGET_LEARN_FUTEXES } else { 0 };
        let epoll = if proc::has_epoll(pid) { TARGET_HAS_EPOLL } else { 0 };
        let target = processes::target(&process.maps, known | learn | epoll);
        Ok(self.kernel.set_target(pid, &target)?)
    }

    /// Looks at what the targets' threads are doing at the moment.
    fn snapshot(&mut self, ring: &mut RingBuf<MapData>) -> Result<(), WatchError> {
        if let Err(error) = self.kernel.snapshot() {
            self.warnings.push(format!("loops that are stuck already can't be seen: {error}"));
            return Ok(());
        }
        let seen = self.snapshots(ring)?;
        let parked = |pid: u32| {
            seen.iter().any(|s| {
                s.tgid == pid
                    && s.state != 0
                    && profiler_common::arch::park_class(s.regs.syscall())
                        == profiler_common::turn::PARK_EPOLL
            })
        };
        let lone: Vec<u32> =
            self.pids.iter().copied().filter(|&pid| !parked(pid) && proc::has_epoll(pid)).collect();
        // Parked loops first: that takes no symbols, and their next turn is not to be missed.
        let (quick, slow): (Vec<_>, Vec<_>) = seen.into_iter().partition(|snapshot| {
            snapshot.state != 0 && profiler_common::arch::park_class(snapshot.regs.syscall()) != 0
        });
        for snapshot in quick.into_iter().chain(slow) {
            self.take_note(ring, snapshot, &lone)?;
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
        let Some(_pinned) = crate::attach::Pinned::to(cpu) else { return Ok(first.time_ns) };
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

    /// Handles up to `most` records; returns how many there were.
    fn drain(&mut self, ring: &mut RingBuf<MapData>, most: usize) -> Result<usize, WatchError> {
        let mut handled = 0;
        while handled < most {
            let Some(record) = ring.next() else { break };
            handled += 1;
            let event = events::decode(&record);
            drop(record);
            match event {
                Ok(event) => self.event(&event)?,
                Err(_) => self.decode_errors += 1,
            }
        }
        Ok(handled)
    }

    fn event(&mut self, event: &Event) -> Result<(), WatchError> {
        match event {
            Event::LoopFound { tgid, tid, time_ns, .. } => {
                self.found_loop(*tgid, *tid, *time_ns);
                for stall in self.pipeline.proved(*tid) {
                    self.report(&stall)?;
                }
            }
            Event::FutexQuestion { address, capture } => {
                let class = match self.pipeline.futex_use(capture) {
                    FutexUse::Park => profiler_common::config::FUTEX_PARK,
                    FutexUse::Lock => profiler_common::config::FUTEX_LOCK,
                };
                let CaptureEvent { tgid, tid, .. } = **capture;
                let key = profiler_common::config::FutexKey { address: *address, tgid, tid };
                self.kernel.set_futex(key, class);
                self.close_parked(tid)?;
            }
            Event::Capture(capture) => self.learn_stack_end(capture),
            Event::Fork { tgid, new_process: true, .. } if !self.pids.contains(tgid) => {
                self.pids.push(*tgid);
            }
            Event::Exec { tgid } => {
                self.pipeline.processes.read(*tgid, &mut self.pipeline.symbolizer);
                self.describe_target(*tgid)?;
                let symbolizer = &mut self.pipeline.symbolizer;
                let polls = self.pipeline.processes.task_polls(*tgid, symbolizer);
                let changes = !polls.is_empty();
                self.kernel.set_task_polls(*tgid, polls);
                if changes && self.armed {
                    self.kernel.disarm();
                    self.kernel.arm(self.boundaries)?;
                }
            }
            Event::Exit { tid, .. } => {
                if let Some(known) = self.loops.get_mut(tid) {
                    summary::retire(&self.kernel, *tid, known, monotonic_ns());
                }
                self.kernel.forget_thread(*tid);
                self.stuck.retain(|(stuck, _)| stuck.tid != *tid);
            }
            _ => {}
        }
        if let Event::Turn(turn) = event
            && self.closed.get(&turn.tid) == Some(&turn.turn.number)
        {
            return Ok(());
        }
        if let Some(stall) = self.pipeline.event(event) {
            self.report(&stall)?;
        }
        Ok(())
    }

    /// Tells of a turn that ended in what turned out to be a park: the kernel side will only know
    /// when the thread wakes, which may be never.
    fn close_parked(&mut self, tid: u32) -> Result<(), WatchError> {
        let Some(state) = self.kernel.thread(tid).filter(|state| self.kernel.is_parked(state))
        else {
            return Ok(());
        };
        let turn = state.record.turn;
        let long = state.mark_ns.saturating_sub(turn.start_ns) >= self.settings.threshold_ns;
        if !long || self.closed.get(&tid) == Some(&turn.number) {
            return Ok(());
        }
        self.closed.insert(tid, turn.number);
        self.tell(&state, state.mark_ns, false)
    }

    /// Tells of a turn as the kernel side's state has it, up to `until`.
    fn tell(&mut self, state: &ThreadState, until: u64, ongoing: bool) -> Result<(), WatchError> {
        let turn = state.record.turn;
        let waiting: Vec<CaptureEvent> = (0..BUFFERS)
            .filter(|&buffer| turn.owners[buffer as usize] != NO_ENTRY)
            .filter_map(|buffer| self.kernel.waiting_capture(state.slot, buffer))
            .filter_map(|capture| CaptureEvent::waiting(&capture).ok())
            .filter(|capture| capture.turn == turn.number)
            .collect();
        let exact = self.armed && self.kernel.armed_since() <= turn.start_ns;
        let event = TurnEvent {
            tgid: state.record.header.tgid,
            tid: state.record.header.tid,
            end_ns: until,
            flags: state.turn_flags | if exact { FLAG_EXACT } else { 0 },
            turn,
        };
        if let Some(mut stall) = self.pipeline.ongoing(&event, &waiting) {
            stall.ongoing = ongoing;
            self.report(&stall)?;
        }
        Ok(())
    }

    fn found_loop(&mut self, pid: u32, tid: u32, since_ns: u64) {
        self.loops.entry(tid).or_insert(KnownLoop { pid, since_ns, last: None, next_report: None });
        // The name is kept for the time when the thread is gone.
        self.pipeline.processes.get(pid, &mut self.pipeline.symbolizer);
        self.pipeline.processes.thread_name(pid, tid);
        if let Err(error) = self.kernel.tick(tid)
            && proc::threads(pid).contains(&tid)
        {
            self.warnings.push(format!("thread {tid} can't be sampled: {error}"));
        }
    }

    fn learn_stack_end(&mut self, capture: &CaptureEvent) {
        let process = self.pipeline.processes.get(capture.tgid, &mut self.pipeline.symbolizer);
        if let Some(stack) = process.maps.find(capture.regs.sp()) {
            self.kernel.set_stack_end(capture.tid, stack.end);
        }
    }

    fn report(&mut self, stall: &Stall) -> Result<(), WatchError> {
        for counted in self.unfinished.settle(stall) {
            if counted.ongoing {
                self.aggregate.add_unfinished(&counted);
            } else {
                self.aggregate.add(&counted);
            }
        }
        Ok(self.outputs.stall(stall)?)
    }

    fn periodic(&mut self) -> Result<(), WatchError> {
        self.govern()?;
        if self.settings.live {
            self.report_ongoing(false)?;
        }
        if let Some(interval) = self.settings.interval
            && self.last_interval.elapsed() >= interval
        {
            self.last_interval = Instant::now();
            let now = monotonic_ns();
            let loops = self.loop_summaries(now);
            self.outputs.interval(&loops)?;
        }
        let (alive, dead): (Vec<_>, Vec<_>) =
            self.pids.iter().partition(|&&pid| self.is_alive(pid));
        self.pids = alive;
        for pid in dead {
            self.kernel.remove_target(pid);
        }
        Ok(())
    }

    fn is_alive(&self, pid: u32) -> bool {
        // A child that was never looked at has no recorded start time.
        self.pipeline.processes.is_alive(pid)
            || (!self.pipeline.processes.pids().contains(&pid) && proc::is_alive(pid))
    }

    fn govern(&mut self) -> Result<(), WatchError> {
        let elapsed = self.last_decision.elapsed();
        if elapsed < Duration::from_secs(1) {
            return Ok(());
        }
        let Some(governor) = &mut self.governor else { return Ok(()) };
        self.last_decision = Instant::now();
        let hits = self
            .kernel
            .counters()?
            .into_iter()
            .find(|(counter, _)| *counter == profiler_common::counters::Counter::ParkEnterHits)
            .map_or(0, |(_, hits)| hits);
        match governor.decide(hits, elapsed) {
            Decision::Keep => {}
            Decision::Arm => {
                self.kernel.arm(self.boundaries)?;
                self.armed = true;
            }
            Decision::Disarm => {
                self.kernel.disarm();
                self.armed = false;
            }
        }
        Ok(())
    }

    /// Tells of stalls that still last: after 1 s, 2 s, 4 s …, or all of them at the end.
    fn report_ongoing(&mut self, all: bool) -> Result<(), WatchError> {
        let now = monotonic_ns();
        self.report_stuck(now, all)?;
        let tids: Vec<u32> = self.loops.keys().copied().collect();
        for tid in tids {
            let Some(mut state) = self.kernel.thread(tid) else { continue };
            if state.phase() != Phase::Busy {
                continue;
            }
            let turn = state.record.turn;
            if self.kernel.is_parked(&state) {
                self.close_parked(tid)?;
                continue;
            }
            let age = now.saturating_sub(turn.start_ns);
            let at_attach = state.turn_flags != 0;
            let first = if at_attach { self.settings.threshold_ns } else { FIRST_ONGOING_NS };
            let Some(known) = self.loops.get_mut(&tid) else { continue };
            let due = match known.next_report {
                Some((number, at)) if number == turn.number => at,
                _ => turn.start_ns + first.max(self.settings.threshold_ns),
            };
            if (now < due && !all) || age < self.settings.threshold_ns {
                continue;
            }
            known.next_report = Some((turn.number, turn.start_ns + next_age(age)));
            state.settle(now);
            self.tell(&state, now, true)?;
        }
        Ok(())
    }

    /// Threads that were stuck when stallscope attached and have not run since.
    fn report_stuck(&mut self, now: u64, all: bool) -> Result<(), WatchError> {
        let mut still = Vec::new();
        for (stuck, mut due) in std::mem::take(&mut self.stuck) {
            let moved = self.kernel.thread(stuck.tid).is_none_or(|s| s.phase() != Phase::Unknown);
            if moved {
                continue;
            }
            let so_far = stuck.so_far(now);
            if let Some(raw) = so_far
                && raw.duration_ns >= self.settings.threshold_ns
                && (now >= due || all)
            {
                due = stuck.start_ns + next_age(raw.duration_ns);
                if let Some(stall) = self.pipeline.stuck(raw, stuck.kernel()) {
                    self.report(&stall)?;
                }
            }
            still.push((stuck, due));
        }
        self.stuck = still;
        Ok(())
    }

    fn loop_summaries(&mut self, now: u64) -> Vec<LoopSummary> {
        let threshold_ns = self.settings.threshold_ns;
        summary::loops(&self.kernel, &mut self.pipeline, &self.loops, now, threshold_ns)
    }

    fn exit_status(&self, child: Option<&mut super::command::Child>) -> String {
        match child.and_then(super::command::Child::status) {
            Some(status) => status.to_string(),
            None => "the target exited".to_owned(),
        }
    }

    fn finish(mut self, ended: Ended) -> Result<Outcome, WatchError> {
        self.report_ongoing(true)?;
        let now = monotonic_ns();
        let unfinished: Vec<Stall> = self.unfinished.stalls().cloned().collect();
        for stall in &unfinished {
            self.aggregate.add_unfinished(stall);
        }
        let loops = self.loop_summaries(now);
        let observed: u64 = loops.iter().map(|one| one.observed_ns).sum();
        let mut warnings = std::mem::take(&mut self.warnings);
        if let Some(error) = self.kernel.task_poll_error() {
            warnings.push(format!("task polls are not seen, turns may hold several: {error}"));
        }
        if let Some(governor) = &self.governor
            && governor.rests > 0
        {
            warnings.push(format!(
                "exact boundaries were switched off {} times to stay within the overhead budget",
                governor.rests
            ));
        }
        if self.decode_errors > 0 {
            warnings.push(format!("{} records could not be decoded", self.decode_errors));
        }
        let health =
            summary::health(&self.kernel, &self.pipeline, self.boundaries.name(), warnings);
        let summary = Summary {
            blockers: self.aggregate.blockers(observed),
            loops,
            health,
            observed_ns: now.saturating_sub(self.began_ns),
            threshold_ns: self.settings.threshold_ns,
            ended,
        };
        self.outputs.finish(&summary)?;
        Ok(Outcome { found_loops: !self.loops.is_empty(), summary })
    }
}

/// The age at which a stall is told of next: 1 s, 2 s, 4 s …
const fn next_age(age: u64) -> u64 {
    let mut next = FIRST_ONGOING_NS;
    while next <= age {
        next *= 2;
    }
    next
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
