//! A recording told again: each stall once, with its last word, and a summary of what was told.

use std::io;

use super::entry::{Checkpoint, Entry};
use super::reader::Reader;
use crate::aggregate::{
    Aggregate, Ended, Filter, Health, LoopSummary, Summary, Unfinished, between,
};
use crate::blame::Stall;

/// What a recording tells in between.
#[derive(Debug, Clone, Copy)]
pub enum Told<'a> {
    /// A stall that passed the filter; told once, in the order in which stalls ended.
    Stall(&'a Stall),
    /// How the loops were doing.
    Checkpoint(&'a Checkpoint),
}

/// Tells a recording through a filter, and returns its summary.
///
/// # Errors
/// Whatever `tell` answers.
pub fn replay(
    reader: &mut Reader,
    filter: &Filter,
    mut tell: impl FnMut(Told<'_>) -> io::Result<()>,
) -> io::Result<Summary> {
    let mut unfinished = Unfinished::default();
    let mut aggregate = Aggregate::new();
    let (mut end, mut last) = (None, None::<Box<Checkpoint>>);
    let mut latest_ns = 0;
    let mut window = Window::default();
    for entry in reader.by_ref() {
        match entry {
            Entry::Start(_) => {}
            Entry::Stall(stall) => {
                latest_ns = latest_ns.max(stall.start_unix_ns.saturating_add(stall.duration_ns));
                for stall in unfinished.settle(&stall) {
                    if filter.passes(&stall) {
                        aggregate.add_unfinished(&stall);
                        tell(Told::Stall(&stall))?;
                    }
                }
            }
            Entry::Checkpoint(checkpoint) => {
                latest_ns = latest_ns.max(checkpoint.at_unix_ns);
                window.see(filter, &checkpoint);
                if filter.covers(checkpoint.at_unix_ns) {
                    tell(Told::Checkpoint(&checkpoint))?;
                }
                last = Some(checkpoint);
            }
            Entry::End(summary) => end = Some(*summary),
        }
    }
    for stall in unfinished.stalls().filter(|stall| filter.passes(stall)) {
        aggregate.add_unfinished(stall);
        tell(Told::Stall(stall))?;
    }
    let finished = end.is_some();
    let last_state_ns = last.as_ref().map_or(0, |last| last.at_unix_ns);
    let mut summary = end.or_else(|| last.map(|last| last.summary)).unwrap_or_else(nothing);
    if summary.threshold_ns == 0 {
        summary.threshold_ns = reader.start().threshold_ns;
    }
    if !finished {
        summary.ended = Ended::Unknown;
        let began = reader.start().began_unix_ns;
        if began > 0 {
            summary.observed_ns = summary.observed_ns.max(latest_ns.saturating_sub(began));
        }
        if last_state_ns > 0 {
            // Stalls that came after the loops' last state were watched for as well.
            let after_ns = latest_ns.saturating_sub(last_state_ns);
            for one in &mut summary.loops {
                one.observed_ns = one.observed_ns.saturating_add(after_ns);
            }
        }
        summary.health.warnings.push(
            "the recording has no end: stallscope was killed, or the file is cut off".to_owned(),
        );
    }
    let start = reader.start();
    if start.dropped_bytes > 0 {
        summary.health.warnings.push(format!(
            "the oldest {} stalls were dropped to keep the recording within its bound",
            start.dropped_stalls
        ));
    }
    summary.health.warnings.extend(reader.damage().warnings());
    if let Some(renamer) = reader.renamer() {
        summary.health.warnings.extend(renamer.warnings());
    }
    let loops_of = window.narrow(&mut summary, start.began_unix_ns, latest_ns);
    filter.narrow(&mut summary, start.began_unix_ns, loops_of);
    let observed: u64 = summary.loops.iter().map(|one| one.observed_ns).sum();
    summary.blockers = aggregate.blockers(observed);
    Ok(summary)
}

/// The loops' states next to the ends of the window that a filter chooses.
#[derive(Debug, Default)]
struct Window {
    /// The last one before it.
    before: Option<(u64, Vec<LoopSummary>)>,
    /// The first one behind it.
    behind: Option<(u64, Vec<LoopSummary>)>,
}

impl Window {
    fn see(&mut self, filter: &Filter, checkpoint: &Checkpoint) {
        let at = checkpoint.at_unix_ns;
        if filter.since_unix_ns.is_some_and(|since| at <= since) {
            self.before = Some((at, checkpoint.summary.loops.clone()));
        }
        if self.behind.is_none() && filter.until_unix_ns.is_some_and(|until| at >= until) {
            self.behind = Some((at, checkpoint.summary.loops.clone()));
        }
    }

    /// Makes the loops' numbers those of the window; gives the time that they are of, `None` if that
    /// is the whole recording.
    fn narrow(self, summary: &mut Summary, began_ns: u64, latest_ns: u64) -> Option<(u64, u64)> {
        if self.before.is_none() && self.behind.is_none() {
            return None;
        }
        let ended = began_ns.saturating_add(summary.observed_ns).max(latest_ns);
        let (to, after) = self.behind.unwrap_or((ended, std::mem::take(&mut summary.loops)));
        let (from, before) = self.before.unwrap_or((began_ns, Vec::new()));
        summary.loops = between(&before, &after);
        Some((from, to))
    }
}

/// What is known if neither an end nor a checkpoint was read.
fn nothing() -> Summary {
    Summary {
        loops: Vec::new(),
        pools: Vec::new(),
        blockers: Vec::new(),
        health: Health::default(),
        observed_ns: 0,
        threshold_ns: 0,
        filtered: false,
        ended: Ended::Unknown,
    }
}
