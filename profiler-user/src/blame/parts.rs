//! A long turn need not be one slow callback: its time by coroutine and place. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::blocker::culprit;
use super::{Stack, Task};
use crate::stalls::{Cause, Ledger};

/// Parts that are kept of a stall.
const PARTS_MAX: usize = 16;

/// The name of a task that has none, or whose name is not known.
pub const NO_NAME: &str = "?";

/// Time of a stall at one place, in tasks of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// What the thread was doing there.
    pub cause: Cause,
    /// What those tasks were made of: their outermost coroutine of the user's own code, which is the
    /// endpoint in a web framework; without one the outermost at all; `None` outside of tasks.
    pub coroutine: Option<Arc<str>>,
    /// How many of them were seen: at least so many, since equal stacks of many tasks may be kept as
    /// one; 0 outside of tasks, and where tasks have no names to be told apart by.
    pub tasks: u32,
    /// The function to blame.
    pub function: Arc<str>,
    /// Its source file.
    pub file: Option<Arc<str>>,
    /// The line in `file` that holds most of it, from 1.
    pub line: Option<u32>,
    /// Time there, in nanoseconds: exact when asleep, shared out by samples on CPU.
    pub total_ns: u64,
    /// Share of the stall, 0 to 1.
    pub share: f64,
}

/// What the stacks of one part have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    cause: Cause,
    coroutine: Option<&'a str>,
    function: &'a str,
    file: Option<&'a str>,
}

/// What they sum up to.
#[derive(Default)]
struct Sum<'a> {
    tasks: BTreeSet<&'a str>,
    lines: BTreeMap<Option<u32>, u64>,
    total_ns: u64,
}

/// Splits a stall, heaviest part first. `tasks` has the task of each stack; `told_apart` says whether
/// tasks with equal names are the same one. Stacks that claim more than the ledger gives their cause are
/// scaled down; time that no code is to blame for is in no part.
#[must_use]
pub fn parts(
    ledger: &Ledger,
    stacks: &[Stack],
    tasks: &[Option<Task>],
    told_apart: bool,
) -> Vec<Part> {
    let mut sums: BTreeMap<Key<'_>, Sum<'_>> = BTreeMap::new();
    for (index, stack) in stacks.iter().enumerate().filter(|(_, stack)| stack.total_ns > 0) {
        let frame = match stack.cause {
            // Who waits for the lock is its victim.
            Cause::Gil => stack.holder.as_ref().and_then(|holder| culprit(&holder.frames)),
            cause if cause.has_blocker() => culprit(&stack.frames),
            _ => None,
        };
        let Some(frame) = frame else { continue };
        let task = tasks.get(index).and_then(Option::as_ref);
        let key = Key {
            cause: stack.cause,
            coroutine: task.and_then(|task| made_of(task, stack)),
            function: written_in(&frame.function),
            file: frame.file.as_deref(),
        };
        let sum = sums.entry(key).or_default();
        sum.total_ns += stack.total_ns;
        *sum.lines.entry(frame.line).or_default() += stack.total_ns;
        let name = task.map(|task| task.name.as_str());
        sum.tasks.extend(name.filter(|&name| told_apart && name != NO_NAME));
    }
    let claimed = |cause| stacks.iter().filter(move |s| s.cause == cause).map(|s| s.total_ns).sum();
    let scaled = |cause: Cause, ns: u64| {
        let (claimed, available): (u64, u64) = (claimed(cause), ledger.get(cause));
        if claimed <= available {
            return ns;
        }
        let ns = u128::from(ns) * u128::from(available) / u128::from(claimed);
        u64::try_from(ns).unwrap_or(u64::MAX)
    };
    let duration = ledger.total().max(1);
    let mut parts: Vec<Part> = sums
        .into_iter()
        .map(|(key, sum)| {
            let total_ns = scaled(key.cause, sum.total_ns);
            let heaviest =
                sum.lines.iter().max_by_key(|&(line, &ns)| (ns, std::cmp::Reverse(line)));
            Part {
                cause: key.cause,
                coroutine: key.coroutine.map(Arc::from),
                tasks: u32::try_from(sum.tasks.len()).unwrap_or(u32::MAX),
                function: Arc::from(key.function),
                file: key.file.map(Arc::from),
                line: heaviest.and_then(|(line, _)| *line),
                total_ns,
                share: total_ns as f64 / duration as f64,
            }
        })
        .filter(|part| part.total_ns > 0)
        .collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.total_ns));
    parts.truncate(PARTS_MAX);
    parts
}

