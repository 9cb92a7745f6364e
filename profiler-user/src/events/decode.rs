//! One record to one event.

use profiler_common::capture::CaptureHead;
use profiler_common::python::{FRAMES, PythonFrame, PythonHead};
use profiler_common::record::{
    Header, KIND_CAPTURE, KIND_EXEC, KIND_EXIT, KIND_FORK, KIND_FUTEX, KIND_HOLDER, KIND_LEAF,
    KIND_LOOP, KIND_PYTHON, KIND_RESOURCE, KIND_SNAPSHOT, KIND_TURN, KIND_WAITS, Leaf, Snapshot,
    TurnRecord,
};
use profiler_common::waits::{Resource, Waits};
use thiserror::Error;

use super::event::{CaptureEvent, Event, LeafEvent, PythonEvent, SnapshotEvent, TurnEvent};

/// Why a record made no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// It is shorter than its kind needs.
    #[error("a record of kind {kind} with {bytes} bytes is too short")]
    TooShort {
        /// Its kind; 0 if not even that was there.
        kind: u32,
        /// Its length.
        bytes: usize,
    },
    /// Nobody knows its kind.
    #[error("a record of unknown kind {0}")]
    UnknownKind(u32),
    /// A duration in it is one of years.
    #[error("a record of kind {0} holds a duration of years")]
    Implausible(u32),
}

/// Longer than two years: no stall is. What is shorter can be added up without a thought.
const IMPLAUSIBLE_NS: u64 = 1 << 56;

/// Decodes a record.
///
/// # Errors
/// The record is shorter than its kind needs, or of a kind nobody knows.
pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
    let header: Header = read(bytes, 0)?;
    let Header { kind, tgid, tid, .. } = header;
    Ok(match kind {
        KIND_LOOP => Event::LoopFound { tgid, tid, class: header.flags, time_ns: header.time_ns },
        KIND_CAPTURE => Event::Capture(Box::new(capture(bytes, kind)?)),
        KIND_FUTEX => {
            Event::FutexQuestion { address: header.extra, capture: Box::new(capture(bytes, kind)?) }
        }
        KIND_RESOURCE => {
            let resource: Resource = read(bytes, kind)?;
            plausible(kind, [resource.slept_ns])?;
            Event::Resource(Box::new(resource))
        }
        KIND_WAITS => {
            let waits: Waits = read(bytes, kind)?;
            plausible(kind, waits.rivals.iter().map(|rival| rival.ns).chain([waits.lock.ns]))?;
            Event::Waits(Box::new(waits))
        }
        KIND_HOLDER => Event::Holder {
            waiter: u32::try_from(header.extra).unwrap_or(0),
            capture: Box::new(capture(bytes, kind)?),
        },
        KIND_LEAF => {
            let leaf: Leaf = read(bytes, kind)?;
            plausible(kind, [leaf.weight_ns])?;
            Event::Leaf(LeafEvent {
                tid,
                turn: header.extra,
                id: leaf.id,
                ip: leaf.ip,
                instr: leaf.instr,
                weight_ns: leaf.weight_ns,
            })
        }
        KIND_TURN => {
            let record: TurnRecord = read(bytes, kind)?;
            plausible(kind, durations(&record))?;
            Event::Turn(Box::new(TurnEvent {
                tgid,
                tid,
                end_ns: header.time_ns,
                flags: header.flags,
                turn: record.turn,
            }))
        }
        KIND_PYTHON => Event::Python(Box::new(python(bytes, kind)?)),
        KIND_FORK => Event::Fork { tgid, tid, new_process: header.extra != 0 },
        KIND_EXEC => Event::Exec { tgid },
        KIND_EXIT => Event::Exit { tgid, tid },
        KIND_SNAPSHOT => {
            let snapshot: Snapshot = read(bytes, kind)?;
            Event::Snapshot(Box::new(SnapshotEvent {
                tgid,
                tid,
                time_ns: header.time_ns,
                state: snapshot.state,
                idle_ns: snapshot.now_exec_start.saturating_sub(snapshot.exec_start),
                regs: snapshot.regs,
            }))
        }
        other => return Err(DecodeError::UnknownKind(other)),
    })
}

fn capture(bytes: &[u8], kind: u32) -> Result<CaptureEvent, DecodeError> {
    let head: CaptureHead = read(bytes, kind)?;
    plausible(kind, [head.total_ns])?;
    Ok(CaptureEvent::new(&head, &bytes[size_of::<CaptureHead>()..]))
}

fn python(bytes: &[u8], kind: u32) -> Result<PythonEvent, DecodeError> {
    let head: PythonHead = read(bytes, kind)?;
    let frames = bytes[size_of::<PythonHead>()..].chunks_exact(size_of::<PythonFrame>());
    let frames: Result<Vec<PythonFrame>, _> =
        frames.take(FRAMES).map(|frame| read(frame, kind)).collect();
    Ok(PythonEvent::new(&head, &frames?))
}

fn durations(record: &TurnRecord) -> impl Iterator<Item = u64> {
    let turn = &record.turn;
    let whole = record.header.time_ns.saturating_sub(turn.start_ns);
    let stacks = turn.stacks.iter().flat_map(|stack| [stack.total_ns, stack.max_ns]);
    let syscalls = turn.syscalls.iter().flat_map(|slept| [slept.total_ns, slept.max_ns]);
    [whole, turn.longest_ns].into_iter().chain(turn.ledger).chain(stacks).chain(syscalls)
}

fn plausible(kind: u32, durations: impl IntoIterator<Item = u64>) -> Result<(), DecodeError> {
    if durations.into_iter().any(|ns| ns >= IMPLAUSIBLE_NS) {
        return Err(DecodeError::Implausible(kind));
    }
    Ok(())
}

/// Marks types whose every byte pattern is valid.
trait Plain: Copy {}
impl Plain for Header {}
impl Plain for CaptureHead {}
impl Plain for Leaf {}
impl Plain for PythonFrame {}
impl Plain for PythonHead {}
impl Plain for TurnRecord {}
impl Plain for Snapshot {}
impl Plain for Resource {}
impl Plain for Waits {}

fn read<T: Plain>(bytes: &[u8], kind: u32) -> Result<T, DecodeError> {
    if bytes.len() < size_of::<T>() {
        return Err(DecodeError::TooShort { kind, bytes: bytes.len() });
    }
    // SAFETY: the length was checked, the read is unaligned, and every byte pattern of a `Plain`
    // type (integers and arrays of integers) is a valid value.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_unknown_records_are_errors() {
        assert_eq!(decode(&[]).err(), Some(DecodeError::TooShort { kind: 0, bytes: 0 }));
        let mut bytes = vec![0; 32];
        bytes[0] = 99;
        assert_eq!(decode(&bytes).err(), Some(DecodeError::UnknownKind(99)));
        for kind in (1..=9).chain(20..=23) {
            bytes[0] = kind;
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_duration_of_years_is_an_error() {
        let mut bytes = vec![0; size_of::<TurnRecord>()];
        bytes[0] = KIND_TURN as u8;
        assert!(decode(&bytes).is_ok());
        // The end of the turn, whose start is zero.
        bytes[16 + 7] = 1;
        assert_eq!(decode(&bytes).err(), Some(DecodeError::Implausible(KIND_TURN)));
    }
}
