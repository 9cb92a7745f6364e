//! The state machine of a turn: scheduler events in, ledger out.
//!
//! A thread's own events (switched out, switched in, park entered, tick) never run concurrently
//! with each other, so they alone write the state. The one event that others cause, the wake-up,
//! writes only [`ThreadState::wake_ns`]; it is evaluated at the switch-in.
//!
//! Every segment begins at the timestamp at which the one before it ended, so that the causes of
//! a turn sum to its duration exactly.

use crate::capture::BUFFERS;
use crate::cause;
use crate::record::{FLAG_AT_ATTACH, FLAG_EXACT, FLAG_EXITED, TurnRecord};

/// Parks that only an event loop makes: epoll and waiting io_uring calls.
pub const PARK_EPOLL: u32 = 1;
/// Parks that blocking code makes too: poll and select. Only after a thread proved to be a loop.
pub const PARK_POLL: u32 = 2;
/// Futex waits of a runtime's parker.
pub const PARK_FUTEX: u32 = 4;

/// Stacks a turn has room for: a power of two, so that the verifier sees masked indexes in bounds.
pub const STACKS: usize = 32;
/// Kinds of system calls a turn has room for.
pub const SYSCALLS: usize = 8;
/// Wake-ups that end a poll park are believed to be a loop's after this many from one place.
pub const POLL_PROOF: u32 = 3;

/// Periods after which a tick is so late that the CPU can't have run meanwhile.
const LATE_PERIODS: u64 = 3;

/// No capture buffer.
pub const NO_BUFFER: u32 = u32::MAX;
/// No entry of a turn's tables.
pub const NO_ENTRY: u32 = u32::MAX;

/// What a thread is doing, as far as its events tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// It has not parked yet: not known to run a loop.
    Unknown = 0,
    /// In a turn.
    Busy = 1,
    /// Waiting for work.
    Parked = 2,
}

const PHASE_UNKNOWN: u32 = Phase::Unknown as u32;
const PHASE_BUSY: u32 = Phase::Busy as u32;
const PHASE_PARKED: u32 = Phase::Parked as u32;

// 0: not known.
const CPU_ON: u32 = 1;
const CPU_OFF: u32 = 2;
/// Preempted in the middle of `park_enter`.
const CPU_OFF_GUARDED: u32 = 3;

/// Why a thread was switched out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// Still runnable.
    Preempted,
    /// Asleep in a park of this class.
    Park(u32),
    /// Asleep for another reason.
    Sleep {
        /// The cause it counts for.
        cause: u8,
        /// System call, negative if none.
        nr: i32,
    },
}

const OFF_PREEMPTED: u32 = 0;
const OFF_PARK: u32 = 1;
const OFF_SLEEP: u32 = 2;

/// A kind of system call that slept in a turn.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyscallUse {
    /// Time asleep in it.
    pub total_ns: u64,
    /// Longest sleep.
    pub max_ns: u64,
    /// The call.
    pub nr: i32,
    /// Number of sleeps; 0 marks a free entry.
    pub count: u32,
}

/// A stack of a turn and what it accounts for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackUse {
    /// Hash of what identifies the stack.
    pub key: u64,
    /// Time asleep in it, or CPU time up to its samples.
    pub total_ns: u64,
    /// Longest sleep.
    pub max_ns: u64,
    /// Sleeps, or samples.
    pub count: u32,
    /// Its number, unique in the turn: joins it with its capture.
    pub id: u32,
    /// A cause.
    pub cause: u32,
    /// System call, negative if none.
    pub nr: i32,
    /// Buffer that holds its capture until it is sent; [`NO_BUFFER`] afterwards.
    pub buffer: u32,
    /// Explicit padding.
    pub reserved: u32,
}

impl StackUse {
    const ZERO: Self = Self {
        key: 0,
        total_ns: 0,
        max_ns: 0,
        count: 0,
        id: 0,
        cause: 0,
        nr: 0,
        buffer: 0,
        reserved: 0,
    };

    #[inline(always)]
    const fn new(key: u64, cause: u8, nr: i32, id: u32) -> Self {
        Self { key, cause: cause as u32, nr, id, buffer: NO_BUFFER, ..Self::ZERO }
    }
}

