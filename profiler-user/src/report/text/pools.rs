//! Thread pools in the text report: how busy they were, and at what line.

use super::line::{Line, Tone, wrap};
use crate::aggregate::{PoolStack, PoolSummary};
use crate::report::quantity;

/// Every pool that worked.
pub(super) fn lines(pools: &[PoolSummary], columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for pool in pools.iter().filter(|pool| pool.busy_max > 0) {
        let limit = match pool.limit {
            // Nobody told; it shows in what the threads do.
            Some(limit) if pool.limit_inferred => format!("~{limit}"),
            Some(limit) => limit.to_string(),
            None => "?".to_owned(),
        };
        let text = format!("pool {} (pid {})  ", pool.name, pool.pid);
        let busy = format!("{}/{limit} busy", pool.busy_max);
        let mut line = Line::default().with(Tone::Plain, &text);
        if pool.saturations > 0 {
            line.push(Tone::Warning, &busy);
            let span = quantity::duration(pool.saturated_ns);
            line.push(Tone::Warning, &format!(", saturated for {span}"));
        } else {
            line.push(Tone::Plain, &busy);
        }
        if let Some(queued) = pool.queued_max.filter(|&queued| queued > 0) {
            line.push(Tone::Plain, &format!(", up to {queued} waiting"));
        }
        lines.push(line);
        for stack in pool.stacks.iter().take(3) {
            lines.push(place(stack));
        }
        if let Some(advice) = &pool.advice {
            for part in wrap(advice, columns.saturating_sub(8)) {
                lines.push(Line::indented(8).with(Tone::Advice, &part));
            }
        }
    }
    lines
}

/// The innermost line of the user's own code, else the innermost of any.
fn place(stack: &PoolStack) -> Line {
    let inner = || stack.frames.iter().rev();
    let frame = inner().find(|frame| frame.user_code).or_else(|| inner().next());
    let threads = quantity::counted(u64::from(stack.threads), "thread");
    let mut line =
        Line::indented(8).with(Tone::Plain, &format!("{threads} at {}", stack.cause.name()));
    if let Some(frame) = frame {
        line.push(Tone::Plain, " in ");
        line.push(Tone::Strong, &frame.function);
        if let (Some(file), Some(number)) = (&frame.file, frame.line) {
            line.push(Tone::Plain, &format!("  {file}:{number}"));
        }
    }
    line
}
