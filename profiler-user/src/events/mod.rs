//! Records of the kernel side, decoded: bytes to typed events, on one clock.
//!
//! Decoding is pure, so a recorded stream of records is replayed without root.

mod clock;
mod decode;
mod event;

pub use clock::Clock;
pub use clock::monotonic_ns;
pub use decode::{DecodeError, decode};
pub use event::{CaptureEvent, Event, LeafEvent, PythonEvent, SnapshotEvent, StackCopy, TurnEvent};
