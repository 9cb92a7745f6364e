//! What the page knows: the stalls as compact JSON, in which strings, frames and stacks stand once.
//!
//! `data.js` reads it back; the names of the fields are short because there may be many stalls.

use std::collections::{BTreeMap, HashMap};
use std::io;

use serde::Serialize;
use serde_json::{Map, Value};

use super::Point;
use crate::aggregate::{Ended, LoopSummary, Summary, headline_word};
use crate::blame::{Boundary, Stall};
use crate::report::ReportOptions;
use crate::report::source::SourceLines;
use crate::stalls::{Cause, Ledger};
use crate::symbolize::{Frame, FrameKind, printable};

/// Fields of a stall that the page shows in its own way. What else a stall has is shown as it is.
const KNOWN: [&str; 19] = [
    "start_unix_ns",
    "duration_ns",
    "ongoing",
    "at_attach",
    "pid",
    "tid",
    "thread",
    "runtime",
    "ledger",
    "cause",
    "detail",
    "boundary",
    "kernel_share",
    "syscalls",
    "blocker",
    "stacks",
    "outside",
    "task",
    "advice",
];
/// The same of a summary.
const KNOWN_OF_SUMMARY: [&str; 6] =
    ["loops", "blockers", "health", "observed_ns", "threshold_ns", "ended"];

/// A string in the table.
type Text = u32;

#[derive(Debug, Default)]
pub(super) struct Data {
    strings: Vec<String>,
    string_ids: HashMap<String, Text>,
    frames: Vec<FrameRow>,
    frame_ids: HashMap<Frame, u32>,
    stacks: Vec<Vec<u32>>,
    stack_ids: HashMap<Vec<u32>, u32>,
    loops: Vec<(u32, u32, String, &'static str)>,
    loop_ids: HashMap<(u32, u32), u32>,
    stalls: Vec<StallRow>,
}

/// Name, file, line, module, kind, flags (1: inlined, 2: the user's own), source line.
#[derive(Debug, Serialize)]
struct FrameRow(Text, Option<Text>, Option<u32>, Option<Text>, FrameKind, u8, Option<Text>);

#[derive(Debug, Serialize)]
struct StallRow {
    /// Start: since the epoch until it is written, then since the beginning.
    t: i64,
    d: u64,
    l: u32,
    g: [u64; Cause::ALL.len()],
    c: u8,
    w: Option<Text>,
    b: Option<BlockerRow>,
    k: Vec<StackRow>,
    y: Vec<SyscallRow>,
    j: Option<(Text, Vec<Text>)>,
    o: Option<(Text, Text)>,
    a: Option<Text>,
    f: u8,
    ks: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    x: Option<Value>,
}

/// Function, file, line, share of the cause, kind.
type BlockerRow = (Text, Option<Text>, Option<u32>, f64, FrameKind);

/// Name, count, time together, longest, resource.
type SyscallRow = (Text, u32, u64, u64, Option<Text>);

/// Cause, time, samples, stack, why it ends early, holder.
#[derive(Debug, Serialize)]
struct StackRow(u8, u64, u32, u32, Option<Text>, Option<(u32, Text, u32)>);

#[derive(Serialize)]
struct LoopRow<'a> {
    pid: u32,
    tid: u32,
    thread: &'a str,
    runtime: &'static str,
    observed: u64,
    turns: u64,
    utilization: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
    stalls: u64,
    ledger: [u64; Cause::ALL.len()],
    histogram: &'a [(u64, u64)],
    /// Since the beginning, turns, busy time.
    series: Vec<(i64, u64, u64)>,
}

#[derive(Serialize)]
struct Page<'a> {
    version: &'static str,
    subject: &'a str,
    host: &'a str,
    kernel: &'a str,
    began: u64,
    observed: u64,
    threshold: u64,
    ended: String,
    boundaries: &'a str,
    losses: Vec<(&'a str, u64)>,
    warnings: &'a [String],
    licences: &'a str,
    extra: Option<Value>,
    strings: &'a [String],
    frames: &'a [FrameRow],
    stacks: &'a [Vec<u32>],
    loops: Vec<LoopRow<'a>>,
    stalls: &'a [StallRow],
}

