//! Every way in which the kernel side can lose or cut something, by name.
//!
//! One list for both sides: the kernel programs count by index, reports print by name.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Counter {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Counter {
            /// All counters, in the order of their indexes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

counters! {
    /// Records that did not fit into the ring buffer.
    RingFull = "ring_full",
    /// Pages of a user stack that could not be read (holes below the stack's end included).
    StackPageUnreadable = "stack_page_unreadable",
    /// Stacks whose registers could not be read.
    RegistersUnreadable = "registers_unreadable",
    /// Loop threads beyond the configured number: turns are counted, stacks are not taken.
    LoopSlotsFull = "loop_slots_full",
    /// Threads that found no room in the table of watched threads.
    ThreadTableFull = "thread_table_full",
    /// Stacks dropped from a turn's table because heavier ones needed the place.
    StackEvicted = "stack_evicted",
    /// Sleeps of a turn that had no place in its table of system calls.
    SyscallTableFull = "syscall_table_full",
    /// Wake-ups that were not seen: the sleep is attributed up to the switch-in.
    WakeupMissed = "wakeup_missed",
    /// A thread was seen running that had not been seen to get the CPU: the time was made up for
    /// from the scheduler's account.
    SwitchInMissed = "switch_in_missed",
    /// A thread in a turn got the CPU without having been seen to leave it.
    SwitchOutMissed = "switch_out_missed",
    /// Questions about futexes that were put off to keep their rate bounded.
    FutexQuestionsDeferred = "futex_questions_deferred",
    /// Entries of system calls seen by `park_enter`, for the overhead governor (no loss).
    ParkEnterHits = "park_enter_hits",
    /// Captures taken (no loss).
    Captures = "captures",
    /// Repeated stacks recognised in the kernel (no loss).
    CapturesDeduplicated = "captures_deduplicated",
    /// Stalls over the threshold (no loss).
    Stalls = "stalls",
}

impl Counter {
    /// Whether a count is a loss that reports must mention.
    #[must_use]
    pub const fn is_loss(self) -> bool {
        !matches!(
            self,
            Self::ParkEnterHits
                | Self::Captures
                | Self::CapturesDeduplicated
                | Self::Stalls
                | Self::StackPageUnreadable
                | Self::StackEvicted
                | Self::SwitchInMissed
        )
    }
}

/// How many counters there are.
pub const COUNT: usize = Counter::ALL.len();
