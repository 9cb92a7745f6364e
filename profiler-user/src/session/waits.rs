//! What a stalled thread waited for and who made it wait, by name.

use std::sync::Arc;

use profiler_common::waits::{Other, Resource};

use super::asked::Asked;
use super::pipeline::{Pipeline, Walked, syscall_name};
use crate::attach::cgroup;
use crate::blame::{
    Holder, Outside, Stack, SyscallUse, outside, owner_words, resource_text, waiting,
};
use crate::stalls::{Cause, RawStall, TurnWaits};
use crate::symbolize::printable;

impl Pipeline {
    /// The system calls that slept, each with what its longest sleep waited for.
    pub(super) fn slept_in(
        &self,
        raw: &RawStall<Walked>,
        waits: &TurnWaits<Walked>,
        asked: Option<&Asked>,
    ) -> Vec<SyscallUse> {
        raw.syscalls
            .iter()
            .map(|slept| {
                let name = syscall_name(slept.nr);
                let ended = waits.resources.iter().find(|resource| resource.nr == slept.nr);
                let lasts = asked
                    .filter(|asked| asked.nr == slept.nr && asked.slept_ns >= slept.max_ns)
                    .and_then(|asked| asked.resource.clone());
                SyscallUse {
                    name,
                    count: slept.count,
                    total_ns: slept.total_ns,
                    max_ns: slept.max_ns,
                    resource: lasts
                        .or_else(|| ended.and_then(|resource| resource_text(resource, name))),
                }
            })
            .collect()
    }

    /// Who held what a turn waited for longest: the owner that the lock's memory named when the wait
    /// began, else who released it. `stack` is the one that waited.
    pub(super) fn holder(
        &mut self,
        raw: &RawStall<Walked>,
        waits: &TurnWaits<Walked>,
        stack: &Stack,
    ) -> Option<Holder> {
        let lock = &waits.waits.as_ref()?.lock;
        let words = if lock.readable != 0 { &lock.words[..] } else { &[] };
        let owner = match owner_words(waiting(&stack.frames), words) {
            // An owner that can't be told is not whoever had the lock last, after others had it.
            Some(own_tid) => Some(self.processes.host_thread(raw.tgid, own_tid)?),
            None => None,
        };
        let owner = owner.filter(|&tid| tid != raw.tid);
        let released = waits.holder.as_ref();
        let tid = owner.or_else(|| released.map(|(tid, _)| *tid))?;
        let frames = match released {
            Some((by, walked)) if *by == tid => self.frames_of(raw.tgid, None, walked.clone(), &[]),
            _ => Vec::new(),
        };
        let waker = &lock.waker.who;
        let thread =
            if waker.tid == tid { comm(waker) } else { self.processes.thread_name(raw.tgid, tid) };
        Some(Holder { tid, thread, asleep_in: None, frames })
    }

    /// Who kept a process from running.
    pub(super) fn outside(
        &self,
        cause: Cause,
        pid: u32,
        waits: &TurnWaits<Walked>,
    ) -> Option<Outside> {
        let waits = waits.waits.as_deref();
        let frozen = waits.is_some_and(|waits| waits.frozen != 0);
        let group = if frozen { cgroup::group(pid, "freezer") } else { None };
        let quota = if cause == Cause::Throttled { cgroup::quota(pid) } else { None };
        outside(cause, waits, group, quota.as_ref())
    }
}

/// The file behind the mapping that a fault waited for. `id` is the number of its stack.
pub(super) fn mapped_file(waits: &TurnWaits<Walked>, id: u32) -> Option<String> {
    let of_stack = |resource: &&Resource| resource.nr < 0 && resource.args[0] == u64::from(id);
    resource_text(waits.resources.iter().find(of_stack)?, "")
}

fn comm(who: &Other) -> Arc<str> {
    let name = who.comm.split(|&byte| byte == 0).next().unwrap_or_default();
    Arc::from(&*printable(&String::from_utf8_lossy(name)))
}
