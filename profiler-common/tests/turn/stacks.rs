//! The table of a turn's stacks and the buffers that hold their captures.

use std::collections::{HashMap, HashSet};

use profiler_common::capture::BUFFERS;
use profiler_common::cause;
use profiler_common::turn::{NO_BUFFER, NO_ENTRY, STACKS, StackUse, ThreadState};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Seen with this key, and later found to have held so much time.
    Seen { key: u64, ns: u64 },
    /// The capture of an entry is sent, if it has one.
    Sent(usize),
    /// All that wait are sent.
    AllSent,
    /// The turn ends and the next one begins.
    NextTurn,
}

fn event() -> impl Strategy<Value = Event> {
    let ns = || prop_oneof![0..10_u64, 0..1_000_000_000_u64];
    prop_oneof![
        20 => (1..12_u64, ns()).prop_map(|(key, ns)| Event::Seen { key, ns }),
        20 => (1..100_u64, ns()).prop_map(|(key, ns)| Event::Seen { key, ns }),
        4 => (0..STACKS).prop_map(Event::Sent),
        1 => Just(Event::AllSent),
        1 => Just(Event::NextTurn),
    ]
}

/// The kernel's side of it: what lies in the buffers, what was sent, what was reported lost.
struct Thread {
    state: Box<ThreadState>,
    buffers: [u64; BUFFERS as usize],
    /// Key and exact weight of each stack by its number.
    weights: HashMap<u32, (u64, Weight)>,
    sent: HashSet<u32>,
    now: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weight {
    total: u64,
    max: u64,
    count: u32,
}

impl Thread {
    fn new() -> Self {
        let mut thread = Self {
            state: Box::new(ThreadState::new(1, 2)),
            buffers: [0; BUFFERS as usize],
            weights: HashMap::new(),
            sent: HashSet::new(),
            now: 1,
        };
        thread.next_turn();
        thread
    }

    fn next_turn(&mut self) {
        self.now += 1_000;
        self.state.enter_park(self.now, 0);
        self.state.next_turn(self.now);
        self.weights.clear();
        self.sent.clear();
    }

    fn used(&self) -> &[StackUse] {
        let turn = &self.state.record.turn;
        &turn.stacks[..turn.stack_count as usize]
    }

    /// Returns how many losses were reported.
    fn seen(&mut self, key: u64, ns: u64) -> usize {
        // A capture is taken before it is known whether the stack is new.
        self.buffers[self.state.spare as usize] = key;
        let entry = self.state.stack_entry(key, cause::SYSCALL, 0);
        assert!((entry.index as usize) < STACKS);
        let kept = entry.new && self.state.keep(entry.index);
        self.state.weigh(entry.index, ns);
        let id = self.state.record.turn.stacks[entry.index as usize].id;
        assert_eq!(entry.new, !self.weights.contains_key(&id), "ids are given once");
        let (known, weight) = self.weights.entry(id).or_insert((key, Weight::default()));
        assert_eq!(*known, key, "two stacks share an entry");
        weight.total += ns;
        weight.max = weight.max.max(ns);
        weight.count += 1;
        usize::from(entry.evicted) + usize::from(kept)
    }

    fn send(&mut self, entry: usize) {
        let stack = self.state.record.turn.stacks[entry];
        if entry >= self.state.record.turn.stack_count as usize || stack.buffer == NO_BUFFER {
            return;
        }
        let buffer = self.state.release(entry);
        assert_eq!(buffer, stack.buffer);
        assert_eq!(self.buffers[buffer as usize], stack.key, "sent another stack's capture");
        assert!(self.sent.insert(stack.id), "sent twice");
    }

    /// Stacks whose capture waits or was sent: what a report could show.
    fn with_capture(&self) -> HashSet<u32> {
        let waiting = self.used().iter().filter(|stack| stack.buffer != NO_BUFFER);
        waiting.map(|stack| stack.id).chain(self.sent.iter().copied()).collect()
    }

