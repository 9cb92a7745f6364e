//! JSON Lines: one object a line, told apart by `type`. Durations are nanoseconds.
//!
//! Names and meaning are public (see the contract in `docs/`); what is not known is `null`.

use std::io::{self, Write};

use serde::Serialize;

use super::Report;
use crate::aggregate::{Health, LoopSummary, PoolSummary, Summary};
use crate::blame::Stall;

/// Writes `stall` objects as they happen, then one `loop` per loop thread, one `pool` per
/// thread pool and `health` last.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

/// One line; `type` comes first.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line<'a> {
    Stall(&'a Stall),
    Loop(&'a LoopSummary),
    Pool(&'a PoolSummary),
    Health(&'a Health),
}

impl Line<'_> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        // One write per line: a reader of a pipe never sees half an object for long.
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        out.write_all(&line)
    }
}

/// The last line of every JSON output.
pub(super) fn health(out: &mut dyn Write, health: &Health) -> io::Result<()> {
    Line::Health(health).write(out)
}

impl Report for Json {
    fn stall(&mut self, out: &mut dyn Write, stall: &Stall) -> io::Result<()> {
        Line::Stall(stall).write(out)?;
        out.flush()
    }

    fn interval(&mut self, out: &mut dyn Write, loops: &[LoopSummary]) -> io::Result<()> {
        for one in loops {
            Line::Loop(one).write(out)?;
        }
        out.flush()
    }

    fn finish(&mut self, out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
        self.interval(out, &summary.loops)?;
        for pool in &summary.pools {
            Line::Pool(pool).write(out)?;
        }
        Line::Health(&summary.health).write(out)?;
        out.flush()
    }
}
