//! Entries to blocks. Each frame and each stack is written once a block, whoever refers to it.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::block::{self, MAX_CONTENTS};
use super::entry::{Checkpoint, Start};
use super::{MAGIC, VERSION};
use crate::aggregate::Summary;
use crate::blame::Stall;
use crate::symbolize::Frame;

/// Contents that are written without waiting for their time.
const FULL: usize = 512 << 10;

/// The contents of a block. What an entry is stands beside it, so that a reader can step over what
/// it does not know; the same goes for fields, which have names.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Contents {
    /// Frames, each a [`FrameRow`] by itself: a reader need not decode one twice.
    #[serde(default)]
    pub(super) frames: Vec<ByteBuf>,
    /// Stacks: places in `frames`, root to leaf.
    #[serde(default)]
    pub(super) stacks: Vec<Vec<u32>>,
    /// What happened, by kind.
    pub(super) entries: Vec<(String, ByteBuf)>,
}

/// A frame with what the public JSON leaves out.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FrameRow {
    #[serde(flatten)]
    pub(super) frame: Frame,
    #[serde(default = "named")]
    pub(super) named: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) build_id: Option<Arc<str>>,
    /// The text of the source line, of the user's own code only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<Arc<str>>,
}

const fn named() -> bool {
    true
}

/// A stall whose frames are in the block's tables.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StallRow<S> {
    /// As in the public JSON, without the frames of its stacks and holders.
    pub(super) stall: S,
    /// For each of its stacks, where its frames are.
    #[serde(default)]
    pub(super) stacks: Vec<StackRef>,
}

/// Places in the table of stacks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StackRef {
    pub(super) frames: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) holder: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) candidates: Vec<u32>,
}

/// Finds the text of a frame's source line.
pub type Source<'a> = dyn FnMut(&Frame) -> Option<String> + 'a;

/// Collects entries until a block is due.
#[derive(Debug, Default)]
pub struct Encoder {
    contents: Contents,
    frames: HashMap<Frame, u32>,
    stacks: HashMap<Vec<u32>, u32>,
    stalls: u32,
    /// Bytes of the contents so far, about.
    bytes: usize,
}

impl Encoder {
    /// The beginning of a file, with its first block.
    ///
    /// # Errors
    /// As for [`block`](Self::block).
    pub fn head(start: &Start) -> io::Result<Vec<u8>> {
        let mut encoder = Self::default();
        encoder.push("start", start)?;
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_le_bytes());
        head.extend(encoder.block()?);
        Ok(head)
    }

    /// Adds a stall. `source` gives the text of a frame's line, while it can still be read.
    ///
    /// # Errors
    /// It can't be encoded; nothing that a verdict can hold does that.
    pub fn stall(&mut self, stall: &Stall, source: &mut Source<'_>) -> io::Result<()> {
        let mut bare = stall.clone();
        let mut stacks = Vec::with_capacity(bare.stacks.len());
        for stack in &mut bare.stacks {
            let frames = self.stack(&std::mem::take(&mut stack.frames), source)?;
            let holder = match &mut stack.holder {
                Some(holder) => Some(self.stack(&std::mem::take(&mut holder.frames), source)?),
                None => None,
            };
            let mut candidates = Vec::with_capacity(stack.candidates.len());
            for candidate in &mut stack.candidates {
                candidates.push(self.stack(&std::mem::take(&mut candidate.frames), source)?);
            }
            stacks.push(StackRef { frames, holder, candidates });
        }
        self.stalls += 1;
        self.push("stall", &StallRow { stall: bare, stacks })
    }

    /// Adds how the loops are doing.
    ///
    /// # Errors
    /// As for [`stall`](Self::stall).
    pub fn checkpoint(&mut self, checkpoint: &Checkpoint) -> io::Result<()> {
        self.push("checkpoint", checkpoint)
    }

    /// Adds the end.
    ///
    /// # Errors
    /// As for [`stall`](Self::stall).
    pub fn end(&mut self, summary: &Summary) -> io::Result<()> {
        self.push("end", summary)
    }

    /// Whether nothing waits to be written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.contents.entries.is_empty()
    }

    /// Whether so much waits that it should be written now.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.bytes >= FULL
    }

    /// What waits, as one block; nothing waits afterwards.
    ///
    /// # Errors
    /// It can't be compressed, or one entry is larger than a block may be.
    pub fn block(&mut self) -> io::Result<Vec<u8>> {
        let contents = encode(&self.contents)?;
        let stalls = self.stalls;
        *self = Self::default();
        if contents.len() > MAX_CONTENTS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a stall too large to record"));
        }
        block::pack(&contents, stalls)
    }

    fn push(&mut self, kind: &str, entry: &impl Serialize) -> io::Result<()> {
        let entry = encode(entry)?;
        self.bytes += entry.len();
        self.contents.entries.push((kind.to_owned(), ByteBuf::from(entry)));
        Ok(())
    }

    fn stack(&mut self, frames: &[Frame], source: &mut Source<'_>) -> io::Result<u32> {
        let mut places = Vec::with_capacity(frames.len());
        for frame in frames {
            places.push(self.frame(frame, source)?);
        }
        if let Some(&known) = self.stacks.get(&places) {
            return Ok(known);
        }
        let new = self.contents.stacks.len() as u32;
        self.bytes += places.len() * 2;
        self.contents.stacks.push(places.clone());
        self.stacks.insert(places, new);
        Ok(new)
    }

    fn frame(&mut self, frame: &Frame, source: &mut Source<'_>) -> io::Result<u32> {
        if let Some(&known) = self.frames.get(frame) {
            return Ok(known);
        }
        let row = encode(&FrameRow {
            frame: frame.clone(),
            named: frame.named,
            address: frame.origin.address,
            build_id: frame.origin.build_id.clone(),
            source: if frame.user_code { source(frame).map(Arc::from) } else { None },
        })?;
        let new = self.contents.frames.len() as u32;
        self.bytes += row.len();
        self.contents.frames.push(ByteBuf::from(row));
        self.frames.insert(frame.clone(), new);
        Ok(new)
    }
}

/// MessagePack with the names of the fields.
fn encode(value: &impl Serialize) -> io::Result<Vec<u8>> {
    rmp_serde::to_vec_named(value).map_err(io::Error::other)
}
