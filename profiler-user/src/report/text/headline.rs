//! The one line that says it all: when, how long, why, and where.

use std::path::Path;

use super::clock::time_of_day;
use super::line::{Line, Tone, keep_end, width};
use crate::aggregate::slowest_syscall;
use crate::blame::{Blocker, Boundary, Stall, busiest_call};
use crate::report::{Clock, quantity};
use crate::stalls::Cause;

/// No function is cut below this many columns.
const MIN_FUNCTION: usize = 16;

/// The headline: one line where it fits into `columns`, else what does not fit follows on more.
pub(super) fn headline(stall: &Stall, number: u64, clock: Clock, columns: usize) -> Vec<Line> {
    let number = format!("#{number}");
    let indent = width(&number) + 2;
    let head = Line::default()
        .with(Tone::Dim, &number)
        .with(Tone::Plain, "  ")
        .with(Tone::Plain, &time_of_day(stall.start_unix_ns, clock))
        .with(Tone::Plain, "  ")
        .with(Tone::Duration, &how_long(stall));
    let mut lines = vec![head];
    if stall.at_attach {
        let note = "already stuck when stallscope attached";
        next(&mut lines, width(note), indent, columns).push(Tone::Plain, note);
    }
    let why = cause_phrase(stall);
    let needed = width(&why) + stall.blocker.as_ref().map_or(0, least_columns);
    let line = next(&mut lines, needed, indent, columns);
    let room = columns.saturating_sub(line.width());
    line.append(why_and_where(&why, stall, room));
    lines
}

/// The line to go on with: the last one if `needed` columns are left on it, else a new one.
fn next(lines: &mut Vec<Line>, needed: usize, indent: usize, columns: usize) -> &mut Line {
    match lines.pop() {
        Some(last) if last.width() + 2 + needed <= columns => {
            lines.push(last.with(Tone::Plain, "  "));
        }
        last => {
            lines.extend(last);
            lines.push(Line::indented(indent));
        }
    }
    let end = lines.len() - 1;
    &mut lines[end]
}

fn why_and_where(why: &str, stall: &Stall, columns: usize) -> Line {
    let mut line = Line::default().with(Tone::Cause, why);
    if let Some(blocker) = &stall.blocker {
        line.push(Tone::Plain, " in ");
        let room = columns.saturating_sub(line.width());
        let (function, place) = fit(blocker, room);
        line.push(Tone::Strong, &function);
        if let Some(place) = place {
            line.push(Tone::Plain, "  ");
            line.push(Tone::Strong, &place);
        }
    }
    line
}

/// `1.00 s`, with what has to be known to read it right.
pub(super) fn how_long(stall: &Stall) -> String {
    // One that began before stallscope attached is longer in any case.
    let at_most = stall.boundary == Boundary::UpperBound && !stall.at_attach;
    let bound = if at_most { "≤ " } else { "" };
    let long = format!("{bound}{}", quantity::duration(stall.duration_ns));
    let least = if stall.at_attach { "at least " } else { "" };
    if stall.ongoing {
        format!("still stalled, {least}{long} so far")
    } else {
        format!("{least}{long}")
    }
}

/// The cause and what is known about it: `syscall recvfrom`, `gil held by worker-1 (4720)`.
fn cause_phrase(stall: &Stall) -> String {
    let mut phrase = stall.cause.name().to_owned();
    let mut said = None;
    match stall.cause {
        Cause::Syscall => {
            said = slowest_syscall(stall);
            if let Some(name) = said {
                phrase.push_str(&format!(" {name}"));
            }
        }
        Cause::Lock | Cause::Gil => {
            let mut of_cause = stall.stacks.iter().filter(|stack| stack.cause == stall.cause);
            if let Some(holder) = of_cause.find_map(|stack| stack.holder.as_ref()) {
                let link = if stall.waits_for_a_thread() { ", waits for" } else { " held by" };
                phrase.push_str(&format!("{link} {} ({})", holder.thread, holder.tid));
            }
        }
        Cause::Runqueue | Cause::Throttled | Cause::Stopped => {
            said = stall.outside.as_ref().map(|outside| outside.what);
            match (stall.cause, said) {
                (_, Some(what)) => phrase.push_str(&format!(" · {what}")),
                (Cause::Runqueue, None) => phrase.push_str(" · runnable, but no CPU"),
                (Cause::Throttled, None) => phrase.push_str(" · out of CPU quota"),
                _ => {}
            }
        }
        Cause::Cpu => {
            if let Some(call) = busiest_call(&stall.ledger, &stall.stacks) {
                phrase.push_str(&format!(" in {call}"));
            }
        }
        Cause::Fault | Cause::Unexplained => {}
    }
    if let Some(detail) = stall.detail
        && said != Some(detail)
    {
        phrase.push_str(&format!(" · {detail}"));
    }
    if let Some(share) = stall.kernel_share
        && stall.cause == Cause::Cpu
        && share >= 0.5
    {
        phrase.push_str(&format!(" ({} in the kernel)", quantity::percent(share)));
    }
    phrase
}

/// The function and place of a blocker in `columns`. The name of the file and the line are never
/// cut, as they are what the report is for.
pub(super) fn fit(blocker: &Blocker, columns: usize) -> (String, Option<String>) {
    let Some(file) = &blocker.file else {
        return (keep_end(&blocker.function, columns.max(MIN_FUNCTION)).into_owned(), None);
    };
    let function_columns = width(&blocker.function).min(MIN_FUNCTION.max(columns / 2));
    let shown = place(file, blocker.line, columns.saturating_sub(function_columns + 2));
    let room = columns.saturating_sub(width(&shown) + 2).max(MIN_FUNCTION);
    (keep_end(&blocker.function, room).into_owned(), Some(shown))
}

/// Columns without which a blocker isn't shown beside the duration.
fn least_columns(blocker: &Blocker) -> usize {
    let place = blocker.file.as_ref().map_or(0, |file| 2 + width(&place(file, blocker.line, 0)));
    " in ".len() + width(&blocker.function).min(MIN_FUNCTION * 2) + place
}

/// `file:line` in `columns` if that can be done by leaving out leading folders.
pub(super) fn place(file: &str, line: Option<u32>, columns: usize) -> String {
    let line = line.map_or_else(String::new, |line| format!(":{line}"));
    if width(file) + width(&line) <= columns {
        return format!("{file}{line}");
    }
    let name = Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or(file);
    let folders = file.strip_suffix(name).unwrap_or_default().trim_end_matches('/');
    let mut kept = name;
    // Takes folders back, innermost first, while there is room for them and for `…/`.
    for (at, _) in folders.rmatch_indices('/') {
        let longer = &file[at + 1..];
        if 2 + width(longer) + width(&line) > columns {
            break;
        }
        kept = longer;
    }
    if kept.len() == file.len() { format!("{file}{line}") } else { format!("…/{kept}{line}") }
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn places_lose_folders_but_never_the_line() {
        let file = "/srv/shop/app/handlers.py";
        assert_eq!(place(file, Some(35), 80), "/srv/shop/app/handlers.py:35");
        assert_eq!(place(file, Some(35), 24), "…/app/handlers.py:35");
        assert_eq!(place(file, Some(35), 26), "…/shop/app/handlers.py:35");
        assert_eq!(place(file, Some(35), 1), "…/handlers.py:35");
        assert_eq!(place("main.py", Some(3), 1), "main.py:3");
        assert_eq!(place("/main.py", None, 1), "…/main.py");
        assert_eq!(place("a/b/", None, 2), "…/b");
    }
}
