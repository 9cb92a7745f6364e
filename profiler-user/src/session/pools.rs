//! Looks at the targets' thread pools a few times a second, from outside.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::watcher::Watcher;
use crate::aggregate::{BusyThread, PoolKey, PoolLook};
use crate::attach::proc::{self, Waiting};
use crate::blame::Runtime;
use crate::events::monotonic_ns;
use crate::runtimes::{PoolKind, Worker};
use crate::stalls::Cause;

/// Time between two looks: a span of saturation is known as well as that.
const PERIOD: Duration = Duration::from_millis(200);
/// `anyio.to_thread.current_default_thread_limiter().total_tokens`, unless the program changes it.
const ANYIO_DEFAULT: u32 = 40;
/// The kind of pool that `spawn_blocking` and `tokio::fs` work in.
const TOKIO_BLOCKING: &str = "tokio-blocking";

impl Watcher<'_> {
    /// Looks at all pools, if it is time.
    pub(super) fn look_at_pools(&mut self) {
        if self.last_pools.elapsed() < PERIOD {
            return;
        }
        self.last_pools = Instant::now();
        for pid in self.pids.clone() {
            let mut looks: BTreeMap<PoolKey, PoolLook> = BTreeMap::new();
            for worker in self.pipeline.workers(pid) {
                let key = (pid, worker.kind.name(), worker.pool);
                let look = looks.entry(key).or_insert_with(|| self.look_at(pid, &worker));
                look.threads += 1;
                if !worker.frames.is_empty() {
                    let cause = match proc::waiting(pid, worker.tid) {
                        Waiting::No => Cause::Cpu,
                        Waiting::InCall(nr) if profiler_common::arch::is_futex(nr) => Cause::Lock,
                        Waiting::InCall(_) => Cause::Syscall,
                        Waiting::Outside => Cause::Fault,
                    };
                    look.busy.push(BusyThread { cause, frames: worker.frames });
                }
            }
            if self.pipeline.processes.runtime(pid) == Runtime::Tokio
                && let Some(look) = self.look_at_blocking(pid)
            {
                looks.insert((pid, TOKIO_BLOCKING, 0), look);
            }
            let now = monotonic_ns();
            for (key, look) in looks {
                self.pools.saw(key, now, &look);
            }
        }
    }

    /// What a pool says of itself, by one of its workers; no thread is counted yet.
    fn look_at(&mut self, pid: u32, worker: &Worker) -> PoolLook {
        let limiter =
            if worker.kind == PoolKind::Anyio { self.pipeline.limiter(pid) } else { None };
        PoolLook {
            threads: 0,
            busy: Vec::new(),
            queued: limiter.map(|told| told.waiting).or(worker.queued),
            taken: limiter.map(|told| told.borrowed),
            limit: limiter.map(|told| told.total).or(worker.limit),
            default_limit: (worker.kind == PoolKind::Anyio).then_some(ANYIO_DEFAULT),
        }
    }
}
