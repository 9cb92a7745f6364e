//! Which stalls a report is about.

use regex::Regex;

use super::Summary;
use crate::blame::Stall;
use crate::stalls::Cause;
use crate::symbolize::Frame;

/// Conditions that a stall must meet, all of them. Without any, every stall passes.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Stalls that end at this time or later: nanoseconds since the epoch.
    pub since_unix_ns: Option<u64>,
    /// Stalls that begin before this time: nanoseconds since the epoch.
    pub until_unix_ns: Option<u64>,
    /// One of these main causes; any if empty.
    pub causes: Vec<Cause>,
    /// At least this long.
    pub min_duration_ns: u64,
    /// Something that names code, task, thread or resource of the stall matches.
    pub focus: Option<Regex>,
}

impl Filter {
    /// Whether a stall passes.
    #[must_use]
    pub fn passes(&self, stall: &Stall) -> bool {
        let end = stall.start_unix_ns.saturating_add(stall.duration_ns);
        self.since_unix_ns.is_none_or(|since| end >= since)
            && self.until_unix_ns.is_none_or(|until| stall.start_unix_ns < until)
            && (self.causes.is_empty() || self.causes.contains(&stall.cause))
            && stall.duration_ns >= self.min_duration_ns
            && self.focus.as_ref().is_none_or(|focus| mentions(stall, focus))
    }

    /// Whether a time lies in the chosen window.
    #[must_use]
    pub fn covers(&self, unix_ns: u64) -> bool {
        self.since_unix_ns.is_none_or(|since| unix_ns >= since)
            && self.until_unix_ns.is_none_or(|until| unix_ns < until)
    }

    /// Whether it leaves anything out.
    #[must_use]
    pub const fn is_everything(&self) -> bool {
        self.since_unix_ns.is_none()
            && self.until_unix_ns.is_none()
            && self.causes.is_empty()
            && self.min_duration_ns == 0
            && self.focus.is_none()
    }

    /// Makes a summary one of the chosen window, and says what it does not tell. `loops_of` is the
    /// time that the loops' numbers are of, as near to the window as a recording has their state.
    pub(crate) fn narrow(
        &self,
        summary: &mut Summary,
        began_unix_ns: u64,
        loops_of: Option<(u64, u64)>,
    ) {
        if self.is_everything() {
            return;
        }
        summary.filtered = true;
        let since = |unix_ns: u64| unix_ns.saturating_sub(began_unix_ns) as f64 / 1e9;
        let of = match loops_of {
            Some((from, to)) => format!("from {:.1} s to {:.1} s", since(from), since(to)),
            None => "of the whole recording".to_owned(),
        };
        summary.health.warnings.push(format!(
            "filtered: stalls are those that were asked for; turns and percentiles of the loops are \
             those {of}"
        ));
        if began_unix_ns == 0 {
            return;
        }
        let ended = began_unix_ns.saturating_add(summary.observed_ns);
        let from = self.since_unix_ns.unwrap_or(0).max(began_unix_ns);
        let to = self.until_unix_ns.unwrap_or(u64::MAX).min(ended);
        summary.observed_ns = to.saturating_sub(from);
        if to <= from {
            summary.health.warnings.push("nothing was recorded in the time asked for".to_owned());
        }
        if loops_of.is_none() {
            for one in &mut summary.loops {
                one.observed_ns = one.observed_ns.min(summary.observed_ns);
            }
        }
    }
}

fn mentions(stall: &Stall, focus: &Regex) -> bool {
    let frame = |frame: &Frame| {
        focus.is_match(&frame.function) || frame.file.as_ref().is_some_and(|f| focus.is_match(f))
    };
    stall.stacks.iter().any(|stack| {
        stack.frames.iter().any(frame)
            || stack.resource.as_ref().is_some_and(|r| focus.is_match(r))
            || stack.holder.as_ref().is_some_and(|holder| holder.frames.iter().any(frame))
    }) || stall.blocker.as_ref().is_some_and(|blocker| focus.is_match(&blocker.function))
        || stall.task.as_ref().is_some_and(|task| {
            focus.is_match(&task.name) || task.chain.iter().any(|name| focus.is_match(name))
        })
        || stall.syscalls.iter().any(|call| {
            focus.is_match(call.name) || call.resource.as_ref().is_some_and(|r| focus.is_match(r))
        })
        || focus.is_match(&stall.thread)
}