/// One turn.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Its number, unique in the thread.
    pub number: u64,
    /// When it began (`CLOCK_MONOTONIC`).
    pub start_ns: u64,
    /// Nanoseconds by cause.
    pub ledger: [u64; cause::COUNT],
    /// CPU time that samples stand for.
    pub sampled_ns: u64,
    /// The part of it that was sampled in the kernel.
    pub sampled_kernel_ns: u64,
    /// Longest single stretch off the CPU.
    pub longest_ns: u64,
    /// Time of the last sample.
    pub last_sample_ns: u64,
    /// Time of the last capture that was sent.
    pub last_sent_ns: u64,
    /// Used entries of `stacks`.
    pub stack_count: u32,
    /// Used entries of `syscalls`.
    pub syscall_count: u32,
    /// Number for the next stack.
    pub next_id: u32,
    /// Non-zero: it is known to be a stall, captures are sent as they are made.
    pub open: u32,
    /// Threads' sleeps that found the table of system calls full.
    pub other_sleeps: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// Which stack's capture waits in each buffer; [`NO_ENTRY`] if none does.
    pub owners: [u32; BUFFERS as usize],
    /// Stacks, in the order in which they were first seen (an evicted one leaves its place).
    pub stacks: [StackUse; STACKS],
    /// System calls that slept.
    pub syscalls: [SyscallUse; SYSCALLS],
}

/// What a loop did since it was found.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopStats {
    /// When it was found.
    pub since_ns: u64,
    /// Turns that ended.
    pub turns: u64,
    /// Time in them.
    pub busy_ns: u64,
    /// Time parked.
    pub parked_ns: u64,
    /// Longest turn.
    pub max_ns: u64,
    /// Turns over the threshold.
    pub stalls: u64,
    /// Time in them.
    pub stalled_ns: u64,
    /// Busy time by cause.
    pub ledger: [u64; cause::COUNT],
}

/// Everything the kernel side knows of a watched thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadState {
    /// Odd while the thread's own event is changing the state: readers retry.
    pub version: u64,
    /// When another thread last woke this one.
    pub wake_ns: u64,
    /// The last wake-up that was evaluated.
    pub wake_seen_ns: u64,
    /// Beginning of the open segment.
    pub mark_ns: u64,
    /// Time preempted inside `park_enter` since `mark_ns`.
    pub gap_ns: u64,
    /// Beginning of the park, or of the last poll.
    pub park_ns: u64,
    /// CPU time of the thread by the scheduler's account when it was last switched out.
    pub exec_ns: u64,
    /// Time of the last tick.
    pub tick_ns: u64,
    /// Address of the futex the thread sleeps on.
    pub futex: u64,
    /// Stack pointer of the last sleeping `poll`, to recognise a loop by.
    pub poll_sp: u64,
    /// Instruction pointer of the last sleeping `poll`.
    pub poll_ip: u64,
    /// [`Phase`].
    pub phase: u32,
    /// On a CPU or not.
    pub cpu: u32,
    /// Why it is off.
    pub off: u32,
    /// Cause that the time off the CPU counts for.
    pub off_cause: u32,
    /// System call it sleeps in.
    pub off_nr: i32,
    /// Entry of `stacks` for this sleep.
    pub off_entry: u32,
    /// Non-zero while `park_enter` works on the state.
    pub guard: u32,
    /// Non-zero: the last boundary was a poll, and the thread has not slept in a park since.
    pub polling: u32,
    /// Parks that end this thread's turns.
    pub park_mask: u32,
    /// Consecutive sleeping polls from the same place.
    pub poll_same: u32,
    /// Sleeps in a futex before the thread was known as a loop.
    pub futex_sleeps: u32,
    /// Index of captures and histogram plus one; 0 if there is none.
    pub slot: u32,
    /// The buffer that the next capture goes to.
    pub spare: u32,
    /// Turn flags: see `record`.
    pub turn_flags: u32,
    /// Scratch of a search.
    pub search: u32,
    /// Non-zero: user space was told that this is a loop.
    pub announced: u32,
    /// Statistics.
    pub stats: LoopStats,
    /// The current turn behind a record header, sent as it lies here.
    pub record: TurnRecord,
}

