//! Which task a stack belongs to, and the chain of awaits down to the code that runs.
//!
//! tokio's tasks have no names: a task is told by the future that it is. Its frames lie behind the
//! innermost poll of a task; what is inlined there is named by the debug information. Nothing is
//! made up: without such frames there is no task.

use super::park::{POLL, mentions};
use crate::blame::{Stack, Task};
use crate::symbolize::Frame;

/// Calls between the poll of one future and that of the next, by parts of their names: whatever
/// else is called is no await any more.
const GLUE: [&str; 4] = ["poll", "Future", "Pin<", "future::"];

/// The task that a stack runs; `frames` go from the root to the leaf. `None` outside of tasks.
#[must_use]
pub fn task_of(frames: &[Frame]) -> Option<Task> {
    let polled = frames.iter().rposition(|frame| mentions(frame, &POLL))?;
    let inside = &frames[polled + 1..];
    let begun = inside.iter().position(|frame| body(&frame.function).is_some())?;
    let chain: Vec<&Frame> = inside[begun..]
        .iter()
        .take_while(|frame| {
            body(&frame.function).is_some()
                || (!frame.user_code && GLUE.iter().any(|part| frame.function.contains(part)))
        })
        .filter(|frame| body(&frame.function).is_some())
        .collect();
    // A server's own tasks run futures of its framework around those that people wrote.
    let own: Vec<&Frame> = chain.iter().copied().filter(|frame| frame.user_code).collect();
    let chain = if own.is_empty() { chain } else { own };
    let outermost = chain.first()?;
    let name = match body(&outermost.function)? {
        Body { path: "", kind } => match place(outermost) {
            Some(place) => format!("{kind} at {place}"),
            None => kind.to_owned(),
        },
        body => body.name(),
    };
    let chain = chain
        .iter()
        .filter_map(|frame| {
            let name = body(&frame.function)?.name();
            Some(match place(frame) {
                Some(place) => format!("{name} ({place})"),
                None => name,
            })
        })
        .collect();
    Some(Task { name, chain })
}

/// Time of stacks in which the thread had handed its worker's work to another
/// (`tokio::task::block_in_place`): nobody waits for it meanwhile.
pub fn handed_off<'a>(stacks: impl Iterator<Item = &'a Stack>) -> u64 {
    let in_place = |stack: &&Stack| {
        let mut frames = stack.frames.iter();
        frames.any(|frame| !frame.user_code && frame.function.contains("block_in_place"))
    };
    stacks.filter(in_place).map(|stack| stack.total_ns).sum()
}

/// The code of an async function or block, or a future's own `poll`.
struct Body<'a> {
    /// Where it stands; empty where the debug information does not say.
    path: &'a str,
    /// What it is.
    kind: &'static str,
}

impl Body<'_> {
    fn name(&self) -> String {
        let path = shorten(self.path);
        match (path.is_empty(), self.kind.is_empty()) {
            (true, _) => self.kind.to_owned(),
            (_, true) => path,
            _ => format!("{path}::{}", self.kind),
        }
    }
}

/// Whether a function is the body of a future.
fn body(function: &str) -> Option<Body<'_>> {
    if let Some(of) = function.strip_prefix('<')
        && let Some((of, rest)) = of.rsplit_once(" as core::future::future::Future>::")
        && rest == "poll"
    {
        // A pointer to a future is none of its own.
        let pointer = ["core::pin::Pin", "alloc::boxed::Box", "&mut "];
        let own = !pointer.iter().any(|kind| of.starts_with(kind));
        return own.then_some(Body { path: of, kind: "" });
    }
    let (path, last) = function.rsplit_once("::").unwrap_or(("", function));
    let kind = if last.starts_with("{async_fn") {
        "{async fn}"
    } else if last.starts_with("{async_block") {
        "{async block}"
    } else if last.starts_with("{async_closure") {
        "{async closure}"
    } else if last == "{{closure}}" || (last.starts_with("{closure#") && !path.is_empty()) {
        // Mangled names do not tell which of them it is.
        "{async}"
    } else {
        return None;
    };
    Some(Body { path, kind })
}

/// A path as people write it: no generic arguments, and the inner bodies of futures in words.
fn shorten(path: &str) -> String {
    let mut short = String::new();
    let mut depth = 0_u32;
    let mut before = ' ';
    for one in path.chars() {
        match one {
            '<' => depth += 1,
            // Not that of `->`.
            '>' if before != '-' => depth = depth.saturating_sub(1),
            _ if depth == 0 => short.push(one),
            _ => {}
        }
        before = one;
    }
    let segments = short.split("::").filter(|segment| !segment.is_empty()).map(|segment| {
        if segment.starts_with("{async_fn") {
            "{async fn}"
        } else if segment.starts_with("{async_block") {
            "{async block}"
        } else if segment.starts_with("{{closure}}") || segment.starts_with("{closure#") {
            "{closure}"
        } else {
            segment
        }
    });
    segments.collect::<Vec<_>>().join("::")
}

