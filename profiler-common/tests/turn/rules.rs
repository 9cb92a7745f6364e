//! The subtle rules, each by itself.

use profiler_common::cause;
use profiler_common::turn::{Off, PARK_EPOLL, Phase, SyscallUse, ThreadState};

use crate::drive::Played;
use crate::history::{Entry, FUTEX, Found, History, Nap, Park, Script, Step};

const MS: u64 = 1_000_000;
const SLEEP: Off = Off::Sleep { cause: cause::SYSCALL, nr: 230 };
const PLAIN: Park =
    Park { entry: Entry::QUIET, before: Vec::new(), flips: false, nap: nap(50 * MS), again: None };
const PARK: Step = Step::Park(PLAIN);

const fn nap(asleep: u64) -> Nap {
    Nap { asleep, starved: 0, early: None }
}

fn ledger(parts: &[(u8, u64)]) -> [u64; cause::COUNT] {
    let mut ledger = [0; cause::COUNT];
    for (cause, ns) in parts {
        ledger[*cause as usize] = *ns;
    }
    ledger
}

/// A loop that has been found, on a CPU since `at`, and in a turn that its wake-up began then.
fn woken(at: u64) -> Box<ThreadState> {
    let mut state = Box::new(ThreadState::new(1, 2));
    state.switch_in(at - 10 * MS);
    assert_eq!(state.switch_out(at - 9 * MS, Off::Park(PARK_EPOLL), 0), None);
    state.wake(at);
    assert_eq!(state.switch_in(at), None);
    state
}

#[test]
fn a_turn_starts_at_the_wake_up_and_not_at_the_switch_in() {
    let mut state = woken(100 * MS);
    state.switch_out(101 * MS, Off::Park(PARK_EPOLL), 0);
    state.wake(200 * MS);
    state.switch_in(280 * MS);
    assert_eq!(state.record.turn.start_ns, 200 * MS);
    assert_eq!(state.age(281 * MS), 81 * MS);
}

#[test]
fn a_starved_wake_is_runqueue() {
    let mut state = woken(100 * MS);
    state.switch_out(101 * MS, Off::Park(PARK_EPOLL), 0);
    state.wake(200 * MS);
    state.switch_in(280 * MS);
    let turn = state.switch_out(281 * MS, Off::Park(PARK_EPOLL), 0).expect("it ends");
    assert_eq!(turn.ns, 81 * MS);
    assert_eq!(state.record.turn.ledger, ledger(&[(cause::RUNQUEUE, 80 * MS), (cause::CPU, MS)]));
}

#[test]
fn a_starved_sleeper_is_blocked_until_its_wake_up_and_runqueue_after_it() {
    let mut state = woken(100 * MS);
    state.switch_out(101 * MS, SLEEP, 0);
    state.wake(150 * MS);
    let slept = state.switch_in(190 * MS).expect("a sleep in the turn");
    assert_eq!((slept.ns, slept.cause, slept.wake_missed), (49 * MS, cause::SYSCALL, false));
    state.switch_out(190 * MS, Off::Park(PARK_EPOLL), 0);
    let parts = [(cause::CPU, MS), (cause::SYSCALL, 49 * MS), (cause::RUNQUEUE, 40 * MS)];
    assert_eq!(state.record.turn.ledger, ledger(&parts));
}

#[test]
fn sigstop_while_parked_is_stopped() {
    // The signal ends the park; the thread stops on its way out of the system call.
    let stopped = Step::Sleep { cause: cause::STOPPED, nr: -1, nap: nap(5_000 * MS) };
    let steps = [PARK, Step::Run(1_000), stopped, Step::Run(2_000), PARK];
    let turns = Played::steps(&steps).turns;
    let turn = turns.last().expect("a turn");
    assert_eq!(turn.ledger[cause::STOPPED as usize], 5_000 * MS);
    assert_eq!(turn.end - turn.start, 5_000 * MS + turn.ledger[cause::CPU as usize]);
    assert!(turn.syscalls.is_empty(), "being stopped is no system call: {:?}", turn.syscalls);
}

#[test]
fn a_wake_up_before_its_own_switch_out_ends_the_sleep_where_it_began() {
    let mut state = woken(100 * MS);
    state.wake(101 * MS - 300);
    state.switch_out(101 * MS, SLEEP, 0);
    let slept = state.switch_in(103 * MS).expect("a sleep");
    assert_eq!((slept.ns, slept.wake_missed), (0, false));
    state.switch_out(103 * MS, Off::Park(PARK_EPOLL), 0);
    assert_eq!(state.record.turn.ledger, ledger(&[(cause::CPU, MS), (cause::RUNQUEUE, 2 * MS)]));
}

