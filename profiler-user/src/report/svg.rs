//! A flame graph of stalled time, drawn in process. The width is milliseconds of stall; the root
//! level is the loop, the next one the cause, then frames from the root to the leaf.

use std::io::{self, Write};

use inferno::flamegraph::{self, Options, TextTruncateDirection};

use super::folded::{Folded, lines};
use super::{Report, quantity};
use crate::aggregate::Summary;
use crate::blame::Stall;

/// Collects stalled time and draws it at the end.
#[derive(Debug, Clone, Default)]
pub struct Svg {
    folded: Folded,
}

impl Report for Svg {
    fn stall(&mut self, _out: &mut dyn Write, stall: &Stall) -> io::Result<()> {
        self.folded.add(stall);
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
        let lines = lines(&self.folded.time());
        let svg = if lines.is_empty() { empty(summary) } else { draw(&lines)? };
        out.write_all(&svg)?;
        out.flush()
    }
}

fn draw(lines: &[String]) -> io::Result<Vec<u8>> {
    let mut options = Options::default();
    options.title = "Stalled time".to_owned();
    options.count_name = "ms".to_owned();
    // Weights are microseconds.
    options.factor = 0.001;
    // The same function has the same colour in every graph.
    options.hash = true;
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
    Ok(svg)
}

/// A picture that says that there is nothing to see.
fn empty(summary: &Summary) -> Vec<u8> {
    words(&format!(
        "no stall of {} or more in {}",
        quantity::exact(summary.threshold_ns),
        quantity::duration(summary.observed_ns),
    ))
}

/// The same for a comparison.
pub(super) fn say(out: &mut dyn Write, text: &str) -> io::Result<()> {
    out.write_all(&words(text))?;
    out.flush()
}

fn words(text: &str) -> Vec<u8> {
    format!(
        "<?xml version=\"1.0\" standalone=\"no\"?>\n\
         <svg version=\"1.1\" width=\"1200\" height=\"80\" xmlns=\"http://www.w3.org/2000/svg\">\n\
         <title>Stalled time</title>\n\
         <text x=\"50%\" y=\"30\" text-anchor=\"middle\" font-family=\"monospace\" \
         font-size=\"17\">Stalled time</text>\n\
         <text x=\"50%\" y=\"58\" text-anchor=\"middle\" font-family=\"monospace\" \
         font-size=\"12\">{text}</text>\n\
         </svg>\n"
    )
    .into_bytes()
}
