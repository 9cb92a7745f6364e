//! A wait inside of a turn of a loop, told by the interpreter's frames.
//!
//! Python code polls through one function of the interpreter, and calls between Python functions leave
//! nothing on the native stack since CPython 3.11: only the frames tell which function polls at home,
//! and that it has called something else meanwhile.

use profiler_common::python::PythonFrame;

use super::code::{Code, TAGS};

/// Functions that run an event loop's turn and poll through another function, by name and end of the file:
/// those of asyncio and of what is made from it, trio, Twisted.
const LOOPS: [(&str, &str); 3] = [
    ("_run_once", ".py"),
    ("run", "/trio/_core/_run.py"),
    ("mainLoop", "/twisted/internet/base.py"),
];
/// The function that does nothing but poll.
const POLL: (&str, &str) = ("select", "/selectors.py");
/// Calls next to the poll among which the loop is looked for by name.
const NEAR: usize = 4;

/// Where one frame is: which code, and which of its instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    code: (u64, u64),
    instr: u64,
    role: Role,
}

/// What a function is to a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Runs one.
    Loop,
    /// Nothing but the poll.
    Poll,
    /// Nothing.
    Other,
}

impl Site {
    pub(super) fn of(frame: &PythonFrame, code: Option<&Code>) -> Self {
        let is = |&(function, file): &(&str, &str)| {
            code.is_some_and(|code| {
                code.name.rsplit('.').next() == Some(function) && code.file.ends_with(file)
            })
        };
        let role = match () {
            () if LOOPS.iter().any(is) => Role::Loop,
            () if is(&POLL) => Role::Poll,
            () => Role::Other,
        };
        Self { code: (frame.code & !TAGS, frame.identity), instr: frame.instr, role }
    }
}

/// Whether a wait lies inside of a turn of the loop that parks at `home`, as for native stacks. Both
/// are given from the innermost frame to the thread's first.
#[must_use]
pub fn is_inside(home: &[Site], wait: &[Site]) -> bool {
    let common = home.iter().rev().zip(wait.iter().rev()).take_while(|(a, b)| a == b).count();
    let innermost = |sites: &[Site]| sites.len().checked_sub(common + 1);
    let (Some(outer), Some(inner)) = (innermost(home), innermost(wait)) else { return false };
    // How many calls away the poll is, which may be one of the interpreter's own functions.
    let from_poll = |sites: &[Site], at: usize| {
        at + usize::from(sites.first().is_some_and(|innermost| innermost.role != Role::Poll))
    };
    let (at_home, at_wait) = (from_poll(home, outer), from_poll(wait, inner));
    let is_loop = home[outer].role == Role::Loop && (1..NEAR).contains(&at_home);
    home[outer].code == wait[inner].code && (at_home == 1 || is_loop) && at_wait > 1
}

#[cfg(test)]
mod tests {
    use super::{Role, Site, is_inside};

    const fn site(code: u64, instr: u64, role: Role) -> Site {
        Site { code: (code, 1), instr, role }
    }

    const SELECT: Site = site(1, 10, Role::Poll);
    const MAIN: Site = site(2, 20, Role::Other);
    const FOREVER: Site = site(3, 30, Role::Other);
    const TASK: Site = site(4, 40, Role::Other);

    #[test]
    fn a_wait_below_a_turn_of_asyncio_is_inside() {
        let once = |instr| site(5, instr, Role::Loop);
        let home = [SELECT, once(50), FOREVER, MAIN];
        assert!(is_inside(&home, &[SELECT, TASK, once(55), FOREVER, MAIN]));
        // By `select.epoll`, and in a whole loop.
        assert!(is_inside(&home, &[TASK, once(55), FOREVER, MAIN]));
        let loops = [SELECT, once(50), FOREVER, TASK, once(55), FOREVER, MAIN];
        assert!(is_inside(&home, &loops));
        assert!(!is_inside(&loops, &home));
        // The loop polls through a function that is not known.
        let poll = site(6, 60, Role::Other);
        assert!(is_inside(&[poll, once(50), FOREVER, MAIN], &[TASK, once(55), FOREVER, MAIN]));
    }

    #[test]
    fn loops_one_after_the_other_are_not_inside_of_each_other() {
        let once = site(5, 50, Role::Loop);
        let home = [SELECT, once, FOREVER, MAIN];
        assert!(!is_inside(&home, &home));
        let later = site(2, 25, Role::Other);
        assert!(!is_inside(&home, &[SELECT, once, FOREVER, later]));
        assert!(!is_inside(&home, &[SELECT, once, FOREVER, TASK, later]));
        assert!(!is_inside(&home, &[SELECT, TASK]));
        assert!(!is_inside(&[], &home) && !is_inside(&home, &[]));
    }

    #[test]
    fn a_function_that_polls_two_instances_in_turn_has_two_homes() {
        let later = site(2, 25, Role::Other);
        assert!(!is_inside(&[SELECT, MAIN], &[SELECT, later]));
        assert!(!is_inside(&[MAIN], &[later]) && !is_inside(&[SELECT, MAIN], &[later]));
        // It calls a function that polls.
        assert!(is_inside(&[SELECT, MAIN], &[SELECT, TASK, later]));
        assert!(is_inside(&[MAIN], &[TASK, later]));
    }
}
