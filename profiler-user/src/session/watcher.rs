//! The state of an observation, and what happens to it with each event and each period.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use aya::maps::{MapData, RingBuf};
use profiler_common::arch::UserRegs;
use profiler_common::config::{EPOLL_KEY, FUTEX_IDLE, FUTEX_LOCK, FUTEX_PARK, FutexKey};

use super::blocking::BlockingThreads;
use super::event_stream::StreamRecorder;
use super::found::Stuck;
use super::governor::Governor;
use super::outputs::Outputs;
use super::parked::ParkedTurns;
use super::pipeline::Pipeline;
use super::summary::{self, KnownLoop, Loops};
use super::watch::{Settings, WatchError};
use crate::aggregate::{Aggregate, Ended, Pools, Unfinished};
use crate::attach::{Boundaries, Kernel, cgroup, proc};
use crate::blame::Stall;
use crate::events::{self, CaptureEvent, Event};
use crate::record::Checkpoint;
use crate::runtimes::FutexUse;

/// An observation that goes on.
pub(super) struct Watcher<'a> {
    pub(super) settings: &'a Settings,
    pub(super) kernel: Kernel,
    pub(super) pipeline: Pipeline,
    pub(super) outputs: &'a mut Outputs,
    pub(super) aggregate: Aggregate,
    pub(super) unfinished: Unfinished,
    pub(super) loops: Loops,
    pub(super) stuck: Vec<(Stuck, u64)>,
    /// Registers of the threads that were asleep when stallscope attached.
    pub(super) found_asleep: HashMap<u32, UserRegs>,
    /// Waits that were found to lie inside of a turn, and when.
    pub(super) inside: Vec<(FutexKey, Instant)>,
    /// Epoll instances that threads were found to park in besides their first.
    pub(super) parks: Vec<FutexKey>,
    /// Loops that were looked at for where they park.
    pub(super) home_looks: usize,
    /// Turns told of before the kernel side knew that they had ended.
    pub(super) parked: ParkedTurns,
    /// Targets that are alive, children included.
    pub(super) pids: Vec<u32>,
    pub(super) boundaries: Boundaries,
    pub(super) governor: Option<Governor>,
    pub(super) armed: bool,
    pub(super) began: Instant,
    pub(super) began_ns: u64,
    /// Up to when everything was seen, once the watching has ended.
    pub(super) ended_ns: Option<u64>,
    pub(super) last_decision: Instant,
    pub(super) last_quota_look: Instant,
    pub(super) last_interval: Instant,
    pub(super) last_checkpoint: Instant,
    pub(super) pools: Pools,
    pub(super) last_pools: Instant,
    pub(super) blocking: BlockingThreads,
    pub(super) warnings: Vec<String>,
    pub(super) decode_errors: u64,
    /// Writes down what arrives, for developers.
    pub(super) recorder: Option<StreamRecorder>,
}

