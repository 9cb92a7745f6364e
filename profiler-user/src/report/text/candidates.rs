//! Threads that may hold what is waited for, where nobody notes who does.

use super::labelled;
use super::line::{Line, Tone, width};
use super::stack;
use crate::blame::Holder;

/// One line for each thread: what it does meanwhile.
pub(super) fn lines(candidates: &[Holder], columns: usize) -> Vec<Line> {
    if candidates.is_empty() {
        return Vec::new();
    }
    let title = "nobody notes who holds this; what the other threads do meanwhile:";
    let names: Vec<String> =
        candidates.iter().map(|one| format!("{} ({})", one.thread, one.tid)).collect();
    let name_columns = names.iter().map(|name| width(name)).max().unwrap_or(0);
    let mut lines = vec![labelled("perhaps").with(Tone::Dim, title)];
    for (candidate, name) in candidates.iter().zip(&names) {
        let mut line = labelled("").left(Tone::Plain, name, name_columns).with(Tone::Plain, "  ");
        let room = columns.saturating_sub(line.width());
        match stack::innermost(&candidate.frames, room) {
            Some(place) => line.append(place),
            None => line.push(Tone::Dim, "runs"),
        }
        lines.push(line);
    }
    lines
}