    fn check(&self) {
        let turn = &self.state.record.turn;
        assert!(self.state.spare < BUFFERS);
        assert_eq!(turn.owners[self.state.spare as usize], NO_ENTRY, "the spare buffer is owned");
        for (buffer, &owner) in turn.owners.iter().enumerate() {
            if owner != NO_ENTRY {
                assert!(owner < turn.stack_count);
                let stack = &turn.stacks[owner as usize];
                assert_eq!(stack.buffer as usize, buffer, "owner and buffer disagree");
                assert_eq!(self.buffers[buffer], stack.key, "its capture was overwritten");
            }
        }
        let mut keys = HashSet::new();
        for (index, stack) in self.used().iter().enumerate() {
            if stack.buffer != NO_BUFFER {
                assert_eq!(turn.owners[stack.buffer as usize] as usize, index);
            }
            if stack.key != 0 {
                assert!(keys.insert(stack.key), "a stack has two entries");
            }
            let (_, exact) = self.weights[&stack.id];
            let found = Weight { total: stack.total_ns, max: stack.max_ns, count: stack.count };
            assert_eq!(found, exact, "the weight of stack {}", stack.id);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_buffer_holds_one_stack_and_every_loss_is_reported(events in vec(event(), 0..300)) {
        let mut thread = Thread::new();
        for event in events {
            match event {
                Event::Seen { key, ns } => {
                    let before = thread.with_capture();
                    let ids: HashSet<u32> = thread.used().iter().map(|stack| stack.id).collect();
                    let reported = thread.seen(key, ns);
                    let after = thread.with_capture();
                    let lost_captures = before.difference(&after).count();
                    let left = thread.used().iter().map(|stack| stack.id).collect();
                    let lost_entries = ids.difference(&left).count();
                    prop_assert!(lost_captures <= reported && lost_entries <= reported);
                    if reported == 0 {
                        prop_assert_eq!((lost_captures, lost_entries), (0, 0));
                    }
                }
                Event::Sent(entry) => thread.send(entry),
                Event::AllSent => {
                    for owner in thread.state.record.turn.owners {
                        if owner != NO_ENTRY {
                            thread.send(owner as usize);
                        }
                    }
                    prop_assert_eq!(thread.state.record.turn.owners, [NO_ENTRY; BUFFERS as usize]);
                }
                Event::NextTurn => thread.next_turn(),
            }
            thread.check();
        }
    }

    /// While captures are sent as they are made, nothing but the table's size loses a stack.
    #[test]
    fn a_stall_that_is_known_loses_no_capture(keys in vec(1..=STACKS as u64, 0..300)) {
        let mut thread = Thread::new();
        for key in keys {
            prop_assert_eq!(thread.seen(key, 5), 0);
            let owners = thread.state.record.turn.owners;
            for owner in owners.into_iter().filter(|owner| *owner != NO_ENTRY) {
                thread.send(owner as usize);
            }
            thread.check();
        }
    }
}

#[test]
fn two_thousand_sleeps_at_one_place_are_one_stack() {
    let mut thread = Thread::new();
    for ns in 0..2_000 {
        assert_eq!(thread.seen(77, ns), 0);
    }
    let [stack] = thread.used() else { panic!("one stack, not {}", thread.used().len()) };
    assert_eq!(
        (stack.key, stack.count, stack.total_ns, stack.max_ns),
        (77, 2_000, 1_999_000, 1_999)
    );
    assert_eq!(stack.id, 0);
    thread.check();
}

#[test]
fn the_stack_that_holds_the_most_is_never_evicted() {
    let mut thread = Thread::new();
    thread.seen(1_000_000, 1 << 40);
    let mut losses = 0;
    for key in 1..=500 {
        losses += thread.seen(key, key % 7);
        thread.check();
    }
    assert!(losses > 400, "each new stack beyond the table's size is a loss: {losses}");
    let stack = thread.used().iter().find(|stack| stack.key == 1_000_000).expect("it stays");
    assert_eq!((stack.total_ns, stack.count), (1 << 40, 1));
    assert_ne!(stack.buffer, NO_BUFFER, "and so does its capture");
}

#[test]
fn a_stack_whose_capture_made_room_is_captured_again() {
    let mut thread = Thread::new();
    for key in 1..=u64::from(BUFFERS) {
        thread.seen(key, key);
    }
    // The lightest has lost its capture by now: it counts as new when it comes back.
    assert!(!thread.used().iter().any(|stack| stack.key == 1));
    thread.seen(1, 9);
    thread.check();
    let again = thread.used().iter().find(|stack| stack.key == 1).expect("captured again");
    assert_eq!(again.total_ns, 9);
    assert_ne!(again.buffer, NO_BUFFER);
}

#[test]
fn entries_that_do_not_exist_are_left_alone() {
    let mut thread = Thread::new();
    thread.seen(5, 5);
    for entry in [STACKS as u32, NO_ENTRY] {
        thread.state.weigh(entry, 9);
        assert!(!thread.state.keep(entry));
        assert_eq!(thread.state.release(entry as usize), NO_BUFFER);
    }
    thread.check();
}
