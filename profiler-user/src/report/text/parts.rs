//! A stall by coroutine and place, where it is not one slow callback.

use super::headline::place;
use super::line::{Line, Tone, keep_start, width};
use super::{labelled, printable};
use crate::blame::{Part, Stall};
use crate::report::quantity;

/// Parts that are shown.
const MAX_PARTS: usize = 6;
/// A second part that is smaller than this share of the stall does not make it a stall of many.
const SECOND: f64 = 0.1;
/// Parts smaller than that are not worth a line.
const SMALLEST: f64 = 0.02;

/// One line for each part: its share, whose it is, why, and where.
pub(super) fn lines(stall: &Stall, columns: usize) -> Vec<Line> {
    if stall.parts.get(1).is_none_or(|part| part.share < SECOND) {
        return Vec::new();
    }
    let large = stall.parts.iter().filter(|part| part.share >= SMALLEST).count();
    let shown = &stall.parts[..large.min(MAX_PARTS)];
    let owners: Vec<String> = shown.iter().map(owner).collect();
    let owner_width = owners.iter().map(|owner| width(owner)).max().unwrap_or(0).min(columns / 4);
    let cause_width = shown.iter().map(|part| part.cause.name().len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (part, owner) in shown.iter().zip(&owners) {
        let line = labelled(if lines.is_empty() { "split" } else { "" })
            .right(Tone::Plain, &quantity::percent(part.share), 7)
            .with(Tone::Plain, "  ")
            .left(Tone::Strong, &keep_start(owner, owner_width), owner_width)
            .with(Tone::Plain, if owner_width > 0 { "  " } else { "" })
            .left(Tone::Cause, part.cause.name(), cause_width)
            .with(Tone::Plain, "  ");
        let room = columns.saturating_sub(line.width());
        let name = keep_start(&printable(&part.function), room / 2).into_owned();
        let file = part
            .file
            .as_deref()
            .map(|file| place(file, part.line, room.saturating_sub(width(&name) + 2)));
        let line = line.with(Tone::Plain, &name).with(Tone::Plain, "  ");
        lines.push(line.with(Tone::Dim, &file.unwrap_or_default()));
    }
    let hidden = stall.parts.len() - shown.len();
    if hidden > 0 {
        let rest: f64 = stall.parts[shown.len()..].iter().map(|part| part.share).sum();
        let more =
            format!("… {} more with {}", quantity::count(hidden as u64), quantity::percent(rest));
        lines.push(labelled("").with(Tone::Dim, &more));
    }
    lines
}

/// `14 × get_order`; at least so many, so that one is shown as its name alone.
fn owner(part: &Part) -> String {
    match (&part.coroutine, part.tasks) {
        (Some(coroutine), 2..) => format!("{} × {}", part.tasks, printable(coroutine)),
        (Some(coroutine), _) => printable(coroutine).into_owned(),
        (None, _) => String::new(),
    }
}