/// A stack's place in its turn's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackEntry {
    /// Index in the table, or [`NO_ENTRY`].
    pub index: u32,
    /// Whether it was not there before.
    pub new: bool,
    /// Whether another stack had to go.
    pub evicted: bool,
}

/// A sleep that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slept {
    /// What it counted for.
    pub cause: u8,
    /// How long.
    pub ns: u64,
    /// Whether the wake-up was not seen.
    pub wake_missed: bool,
}

/// A turn that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its duration.
    pub ns: u64,
    /// Its end.
    pub end_ns: u64,
}

impl ThreadState {
    /// The state of a thread nothing is known of.
    #[must_use]
    pub fn new(tgid: u32, tid: u32) -> Self {
        // SAFETY: every field is an integer or an array of integers, for which zero is valid.
        let mut state: Self = unsafe { core::mem::zeroed() };
        state.record.header.tgid = tgid;
        state.record.header.tid = tid;
        state.park_mask = PARK_EPOLL;
        state
    }

    /// The phase as a number another program may have written.
    #[inline(always)]
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self.phase {
            PHASE_BUSY => Phase::Busy,
            PHASE_PARKED => Phase::Parked,
            _ => Phase::Unknown,
        }
    }

    /// Whether the thread is off the CPU for a sleep (not merely preempted).
    #[must_use]
    pub const fn is_asleep(&self) -> bool {
        self.cpu == CPU_OFF && self.off != OFF_PREEMPTED
    }

    /// Whether the thread is off the CPU.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.cpu == CPU_OFF || self.cpu == CPU_OFF_GUARDED
    }

    /// Age of the current turn; 0 outside a turn.
    #[inline(always)]
    #[must_use]
    pub const fn age(&self, now: u64) -> u64 {
        if self.phase == PHASE_BUSY { now.saturating_sub(self.record.turn.start_ns) } else { 0 }
    }

    /// The thread is switched out. Returns a turn that ended by it.
    ///
    /// The caller has set `off_entry` if it has a stack for this sleep.
    #[inline(always)]
    pub fn switch_out(&mut self, now: u64, off: Off, armed_since: u64) -> Option<Finished> {
        if self.guard != 0 {
            self.cpu = CPU_OFF_GUARDED;
            self.park_ns = now;
            return None;
        }
        self.close_cpu(now);
        self.cpu = CPU_OFF;
        match off {
            Off::Preempted => {
                self.off = OFF_PREEMPTED;
                None
            }
            Off::Sleep { cause, nr } => {
                self.off = OFF_SLEEP;
                self.off_cause = cause as u32;
                self.off_nr = nr;
                None
            }
            Off::Park(class) => {
                self.off = OFF_PARK;
                let finished = self.park(now, class, armed_since);
                self.phase = PHASE_PARKED;
                self.polling = 0;
                finished
            }
        }
    }

    /// Ends the turn that a sleeping park ends.
    #[inline(always)]
    fn park(&mut self, now: u64, class: u32, armed_since: u64) -> Option<Finished> {
        if self.stats.since_ns == 0 {
            self.stats.since_ns = now;
        }
        if self.phase != PHASE_BUSY {
            self.park_ns = now;
            return None;
        }
        // Others than those in the mask (a futex) are not seen being entered: the last poll was not
        // this park.
        let started_at_poll = self.polling != 0
            && class & self.park_mask != 0
            && armed_since != 0
            && armed_since <= self.record.turn.start_ns;
        if started_at_poll {
            // The turn before ended when this park was entered, and nothing has run since.
            self.park_ns = self.record.turn.start_ns;
            None
        } else {
            self.park_ns = now;
            Some(self.finish(now, armed_since))
        }
    }

    /// A sleep turned out to be a park after all: user space has classified its futex meanwhile.
    /// Returns the turn that ended when the sleep began.
    #[inline(always)]
    pub fn sleep_was_park(&mut self, armed_since: u64) -> Option<Finished> {
        let at = self.mark_ns;
        let finished =
            if self.phase == PHASE_BUSY { Some(self.finish(at, armed_since)) } else { None };
        self.park_ns = at;
        self.off = OFF_PARK;
        self.phase = PHASE_PARKED;
        self.polling = 0;
        if self.stats.since_ns == 0 {
            self.stats.since_ns = at;
        }
        finished
    }

    /// The thread gets a CPU. Returns the sleep that ended, unless it was a park.
    #[inline(always)]
    pub fn switch_in(&mut self, now: u64) -> Option<Slept> {
        if self.cpu == CPU_OFF_GUARDED {
            self.gap_ns += now.saturating_sub(self.park_ns);
            self.cpu = CPU_ON;
            return None;
        }
        let was_off = self.cpu == CPU_OFF;
        self.cpu = CPU_ON;
        let mark = self.mark_ns;
        let woken = self.wake_ns;
        let woken_seen = woken != self.wake_seen_ns;
        self.wake_seen_ns = woken;
        self.mark_ns = now;
        self.gap_ns = 0;
        if !was_off {
            // Its switch-out was before we watched: nothing is known of the time until now.
            return None;
        }
        // A wake-up can be traced on another CPU just before this thread's own switch-out.
        let wake = if woken_seen { woken.max(mark).min(now) } else { now };
        if self.phase == PHASE_PARKED {
            self.stats.parked_ns += wake.saturating_sub(self.park_ns);
            self.begin(wake);
            self.charge(cause::RUNQUEUE, now.saturating_sub(wake));
            return None;
        }
        if self.phase != PHASE_BUSY {
            return None;
        }
        let away = now.saturating_sub(mark);
        if away > self.record.turn.longest_ns {
            self.record.turn.longest_ns = away;
        }
        if self.off == OFF_PREEMPTED {
            self.charge(cause::RUNQUEUE, now.saturating_sub(mark));
            return None;
        }
        let ns = wake.saturating_sub(mark);
        let cause = self.off_cause as u8;
        self.charge(cause, ns);
        self.charge(cause::RUNQUEUE, now.saturating_sub(wake));
        if self.off_nr >= 0 {
            self.count_syscall(self.off_nr, ns);
        }
        Some(Slept { cause, ns, wake_missed: !woken_seen })
    }

    /// When a thread that turns out to be running must have got the CPU: its switch-in was not
    /// traced, but the scheduler has charged it `exec_ns` of CPU time in all.
    #[inline(always)]
    #[must_use]
    pub const fn unseen_switch_in(&self, now: u64, exec_ns: u64) -> u64 {
        let away = now.saturating_sub(self.mark_ns);
        let ran = exec_ns.saturating_sub(self.exec_ns);
        now.saturating_sub(if ran < away { ran } else { away })
    }

    /// Another thread wakes this one.
    #[inline(always)]
    pub fn wake(&mut self, now: u64) {
        self.wake_ns = now;
    }

    /// Sets or clears the guard: a tick or a preemption may interrupt the work on a park that is
    /// entered, and then leaves the state alone. The caller puts a call that the compiler can't
    /// see through between this and its other accesses.
    #[inline(always)]
    pub fn set_guard(&mut self, on: bool) {
        // SAFETY: a valid reference; volatile so that the store is not merged with another.
        unsafe { core::ptr::write_volatile(&raw mut self.guard, u32::from(on)) };
    }

    /// The thread enters a park call: whether it will sleep is not known yet. Returns the turn
    /// that ended. The guard is set; call [`next_turn`](Self::next_turn) when the turn has been
    /// dealt with.
    #[inline(always)]
    pub fn enter_park(&mut self, now: u64, armed_since: u64) -> Option<Finished> {
        let finished = match self.phase {
            PHASE_BUSY => {
                self.close_cpu(now);
                Some(self.finish(now, armed_since))
            }
            _ => {
                self.gap_ns = 0;
                None
            }
        };
        self.mark_ns = now;
        finished
    }

    /// Begins the turn of a task after [`enter_park`](Self::enter_park).
    #[inline(always)]
    pub fn next_task(&mut self, now: u64) {
        self.next_turn(now);
        self.polling = 0;
    }

    /// Begins the next turn after [`enter_park`](Self::enter_park).
    #[inline(always)]
    pub fn next_turn(&mut self, now: u64) {
        self.begin(now);
        self.cpu = CPU_ON;
        self.polling = 1;
    }

    /// A sleeping poll or select in a process without epoll.
    #[inline(always)]
    pub fn poll_slept(&mut self, ip: u64, sp: u64) {
        if self.poll_ip == ip && self.poll_sp == sp {
            self.poll_same += 1;
        } else {
            self.poll_ip = ip;
            self.poll_sp = sp;
            self.poll_same = 1;
        }
    }

    /// Whether a thread that polls has slept often enough, from one and the same place, to be a
    /// loop: blocking code polls too, but it waits for its work in a futex.
    #[inline(always)]
    #[must_use]
    pub const fn proved_poll_loop(&self) -> bool {
        self.poll_same >= POLL_PROOF && self.poll_same > self.futex_sleeps
    }

    /// A tick of the thread's CPU clock. A timer that comes late by several periods, on a thread that
    /// was not switched out, means that the virtual CPU itself did not run: time on the host's run
    /// queue, known to a period.
    #[inline(always)]
    pub fn tick(&mut self, now: u64, period_ns: u64) {
        let from = if self.tick_ns > self.mark_ns { self.tick_ns } else { self.mark_ns };
        self.tick_ns = now;
        let since = now.saturating_sub(from);
        if self.phase == PHASE_BUSY && self.cpu == CPU_ON && since > LATE_PERIODS * period_ns {
            self.gap_ns += since - period_ns;
        }
    }

    /// Counts CPU time up to `now` for a sample; returns the time since the sample before.
    #[inline(always)]
    pub fn sample(&mut self, now: u64, in_kernel: bool) -> u64 {
        let turn = &mut self.record.turn;
        let from =
            if turn.last_sample_ns > self.mark_ns { turn.last_sample_ns } else { self.mark_ns };
        // A gap lies at the segment's beginning, before its first sample.
        let gap = if from == self.mark_ns { self.gap_ns } else { 0 };
        let weight = now.saturating_sub(from).saturating_sub(gap);
        turn.last_sample_ns = now;
        turn.sampled_ns += weight;
        if in_kernel {
            turn.sampled_kernel_ns += weight;
        }
        weight
    }

    /// The entry of a stack in the turn's table. A full table gives up a light stack.
    #[inline(always)]
    pub fn stack_entry(&mut self, key: u64, cause: u8, nr: i32) -> StackEntry {
        self.search = NO_ENTRY;
        let turn = &self.record.turn;
        for index in 0..STACKS as u32 {
            if index >= turn.stack_count {
                break;
            }
            if turn.stacks[index as usize].key == key {
                // Through memory, so that the verifier forgets which iteration it was.
                // SAFETY: a valid reference.
                unsafe { core::ptr::write_volatile(&raw mut self.search, index) };
                break;
            }
        }
        // SAFETY: a valid reference.
        let known = unsafe { core::ptr::read_volatile(&raw const self.search) };
        if (known as usize) < STACKS {
            return StackEntry { index: known, new: false, evicted: false };
        }
        let turn = &mut self.record.turn;
        let id = turn.next_id;
        turn.next_id += 1;
        let evicted = turn.stack_count >= STACKS as u32;
        let index = if evicted {
            // The lighter of two in turn: cheap, and a heavy stack is never alone the choice.
            let (one, two) = (id % STACKS as u32, (id + 7) % STACKS as u32);
            let lighter = turn.stacks[one as usize].total_ns <= turn.stacks[two as usize].total_ns;
            if lighter { one } else { two }
        } else {
            let next = turn.stack_count;
            turn.stack_count = next + 1;
            next
        };
        if (index as usize) < STACKS {
            let entry = &mut turn.stacks[index as usize];
            let buffer = entry.buffer;
            *entry = StackUse::new(key, cause, nr, id);
            if evicted && (buffer as usize) < BUFFERS as usize {
                turn.owners[buffer as usize] = NO_ENTRY;
            }
        }
        StackEntry { index, new: true, evicted }
    }

    /// Adds time to a stack.
    #[inline(always)]
    pub fn weigh(&mut self, entry: u32, ns: u64) {
        if (entry as usize) < STACKS {
            let entry = &mut self.record.turn.stacks[entry as usize];
            entry.total_ns += ns;
            entry.count += 1;
            if ns > entry.max_ns {
                entry.max_ns = ns;
            }
        }
    }

    /// Gives a new stack the buffer its capture is in, and chooses the buffer for the next one.
    /// Returns whether a waiting capture had to make room.
    #[inline(always)]
    pub fn keep(&mut self, entry: u32) -> bool {
        let mine = self.spare;
        let turn = &mut self.record.turn;
        if entry as usize >= STACKS || mine >= BUFFERS {
            return false;
        }
        turn.stacks[entry as usize].buffer = mine;
        turn.owners[mine as usize] = entry;
        let mut choice = NO_BUFFER;
        let mut choice_ns = u64::MAX;
        for buffer in 0..BUFFERS {
            let owner = turn.owners[buffer as usize];
            if owner as usize >= STACKS {
                self.spare = buffer;
                return false;
            }
            let held = turn.stacks[owner as usize].total_ns;
            if buffer != mine && held < choice_ns {
                choice_ns = held;
                choice = buffer;
            }
        }
        if choice >= BUFFERS {
            return false;
        }
        let owner = turn.owners[choice as usize] as usize;
        if owner < STACKS {
            // Without its capture a stack is worth nothing: seen again, it is captured again.
            turn.stacks[owner].key = 0;
            turn.stacks[owner].buffer = NO_BUFFER;
        }
        turn.owners[choice as usize] = NO_ENTRY;
        self.spare = choice;
        true
    }

    /// A capture was sent: its buffer is free. Returns the buffer.
    #[inline(always)]
    pub fn release(&mut self, entry: usize) -> u32 {
        if entry >= STACKS {
            return NO_BUFFER;
        }
        let turn = &mut self.record.turn;
        let buffer = turn.stacks[entry].buffer;
        turn.stacks[entry].buffer = NO_BUFFER;
        if buffer < BUFFERS {
            turn.owners[buffer as usize] = NO_ENTRY;
        }
        buffer
    }

    /// The thread exits; returns its unfinished turn.
    #[inline(always)]
    pub fn exit(&mut self, now: u64, armed_since: u64) -> Option<Finished> {
        if self.phase != PHASE_BUSY {
            return None;
        }
        self.close_cpu(now);
        let finished = self.finish(now, armed_since);
        self.phase = PHASE_UNKNOWN;
        self.record.header.flags |= FLAG_EXITED;
        Some(finished)
    }

    /// Begins a turn that user space knows to have begun before.
    #[inline(always)]
    pub fn adopt(&mut self, start_ns: u64, asleep_in: Option<(u8, i32)>) {
        if asleep_in.is_none() && self.cpu == CPU_OFF {
            // It ran until it was seen to be switched out: what it does since is known.
            self.stats.since_ns = self.mark_ns;
            self.begin(self.mark_ns);
            self.turn_flags = FLAG_AT_ATTACH;
            return;
        }
        self.stats.since_ns = start_ns;
        self.begin(start_ns);
        self.mark_ns = start_ns;
        self.turn_flags = FLAG_AT_ATTACH;
        match asleep_in {
            Some((cause, nr)) => {
                self.cpu = CPU_OFF;
                self.off = OFF_SLEEP;
                self.off_cause = cause as u32;
                self.off_nr = nr;
                self.off_entry = NO_ENTRY;
            }
            None => self.cpu = CPU_ON,
        }
    }

    /// Charges the segment that is still open, up to `now`: for a copy of the state that is read
    /// while the turn lasts.
    pub fn settle(&mut self, now: u64) {
        if self.is_off() {
            if self.wake_ns <= self.mark_ns {
                // Left over from before this sleep, which lasts.
                self.wake_seen_ns = self.wake_ns;
            }
            let entry = self.off_entry;
            if let Some(slept) = self.switch_in(now) {
                self.weigh(entry, slept.ns);
            }
        }
        self.close_cpu(now);
    }

    /// The thread turned out to be no loop.
    #[inline(always)]
    pub fn forget_turn(&mut self) {
        self.phase = PHASE_UNKNOWN;
        self.polling = 0;
    }

    /// The thread runs another program now: what it parks in is not known, its statistics remain.
    #[inline(always)]
    pub fn forget_phase(&mut self) {
        self.phase = PHASE_UNKNOWN;
        self.park_mask = PARK_EPOLL;
        self.poll_same = 0;
        self.futex_sleeps = 0;
        self.polling = 0;
    }

    /// The thread was parked when stallscope attached: its next turn begins at its wake-up.
    #[inline(always)]
    pub fn adopt_parked(&mut self, since_ns: u64) {
        self.stats.since_ns = since_ns;
        self.phase = PHASE_PARKED;
        self.cpu = CPU_OFF;
        self.off = OFF_PARK;
        self.park_ns = since_ns;
        self.mark_ns = since_ns;
    }

    #[inline(always)]
    fn begin(&mut self, start_ns: u64) {
        if self.stats.since_ns == 0 {
            self.stats.since_ns = start_ns;
        }
        let turn = &mut self.record.turn;
        turn.number += 1;
        turn.start_ns = start_ns;
        turn.ledger = [0; cause::COUNT];
        turn.sampled_ns = 0;
        turn.longest_ns = 0;
        turn.sampled_kernel_ns = 0;
        turn.last_sample_ns = 0;
        turn.last_sent_ns = 0;
        turn.stack_count = 0;
        turn.syscall_count = 0;
        turn.next_id = 0;
        turn.open = 0;
        turn.other_sleeps = 0;
        turn.owners = [NO_ENTRY; BUFFERS as usize];
        self.turn_flags = 0;
        self.off_entry = NO_ENTRY;
        self.phase = PHASE_BUSY;
    }

    /// Charges the open CPU segment; a gap inside it was spent on the run queue.
    #[inline(always)]
    fn close_cpu(&mut self, now: u64) {
        if self.cpu == CPU_ON && self.phase == PHASE_BUSY {
            let span = now.saturating_sub(self.mark_ns);
            let gap = if self.gap_ns < span { self.gap_ns } else { span };
            self.charge(cause::CPU, span - gap);
            self.charge(cause::RUNQUEUE, gap);
        }
        self.mark_ns = now;
        self.gap_ns = 0;
    }

    #[inline(always)]
    fn charge(&mut self, cause: u8, ns: u64) {
        let index = cause as usize;
        if index < cause::COUNT {
            self.record.turn.ledger[index] += ns;
        }
    }

    /// Ends the turn at `end` (all segments are closed up to there).
    #[inline(always)]
    fn finish(&mut self, end: u64, armed_since: u64) -> Finished {
        let turn = &mut self.record.turn;
        let ns = end.saturating_sub(turn.start_ns);
        let mut explained = 0;
        for spent in turn.ledger {
            explained += spent;
        }
        turn.ledger[cause::UNEXPLAINED as usize] += ns.saturating_sub(explained);
        for (total, spent) in self.stats.ledger.iter_mut().zip(turn.ledger) {
            *total += spent;
        }
        self.stats.turns += 1;
        self.stats.busy_ns += ns;
        if ns > self.stats.max_ns {
            self.stats.max_ns = ns;
        }
        let exact = armed_since != 0 && armed_since <= turn.start_ns;
        self.record.header.flags = self.turn_flags | if exact { FLAG_EXACT } else { 0 };
        self.record.header.time_ns = end;
        Finished { ns, end_ns: end }
    }

    #[inline(always)]
    fn count_syscall(&mut self, nr: i32, ns: u64) {
        let turn = &mut self.record.turn;
        for index in 0..SYSCALLS {
            let entry = &mut turn.syscalls[index];
            if index as u32 >= turn.syscall_count {
                *entry = SyscallUse { total_ns: ns, max_ns: ns, nr, count: 1 };
                turn.syscall_count = index as u32 + 1;
                return;
            }
            if entry.nr == nr {
                entry.total_ns += ns;
                entry.count += 1;
                if ns > entry.max_ns {
                    entry.max_ns = ns;
                }
                return;
            }
        }
        turn.other_sleeps += 1;
    }
}

const _: () = {
    assert!(size_of::<SyscallUse>() == 24);
    assert!(size_of::<StackUse>() == 48);
    assert!(size_of::<Turn>() == 56 + cause::COUNT * 8 + 24 + 16 + STACKS * 48 + SYSCALLS * 24);
    assert!(size_of::<LoopStats>() == 56 + cause::COUNT * 8);
};
