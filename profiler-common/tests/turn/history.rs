//! Legal histories: what a real scheduler can do to one thread.
//!
//! A history is written down twice: as the events that a kernel would trace, and as the truth of
//! what the thread did when. The state machine sees only the events, the model only the truth.

use profiler_common::cause;
use profiler_common::turn::{Off, PARK_EPOLL, PARK_FUTEX};

/// System call of a lock.
pub(crate) const FUTEX: i32 = 202;

/// One thing that happens to a thread, beginning and ending on a CPU. Durations are nanoseconds.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Run(u64),
    /// A tick of the sampler.
    Tick,
    Preempted(u64),
    /// Woken after it had decided to sleep, before it did: it stays runnable and goes on.
    WokenAwake,
    Sleep {
        cause: u8,
        nr: i32,
        nap: Nap,
    },
    /// A poll that finds work and does not sleep.
    Poll(Entry),
    /// A poll that sleeps.
    Park(Park),
    /// A park in a futex. `late`: its futex is known for a park only when the sleep ends.
    FutexPark {
        late: bool,
        nap: Nap,
    },
    /// From here on polls that do not sleep are seen.
    Arm,
    Disarm,
}

/// A sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nap {
    /// From the switch-out to the wake-up.
    pub(crate) asleep: u64,
    /// From the wake-up to the switch-in.
    pub(crate) starved: u64,
    /// The wake-up raced: it was traced on another CPU this long before the switch-out.
    pub(crate) early: Option<u64>,
}

/// A poll that sleeps, after it ran and lost the CPU inside the call for a while.
#[derive(Clone, Debug)]
pub(crate) struct Park {
    pub(crate) entry: Entry,
    pub(crate) before: Vec<(u64, u64)>,
    /// Seeing the polls that do not sleep is switched on or off meanwhile.
    pub(crate) flips: bool,
    pub(crate) nap: Nap,
    /// Woken for nothing, and asleep again in the same call.
    pub(crate) again: Option<Nap>,
}

/// What happens while `park_enter` works: preemptions before, amid and after the bookkeeping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) work: u64,
    pub(crate) before: Option<u64>,
    pub(crate) amid: Option<u64>,
    pub(crate) after: Option<u64>,
}

impl Entry {
    pub(crate) const QUIET: Self = Self { work: 1, before: None, amid: None, after: None };
}

/// What the thread was doing when stallscope attached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// Nobody looked, or it is new.
    Unseen,
    Running,
    /// Runnable, for this long until it gets a CPU.
    Starved(u64),
    Asleep {
        cause: u8,
        nr: i32,
        nap: Nap,
    },
    Parked(Nap),
}

#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) start: u64,
    pub(crate) armed: bool,
    pub(crate) found: Found,
    pub(crate) steps: Vec<Step>,
    pub(crate) exits: bool,
}

/// What is traced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Out(Off),
    /// `late`: meanwhile the futex of the sleep was recognised as a park's.
    In {
        late: bool,
    },
    Wake,
    Guard(bool),
    EnterPark,
    /// Carries the time at which the park was entered.
    NextTurn(u64),
    Tick,
    Exit,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Traced {
    pub(crate) at: u64,
    pub(crate) armed_since: u64,
    pub(crate) event: Event,
}

/// What the thread was doing in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Running,
    Starved,
    Asleep { cause: u8, nr: i32 },
    Parked,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) doing: Doing,
}

/// Where turns end and begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Boundary {
    /// The first event of a thread that was found in the middle of a turn; or when that one began.
    Attached {
        start: u64,
    },
    /// A park is entered, and this is seen.
    Polled {
        at: u64,
        armed_since: u64,
    },
    /// A sleep in a park. `entered`: when the call was entered, if this could be seen at all.
    Parked {
        entered: Option<u64>,
        out: u64,
        wake: u64,
        armed_since: u64,
    },
    /// The park it was found in when stallscope attached.
    WasParked {
        since: u64,
        wake: u64,
    },
    Exited {
        at: u64,
        armed_since: u64,
    },
}

#[derive(Debug, Default)]
pub(crate) struct History {
    /// What the kernel is told when it attaches.
    pub(crate) adopt: Option<Adopt>,
    pub(crate) events: Vec<Traced>,
    pub(crate) truth: Vec<Stretch>,
    pub(crate) boundaries: Vec<Boundary>,
    now: u64,
    armed_since: u64,
    unadopted: bool,
    /// Its last switch-out.
    out: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Adopt {
    Running,
    Asleep { since: u64, cause: u8, nr: i32 },
    Parked { since: u64 },
}

impl History {
    pub(crate) fn of(script: &Script) -> Self {
        let mut history = Self { now: script.start, ..Self::default() };
        if script.armed {
            history.armed_since = script.start;
        }
        history.begin(script.found);
        for step in &script.steps {
            history.step(step);
        }
        if script.exits {
            let (at, armed_since) = (history.now, history.armed_since);
            history.trace(Event::Exit);
            history.boundaries.push(Boundary::Exited { at, armed_since });
        }
        history
    }

