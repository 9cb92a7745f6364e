//! A named frame: what a reader sees of one level of a stack.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Which kind of code a frame runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    /// The kernel.
    Kernel,
    /// A Python function.
    Python,
    /// A JavaScript function.
    Js,
    /// A Java method.
    Java,
    /// Compiled code of the process.
    #[default]
    #[serde(other)]
    Native,
}

/// One frame of a symbolized stack. Strings are shared: a hot function appears in many stacks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The function's demangled name, or `module+0xoffset` where there is no symbol.
    pub function: Arc<str>,
    /// Source file as the debug information gives it.
    #[serde(default)]
    pub file: Option<Arc<str>>,
    /// Line in `file`, from 1.
    #[serde(default)]
    pub line: Option<u32>,
    /// Path of the binary that holds the code, as mapped into the target; `[kernel]`, `[vdso]`.
    #[serde(default)]
    pub module: Option<Arc<str>>,
    /// Which kind of code it is.
    pub kind: FrameKind,
    /// Whether the compiler inlined this function into the next outer frame.
    #[serde(default)]
    pub inlined: bool,
    /// Whether this is the user's own code rather than a standard library, runtime or libc.
    #[serde(default)]
    pub user_code: bool,
    /// Whether `function` is a real name (false: made up from module and offset).
    #[serde(skip, default = "yes")]
    pub named: bool,
    /// Where the code is, for who wants to name it again.
    #[serde(skip)]
    pub origin: Origin,
}

const fn yes() -> bool {
    true
}

/// Where a frame's code lies in its binary: with it, better debug files can name the code later.
///
/// It is no part of what a frame is: two frames that read the same are the same, so every origin
/// equals every other.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The address as the linker gave it; the same in every process that maps the binary.
    pub address: Option<u64>,
    /// The binary's build id in hexadecimal digits.
    pub build_id: Option<Arc<str>>,
    /// The text of its source line, where a recording has it.
    pub source: Option<Arc<str>>,
}

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Origin {}

impl std::hash::Hash for Origin {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
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
            origin: Origin::default(),
        }
    }
}
