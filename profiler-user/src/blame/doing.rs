//! What a stack is doing, by the functions on it. Frames go from the root to the leaf.

use super::Stack;
use crate::symbolize::{Frame, FrameKind};

/// The resolver of glibc and musl.
const RESOLVER: [&str; 6] = [
    "getaddrinfo",
    "gethostbyname_r",
    "gethostbyname2_r",
    "gethostbyaddr_r",
    "getnameinfo",
    "__res_nsend",
];
/// Linux makes a process.
const FORK: [&str; 3] = ["kernel_clone", "_do_fork", "copy_process"];
/// Linux finds memory by taking it from others, or by moving pages together, before it goes on.
const RECLAIM: [&str; 7] = [
    "try_to_free_pages",
    "try_to_free_mem_cgroup_pages",
    "mem_cgroup_handle_over_high",
    "__mem_cgroup_handle_over_high",
    "mem_cgroup_out_of_memory",
    "__alloc_pages_direct_compact",
    "try_to_compact_pages",
];
/// Linux has a writer wait until less is left to write to storage.
const WRITEBACK: [&str; 3] = [
    "balance_dirty_pages",
    "balance_dirty_pages_ratelimited",
    "balance_dirty_pages_ratelimited_flags",
];
/// What a fault waits for, the most special first.
const FAULTS: [(&str, &[&str]); 3] = [
    ("userfaultfd", &["handle_userfault"]),
    ("swap", &["do_swap_page", "swap_cluster_readahead", "swapin_readahead"]),
    ("page-cache", &["filemap_fault", "__do_fault", "do_fault", "do_read_fault"]),
];
/// Engines for regular expressions, by how their functions begin.
const REGEX: [&str; 13] = [
    "sre_ucs1_match",
    "sre_ucs2_match",
    "sre_ucs4_match",
    "sre_search",
    "sre_match",
    "pcre2_match_",
    "pcre2_jit_match_",
    "pcre_exec",
    "pcre_jit_exec",
    "regex_automata::",
    "re2::",
    "std::__detail::_Executor",
    "v8::internal::RegExp",
];
/// V8's collector, by how its functions begin.
const V8_COLLECTOR: [&str; 6] = [
    "v8::internal::Heap::CollectGarbage",
    "v8::internal::Heap::PerformGarbageCollection",
    "v8::internal::Heap::Scavenge",
    "v8::internal::MarkCompactCollector::",
    "v8::internal::ScavengerCollector::",
    "v8::internal::IncrementalMarking::",
];
/// A program asks V8 for a collection.
const V8_ASKED: &str = "v8::internal::GCExtension::GC";

fn has(frames: &[Frame], names: &[&str]) -> bool {
    frames.iter().any(|frame| names.contains(&&*frame.function))
}

fn in_kernel(stack: &Stack, names: &[&str]) -> bool {
    let kernel = stack.frames.iter().filter(|frame| frame.kind == FrameKind::Kernel);
    kernel.into_iter().any(|frame| {
        // The compiler's copies of a function have its name and a suffix.
        let name = frame.function.split('.').next().unwrap_or_default();
        names.contains(&name)
    })
}

/// Resolving a name.
pub(super) fn resolves(stack: &Stack) -> bool {
    has(&stack.frames, &RESOLVER)
}

/// Making a process.
pub(super) fn forks(stack: &Stack) -> bool {
    has(&stack.frames, &FORK)
}

/// Making a thread, which uses the calls that make a process and copies no page tables.
pub(super) fn creates_thread(stack: &Stack) -> bool {
    let creates = |name: &str| name.trim_start_matches('_').starts_with("pthread_create");
    stack.frames.iter().any(|frame| creates(&frame.function))
}

/// Making room in memory.
pub(super) fn reclaims(stack: &Stack) -> bool {
    in_kernel(stack, &RECLAIM)
}

/// Waiting for storage to take what was written before.
pub(super) fn is_held_back(stack: &Stack) -> bool {
    in_kernel(stack, &WRITEBACK)
}

/// What a page fault waits for.
pub(super) fn fault(stack: &Stack) -> Option<&'static str> {
    FAULTS.into_iter().find(|(_, names)| in_kernel(stack, names)).map(|(word, _)| word)
}

/// Whether a page fault waits for the file behind its mapping, to be read or to take what was written. What
/// is swapped in was read from a file once, and is not now.
#[must_use]
pub fn waits_for_file(stack: &Stack) -> bool {
    fault(stack) == Some("page-cache") || is_held_back(stack)
}

