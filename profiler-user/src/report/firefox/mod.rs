//! Firefox Profiler's processed format: one track per loop, a marker for each stall, and the stacks
//! weighted by milliseconds of stall. Opens at profiler.firefox.com, which reads it locally.

mod marker;
mod places;

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame as ProfileFrame, FrameFlags, FrameInfo,
    MarkerTiming, ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle,
    ThreadHandle, Timestamp, WeightType,
};

use self::marker::StallMarker;
use self::places::Places;
use super::settled::Settled;
use super::{Report, ReportOptions};
use crate::aggregate::{NO_STACK, Share, Summary, shares};
use crate::blame::Stall;
use crate::stalls::Cause;
use crate::symbolize::printable;

/// Collects stalls and writes the profile at the end.
#[derive(Debug)]
pub struct Firefox {
    profile: Profile,
    settled: Settled,
    categories: HashMap<Cause, CategoryHandle>,
    processes: HashMap<u32, ProcessHandle>,
    threads: HashMap<(u32, u32), ThreadHandle>,
    places: Places,
    began_unix_ns: u64,
    /// Stalled time so far, and the microseconds given out for it: the rounding is carried along.
    total_ns: u64,
    given_micros: u64,
}

impl Firefox {
    /// Without stalls.
    #[must_use]
    pub fn new(options: &ReportOptions) -> Self {
        let start = &options.start;
        let reference = Duration::from_nanos(start.began_unix_ns);
        let mut profile = Profile::new(
            &format!("stallscope: {}", printable(&start.subject)),
            ReferenceTimestamp::from_duration_since_unix_epoch(reference),
            SamplingInterval::from_millis(1),
        );
        if !start.kernel.is_empty() {
            profile.set_os_name(&format!("Linux {}", printable(&start.kernel)));
        }
        profile.set_symbolicated(true);
        let categories = Cause::ALL
            .into_iter()
            .map(|cause| (cause, profile.add_category(cause.name(), color(cause))))
            .collect();
        Self {
            profile,
            settled: Settled::default(),
            categories,
            processes: HashMap::new(),
            threads: HashMap::new(),
            places: Places::default(),
            began_unix_ns: start.began_unix_ns,
            total_ns: 0,
            given_micros: 0,
        }
    }

    fn count(&mut self, stall: &Stall) {
        if self.began_unix_ns == 0 {
            // Nobody said when it began: it begins with the first stall.
            self.began_unix_ns = stall.start_unix_ns;
            let reference = Duration::from_nanos(stall.start_unix_ns);
            let reference = ReferenceTimestamp::from_duration_since_unix_epoch(reference);
            self.profile.set_reference_timestamp(reference);
        }
        let thread = self.thread(stall);
        let began = stall.start_unix_ns.saturating_sub(self.began_unix_ns);
        let mut at = began;
        let (mut heaviest, mut heaviest_ns) = (None, 0);
        for share in shares(stall) {
            let stack = self.stack(thread, &share);
            if share.ns > heaviest_ns {
                (heaviest, heaviest_ns) = (stack, share.ns);
            }
            self.sample(thread, at, stack, &share);
            at = at.saturating_add(share.ns);
        }
        let timing = MarkerTiming::Interval(timestamp(began), timestamp(at));
        let category = self.category(stall.cause);
        let marker = StallMarker::new(&mut self.profile, stall, category);
        let marker = self.profile.add_marker(thread, timing, marker);
        self.profile.set_marker_stack(thread, marker, heaviest);
    }

    /// One sample, or more where the time does not fit into one.
    fn sample(
        &mut self,
        thread: ThreadHandle,
        at_ns: u64,
        stack: Option<StackHandle>,
        share: &Share<'_>,
    ) {
        self.total_ns = self.total_ns.saturating_add(share.ns);
        let micros = (self.total_ns.saturating_add(500) / 1000).saturating_sub(self.given_micros);
        self.given_micros += micros;
        let cpu_ns = if share.cause == Cause::Cpu { share.ns } else { 0 };
        let mut left = micros;
        let mut cpu = CpuDelta::from_nanos(cpu_ns);
        while left > 0 {
            let weight = i32::try_from(left).unwrap_or(i32::MAX);
            self.profile.add_sample(thread, timestamp(at_ns), stack, cpu, weight);
            left -= u64::from(weight.unsigned_abs());
            cpu = CpuDelta::from_nanos(0);
        }
    }

    fn category(&self, cause: Cause) -> CategoryHandle {
        self.categories.get(&cause).copied().unwrap_or(CategoryHandle::OTHER)
    }

    fn thread(&mut self, stall: &Stall) -> ThreadHandle {
        if let Some(&known) = self.threads.get(&(stall.pid, stall.tid)) {
            return known;
        }
        let name = printable(&stall.thread);
        let start = timestamp(0);
        let process = *self
            .processes
            .entry(stall.pid)
            .or_insert_with(|| self.profile.add_process(&name, stall.pid, start));
        let is_main = stall.pid == stall.tid;
        let thread = self.profile.add_thread(process, stall.tid, start, is_main);
        let shown = format!("{name} ({})", stall.runtime.name());
        self.profile.set_thread_name(thread, &shown);
        self.profile.set_thread_samples_weight_type(thread, WeightType::TracingMs);
        self.profile.set_thread_show_markers_in_timeline(thread, true);
        self.threads.insert((stall.pid, stall.tid), thread);
        thread
    }

    /// The cause, then the frames.
    fn stack(&mut self, thread: ThreadHandle, share: &Share<'_>) -> Option<StackHandle> {
        let category = self.category(share.cause);
        let mut labels = vec![self.places.word(share.cause.name())];
        match share.stack {
            Some(stack) if !stack.frames.is_empty() => {
                labels.extend(stack.frames.iter().map(|frame| self.places.of(frame)));
            }
            None if !share.uncovered => {}
            _ => labels.push(self.places.word(NO_STACK)),
        }
        let labels: Vec<_> = labels.iter().map(|label| self.profile.intern_string(label)).collect();
        let frames = labels.into_iter().map(|label| FrameInfo {
            frame: ProfileFrame::Label(label),
            category_pair: category.into(),
            flags: FrameFlags::empty(),
        });
        self.profile.intern_stack_frames(thread, frames)
    }
}

impl Report for Firefox {
    fn stall(&mut self, _out: &mut dyn Write, stall: &Stall) -> io::Result<()> {
        let mut settled = std::mem::take(&mut self.settled);
        settled.add(stall, |stall| self.count(stall));
        self.settled = settled;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write, _summary: &Summary) -> io::Result<()> {
        let mut settled = std::mem::take(&mut self.settled);
        settled.finish(|stall| self.count(stall));
        let mut profile = serde_json::to_value(&self.profile)?;
        self.places.put(&mut profile);
        serde_json::to_writer(&mut *out, &profile)?;
        out.write_all(b"\n")?;
        out.flush()
    }
}

fn timestamp(ns: u64) -> Timestamp {
    Timestamp::from_nanos_since_reference(ns)
}

const fn color(cause: Cause) -> CategoryColor {
    match cause {
        Cause::Cpu => CategoryColor::Orange,
        Cause::Syscall => CategoryColor::Blue,
        Cause::Lock => CategoryColor::Purple,
        Cause::Gil => CategoryColor::Magenta,
        Cause::Fault => CategoryColor::Brown,
        Cause::Runqueue => CategoryColor::Gray,
        Cause::Throttled => CategoryColor::Red,
        Cause::Stopped => CategoryColor::DarkGray,
        Cause::Unexplained => CategoryColor::Yellow,
    }
}
