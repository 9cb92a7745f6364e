//! Stalls summed up by something else than the blocker: task, resource, cause or loop.

use std::collections::BTreeMap;

use super::blockers::headline_word;
use crate::blame::Stall;
use crate::stalls::Cause;

/// What to sum up by.
///
/// Comments of the variants are also the help text of `--by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum GroupBy {
    /// The code to blame
    Blocker,
    /// The task that was running
    Task,
    /// What system calls waited for: a file, a socket, a child
    Resource,
    /// The ledger's causes
    Cause,
    /// The loop's thread
    Loop,
}

impl GroupBy {
    /// The name used by `--by`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocker => "blocker",
            Self::Task => "task",
            Self::Resource => "resource",
            Self::Cause => "cause",
            Self::Loop => "loop",
        }
    }
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What the stalls have in common; `None` for those that have none of it.
    pub key: Option<String>,
    /// How many stalls have time in it.
    pub count: u64,
    /// That time together.
    pub total_ns: u64,
    /// The most time of one stall.
    pub max_ns: u64,
}

/// Sums stalls up. The totals of all rows are the duration of all stalls, whatever the key.
#[derive(Debug, Clone)]
pub struct Groups {
    by: GroupBy,
    rows: BTreeMap<Option<String>, (u64, u64, u64)>,
}

impl Groups {
    /// Without stalls.
    #[must_use]
    pub const fn new(by: GroupBy) -> Self {
        Self { by, rows: BTreeMap::new() }
    }

    /// What is summed up by.
    #[must_use]
    pub const fn by(&self) -> GroupBy {
        self.by
    }

    /// Adds a stall.
    pub fn add(&mut self, stall: &Stall) {
        match self.by {
            GroupBy::Blocker => self.count(Some(blocker(stall)), stall.duration_ns),
            GroupBy::Task => {
                let task = stall.task.as_ref().map(|task| match task.chain.last() {
                    Some(innermost) if *innermost != task.name => {
                        format!("{} ({innermost})", task.name)
                    }
                    _ => task.name.clone(),
                });
                self.count(task, stall.duration_ns);
            }
            GroupBy::Loop => {
                let name = format!("{} ({})", stall.thread, stall.tid);
                self.count(Some(name), stall.duration_ns);
            }
            GroupBy::Cause => {
                let mut rest = stall.duration_ns;
                for (cause, ns) in stall.ledger.sorted() {
                    let ns = ns.min(rest);
                    rest -= ns;
                    self.count(Some(cause.name().to_owned()), ns);
                }
                self.count(Some(Cause::Unexplained.name().to_owned()), rest);
            }
            GroupBy::Resource => {
                let mut rest = stall.duration_ns;
                let mut by_resource: BTreeMap<&str, u64> = BTreeMap::new();
                for call in &stall.syscalls {
                    if let Some(resource) = &call.resource {
                        let ns = call.total_ns.min(rest);
                        rest -= ns;
                        // For how long was asked is no resource: sleeps are one.
                        let sleeps = matches!(call.name, "nanosleep" | "clock_nanosleep");
                        let key = if sleeps { call.name } else { resource.as_str() };
                        *by_resource.entry(key).or_default() += ns;
                    }
                }
                for stack in &stall.stacks {
                    if let Some(resource) = &stack.resource {
                        let ns = stack.total_ns.min(rest);
                        rest -= ns;
                        *by_resource.entry(resource).or_default() += ns;
                    }
                }
                for (resource, ns) in by_resource {
                    self.count(Some(resource.to_owned()), ns);
                }
                self.count(None, rest);
            }
        }
    }

    /// The rows, largest total first.
    #[must_use]
    pub fn rows(&self) -> Vec<Group> {
        let row = |(key, &(count, total_ns, max_ns)): (&Option<String>, &(u64, u64, u64))| Group {
            key: key.clone(),
            count,
            total_ns,
            max_ns,
        };
        let mut rows: Vec<Group> = self.rows.iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.total_ns, row.max_ns)));
        rows
    }

    fn count(&mut self, key: Option<String>, ns: u64) {
        if ns == 0 {
            return;
        }
        let (count, total, max) = self.rows.entry(key).or_default();
        *count += 1;
        *total = total.saturating_add(ns);
        *max = ns.max(*max);
    }
}

/// Cause, closer word and place, as in a headline.
fn blocker(stall: &Stall) -> String {
    let mut text = stall.cause.name().to_owned();
    if let Some(word) = headline_word(stall) {
        text.push_str(&format!(" · {word}"));
    }
    let Some(blocker) = &stall.blocker else { return text };
    text.push_str(&format!(" in {}", blocker.function));
    if let Some(file) = &blocker.file {
        text.push_str(&format!("  {file}"));
        if let Some(line) = blocker.line {
            text.push_str(&format!(":{line}"));
        }
    }
    text
}