/// Python's import system: frames of a module that is being imported lie above it.
pub(super) fn imports(stack: &Stack) -> bool {
    stack.frames.iter().any(|frame| {
        frame.kind == FrameKind::Python
            && matches!(&*frame.function, "_find_and_load" | "_find_and_load_unlocked")
            && frame.file.as_deref().is_some_and(|file| file.contains("importlib._bootstrap"))
    })
}

/// Matching a regular expression. The engine must have the last word: code of the program's that an
/// engine calls back is code of the program's.
pub(super) fn matches_regex(stack: &Stack) -> bool {
    for frame in stack.frames.iter().rev() {
        let foreign = matches!(frame.kind, FrameKind::Python | FrameKind::Js | FrameKind::Java);
        if foreign || frame.user_code {
            return false;
        }
        // An implementation of a trait: `<regex_automata::… as …>::search`.
        let name = frame.function.trim_start_matches('<');
        if frame.named && REGEX.iter().any(|start| name.starts_with(start)) {
            return true;
        }
        if name.starts_with("Builtins_") {
            // What V8 has ready-made, among it all of JavaScript's calls.
            return name.starts_with("Builtins_RegExp");
        }
    }
    false
}

/// The function of V8's collector that the program's code got into; `None` if the collector does not
/// run, or if the program asked for it.
pub(super) fn v8_collector(stack: &Stack) -> Option<&Frame> {
    if stack.frames.iter().any(|frame| frame.function.starts_with(V8_ASKED)) {
        return None;
    }
    let begins = |frame: &&Frame| V8_COLLECTOR.iter().any(|name| frame.function.starts_with(name));
    stack.frames.iter().find(begins)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::stalls::Cause;

    fn stack(functions: &[(&str, FrameKind)]) -> Stack {
        let frame = |&(name, kind): &(&str, FrameKind)| Frame {
            kind,
            user_code: false,
            ..Frame::of_symbol(Arc::from(name))
        };
        let frames = functions.iter().map(frame).collect();
        Stack::new(Cause::Cpu, 1, 1, frames)
    }

    const NATIVE: FrameKind = FrameKind::Native;

    #[test]
    fn a_callback_of_an_engine_is_not_the_engine() {
        let engine = [("match", FrameKind::Python), ("sre_ucs1_match.isra.0", NATIVE)];
        assert!(matches_regex(&stack(&engine)));
        let callback = [("sre_search", NATIVE), ("replace", FrameKind::Python), ("x", NATIVE)];
        assert!(!matches_regex(&stack(&callback)));
        let strategy = "<regex_automata::meta::strategy::Core as regex_automata::meta::strategy::Strategy>::search";
        assert!(matches_regex(&stack(&[(strategy, NATIVE), ("memchr::memchr", NATIVE)])));
        let v8 = [("Builtins_RegExpPrototypeTest", NATIVE), ("0x1234", NATIVE)];
        assert!(matches_regex(&stack(&v8)));
        let v8 = [("Builtins_RegExpReplace", NATIVE), ("Builtins_Call_ReceiverIsAny", NATIVE)];
        assert!(!matches_regex(&stack(&v8)));
    }

    #[test]
    fn a_collection_that_was_asked_for_is_the_program_s() {
        let heap = ("v8::internal::Heap::CollectGarbage(v8::internal::AllocationSpace)", NATIVE);
        let mark = ("v8::internal::MarkCompactCollector::MarkLiveObjects()", NATIVE);
        let due = stack(&[("work", FrameKind::Js), heap, mark]);
        assert_eq!(v8_collector(&due).map(|frame| &*frame.function), Some(heap.0));
        assert!(v8_collector(&stack(&[(V8_ASKED, NATIVE), heap])).is_none());
    }

    #[test]
    fn what_a_fault_waits_for_is_told_by_the_kernel_alone() {
        let kernel = |name| stack(&[("main", NATIVE), (name, FrameKind::Kernel)]);
        assert_eq!(fault(&kernel("handle_userfault")), Some("userfaultfd"));
        assert_eq!(fault(&kernel("filemap_fault.cold")), Some("page-cache"));
        assert_eq!(fault(&kernel("folio_wait_bit_common")), None);
        assert_eq!(fault(&stack(&[("handle_userfault", NATIVE)])), None);
        assert!(waits_for_file(&kernel("balance_dirty_pages")));
        assert!(!waits_for_file(&kernel("do_swap_page")));
        assert!(reclaims(&kernel("try_to_free_pages")));
        assert!(!reclaims(&stack(&[("try_to_free_pages", NATIVE)])));
    }
}