impl Data {
    /// Adds a stall that counts.
    pub(super) fn add(&mut self, stall: &Stall, sources: &mut SourceLines) {
        let stacks = stall
            .stacks
            .iter()
            .map(|stack| {
                let holder = stack.holder.as_ref().map(|holder| {
                    let frames = self.stack(stall.pid, &holder.frames, sources);
                    (holder.tid, self.text(&holder.thread), frames)
                });
                let frames = self.stack(stall.pid, &stack.frames, sources);
                let truncated = self.maybe(stack.truncated);
                let cause = stack.cause as u8;
                StackRow(cause, stack.total_ns, stack.samples, frames, truncated, holder)
            })
            .collect();
        let upper_bound = stall.boundary == Boundary::UpperBound && !stall.at_attach;
        let flags = [stall.ongoing, stall.at_attach, upper_bound];
        let row = StallRow {
            t: i64::try_from(stall.start_unix_ns).unwrap_or(0),
            d: stall.duration_ns,
            l: self.loop_of(stall),
            g: by_cause(&stall.ledger),
            c: stall.cause as u8,
            w: self.maybe(headline_word(stall)),
            b: stall.blocker.as_ref().map(|b| {
                let file = self.maybe(b.file.as_deref());
                (self.text(&b.function), file, b.line, b.share, b.kind)
            }),
            k: stacks,
            y: stall
                .syscalls
                .iter()
                .map(|call| {
                    let resource = self.maybe(call.resource.as_deref());
                    (self.text(call.name), call.count, call.total_ns, call.max_ns, resource)
                })
                .collect(),
            j: stall.task.as_ref().map(|task| {
                let chain = task.chain.iter().map(|name| self.text(name)).collect();
                (self.text(&task.name), chain)
            }),
            o: stall.outside.as_ref().map(|o| (self.text(o.what), self.text(&o.who))),
            a: self.maybe(stall.advice.as_deref()),
            f: flags.iter().enumerate().map(|(bit, &set)| u8::from(set) << bit).sum(),
            ks: stall.kernel_share,
            x: unknown_fields(stall),
        };
        self.stalls.push(row);
    }

    fn text(&mut self, text: &str) -> Text {
        let text = printable(text);
        if let Some(&known) = self.string_ids.get(&*text) {
            return known;
        }
        let new = self.strings.len() as Text;
        self.strings.push(text.clone().into_owned());
        self.string_ids.insert(text.into_owned(), new);
        new
    }

    fn maybe(&mut self, text: Option<&str>) -> Option<Text> {
        text.map(|text| self.text(text))
    }

    fn stack(&mut self, pid: u32, frames: &[Frame], sources: &mut SourceLines) -> u32 {
        let ids: Vec<u32> = frames.iter().map(|frame| self.frame(pid, frame, sources)).collect();
        if let Some(&known) = self.stack_ids.get(&ids) {
            return known;
        }
        let new = self.stacks.len() as u32;
        self.stacks.push(ids.clone());
        self.stack_ids.insert(ids, new);
        new
    }

    fn frame(&mut self, pid: u32, frame: &Frame, sources: &mut SourceLines) -> u32 {
        if let Some(&known) = self.frame_ids.get(frame) {
            return known;
        }
        let source = if frame.user_code { sources.of(pid, frame) } else { None };
        let row = FrameRow(
            self.text(&frame.function),
            self.maybe(frame.file.as_deref()),
            frame.line,
            self.maybe(frame.module.as_deref()),
            frame.kind,
            u8::from(frame.inlined) | u8::from(frame.user_code) << 1,
            self.maybe(source.as_deref()),
        );
        let new = self.frames.len() as u32;
        self.frames.push(row);
        self.frame_ids.insert(frame.clone(), new);
        new
    }

    fn loop_of(&mut self, stall: &Stall) -> u32 {
        let new = self.loops.len() as u32;
        *self.loop_ids.entry((stall.pid, stall.tid)).or_insert_with(|| {
            let thread = printable(&stall.thread).into_owned();
            self.loops.push((stall.pid, stall.tid, thread, stall.runtime.name()));
            new
        })
    }

