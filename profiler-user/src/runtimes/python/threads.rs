//! Which thread a `pthread_self` belongs to.

use std::collections::HashMap;

use profiler_common::arch::PTHREAD_TID;

use super::interpreter::Interpreter;
use crate::attach::proc;

/// Answers that were given.
#[derive(Debug, Default)]
pub(super) struct Threads(HashMap<(u32, u64), (i32, u32)>);

impl Threads {
    /// The thread id in the initial namespace.
    pub(super) fn find(&mut self, of: &Interpreter, pthread: u64) -> Option<u32> {
        let ids = PTHREAD_TID
            .map(|offset| of.memory.half(pthread.wrapping_add(offset)).map(u32::cast_signed));
        if let Some((id, tid)) = self.0.get(&(of.pid, pthread))
            && ids.contains(&Some(*id))
        {
            return Some(*tid);
        }
        // Inside a namespace of process ids the thread knows another id than we do.
        let found = proc::threads(of.pid).into_iter().find_map(|tid| {
            let inner = proc::innermost_tid(of.pid, tid)?.cast_signed();
            ids.contains(&Some(inner)).then_some((inner, tid))
        })?;
        self.0.insert((of.pid, pthread), found);
        Some(found.1)
    }

    pub(super) fn forget(&mut self, pid: u32) {
        self.0.retain(|key, _| key.0 != pid);
    }
}
