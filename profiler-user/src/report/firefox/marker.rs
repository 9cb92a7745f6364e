//! The marker of a stall: what the profiler's marker chart and table say about it.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, Profile, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle,
};

use crate::aggregate::headline_word;
use crate::blame::Stall;
use crate::symbolize::printable;

/// A stall with its texts in the profile's table.
#[derive(Debug, Clone)]
pub(super) struct StallMarker {
    name: StringHandle,
    category: CategoryHandle,
    /// In the order of [`StaticSchemaMarker::FIELDS`].
    fields: [StringHandle; 4],
}

impl StallMarker {
    pub(super) fn new(profile: &mut Profile, stall: &Stall, category: CategoryHandle) -> Self {
        let cause = match headline_word(stall) {
            Some(word) => format!("{} · {word}", stall.cause.name()),
            None => stall.cause.name().to_owned(),
        };
        let blocker = stall.blocker.as_ref().map_or_else(String::new, |blocker| {
            match (&blocker.file, blocker.line) {
                (Some(file), Some(line)) => format!("{}  {file}:{line}", blocker.function),
                _ => blocker.function.to_string(),
            }
        });
        let task = stall.task.as_ref().map_or("", |task| &task.name);
        let advice = stall.advice.as_deref().unwrap_or("");
        let mut text = |text: &str| profile.intern_string(&printable(text));
        let fields = [text(&cause), text(&blocker), text(task), text(advice)];
        Self { name: text("Stall"), category, fields }
    }
}

const fn field(key: &'static str, label: &'static str) -> StaticSchemaMarkerField {
    StaticSchemaMarkerField {
        key,
        label,
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::SEARCHABLE,
    }
}

impl StaticSchemaMarker for StallMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Stall";
    const DESCRIPTION: Option<&'static str> =
        Some("A turn of an event loop over the threshold: nothing else ran on the loop meanwhile");
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.stalledBy}");
    const TOOLTIP_LABEL: Option<&'static str> =
        Some("{marker.data.stalledBy}: {marker.data.blocker}");
    const TABLE_LABEL: Option<&'static str> =
        Some("{marker.data.stalledBy}: {marker.data.blocker}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        // `cause` is the name of a marker's stack in this format.
        field("stalledBy", "Cause"),
        field("blocker", "Blocker"),
        field("task", "Task"),
        field("advice", "Advice"),
    ];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, field_index: u32) -> StringHandle {
        self.fields.get(field_index as usize).copied().unwrap_or(self.name)
    }

    fn number_field_value(&self, _field_index: u32) -> f64 {
        // No field is a number.
        0.0
    }
}
