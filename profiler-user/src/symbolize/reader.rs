//! A DWARF reader that limits what hostile debug information can cost.
//!
//! A few bytes of DWARF can describe endless work: many units that share one long range list, or
//! inlined functions nested a million deep, which addr2line follows by recursion until the stack
//! ends. Every step of gimli and addr2line reads something, so the reader is the place to stop
//! both: it counts reads, and looks how far the stack has grown since the lookup began.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use gimli::{ReaderOffsetId, RunTimeEndian};

/// Stack that one lookup may use, in bytes: some hundred levels of inlining. Threads have 2 MiB.
const STACK_LIMIT: usize = 512 << 10;

/// What one operation may still cost; shared by all readers of a binary.
#[derive(Debug, Default)]
pub(super) struct Meter {
    reads_left: AtomicU64,
    stack_at_start: AtomicUsize,
    exceeded: AtomicBool,
}

impl Meter {
    /// Begins an operation of at most `reads` reads. To be called on the thread that reads.
    pub(super) fn start(&self, reads: u64) {
        self.reads_left.store(reads, Ordering::Relaxed);
        self.stack_at_start.store(stack_position(), Ordering::Relaxed);
    }

    /// Whether any operation went over its limits.
    pub(super) fn exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }

    /// Pays for reads. The meter belongs to one thread at a time, so no read-modify-write is needed.
    #[inline]
    fn charge(&self, reads: u64) -> gimli::Result<()> {
        let left = self.reads_left.load(Ordering::Relaxed);
        let used = self.stack_at_start.load(Ordering::Relaxed).saturating_sub(stack_position());
        if left < reads || used > STACK_LIMIT {
            self.exceeded.store(true, Ordering::Relaxed);
            return Err(gimli::Error::Io);
        }
        self.reads_left.store(left - reads, Ordering::Relaxed);
        Ok(())
    }
}

/// About where the stack ends now; it grows downwards on every platform supported.
#[inline]
fn stack_position() -> usize {
    let here = 0_u8;
    (&raw const here).addr()
}

/// A section and the meter that reading it runs on.
#[derive(Debug)]
struct Section {
    bytes: Arc<[u8]>,
    meter: Arc<Meter>,
}

/// A range of a section; cheap to clone, and nothing is borrowed.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    section: Arc<Section>,
    /// Always `start <= end <= section.bytes.len()`.
    start: usize,
    end: usize,
    endian: RunTimeEndian,
}

impl Reader {
    pub(super) fn new(bytes: Arc<[u8]>, endian: RunTimeEndian, meter: Arc<Meter>) -> Self {
        let end = bytes.len();
        Self { section: Arc::new(Section { bytes, meter }), start: 0, end, endian }
    }

    #[inline]
    fn rest(&self) -> &[u8] {
        &self.section.bytes[self.start..self.end]
    }

    #[inline]
    fn check(&self, len: usize) -> gimli::Result<()> {
        if len > self.end - self.start {
            return Err(gimli::Error::UnexpectedEof(gimli::Reader::offset_id(self)));
        }
        Ok(())
    }
}

impl gimli::Reader for Reader {
    type Endian = RunTimeEndian;
    type Offset = usize;

    #[inline]
    fn endian(&self) -> RunTimeEndian {
        self.endian
    }

    #[inline]
    fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline]
    fn empty(&mut self) {
        self.end = self.start;
    }

    #[inline]
    fn truncate(&mut self, len: usize) -> gimli::Result<()> {
        self.check(len)?;
        self.end = self.start + len;
        Ok(())
    }

    #[inline]
    fn offset_from(&self, base: &Self) -> usize {
        // Callers ask within one section only; anything else must not panic.
        self.start.saturating_sub(base.start)
    }

    #[inline]
    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId((self.section.bytes.as_ptr().addr() + self.start) as u64)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        let first = (self.section.bytes.as_ptr().addr() + self.start) as u64;
        let offset = usize::try_from(id.0.checked_sub(first)?).ok()?;
        (offset <= gimli::Reader::len(self)).then_some(offset)
    }

    #[inline]
    fn find(&self, byte: u8) -> gimli::Result<usize> {
        let at = self.rest().iter().position(|b| *b == byte);
        // Searching is charged by its length.
        let searched = at.unwrap_or(self.end - self.start);
        self.section.meter.charge(1 + searched as u64 / 64)?;
        at.ok_or_else(|| gimli::Error::UnexpectedEof(self.offset_id()))
    }

    #[inline]
    fn skip(&mut self, len: usize) -> gimli::Result<()> {
        self.section.meter.charge(1)?;
        self.check(len)?;
        self.start += len;
        Ok(())
    }

    #[inline]
    fn split(&mut self, len: usize) -> gimli::Result<Self> {
        let mut head = self.clone();
        self.skip(len)?;
        head.end = self.start;
        Ok(head)
    }

    fn to_slice(&self) -> gimli::Result<Cow<'_, [u8]>> {
        Ok(Cow::Borrowed(self.rest()))
    }

    fn to_string(&self) -> gimli::Result<Cow<'_, str>> {
        std::str::from_utf8(self.rest()).map(Cow::Borrowed).map_err(|_| gimli::Error::BadUtf8)
    }

    fn to_string_lossy(&self) -> gimli::Result<Cow<'_, str>> {
        Ok(String::from_utf8_lossy(self.rest()))
    }

    #[inline]
    fn read_slice(&mut self, buf: &mut [u8]) -> gimli::Result<()> {
        self.section.meter.charge(1)?;
        self.check(buf.len())?;
        buf.copy_from_slice(&self.rest()[..buf.len()]);
        self.start += buf.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gimli::Reader as _;

    use super::*;

    fn reader(meter: &Arc<Meter>) -> Reader {
        Reader::new(Arc::from([1_u8; 64]), RunTimeEndian::Little, Arc::clone(meter))
    }

    #[test]
    fn reads_beyond_the_limit_fail() {
        let meter = Arc::new(Meter::default());
        meter.start(3);
        let mut reader = reader(&meter);
        assert!((0..3).all(|_| reader.read_u8().is_ok()));
        assert!(!meter.exceeded());
        assert!(reader.read_u8().is_err());
        assert!(meter.exceeded());
    }

    #[test]
    fn recursion_ends_long_before_the_stack_does() {
        fn recurse(reader: &mut Reader, depth: u64) -> u64 {
            let ballast = [depth; 64];
            match reader.clone().read_u8() {
                Ok(_) => recurse(reader, depth + 1).max(std::hint::black_box(ballast)[1]),
                Err(_) => depth,
            }
        }
        let meter = Arc::new(Meter::default());
        meter.start(u64::MAX);
        let depth = recurse(&mut reader(&meter), 0);
        assert!(depth > 100 && meter.exceeded(), "stopped at {depth}");
    }
}
