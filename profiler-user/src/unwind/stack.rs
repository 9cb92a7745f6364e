//! What unwinding yields.

/// One physical frame (inlined calls are the symbolizer's business).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawFrame {
    /// The instruction pointer in the frame: for callers, the return address.
    pub ip: u64,
    /// The address to look functions and lines up with. `ip` for the leaf, for a frame that a
    /// signal interrupted and for the signal trampoline itself (the kernel made it return to its
    /// first instruction); `ip - 1` for return addresses, which may lie behind the function
    /// or line of the call.
    pub lookup: u64,
    /// The stack pointer in the frame; for callers, its value after the callee returns.
    pub sp: u64,
}

/// Why a stack ends where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StackEnd {
    /// At the start of the program or of a thread: nothing is missing.
    Complete,
    /// A return address lies in no executable mapping (or the leaf in no mapping at all).
    NoMapping,
    /// No call frame information for the last frame, and no frame pointer that makes sense.
    NoUnwindInfo,
    /// There is call frame information for the last frame, but it can't be followed.
    BadUnwindInfo,
    /// The caller's frame lies in memory that was not captured.
    MemoryNotCaptured,
    /// The caller's stack pointer would not lie above the callee's.
    NoProgress,
    /// More than 512 frames.
    TooDeep,
}

impl StackEnd {
    /// Why callers are missing, in words for a report; `None` if none are.
    #[must_use]
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Complete => None,
            Self::NoMapping => Some("return address outside the mapped code"),
            Self::NoUnwindInfo => Some("no unwind information here"),
            Self::BadUnwindInfo => Some("unwind information can't be followed"),
            Self::MemoryNotCaptured => Some("stack copy ends here"),
            Self::NoProgress => Some("stack does not advance"),
            Self::TooDeep => Some("stack too deep"),
        }
    }
}

/// The call chain of a thread at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnwoundStack {
    /// Leaf first; never empty.
    pub frames: Vec<RawFrame>,
    /// Why there are no more.
    pub end: StackEnd,
}
