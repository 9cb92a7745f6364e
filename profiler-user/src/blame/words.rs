//! Words with a fixed vocabulary (`fork`, `recvfrom`, `SIGSTOP` …), read back from recordings.
//!
//! Verdicts hold them as `&'static str`. A recording may hold any text there, so what is read is kept
//! for the life of the process, each word once, and only so many: a recording made by an attacker
//! can't fill the memory with them.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer};

/// Far more than there are system calls and details.
const MAX_WORDS: usize = 8192;
/// Longer than any of them, including why a stack ends.
const MAX_BYTES: usize = 200;
/// What stands for a word that is too long or one too many.
const ODD: &str = "(odd word in the recording)";

/// A word with a fixed vocabulary. (Under this name, serde does not take it for borrowed data.)
pub type Word = &'static str;

static WORDS: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);

/// The one copy of a word.
#[must_use]
pub(crate) fn keep(word: &str) -> Word {
    // A set of words is never half changed.
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let words = words.get_or_insert_default();
    if let Some(known) = words.get(word) {
        return known;
    }
    if word.len() > MAX_BYTES || words.len() >= MAX_WORDS {
        return ODD;
    }
    let kept: &'static str = Box::leak(Box::from(word));
    words.insert(kept);
    kept
}

/// Reads a word.
pub(crate) fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Word, D::Error> {
    Ok(keep(&std::borrow::Cow::<str>::deserialize(deserializer)?))
}

/// Reads a word that may be missing.
pub(crate) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Word>, D::Error> {
    let text = Option::<std::borrow::Cow<str>>::deserialize(deserializer)?;
    Ok(text.as_deref().map(keep))
}

#[cfg(test)]
mod tests {
    use super::{ODD, keep};

    #[test]
    fn a_word_is_kept_once() {
        let word = String::from("clock_nanosleep");
        assert!(std::ptr::eq(keep(&word), keep("clock_nanosleep")));
        assert_eq!(keep(&"x".repeat(201)), ODD);
    }
}
