//! Files, lines and exact weights, which the library that makes the profile has no words for.
//!
//! Frames go into it under a label that stands for name, file and line. Afterwards the labels in the
//! finished profile are replaced by the names, and the columns for files and lines are filled in.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::symbolize::{Frame, printable};

/// Separates the parts of a label. Printable text has none.
const SEPARATOR: char = '\u{1f}';

/// What labels stand for.
#[derive(Debug, Default)]
pub(super) struct Places {
    by_label: HashMap<String, Place>,
}

#[derive(Debug, Clone)]
struct Place {
    function: String,
    file: Option<String>,
    line: Option<u32>,
}

impl Places {
    /// The label of a frame.
    pub(super) fn of(&mut self, frame: &Frame) -> String {
        let function = match &*printable(&frame.function) {
            "" => "?".to_owned(),
            name => name.to_owned(),
        };
        let file = frame.file.as_deref().map(|file| printable(file).into_owned());
        let label = format!(
            "{function}{SEPARATOR}{}{SEPARATOR}{}",
            file.as_deref().unwrap_or(""),
            frame.line.unwrap_or(0)
        );
        let place = Place { function, file, line: frame.line };
        self.by_label.entry(label.clone()).or_insert(place);
        label
    }

    /// The label of what is no code.
    pub(super) fn word(&mut self, word: &str) -> String {
        word.to_owned()
    }

    /// Puts names, files, lines and weights into the finished profile.
    pub(super) fn put(&self, profile: &mut Value) {
        let Some(threads) = profile.get_mut("threads").and_then(Value::as_array_mut) else {
            return;
        };
        for thread in threads {
            self.put_thread(thread);
        }
    }

    fn put_thread(&self, thread: &mut Value) -> Option<()> {
        let mut strings: Vec<Value> =
            std::mem::take(thread.get_mut("stringArray")?.as_array_mut()?);
        let mut ids: HashMap<String, usize> = HashMap::new();
        let mut funcs = Vec::new();
        for index in thread["funcTable"]["name"].as_array()? {
            let label = index.as_u64().and_then(|index| strings.get(index as usize)?.as_str());
            funcs.push(label.and_then(|label| self.by_label.get(label)).cloned());
        }
        for (index, text) in strings.iter_mut().enumerate() {
            if let Some(place) = text.as_str().and_then(|text| self.by_label.get(text)) {
                *text = Value::from(place.function.as_str());
            }
            if let Some(text) = text.as_str() {
                ids.entry(text.to_owned()).or_insert(index);
            }
        }
        let table = thread.get_mut("funcTable")?;
        for (at, place) in funcs.iter().enumerate() {
            let Some(place) = place else { continue };
            if let Some(file) = &place.file {
                let id = *ids.entry(file.clone()).or_insert_with(|| {
                    strings.push(Value::from(file.as_str()));
                    strings.len() - 1
                });
                set(table, "fileName", at, json!(id));
            }
            if let Some(line) = place.line {
                set(table, "lineNumber", at, json!(line));
            }
        }
        *thread.get_mut("stringArray")? = Value::from(strings);
        let frames: Vec<Option<u64>> =
            thread["frameTable"]["func"].as_array()?.iter().map(Value::as_u64).collect();
        let table = thread.get_mut("frameTable")?;
        for (at, func) in frames.into_iter().enumerate() {
            let place = func.and_then(|func| funcs.get(func as usize)?.as_ref());
            if let Some(line) = place.and_then(|place| place.line) {
                set(table, "line", at, json!(line));
            }
        }
        // Weights are milliseconds; the library takes integers, so it was given microseconds.
        for weight in thread.get_mut("samples")?.get_mut("weight")?.as_array_mut()? {
            if let Some(micros) = weight.as_i64() {
                *weight = json!(micros as f64 / 1000.0);
            }
        }
        Some(())
    }
}

/// Sets one cell of a table that is kept by columns.
fn set(table: &mut Value, column: &str, at: usize, value: Value) {
    if let Some(cell) = table.get_mut(column).and_then(|column| column.get_mut(at)) {
        *cell = value;
    }
}
