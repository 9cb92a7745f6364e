//! The text report: what people look at all day.
//!
//! A stall whose like was shown before gets a headline and its ledger only, so that what is new
//! stands out.

mod candidates;
mod clock;
mod headline;
mod ledger;
mod line;
mod parts;
mod pools;
mod stack;
mod summary;
mod table;

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use self::line::{Line, Tone, flow, keep_end, keep_start, printable, wrap};
use self::stack::StackStyle;
pub use table::LoopTable;

use super::source::SourceLines;
use super::{Report, ReportOptions, quantity};
use crate::aggregate::{BlockerKey, Summary, continues};
use crate::blame::{Boundary, Holder, Stack, Stall};
use crate::stalls::Cause;

/// Where the lines below a headline begin.
const INDENT: usize = 4;
/// Columns of the label at the beginning of such a line.
const LABEL: usize = 10;
/// Blockers whose details are remembered as shown; then all are forgotten.
const MAX_SHOWN: usize = 4096;
/// Further stacks named in one line each.
const MAX_ALSO: usize = 3;

/// Writes headlines, ledgers and stacks as stalls happen, and a summary at the end.
#[derive(Debug)]
pub struct Text {
    options: ReportOptions,
    sources: SourceLines,
    /// Stalls numbered so far.
    numbered: u64,
    /// The number under which a stack was shown in full.
    shown: HashMap<ShownKey, u64>,
    /// Each thread's stall that still lasts: number, start and length when last told.
    ongoing: HashMap<(u32, u32), (u64, u64, u64)>,
    /// Stalls whose end was told with a `≤`.
    upper_bounds: u64,
    /// Whether the last stall was shown with its details; `None` before the first.
    last_detailed: Option<bool>,
}

/// What makes the details of two stalls the same: the blocker, the way there through the user's own
/// functions, and the holder's place.
type ShownKey = (BlockerKey, Vec<Arc<str>>, Option<String>);

impl Text {
    /// A report that begins with stall number 1.
    #[must_use]
    pub fn new(options: ReportOptions) -> Self {
        let options = ReportOptions { width: options.width.clamp(80, 200), ..options };
        let sources = SourceLines::new(options.sources.clone());
        Self {
            options,
            sources,
            numbered: 0,
            shown: HashMap::new(),
            ongoing: HashMap::new(),
            upper_bounds: 0,
            last_detailed: None,
        }
    }

    /// The number of a stall: a new one, unless it was told of while it lasted.
    fn number(&mut self, stall: &Stall) -> u64 {
        let thread = (stall.pid, stall.tid);
        let number = match self.ongoing.remove(&thread) {
            Some((number, start, length)) if continues(start, length, stall) => number,
            _ => {
                self.numbered += 1;
                self.numbered
            }
        };
        if stall.ongoing {
            self.ongoing.insert(thread, (number, stall.start_unix_ns, stall.duration_ns));
        }
        number
    }

    /// The lines of one stall, and whether its details are among them.
    fn lines(&mut self, stall: &Stall) -> (Vec<Line>, bool) {
        let columns = self.options.width;
        let number = self.number(stall);
        let mut lines = headline::headline(stall, number, self.options.clock, columns);
        if self.options.quiet {
            return (lines, false);
        }
        if self.shown.len() >= MAX_SHOWN {
            self.shown.clear();
        }
        let key = shown_key(stall);
        if let Some(&first) = self.shown.get(&key)
            && self.options.verbose < 2
        {
            lines.extend(brief(stall, number, first, columns));
            return (lines, false);
        }
        self.shown.entry(key).or_insert(number);
        lines.extend(context(stall, columns));
        lines.extend(ledger::bars(&stall.ledger));
        lines.extend(ledger::syscalls(stall, self.options.verbose > 0, columns));
        lines.extend(ledger::mapped_files(stall, columns));
        lines.extend(parts::lines(stall, columns));
        lines.extend(self.stacks(stall));
        lines.extend(outside(stall, columns));
        lines.extend(impact(stall));
        if let Some(advice) = &stall.advice {
            lines.extend(paragraph("advice", Tone::Advice, advice, columns));
        }
        (lines, true)
    }

