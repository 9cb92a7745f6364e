//! Text from the target made safe to print.

use std::borrow::Cow;

/// Longest text that reports show, in characters; template-heavy C++ names get longer.
const MAX_CHARS: usize = 4096;

/// Removes what could steer a terminal or forge a line of a report, and cuts at 4096 characters.
///
/// Names, paths and modules are chosen by the program being watched: a symbol may hold escape
/// sequences, line breaks or bidirectional overrides. Those are dropped; a cut ends in `…`.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    // A text of at most that many bytes has at most that many characters.
    if text.len() <= MAX_CHARS && !text.chars().any(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut kept = text.chars().filter(|&c| !is_unprintable(c));
    let mut out: String = kept.by_ref().take(MAX_CHARS).collect();
    if kept.next().is_some() {
        out.push('…');
    }
    Cow::Owned(out)
}

/// Control characters (C0, DEL, C1), line separators, and the marks that reorder text.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_borrowed_and_escapes_are_dropped() {
        assert!(matches!(printable("app::größe"), Cow::Borrowed("app::größe")));
        assert_eq!(printable("a\u{1b}[31m\nb\u{9b}c\u{202e}d"), "a[31mbcd");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let long = "ä".repeat(5000);
        let cut = printable(&long);
        assert_eq!(cut.chars().count(), MAX_CHARS + 1);
        assert!(cut.ends_with('…'));
        let fits = "ä".repeat(4096);
        assert_eq!(printable(&fits), fits);
    }
}
