//! The records as plain bytes, for aya's maps.

use crate::capture::{Capture, CaptureHead};
use crate::config::{Adopt, Config, FutexKey, Target};
use crate::layout::Layout;
use crate::python::{Python, PythonStack};
use crate::turn::ThreadState;
use crate::waits::{Notes, Resource, Wake};

macro_rules! pod {
    ($($name:ty),+ $(,)?) => {
        $(
            // SAFETY: `repr(C)` of integers and arrays of integers without implicit padding
            // (asserted beside each type), so every byte pattern is a valid value.
            unsafe impl aya::Pod for $name {}
        )+
    };
}

pod!(
    Adopt,
    Capture,
    CaptureHead,
    Config,
    FutexKey,
    Layout,
    Notes,
    Python,
    PythonStack,
    Resource,
    Target,
    ThreadState,
    Wake
);
