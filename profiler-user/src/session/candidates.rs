//! Who may hold a lock that notes nobody: what the other threads of the process do while it is waited for.

use profiler_common::arch::{UserRegs, is_futex};

use super::asked::Sleep;
use super::pipeline::Pipeline;
use crate::attach::{blocked, proc};
use crate::blame::Holder;

/// Threads that are told of.
const MOST_TOLD: usize = 8;
/// Threads that are looked at.
const MOST_LOOKED_AT: usize = 64;

impl Pipeline {
    /// The other threads of a process, one of whose threads waits in a futex that does not say for
    /// whom: those that run first, then those that are blocked elsewhere. Who waits for the same
    /// does not hold it.
    pub(super) fn candidates(
        &mut self,
        sleep: &Sleep,
        regs_of: &dyn Fn(u32) -> Option<UserRegs>,
    ) -> Vec<Holder> {
        let Sleep { pid, tid: waiter, .. } = *sleep;
        let address = sleep.regs.arg0();
        let mut asleep = Vec::new();
        let mut told = Vec::new();
        for tid in proc::threads(pid).into_iter().filter(|&tid| tid != waiter).take(MOST_LOOKED_AT)
        {
            if proc::is_running(pid, tid) {
                told.push(self.candidate(pid, tid, Vec::new()));
            } else if let Some(regs) = regs_of(tid)
                && blocked::is_blocked(pid, tid, &regs)
                && !(is_futex(regs.syscall()) && regs.arg0() == address)
            {
                asleep.push((tid, regs));
            }
        }
        // Threads of a pool that have nothing to do wait in futexes.
        asleep.sort_by_key(|(_, regs)| is_futex(regs.syscall()));
        for (tid, regs) in asleep {
            if told.len() >= MOST_TOLD {
                break;
            }
            if let Some(frames) = self.frames_while_asleep(pid, tid, &regs) {
                told.push(self.candidate(pid, tid, frames));
            }
        }
        told.truncate(MOST_TOLD);
        told
    }

    fn candidate(&mut self, pid: u32, tid: u32, frames: Vec<crate::symbolize::Frame>) -> Holder {
        Holder { tid, thread: self.processes.thread_name(pid, tid), asleep_in: None, frames }
    }
}
