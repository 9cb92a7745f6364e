//! The contents of a block to entries.

use std::collections::HashMap;

use serde::Deserialize;

use super::encode::{Contents, FrameRow, StallRow};
use super::entry::Entry;
use crate::blame::Stall;
use crate::symbolize::{Frame, Origin};

/// Most frames that are remembered from block to block.
const MAX_CACHED: usize = 256 << 10;

/// Decodes blocks one after the other. Most frames of a block were in the one before it, so they are
/// decoded once.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    frames: HashMap<Vec<u8>, Frame>,
    /// Entries that could not be understood.
    pub(super) odd: u64,
    /// Entries of kinds that this version does not know.
    pub(super) unknown: u64,
}

impl Decoder {
    /// The entries of a block. What can't be understood is left out and counted.
    pub(super) fn entries(&mut self, contents: &[u8], entries: &mut Vec<Entry>) {
        let Ok(contents) = rmp_serde::from_slice::<Contents>(contents) else {
            self.odd += 1;
            return;
        };
        if self.frames.len() > MAX_CACHED {
            self.frames.clear();
        }
        let frames: Vec<Option<Frame>> =
            contents.frames.iter().map(|row| self.frame(row)).collect();
        let stack = |places: &Vec<u32>| -> Vec<Frame> {
            let found = places.iter().map(|&at| frames.get(at as usize).cloned().flatten());
            found.map(|frame| frame.unwrap_or_else(unreadable)).collect()
        };
        let stacks: Vec<Vec<Frame>> = contents.stacks.iter().map(stack).collect();
        for (kind, bytes) in &contents.entries {
            let entry = match kind.as_str() {
                "start" => rmp_serde::from_slice(bytes).map(Entry::Start).ok(),
                "stall" => stall(bytes, &stacks).map(Entry::Stall),
                "checkpoint" => rmp_serde::from_slice(bytes).map(Entry::Checkpoint).ok(),
                "end" => rmp_serde::from_slice(bytes).map(Entry::End).ok(),
                _ => {
                    self.unknown += 1;
                    continue;
                }
            };
            match entry {
                Some(entry) => entries.push(entry),
                None => self.odd += 1,
            }
        }
    }

    fn frame(&mut self, row: &[u8]) -> Option<Frame> {
        if let Some(known) = self.frames.get(row) {
            return Some(known.clone());
        }
        let FrameRow { frame, named, address, build_id, source } =
            FrameRow::deserialize(&mut rmp_serde::Deserializer::from_read_ref(row)).ok()?;
        let frame = Frame { named, origin: Origin { address, build_id, source }, ..frame };
        self.frames.insert(row.to_vec(), frame.clone());
        Some(frame)
    }
}

fn stall(bytes: &[u8], stacks: &[Vec<Frame>]) -> Option<Box<Stall>> {
    let row: StallRow<Box<Stall>> = rmp_serde::from_slice(bytes).ok()?;
    let mut stall = row.stall;
    let frames = |at: u32| stacks.get(at as usize).cloned().unwrap_or_default();
    for (stack, places) in stall.stacks.iter_mut().zip(&row.stacks) {
        stack.frames = frames(places.frames);
        if let (Some(holder), Some(at)) = (&mut stack.holder, places.holder) {
            holder.frames = frames(at);
        }
        for (candidate, &at) in stack.candidates.iter_mut().zip(&places.candidates) {
            candidate.frames = frames(at);
        }
    }
    Some(stall)
}

/// Stands for a frame that the recording refers to and does not have.
fn unreadable() -> Frame {
    Frame { named: false, ..Frame::of_symbol("[unreadable frame]".into()) }
}
