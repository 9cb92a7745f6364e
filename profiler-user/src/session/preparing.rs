//! What is read of the targets while the kernel verifies the programs.

use super::pipeline::Pipeline;
use crate::attach::proc;

impl Pipeline {
    /// Reads what will be needed of the targets: mappings, symbols, and the debug information of
    /// runtimes whose parks are told by it. Returns where each one begins to poll a task.
    pub(super) fn prepare(&mut self, pids: &[u32]) -> Vec<(u32, Vec<u64>)> {
        let mut polls = Vec::new();
        for &pid in pids {
            polls.push((pid, self.processes.task_polls(pid, &mut self.symbolizer)));
            let process = self.processes.get(pid, &mut self.symbolizer);
            let code = process.maps.all().iter().find(|m| m.executable && m.is_file());
            if let Some(code) = code.filter(|_| process.runtime.parks_in_futex) {
                self.symbolizer.read_module(&process.maps, code.start);
            }
            // Where its first thread sleeps, others do too.
            if let Some(address) = proc::sleeps_at(pid, pid) {
                self.symbolizer.read_module(&process.maps, address);
            }
        }
        polls
    }
}
