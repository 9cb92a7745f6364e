//! A stack as people read it: innermost call first, the user's own frames standing out, long runs
//! of other people's frames folded away.

use super::headline::place;
use super::line::{Line, Tone, keep_end, keep_start, width};
use crate::blame::Blocker;
use crate::report::source::SourceLines;
use crate::symbolize::{Frame, FrameKind};

/// Where function names begin.
const FRAME_INDENT: usize = 8;
/// A run of other people's frames up to this long is shown whole.
const SHORT_RUN: usize = 3;
/// Frames shown of a stack in which nothing is the user's own.
const FOREIGN_FRAMES: usize = 8;

/// What stands on one line of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown<'a> {
    Frame(&'a Frame),
    Folded(usize, &'static str),
}

/// How to draw stacks.
#[derive(Debug)]
pub(super) struct StackStyle<'a> {
    /// The code to blame, which gets a mark and its source line.
    pub(super) blocker: Option<&'a Blocker>,
    /// Whose files to quote.
    pub(super) pid: u32,
    /// Every frame, and a source line for every frame of the user's own.
    pub(super) all: bool,
    /// Columns to fill.
    pub(super) columns: usize,
}

/// The lines of a stack whose `frames` go from the root to the leaf.
pub(super) fn draw(
    frames: &[Frame],
    style: &StackStyle<'_>,
    sources: &mut SourceLines,
) -> Vec<Line> {
    let blamed = blamed_frame(frames, style.blocker);
    let shown =
        if style.all { frames.iter().rev().map(Shown::Frame).collect() } else { fold(frames) };
    let names = shown.iter().filter_map(|one| match one {
        Shown::Frame(frame) => Some(width(&frame.function)),
        Shown::Folded(..) => None,
    });
    let room = style.columns.saturating_sub(FRAME_INDENT);
    let name_columns = names.max().unwrap_or(0).min(room / 2);
    let mut lines = Vec::new();
    for one in shown {
        match one {
            Shown::Folded(count, what) => {
                let text = format!("… {count} {what}");
                lines.push(Line::indented(FRAME_INDENT).with(Tone::Dim, &text));
            }
            Shown::Frame(frame) => {
                let is_blamed = blamed.is_some_and(|blamed| std::ptr::eq(blamed, frame));
                lines.push(frame_line(frame, is_blamed, name_columns, style.columns));
                if (is_blamed || (style.all && frame.user_code))
                    && let Some(source) = sources.of(style.pid, frame)
                {
                    let room = room.saturating_sub(4);
                    lines.push(
                        Line::indented(FRAME_INDENT + 2)
                            .with(Tone::Dim, "│ ")
                            .with(Tone::Plain, &keep_start(&source, room)),
                    );
                }
            }
        }
    }
    lines
}

/// What [`innermost`] shows: function, file and line.
pub(super) fn place_of(frames: &[Frame]) -> Option<(&str, Option<&str>, Option<u32>)> {
    let frame = own_or_leaf(frames)?;
    Some((&frame.function, frame.file.as_deref(), frame.line))
}

fn own_or_leaf(frames: &[Frame]) -> Option<&Frame> {
    frames.iter().rev().find(|frame| frame.user_code).or_else(|| frames.last())
}

/// One line for a stack: its innermost frame of the user's own code, else its innermost frame.
pub(super) fn innermost(frames: &[Frame], columns: usize) -> Option<Line> {
    let frame = own_or_leaf(frames)?;
    let (name, place) = name_and_place(frame, columns / 2, columns);
    Some(Line::default().with(Tone::Plain, &name).with(Tone::Plain, "  ").with(Tone::Dim, &place))
}

fn blamed_frame<'a>(frames: &'a [Frame], blocker: Option<&Blocker>) -> Option<&'a Frame> {
    let blocker = blocker?;
    frames.iter().rev().find(|frame| {
        frame.function == blocker.function
            && frame.file == blocker.file
            && frame.line == blocker.line
    })
}

