//! Which futexes a runtime parks on, and which other epoll instances than its own: asked once for
//! each, answered by user space.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::programs::BtfTracePointContext;
use profiler_common::cause;
use profiler_common::config::{EPOLL_KEY, FUTEX_ASKED, FUTEX_PARK, FutexKey, TARGET_LEARN_FUTEXES};
use profiler_common::counters::Counter;
use profiler_common::record::KIND_FUTEX;
use profiler_common::turn::ThreadState;

use crate::capture::{self, Subject};
use crate::maps::{FUTEXES, TARGETS};
use crate::switch::take_slot;
use crate::{count, emit};

#[inline(always)]
fn key(state: &ThreadState) -> FutexKey {
    FutexKey { address: state.futex, tgid: state.record.header.tgid, tid: state.record.header.tid }
}

/// What is known of the futex the thread sleeps on; 0 if nobody asked yet.
#[inline(always)]
pub(crate) fn class(state: &ThreadState) -> u32 {
    // SAFETY: the value is a number.
    unsafe { FUTEXES.get(key(state)) }.copied().unwrap_or(0)
}

/// Whether the epoll instance or the ring that the thread waits for, by its registers, is where it parks.
/// If not, that is asked, and until there is an answer the time counts as blocked: a loop inside of a turn
/// waits for something of its own.
#[inline(always)]
pub(crate) fn is_home(state: &mut ThreadState) -> bool {
    let place = state.regs.park_place();
    let one = place.wrapping_add(1);
    if state.home == 0 {
        state.home = one;
    }
    if state.home == one {
        return true;
    }
    state.strange = 1;
    state.futex = EPOLL_KEY | u64::from(place);
    if class(state) != FUTEX_PARK {
        return false;
    }
    state.futex = 0;
    state.home = one;
    true
}

/// Sends the stack of the first sleep on a futex, for user space to tell parks from locks.
#[inline(always)]
pub(crate) fn ask(ctx: &BtfTracePointContext, state: &mut ThreadState, now: u64) {
    if class(state) != 0 {
        return;
    }
    // SAFETY: targets are preallocated; the flag is a hint.
    let learns = unsafe { TARGETS.get(state.record.header.tgid) }
        .is_some_and(|target| target.flags & TARGET_LEARN_FUTEXES != 0);
    if !learns && state.futex & EPOLL_KEY == 0 {
        return;
    }
    if state.slot == 0 {
        take_slot(state);
    }
    if FUTEXES.insert(key(state), FUTEX_ASKED, 0).is_err() {
        count::one(Counter::FutexQuestionsDeferred);
        return;
    }
    let subject = Subject { cause: cause::LOCK, nr: -1, in_kernel: true, now };
    let Some((capture, _)) = capture::take(state, ctx.as_ptr(), &subject) else { return };
    capture.head.header.extra = state.futex;
    if state.futex & EPOLL_KEY != 0 {
        crate::python::walk(state, capture, cause::SYSCALL);
    }
    emit::capture(state, state.spare, KIND_FUTEX, 0, 0);
}
