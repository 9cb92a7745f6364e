//! How many threads a pool may have, read from the object that decides.

use super::interpreter::Interpreter;

/// `PyDictObject.ma_used` of the tasks that wait; `PySetObject.used` of those that have a token.
const DICT_USED: u16 = 16;
const SET_USED: u16 = 24;
/// `PyWeakReference.wr_object`
const REFERENT: u16 = 16;
/// Words of a run variable among which its name is looked for.
const VARIABLE_WORDS: u16 = 6;
/// Counts that are believed.
const COUNT_MAX: u64 = 1 << 24;

/// What AnyIO's limiter of worker threads says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limiter {
    /// Threads that may work at the same time.
    pub total: u32,
    /// Work that has a thread, or is about to.
    pub borrowed: u64,
    /// Work that waits.
    pub waiting: u64,
}

impl Interpreter {
    /// `ThreadPoolExecutor._max_workers`, by the weak reference that each of its workers has.
    pub(super) fn max_workers(&self, reference: u64) -> Option<u32> {
        let executor = self.part(reference, REFERENT)?;
        let limit = self.small_integer(self.attribute(executor, "_max_workers")?)?;
        (limit > 0).then_some(limit)
    }

    /// Where AnyIO's default limiter of worker threads is, if there is exactly one: each loop of a
    /// process has its own.
    pub(super) fn find_limiter(&self) -> Option<u64> {
        let (memory, offsets) = (&self.memory, &self.offsets);
        let variables = self.global("anyio.lowlevel", "_run_vars")?;
        let by_loop = memory.entries(offsets, self.attribute(variables, "data")?)?;
        let mut found = by_loop.into_iter().flat_map(|(_, of_loop)| {
            let entries = memory.entries(offsets, of_loop).unwrap_or_default();
            entries.into_iter().filter(|&(variable, _)| self.is_thread_limiter(variable))
        });
        match (found.next(), found.next()) {
            (Some((_, limiter)), None) => Some(limiter),
            _ => None,
        }
    }

    /// What a limiter says; `None` if it is none, or has no limit.
    pub(super) fn limiter(&self, object: u64) -> Option<Limiter> {
        if self.type_name(object)? != "CapacityLimiter" {
            return None;
        }
        let total = self.small_integer(self.attribute(object, "_total_tokens")?)?;
        let count = |name: &str, field: u16| {
            let counted = self.part(self.attribute(object, name)?, field)?;
            (counted < COUNT_MAX).then_some(counted)
        };
        let borrowed = count("_borrowers", SET_USED)?;
        Some(Limiter { total, borrowed, waiting: count("_wait_queue", DICT_USED)? })
    }

    fn is_thread_limiter(&self, variable: u64) -> bool {
        let words = (0..VARIABLE_WORDS).filter_map(|at| self.part(variable, at * 8));
        words.into_iter().any(|word| {
            self.type_name(word).as_deref() == Some("str")
                && self.memory.text(&self.offsets, word).as_deref()
                    == Some("_default_thread_limiter")
        })
    }
}
