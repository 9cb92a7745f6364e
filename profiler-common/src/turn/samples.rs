//! Samples, and the table of a turn's stacks.

use super::*;

impl ThreadState {
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

    /// The stack of an entry; none for [`NO_ENTRY`].
    #[inline(always)]
    pub fn stack(&mut self, entry: u32) -> Option<&mut StackUse> {
        if entry as usize >= STACKS {
            return None;
        }
        let index = self.masked(entry);
        Some(&mut self.record.turn.stacks[index])
    }

    /// An entry as an index, through memory and masked right before the use: old verifiers (seen on
    /// 5.10 and 6.1) forget that a number was checked once it was put aside.
    #[inline(always)]
    fn masked(&mut self, entry: u32) -> usize {
        // SAFETY: valid references; volatile so that the compiler can't know that the mask does
        // nothing.
        unsafe {
            core::ptr::write_volatile(&raw mut self.search, entry);
            core::ptr::read_volatile(&raw const self.search) as usize & (STACKS - 1)
        }
    }

    /// Adds time to a stack.
    #[inline(always)]
    pub fn weigh(&mut self, entry: u32, ns: u64) {
        if let Some(entry) = self.stack(entry) {
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
            let owner = self.record.turn.owners[buffer as usize];
            if owner as usize >= STACKS {
                self.spare = buffer;
                return false;
            }
            let owner = self.masked(owner);
            let held = self.record.turn.stacks[owner].total_ns;
            if buffer != mine && held < choice_ns {
                choice_ns = held;
                choice = buffer;
            }
        }
        if choice >= BUFFERS {
            return false;
        }
        let turn = &mut self.record.turn;
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
}
