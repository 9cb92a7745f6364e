//! A file that keeps within its bound by dropping its oldest blocks.
//!
//! When it would outgrow the bound, the newer half is copied to a file beside it, which then takes
//! its name: at every moment there is one whole recording under the name, and blocks, being
//! independent, are copied as they are.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::block::Packed;
use super::encode::Encoder;
use super::entry::Start;

/// The smallest bound that makes sense: some blocks must fit.
pub const MIN_BOUND: u64 = 1 << 20;

/// A recording under its name. Each write must be whole blocks, the head first.
#[derive(Debug)]
pub struct RollingFile {
    file: File,
    path: PathBuf,
    bound: u64,
    start: Start,
    /// Length of each block in the file and the stalls in it; the head is not among them.
    blocks: Vec<(u64, u32)>,
    /// Length of the head; 0 until it was written.
    head: u64,
}

impl RollingFile {
    /// Creates an empty file. `start` is what its later incarnations begin with.
    ///
    /// # Errors
    /// It can't be created.
    pub fn create(path: &Path, start: Start, bound: u64) -> io::Result<Self> {
        let file = open(path)?;
        let bound = bound.max(MIN_BOUND);
        Ok(Self { file, path: path.to_owned(), bound, start, blocks: Vec::new(), head: 0 })
    }

    fn length(&self) -> u64 {
        self.head + self.blocks.iter().map(|(length, _)| length).sum::<u64>()
    }

    /// Makes room for `more` bytes by dropping the oldest blocks, down to half the bound.
    fn roll_over(&mut self, more: u64) -> io::Result<()> {
        let goal = (self.bound / 2).saturating_sub(more);
        let (mut length, mut drop) = (self.length(), 0);
        while length > goal && drop < self.blocks.len() {
            length -= self.blocks[drop].0;
            drop += 1;
        }
        let mut start = self.start.clone();
        let dropped: u64 = self.blocks[..drop].iter().map(|(length, _)| length).sum();
        start.dropped_bytes += dropped;
        start.dropped_stalls += self.blocks[..drop].iter().map(|&(_, n)| u64::from(n)).sum::<u64>();
        let beside = beside(&self.path);
        let written = self.copy(&beside, &start, self.head + dropped);
        let (file, head) = match written {
            Ok(written) => written,
            Err(error) => {
                let _ = fs::remove_file(&beside);
                return Err(error);
            }
        };
        self.file = file;
        self.head = head;
        self.start = start;
        self.blocks.drain(..drop);
        Ok(())
    }

    fn copy(&mut self, beside: &Path, start: &Start, from: u64) -> io::Result<(File, u64)> {
        let new = open(beside)?;
        let head = Encoder::head(start)?;
        let mut out = BufWriter::new(new);
        out.write_all(&head)?;
        self.file.seek(SeekFrom::Start(from))?;
        io::copy(&mut Read::by_ref(&mut self.file), &mut out)?;
        let new = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        fs::rename(beside, &self.path)?;
        Ok((new, head.len() as u64))
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(true).open(path)
}

/// A name for the next incarnation, in the same folder.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".rolling");
    PathBuf::from(name)
}

impl Write for RollingFile {
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        let more = block.len() as u64;
        if self.head == 0 {
            self.file.write_all(block)?;
            self.head = more;
            return Ok(block.len());
        }
        if self.length() + more > self.bound && !self.blocks.is_empty() {
            self.roll_over(more)?;
        }
        self.file.write_all(block)?;
        let stalls = Packed::at(block).map_or(0, |packed| packed.stalls);
        self.blocks.push((more, stalls));
        Ok(block.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
