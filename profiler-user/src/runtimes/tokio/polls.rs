//! Where a worker begins to poll a task: the entries of tokio's task tables.

use super::stripped::polls_by_tables;
use crate::binaries::ProcessMaps;
use crate::runtimes::recognise::executable;
use crate::symbolize::{SymbolPattern, Symbolizer};

/// Part of the mangled names of the functions that poll one task, in both manglings: the entries
/// of tokio's task vtables (`tokio::runtime::task::raw::poll<T, S>`), one for each kind of future.
const TASK_POLL_SYMBOL: &str = "7runtime4task3raw4poll";
/// Functions that are watched: each is a breakpoint and a file descriptor.
const TASK_POLLS_MAX: usize = 512;

/// Where in a process's executable the functions begin that poll one task: offsets in the file, in
/// ascending order. By their symbols, or else by the tables that hold them.
#[must_use]
pub fn task_polls(maps: &ProcessMaps, symbolizer: &mut Symbolizer) -> Vec<u64> {
    let Some(executable) = executable(maps) else { return Vec::new() };
    let pattern = SymbolPattern::Contains(TASK_POLL_SYMBOL);
    let mut offsets: Vec<u64> = symbolizer
        .find_symbols(maps, executable, pattern)
        .into_iter()
        .filter(|symbol| is_task_poll(&format!("{:#}", rustc_demangle::demangle(&symbol.name))))
        .filter_map(|symbol| symbol.file_offset)
        .collect();
    if offsets.is_empty() {
        offsets = polls_by_tables(maps);
    }
    offsets.sort_unstable();
    offsets.dedup();
    offsets.truncate(TASK_POLLS_MAX);
    offsets
}

/// Whether a symbol that contains [`TASK_POLL_SYMBOL`] is such a function itself, and not one that
/// has it among its generic arguments.
fn is_task_poll(demangled: &str) -> bool {
    demangled
        .split('<')
        .next()
        .is_some_and(|path| path.trim_end_matches("::") == "tokio::runtime::task::raw::poll")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_poll_functions_themselves_are_watched() {
        assert!(is_task_poll("tokio::runtime::task::raw::poll"));
        assert!(is_task_poll("tokio::runtime::task::raw::poll::<app::f::{async_fn#0}, S>"));
        assert!(!is_task_poll("core::ptr::drop_in_place::<tokio::runtime::task::raw::poll>"));
        assert!(!is_task_poll("tokio::runtime::task::raw::poll_inner"));
    }
}