#[test]
fn a_sleep_without_a_wake_up_lasts_until_the_switch_in_and_says_so() {
    let mut state = woken(100 * MS);
    state.switch_out(101 * MS, SLEEP, 0);
    let slept = state.switch_in(103 * MS).expect("a sleep");
    assert_eq!((slept.ns, slept.wake_missed), (2 * MS, true));
}

#[test]
fn a_poll_that_does_not_sleep_ends_a_turn() {
    let steps = [PARK, Step::Run(7 * MS), Step::Poll(Entry::QUIET), Step::Run(8 * MS), PARK];
    let turns = Played::steps(&steps).turns;
    let lengths: Vec<u64> = turns.iter().map(|turn| (turn.end - turn.start) / MS).collect();
    // The first turn is what it ran before its first park.
    assert_eq!(lengths[lengths.len() - 2..], [7, 8]);
    assert!(turns.iter().all(|turn| turn.exact));
}

#[test]
fn a_park_begins_when_it_is_entered_and_not_when_it_sleeps() {
    // Preempted for 80 ms inside the call: nobody waited for it.
    let parks = Step::Park(Park { before: vec![(MS, 80 * MS)], ..PLAIN });
    let played = Played::steps(&[PARK, Step::Run(3 * MS), parks]);
    let turn = played.turns.last().expect("a turn");
    assert_eq!((turn.end - turn.start) / MS, 3);
    assert_eq!(turn.ledger[cause::RUNQUEUE as usize], 0);
}

#[test]
fn a_futex_park_does_not_swallow_the_work_since_the_last_poll() {
    // A tokio worker: polls its driver without waiting, works, and parks in a futex, whose entry
    // nobody sees.
    for late in [false, true] {
        let parks = Step::FutexPark { late, nap: nap(20 * MS) };
        let played = Played::steps(&[PARK, Step::Poll(Entry::QUIET), Step::Run(50 * MS), parks]);
        let turn = played.turns.last().expect("a turn");
        assert_eq!((turn.end - turn.start) / MS, 50, "late {late}");
        assert_eq!(played.state.stats.parked_ns / MS, 70, "late {late}");
    }
}

#[test]
fn a_preemption_amid_the_bookkeeping_of_a_park_is_runqueue_on_its_side_of_the_boundary() {
    let preempted = |before, after| Entry { work: 1, before, amid: after, after: None };
    for (entry, starved) in [
        (preempted(Some(30 * MS), None), [30, 0]),
        (preempted(None, Some(30 * MS)), [0, 30]),
        (preempted(Some(10 * MS), Some(20 * MS)), [10, 20]),
    ] {
        let steps = [PARK, Step::Run(MS), Step::Poll(entry), Step::Run(MS), PARK];
        let turns = Played::steps(&steps).turns;
        let found: Vec<u64> =
            turns.iter().map(|turn| turn.ledger[cause::RUNQUEUE as usize] / MS).collect();
        assert_eq!(found[found.len() - 2..], starved);
    }
}

#[test]
fn a_preemption_amid_the_bookkeeping_of_the_first_poll_is_before_the_first_turn() {
    let entry = Entry { before: Some(30 * MS), ..Entry::QUIET };
    let played = Played::steps(&[Step::Poll(entry), Step::Run(40 * MS), PARK]);
    let turn = played.turns.first().expect("a turn");
    assert_eq!(turn.ledger[cause::RUNQUEUE as usize], 0);
}

#[test]
fn a_sample_does_not_stand_for_time_off_the_cpu() {
    let entry = Entry { after: Some(30 * MS), ..Entry::QUIET };
    let steps =
        [PARK, Step::Poll(entry), Step::Run(MS), Step::Tick, Step::Run(MS), Step::Tick, PARK];
    let played = Played::steps(&steps);
    let (turn, sampled) = (&played.turns[played.turns.len() - 1], played.sampled.last());
    assert_eq!(sampled, Some(&(turn.ledger[cause::CPU as usize] - 1)), "but the entry itself");
}

#[test]
fn a_turn_is_exact_only_if_every_poll_since_its_start_was_seen() {
    for (armed_since, exact) in [(0, false), (100 * MS, true), (100 * MS + 1, false)] {
        let mut state = woken(100 * MS);
        state.switch_out(120 * MS, Off::Park(PARK_EPOLL), armed_since).expect("it ends");
        let flags = state.record.header.flags;
        assert_eq!(flags & profiler_common::record::FLAG_EXACT != 0, exact, "{armed_since}");
    }
}

