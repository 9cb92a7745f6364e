//! The tables of a profile: strings, functions, mappings and locations, each thing once.

use std::collections::HashMap;

use super::proto::{Function, Label, Line, Location, Mapping, Profile};
use crate::symbolize::{Frame, printable};

/// What makes two locations the same: binary, address, and the lines of the frames there.
type Place = (u64, u64, Vec<Line>);

/// Bits of an address as the linker gives them.
const MASK: u64 = (1 << 48) - 1;

/// Where a mapping lies in the profile: apart from all others, so that an address tells its binary.
const fn base(mapping: u64) -> u64 {
    (mapping & 0x7fff) << 48
}

#[derive(Debug)]
pub(super) struct Tables {
    strings: Vec<String>,
    string_ids: HashMap<String, i64>,
    functions: Vec<Function>,
    function_ids: HashMap<(i64, i64), u64>,
    mappings: Vec<Mapping>,
    mapping_ids: HashMap<i64, u64>,
    locations: Vec<Location>,
    location_ids: HashMap<Place, u64>,
}

impl Default for Tables {
    fn default() -> Self {
        let mut tables = Self {
            strings: Vec::new(),
            string_ids: HashMap::new(),
            functions: Vec::new(),
            function_ids: HashMap::new(),
            mappings: Vec::new(),
            mapping_ids: HashMap::new(),
            locations: Vec::new(),
            location_ids: HashMap::new(),
        };
        // The first string has to be the empty one.
        tables.string("");
        tables
    }
}

impl Tables {
    /// The index of a string.
    pub(super) fn string(&mut self, text: &str) -> i64 {
        let text = printable(text);
        if let Some(&known) = self.string_ids.get(&*text) {
            return known;
        }
        let new = self.strings.len() as i64;
        self.strings.push(text.clone().into_owned());
        self.string_ids.insert(text.into_owned(), new);
        new
    }

    pub(super) fn label(&mut self, key: &str, value: &str) -> Label {
        Label { key: self.string(key), str: self.string(value), num: 0 }
    }

    pub(super) fn number(&mut self, key: &str, value: i64) -> Label {
        Label { key: self.string(key), str: 0, num: value }
    }

    /// The locations of a stack, innermost first. Frames that were inlined share the location of the
    /// function they were inlined into.
    pub(super) fn locations(&mut self, root_first: &[Frame]) -> Vec<u64> {
        let mut locations = Vec::with_capacity(root_first.len());
        let mut at = 0;
        while at < root_first.len() {
            let mut end = at + 1;
            while end < root_first.len() && root_first[end].inlined {
                end += 1;
            }
            locations.push(self.location(&root_first[at..end]));
            at = end;
        }
        locations.reverse();
        locations
    }

    /// The location of what is no code.
    pub(super) fn pseudo(&mut self, name: &str) -> u64 {
        let function_id = self.function(name, "");
        self.place(0, 0, vec![Line { function_id, line: 0 }])
    }

    fn location(&mut self, outermost_first: &[Frame]) -> u64 {
        let Some(outermost) = outermost_first.first() else { return 0 };
        let mapping = outermost.module.clone().map_or(0, |module| {
            self.mapping(&module, outermost.origin.build_id.as_deref().unwrap_or(""))
        });
        // Innermost first.
        let mut lines = Vec::with_capacity(outermost_first.len());
        for frame in outermost_first.iter().rev() {
            let function_id = self.function(&frame.function, frame.file.as_deref().unwrap_or(""));
            lines.push(Line { function_id, line: frame.line.map_or(0, i64::from) });
        }
        let address =
            outermost.origin.address.map_or(0, |address| base(mapping) + (address & MASK));
        self.place(mapping, address, lines)
    }

    fn place(&mut self, mapping_id: u64, address: u64, line: Vec<Line>) -> u64 {
        let id = self.locations.len() as u64 + 1;
        let place = (mapping_id, address, line);
        if let Some(&known) = self.location_ids.get(&place) {
            return known;
        }
        self.locations.push(Location { id, mapping_id, address, line: place.2.clone() });
        self.location_ids.insert(place, id);
        id
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let name = if name.is_empty() { "?" } else { name };
        let key = (self.string(name), self.string(file));
        let id = self.functions.len() as u64 + 1;
        *self.function_ids.entry(key).or_insert_with(|| {
            self.functions.push(Function { id, name: key.0, system_name: key.0, filename: key.1 });
            id
        })
    }

    fn mapping(&mut self, module: &str, build_id: &str) -> u64 {
        let filename = self.string(module);
        let build_id = self.string(build_id);
        let id = self.mappings.len() as u64 + 1;
        *self.mapping_ids.entry(filename).or_insert_with(|| {
            self.mappings.push(Mapping {
                id,
                memory_start: base(id),
                memory_limit: base(id) + MASK,
                filename,
                build_id,
                // All that is known is in the profile: nothing is to be looked up.
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            });
            id
        })
    }

    /// The profile with these tables.
    pub(super) fn profile(self, rest: Profile) -> Profile {
        Profile {
            mapping: self.mappings,
            location: self.locations,
            function: self.functions,
            string_table: self.strings,
            ..rest
        }
    }
}
