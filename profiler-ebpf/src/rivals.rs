//! Who has the CPU while a thread of a turn waits for it.

use profiler_common::waits::{Other, RIVALS, Waits};

use crate::task::Task;
use crate::waits::{current, is_significant, notes_of_turn, other};

/// A thread loses the CPU to another, in a turn if `busy` is not zero.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn rivals_preempted(slot: u32, turn: u64, next: u64, busy: u32) -> u32 {
    if busy != 0
        && let Some(notes) = notes_of_turn(slot, turn)
    {
        notes.next = other(next as Task);
    }
    0
}

/// A thread got the CPU, in a turn if `busy` is not zero, after a wait: who had it meanwhile?
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn rivals_waited(slot: u32, turn: u64, ns: u64, tid: u32, busy: u32) -> u32 {
    if busy == 0 || !is_significant(ns) {
        return 0;
    }
    let Some(notes) = notes_of_turn(slot, turn) else { return 0 };
    // The first and the last of those that ran instead: who took the CPU, and who has just left it.
    let first = notes.next;
    notes.next = Other::default();
    let last = current();
    if first.tgid != 0 {
        rival(&mut notes.waits, &first, ns);
    }
    if last.tgid != 0 && last.tgid != first.tgid && last.tid != tid {
        rival(&mut notes.waits, &last, ns);
    }
    0
}

#[inline(always)]
fn rival(waits: &mut Waits, who: &Other, ns: u64) {
    let mut place = 0;
    for index in 0..RIVALS {
        let known = &waits.rivals[index];
        if known.who.tgid == who.tgid {
            place = index;
            break;
        }
        if known.ns < waits.rivals[place & (RIVALS - 1)].ns {
            place = index;
        }
    }
    let entry = &mut waits.rivals[place & (RIVALS - 1)];
    // The newcomer takes over the time of the one that makes room: who comes often and is brief would
    // never stay otherwise.
    entry.ns += ns;
    if entry.who.tgid != who.tgid {
        entry.who = *who;
    }
}