    /// The JSON, fit to stand inside an element of a page.
    pub(super) fn json(
        mut self,
        options: &ReportOptions,
        summary: &Summary,
        series: &BTreeMap<(u32, u32), Vec<Point>>,
        licences: &str,
    ) -> io::Result<String> {
        let start = &options.start;
        let first = self.stalls.iter().map(|stall| stall.t).min().unwrap_or(0);
        let began = if start.began_unix_ns > 0 {
            i64::try_from(start.began_unix_ns).unwrap_or(first)
        } else {
            first
        };
        self.stalls.iter_mut().for_each(|stall| stall.t -= began);
        self.stalls.sort_by_key(|stall| stall.t);
        let loops = self.loop_rows(summary, series, began);
        let health = &summary.health;
        let fixed = [
            ("events lost", health.lost_events),
            ("stacks incomplete", health.truncated_stacks),
            ("reads of the target failed", health.failed_reads),
            ("frames without a symbol", health.unsymbolized_frames),
        ];
        let named = health.losses.iter().map(|(name, n)| (name.as_str(), *n));
        let page = Page {
            version: env!("CARGO_PKG_VERSION"),
            subject: &printable(&start.subject),
            host: &printable(&start.host),
            kernel: if start.kernel.is_empty() { &health.kernel } else { &start.kernel },
            began: u64::try_from(began).unwrap_or(0),
            observed: summary.observed_ns,
            threshold: summary.threshold_ns,
            ended: match &summary.ended {
                Ended::Duration => "the time was over".to_owned(),
                Ended::Interrupted => "interrupted".to_owned(),
                Ended::Unknown => "unknown".to_owned(),
                Ended::TargetExited { status } => format!("the target exited: {status}"),
            },
            boundaries: match health.boundaries {
                "fentry" => "exact (fentry on the polls)",
                "sys_enter" => "exact (the sys_enter tracepoint)",
                "sched" => "from sleeps alone (sched_switch)",
                other => other,
            },
            losses: fixed.into_iter().chain(named).filter(|&(_, n)| n > 0).collect(),
            warnings: &health.warnings,
            licences,
            extra: without(serde_json::to_value(summary)?, &KNOWN_OF_SUMMARY),
            strings: &self.strings,
            frames: &self.frames,
            stacks: &self.stacks,
            loops,
            stalls: &self.stalls,
        };
        // `<` could begin a tag that ends the element; inside JSON strings it can be written so.
        Ok(serde_json::to_string(&page)?.replace('<', "\\u003c"))
    }

    /// One row for each loop that stalled, in the order of the stalls' indexes, then the others.
    fn loop_rows<'a>(
        &'a self,
        summary: &'a Summary,
        series: &BTreeMap<(u32, u32), Vec<Point>>,
        began: i64,
    ) -> Vec<LoopRow<'a>> {
        let find = |pid, tid| summary.loops.iter().find(|one| (one.pid, one.tid) == (pid, tid));
        let series = |pid, tid| -> Vec<(i64, u64, u64)> {
            let points = series.get(&(pid, tid)).map_or(&[][..], Vec::as_slice);
            let relative = |at| i64::try_from(at).unwrap_or(began) - began;
            points.iter().map(|&(at, turns, busy)| (relative(at), turns, busy)).collect()
        };
        let mut rows: Vec<LoopRow<'a>> = Vec::new();
        for (pid, tid, thread, runtime) in &self.loops {
            rows.push(row(*pid, *tid, thread, runtime, find(*pid, *tid), series(*pid, *tid)));
        }
        for one in &summary.loops {
            if !self.loop_ids.contains_key(&(one.pid, one.tid)) {
                let points = series(one.pid, one.tid);
                let name = one.runtime.name();
                rows.push(row(one.pid, one.tid, &one.thread, name, Some(one), points));
            }
        }
        rows
    }
}

fn row<'a>(
    pid: u32,
    tid: u32,
    thread: &'a str,
    runtime: &'static str,
    known: Option<&'a LoopSummary>,
    series: Vec<(i64, u64, u64)>,
) -> LoopRow<'a> {
    let number = |of: fn(&LoopSummary) -> u64| known.map_or(0, of);
    LoopRow {
        pid,
        tid,
        thread,
        runtime,
        observed: number(|one| one.observed_ns),
        turns: number(|one| one.turns),
        utilization: known.map_or(0.0, |one| one.utilization),
        p50: number(|one| one.turn_p50_ns),
        p90: number(|one| one.turn_p90_ns),
        p99: number(|one| one.turn_p99_ns),
        p999: number(|one| one.turn_p999_ns),
        max: number(|one| one.turn_max_ns),
        stalls: number(|one| one.stalls),
        ledger: known.map_or_else(Default::default, |one| by_cause(&one.ledger)),
        histogram: known.map_or(&[], |one| &one.turn_histogram),
        series,
    }
}

fn by_cause(ledger: &Ledger) -> [u64; Cause::ALL.len()] {
    Cause::ALL.map(|cause| ledger.get(cause))
}

/// What a stall says that the page has no place of its own for.
fn unknown_fields(stall: &Stall) -> Option<Value> {
    let mut bare = Stall { stacks: Vec::new(), ..stall.clone() };
    if bare.parts.len() < 2 {
        // One part is the whole stall.
        bare.parts.clear();
    }
    without(serde_json::to_value(bare).ok()?, &KNOWN)
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// An object without these fields and without what is not known; `None` if nothing is left.
fn without(value: Value, fields: &[&str]) -> Option<Value> {
    let Value::Object(object) = value else { return None };
    let rest: Map<String, Value> = object
        .into_iter()
        .filter(|(name, value)| !fields.contains(&name.as_str()) && !is_empty(value))
        .collect();
    (!rest.is_empty()).then_some(Value::Object(rest))
}
