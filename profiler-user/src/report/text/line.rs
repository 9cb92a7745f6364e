//! One line of the terminal: the only way text gets there, so the place where names are made safe.

use std::borrow::Cow;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

/// What a piece of text is, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// Ordinary text.
    Plain,
    /// Less important: labels, frames of libraries.
    Dim,
    /// Important: the blocker, the user's own frames.
    Strong,
    /// How long.
    Duration,
    /// Why.
    Cause,
    /// What to do.
    Advice,
    /// What may make the numbers wrong.
    Warning,
}

impl Tone {
    const fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Dim => Style::new().dimmed(),
            Self::Strong => Style::new().bold(),
            Self::Duration => AnsiColor::Red.on_default().bold(),
            Self::Cause => AnsiColor::Yellow.on_default(),
            Self::Advice => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Magenta.on_default(),
        }
    }
}

/// Pieces of text that make one line.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    pieces: Vec<(Tone, String)>,
}

impl Line {
    /// A line that begins with this many spaces.
    pub(super) fn indented(columns: usize) -> Self {
        Self::default().with(Tone::Plain, &" ".repeat(columns))
    }

    /// Adds text, made safe for a terminal.
    pub(super) fn push(&mut self, tone: Tone, text: &str) {
        if !text.is_empty() {
            self.pieces.push((tone, printable(text).into_owned()));
        }
    }

    /// The same, in a chain.
    pub(super) fn with(mut self, tone: Tone, text: &str) -> Self {
        self.push(tone, text);
        self
    }

    /// Adds text and spaces up to `columns`; the text goes to the left.
    pub(super) fn left(self, tone: Tone, text: &str, columns: usize) -> Self {
        let gap = columns.saturating_sub(width(text));
        self.with(tone, text).with(Tone::Plain, &" ".repeat(gap))
    }

    /// Adds spaces up to `columns` and text; the text goes to the right.
    pub(super) fn right(self, tone: Tone, text: &str, columns: usize) -> Self {
        let gap = columns.saturating_sub(width(text));
        self.with(Tone::Plain, &" ".repeat(gap)).with(tone, text)
    }

    /// Columns filled so far.
    pub(super) fn width(&self) -> usize {
        self.pieces.iter().map(|(_, text)| width(text)).sum()
    }

    /// Adds the pieces of another line.
    pub(super) fn append(&mut self, other: Self) {
        self.pieces.extend(other.pieces);
    }

    /// Writes the line and its end.
    pub(super) fn write(&self, out: &mut dyn Write, color: bool) -> io::Result<()> {
        let mut text = String::new();
        for (tone, piece) in &self.pieces {
            let style = tone.style();
            if color && style != Style::new() && !piece.trim().is_empty() {
                text.push_str(&format!("{style}{piece}{style:#}"));
            } else {
                text.push_str(piece);
            }
        }
        out.write_all(text.trim_end_matches(' ').as_bytes())?;
        out.write_all(b"\n")
    }
}

/// Columns of a text. Wide and combining characters are counted as one: rare in names of functions
/// and files, and all that suffers is alignment.
pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Text without anything that a terminal would obey: control characters, and the marks that change
/// the direction of writing or are not seen.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect())
}

fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A text in at most `columns`, its beginning left out: of `a::b::c` and of `/a/b/c.rs` the end
/// says most.
pub(super) fn keep_end(text: &str, columns: usize) -> Cow<'_, str> {
    let excess = width(text).saturating_sub(columns);
    if excess == 0 {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().skip(excess + 1).collect();
    Cow::Owned(format!("…{kept}"))
}

/// A text in at most `columns`, its end left out.
pub(super) fn keep_start(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
    Cow::Owned(format!("{kept}…"))
}

/// Words on lines of at most `columns`; a longer word stands alone.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    flow(text.split_whitespace(), " ", columns)
}

/// Parts that must not be broken, on lines of at most `columns`, with `gap` between them.
pub(super) fn flow<'a>(
    parts: impl Iterator<Item = &'a str>,
    gap: &str,
    columns: usize,
) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(last) if width(last) + width(gap) + width(part) <= columns => {
                last.push_str(gap);
                last.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_get_no_commands() {
        let line = Line::default().with(Tone::Plain, "a\x1b[2Jb\r\n\u{9b}31m\u{202e}c\u{7f}");
        let mut out = Vec::new();
        line.write(&mut out, true).expect("a vector takes everything");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text, "a�[2Jb���31m�c�\n");
    }

    #[test]
    fn colour_only_where_asked_for() {
        let line = Line::default().with(Tone::Strong, "x").with(Tone::Plain, "  ");
        let mut out = Vec::new();
        line.write(&mut out, false).expect("a vector takes everything");
        assert_eq!(out, b"x\n");
        line.write(&mut out, true).expect("a vector takes everything");
        assert!(out.contains(&0x1b));
    }

    #[test]
    fn shortened_texts_fit() {
        assert_eq!(keep_end("abcdef", 4), "…def");
        assert_eq!(keep_start("abcdef", 4), "abc…");
        assert_eq!(keep_end("abc", 4), "abc");
        assert_eq!(wrap("aa bb cccccc d", 5), ["aa bb", "cccccc", "d"]);
    }
}
