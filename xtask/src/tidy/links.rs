//! Relative links in Markdown that lead nowhere, to a file or to a heading.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::source_tree;

/// Every dead link of every Markdown file.
pub(super) fn dead(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for path in source_tree::files_ending(root, "md")? {
        let text = read(&root.join(&path))?;
        for (line, target) in links(&text) {
            if let Some(reason) = why_dead(&root.join(&path), &text, &target)? {
                complaints.push(format!("{}:{line}: {target}: {reason}", path.display()));
            }
        }
    }
    Ok(complaints)
}

fn why_dead(file: &Path, text: &str, target: &str) -> Result<Option<&'static str>> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(None);
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let folder = file.parent().context("a file without a folder")?;
    let other = if path.is_empty() { file.to_owned() } else { folder.join(path) };
    if !other.exists() {
        return Ok(Some("no such file"));
    }
    if heading.is_empty() || other.extension().is_none_or(|extension| extension != "md") {
        return Ok(None);
    }
    let other_text = if path.is_empty() { text.to_owned() } else { read(&other)? };
    let found = prose(&other_text).any(|(_, line)| anchor(line).as_deref() == Some(heading));
    Ok((!found).then_some("no such heading"))
}

/// Targets of inline links and of reference definitions, with their line numbers.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        if let Some((label, target)) = line.split_once("]: ")
            && label.starts_with('[')
        {
            found.push((number, target.trim().to_owned()));
        }
        let mut rest = line.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let Some(end) = rest.find(')') else { break };
            let target = rest[..end].split(' ').next().unwrap_or_default();
            found.push((number, target.to_owned()));
            rest = &rest[end..];
        }
    }
    found
}

/// The lines outside of fenced code, counted from one.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((at + 1, line))
    })
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// The anchor that forges make of a heading.
fn anchor(line: &str) -> Option<String> {
    let heading = line.trim_start_matches('#');
    if heading.len() == line.len() || !heading.starts_with(' ') {
        return None;
    }
    let kept =
        heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_in_the_documents_is_dead() {
        let dead = dead(source_tree::root()).expect("documents can be read");
        assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
    }

    #[test]
    fn links_in_code_are_not_links() {
        let text = "see [a](one.md) and `[b](two.md)`\n```\n[c](three.md)\n```\n[d]: four.md\n";
        assert_eq!(links(text), [(1, "one.md".to_owned()), (5, "four.md".to_owned())]);
    }

    #[test]
    fn a_heading_is_found_by_its_anchor() {
        assert_eq!(anchor("## What it isn't, yet").as_deref(), Some("what-it-isnt-yet"));
        assert_eq!(anchor("plain text"), None);
        assert_eq!(anchor("#[attribute]"), None);
    }
}
