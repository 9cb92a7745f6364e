//! Thread pools: how busy they were, and at what. Built from looks at them, a few times a second.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stalls::Cause;
use crate::symbolize::Frame;

/// Stacks that are kept of a pool.
const MAX_STACKS: usize = 8;

/// A thread pool over the time it was watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolSummary {
    /// Process id.
    pub pid: u32,
    /// What kind of pool: `anyio`, `ThreadPoolExecutor` …
    pub kind: String,
    /// What tells it from others of its kind.
    pub name: String,
    /// Most threads that it had.
    pub threads: u32,
    /// How many it may have; `None` if that is not known.
    pub limit: Option<u32>,
    /// Whether the limit is a conclusion, and was not read from the pool itself.
    pub limit_inferred: bool,
    /// Most threads that worked at the same time.
    pub busy_max: u32,
    /// Most work that waited; `None` if that can't be seen.
    pub queued_max: Option<u64>,
    /// Time during which every thread that it may have worked, as far as the looks tell.
    pub saturated_ns: u64,
    /// How often that began.
    pub saturations: u64,
    /// What its threads were at when the most of them worked, the last time that was so.
    pub stacks: Vec<PoolStack>,
    /// What to do about it.
    pub advice: Option<String>,
}

/// Threads of a pool that were at the same place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolStack {
    /// How many.
    pub threads: u32,
    /// What they were doing.
    pub cause: Cause,
    /// Where, root to leaf.
    pub frames: Vec<Frame>,
}

/// A thread that works.
#[derive(Debug, Clone)]
pub struct BusyThread {
    /// What it was doing.
    pub cause: Cause,
    /// Where, root to leaf.
    pub frames: Vec<Frame>,
}

/// One look at a pool.
#[derive(Debug, Clone)]
pub struct PoolLook {
    /// Threads that it has.
    pub threads: u32,
    /// Those that work.
    pub busy: Vec<BusyThread>,
    /// Work that waits, where that can be seen.
    pub queued: Option<u64>,
    /// Work that has a thread or is about to, where the pool says so.
    pub taken: Option<u64>,
    /// How many threads it may have, where the pool says so.
    pub limit: Option<u32>,
    /// How many threads the pools of this kind may have if nobody changed that.
    pub default_limit: Option<u32>,
}