/// File, with the folder it lies in, and line.
fn place(frame: &Frame) -> Option<String> {
    let file = frame.file.as_deref()?;
    let mut slashes = file.rmatch_indices('/').map(|(at, _)| at + 1);
    let from = slashes.nth(1).unwrap_or(0);
    Some(format!("{}:{}", &file[from..], frame.line?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn frame(function: &str, file: Option<&str>, line: u32) -> Frame {
        Frame {
            file: file.map(Arc::from),
            line: file.map(|_| line),
            user_code: function.contains("app::") || function.starts_with('{'),
            ..Frame::of_symbol(Arc::from(function))
        }
    }

    fn stack(inside: &[(&str, u32)]) -> Vec<Frame> {
        let outside = [
            "std::rt::thread_start",
            "tokio::runtime::task::raw::poll",
            "tokio::runtime::scheduler::multi_thread::worker::run",
            "tokio::runtime::task::raw::poll",
            "tokio::runtime::task::core::Core<T,S>::poll::{{closure}}",
        ];
        let outside = outside.iter().map(|name| frame(name, None, 0));
        let inside =
            inside.iter().map(|(name, line)| frame(name, Some("/srv/app/src/a.rs"), *line));
        outside.chain(inside).collect()
    }

    #[test]
    fn awaits_go_from_the_outermost_to_the_innermost_with_their_lines() {
        let task = task_of(&stack(&[
            ("app::serve::{{closure}}", 10),
            ("<core::pin::Pin<P> as core::future::future::Future>::poll", 1),
            ("app::handlers::report::{async_fn#0}", 20),
            ("app::render", 30),
            ("app::render::{{closure}}", 31),
        ]))
        .expect("a task");
        assert_eq!(task.name, "app::serve::{async}");
        assert_eq!(
            task.chain,
            [
                "app::serve::{async} (src/a.rs:10)",
                "app::handlers::report::{async fn} (src/a.rs:20)"
            ],
            "a closure that the code calls is no await"
        );
    }

    #[test]
    fn futures_of_a_framework_are_left_out_where_there_are_the_users_own() {
        let task = task_of(&stack(&[
            ("<hyper::Conn<T,S,E> as core::future::future::Future>::poll", 1),
            ("axum::handler::call::{{closure}}", 2),
            ("app::report::{{closure}}", 3),
        ]))
        .expect("a task");
        assert_eq!((&*task.name, task.chain.len()), ("app::report::{async}", 1));
        let task = task_of(&stack(&[
            ("<hyper::Conn<T,S,E> as core::future::future::Future>::poll", 1),
            ("axum::handler::call::{{closure}}", 2),
        ]))
        .expect("a task");
        assert_eq!((&*task.name, task.chain.len()), ("hyper::Conn", 2));
    }

    #[test]
    fn a_name_without_a_path_is_told_by_its_place() {
        let task = task_of(&stack(&[("{async_fn#0}", 7)])).expect("a task");
        assert_eq!(task.name, "{async fn} at src/a.rs:7");
        assert_eq!(task.chain, ["{async fn} (src/a.rs:7)"]);
    }

    #[test]
    fn generics_are_left_out_of_names() {
        let name = |function| body(function).expect("a future").name();
        assert_eq!(
            name("app::retry<app::F, fn() -> u8>::{async_fn#0}::{async_block#1}"),
            "app::retry::{async fn}::{async block}"
        );
        assert_eq!(name("<app::Sleepy<T> as core::future::future::Future>::poll"), "app::Sleepy");
        assert!(body("<alloc::boxed::Box<F> as core::future::future::Future>::poll").is_none());
        assert!(body("app::handlers::report").is_none());
        assert!(body("{closure#0}").is_none());
    }

    #[test]
    fn a_worker_whose_work_was_handed_off_is_told_by_tokios_frame() {
        let stack = |function| {
            Stack::new(crate::stalls::Cause::Syscall, 7, 1, vec![frame(function, None, 0)])
        };
        let stacks = [
            stack("tokio::runtime::scheduler::multi_thread::worker::block_in_place"),
            stack("app::block_in_place"),
            stack("app::handler"),
        ];
        assert_eq!(handed_off(stacks.iter()), 7);
    }

    #[test]
    fn outside_of_tasks_there_is_no_task() {
        assert!(task_of(&[frame("app::main::{{closure}}", None, 0)]).is_none());
        assert!(task_of(&stack(&[("app::render", 3)])).is_none());
    }
}
