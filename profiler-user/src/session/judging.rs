//! The verdict on a stall: its stacks with names, the cause, and who or what is to blame.

use super::asked::Asked;
use super::kernel_frames;
use super::naming::{Named, collecting, task_of};
use super::not_stalls::{Park, without_park};
use super::pipeline::{Pipeline, Walked};
use super::waits::mapped_file;
use crate::blame::{
    Boundary, Runtime, Stall, advise, advise_on_deadlock, advise_on_lock_asleep,
    advise_without_lock, blocker, busiest_call, detail, parts, waits_for_file,
};
use crate::runtimes::handed_off;
use crate::stalls::{Cause, RawStall, TurnWaits};
use crate::symbolize::Frame;

impl Pipeline {
    /// The verdict on a stall; `None` if it turns out to be none. `kernel` are frames of the kernel, root
    /// to leaf, where the captures have none.
    pub(super) fn stall(
        &mut self,
        raw: RawStall<Walked>,
        waits: &TurnWaits<Walked>,
        asked: Option<&Asked>,
        kernel: &[Frame],
    ) -> Option<Stall> {
        let process = self.processes.get(raw.tgid, &mut self.symbolizer);
        let without_lock = process.python.as_ref().is_some_and(|python| !python.has_lock());
        let runtime = process.runtime;
        let mut named = self.named(&raw, waits, asked, kernel);
        if runtime.runtime == Runtime::Tokio {
            let elsewhere = handed_off(named.iter().map(|one| &one.stack));
            // Whether it had the CPU meanwhile concerned nobody either.
            let own = raw.duration_ns.saturating_sub(raw.ledger.get(Cause::Runqueue));
            if elsewhere > 0 && own.saturating_sub(elsewhere) < self.threshold_ns {
                if !raw.ongoing {
                    self.not_stalls.add_handed_off(raw.tid, raw.duration_ns);
                }
                return None;
            }
        }
        named.sort_by_key(|one| std::cmp::Reverse(one.stack.total_ns));
        let cause = raw.ledger.largest();
        let tasks: Vec<_> = named.iter().map(|one| task_of(runtime.runtime, one)).collect();
        let collecting = collecting(cause, &named);
        let (stacks, calls): (Vec<_>, Vec<_>) =
            named.into_iter().map(|one| (one.stack, one.call)).unzip();
        if let Some((slept_in, park_ns)) = self.hidden_park(&raw, &stacks, runtime) {
            if raw.ongoing {
                // It has not been counted yet.
                return None;
            }
            let rest = without_park(&raw, slept_in, park_ns, self.threshold_ns);
            let rest_is_stall = rest.is_some();
            let park = Park { turn_ns: raw.duration_ns, slept_in, park_ns, rest_is_stall };
            self.not_stalls.add_park(raw.tid, park, self.threshold_ns);
            return rest.and_then(|rest| self.stall(rest, waits, None, kernel));
        }
        let syscalls = self.slept_in(&raw, waits, asked);
        let circle = asked.filter(|_| cause == Cause::Lock).map(|asked| &asked.circle[..]);
        let deadlock = circle.and_then(advise_on_deadlock);
        let of_gil = stacks.iter().filter(|stack| cause == Cause::Gil && stack.cause == cause);
        let sleeper = of_gil.filter_map(|stack| stack.holder.as_ref()?.asleep_in).next();
        let detail = if deadlock.is_some() {
            Some("deadlock")
        } else {
            detail(cause, &raw.ledger, &stacks, &calls, &syscalls, collecting)
        };
        let runtime = runtime.runtime;
        let busiest = busiest_call(&raw.ledger, &stacks);
        let computes = cause == Cause::Cpu && detail.is_none() && busiest.is_none();
        let special = deadlock
            .or_else(|| sleeper.map(advise_on_lock_asleep))
            .or_else(|| (computes && without_lock).then(|| advise_without_lock(runtime)));
        // Of the heaviest stack of the cause: they come heaviest first.
        let heaviest = stacks.iter().position(|stack| stack.cause == cause);
        let heaviest = heaviest.or((runtime == Runtime::Tokio).then_some(0));
        let task = heaviest.and_then(|at| tasks.get(at).cloned().flatten());
        Some(Stall {
            start_unix_ns: self.clock.unix_ns(raw.start_ns),
            duration_ns: raw.duration_ns,
            ongoing: raw.ongoing,
            at_attach: raw.at_attach,
            pid: raw.tgid,
            tid: raw.tid,
            thread: self.processes.thread_name(raw.tgid, raw.tid),
            runtime,
            ledger: raw.ledger,
            cause,
            detail,
            boundary: if raw.exact { Boundary::Exact } else { Boundary::UpperBound },
            kernel_share: raw.kernel_share,
            blocker: blocker(cause, detail, &raw.ledger, &stacks),
            advice: special.or_else(|| advise(cause, detail, runtime, &syscalls, busiest)),
            parts: parts(&raw.ledger, &stacks, &tasks, runtime != Runtime::Tokio),
            syscalls,
            stacks,
            ready_sockets: raw.ready_sockets,
            outside: self.outside(cause, raw.tgid, waits),
            task,
        })
    }

    /// A stall of a thread that was stuck before stallscope attached and has not run since.
    pub(super) fn stuck(
        &mut self,
        mut raw: RawStall<Walked>,
        kernel: &[String],
        asked: Option<&Asked>,
    ) -> Option<Stall> {
        raw.at_attach = true;
        raw.ongoing = true;
        let kernel = kernel_frames::from_names(kernel);
        self.stall(raw, &TurnWaits::default(), asked, &kernel)
    }

    /// The stacks of a stall with names, and with who or what was waited for in each.
    fn named(
        &mut self,
        raw: &RawStall<Walked>,
        waits: &TurnWaits<Walked>,
        asked: Option<&Asked>,
        kernel: &[Frame],
    ) -> Vec<Named> {
        let waiting = waits.waits.as_ref().map(|waits| waits.lock.stack);
        let mut named: Vec<Named> = Vec::new();
        for captured in &raw.stacks {
            let at = self.named_stacks(raw.tgid, captured, kernel, &mut named);
            let Some(stack) = at.and_then(|at| named.get_mut(at)).map(|one| &mut one.stack) else {
                continue;
            };
            if captured.cause == Cause::Lock
                && Some(captured.id) == waiting
                && stack.holder.is_none()
            {
                stack.holder = self.holder(raw, waits, stack);
            }
            let asked = asked.filter(|asked| asked.stack == captured.id);
            if let Some(asked) = asked.filter(|_| stack.holder.is_none()) {
                stack.holder.clone_from(&asked.holder);
                stack.candidates.clone_from(&asked.candidates);
            }
            if captured.cause == Cause::Fault && waits_for_file(stack) && stack.resource.is_none() {
                let lasts = asked.and_then(|asked| asked.resource.clone());
                stack.resource = lasts.or_else(|| mapped_file(waits, captured.id));
            }
        }
        named
    }
}
