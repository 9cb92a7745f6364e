//! The end of the text report: by blocker, by loop, and how far it can be trusted.

use super::headline::fit;
use super::line::{Line, Tone, keep_start, width, wrap};
use super::pools;
use crate::aggregate::{BlockerSummary, Ended, Health, LoopSummary, Summary};
use crate::report::quantity;

/// Columns that a blocker is given at least; with less it gets a line of its own.
const BLOCKER_COLUMNS: usize = 36;
/// Rows of the blocker table; the rest is summed up unless every row is asked for.
const MAX_BLOCKERS: usize = 20;

/// Every line of the summary. `upper_bounds` is how many stalls were told with a `≤`.
pub(super) fn lines(summary: &Summary, upper_bounds: u64, all: bool, columns: usize) -> Vec<Line> {
    let mut lines = vec![rule(summary, columns)];
    lines.extend(verdict(summary));
    if !summary.blockers.is_empty() {
        lines.push(Line::default());
        lines.extend(blockers(&summary.blockers, all, columns));
    }
    if !summary.loops.is_empty() {
        lines.push(Line::default());
        lines.extend(loops(&summary.loops, columns, true));
    }
    let pools = pools::lines(&summary.pools, columns);
    if !pools.is_empty() {
        lines.push(Line::default());
        lines.extend(pools);
    }
    lines.push(Line::default());
    lines.extend(trust(&summary.health, upper_bounds, columns));
    lines
}

fn rule(summary: &Summary, columns: usize) -> Line {
    let ended = match &summary.ended {
        Ended::Duration => String::new(),
        Ended::Interrupted => ", interrupted".to_owned(),
        Ended::Unknown => ", end unknown".to_owned(),
        Ended::TargetExited { status } => format!(", target exited: {status}"),
    };
    let title = format!(
        " {} watched, threshold {}{ended} ",
        quantity::duration(summary.observed_ns),
        quantity::exact(summary.threshold_ns)
    );
    let line = Line::default().with(Tone::Dim, "──").with(Tone::Strong, &title);
    let rest = columns.saturating_sub(line.width());
    line.with(Tone::Dim, &"─".repeat(rest))
}

/// How many stalls there were; if none, that and what else is worth knowing then.
fn verdict(summary: &Summary) -> Vec<Line> {
    let count: u64 = summary.blockers.iter().map(|row| row.count).sum();
    let total = summary.blockers.iter().fold(0_u64, |sum, row| sum.saturating_add(row.total_ns));
    let loop_time =
        summary.loops.iter().fold(0_u64, |sum, one| sum.saturating_add(one.observed_ns));
    let mut lines = Vec::new();
    if count > 0 {
        let mut line = Line::default().with(Tone::Duration, &quantity::counted(count, "stall"));
        let mut text = format!(", {} together", quantity::duration(total));
        if loop_time > 0 {
            let share = quantity::percent(quantity::ratio(total, loop_time));
            text.push_str(&format!(", {share} of the loops' time"));
        }
        line.push(Tone::Plain, &text);
        lines.push(line);
    } else if summary.filtered {
        let text = "no stall of those that were asked for";
        lines.push(Line::default().with(Tone::Warning, text));
    } else {
        let longest = summary.loops.iter().map(|one| one.turn_max_ns).max().unwrap_or(0);
        let mut text = format!(
            "no stall ≥ {} in {}",
            quantity::exact(summary.threshold_ns),
            quantity::duration(summary.observed_ns)
        );
        if longest > 0 {
            text.push_str(&format!("; longest turn {}", quantity::duration(longest)));
        }
        lines.push(Line::default().with(Tone::Advice, &text));
    }
    if summary.loops.is_empty() {
        let text = "no thread was seen to run an event loop (to park in epoll, poll or select)";
        lines.push(Line::default().with(Tone::Warning, text));
    }
    lines
}

