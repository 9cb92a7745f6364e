//! The ledger of a stall, and the system calls it slept in.

use std::collections::BTreeMap;

use super::line::{Line, Tone, keep_end, keep_start, width};
use super::{INDENT, labelled};
use crate::blame::{Stall, SyscallUse};
use crate::report::quantity;
use crate::stalls::{Cause, Ledger};

/// Columns of a full bar.
const BAR: usize = 24;
/// System calls shown if not all are.
const MAX_SYSCALLS: usize = 5;

/// One line per cause with time in it, largest first: name, time, share, bar.
pub(super) fn bars(ledger: &Ledger) -> Vec<Line> {
    let total = ledger.total();
    let row = |(cause, ns): (Cause, u64)| {
        let share = quantity::ratio(ns, total);
        let tone = if cause == Cause::Unexplained { Tone::Warning } else { Tone::Plain };
        Line::indented(INDENT)
            .left(tone, cause.name(), 11)
            .right(tone, &quantity::duration(ns), 9)
            .right(Tone::Plain, &quantity::percent(share), 9)
            .with(Tone::Plain, "  ")
            .with(Tone::Cause, &bar(share))
    };
    ledger.sorted().into_iter().map(row).collect()
}

/// The same in words, for stalls whose like was shown before: one part per cause.
pub(super) fn compact(ledger: &Ledger) -> Vec<String> {
    let total = ledger.total();
    let part = |(cause, ns): (Cause, u64)| {
        let share = quantity::percent(quantity::ratio(ns, total));
        format!("{} {} ({share})", cause.name(), quantity::duration(ns))
    };
    ledger.sorted().into_iter().map(part).collect()
}

/// A bar in eighths of a column; something, if not much, for every share above zero.
fn bar(share: f64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    // Between 0 and 8 * BAR, so the conversion is exact enough.
    let eighths = ((share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize).max(1);
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

/// What it slept in: name and count, total, longest, resource.
pub(super) fn syscalls(stall: &Stall, all: bool, columns: usize) -> Vec<Line> {
    let shown = if all { stall.syscalls.len() } else { stall.syscalls.len().min(MAX_SYSCALLS) };
    let calls = &stall.syscalls[..shown];
    let names: Vec<String> = calls.iter().map(name_and_count).collect();
    let name_width = names.iter().map(|name| width(name)).max().unwrap_or(0);
    let repeated = calls.iter().any(|call| call.count > 1);
    let mut lines = Vec::new();
    for (call, name) in calls.iter().zip(&names) {
        let mut line = labelled(if lines.is_empty() { "slept in" } else { "" })
            .left(Tone::Plain, name, name_width)
            .right(Tone::Plain, &quantity::duration(call.total_ns), 10);
        if repeated {
            let longest = format!("max {}", quantity::duration(call.max_ns));
            line = line.right(Tone::Dim, if call.count > 1 { &longest } else { "" }, 14);
        }
        let Some(resource) = &call.resource else {
            lines.push(line);
            continue;
        };
        if line.width() + 2 + width(resource) <= columns {
            lines.push(line.with(Tone::Plain, "  ").with(Tone::Plain, resource));
        } else {
            // What it waited for is half the answer: better on a line of its own than cut.
            lines.push(line);
            let own = labelled("").with(Tone::Plain, "  ");
            let room = columns.saturating_sub(own.width());
            lines.push(own.with(Tone::Plain, &keep_start(resource, room)));
        }
    }
    let hidden = stall.syscalls.len() - shown;
    if hidden > 0 {
        let more = format!("… {} more", quantity::count(hidden as u64));
        lines.push(labelled("").with(Tone::Dim, &more));
    }
    lines
}

/// What faults waited for: the files behind mappings.
pub(super) fn mapped_files(stall: &Stall, columns: usize) -> Vec<Line> {
    let mut by_file: BTreeMap<&str, u64> = BTreeMap::new();
    for stack in &stall.stacks {
        if let Some(file) = &stack.resource {
            *by_file.entry(file).or_default() += stack.total_ns;
        }
    }
    let mut lines = Vec::new();
    for (file, ns) in by_file {
        let line = labelled(if lines.is_empty() { "read" } else { "" })
            .right(Tone::Plain, &quantity::duration(ns), 10)
            .with(Tone::Plain, "  ");
        let room = columns.saturating_sub(line.width());
        lines.push(line.with(Tone::Plain, &keep_end(file, room)));
    }
    lines
}

fn name_and_count(call: &SyscallUse) -> String {
    format!("{} ×{}", call.name, quantity::count(u64::from(call.count)))
}

#[cfg(test)]
mod tests {
    use super::{BAR, bar};

    #[test]
    fn bars_stay_in_their_column() {
        assert_eq!(bar(1.0).chars().count(), BAR);
        assert_eq!(bar(7.0).chars().count(), BAR);
        assert_eq!(bar(0.5).chars().count(), BAR / 2);
        assert_eq!(bar(1e-9), "▏");
        assert_eq!(bar(f64::NAN), "▏");
    }
}
