//! What `check` found: for people, as JSON Lines, and as JUnit's XML, which CI systems show.

use std::io::{self, Write};

use serde::Serialize;

use super::text::printable_cut;
use super::{Format, quantity};
use crate::aggregate::{Amount, Place, Verdict};
use crate::symbolize::printable;

/// Writes the verdicts on one recording.
///
/// # Errors
/// Whatever `out` answers.
pub fn verdicts(
    format: Format,
    out: &mut dyn Write,
    recording: &str,
    verdicts: &[Verdict],
    columns: usize,
) -> io::Result<()> {
    match format {
        Format::Json => json(out, recording, verdicts),
        _ => text(out, recording, verdicts, columns.clamp(80, 200)),
    }
}

fn text(
    out: &mut dyn Write,
    recording: &str,
    verdicts: &[Verdict],
    columns: usize,
) -> io::Result<()> {
    let widest = verdicts.iter().map(|v| v.condition.chars().count()).max().unwrap_or(0);
    let width = widest.min(columns / 2);
    for verdict in verdicts {
        let mark = if verdict.kept { "ok    " } else { "BROKEN" };
        let measured = measured(verdict);
        let condition = printable_cut(&verdict.condition, width);
        let line = format!("{mark}  {condition:<width$}  {measured:>9}");
        let room = columns.saturating_sub(line.chars().count() + 2);
        let place = printable_cut(&place(verdict), room);
        writeln!(out, "{}", format!("{line}  {place}").trim_end())?;
    }
    let broken = verdicts.iter().filter(|verdict| !verdict.kept).count();
    let recording = printable_cut(recording, columns / 2);
    match broken {
        0 => writeln!(out, "{recording}: every budget is kept")?,
        _ => writeln!(out, "{recording}: {broken} of {} broken", verdicts.len())?,
    }
    out.flush()
}

fn amount(amount: Amount) -> String {
    match amount {
        Amount::Time(ns) => quantity::duration(ns),
        Amount::Share(share) => quantity::percent(share),
        Amount::Count(n) => quantity::count(n),
    }
}

fn measured(verdict: &Verdict) -> String {
    verdict.measured.map_or_else(|| "not measured".to_owned(), amount)
}

fn place(verdict: &Verdict) -> String {
    let code = |code: &Option<String>| code.as_ref().map(|c| format!("  {c}")).unwrap_or_default();
    match &verdict.place {
        None => String::new(),
        Some(Place::Loop { thread, tid }) => format!("loop {thread} ({tid})"),
        Some(Place::Longest(ns, at)) => format!("longest {} {at}", quantity::duration(*ns)),
        Some(Place::Before(was, at)) => format!("before {}{}", amount(*was), code(at)),
        Some(Place::New(at)) => format!("new{}", code(at)),
    }
}

/// A line of JSON.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line<'a> {
    Budget {
        budget: &'a str,
        kept: bool,
        measured_ns: Option<u64>,
        measured_share: Option<f64>,
        measured_count: Option<u64>,
        place: String,
    },
    Check {
        recording: &'a str,
        kept: bool,
        broken: usize,
    },
}

fn json(out: &mut dyn Write, recording: &str, verdicts: &[Verdict]) -> io::Result<()> {
    let broken = verdicts.iter().filter(|verdict| !verdict.kept).count();
    let end = Line::Check { recording, kept: broken == 0, broken };
    for line in verdicts.iter().map(budget).chain([end]) {
        let mut line = serde_json::to_vec(&line)?;
        line.push(b'\n');
        out.write_all(&line)?;
    }
    out.flush()
}

fn budget(verdict: &Verdict) -> Line<'_> {
    let Verdict { condition, kept, measured, .. } = verdict;
    let (mut measured_ns, mut measured_share, mut measured_count) = (None, None, None);
    match measured {
        Some(Amount::Time(ns)) => measured_ns = Some(*ns),
        Some(Amount::Share(share)) => measured_share = Some(*share),
        Some(Amount::Count(count)) => measured_count = Some(*count),
        None => {}
    }
    Line::Budget {
        budget: condition,
        kept: *kept,
        measured_ns,
        measured_share,
        measured_count,
        place: place(verdict),
    }
}

/// Writes the verdicts as JUnit's XML: a test case for each budget.
///
/// # Errors
/// Whatever `out` answers.
pub fn junit(out: &mut dyn Write, recording: &str, verdicts: &[Verdict]) -> io::Result<()> {
    let broken = verdicts.iter().filter(|verdict| !verdict.kept).count();
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(
        out,
        "<testsuite name=\"stallscope check {}\" tests=\"{}\" failures=\"{broken}\" errors=\"0\">",
        escaped(recording),
        verdicts.len()
    )?;
    for verdict in verdicts {
        let name = escaped(&verdict.condition);
        write!(out, "  <testcase classname=\"stallscope\" name=\"{name}\"")?;
        if verdict.kept {
            writeln!(out, "/>")?;
            continue;
        }
        let message = escaped(&format!("{} {}", measured(verdict), place(verdict)));
        writeln!(out, ">\n    <failure message=\"{}\"/>\n  </testcase>", message.trim_end())?;
    }
    writeln!(out, "</testsuite>")?;
    out.flush()
}

/// Text fit for an attribute: no markup, and no character that XML can't have.
fn escaped(text: &str) -> String {
    quick_xml::escape::escape(&*printable(text)).replace(['\u{fffe}', '\u{ffff}'], "?")
}
