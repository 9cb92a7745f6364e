//! Source lines and inlined functions, from DWARF through addr2line.

use std::sync::Arc;

use addr2line::{Context, FrameIter, LookupContinuation, LookupResult};
use gimli::SectionId;

use super::elf::Elf;
use super::error::LoadError;
use super::reader::{Meter, Reader};
use super::split::SplitDwarf;

/// Most bytes of debug information held for one binary.
const MAX_DEBUG_BYTES: u64 = 2 << 30;
/// Reads that the index of all units may take: some seconds. Chromium needs about a third.
const INDEX_READS: u64 = 512 << 20;
/// Reads that one lookup may take; only the first one in a large unit takes many.
const LOOKUP_READS: u64 = 128 << 20;

/// The sections that lookups need; locations, macros and types are left in the file.
const SECTIONS: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// One level of inlining as DWARF describes it.
#[derive(Debug)]
pub(super) struct Level {
    /// The linkage name where there is one, else the plain name.
    pub(super) function: Option<String>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

/// The debug information of one binary.
pub(super) struct Dwarf {
    context: Context<Reader>,
    meter: Arc<Meter>,
    split: SplitDwarf,
    /// Bytes of memory held by the sections.
    pub(super) bytes: usize,
}

impl Dwarf {
    /// Reads the sections of a file that has a `.debug_info`, and indexes its units.
    pub(super) fn load(file: &Elf, split: SplitDwarf) -> Result<Self, LoadError> {
        let meter = Arc::new(Meter::default());
        let mut bytes = 0;
        let mut sections = gimli::Dwarf::load(|id| {
            let section = match SECTIONS.contains(&id) {
                true => file.read_section(id.name())?,
                false => Arc::from([]),
            };
            bytes += section.len();
            if bytes as u64 > MAX_DEBUG_BYTES {
                return Err(LoadError::Refused("more than 2 GiB of debug information"));
            }
            Ok(Reader::new(section, file.endian, Arc::clone(&meter)))
        })?;
        meter.start(INDEX_READS);
        sections.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let context = Context::from_dwarf(sections);
        if meter.exceeded() {
            return Err(LoadError::Refused("debug information that takes too long to index"));
        }
        Ok(Self { context: context?, meter, split, bytes })
    }

    /// The levels of inlining at a linked address, innermost first; none where DWARF has nothing.
    ///
    /// # Errors
    /// The unit is damaged, or would take too much time or stack.
    pub(super) fn levels(&mut self, address: u64) -> Result<Vec<Level>, LoadError> {
        // addr2line looks up the range up to the next address.
        if address == u64::MAX {
            return Ok(Vec::new());
        }
        self.meter.start(LOOKUP_READS);
        let mut lookup = self.context.find_frames(address);
        let found = loop {
            match lookup {
                LookupResult::Output(found) => break found,
                LookupResult::Load { load, continuation } => {
                    let dwo = self.split.find(&load, &self.meter);
                    lookup = continuation.resume(dwo);
                }
            }
        };
        let mut levels = Vec::new();
        let result = found.and_then(|frames| collect(frames, &mut levels));
        if self.meter.exceeded() {
            return Err(LoadError::Refused("debug information nested or expanded without end"));
        }
        match result {
            Ok(()) => Ok(levels),
            // The tree of functions is damaged; the lines may be good.
            Err(error) => match self.context.find_location(address) {
                Ok(Some(location)) => Ok(vec![level(None, Some(&location))]),
                _ => Err(error.into()),
            },
        }
    }
}

fn collect(mut frames: FrameIter<'_, Reader>, levels: &mut Vec<Level>) -> gimli::Result<()> {
    while let Some(frame) = frames.next()? {
        let function = frame.function.as_ref().and_then(|f| f.raw_name().ok());
        levels.push(level(function.map(|f| f.into_owned()), frame.location.as_ref()));
    }
    Ok(())
}

fn level(function: Option<String>, location: Option<&addr2line::Location<'_>>) -> Level {
    Level {
        function: function.filter(|f| !f.is_empty()),
        file: location.and_then(|l| l.file).map(str::to_owned),
        // Line 0 means that no line of the source stands behind the code.
        line: location.and_then(|l| l.line).filter(|&line| line > 0),
    }
}