    /// The heaviest stack of the cause and, in one line each, what else there was. Where no code
    /// is to blame, a stack would only accuse the victim: it is shown if asked for.
    fn stacks(&mut self, stall: &Stall) -> Vec<Line> {
        let verbose = self.options.verbose;
        if !stall.cause.has_blocker() && verbose == 0 {
            return Vec::new();
        }
        let mut stacks: Vec<&Stack> = stall.stacks.iter().collect();
        if verbose < 2 && stall.cause.has_blocker() {
            stacks.retain(|stack| stack.cause == stall.cause);
        }
        stacks.sort_by_key(|stack| (stack.cause != stall.cause, std::cmp::Reverse(stack.total_ns)));
        let Some((heaviest, others)) = stacks.split_first() else {
            return vec![labelled("stack").with(Tone::Dim, "none was captured")];
        };
        let mut lines = self.stack(stall, heaviest);
        if verbose >= 2 {
            for stack in others {
                lines.extend(self.stack(stall, stack));
            }
        } else {
            lines.extend(also(stall, heaviest, others, self.options.width));
        }
        lines
    }

    fn stack(&mut self, stall: &Stall, stack: &Stack) -> Vec<Line> {
        let seen = if stack.cause == Cause::Cpu { "sample" } else { "sleep" };
        let title = format!(
            "{} of {}, {}; innermost call first",
            share_of_cause(stall, stack),
            stack.cause.name(),
            quantity::counted(u64::from(stack.samples), seen),
        );
        let mut lines = vec![labelled("stack").with(Tone::Dim, &title)];
        let mut style = StackStyle {
            blocker: stall.blocker.as_ref(),
            pid: stall.pid,
            all: self.options.verbose > 0,
            columns: self.options.width,
        };
        lines.extend(stack::draw(&stack.frames, &style, &mut self.sources));
        if let Some(reason) = stack.truncated {
            let text = format!("incomplete: {reason}");
            lines.push(Line::indented(INDENT * 2).with(Tone::Warning, &text));
        }
        if let Some(holder) = &stack.holder {
            style.blocker = None;
            lines.push(held_by(holder, stall.waits_for_a_thread()));
            lines.extend(stack::draw(&holder.frames, &style, &mut self.sources));
        }
        lines.extend(candidates::lines(&stack.candidates, self.options.width));
        lines
    }
}

impl Report for Text {
    fn stall(&mut self, out: &mut dyn Write, stall: &Stall) -> io::Result<()> {
        let at_most = stall.boundary == Boundary::UpperBound && !stall.at_attach;
        if !stall.ongoing && at_most {
            self.upper_bounds += 1;
        }
        let (lines, detailed) = self.lines(stall);
        // Brief stalls stand close together; details stand apart.
        if self.last_detailed.is_some_and(|last| last || detailed) {
            out.write_all(b"\n")?;
        }
        self.last_detailed = Some(detailed);
        for line in lines {
            line.write(out, self.options.color)?;
        }
        out.flush()
    }

    fn finish(&mut self, out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
        if self.last_detailed.is_some() {
            out.write_all(b"\n")?;
        }
        let (all, columns) = (self.options.verbose > 0, self.options.width);
        for line in summary::lines(summary, self.upper_bounds, all, columns) {
            line.write(out, self.options.color)?;
        }
        out.flush()
    }
}

/// Text of a target's choice in a table: harmless, and its end within these columns.
pub(super) fn printable_cut(text: &str, columns: usize) -> String {
    keep_end(&printable(text), columns).into_owned()
}

/// A line below a headline, its label written and its content to come.
fn labelled(label: &str) -> Line {
    Line::indented(INDENT).left(Tone::Dim, label, LABEL)
}

/// Text of any length under one label.
fn paragraph(label: &str, tone: Tone, text: &str, columns: usize) -> Vec<Line> {
    let wrapped = wrap(text, columns.saturating_sub(INDENT + LABEL));
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    let room = columns.saturating_sub(INDENT + LABEL);
    labels
        .zip(&wrapped)
        .map(|(label, text)| labelled(label).with(tone, &keep_start(text, room)))
        .collect()
}

/// Which loop it was, and which task.
fn context(stall: &Stall, columns: usize) -> Vec<Line> {
    let line = labelled("loop")
        .with(Tone::Plain, &stall.thread)
        .with(Tone::Dim, &format!("  pid {} tid {}  ", stall.pid, stall.tid))
        .with(Tone::Plain, stall.runtime.name());
    let mut lines = vec![line];
    if let Some(task) = &stall.task {
        let chain = task.chain.join(" → ");
        let gap = if chain.is_empty() { "" } else { ": " };
        lines.extend(paragraph(
            "task",
            Tone::Plain,
            &format!("{}{gap}{chain}", task.name),
            columns,
        ));
    }
    lines
}

