//! How a thread becomes a loop, in the middle of whatever it does, and ceases to be one.

use super::*;
use crate::record::FLAG_AT_ATTACH;

impl ThreadState {
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
        self.announced = 0;
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
}
