//! A loop inside of a loop's turn: told from where a thread parks by both stacks.
//!
//! While an inner loop waits, the outer one is still on the stack, in the same call of the same
//! function: it has called something instead of the poll. A loop that runs after another one has
//! ended does not have that below it.

/// One call on a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Instruction pointer: for callers, the return address.
    pub ip: u64,
    /// Stack pointer in the call.
    pub sp: u64,
    /// Where the function begins, if that is known.
    pub function: Option<u64>,
    /// Whether the function is known to run an event loop.
    pub is_loop: bool,
}

/// Functions that run one turn of a loop or many, and poll through another function.
const LOOPS: [&str; 6] =
    ["uv_run", "event_base_loop", "ev_run", "aeMain", "aeProcessEvents", "g_main_context_iterate"];

/// Whether a function runs an event loop, by its name.
#[must_use]
pub fn runs_a_loop(function: &str) -> bool {
    LOOPS.contains(&function.split(['.', '@']).next().unwrap_or_default())
}

/// Whether a file is the C library, through which programs poll: `libc.so.6`, `libc-2.31.so`,
/// `ld-musl-x86_64.so.1`, and `libpthread-2.31.so`, which has some of its calls.
#[must_use]
pub fn is_c_library(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    ["libc.", "libc-", "libpthread", "ld-musl"].iter().any(|start| file.starts_with(start))
}

/// Whether a wait lies inside of a turn of the loop that parks at `home`. Both stacks are given from
/// the innermost call on.
#[must_use]
pub fn is_nested(home: &[Call], wait: &[Call]) -> bool {
    let same = |(home, wait): &(&Call, &Call)| (home.ip, home.sp) == (wait.ip, wait.sp);
    let common = home.iter().rev().zip(wait.iter().rev()).take_while(same).count();
    let innermost = |calls: &[Call]| calls.len().checked_sub(common + 1);
    let (Some(at_home), Some(at_wait)) = (innermost(home), innermost(wait)) else { return false };
    let (outer, inner) = (home[at_home], wait[at_wait]);
    let same_call =
        outer.function.is_some() && (outer.function, outer.sp) == (inner.function, inner.sp);
    // The poll itself is the innermost call, and its caller is the loop.
    let is_the_loop = at_home == 1 || (outer.is_loop && at_home > 1);
    same_call && is_the_loop && at_wait > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(ip: u64, sp: u64, function: u64, is_loop: bool) -> Call {
        Call { ip, sp, function: Some(function), is_loop }
    }

    #[test]
    fn a_wait_below_the_call_that_polls_is_nested() {
        let root = call(0x10, 0x900, 0x10, false);
        let home = [call(0x50, 0x700, 0x50, false), call(0x21, 0x800, 0x20, false), root];
        let wait = [
            call(0x50, 0x500, 0x50, false),
            call(0x31, 0x600, 0x30, false),
            call(0x25, 0x800, 0x20, false),
            root,
        ];
        assert!(is_nested(&home, &wait));
        // The same function calls both polls, or polls twice.
        assert!(!is_nested(&home, &[wait[0], wait[2], root]));
        assert!(!is_nested(&home, &home));
        // Another call of that function, and another function in its place.
        let elsewhere = Call { sp: 0x7f0, ..wait[2] };
        assert!(!is_nested(&home, &[wait[0], wait[1], elsewhere, root]));
        let other = Call { function: Some(0x40), ..wait[2] };
        assert!(!is_nested(&home, &[wait[0], wait[1], other, root]));
        assert!(!is_nested(&[], &wait) && !is_nested(&home, &[]));
    }

    #[test]
    fn a_caller_further_out_must_be_known_to_run_a_loop() {
        let root = call(0x10, 0x900, 0x10, false);
        let with = |is_loop| {
            let poll = call(0x61, 0x780, 0x60, false);
            [call(0x50, 0x700, 0x50, false), poll, call(0x21, 0x800, 0x20, is_loop), root]
        };
        let wait = [
            call(0x50, 0x500, 0x50, false),
            call(0x61, 0x580, 0x60, false),
            call(0x25, 0x600, 0x20, true),
            call(0x71, 0x700, 0x70, false),
            call(0x29, 0x800, 0x20, true),
            root,
        ];
        assert!(is_nested(&with(true), &wait));
        // The loop's poll needs more of the stack than all that it calls.
        assert!(is_nested(&with(true), &wait.map(|call| Call { sp: call.sp.max(0x790), ..call })));
        // Main runs one loop and then another one through a function.
        assert!(!is_nested(&with(false), &wait));
        assert!(runs_a_loop("uv_run") && !runs_a_loop("main"));
        assert!(is_c_library("/usr/lib/libc.so.6") && !is_c_library("/usr/lib/libcurl.so.4"));
    }
}
