//! speedscope's own JSON: one profile per loop, its stalls in the order in which they happened.
//!
//! The unit is nanoseconds of stall; time between stalls is left out, so that each profile is as
//! wide as what it is about. The outermost frame is the cause.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde::Serialize;

use super::settled::Settled;
use super::{Report, ReportOptions};
use crate::aggregate::{NO_STACK, Summary, shares};
use crate::blame::Stall;
use crate::symbolize::{Frame, printable};

/// Collects stalled time and writes it at the end.
#[derive(Debug)]
pub struct Speedscope {
    name: String,
    settled: Settled,
    frames: Vec<FrameRow>,
    frame_ids: HashMap<FrameRow, u32>,
    /// By process and thread.
    loops: BTreeMap<(u32, u32), Profile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
struct FrameRow {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: &'a str,
    exporter: String,
    active_profile_index: u32,
    shared: Shared<'a>,
    profiles: Vec<&'a Profile>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: &'a [FrameRow],
}

impl Speedscope {
    /// Without stalls.
    #[must_use]
    pub fn new(options: &ReportOptions) -> Self {
        let subject = &options.start.subject;
        let gap = if subject.is_empty() { "" } else { " of " };
        Self {
            name: printable(&format!("Stalls{gap}{subject}")).into_owned(),
            settled: Settled::default(),
            frames: Vec::new(),
            frame_ids: HashMap::new(),
            loops: BTreeMap::new(),
        }
    }

    fn frame(&mut self, row: FrameRow) -> u32 {
        if let Some(&known) = self.frame_ids.get(&row) {
            return known;
        }
        let new = self.frames.len() as u32;
        self.frames.push(row.clone());
        self.frame_ids.insert(row, new);
        new
    }

    fn word(&mut self, name: &str) -> u32 {
        self.frame(FrameRow { name: name.to_owned(), file: None, line: None })
    }

    fn code(&mut self, frame: &Frame) -> u32 {
        let name = printable(&frame.function);
        let name = if name.is_empty() { "?".into() } else { name };
        self.frame(FrameRow {
            name: name.into_owned(),
            file: frame.file.as_deref().map(|file| printable(file).into_owned()),
            line: frame.line,
        })
    }

    fn count(&mut self, stall: &Stall) {
        let (mut samples, mut weights) = (Vec::new(), Vec::new());
        for share in shares(stall) {
            let mut sample = vec![self.word(share.cause.name())];
            match share.stack {
                Some(stack) if !stack.frames.is_empty() => {
                    sample.extend(stack.frames.iter().map(|frame| self.code(frame)));
                }
                None if !share.uncovered => {}
                _ => sample.push(self.word(NO_STACK)),
            }
            samples.push(sample);
            weights.push(share.ns);
        }
        let profile = self.loops.entry((stall.pid, stall.tid)).or_insert_with(|| Profile {
            r#type: "sampled",
            name: printable(&format!("{} ({})", stall.thread, stall.tid)).into_owned(),
            unit: "nanoseconds",
            start_value: 0,
            end_value: 0,
            samples: Vec::new(),
            weights: Vec::new(),
        });
        profile.end_value =
            weights.iter().fold(profile.end_value, |sum, ns| sum.saturating_add(*ns));
        profile.samples.append(&mut samples);
        profile.weights.append(&mut weights);
    }
}

impl Report for Speedscope {
    fn stall(&mut self, _out: &mut dyn Write, stall: &Stall) -> io::Result<()> {
        let mut settled = std::mem::take(&mut self.settled);
        settled.add(stall, |stall| self.count(stall));
        self.settled = settled;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write, _summary: &Summary) -> io::Result<()> {
        let mut settled = std::mem::take(&mut self.settled);
        settled.finish(|stall| self.count(stall));
        let mut profiles: Vec<&Profile> = self.loops.values().collect();
        profiles.sort_by_key(|profile| std::cmp::Reverse(profile.end_value));
        // Readers refuse a file without profiles.
        let nothing = Profile {
            r#type: "sampled",
            name: "no stalls".to_owned(),
            unit: "nanoseconds",
            start_value: 0,
            end_value: 0,
            samples: Vec::new(),
            weights: Vec::new(),
        };
        if profiles.is_empty() {
            profiles.push(&nothing);
        }
        let file = File {
            schema: "https://www.speedscope.app/file-format-schema.json",
            name: &self.name,
            exporter: format!("stallscope@{}", env!("CARGO_PKG_VERSION")),
            active_profile_index: 0,
            shared: Shared { frames: &self.frames },
            profiles,
        };
        serde_json::to_writer(&mut *out, &file)?;
        out.write_all(b"\n")?;
        out.flush()
    }
}