#[test]
fn a_poll_seen_before_a_pause_of_the_arming_is_not_taken_for_the_park() {
    // It is armed again before the park is entered, inside the park, or not at all.
    for (rearmed, flips) in [(true, false), (false, true), (false, false)] {
        let mut steps = vec![PARK, Step::Poll(Entry::QUIET), Step::Disarm, Step::Run(50 * MS)];
        if rearmed {
            steps.extend([Step::Arm, Step::Run(MS)]);
        }
        steps.push(Step::Park(Park { flips, ..PLAIN }));
        let played = Played::steps(&steps);
        let turn = played.turns.last().expect("a turn");
        assert_eq!((turn.end - turn.start) / MS, 50 + u64::from(rearmed));
        assert!(!turn.exact);
    }
}

#[test]
fn a_wake_up_for_nothing_is_a_turn_of_its_own() {
    let again = Park { again: Some(nap(9 * MS)), ..PLAIN };
    let played = Played::steps(&[PARK, Step::Run(3 * MS), Step::Park(again)]);
    let lengths: Vec<u64> = played.turns.iter().map(|turn| turn.end - turn.start).collect();
    assert_eq!(lengths[lengths.len() - 1], 1);
    assert_eq!(played.state.stats.parked_ns / MS, 50 + 50 + 9);
}

#[test]
fn system_calls_are_counted_by_number_and_the_rest_together() {
    let sleeps = |nr| Step::Sleep { cause: cause::SYSCALL, nr, nap: nap(MS) };
    let mut steps = vec![PARK];
    for nr in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 9] {
        steps.push(sleeps(nr));
    }
    steps.push(PARK);
    let played = Played::steps(&steps);
    let turn = played.turns.last().expect("a turn");
    assert_eq!(turn.syscalls[0], SyscallUse { total_ns: 2 * MS, max_ns: MS, nr: 1, count: 2 });
    assert_eq!(turn.syscalls.len(), 8);
    assert_eq!(turn.other_sleeps, 3);
    assert_eq!(turn.ledger[cause::SYSCALL as usize], 12 * MS);
}

#[test]
fn a_futex_that_proves_to_be_a_park_ends_the_turn_where_its_sleep_began() {
    let mut state = woken(100 * MS);
    state.switch_out(130 * MS, Off::Sleep { cause: cause::LOCK, nr: FUTEX }, 0);
    state.wake(180 * MS);
    let turn = state.sleep_was_park(0).expect("the turn before the park");
    assert_eq!((turn.ns, turn.end_ns), (30 * MS, 130 * MS));
    let parked_before = state.stats.parked_ns;
    assert_eq!(state.switch_in(181 * MS), None);
    assert_eq!(state.stats.parked_ns - parked_before, 50 * MS);
    assert_eq!(state.record.turn.start_ns, 180 * MS);
    assert_eq!(state.record.turn.ledger, ledger(&[(cause::RUNQUEUE, MS)]));
}

#[test]
fn an_exit_ends_the_turn_and_marks_it() {
    let mut state = woken(100 * MS);
    let turn = state.exit(140 * MS, 0).expect("the unfinished turn");
    assert_eq!(turn.ns, 40 * MS);
    assert_eq!(state.record.header.flags, profiler_common::record::FLAG_EXITED);
    assert_eq!(state.phase(), Phase::Unknown);
    // What the dying thread still does is no turn.
    assert_eq!(state.switch_out(141 * MS, SLEEP, 0), None);
    assert_eq!(state.exit(142 * MS, 0), None);
}

fn found(found: Found, steps: &[Step]) -> Played {
    let steps = steps.to_vec();
    Played::of(&History::of(&Script { start: MS, armed: false, found, steps, exits: false }))
}

#[test]
fn a_loop_found_stuck_in_a_system_call_is_charged_from_then_on() {
    let asleep = Found::Asleep { cause: cause::SYSCALL, nr: 230, nap: nap(900 * MS) };
    let played = found(asleep, &[Step::Run(MS), PARK]);
    let turn = &played.turns[0];
    assert!(turn.at_attach && !turn.exact);
    assert_eq!(turn.ledger[cause::SYSCALL as usize], 900 * MS);
    assert_eq!(turn.ledger[cause::UNEXPLAINED as usize], 0);
}

