//! Stalled time by stack: what a flame graph is drawn from.

use std::collections::BTreeMap;

use super::shares::shares;
use crate::blame::{Stack, Stall};
use crate::symbolize::{Frame, FrameKind};

/// The leaf for time of a cause that no captured stack covers.
pub const NO_STACK: &str = "[no stack]";

/// Nanoseconds of stall by path: the loop, then the cause, then frames from the root to the leaf.
///
/// Every stall adds exactly its duration: stacks are scaled down where they claim more than the
/// ledger gives their cause, and what they leave over is counted without a stack.
#[derive(Debug, Clone, Default)]
pub struct StalledTime {
    by_path: BTreeMap<Vec<String>, u64>,
}

/// One path and its rounded weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight<'a> {
    /// The loop, the cause, then frames from the root to the leaf.
    pub path: &'a [String],
    /// Time of stall in microseconds.
    pub micros: u64,
}

impl StalledTime {
    /// Adds one stall, ongoing or not, with the duration it says.
    pub fn add(&mut self, stall: &Stall) {
        for share in shares(stall) {
            let mut path = vec![loop_label(stall), share.cause.name().to_owned()];
            match share.stack {
                Some(stack) => path.extend(stack_labels(stack)),
                None if share.uncovered => path.push(NO_STACK.to_owned()),
                None => {}
            }
            let total = self.by_path.entry(path).or_default();
            *total = total.saturating_add(share.ns);
        }
    }

    /// All time that was added, in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.by_path.values().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Every path with its time in microseconds, sorted by path. The rounding is carried from one
    /// path to the next, so that the weights sum to the rounded total; paths that round to zero
    /// are left out.
    pub fn weights(&self) -> impl Iterator<Item = Weight<'_>> {
        let (mut sum_ns, mut sum_micros) = (0_u64, 0_u64);
        self.by_path.iter().filter_map(move |(path, ns)| {
            sum_ns = sum_ns.saturating_add(*ns);
            let micros = rounded_micros(sum_ns) - sum_micros;
            sum_micros += micros;
            (micros > 0).then_some(Weight { path, micros })
        })
    }
}

const fn rounded_micros(ns: u64) -> u64 {
    ns / 1000 + if ns % 1000 >= 500 { 1 } else { 0 }
}

fn stack_labels(stack: &Stack) -> Vec<String> {
    if stack.frames.is_empty() {
        return vec![NO_STACK.to_owned()];
    }
    stack.frames.iter().map(frame_label).collect()
}

/// `thread-name (tid)`; the runtime where the thread has no name.
fn loop_label(stall: &Stall) -> String {
    let name = stall.thread.trim();
    let name = if name.is_empty() { stall.runtime.name() } else { name };
    harmless(&format!("{name} ({})", stall.tid))
}

/// The function; with file and line where the line is the user's own or an interpreter's, as
/// functions there are found by place. Kernel frames end in `_[k]`, the suffix of perf's tools.
fn frame_label(frame: &Frame) -> String {
    let function = harmless(&frame.function);
    if frame.kind == FrameKind::Kernel {
        return format!("{function}_[k]");
    }
    let placed = frame.user_code || frame.kind != FrameKind::Native;
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) if placed => {
            format!("{function} ({}:{line})", harmless(last_two(file)))
        }
        _ => function,
    }
}

/// The file's name and its folder: enough to tell `views.py` from `views.py`.
fn last_two(file: &str) -> &str {
    match file.rmatch_indices('/').nth(1) {
        Some((at, _)) => &file[at + 1..],
        None => file.trim_start_matches('/'),
    }
}

/// A name that can't break the folded format: no `;` (it separates frames), no control characters
/// (a newline ends the stack), not empty, not a comment, and not ending in a number of its own
/// (readers would take it for the weight).
fn harmless(name: &str) -> String {
    let mut out: String = name
        .trim()
        .chars()
        .map(|c| match c {
            ';' => ':',
            c if c.is_control() => '?',
            // Line separators, and marks that change the direction of writing.
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => '?',
            c => c,
        })
        .collect();
    if out.is_empty() {
        out.push('?');
    }
    if out.starts_with('#') {
        out.insert(0, '_');
    }
    if let Some((head, tail)) = out.rsplit_once(char::is_whitespace)
        && tail.chars().all(|c| c.is_ascii_digit() || c == '.')
    {
        out = format!("{head}_{tail}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{harmless, last_two};

    #[test]
    fn names_cannot_break_the_format() {
        assert_eq!(harmless("a;b\nc"), "a:b?c");
        assert_eq!(harmless(" \t"), "?");
        assert_eq!(harmless("# note"), "_# note");
        assert_eq!(harmless("worker 12"), "worker_12");
        assert_eq!(harmless("[u8; 8]"), "[u8: 8]");
        assert_eq!(harmless("<A as B>::c"), "<A as B>::c");
    }

    #[test]
    fn files_keep_their_folder() {
        assert_eq!(last_two("/srv/app/views.py"), "app/views.py");
        assert_eq!(last_two("/views.py"), "views.py");
        assert_eq!(last_two("views.py"), "views.py");
        assert_eq!(last_two("app/views.py"), "app/views.py");
    }
}
