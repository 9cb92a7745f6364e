//! Programs that see polls which do not sleep, and task polls: armed and disarmed while others run.

use aya::maps::Array;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeScope};
use aya::programs::{BtfTracePoint, FEntry, UProbe};
use profiler_common::arch::park_functions;

use super::{Kernel, KernelError, SYS_ENTER, program};
use crate::events::monotonic_ns;

pub(super) const TASK_POLL: &str = "task_poll";

/// How polls that do not sleep are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundaries {
    /// By programs on the park calls themselves.
    Fentry,
    /// By the tracepoint of all system calls.
    SysEnter,
    /// Not at all: by the scheduler's events alone.
    Sched,
}

impl Boundaries {
    /// Name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fentry => "fentry",
            Self::SysEnter => "sys_enter",
            Self::Sched => "sched",
        }
    }
}

impl Kernel {
    /// The park functions that this kernel has, by program.
    pub(super) fn park_functions(&self) -> Vec<(&'static str, &'static str)> {
        let there = |&(_, function): &(_, &str)| self.types.has_function(function);
        park_functions().into_iter().filter(there).collect()
    }

    /// Begins to see every poll, in this way. The programs stay loaded when disarmed.
    ///
    /// # Errors
    /// The kernel does not allow it (lockdown, no trampolines); what was attached is detached.
    pub fn arm(&mut self, boundaries: Boundaries) -> Result<(), KernelError> {
        let armed = match boundaries {
            Boundaries::Fentry => self.attach_fentry(),
            Boundaries::SysEnter => self.attach_sys_enter(),
            Boundaries::Sched => return Ok(()),
        };
        if let Err(error) = armed {
            self.disarm();
            return Err(error);
        }
        if let Err(error) = self.attach_task_polls() {
            self.detach_task_polls();
            self.task_poll_error = Some(error.to_string());
        }
        // From now on; a turn that began before is not exact.
        self.set_armed_since(monotonic_ns())
    }

    /// Stops to see polls that do not sleep.
    pub fn disarm(&mut self) {
        let _ = self.set_armed_since(0);
        for (name, link) in std::mem::take(&mut self.fentry_links) {
            if let Ok(program) = program::<FEntry>(&mut self.ebpf, name) {
                let _ = program.detach(link);
            }
        }
        self.detach_task_polls();
        if let Some(link) = self.sys_enter_link.take()
            && let Ok(program) = program::<BtfTracePoint>(&mut self.ebpf, SYS_ENTER)
        {
            let _ = program.detach(link);
        }
    }

    /// Since when (`CLOCK_MONOTONIC`) every poll is seen; 0 if they are not.
    #[must_use]
    pub const fn armed_since(&self) -> u64 {
        self.armed_since
    }

    /// Sees each task poll of a process as a turn: `offsets` are the places in its executable where
    /// the functions that poll a task begin. Takes effect at the next [`arm`](Self::arm).
    pub fn set_task_polls(&mut self, pid: u32, offsets: Vec<u64>) {
        self.task_polls.insert(pid, offsets);
    }

    /// Why task polls could not be seen, if they could not.
    #[must_use]
    pub fn task_poll_error(&self) -> Option<&str> {
        self.task_poll_error.as_deref()
    }

    fn attach_task_polls(&mut self) -> Result<(), KernelError> {
        self.detach_task_polls();
        let points = std::mem::take(&mut self.task_polls);
        let attached = points.iter().try_for_each(|(&pid, offsets)| {
            offsets.iter().try_for_each(|&offset| self.attach_task_poll(pid, offset))
        });
        self.task_polls = points;
        attached
    }

    /// Whether each task poll of a process is seen: they have been found, and could be attached to.
    #[must_use]
    pub fn sees_task_polls(&self, pid: u32) -> bool {
        self.task_poll_error.is_none()
            && self.task_polls.get(&pid).is_some_and(|offsets| !offsets.is_empty())
    }

    fn attach_task_poll(&mut self, pid: u32, offset: u64) -> Result<(), KernelError> {
        let refused = |source| KernelError::Program { program: TASK_POLL, source };
        let Some(scope) = std::num::NonZeroU32::new(pid).map(UProbeScope::OneProcess) else {
            return Ok(());
        };
        self.load_task_poll()?;
        let program: &mut UProbe = program(&mut self.ebpf, TASK_POLL)?;
        let location = UProbeAttachLocation::AbsoluteOffset(offset);
        let link = program.attach(location, format!("/proc/{pid}/exe"), scope).map_err(refused)?;
        self.task_links.push(link);
        Ok(())
    }

    /// The kernel waits for a tenth of a second for each breakpoint that it removes, one after the other:
    /// that is nothing to wait for while events arrive (decision 0009).
    fn detach_task_polls(&mut self) {
        let ids = std::mem::take(&mut self.task_links);
        let Ok(program) = program::<UProbe>(&mut self.ebpf, TASK_POLL) else { return };
        let links: Vec<_> = ids.into_iter().filter_map(|id| program.take_link(id).ok()).collect();
        if !links.is_empty() {
            std::thread::spawn(move || drop(links));
        }
    }

    fn set_armed_since(&mut self, ns: u64) -> Result<(), KernelError> {
        self.armed_since = ns;
        let mut shared: Array<_, u64> = self.map_mut("SHARED")?;
        Ok(shared.set(0, ns, 0)?)
    }

    fn attach_fentry(&mut self) -> Result<(), KernelError> {
        for (name, function) in self.park_functions() {
            self.load_fentry(name, function)?;
            let refused = |source| KernelError::Program { program: name, source };
            let program: &mut FEntry = program(&mut self.ebpf, name)?;
            let mut link = program.attach();
            if link.is_err() {
                // Before Linux 5.13 a program of this type can be attached once only: a new one then.
                program.unload().map_err(refused)?;
                program.load(function, &self.btf).map_err(refused)?;
                link = program.attach();
            }
            self.fentry_links.push((name, link.map_err(refused)?));
        }
        if self.fentry_links.is_empty() {
            return Err(KernelError::Mismatch("park function in this kernel"));
        }
        Ok(())
    }

    fn attach_sys_enter(&mut self) -> Result<(), KernelError> {
        self.sys_enter_link = Some(self.attach_tracepoint(SYS_ENTER)?);
        Ok(())
    }
}