fn blockers(rows: &[BlockerSummary], all: bool, columns: usize) -> Vec<Line> {
    let shown = if all { rows.len() } else { rows.len().min(MAX_BLOCKERS) };
    let causes: Vec<String> = rows[..shown].iter().map(cause).collect();
    let cause_columns = causes.iter().map(|text| width(text)).max().unwrap_or(0).clamp(5, 28);
    let row = |count: &str, total: &str, max: &str, share: &str, cause: &str, tone| {
        Line::default()
            .right(tone, count, 6)
            .right(tone, total, 9)
            .right(tone, max, 9)
            .right(tone, share, 9)
            .with(Tone::Plain, "  ")
            .left(tone, &keep_start(cause, cause_columns), cause_columns)
            .with(Tone::Plain, "  ")
    };
    let head = row("stalls", "total", "longest", "of time", "cause", Tone::Dim);
    let mut lines = vec![head.with(Tone::Dim, "blocker")];
    for (one, cause) in rows[..shown].iter().zip(&causes) {
        let mut line = row(
            &quantity::count(one.count),
            &quantity::duration(one.total_ns),
            &quantity::duration(one.max_ns),
            &quantity::percent(one.share),
            cause,
            Tone::Plain,
        );
        match &one.blocker {
            Some(blocker) => {
                if columns.saturating_sub(line.width()) < BLOCKER_COLUMNS {
                    lines.push(line);
                    line = Line::indented(8);
                }
                let (function, place) = fit(blocker, columns.saturating_sub(line.width()));
                line.push(Tone::Strong, &function);
                if let Some(place) = place {
                    line = line.with(Tone::Plain, "  ").with(Tone::Strong, &place);
                }
            }
            None => line
                .push(Tone::Dim, if one.cause.has_blocker() { "unknown" } else { "not the code" }),
        }
        lines.push(line);
    }
    if let Some(rest) = rows.get(shown..).filter(|rest| !rest.is_empty()) {
        let count = rest.iter().map(|row| row.count).sum();
        let total = rest.iter().fold(0_u64, |sum, row| sum.saturating_add(row.total_ns));
        let more =
            format!("{} more (-v shows them)", quantity::counted(rest.len() as u64, "blocker"));
        let (count, total) = (quantity::count(count), quantity::duration(total));
        lines.push(row(&count, &total, "", "", "", Tone::Dim).with(Tone::Dim, &more));
    }
    lines
}

fn cause(row: &BlockerSummary) -> String {
    match &row.what {
        Some(what) => format!("{} · {what}", row.cause.name()),
        None => row.cause.name().to_owned(),
    }
}

/// The loops, and how far the numbers can be trusted.
pub(super) fn table(summary: &Summary, columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    if !summary.loops.is_empty() {
        lines.extend(loops(&summary.loops, columns, false));
    }
    lines.extend(trust(&summary.health, 0, columns));
    lines
}

fn loops(loops: &[LoopSummary], columns: usize, with_stalls: bool) -> Vec<Line> {
    // The median says least about stalls: it looks perfect next to a stall of a second.
    let widths = if columns < 90 { [9, 8, 0, 9, 9, 8] } else { [11, 8, 9, 9, 9, 8] };
    let names: Vec<String> = loops
        .iter()
        .map(|one| keep_start(&format!("{} ({})", one.thread, one.tid), 28).into_owned())
        .collect();
    let name_columns = names.iter().map(|name| width(name)).max().unwrap_or(0).max(4);
    let row = |name: &str, runtime: &str, numbers: [&str; 6], tone| {
        let mut line = Line::default()
            .left(tone, name, name_columns)
            .with(Tone::Plain, "  ")
            .left(tone, runtime, 7);
        for (number, columns) in numbers.iter().zip(widths).filter(|&(_, columns)| columns > 0) {
            line = line.right(tone, number, columns);
        }
        line
    };
    let last = if with_stalls { "stalls" } else { "" };
    let head = ["turns", "busy", "p50", "p99", "longest", last];
    let mut lines = vec![row("loop", "runtime", head, Tone::Dim)];
    for (one, name) in loops.iter().zip(&names) {
        // Without a turn, or without a histogram (its slots were full), nothing was measured.
        let measured = |ns: u64| {
            if ns == 0 { "–".to_owned() } else { quantity::duration(ns) }
        };
        let stalls = if with_stalls { quantity::count(one.stalls) } else { String::new() };
        let numbers = [
            &quantity::count(one.turns),
            &quantity::percent(one.utilization),
            &measured(one.turn_p50_ns),
            &measured(one.turn_p99_ns),
            &measured(one.turn_max_ns),
            &stalls,
        ];
        lines.push(row(name, one.runtime.name(), numbers.map(String::as_str), Tone::Plain));
    }
    lines
}