/// What is left to say of a stall whose like was shown before.
fn brief(stall: &Stall, number: u64, first: u64, columns: usize) -> Vec<Line> {
    let what = if stall.cause.has_blocker() { "stack as" } else { "as" };
    let reference =
        if first == number { format!("({what} above)") } else { format!("({what} in #{first})") };
    let mut parts = vec![format!("{} ({})", stall.thread, stall.tid)];
    parts.extend(ledger::compact(&stall.ledger));
    parts.push(reference);
    let flowed = flow(parts.iter().map(String::as_str), "  ", columns - INDENT);
    let mut lines: Vec<Line> =
        flowed.iter().map(|text| Line::indented(INDENT).with(Tone::Dim, text)).collect();
    lines.extend(outside(stall, columns));
    lines
}

fn outside(stall: &Stall, columns: usize) -> Vec<Line> {
    let Some(outside) = &stall.outside else { return Vec::new() };
    let text = format!("{}: {}", outside.what, outside.who);
    paragraph("outside", Tone::Plain, &text, columns)
}

/// Who was kept waiting.
fn impact(stall: &Stall) -> Option<Line> {
    let ready = stall.ready_sockets.filter(|&ready| ready > 0)?;
    let text = format!("{} ready when it ended", quantity::counted(u64::from(ready), "socket"));
    Some(labelled("impact").with(Tone::Plain, &text))
}

fn held_by(holder: &Holder, is_awaited: bool) -> Line {
    let stack =
        if holder.frames.is_empty() { "; its stack is unknown" } else { "; innermost call first" };
    let asleep = holder.asleep_in.map(|call| format!(", asleep in {call} meanwhile"));
    labelled(if is_awaited { "waits for" } else { "held by" })
        .with(Tone::Strong, &holder.thread)
        .with(Tone::Plain, &format!(" ({}){}", holder.tid, asleep.unwrap_or_default()))
        .with(Tone::Dim, stack)
}

/// Lighter stacks at other places than the heaviest, one line for each place.
fn also(stall: &Stall, heaviest: &Stack, others: &[&Stack], columns: usize) -> Vec<Line> {
    let mut places: Vec<(&Stack, u64)> = Vec::new();
    for stack in others {
        let same = |other: &Stack| {
            stack.cause == other.cause
                && stack::place_of(&stack.frames) == stack::place_of(&other.frames)
        };
        if same(heaviest) {
            continue;
        }
        match places.iter_mut().find(|(known, _)| same(known)) {
            Some((_, ns)) => *ns += stack.total_ns,
            None => places.push((stack, stack.total_ns)),
        }
    }
    places.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
    let mut lines = Vec::new();
    for &(stack, ns) in places.iter().take(MAX_ALSO) {
        let line = labelled(if lines.is_empty() { "also" } else { "" })
            .right(Tone::Plain, &of_cause(stall, stack.cause, ns), 7)
            .with(Tone::Plain, "  ");
        let room = columns.saturating_sub(line.width());
        if let Some(place) = stack::innermost(&stack.frames, room) {
            let mut line = line;
            line.append(place);
            lines.push(line);
        }
    }
    if places.len() > MAX_ALSO {
        let more = format!("… {} more (-vv shows them)", places.len() - MAX_ALSO);
        lines.push(labelled("").with(Tone::Dim, &more));
    }
    lines
}

fn share_of_cause(stall: &Stall, stack: &Stack) -> String {
    of_cause(stall, stack.cause, stack.total_ns)
}

fn of_cause(stall: &Stall, cause: Cause, ns: u64) -> String {
    quantity::percent(quantity::ratio(ns, stall.ledger.get(cause)).min(1.0))
}

fn shown_key(stall: &Stall) -> ShownKey {
    let mut of_cause = stall.stacks.iter().filter(|stack| stack.cause == stall.cause);
    let holder = of_cause.find_map(|stack| stack.holder.as_ref());
    let place = holder.map(|holder| {
        let frame = holder.frames.iter().rev().find(|frame| frame.user_code);
        match frame {
            Some(frame) => format!("{}:{:?}", frame.function, frame.line),
            None => holder.thread.to_string(),
        }
    });
    let heaviest = stall
        .stacks
        .iter()
        .filter(|stack| stack.cause == stall.cause)
        .max_by_key(|stack| stack.total_ns);
    let own = heaviest.map_or(&[][..], |stack| &stack.frames);
    let way = own.iter().filter(|frame| frame.user_code).map(|frame| frame.function.clone());
    (BlockerKey::of(stall), way.collect(), place)
}
