//! pprof: `profile.proto`, gzipped, for `go tool pprof` and its kin.
//!
//! Two values: `stalls` (a count; a stall counts where its largest part is) and `stalled` in
//! nanoseconds, the default. Labels say cause, loop, runtime, task and system call, so that
//! `-tagfocus cause=syscall` and `-tagroot cause` work.

mod proto;
mod tables;

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use prost::Message as _;

use self::proto::{Label, Sample, ValueType};
use self::tables::Tables;
use super::settled::Settled;
use super::{Report, ReportOptions};
use crate::aggregate::{Share, Summary, shares, slowest_syscall};
use crate::blame::Stall;
use crate::record::Start;
use crate::stalls::Cause;

/// What makes two parts of stalls one sample.
type Key = (Vec<u64>, Vec<Label>);

/// Collects stalled time and writes the profile at the end.
#[derive(Debug)]
pub struct Pprof {
    start: Start,
    settled: Settled,
    tables: Tables,
    samples: HashMap<Key, (i64, i64)>,
    /// Keys in the order in which they came.
    order: Vec<Key>,
}

impl Pprof {
    /// Without stalls.
    #[must_use]
    pub fn new(options: &ReportOptions) -> Self {
        Self {
            start: options.start.clone(),
            settled: Settled::default(),
            tables: Tables::default(),
            samples: HashMap::new(),
            order: Vec::new(),
        }
    }

    fn count(&mut self, stall: &Stall) {
        let shares = shares(stall);
        let largest = (0..shares.len()).max_by_key(|&at| (shares[at].ns, usize::MAX - at));
        for (at, share) in shares.iter().enumerate() {
            let locations = self.locations(share);
            let key = (locations, self.labels(stall, share.cause));
            let known = self.samples.contains_key(&key);
            let values = self.samples.entry(key.clone()).or_default();
            values.0 += i64::from(largest == Some(at));
            values.1 = values.1.saturating_add(i64::try_from(share.ns).unwrap_or(i64::MAX));
            if !known {
                self.order.push(key);
            }
        }
    }

    /// Innermost first, as the format wants it.
    fn locations(&mut self, share: &Share<'_>) -> Vec<u64> {
        match share.stack {
            Some(stack) if !stack.frames.is_empty() => self.tables.locations(&stack.frames),
            _ => vec![self.tables.pseudo(&format!("[{}, no stack]", share.cause.name()))],
        }
    }

    fn labels(&mut self, stall: &Stall, cause: Cause) -> Vec<Label> {
        let thread = format!("{} ({})", stall.thread, stall.tid);
        let mut labels = vec![
            self.tables.label("cause", cause.name()),
            self.tables.label("loop", &thread),
            self.tables.label("runtime", stall.runtime.name()),
        ];
        if let Some(task) = &stall.task {
            labels.push(self.tables.label("task", &task.name));
        }
        if cause == Cause::Syscall
            && let Some(call) = slowest_syscall(stall)
        {
            labels.push(self.tables.label("syscall", call));
        }
        labels.push(self.tables.number("pid", stall.pid.into()));
        labels
    }
}

impl Report for Pprof {
    fn stall(&mut self, _out: &mut dyn Write, stall: &Stall) -> io::Result<()> {
        let mut settled = std::mem::take(&mut self.settled);
        settled.add(stall, |stall| self.count(stall));
        self.settled = settled;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
        let mut settled = std::mem::take(&mut self.settled);
        settled.finish(|stall| self.count(stall));
        let type_of = |tables: &mut Tables, r#type, unit| ValueType {
            r#type: tables.string(r#type),
            unit: tables.string(unit),
        };
        let sample_type = vec![
            type_of(&mut self.tables, "stalls", "count"),
            type_of(&mut self.tables, "stalled", "nanoseconds"),
        ];
        let default_sample_type = self.tables.string("stalled");
        let comment = format!(
            "stallscope {}: time that event loops were kept from running, {}",
            env!("CARGO_PKG_VERSION"),
            self.start.subject
        );
        let comment = vec![self.tables.string(&comment)];
        let sample = std::mem::take(&mut self.order)
            .into_iter()
            .map(|key| {
                let (count, ns) = self.samples.get(&key).copied().unwrap_or_default();
                Sample { location_id: key.0, value: vec![count, ns], label: key.1 }
            })
            .collect();
        let tables = std::mem::take(&mut self.tables);
        let profile = tables.profile(proto::Profile {
            sample_type,
            sample,
            time_nanos: i64::try_from(self.start.began_unix_ns).unwrap_or(0),
            duration_nanos: i64::try_from(summary.observed_ns).unwrap_or(i64::MAX),
            comment,
            default_sample_type,
            ..proto::Profile::default()
        });
        let mut zip = GzEncoder::new(out, Compression::default());
        zip.write_all(&profile.encode_to_vec())?;
        zip.finish()?.flush()
    }
}
