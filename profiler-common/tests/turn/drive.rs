//! Plays a history to the state machine the way the kernel programs do.

use profiler_common::record::{FLAG_AT_ATTACH, FLAG_EXACT, FLAG_EXITED};
use profiler_common::turn::{Finished, Phase, ThreadState};

use crate::history::{Adopt, Event, History, Script, Step};
use crate::model::Turn;

/// What the state machine made of a history.
pub(crate) struct Played {
    pub(crate) state: Box<ThreadState>,
    pub(crate) turns: Vec<Turn>,
    /// CPU time that samples stood for, by turn.
    pub(crate) sampled: Vec<u64>,
    /// Sleeps whose wake-up was not seen.
    pub(crate) missed: usize,
    adopt: Option<Adopt>,
}

impl Played {
    pub(crate) fn of(history: &History) -> Self {
        let mut played = Self {
            state: Box::new(ThreadState::new(1, 2)),
            turns: Vec::new(),
            sampled: Vec::new(),
            missed: 0,
            adopt: history.adopt,
        };
        for traced in &history.events {
            played.event(traced.at, traced.armed_since, traced.event);
            played.settled(traced.at + 77);
        }
        played
    }

    /// Plays steps to a thread that is not known yet; every poll is seen.
    pub(crate) fn steps(steps: &[Step]) -> Self {
        Self::of(&History::of(&Script {
            start: 1_000,
            armed: true,
            found: crate::history::Found::Unseen,
            steps: steps.to_vec(),
            exits: false,
        }))
    }

    fn event(&mut self, now: u64, armed_since: u64, event: Event) {
        let state = &mut self.state;
        match event {
            Event::Wake => state.wake(now),
            Event::Guard(on) => state.set_guard(on),
            Event::NextTurn(at) => state.next_turn(at),
            Event::Out(off) => {
                let finished = state.switch_out(now, off, armed_since);
                self.finished(finished);
            }
            Event::In { late } => {
                self.adopt(now, true);
                if late && self.state.is_asleep() {
                    let finished = self.state.sleep_was_park(armed_since);
                    self.finished(finished);
                }
                let slept = self.state.switch_in(now);
                self.missed += usize::from(slept.is_some_and(|slept| slept.wake_missed));
            }
            Event::EnterPark => {
                self.adopt(now, false);
                let finished = self.state.enter_park(now, armed_since);
                self.finished(finished);
            }
            Event::Tick => {
                self.adopt(now, false);
                if self.state.phase() == Phase::Busy && !self.state.is_off() {
                    self.state.sample(now, false);
                }
            }
            Event::Exit => {
                let finished = self.state.exit(now, armed_since);
                self.finished(finished);
            }
        }
    }

    /// Whoever reads the state meanwhile finds a ledger that explains the turn so far.
    fn settled(&self, now: u64) {
        if self.state.phase() != Phase::Busy {
            return;
        }
        let mut copy = self.state.clone();
        copy.settle(now);
        let turn = &copy.record.turn;
        assert_eq!(turn.ledger.iter().sum::<u64>(), now - turn.start_ns);
    }

    fn adopt(&mut self, now: u64, switched_in: bool) {
        if self.state.phase() != Phase::Unknown {
            return;
        }
        // What it slept in holds only if this is the first event since.
        let first = switched_in && !self.state.is_off();
        match self.adopt.take() {
            Some(Adopt::Running) => self.state.adopt(now, None),
            Some(Adopt::Asleep { since, cause, nr }) if first => {
                self.state.adopt(since, Some((cause, nr)));
            }
            Some(Adopt::Parked { since }) if first => self.state.adopt_parked(since),
            _ => {}
        }
    }

    fn finished(&mut self, finished: Option<Finished>) {
        let Some(Finished { ns, end_ns }) = finished else { return };
        self.state.count_length(ns);
        let (header, turn) = (&self.state.record.header, &self.state.record.turn);
        assert_eq!(turn.start_ns + ns, end_ns);
        assert_eq!(header.time_ns, end_ns);
        self.turns.push(Turn {
            start: turn.start_ns,
            end: end_ns,
            ledger: turn.ledger,
            syscalls: turn.syscalls[..turn.syscall_count as usize].to_vec(),
            other_sleeps: turn.other_sleeps,
            exact: header.flags & FLAG_EXACT != 0,
            at_attach: header.flags & FLAG_AT_ATTACH != 0,
            exited: header.flags & FLAG_EXITED != 0,
        });
        self.sampled.push(turn.sampled_ns);
    }
}
