//! One self-contained HTML file: timeline, ledger, stacks, flame graph, blockers, histograms.
//!
//! The page is put together from the files beside this one and from libraries in `vendor/`, whose
//! licences it carries. It loads nothing and sends nothing: its content security policy allows the
//! one script by its hash and nothing else, and every name is set as text, so that no name of a
//! target's choice can become markup or code.

mod data;

use std::collections::BTreeMap;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use self::data::Data;
use super::settled::Settled;
use super::source::SourceLines;
use super::{Report, ReportOptions};
use crate::aggregate::Summary;
use crate::blame::Stall;
use crate::record::Checkpoint;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const LICENCES: &str = include_str!("vendor/LICENSES.txt");
/// In the order in which they need each other.
const LIBRARIES: [&str; 14] = [
    include_str!("vendor/d3-color.min.js"),
    include_str!("vendor/d3-dispatch.min.js"),
    include_str!("vendor/d3-ease.min.js"),
    include_str!("vendor/d3-timer.min.js"),
    include_str!("vendor/d3-array.min.js"),
    include_str!("vendor/d3-format.min.js"),
    include_str!("vendor/d3-time.min.js"),
    include_str!("vendor/d3-interpolate.min.js"),
    include_str!("vendor/d3-time-format.min.js"),
    include_str!("vendor/d3-hierarchy.min.js"),
    include_str!("vendor/d3-selection.min.js"),
    include_str!("vendor/d3-transition.min.js"),
    include_str!("vendor/d3-scale.min.js"),
    include_str!("vendor/d3-flame-graph.min.js"),
];
const OWN: [&str; 8] = [
    include_str!("data.js"),
    include_str!("head.js"),
    include_str!("timeline.js"),
    include_str!("views.js"),
    include_str!("flame.js"),
    include_str!("loops.js"),
    include_str!("detail.js"),
    include_str!("main.js"),
];

/// Points in time kept of a loop; then every other one is dropped.
const MAX_POINTS: usize = 2000;

/// How a loop stood: when, in nanoseconds since the epoch; its turns; its busy time.
type Point = (u64, u64, u64);

/// Collects stalls and writes the page at the end.
#[derive(Debug)]
pub struct Html {
    options: ReportOptions,
    settled: Settled,
    data: Data,
    sources: SourceLines,
    /// By process and thread.
    series: BTreeMap<(u32, u32), Vec<Point>>,
}

impl Html {
    /// Without stalls.
    #[must_use]
    pub fn new(options: &ReportOptions) -> Self {
        Self {
            options: options.clone(),
            settled: Settled::default(),
            data: Data::default(),
            sources: SourceLines::new(options.sources.clone()),
            series: BTreeMap::new(),
        }
    }
}

impl Report for Html {
    fn stall(&mut self, _out: &mut dyn Write, stall: &Stall) -> io::Result<()> {
        let Self { settled, data, sources, .. } = self;
        settled.add(stall, |stall| data.add(stall, sources));
        Ok(())
    }

    fn checkpoint(&mut self, _out: &mut dyn Write, checkpoint: &Checkpoint) -> io::Result<()> {
        for one in &checkpoint.summary.loops {
            let points = self.series.entry((one.pid, one.tid)).or_default();
            points.push((checkpoint.at_unix_ns, one.turns, one.busy_ns));
            if points.len() >= MAX_POINTS {
                let mut keep = false;
                points.retain(|_| {
                    keep = !keep;
                    keep
                });
            }
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
        let Self { settled, data, sources, .. } = self;
        settled.finish(|stall| data.add(stall, sources));
        let data = std::mem::take(&mut self.data);
        let json = data.json(&self.options, summary, &self.series, LICENCES)?;
        out.write_all(page(&json).as_bytes())?;
        out.flush()
    }
}

fn page(json: &str) -> String {
    let mut script = String::new();
    for library in LIBRARIES {
        script.push_str(library);
        script.push_str("\n;\n");
    }
    script.push_str("(() => {\n\"use strict\";\n");
    for part in OWN {
        script.push_str(part);
        script.push('\n');
    }
    script.push_str("})();\n");
    let hash = STANDARD.encode(Sha256::digest(script.as_bytes()));
    let mut page = String::with_capacity(script.len() + json.len() + 2 * STYLE.len());
    let mut rest = PAGE;
    // Each mark once and in this order: what is put in is never searched.
    for (mark, content) in [
        ("@HASH@", hash.as_str()),
        ("@VERSION@", env!("CARGO_PKG_VERSION")),
        ("@STYLE@", STYLE),
        ("@DATA@", json),
        ("@SCRIPT@", &script),
    ] {
        let Some((before, after)) = rest.split_once(mark) else { continue };
        page.push_str(before);
        page.push_str(content);
        rest = after;
    }
    page.push_str(rest);
    page
}

#[cfg(test)]
mod tests {
    use super::{LIBRARIES, OWN, PAGE, STYLE};

    #[test]
    fn the_page_has_each_mark_once_and_in_order() {
        let marks = ["@HASH@", "@VERSION@", "@STYLE@", "@DATA@", "@SCRIPT@"];
        let places: Vec<_> = marks.iter().filter_map(|mark| PAGE.find(mark)).collect();
        assert_eq!(places.len(), marks.len());
        assert!(places.is_sorted());
        assert!(marks.iter().all(|mark| PAGE.matches(mark).count() == 1));
    }

    /// What would end an element early must not be in what is put into it.
    #[test]
    fn nothing_ends_its_element() {
        for script in LIBRARIES.into_iter().chain(OWN) {
            let low = script.to_ascii_lowercase();
            assert!(!low.contains("</script") && !low.contains("<!--"));
        }
        assert!(!STYLE.contains("</"));
    }
}