/// The function whose text holds a comprehension: before CPython 3.12 (PEP 709) that is a function of
/// its own, at the same line.
fn written_in(function: &str) -> &str {
    [".<locals>.<listcomp>", ".<locals>.<setcomp>", ".<locals>.<dictcomp>"]
        .into_iter()
        .find_map(|comprehension| function.strip_suffix(comprehension))
        .map_or(function, written_in)
}

fn made_of<'a>(task: &'a Task, stack: &'a Stack) -> Option<&'a str> {
    let own = stack.frames.iter().filter(|frame| frame.user_code).map(|frame| &*frame.function);
    let is_coroutine = |name: &&str| task.chain.iter().any(|coroutine| coroutine == name);
    own.into_iter().find(is_coroutine).or_else(|| task.chain.first().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::Frame;

    fn stack(cause: Cause, total_ns: u64, function: &str, line: u32) -> Stack {
        let mut frame = Frame::of_symbol(Arc::from(function));
        (frame.file, frame.line, frame.user_code) = (Some(Arc::from("app.py")), Some(line), true);
        Stack::new(cause, total_ns, 1, vec![frame])
    }

    fn task(name: &str, coroutine: &str) -> Option<Task> {
        Some(Task { name: name.to_owned(), chain: vec![coroutine.to_owned(), "inner".to_owned()] })
    }

    #[test]
    fn a_turn_of_many_tasks_is_split_by_what_they_are_made_of_and_by_place() {
        let mut ledger = Ledger::default();
        ledger.add(Cause::Cpu, 90);
        ledger.add(Cause::Syscall, 60);
        ledger.add(Cause::Runqueue, 50);
        let stacks = [
            stack(Cause::Cpu, 30, "burn", 7),
            stack(Cause::Cpu, 40, "burn.<locals>.<listcomp>", 8),
            stack(Cause::Cpu, 20, "burn", 8),
            stack(Cause::Syscall, 60, "nap", 3),
            stack(Cause::Runqueue, 50, "burn", 7),
        ];
        let tasks = [
            task("price-1", "price"),
            task(NO_NAME, "price"),
            task("Task-9", "other"),
            task("stock-1", "stock"),
            None,
        ];
        let found = parts(&ledger, &stacks, &tasks, true);
        let told: Vec<_> = found
            .iter()
            .map(|p| (p.coroutine.as_deref(), p.tasks, &*p.function, p.line, p.total_ns))
            .collect();
        assert_eq!(
            told,
            [
                (Some("price"), 1, "burn", Some(8), 70),
                (Some("stock"), 1, "nap", Some(3), 60),
                (Some("other"), 1, "burn", Some(8), 20),
            ]
        );
        assert!((found[0].share - 0.35).abs() < 1e-9);
    }

    #[test]
    fn a_task_of_a_framework_is_known_by_the_users_own_coroutine() {
        let mut ledger = Ledger::default();
        ledger.add(Cause::Cpu, 10);
        let chain = ["run_asgi", "block"].map(str::to_owned).to_vec();
        let tasks = [Some(Task { name: "Task-4".to_owned(), chain })];
        let found = parts(&ledger, &[stack(Cause::Cpu, 10, "block", 7)], &tasks, true);
        assert_eq!(found[0].coroutine.as_deref(), Some("block"));
    }

    #[test]
    fn parts_never_claim_more_than_the_ledger_has() {
        let mut ledger = Ledger::default();
        ledger.add(Cause::Cpu, 50);
        let stacks = [stack(Cause::Cpu, 60, "a", 1), stack(Cause::Cpu, 40, "b", 2)];
        let found = parts(&ledger, &stacks, &[], true);
        assert_eq!(found.iter().map(|p| p.total_ns).collect::<Vec<_>>(), [30, 20]);
        assert_eq!((found[0].tasks, &found[0].coroutine), (0, &None));
    }

    #[test]
    fn who_waits_for_the_lock_is_in_no_part() {
        let mut ledger = Ledger::default();
        ledger.add(Cause::Gil, 50);
        assert!(parts(&ledger, &[stack(Cause::Gil, 50, "victim", 1)], &[], true).is_empty());
    }
}
