//! Which runtime drives a process's loops, by what is loaded: never by names of threads.

use crate::binaries::{Mapping, ProcessMaps};
use crate::blame::Runtime;
use crate::runtimes::block_on;
use crate::runtimes::tokio::names_tokio;
use crate::symbolize::{SymbolPattern, Symbolizer};

/// What is known of a process's runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessRuntime {
    /// The runtime.
    pub runtime: Runtime,
    /// Whether its threads park in futexes too, so that unknown ones are to be asked about.
    pub parks_in_futex: bool,
    /// Whether it was recognised without symbols, so that its parks are told without them too.
    pub stripped: bool,
}

/// Recognises the runtime of a process from its mappings and symbols.
pub fn recognise(maps: &ProcessMaps, symbolizer: &mut Symbolizer) -> ProcessRuntime {
    let plain = |runtime| ProcessRuntime { runtime, parks_in_futex: false, stripped: false };
    let tokio = ProcessRuntime { parks_in_futex: true, ..plain(Runtime::Tokio) };
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
        return tokio;
    }
    if maps.all().iter().any(|m| m.path.contains("/libuv.so")) {
        return plain(Runtime::Libuv);
    }
    if names_tokio(maps) {
        return ProcessRuntime { stripped: true, ..tokio };
    }
    let loops_by_block_on = has(SymbolPattern::Contains(block_on::SYMBOL));
    ProcessRuntime { parks_in_futex: loops_by_block_on, ..plain(Runtime::Native) }
}

/// The runtime of a process with an interpreter, by the modules that were imported: a static
/// interpreter has asyncio built in whether it is used or not, and trio is no binary at all.
pub fn recognise_python(by_binaries: ProcessRuntime, modules: &[String]) -> ProcessRuntime {
    let has = |name: &str| modules.iter().any(|module| module == name);
    let runtime = if modules.is_empty() || by_binaries.parks_in_futex {
        return by_binaries;
    } else if has("twisted.internet.reactor") && !has("twisted.internet.asyncioreactor") {
        // A loop of its own, though some of it imports asyncio.
        Runtime::Native
    } else if has("uvloop.loop") {
        Runtime::Uvloop
    } else if has("asyncio.events") {
        // Libraries that work with either import trio where it is installed.
        Runtime::Asyncio
    } else if has("trio") {
        Runtime::Trio
    } else if matches!(by_binaries.runtime, Runtime::Asyncio | Runtime::Uvloop) {
        Runtime::Native
    } else {
        by_binaries.runtime
    };
    ProcessRuntime { runtime, parks_in_futex: false, stripped: false }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn with(modules: &[&str], by_binaries: Runtime) -> Runtime {
        let modules: Vec<String> = modules.iter().map(|&name| name.to_owned()).collect();
        let by_binaries =
            ProcessRuntime { runtime: by_binaries, parks_in_futex: false, stripped: false };
        recognise_python(by_binaries, &modules).runtime
    }

    #[test]
    fn what_was_imported_decides_which_loop_a_python_runs() {
        assert_eq!(with(&["sys", "asyncio.events"], Runtime::Asyncio), Runtime::Asyncio);
        assert_eq!(with(&["asyncio.events", "uvloop.loop"], Runtime::Uvloop), Runtime::Uvloop);
        assert_eq!(with(&["sys", "trio"], Runtime::Asyncio), Runtime::Trio);
        assert_eq!(with(&["trio", "asyncio.events"], Runtime::Asyncio), Runtime::Asyncio);
        let twisted = ["asyncio.events", "twisted.internet.reactor"];
        assert_eq!(with(&twisted, Runtime::Asyncio), Runtime::Native);
        let on_asyncio = [&twisted[..], &["twisted.internet.asyncioreactor"]].concat();
        assert_eq!(with(&on_asyncio, Runtime::Asyncio), Runtime::Asyncio);
        assert_eq!(with(&["sys", "select"], Runtime::Asyncio), Runtime::Native);
        assert_eq!(with(&[], Runtime::Asyncio), Runtime::Asyncio, "they could not be read");
    }
}
