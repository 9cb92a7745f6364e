//! A recorded stall, named again by better debug files: its stacks, and what is told from them.

use crate::blame::{Runtime, Stall, blocker, parts};
use crate::runtimes::task_of;
use crate::symbolize::Renamer;

/// Names a stall's stacks again, and tells its blocker, task and parts anew where that changed any.
pub(super) fn rename(stall: &mut Stall, renamer: &mut Renamer) {
    let mut changed = false;
    for stack in &mut stall.stacks {
        let others = stack.holder.iter_mut().chain(&mut stack.candidates);
        let others = others.map(|other| &mut other.frames);
        for frames in std::iter::once(&mut stack.frames).chain(others) {
            if let Some(named) = renamer.stack(frames) {
                *frames = named;
                changed = true;
            }
        }
    }
    if !changed {
        return;
    }
    stall.blocker = blocker(stall.cause, stall.detail, &stall.ledger, &stall.stacks);
    if stall.runtime == Runtime::Tokio {
        let tasks: Vec<_> = stall.stacks.iter().map(|stack| task_of(&stack.frames)).collect();
        let heaviest = stall.stacks.iter().position(|stack| stack.cause == stall.cause);
        stall.task = tasks.get(heaviest.unwrap_or(0)).cloned().flatten();
        stall.parts = parts(&stall.ledger, &stall.stacks, &tasks, false);
    } else if stall.parts.iter().all(|part| part.coroutine.is_none()) {
        stall.parts = parts(&stall.ledger, &stall.stacks, &[], false);
    }
}
