//! Random scripts of legal histories.

use profiler_common::cause;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::history::{Entry, FUTEX, Found, Nap, Park, Script, Step};

fn duration() -> impl Strategy<Value = u64> {
    prop_oneof![1..100_u64, 1_000..1_000_000_u64, 1_000_000..5_000_000_000_u64]
}

fn nap() -> impl Strategy<Value = Nap> {
    let starved = prop_oneof![Just(0), duration()];
    let early = prop_oneof![4 => Just(None), 1 => (1..2_000_u64).prop_map(Some)];
    (duration(), starved, early).prop_map(|(asleep, starved, early)| Nap { asleep, starved, early })
}

fn entry() -> impl Strategy<Value = Entry> {
    let preempted = || option::weighted(0.2, duration());
    (1..500_u64, preempted(), preempted(), preempted())
        .prop_map(|(work, before, amid, after)| Entry { work, before, amid, after })
}

/// More kinds of system calls than a turn has room for.
fn sleep() -> impl Strategy<Value = (u8, i32)> {
    prop_oneof![
        4 => (0..12_i32).prop_map(|nr| (cause::SYSCALL, nr)),
        1 => Just((cause::LOCK, FUTEX)),
        1 => Just((cause::FAULT, -1)),
        1 => Just((cause::STOPPED, -1)),
    ]
}

fn park() -> impl Strategy<Value = Park> {
    let before = vec((duration(), duration()), 0..3);
    let (flips, again) = (prop::bool::weighted(0.2), option::weighted(0.2, nap()));
    (entry(), before, flips, nap(), again).prop_map(|(entry, before, flips, nap, again)| Park {
        entry,
        before,
        flips,
        nap,
        again,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => duration().prop_map(Step::Run),
        2 => Just(Step::Tick),
        2 => duration().prop_map(Step::Preempted),
        1 => Just(Step::WokenAwake),
        4 => (sleep(), nap()).prop_map(|((cause, nr), nap)| Step::Sleep { cause, nr, nap }),
        3 => entry().prop_map(Step::Poll),
        4 => park().prop_map(Step::Park),
        2 => (any::<bool>(), nap()).prop_map(|(late, nap)| Step::FutexPark { late, nap }),
        1 => Just(Step::Arm),
        1 => Just(Step::Disarm),
    ]
}

fn found() -> impl Strategy<Value = Found> {
    prop_oneof![
        4 => Just(Found::Unseen),
        1 => Just(Found::Running),
        1 => duration().prop_map(Found::Starved),
        1 => (sleep(), nap()).prop_map(|((cause, nr), nap)| Found::Asleep { cause, nr, nap }),
        1 => nap().prop_map(Found::Parked),
    ]
}

pub(crate) fn script() -> impl Strategy<Value = Script> {
    (1..1_u64 << 50, any::<bool>(), found(), vec(step(), 0..60), any::<bool>()).prop_map(
        |(start, armed, found, steps, exits)| Script { start, armed, found, steps, exits },
    )
}
