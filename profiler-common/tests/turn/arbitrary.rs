//! Whatever the events say, possible or not: nothing overflows and every ledger adds up.

use profiler_common::cause;
use profiler_common::turn::{
    Finished, Off, PARK_EPOLL, PARK_FUTEX, PARK_POLL, STACKS, SYSCALLS, ThreadState,
};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Event {
    Out(Off),
    In,
    /// Reported this much later than it was traced.
    Wake(u64),
    Guard(bool),
    /// A park is entered; the thread loses the CPU for so long before, between and after the clock
    /// is read and the turn is ended.
    EnterPark {
        before: Option<u64>,
        late: Option<u64>,
        amid: Option<u64>,
    },
    LateFutex,
    Adopt {
        before: u64,
        asleep_in: Option<(u8, i32)>,
    },
    AdoptParked {
        before: u64,
    },
    Sample(bool),
    Stack {
        key: u64,
        cause: u8,
    },
    Exit,
}

fn off() -> impl Strategy<Value = Off> {
    prop_oneof![
        Just(Off::Preempted),
        prop_oneof![Just(PARK_EPOLL), Just(PARK_POLL), Just(PARK_FUTEX)].prop_map(Off::Park),
        (any::<u8>(), -1..300_i32).prop_map(|(cause, nr)| Off::Sleep { cause, nr }),
        (0..cause::COUNT as u8, -1..300_i32).prop_map(|(cause, nr)| Off::Sleep { cause, nr }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let ago = || 0..3_000_000_u64;
    let lost = || proptest::option::weighted(0.3, 0..2_000_000_u64);
    let found = proptest::option::of((0..cause::COUNT as u8, -1..300_i32));
    prop_oneof![
        4 => off().prop_map(Event::Out),
        4 => Just(Event::In),
        2 => (0..1_000_u64).prop_map(Event::Wake),
        1 => any::<bool>().prop_map(Event::Guard),
        3 => (lost(), lost(), lost())
            .prop_map(|(before, late, amid)| Event::EnterPark { before, late, amid }),
        1 => Just(Event::LateFutex),
        1 => (ago(), found).prop_map(|(before, asleep_in)| Event::Adopt { before, asleep_in }),
        1 => ago().prop_map(|before| Event::AdoptParked { before }),
        2 => any::<bool>().prop_map(Event::Sample),
        2 => (0..50_u64, 0..cause::COUNT as u8).prop_map(|(key, cause)| Event::Stack { key, cause }),
        1 => Just(Event::Exit),
    ]
}

fn check(state: &ThreadState, finished: Finished) -> Result<(), TestCaseError> {
    let turn = &state.record.turn;
    prop_assert_eq!(finished.ns, finished.end_ns - turn.start_ns);
    prop_assert_eq!(turn.ledger.iter().sum::<u64>(), finished.ns, "ledger {:?}", turn.ledger);
    prop_assert!(turn.stack_count as usize <= STACKS && turn.syscall_count as usize <= SYSCALLS);
    prop_assert_eq!(state.stats.ledger.iter().sum::<u64>(), state.stats.busy_ns);
    Ok(())
}

/// Loses the CPU while the guard is set.
fn lose(state: &mut ThreadState, now: &mut u64, ns: Option<u64>) {
    if let Some(ns) = ns {
        assert_eq!(state.switch_out(*now, Off::Preempted, 0), None);
        *now += ns;
        assert_eq!(state.switch_in(*now), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn ledgers_add_up(
        start in 1_u64 << 40..1 << 62,
        events in vec((0..1_000_000_u64, any::<bool>(), event()), 0..120),
    ) {
        let mut state = Box::new(ThreadState::new(1, 2));
        let mut now = start;
        let mut armed_since = 0;
        for (pause, arms, event) in events {
            now += if arms { pause } else { pause % 2 };
            if arms {
                armed_since = if armed_since == 0 { now } else { 0 };
            }
            let finished = match event {
                Event::Out(off) => state.switch_out(now, off, armed_since),
                Event::In => {
                    if let Some(slept) = state.switch_in(now) {
                        let entry = state.off_entry;
                        state.weigh(entry, slept.ns);
                    }
                    None
                }
                Event::Wake(late) => {
                    state.wake(now - late);
                    None
                }
                Event::Guard(on) => {
                    state.set_guard(on);
                    None
                }
                Event::EnterPark { before, late, amid } => {
                    state.set_guard(true);
                    lose(&mut state, &mut now, before);
                    let entered = now;
                    lose(&mut state, &mut now, late);
                    if let Some(finished) = state.enter_park(entered, armed_since) {
                        check(&state, finished)?;
                    }
                    lose(&mut state, &mut now, amid);
                    state.next_turn(entered);
                    state.set_guard(false);
                    None
                }
                Event::LateFutex => state.sleep_was_park(armed_since),
                Event::Adopt { before, asleep_in } => {
                    state.adopt(now - before, asleep_in);
                    None
                }
                Event::AdoptParked { before } => {
                    state.adopt_parked(now - before);
                    None
                }
                Event::Sample(in_kernel) => {
                    state.sample(now, in_kernel);
                    None
                }
                Event::Stack { key, cause } => {
                    let entry = state.stack_entry(key, cause, -1);
                    if entry.new {
                        state.keep(entry.index);
                    }
                    state.off_entry = entry.index;
                    None
                }
                Event::Exit => state.exit(now, armed_since),
            };
            if let Some(finished) = finished {
                check(&state, finished)?;
            }
        }
    }
}
