//! Has the kernel verify programs before anything is attached: what takes longest of a start, so it
//! is done on all CPUs at once (the verifier takes no lock).

use aya::programs::perf_event::PerfEvent;
use aya::programs::{BtfTracePoint, FEntry, Iter, Program, UProbe};
use aya::{Btf, Ebpf};

use super::boundaries::TASK_POLL;
use super::{DESCRIBE_FAULT, Kernel, KernelError, SCHEDULER, SIGNAL, SNAPSHOT, SYS_ENTER, TICK};

impl Kernel {
    /// Has the kernel verify the programs that every run needs; those that see each poll if
    /// `boundaries` is set, and then the one that sees task polls too, if `has_tasks` says so, which
    /// may take its time. What is refused of the latter is found out when it is armed.
    ///
    /// # Errors
    /// A program that every run needs is refused.
    pub fn verify(
        &mut self,
        boundaries: bool,
        has_tasks: impl FnOnce() -> bool + Send,
    ) -> Result<(), KernelError> {
        let park_functions = self.park_functions();
        let btf = &self.btf;
        let mut parks = Vec::new();
        let (mut tick, mut sys_enter, mut task_poll) = (None, None, None);
        let mut scheduler = Vec::new();
        for (name, program) in self.ebpf.programs_mut() {
            let park = park_functions.iter().find(|(park, _)| *park == name);
            if let Some(&(park, function)) = park {
                parks.push((park, function, program));
            } else if let Some(known) = SCHEDULER.into_iter().find(|known| *known == name) {
                scheduler.push((known, program));
            } else {
                match name {
                    TICK => tick = Some(program),
                    SYS_ENTER => sys_enter = Some(program),
                    TASK_POLL => task_poll = Some(program),
                    // What is refused of these is found out when they are attached.
                    SIGNAL => drop(load_tracepoint(program, SIGNAL, btf)),
                    SNAPSHOT => drop(load_iterator(program, SNAPSHOT, btf)),
                    _ => {}
                }
            }
        }
        std::thread::scope(|scope| {
            let tick = scope.spawn(|| load_tick(tick.ok_or(KernelError::Mismatch(TICK))?));
            if boundaries {
                scope.spawn(move || {
                    let mut parks = parks.into_iter();
                    let first =
                        parks.next().map(|(name, of, park)| load_fentry(park, name, of, btf));
                    if let Some(Ok(())) = first {
                        for (name, function, park) in parks {
                            scope.spawn(move || load_fentry(park, name, function, btf));
                        }
                    } else if let Some(sys_enter) = sys_enter {
                        let _ = load_tracepoint(sys_enter, SYS_ENTER, btf);
                    }
                });
            }
            scope.spawn(move || {
                if let (true, Some(program)) = (has_tasks() && boundaries, task_poll) {
                    let _ = load_task_poll(program);
                }
            });
            for (name, program) in scheduler {
                load_tracepoint(program, name, btf)?;
            }
            tick.join().unwrap_or(Err(KernelError::Mismatch(TICK)))
        })
    }

    /// Names of all programs.
    pub fn programs(&self) -> Vec<String> {
        let mut names: Vec<_> = self.ebpf.programs().map(|(name, _)| name.to_owned()).collect();
        names.sort();
        names
    }

    /// Has the kernel verify one program. Gives the instructions that its verifier followed, where it
    /// tells (Linux 5.16).
    ///
    /// # Errors
    /// The program is refused, or there is none of that name.
    pub fn verify_one(&mut self, name: &str) -> Result<Option<u32>, KernelError> {
        let parks = self.park_functions();
        let park = parks.into_iter().find(|(park, _)| *park == name);
        let known = SCHEDULER.into_iter().chain([SIGNAL, SYS_ENTER]).find(|known| *known == name);
        let program = self.ebpf.program_mut(name).ok_or(KernelError::Mismatch("a program"))?;
        match (known, park) {
            (Some(known), _) => load_tracepoint(program, known, &self.btf)?,
            (_, Some((park, function))) => load_fentry(program, park, function, &self.btf)?,
            _ if name == TICK => load_tick(program)?,
            _ if name == TASK_POLL => load_task_poll(program)?,
            _ if name == SNAPSHOT => load_iterator(program, SNAPSHOT, &self.btf)?,
            _ if name == DESCRIBE_FAULT => load_iterator(program, DESCRIBE_FAULT, &self.btf)?,
            _ => return Ok(None),
        }
        let info = program.info().map_err(refused("a program"))?;
        Ok(info.verified_instruction_count())
    }

    pub(super) fn load_tracepoint(&mut self, name: &'static str) -> Result<(), KernelError> {
        load_tracepoint(one(&mut self.ebpf, name)?, name, &self.btf)
    }

    pub(super) fn load_fentry(
        &mut self,
        name: &'static str,
        function: &'static str,
    ) -> Result<(), KernelError> {
        load_fentry(one(&mut self.ebpf, name)?, name, function, &self.btf)
    }

    pub(super) fn load_task_poll(&mut self) -> Result<(), KernelError> {
        load_task_poll(one(&mut self.ebpf, TASK_POLL)?)
    }

    pub(super) fn load_iterator(&mut self, name: &'static str) -> Result<(), KernelError> {
        load_iterator(one(&mut self.ebpf, name)?, name, &self.btf)
    }
}

fn one<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Program, KernelError> {
    ebpf.program_mut(name).ok_or(KernelError::Mismatch(name))
}

fn refused(program: &'static str) -> impl Fn(aya::programs::ProgramError) -> KernelError + Copy {
    move |source| KernelError::Program { program, source }
}

fn load_tracepoint(
    program: &mut Program,
    name: &'static str,
    btf: &Btf,
) -> Result<(), KernelError> {
    let program: &mut BtfTracePoint = program.try_into().map_err(refused(name))?;
    if program.fd().is_err() {
        program.load(name, btf).map_err(refused(name))?;
    }
    Ok(())
}

fn load_fentry(
    program: &mut Program,
    name: &'static str,
    function: &'static str,
    btf: &Btf,
) -> Result<(), KernelError> {
    let program: &mut FEntry = program.try_into().map_err(refused(name))?;
    if program.fd().is_err() {
        program.load(function, btf).map_err(refused(name))?;
    }
    Ok(())
}

fn load_tick(program: &mut Program) -> Result<(), KernelError> {
    let program: &mut PerfEvent = program.try_into().map_err(refused(TICK))?;
    if program.fd().is_err() {
        program.load().map_err(refused(TICK))?;
    }
    Ok(())
}

fn load_task_poll(program: &mut Program) -> Result<(), KernelError> {
    let program: &mut UProbe = program.try_into().map_err(refused(TASK_POLL))?;
    if program.fd().is_err() {
        program.load().map_err(refused(TASK_POLL))?;
    }
    Ok(())
}

fn load_iterator(program: &mut Program, name: &'static str, btf: &Btf) -> Result<(), KernelError> {
    let program: &mut Iter = program.try_into().map_err(refused(name))?;
    if program.fd().is_err() {
        program.load("task", btf).map_err(refused(name))?;
    }
    Ok(())
}