/// What tells pools apart: process, kind, and a number of the pool.
pub type PoolKey = (u32, &'static str, u64);

#[derive(Debug, Clone)]
struct Pool {
    summary: PoolSummary,
    saturated_since: Option<u64>,
    last_ns: u64,
}

/// All pools that were seen.
#[derive(Debug, Clone, Default)]
pub struct Pools(BTreeMap<PoolKey, Pool>);

impl Pools {
    /// Takes note of a look.
    pub fn saw(&mut self, key: PoolKey, now_ns: u64, look: &PoolLook) {
        let (pid, kind, number) = key;
        let others = self.0.keys().filter(|k| (k.0, k.1) == (pid, kind) && k.2 != number).count();
        let pool = self.0.entry(key).or_insert_with(|| Pool {
            summary: PoolSummary {
                pid,
                kind: kind.to_owned(),
                name: format!("{kind}-{}", others + 1),
                threads: 0,
                limit: None,
                limit_inferred: true,
                busy_max: 0,
                queued_max: None,
                saturated_ns: 0,
                saturations: 0,
                stacks: Vec::new(),
                advice: None,
            },
            saturated_since: None,
            last_ns: now_ns,
        });
        pool.saw(now_ns, look);
    }

    /// One entry for each pool, as of the last look.
    #[must_use]
    pub fn summaries(&self) -> Vec<PoolSummary> {
        self.0
            .values()
            .map(|pool| {
                let mut summary = pool.summary.clone();
                if let Some(since) = pool.saturated_since {
                    summary.saturated_ns += pool.last_ns.saturating_sub(since);
                }
                summary.advice = advice(&summary);
                summary
            })
            .collect()
    }
}

impl Pool {
    /// Concludes the limit of a pool that does not tell it.
    fn infer(summary: &mut PoolSummary, look: &PoolLook, all_work: bool) {
        // A pool that has work waiting while all its threads work may not have more threads: it would
        // have started one.
        if all_work && look.queued.is_some_and(|queued| queued > 0) {
            summary.limit = Some(look.threads);
        } else if let Some(default) = look.default_limit {
            // More threads than that, and somebody has raised the limit.
            summary.limit = (summary.threads <= default).then_some(default);
        }
    }

    fn saw(&mut self, now_ns: u64, look: &PoolLook) {
        let summary = &mut self.summary;
        let busy = u32::try_from(look.busy.len()).unwrap_or(u32::MAX);
        summary.threads = summary.threads.max(look.threads);
        summary.queued_max = summary.queued_max.max(look.queued);
        let all_work = busy > 0 && busy >= look.threads;
        let saturated = if let Some(limit) = look.limit {
            (summary.limit, summary.limit_inferred) = (Some(limit), false);
            look.taken.unwrap_or(u64::from(busy)) >= u64::from(limit)
        } else {
            summary.limit_inferred = true;
            Self::infer(summary, look, all_work);
            if look.default_limit.is_some() && summary.limit.is_none() {
                // What was taken for saturation was none.
                (summary.saturations, summary.saturated_ns) = (0, 0);
                self.saturated_since = None;
            }
            let waits = look.queued.is_some_and(|queued| queued > 0);
            all_work
                && (waits
                    || (look.queued.is_none() && summary.limit.is_some_and(|most| busy >= most)))
        };
        match (saturated, self.saturated_since) {
            (true, None) => {
                self.saturated_since = Some(now_ns);
                summary.saturations += 1;
            }
            (false, Some(since)) => {
                summary.saturated_ns += now_ns.saturating_sub(since);
                self.saturated_since = None;
            }
            _ => {}
        }
        self.last_ns = now_ns;
        // Of several looks the last: when the others were made, some of them may just have begun.
        if busy > 0 && busy >= summary.busy_max {
            summary.busy_max = busy;
            summary.stacks = stacks(&look.busy);
        }
    }
}

/// Equal places are one, most threads first.
fn stacks(busy: &[BusyThread]) -> Vec<PoolStack> {
    let mut stacks: Vec<PoolStack> = Vec::new();
    for thread in busy {
        let same = |s: &&mut PoolStack| s.cause == thread.cause && s.frames == thread.frames;
        match stacks.iter_mut().find(same) {
            Some(stack) => stack.threads += 1,
            None => stacks.push(PoolStack {
                threads: 1,
                cause: thread.cause,
                frames: thread.frames.clone(),
            }),
        }
    }
    stacks.sort_by_key(|stack| std::cmp::Reverse(stack.threads));
    stacks.truncate(MAX_STACKS);
    stacks
}

fn advice(pool: &PoolSummary) -> Option<String> {
    // A full executor that nothing waits for is as large as it should be; the next endpoint's work waits
    // in any case.
    if pool.saturations == 0 || (pool.kind != "anyio" && pool.queued_max == Some(0)) {
        return None;
    }
    let text = match pool.kind.as_str() {
        "anyio" => {
            "synchronous endpoints and dependencies wait for a free thread: make the blocking call \
             asynchronous, or raise the limit \
             (anyio.to_thread.current_default_thread_limiter().total_tokens)"
        }
        "tokio-blocking" => {
            "work of spawn_blocking and tokio::fs waits for a free thread: never wait there for more such \
             work, bound how much is started (tokio::sync::Semaphore), or raise max_blocking_threads"
        }
        _ => {
            "work waits for a free thread: give it a bounded executor of its own, or this one more \
             workers (max_workers)"
        }
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const KEY: PoolKey = (1, "anyio", 0);

    fn look(threads: u32, busy: usize, queued: Option<u64>, default: Option<u32>) -> PoolLook {
        let frames = vec![Frame::of_symbol(Arc::from("get"))];
        let thread = BusyThread { cause: Cause::Syscall, frames };
        PoolLook {
            threads,
            busy: vec![thread; busy],
            queued,
            taken: None,
            limit: None,
            default_limit: default,
        }
    }

    fn after(looks: &[PoolLook]) -> PoolSummary {
        let mut pools = Pools::default();
        for (second, look) in looks.iter().enumerate() {
            pools.saw(KEY, second as u64 * 1_000, look);
        }
        pools.summaries().remove(0)
    }

    #[test]
    fn one_thread_less_than_the_limit_is_not_saturated() {
        let at = |n: u32| after(&[look(n, n as usize, None, Some(40)), look(n, 0, None, Some(40))]);
        assert_eq!((at(39).saturations, at(39).busy_max, at(39).advice), (0, 39, None));
        let full = at(40);
        assert_eq!((full.saturations, full.saturated_ns, full.limit), (1, 1_000, Some(40)));
        assert!(full.advice.is_some());
        assert_eq!((full.stacks.len(), full.stacks[0].threads), (1, 40));
    }

    #[test]
    fn more_threads_than_the_default_say_that_the_limit_is_another() {
        let raised = after(&[look(45, 45, None, Some(40))]);
        assert_eq!((raised.limit, raised.saturations), (None, 0));
        let grew = [40, 40, 45].map(|n| look(n, n as usize, None, Some(40)));
        let grown = after(&grew);
        assert_eq!((grown.limit, grown.saturations, grown.saturated_ns), (None, 0, 0));
    }

    #[test]
    fn a_pool_with_waiting_work_is_at_its_limit_and_without_it_nobody_knows() {
        let waiting = after(&[look(6, 6, Some(34), None), look(6, 6, Some(1), None)]);
        assert_eq!((waiting.limit, waiting.saturated_ns, waiting.saturations), (Some(6), 1_000, 1));
        let idle = after(&[look(6, 6, Some(0), None), look(6, 2, Some(3), None)]);
        assert_eq!((idle.limit, idle.saturations, idle.queued_max), (None, 0, Some(3)));
    }

    #[test]
    fn what_the_pool_says_counts_more_than_what_its_threads_look_like() {
        let told = |taken: u64, limit: u32| PoolLook {
            taken: Some(taken),
            limit: Some(limit),
            ..look(45, 39, Some(0), Some(40))
        };
        let raised = after(&[told(44, 50)]);
        assert_eq!((raised.limit, raised.limit_inferred, raised.saturations), (Some(50), false, 0));
        // Threads that are left from before the limit was lowered, or that have not begun yet.
        let full = after(&[told(40, 40), told(40, 40)]);
        assert_eq!((full.limit, full.saturations, full.saturated_ns), (Some(40), 1, 1_000));
        let inferred = after(&[told(40, 40), look(40, 40, None, Some(40))]);
        assert!(inferred.limit_inferred);
    }
}
