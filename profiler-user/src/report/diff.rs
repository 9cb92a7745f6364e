//! Two recordings compared: as text, as JSON Lines, and as a red and blue flame graph.

use std::collections::BTreeMap;
use std::io::{self, Write};

use inferno::flamegraph::{self, Options};
use serde::Serialize;

use super::text::printable_cut;
use super::{Format, quantity};
use crate::aggregate::{Change, ChangeKind, Observed, Side, StalledTime};

/// One side of a comparison.
#[derive(Debug, Default)]
pub struct Compared {
    /// What the reader calls it: the file.
    pub name: String,
    /// Its blockers.
    pub observed: Observed,
    /// Its stalled time by stack.
    pub time: StalledTime,
    /// What the reader should know of it.
    pub warnings: Vec<String>,
}

/// Writes a comparison. Formats without a way to show two sides are refused by the command line.
///
/// # Errors
/// Whatever `out` answers.
pub fn diff(
    format: Format,
    out: &mut dyn Write,
    before: &Compared,
    after: &Compared,
    changes: &[Change],
    columns: usize,
) -> io::Result<()> {
    match format {
        Format::Json => json(out, before, after, changes),
        Format::Svg => svg(out, before, after),
        _ => text(out, before, after, changes, columns.clamp(80, 200)),
    }
}

fn text(
    out: &mut dyn Write,
    before: &Compared,
    after: &Compared,
    changes: &[Change],
    columns: usize,
) -> io::Result<()> {
    for (label, side) in [("before", before), ("after", after)] {
        let total = side.observed.total();
        let stalls = quantity::counted(total.stalls, "stall");
        let stalled = quantity::duration(total.total_ns);
        let share = quantity::percent(total.share);
        let name = printable_cut(&side.name, columns / 2);
        writeln!(out, "{label:<7} {name}  {stalls}, {stalled}, {share} of the loops' time")?;
    }
    if changes.is_empty() {
        writeln!(out, "\nneither has a stall")?;
    } else {
        writeln!(out, "\n{:<8}{:>9}{:>9}{:>11}  blocker", "", "before", "after", "longest")?;
    }
    for change in changes {
        let share = |side: Side| match side.stalls {
            0 => "–".to_owned(),
            _ => quantity::percent(side.share),
        };
        let longest = match (change.before.max_ns, change.after.max_ns) {
            (was, 0) => was,
            (_, is) => is,
        };
        let what = change.what.as_deref().map(|what| format!(" · {what}")).unwrap_or_default();
        let place = match &change.blocker {
            None => "not the code".to_owned(),
            Some(b) => match (&b.file, b.line) {
                (Some(file), Some(line)) => format!("{}  {file}:{line}", b.function),
                _ => b.function.to_string(),
            },
        };
        let line = format!("{}{what}  {place}", change.cause.name());
        writeln!(
            out,
            "{:<8}{:>9}{:>9}{:>11}  {}",
            change.change.name(),
            share(change.before),
            share(change.after),
            quantity::duration(longest),
            printable_cut(&line, columns.saturating_sub(39))
        )?;
    }
    let count = |kind| changes.iter().filter(|change| change.change == kind).count() as u64;
    let kinds = [
        ChangeKind::New,
        ChangeKind::Gone,
        ChangeKind::Longer,
        ChangeKind::Shorter,
        ChangeKind::Same,
    ];
    let counts: Vec<String> = kinds
        .into_iter()
        .filter(|&kind| count(kind) > 0)
        .map(|kind| format!("{} {}", quantity::count(count(kind)), kind.name()))
        .collect();
    if !counts.is_empty() {
        writeln!(
            out,
            "\n{}; shares are of the time that the loops were watched",
            counts.join(", ")
        )?;
    }
    for side in [before, after] {
        for warning in &side.warnings {
            let text = printable_cut(&format!("{}: {warning}", side.name), usize::MAX);
            writeln!(out, "warning: {text}")?;
        }
    }
    out.flush()
}

/// A line of JSON.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line<'a> {
    Change(&'a Change),
    Diff { before: Total<'a>, after: Total<'a> },
}

#[derive(Serialize)]
struct Total<'a> {
    recording: &'a str,
    observed_loop_ns: u64,
    #[serde(flatten)]
    side: Side,
    warnings: &'a [String],
}

fn json(
    out: &mut dyn Write,
    before: &Compared,
    after: &Compared,
    changes: &[Change],
) -> io::Result<()> {
    let end = Line::Diff { before: total(before), after: total(after) };
    for line in changes.iter().map(Line::Change).chain([end]) {
        let mut line = serde_json::to_vec(&line)?;
        line.push(b'\n');
        out.write_all(&line)?;
    }
    out.flush()
}

fn total(compared: &Compared) -> Total<'_> {
    Total {
        recording: &compared.name,
        observed_loop_ns: compared.observed.loop_ns,
        side: compared.observed.total(),
        warnings: &compared.warnings,
    }
}

/// Red is what takes more time than before, blue what takes less. The widths are those after; times
/// before are scaled as if they had been observed for as long.
fn svg(out: &mut dyn Write, before: &Compared, after: &Compared) -> io::Result<()> {
    let (was, is) = (before.observed.loop_ns, after.observed.loop_ns);
    let scale = if was == 0 || is == 0 { 1.0 } else { is as f64 / was as f64 };
    let mut paths: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for weight in before.time.weights() {
        let scaled = (weight.micros as f64 * scale).round() as u64;
        paths.entry(path(weight.path)).or_default().0 += scaled;
    }
    for weight in after.time.weights() {
        paths.entry(path(weight.path)).or_default().1 += weight.micros;
    }
    let lines: Vec<String> =
        paths.iter().map(|(path, (was, is))| format!("{path} {was} {is}")).collect();
    let mut options = Options::default();
    options.title = "Stalled time: red is more than before, blue is less".to_owned();
    options.count_name = "ms".to_owned();
    options.factor = 0.001;
    options.deterministic = true;
    if paths.values().all(|&(_, is)| is == 0) {
        return super::svg::say(out, "no stall in the second recording");
    }
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut *out)?;
    out.flush()
}

/// The path without the thread's number, which differs from run to run.
fn path(path: &[String]) -> String {
    let mut parts: Vec<&str> = path.iter().map(String::as_str).collect();
    if let Some(root) = parts.first_mut()
        && let Some((name, _)) = root.rsplit_once(" (")
    {
        *root = name;
    }
    parts.join(";")
}
