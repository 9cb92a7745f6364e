//! What exact boundaries cost: the kernel's own account of the programs over a window, and the price
//! of a breakpoint, measured on ourselves. The account is off otherwise: it costs every program of
//! the host two readings of the clock.

use std::fs;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::time::Instant;

use aya::programs::uprobe::{UProbeAttachLocation, UProbeScope};
use aya::programs::{ProgramError, UProbe};
use aya::sys::{Stats, enable_stats};

use super::boundaries::TASK_POLL;
use super::{Kernel, SYS_ENTER, program};

/// Breakpoints whose price is taken together, and how often: the cheapest time counts, as nothing
/// but interruptions makes them dearer.
const TRIALS: u32 = 64;
const ROUNDS: u32 = 8;

/// A window in which the kernel accounts for the programs' time.
pub(super) struct CostWindow {
    began: Instant,
    before: Account,
    _account: OwnedFd,
}

/// Sums over the programs that are armed as boundaries.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    ns: u64,
    breakpoints: u64,
}

impl Kernel {
    /// Begins to measure what boundaries cost. `false` where the kernel keeps no account (before
    /// Linux 5.8).
    pub fn begin_cost(&mut self) -> bool {
        if !self.task_links.is_empty() {
            self.price_breakpoint();
        }
        let Ok(account) = enable_stats(Stats::RunTime) else { return false };
        let before = self.account();
        self.cost = Some(CostWindow { began: Instant::now(), before, _account: account });
        true
    }

    /// Ends the window: the share of one CPU that boundaries cost in it.
    pub fn end_cost(&mut self) -> Option<f64> {
        let window = self.cost.take()?;
        let elapsed = window.began.elapsed().as_nanos() as f64;
        let now = self.account();
        let ran = now.ns.saturating_sub(window.before.ns) as f64;
        let breakpoints = now.breakpoints.saturating_sub(window.before.breakpoints) as f64;
        (elapsed > 0.0).then(|| (ran + breakpoints * self.breakpoint_ns) / elapsed)
    }

    fn account(&self) -> Account {
        let mut sum = Account::default();
        for (name, program) in self.ebpf.programs() {
            let breakpoint = name == TASK_POLL;
            if !(breakpoint || name == SYS_ENTER || name.starts_with("park_")) {
                continue;
            }
            // Programs that are not loaded have run for no time.
            let Ok(info) = program.info() else { continue };
            sum.ns += u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX);
            if breakpoint {
                sum.breakpoints += info.run_count();
            }
        }
        sum
    }

    /// Measures what a breakpoint costs besides the program, on a function of our own.
    fn price_breakpoint(&mut self) {
        if self.breakpoint_ns > 0.0 {
            return;
        }
        let Some(offset) = file_offset(trial as *const () as u64) else { return };
        let once = || {
            let began = cpu_time_ns();
            for n in 0..TRIALS {
                std::hint::black_box(trial(std::hint::black_box(n)));
            }
            cpu_time_ns().saturating_sub(began) as f64 / f64::from(TRIALS)
        };
        let calls = || (0..ROUNDS).map(|_| once()).fold(f64::INFINITY, f64::min);
        let plain = calls();
        let probed = self.with_trial(offset, calls);
        if let Ok(probed) = probed {
            self.breakpoint_ns = (probed - plain).max(0.0);
        }
    }

    fn with_trial<T>(&mut self, offset: u64, work: impl FnOnce() -> T) -> Result<T, ProgramError> {
        let program: &mut UProbe =
            program(&mut self.ebpf, TASK_POLL).map_err(|_| ProgramError::NotLoaded)?;
        let own = NonZeroU32::new(std::process::id())
            .map_or(UProbeScope::AllProcesses, UProbeScope::OneProcess);
        let at = UProbeAttachLocation::AbsoluteOffset(offset);
        let link = program.attach(at, "/proc/self/exe", own)?;
        let result = work();
        program.detach(link)?;
        Ok(result)
    }
}

/// What the breakpoint is put on.
#[inline(never)]
extern "C" fn trial(n: u32) -> u32 {
    std::hint::black_box(n).wrapping_add(1)
}

/// CPU time of this thread: what else runs meanwhile is not the breakpoint's price.
fn cpu_time_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live value of the right type.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } != 0 {
        return 0;
    }
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Where in our own file the code at an address lies.
fn file_offset(address: u64) -> Option<u64> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let offset = words.nth(1)?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end, offset) = (number(start)?, number(end)?, number(offset)?);
        (start..end).contains(&address).then(|| address - start + offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trial_function_is_found_in_our_own_file() {
        let offset = file_offset(trial as *const () as u64).expect("mapped");
        let len = fs::metadata("/proc/self/exe").expect("running").len();
        assert!(offset > 0 && offset < len, "{offset} of {len}");
        assert_eq!(file_offset(1), None);
    }
}