fn frame_line(frame: &Frame, blamed: bool, name_columns: usize, columns: usize) -> Line {
    let tone = if blamed || frame.user_code { Tone::Strong } else { Tone::Dim };
    let (name, place) = name_and_place(frame, name_columns, columns.saturating_sub(FRAME_INDENT));
    let mark = if blamed { "▸ " } else { "  " };
    let mut line = Line::indented(FRAME_INDENT - 2).with(Tone::Cause, mark);
    if place.is_empty() {
        return line.with(tone, &name);
    }
    line = line.left(tone, &name, name_columns).with(Tone::Plain, "  ").with(tone, &place);
    if frame.inlined {
        line.push(Tone::Dim, " (inlined)");
    }
    line
}

/// The function, cut to its column only if its place would not fit otherwise; and `file:line`, or
/// the module where there is no file.
fn name_and_place(frame: &Frame, name_columns: usize, columns: usize) -> (String, String) {
    let inlined = if frame.inlined { " (inlined)".len() } else { 0 };
    let room = columns.saturating_sub(name_columns + 2 + inlined);
    let place = match (&frame.file, &frame.module) {
        (Some(file), _) => place(file, frame.line, room),
        (None, Some(module)) => match module.rsplit('/').next() {
            Some(name) if !name.is_empty() => keep_end(name, room).into_owned(),
            _ => keep_end(module, room).into_owned(),
        },
        (None, None) => String::new(),
    };
    let name_room = columns.saturating_sub(width(&place) + 2 + inlined).max(name_columns);
    let function = if frame.function.is_empty() { "?" } else { &*frame.function };
    (keep_end(function, name_room).into_owned(), place)
}

/// Leaves out what nobody reads. Innermost frame first.
fn fold(frames: &[Frame]) -> Vec<Shown<'_>> {
    let frames: Vec<&Frame> = frames.iter().rev().collect();
    let kernel = frames.iter().take_while(|frame| frame.kind == FrameKind::Kernel).count();
    let mut shown = Vec::new();
    push_run(&mut shown, &frames[..kernel], "kernel frames");
    let frames = &frames[kernel..];
    let Some(first_own) = frames.iter().position(|frame| frame.user_code) else {
        let kept = if frames.len() > FOREIGN_FRAMES + 1 { FOREIGN_FRAMES } else { frames.len() };
        shown.extend(frames[..kept].iter().copied().map(Shown::Frame));
        push_run(&mut shown, &frames[kept..], "outer frames");
        return shown;
    };
    // What the user's code called: the leaf says what it was doing, the outermost frame which
    // function of a library it asked for.
    if let [leaf, between @ .., called] = &frames[..first_own]
        && between.len() > 1
    {
        shown.push(Shown::Frame(leaf));
        shown.push(Shown::Folded(between.len(), "library frames"));
        shown.push(Shown::Frame(called));
    } else {
        shown.extend(frames[..first_own].iter().copied().map(Shown::Frame));
    }
    let mut rest = &frames[first_own..];
    while let Some(frame) = rest.first() {
        if frame.user_code {
            shown.push(Shown::Frame(frame));
            rest = &rest[1..];
            continue;
        }
        let run = rest.iter().take_while(|frame| !frame.user_code).count();
        if run == rest.len() && run > 1 {
            // How the program and its runtime were started is the same in every stack.
            shown.push(Shown::Folded(run, "runtime frames"));
        } else {
            push_run(&mut shown, &rest[..run], "runtime frames");
        }
        rest = &rest[run..];
    }
    shown
}

fn push_run<'a>(shown: &mut Vec<Shown<'a>>, run: &[&'a Frame], what: &'static str) {
    if run.len() > SHORT_RUN {
        shown.push(Shown::Folded(run.len(), what));
    } else {
        shown.extend(run.iter().copied().map(Shown::Frame));
    }
}