impl Watcher<'_> {
    /// Handles up to `most` records; returns how many there were.
    pub(super) fn drain(
        &mut self,
        ring: &mut RingBuf<MapData>,
        most: usize,
    ) -> Result<usize, WatchError> {
        let mut handled = 0;
        while handled < most {
            let Some(record) = ring.next() else {
                if self.close_parked_turns()? {
                    continue;
                }
                break;
            };
            handled += 1;
            self.record(&record)?;
            let event = events::decode(&record);
            drop(record);
            match event {
                Ok(event) => self.event(&event)?,
                Err(_) => self.decode_errors += 1,
            }
        }
        Ok(handled)
    }

    pub(super) fn record(&mut self, record: &[u8]) -> Result<(), WatchError> {
        match &mut self.recorder {
            Some(recorder) => Ok(recorder.record(record)?),
            None => Ok(()),
        }
    }

    pub(super) fn event(&mut self, event: &Event) -> Result<(), WatchError> {
        match event {
            Event::LoopFound { tgid, tid, time_ns, .. } => {
                self.found_loop(*tgid, *tid, *time_ns);
                self.look_again(*tgid)?;
                for stall in self.pipeline.proved(*tid) {
                    self.report(&stall)?;
                }
            }
            Event::FutexQuestion { address, capture } => {
                let class = if address & EPOLL_KEY != 0 {
                    self.judge_epoll(*address, capture)
                } else {
                    match self.pipeline.futex_use(capture) {
                        FutexUse::Park => FUTEX_PARK,
                        FutexUse::Lock => FUTEX_LOCK,
                        FutexUse::Idle => FUTEX_IDLE,
                    }
                };
                let CaptureEvent { tgid, tid, .. } = **capture;
                let key = FutexKey { address: *address, tgid, tid };
                self.kernel.set_futex(key, class);
                self.parked.answered(tid);
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
                self.pipeline.task_polls_found(*tgid, polls.clone());
                self.kernel.set_task_polls(*tgid, polls);
                if changes && self.armed {
                    self.kernel.disarm();
                    self.arm_again();
                }
            }
            Event::Exit { tid, .. } => {
                if let Some(known) = self.loops.get_mut(tid) {
                    summary::retire(&self.kernel, *tid, known);
                }
                self.kernel.forget_thread(*tid);
                self.blocking.forget(*tid);
                self.found_asleep.remove(tid);
                self.parks.retain(|key| key.tid != *tid);
                self.stuck.retain(|(stuck, _)| stuck.tid != *tid);
            }
            _ => {}
        }
        if let Event::Turn(turn) = event
            && self.parked.is_told(turn.tid, turn.turn.number)
        {
            return Ok(());
        }
        if let Some(stall) = self.pipeline.event(event) {
            self.report(&stall)?;
        }
        Ok(())
    }

    /// A process may have loaded its runtime after it was first looked at.
    pub(super) fn look_again(&mut self, pid: u32) -> Result<(), WatchError> {
        let symbolizer = &mut self.pipeline.symbolizer;
        self.pipeline.processes.look_again(pid, symbolizer);
        // The child of a target is not known to the kernel side as its parent is.
        self.describe_target(pid)
    }

    pub(super) fn found_loop(&mut self, pid: u32, tid: u32, since_ns: u64) {
        self.loops.entry(tid).or_insert(KnownLoop {
            pid,
            since_ns,
            last: None,
            stuck: None,
            next_report: None,
        });
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

    pub(super) fn report(&mut self, stall: &Stall) -> Result<(), WatchError> {
        for counted in self.unfinished.settle(stall) {
            if counted.ongoing {
                self.aggregate.add_unfinished(&counted);
            } else {
                self.aggregate.add(&counted);
            }
        }
        Ok(self.outputs.stall(stall)?)
    }

    /// What happens ten times a second. `behind`: records wait that say more about the turns that
    /// still last, so nothing is told of them yet.
    pub(super) fn periodic(&mut self, behind: bool) -> Result<(), WatchError> {
        self.govern()?;
        if self.last_quota_look.elapsed() >= Duration::from_secs(1) {
            self.last_quota_look = Instant::now();
            let pids = self.pids.clone();
            self.look_for_quotas(&pids)?;
        }
        self.look_at_pools();
        if self.settings.live && !behind {
            self.report_ongoing(false)?;
        }
        self.learn_homes();
        if let Some(interval) = self.settings.interval
            && self.last_interval.elapsed() >= interval
        {
            self.last_interval = Instant::now();
            let loops = self.loop_summaries();
            self.outputs.interval(&loops)?;
        }
        if self.outputs.keep_time() && self.last_checkpoint.elapsed() >= Duration::from_secs(1) {
            self.last_checkpoint = Instant::now();
            let checkpoint =
                Checkpoint { at_unix_ns: unix_ns(), summary: self.summary(Ended::Unknown) };
            self.outputs.checkpoint(&checkpoint)?;
        }
        self.outputs.tick()?;
        let (alive, dead): (Vec<_>, Vec<_>) =
            self.pids.iter().partition(|&&pid| self.is_alive(pid));
        self.pids = alive;
        for pid in dead {
            self.kernel.remove_target(pid);
            self.pipeline.python.forget(pid);
        }
        Ok(())
    }

    fn is_alive(&self, pid: u32) -> bool {
        // A child that was never looked at has no recorded start time.
        self.pipeline.processes.is_alive(pid)
            || (!self.pipeline.processes.pids().contains(&pid) && proc::is_alive(pid))
    }

    /// Once a second, measures for one period what boundaries cost, and has them rest if that is
    /// too much.
    fn govern(&mut self) -> Result<(), WatchError> {
        let Some(governor) = &mut self.governor else { return Ok(()) };
        let elapsed = self.last_decision.elapsed();
        if let Some(share) = self.kernel.end_cost() {
            self.last_decision = Instant::now();
            if governor.exceeds(share) {
                self.kernel.disarm();
                self.armed = false;
            }
            return Ok(());
        }
        if elapsed < Duration::from_secs(1) {
            return Ok(());
        }
        if governor.is_resting() {
            self.last_decision = Instant::now();
            if governor.rested(elapsed) {
                self.arm_again();
            }
        } else if !self.kernel.begin_cost() {
            self.last_decision = Instant::now();
            let hits = self.kernel.hits()?;
            let share = governor.estimate(hits, elapsed);
            if governor.exceeds(share) {
                self.kernel.disarm();
                self.armed = false;
            }
        }
        Ok(())
    }

    /// Sees every poll again. A kernel that allowed it once and refuses it now costs the exact ends of
    /// turns, not the run.
    fn arm_again(&mut self) {
        self.armed = match self.kernel.arm(self.boundaries) {
            Ok(()) => true,
            Err(error) => {
                self.governor = None;
                self.warnings.push(format!("turns are no longer seen to end exactly: {error}"));
                false
            }
        };
    }

    /// Whether any target is under a limit of CPU time; a limit may come and go.
    pub(super) fn look_for_quotas(&mut self, pids: &[u32]) -> Result<(), WatchError> {
        let limited = pids.iter().any(|&pid| cgroup::quota(pid).is_some());
        Ok(self.kernel.set_quotas_matter(limited)?)
    }
}

/// Now, in nanoseconds since the epoch.
fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
