//! Stalls summed up by task, resource, cause or loop instead of told: text or JSON Lines.

use std::io::{self, Write};

use serde::Serialize;

use super::text::printable_cut;
use super::{Format, Report, ReportOptions, quantity};
use crate::aggregate::{Group, GroupBy, Groups, Summary};
use crate::blame::Stall;

/// Collects stalls and writes a row for each group at the end.
#[derive(Debug)]
pub struct Grouped {
    groups: Groups,
    json: bool,
    width: usize,
}

/// A row as JSON.
#[derive(Serialize)]
struct Row<'a> {
    r#type: &'static str,
    by: &'static str,
    key: Option<&'a str>,
    stalls: u64,
    total_ns: u64,
    max_ns: u64,
    share: f64,
}

impl Grouped {
    /// Without stalls; JSON if asked for, else text.
    #[must_use]
    pub fn new(by: GroupBy, format: Format, options: &ReportOptions) -> Self {
        let width = options.width.clamp(80, 200);
        Self { groups: Groups::new(by), json: format == Format::Json, width }
    }

    fn text(&self, out: &mut dyn Write, rows: &[Group], summary: &Summary) -> io::Result<()> {
        let observed = observed_ns(summary);
        let by = self.groups.by().name();
        writeln!(out, "{:>6}  {:>9}  {:>8}  {:>8}  {by}", "stalls", "total", "longest", "of time")?;
        for row in rows {
            let total = quantity::duration(row.total_ns);
            let longest = quantity::duration(row.max_ns);
            let share = quantity::percent(quantity::ratio(row.total_ns, observed));
            let none = format!("(no {by})");
            let key = printable_cut(row.key.as_deref().unwrap_or(&none), self.width - 39);
            let stalls = quantity::count(row.count);
            writeln!(out, "{stalls:>6}  {total:>9}  {longest:>8}  {share:>8}  {key}")?;
        }
        let total = rows.iter().fold(0_u64, |sum, row| sum.saturating_add(row.total_ns));
        let (total, watched) = (quantity::duration(total), quantity::duration(summary.observed_ns));
        writeln!(out, "\n{total} of stall together; {watched} watched")?;
        for warning in &summary.health.warnings {
            writeln!(out, "warning: {}", printable_cut(warning, usize::MAX))?;
        }
        Ok(())
    }
}

impl Report for Grouped {
    fn stall(&mut self, _out: &mut dyn Write, stall: &Stall) -> io::Result<()> {
        self.groups.add(stall);
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
        let rows = self.groups.rows();
        if !self.json {
            self.text(out, &rows, summary)?;
            return out.flush();
        }
        for row in &rows {
            let line = Row {
                r#type: "group",
                by: self.groups.by().name(),
                key: row.key.as_deref(),
                stalls: row.count,
                total_ns: row.total_ns,
                max_ns: row.max_ns,
                share: quantity::ratio(row.total_ns, observed_ns(summary)),
            };
            let mut line = serde_json::to_vec(&line)?;
            line.push(b'\n');
            out.write_all(&line)?;
        }
        super::json::health(out, &summary.health)?;
        out.flush()
    }
}

/// The time that the loops were watched, together.
fn observed_ns(summary: &Summary) -> u64 {
    summary.loops.iter().fold(0, |sum, one| sum.saturating_add(one.observed_ns))
}