    fn begin(&mut self, found: Found) {
        let since = self.now;
        self.adopt = match found {
            Found::Unseen => None,
            Found::Running | Found::Starved(_) => Some(Adopt::Running),
            Found::Asleep { cause, nr, .. } => Some(Adopt::Asleep { since, cause, nr }),
            Found::Parked(_) => Some(Adopt::Parked { since }),
        };
        self.unadopted = matches!(found, Found::Running | Found::Starved(_));
        match found {
            Found::Unseen | Found::Running => {}
            Found::Starved(ns) => {
                self.pass(ns, Doing::Starved);
                self.switched_in(false);
            }
            Found::Asleep { cause, nr, nap } => {
                self.boundaries.push(Boundary::Attached { start: since });
                self.sleep(Doing::Asleep { cause, nr }, nap.asleep, nap.starved, false);
            }
            Found::Parked(nap) => {
                let wake = self.sleep(Doing::Parked, nap.asleep, nap.starved, false);
                self.boundaries.push(Boundary::WasParked { since, wake });
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Run(ns) => self.pass(*ns, Doing::Running),
            Step::Tick => {
                self.adopted(self.now);
                self.trace(Event::Tick);
            }
            Step::Preempted(ns) => self.preempted(*ns),
            Step::WokenAwake => {
                self.pass(1, Doing::Running);
                self.trace(Event::Wake);
            }
            Step::Sleep { cause, nr, nap } => {
                let doing = Doing::Asleep { cause: *cause, nr: *nr };
                self.falls_asleep(Off::Sleep { cause: *cause, nr: *nr }, doing, *nap, false);
            }
            Step::Poll(entry) => {
                self.enter(entry);
            }
            Step::Park(park) => self.park(park),
            Step::FutexPark { late: false, nap } => {
                self.parks(Off::Park(PARK_FUTEX), None, *nap, false);
            }
            Step::FutexPark { late: true, nap } => {
                self.parks(Off::Sleep { cause: cause::LOCK, nr: FUTEX }, None, *nap, true);
            }
            Step::Arm => self.arm(),
            Step::Disarm => self.armed_since = 0,
        }
    }

    fn arm(&mut self) {
        if self.armed_since == 0 {
            self.armed_since = self.now;
        }
    }

    fn park(&mut self, park: &Park) {
        let entered = self.enter(&park.entry);
        for (run, preempted) in &park.before {
            self.pass(*run, Doing::Running);
            self.preempted(*preempted);
        }
        if park.flips {
            if self.armed_since == 0 {
                self.pass(1, Doing::Running);
                self.arm();
            } else {
                self.armed_since = 0;
            }
        }
        self.parks(Off::Park(PARK_EPOLL), entered, park.nap, false);
        if let Some(nap) = park.again {
            self.pass(1, Doing::Running);
            self.parks(Off::Park(PARK_EPOLL), None, nap, false);
        }
    }

    /// Returns when the park was entered, if this is seen.
    fn enter(&mut self, entry: &Entry) -> Option<u64> {
        self.pass(entry.work, Doing::Running);
        if self.armed_since == 0 {
            return None;
        }
        self.trace(Event::Guard(true));
        self.preempted_guarded(entry.work, entry.before);
        let at = self.now;
        self.adopted(self.now);
        self.trace(Event::EnterPark);
        self.boundaries.push(Boundary::Polled { at, armed_since: self.armed_since });
        self.preempted_guarded(entry.work, entry.amid);
        self.trace(Event::NextTurn(at));
        self.preempted_guarded(entry.work, entry.after);
        self.pass(entry.work, Doing::Running);
        self.trace(Event::Guard(false));
        Some(at)
    }

    fn parks(&mut self, off: Off, entered: Option<u64>, nap: Nap, late: bool) {
        if matches!(off, Off::Park(_)) {
            // It is known as a loop from now on.
            self.unadopted = false;
        }
        let (out, wake) = self.falls_asleep(off, Doing::Parked, nap, late);
        let armed_since = self.armed_since;
        self.boundaries.push(Boundary::Parked { entered, out, wake, armed_since });
    }

    fn preempted_guarded(&mut self, work: u64, preempted: Option<u64>) {
        if let Some(ns) = preempted {
            self.pass(work, Doing::Running);
            self.trace(Event::Out(Off::Preempted));
            self.pass(ns, Doing::Starved);
            self.adopted(self.now);
            self.trace(Event::In { late: false });
        }
    }

    fn preempted(&mut self, ns: u64) {
        self.out = Some(self.now);
        self.trace(Event::Out(Off::Preempted));
        self.pass(ns, Doing::Starved);
        self.switched_in(false);
    }

    /// Returns when it went to sleep and when it was woken.
    fn falls_asleep(&mut self, off: Off, doing: Doing, nap: Nap, late: bool) -> (u64, u64) {
        if let Some(lead) = nap.early {
            // No two wake-ups within a nanosecond.
            self.pass(1, Doing::Running);
            self.trace(Event::Wake);
            self.pass(lead, Doing::Running);
            self.trace(Event::Out(off));
            let out = self.now;
            self.out = Some(out);
            self.truth.push(Stretch { from: out, to: out, doing });
            self.pass(nap.starved + 1, Doing::Starved);
            self.switched_in(late);
            (out, out)
        } else {
            self.trace(Event::Out(off));
            let out = self.now;
            self.out = Some(out);
            (out, self.sleep(doing, nap.asleep, nap.starved, late))
        }
    }

    fn sleep(&mut self, doing: Doing, asleep: u64, starved: u64, late: bool) -> u64 {
        self.pass(asleep, doing);
        let wake = self.now;
        self.trace(Event::Wake);
        self.pass(starved, Doing::Starved);
        self.switched_in(late);
        wake
    }

    fn switched_in(&mut self, late: bool) {
        self.adopted(self.out.unwrap_or(self.now));
        self.trace(Event::In { late });
    }

    /// A loop that was found running is in a turn from its first event on: nothing is known of the
    /// time before.
    fn adopted(&mut self, start: u64) {
        if std::mem::take(&mut self.unadopted) {
            self.boundaries.push(Boundary::Attached { start });
        }
    }

    fn trace(&mut self, event: Event) {
        self.events.push(Traced { at: self.now, armed_since: self.armed_since, event });
    }

    fn pass(&mut self, ns: u64, doing: Doing) {
        let from = self.now;
        self.now += ns;
        self.truth.push(Stretch { from, to: self.now, doing });
    }
}
