//! A named frame: what a reader sees of one level of a stack.

use std::sync::Arc;

use serde::Serialize;

/// Which kind of code a frame runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    /// Compiled code of the process.
    Native,
    /// The kernel.
    Kernel,
    /// A Python function.
    Python,
    /// A JavaScript function.
    Js,
    /// A Java method.
    Java,
}

/// One frame of a symbolized stack. Strings are shared: a hot function appears in many stacks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Frame {
    /// The function's demangled name, or `module+0xoffset` where there is no symbol.
    pub function: Arc<str>,
    /// Source file as the debug information gives it.
    pub file: Option<Arc<str>>,
    /// Line in `file`, from 1.
    pub line: Option<u32>,
    /// Path of the binary that holds the code, as mapped into the target; `[kernel]`, `[vdso]`.
    pub module: Option<Arc<str>>,
    /// Which kind of code it is.
    pub kind: FrameKind,
    /// Whether the compiler inlined this function into the next outer frame.
    pub inlined: bool,
    /// Whether this is the user's own code rather than a standard library, runtime or libc.
    pub user_code: bool,
    /// Whether `function` is a real name (false: made up from module and offset).
    #[serde(skip)]
    pub named: bool,
}

impl Frame {
    /// A native frame of which only the symbol is known.
    #[must_use]
    pub fn of_symbol(function: Arc<str>) -> Self {
        Self {
            function,
            file: None,
            line: None,
            module: None,
            kind: FrameKind::Native,
            inlined: false,
            user_code: false,
            named: true,
        }
    }
}
