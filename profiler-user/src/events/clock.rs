//! The kernel's monotonic clock and the time of day.

/// Translates `CLOCK_MONOTONIC` to time since the epoch, by the offset at one moment: a report
/// must not jump when the time of day is stepped in the middle of it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    unix_minus_monotonic_ns: u64,
}

impl Clock {
    /// Reads both clocks now.
    #[must_use]
    pub fn now() -> Self {
        let before = monotonic_ns();
        let unix = read(libc::CLOCK_REALTIME);
        let after = monotonic_ns();
        Self { unix_minus_monotonic_ns: unix.saturating_sub(before + (after - before) / 2) }
    }

    /// A clock with a given offset, for replays.
    #[must_use]
    pub const fn with_offset(unix_minus_monotonic_ns: u64) -> Self {
        Self { unix_minus_monotonic_ns }
    }

    /// Nanoseconds since the epoch of a kernel timestamp.
    #[must_use]
    pub const fn unix_ns(&self, monotonic_ns: u64) -> u64 {
        self.unix_minus_monotonic_ns.saturating_add(monotonic_ns)
    }
}

/// `CLOCK_MONOTONIC` now, the clock of all kernel timestamps.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a valid structure; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