/// How turns were told apart, what was lost, and what the reader should know.
fn trust(health: &Health, upper_bounds: u64, columns: usize) -> Vec<Line> {
    let boundaries = match health.boundaries {
        "fentry" => "exact (fentry on the polls)".to_owned(),
        "sys_enter" => "exact (the sys_enter tracepoint)".to_owned(),
        "sched" => "from sleeps alone (sched_switch)".to_owned(),
        "" => "unknown".to_owned(),
        other => other.to_owned(),
    };
    let mut line =
        Line::default().with(Tone::Dim, "turn boundaries: ").with(Tone::Dim, &boundaries);
    if let Some(polls) = health.task_polls {
        line.push(Tone::Dim, &format!("; task polls: {polls}"));
    }
    let mut lines = vec![line];
    if upper_bounds > 0 {
        let text = format!(
            "{} marked ≤ may be several turns: not every poll was seen",
            quantity::counted(upper_bounds, "stall")
        );
        lines.push(Line::default().with(Tone::Warning, &text));
    }
    let fixed = [
        ("event lost", "events lost", health.lost_events),
        ("stack incomplete", "stacks incomplete", health.truncated_stacks),
        ("read of the target failed", "reads of the target failed", health.failed_reads),
        ("frame without a symbol", "frames without a symbol", health.unsymbolized_frames),
    ];
    let named = health.losses.iter().map(|(name, count)| {
        let (one, many) = in_words(name);
        (one, many, *count)
    });
    let losses: Vec<String> = fixed
        .into_iter()
        .chain(named)
        .filter(|&(_, _, count)| count > 0)
        .map(|(one, many, count)| {
            format!("{} {}", quantity::count(count), if count == 1 { one } else { many })
        })
        .collect();
    if !losses.is_empty() {
        lines.extend(wrapped("losses: ", &losses.join(", "), columns));
    }
    for warning in &health.warnings {
        lines.extend(wrapped("warning: ", warning, columns));
    }
    lines
}

/// What a loss is, of one and of many; its name alone where there is nothing more to say.
fn in_words(name: &str) -> (&str, &str) {
    match name {
        "ring_full" => ("record that had no room", "records that had no room"),
        "registers_unreadable" => ("stack without registers", "stacks without registers"),
        "loop_slots_full" => ("loop too many for stacks", "loops too many for stacks"),
        "thread_table_full" => ("thread too many", "threads too many"),
        "syscall_table_full" => {
            ("sleep left out of its stall's system calls", "sleeps left out of their system calls")
        }
        "wakeup_missed" => (
            "wake-up not seen (the wait counts until it got a CPU)",
            "wake-ups not seen (the waits count until they got a CPU)",
        ),
        "switch_out_missed" => ("sleep not seen to begin", "sleeps not seen to begin"),
        "futex_questions_deferred" => {
            ("futex not asked about at once", "futexes not asked about at once")
        }
        "python_code_gone" => {
            ("frame of Python code that is gone", "frames of Python code that is gone")
        }
        name => (name, name),
    }
}

/// Text of any length behind a label.
fn wrapped(label: &str, text: &str, columns: usize) -> Vec<Line> {
    let room = columns.saturating_sub(width(label));
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    labels
        .zip(wrap(text, room))
        .map(|(label, text)| {
            let line = Line::default().left(Tone::Warning, label, width(label).max(2));
            line.with(Tone::Plain, &keep_start(&text, room))
        })
        .collect()
}
