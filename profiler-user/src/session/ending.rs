//! How everything stands, and how it ends.

use profiler_common::turn::ThreadState;

use super::command::Child;
use super::summary::{self, States};
use super::watch::{Outcome, WatchError};
use super::watcher::Watcher;
use crate::aggregate::{Ended, LoopSummary, Summary};
use crate::attach::Boundaries;
use crate::blame::{Runtime, Stall};
use crate::events::monotonic_ns;

impl Watcher<'_> {
    /// How tasks' polls were told apart, if there were any.
    fn task_poll_method(&self) -> Option<&'static str> {
        let mut pids = self.pipeline.processes.pids();
        pids.retain(|&pid| self.pipeline.processes.runtime(pid) == Runtime::Tokio);
        pids.first()?;
        let seen = self.boundaries != Boundaries::Sched
            && pids.iter().all(|&pid| self.kernel.sees_task_polls(pid));
        let rests = self.governor.as_ref().is_some_and(|governor| governor.rests > 0);
        Some(match (seen, rests) {
            (false, _) => "turns and samples",
            (true, true) => "exact in slices",
            (true, false) => "exact",
        })
    }

    pub(super) fn loop_summaries(&mut self) -> Vec<LoopSummary> {
        let threshold_ns = self.settings.threshold_ns;
        let states = States { kernel: &self.kernel, ended_ns: self.ended_ns, threshold_ns };
        summary::loops(&states, &mut self.pipeline, &self.loops)
    }

    /// Ends the watching at one moment for all threads. What is read of the kernel side from then on
    /// agrees with itself, and with the records that still wait.
    pub(super) fn freeze(&mut self) -> Result<(), WatchError> {
        self.ended_ns = Some(self.kernel.freeze()?);
        Ok(())
    }

    /// The moment of which a state tells that was read just now. Not earlier: the state has all the
    /// time until it was read.
    pub(super) fn now_of(&self, state: &ThreadState) -> u64 {
        summary::now_of(self.ended_ns, state)
    }

    pub(super) fn exit_status(&self, child: Option<&mut Child>) -> String {
        match child.and_then(Child::status) {
            Some(status) => status.to_string(),
            None => "status unknown".to_owned(),
        }
    }

    pub(super) fn finish(mut self, ended: Ended) -> Result<Outcome, WatchError> {
        if let Some(recorder) = self.recorder.take() {
            recorder.finish(&mut self.pipeline.symbolizer)?;
        }
        let unfinished: Vec<Stall> = self.unfinished.stalls().cloned().collect();
        for stall in &unfinished {
            self.aggregate.add_unfinished(stall);
        }
        let mut summary = self.summary(ended);
        let observed: u64 = summary.loops.iter().map(|one| one.observed_ns).sum();
        summary.blockers = self.aggregate.blockers(observed);
        self.outputs.finish(&summary)?;
        Ok(Outcome { found_loops: !self.loops.is_empty(), summary })
    }

    /// How everything stands, but for the blockers.
    pub(super) fn summary(&mut self, ended: Ended) -> Summary {
        let now = self.ended_ns.unwrap_or_else(monotonic_ns);
        let mut warnings = self.warnings.clone();
        if let Some(error) = self.kernel.task_poll_error() {
            warnings.push(format!("task polls are not seen, turns may hold several: {error}"));
        }
        if let Some(governor) = &self.governor
            && governor.rests > 0
        {
            warnings.push(format!(
                "exact boundaries were switched off {} times to stay within the overhead budget \
                 (--overhead-budget): they cost up to {:.1} % of a CPU",
                governor.rests,
                governor.highest * 100.0
            ));
        }
        if self.decode_errors > 0 {
            warnings.push(format!("{} records could not be decoded", self.decode_errors));
        }
        let polls = self.task_poll_method();
        for pid in self.pipeline.unseen_polls() {
            warnings.push(format!(
                "it could not be told where process {pid} polls its tasks (no symbols?): a turn may \
                 hold several"
            ));
        }
        for pid in self.pipeline.processes.pids() {
            if self.pipeline.processes.is_stripped(pid) {
                warnings.push(format!(
                    "process {pid} has no symbols: where tokio parks and polls its tasks was told by \
                     what its code refers to"
                ));
            }
        }
        let health =
            summary::health(&self.kernel, &self.pipeline, self.boundaries.name(), polls, warnings);
        Summary {
            pools: self.pools.summaries(),
            blockers: Vec::new(),
            loops: self.loop_summaries(),
            health,
            observed_ns: now.saturating_sub(self.began_ns),
            threshold_ns: self.settings.threshold_ns,
            ended,
            filtered: false,
        }
    }
}
