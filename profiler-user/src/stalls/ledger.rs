//! Why a turn was long: its duration split by cause.

use profiler_common::cause;
use serde::{Deserialize, Serialize};

/// What a loop thread was doing instead of serving its loop.
///
/// The order is that of the kernel's records and of the report's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Cause {
    /// On a CPU; which code is known from samples.
    Cpu = cause::CPU,
    /// Asleep inside a system call other than a futex wait.
    Syscall = cause::SYSCALL,
    /// Asleep in a futex wait.
    Lock = cause::LOCK,
    /// Waiting for CPython's global interpreter lock.
    Gil = cause::GIL,
    /// Asleep outside any system call: a page fault that waits for storage.
    Fault = cause::FAULT,
    /// Runnable, but not running: preempted, or woken and not yet scheduled.
    Runqueue = cause::RUNQUEUE,
    /// Runnable, but its cgroup is out of CPU quota.
    Throttled = cause::THROTTLED,
    /// Stopped by a signal, a debugger or the freezer.
    Stopped = cause::STOPPED,
    /// Not accounted for by the events that arrived.
    #[serde(other)]
    Unexplained = cause::UNEXPLAINED,
}

impl Cause {
    /// Every cause, in the order of the report.
    pub const ALL: [Self; cause::COUNT] = [
        Self::Cpu,
        Self::Syscall,
        Self::Lock,
        Self::Gil,
        Self::Fault,
        Self::Runqueue,
        Self::Throttled,
        Self::Stopped,
        Self::Unexplained,
    ];

    /// The name used in reports and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Syscall => "syscall",
            Self::Lock => "lock",
            Self::Gil => "gil",
            Self::Fault => "fault",
            Self::Runqueue => "runqueue",
            Self::Throttled => "throttled",
            Self::Stopped => "stopped",
            Self::Unexplained => "unexplained",
        }
    }

    /// The cause of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }

    /// The cause with this number in a kernel record; `Unexplained` for a number nobody assigned.
    #[must_use]
    pub fn from_raw(raw: u8) -> Self {
        Self::ALL.get(usize::from(raw)).copied().unwrap_or(Self::Unexplained)
    }

    /// Whether code of the target can be to blame. A thread that is kept from running by the
    /// scheduler, a quota or a debugger has no line to show for it.
    #[must_use]
    pub const fn has_blocker(self) -> bool {
        !matches!(self, Self::Runqueue | Self::Throttled | Self::Stopped | Self::Unexplained)
    }
}

/// Nanoseconds of a stall (or of a loop's busy time) by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger([u64; cause::COUNT]);

impl Ledger {
    /// A ledger with these nanoseconds, in the order of [`Cause::ALL`].
    #[must_use]
    pub const fn new(by_cause: [u64; cause::COUNT]) -> Self {
        Self(by_cause)
    }

    /// Nanoseconds of one cause.
    #[must_use]
    pub const fn get(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// Adds nanoseconds to one cause.
    pub const fn add(&mut self, cause: Cause, ns: u64) {
        self.0[cause as usize] = self.0[cause as usize].saturating_add(ns);
    }

    /// Takes time away from a cause, down to nothing.
    pub const fn take(&mut self, cause: Cause, ns: u64) {
        self.0[cause as usize] = self.0[cause as usize].saturating_sub(ns);
    }

    /// Adds every cause of another ledger.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(theirs);
        }
    }

    /// The sum over all causes: the duration the ledger explains, `unexplained` included.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// The largest entry; the earlier one in [`Cause::ALL`] where two are equal.
    #[must_use]
    pub fn largest(&self) -> Cause {
        let mut best = Cause::Cpu;
        for cause in Cause::ALL {
            if self.get(cause) > self.get(best) {
                best = cause;
            }
        }
        best
    }

    /// Causes with time in them, largest first.
    #[must_use]
    pub fn sorted(&self) -> Vec<(Cause, u64)> {
        let mut entries: Vec<_> =
            Cause::ALL.iter().map(|&c| (c, self.get(c))).filter(|&(_, ns)| ns > 0).collect();
        entries.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
        entries
    }
}

impl Serialize for Ledger {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(Some(cause::COUNT))?;
        for cause in Cause::ALL {
            map.serialize_entry(&format!("{}_ns", cause.name()), &self.get(cause))?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Ledger {
    /// Reads what [`Serialize`] writes. Time under a name of a later version is unexplained here,
    /// so that the sum stays the duration.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> serde::de::Visitor<'de> for Entries {
            type Value = Ledger;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("nanoseconds by cause")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Ledger, A::Error> {
                let mut ledger = Ledger::default();
                while let Some((name, ns)) = map.next_entry::<std::borrow::Cow<str>, u64>()? {
                    let cause = name.strip_suffix("_ns").and_then(Cause::from_name);
                    let entry = &mut ledger.0[cause.unwrap_or(Cause::Unexplained) as usize];
                    *entry = entry.saturating_add(ns);
                }
                Ok(ledger)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
