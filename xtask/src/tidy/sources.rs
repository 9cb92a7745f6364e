//! What Rust files must and must not be: short, documented, finished, named for what they do.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::source_tree;

/// Longer than this, and two concerns live in a file.
const MOST_LINES: usize = 500;
/// Longer than this, and it is time to ask whether they do.
const MANY_LINES: usize = 400;
/// Names that say nothing about what belongs in a module, so that everything ends up there.
const EMPTY_NAMES: [&str; 5] = ["util", "utils", "helper", "helpers", "misc"];
/// What unfinished code looks like. In halves, so that this file does not find itself.
const LEFTOVERS: [&str; 5] = [
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("#[", "ignore"),
];

/// Modules whose name says nothing.
pub(super) fn bad_names(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for path in source_tree::files_ending(root, "rs")? {
        let named = path.with_extension("");
        let bad = named.iter().any(|part| EMPTY_NAMES.iter().any(|name| part == *name));
        if bad {
            complaints.push(format!("{}: name it after what it does", path.display()));
        }
    }
    Ok(complaints)
}

/// Files over the limit.
pub(super) fn too_long(root: &Path) -> Result<Vec<String>> {
    lengths(root, |lines| lines > MOST_LINES)
}

/// Files near the limit.
pub(super) fn long(root: &Path) -> Result<Vec<String>> {
    lengths(root, |lines| lines > MANY_LINES && lines <= MOST_LINES)
}

fn lengths(root: &Path, matches: impl Fn(usize) -> bool) -> Result<Vec<String>> {
    let sources = read_all(root)?.into_iter();
    let counted = sources.map(|(path, text)| (path, text.lines().count()));
    Ok(counted
        .filter(|(_, lines)| matches(*lines))
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect())
}

/// Places where work was left for later.
pub(super) fn leftovers(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for (path, text) in read_all(root)? {
        for (at, line) in text.lines().enumerate() {
            if let Some(leftover) = LEFTOVERS.iter().find(|leftover| has_word(line, leftover)) {
                complaints.push(format!("{}:{}: {leftover}", path.display(), at + 1));
            }
        }
    }
    Ok(complaints)
}

/// Files that do not begin by saying what they are for.
pub(super) fn without_docs(root: &Path) -> Result<Vec<String>> {
    let mut files = read_all(root)?;
    // What reports quote from is a program's source as a user may have it, not ours.
    files.retain(|(path, text)| {
        !path.starts_with("profiler-user/tests/report/sources") && !begins_with_docs(text)
    });
    Ok(files.iter().map(|(path, _)| format!("{}: no `//!` at its head", path.display())).collect())
}

fn begins_with_docs(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.find(|line| !line.starts_with("#!")).is_some_and(|line| line.starts_with("//!"))
}

/// Whether `word` stands in the line and is not a piece of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let opens = word.ends_with('(');
        !before.is_some_and(part_of_word) && (opens || !after.is_some_and(part_of_word))
    })
}

fn read_all(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root.join(&path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok((path, text))
    };
    source_tree::files_ending(root, "rs")?.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_is_named_after_what_it_does() {
        let bad = bad_names(source_tree::root()).expect("sources can be listed");
        assert!(bad.is_empty(), "{}", bad.join("\n"));
    }

    #[test]
    fn a_leftover_is_a_word_of_its_own() {
        let triple = LEFTOVERS[3];
        assert!(has_word(&format!("// {triple}: later"), triple));
        assert!(!has_word(&format!("mktemp name.{triple}{triple}"), triple));
        assert!(has_word(&format!("    {}\"later\")", LEFTOVERS[0]), LEFTOVERS[0]));
        assert!(has_word(&format!("{} = \"slow\"]", LEFTOVERS[4]), LEFTOVERS[4]));
    }

    #[test]
    fn docs_come_first_but_for_attributes() {
        assert!(begins_with_docs("#![no_std]\n\n//! What it is.\nfn main() {}"));
        assert!(!begins_with_docs("fn main() {}\n//! Late."));
        assert!(!begins_with_docs(""));
    }
}