#[test]
fn a_loop_found_running_is_explained_whatever_its_next_event_is() {
    let sleep = Step::Sleep { cause: cause::SYSCALL, nr: 230, nap: nap(20 * MS) };
    let cases = [
        (Step::Tick, cause::CPU, 3),
        (Step::Preempted(20 * MS), cause::RUNQUEUE, 20),
        (sleep, cause::SYSCALL, 20),
    ];
    for (next, cause, ms) in cases {
        let steps = [Step::Run(30 * MS), next, Step::Run(3 * MS), PARK];
        let turn = &found(Found::Running, &steps).turns[0];
        assert!(turn.at_attach);
        assert_eq!(turn.ledger[cause as usize] / MS, ms);
        assert_eq!(turn.ledger[cause::CPU as usize] / MS, 3);
        assert_eq!(turn.ledger[cause::UNEXPLAINED as usize], 0);
    }
}

#[test]
fn who_reads_a_turn_in_a_sleep_that_lasts_is_not_misled_by_an_older_wake_up() {
    let mut state = woken(100 * MS);
    // It was about to sleep, was woken and went on; then it sleeps indeed.
    state.wake(101 * MS);
    state.switch_out(102 * MS, SLEEP, 0);
    state.settle(902 * MS);
    let parts = [(cause::CPU, 2 * MS), (cause::SYSCALL, 800 * MS)];
    assert_eq!(state.record.turn.ledger, ledger(&parts));
}

#[test]
fn who_reads_a_turn_amid_the_bookkeeping_of_a_park_misses_nothing() {
    let mut state = woken(100 * MS);
    state.set_guard(true);
    state.switch_out(102 * MS, Off::Preempted, 0);
    state.settle(105 * MS);
    assert_eq!(
        state.record.turn.ledger,
        ledger(&[(cause::CPU, 2 * MS), (cause::RUNQUEUE, 3 * MS)])
    );
}

#[test]
fn the_longest_stretch_off_the_cpu_is_known() {
    let mut state = woken(100 * MS);
    for (out, wake, back) in [(101, 103, 110), (120, 121, 122)] {
        state.switch_out(out * MS, SLEEP, 0);
        state.wake(wake * MS);
        state.switch_in(back * MS);
    }
    assert_eq!(state.record.turn.longest_ns, 9 * MS);
}

#[test]
fn a_late_tick_is_the_hosts_run_queue_and_not_cpu() {
    let mut state = woken(100 * MS);
    state.tick(101 * MS, MS);
    state.tick(115 * MS, MS);
    let turn = state.switch_out(116 * MS, Off::Park(PARK_EPOLL), 0).expect("it ends");
    assert_eq!(turn.ns, 16 * MS);
    let parts = [(cause::RUNQUEUE, 13 * MS), (cause::CPU, 3 * MS)];
    assert_eq!(state.record.turn.ledger, ledger(&parts));
}

#[test]
fn time_off_the_cpu_is_no_late_tick() {
    let mut state = woken(100 * MS);
    state.tick(101 * MS, MS);
    state.switch_out(102 * MS, SLEEP, 0);
    state.wake(140 * MS);
    state.switch_in(140 * MS);
    state.tick(141 * MS, MS);
    let turn = state.switch_out(142 * MS, Off::Park(PARK_EPOLL), 0).expect("it ends");
    assert_eq!(turn.ns, 42 * MS);
    let parts = [(cause::SYSCALL, 38 * MS), (cause::CPU, 4 * MS)];
    assert_eq!(state.record.turn.ledger, ledger(&parts));
}

#[test]
fn an_unseen_switch_in_is_put_where_the_scheduler_charged_cpu_time() {
    let mut state = woken(100 * MS);
    state.exec_ns = 5 * MS;
    state.switch_out(102 * MS, Off::Preempted, 0);
    // Seen running at 120 ms; the scheduler has charged it 3 ms since.
    let at = state.unseen_switch_in(120 * MS, 8 * MS);
    assert_eq!(at, 117 * MS);
    state.switch_in(at);
    let turn = state.switch_out(120 * MS, Off::Park(PARK_EPOLL), 0).expect("it ends");
    assert_eq!(turn.ns, 20 * MS);
    let parts = [(cause::RUNQUEUE, 15 * MS), (cause::CPU, 5 * MS)];
    assert_eq!(state.record.turn.ledger, ledger(&parts));
    // An account that says more than the time away can't push it before the switch-out.
    assert_eq!(state.unseen_switch_in(121 * MS, 999 * MS), 120 * MS);
}
