//! Which runtime drives a process's loops, by what is loaded: never by names of threads.

use crate::binaries::{Mapping, ProcessMaps};
use crate::blame::Runtime;
use crate::symbolize::{SymbolPattern, Symbolizer};

/// What is known of a process's runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessRuntime {
    /// The runtime.
    pub runtime: Runtime,
    /// Whether its threads park in futexes too, so that unknown ones are to be asked about.
    pub parks_in_futex: bool,
}

/// Recognises the runtime of a process from its mappings and symbols.
pub fn recognise(maps: &ProcessMaps, symbolizer: &mut Symbolizer) -> ProcessRuntime {
    let plain = |runtime| ProcessRuntime { runtime, parks_in_futex: false };
    let mapped = |part: &str| maps.all().iter().any(|m| m.path.contains(part));
    if mapped("/libjvm.so") {
        return plain(Runtime::Jvm);
    }
    if mapped("/uvloop/loop.") {
        return plain(Runtime::Uvloop);
    }
    if mapped("/_asyncio.") {
        return plain(Runtime::Asyncio);
    }
    let Some(executable) = executable(maps).cloned() else { return plain(Runtime::Native) };
    let mut has = |pattern| symbolizer.has_symbol(maps, &executable, pattern);
    // A static interpreter has its extension modules built in.
    if has(SymbolPattern::Exact("PyInit__asyncio")) {
        return plain(Runtime::Asyncio);
    }
    if has(SymbolPattern::Exact("uv_run")) {
        return plain(Runtime::Libuv);
    }
    // `tokio::runtime`, in the legacy and in the v0 mangling.
    if has(SymbolPattern::Contains("5tokio7runtime")) || has(SymbolPattern::Contains("_5tokio")) {
        return ProcessRuntime { runtime: Runtime::Tokio, parks_in_futex: true };
    }
    if maps.all().iter().any(|m| m.path.contains("/libuv.so")) {
        return plain(Runtime::Libuv);
    }
    plain(Runtime::Native)
}

/// The mapping of the main program's code.
pub(super) fn executable(maps: &ProcessMaps) -> Option<&Mapping> {
    let path = std::fs::read_link(format!("/proc/{}/exe", maps.pid)).ok();
    let named = path.as_deref().and_then(|path| path.to_str());
    maps.all()
        .iter()
        .find(|m| m.executable && m.is_file() && named.is_some_and(|name| name == &*m.path))
        .or_else(|| maps.all().iter().find(|m| m.executable && m.is_file()))
}
