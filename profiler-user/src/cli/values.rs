//! Values of flags: human durations, sizes and shares, with absurd ones refused.

use std::time::Duration;

use regex::Regex;

/// Shortest threshold: below it, the measurement itself is what is measured.
const MIN_THRESHOLD: Duration = Duration::from_micros(10);
const MAX_THRESHOLD: Duration = Duration::from_secs(3600);
/// Shortest observation that can say anything.
const MIN_DURATION: Duration = Duration::from_millis(10);
const MAX_DURATION: Duration = Duration::from_secs(30 * 86_400);
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Stacks are copied page by page.
const PAGE: usize = 4096;
const MAX_STACK: usize = 128 << 10;

fn duration(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let value = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write it like 10ms, 250us or 1s"))?;
    if value < min || value > max {
        let (min, max) = (humantime::format_duration(min), humantime::format_duration(max));
        return Err(format!("must be between {min} and {max}"));
    }
    Ok(value)
}

pub(super) fn threshold(text: &str) -> Result<Duration, String> {
    duration(text, MIN_THRESHOLD, MAX_THRESHOLD)
}

pub(super) fn observation(text: &str) -> Result<Duration, String> {
    duration(text, MIN_DURATION, MAX_DURATION)
}

pub(super) fn interval(text: &str) -> Result<Duration, String> {
    duration(text, MIN_INTERVAL, MAX_DURATION)
}

pub(super) fn min_duration(text: &str) -> Result<Duration, String> {
    duration(text, Duration::ZERO, MAX_DURATION)
}

/// A point in time: as written, since a recording's beginning depends on the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// So long after the beginning.
    After(Duration),
    /// Nanoseconds since the epoch.
    Unix(u64),
}

impl Moment {
    /// Nanoseconds since the epoch, where the beginning is known.
    #[must_use]
    pub fn unix_ns(self, began_unix_ns: u64) -> u64 {
        match self {
            Self::After(time) => {
                began_unix_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
            }
            Self::Unix(ns) => ns,
        }
    }
}

pub(super) fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(time) = humantime::parse_duration(text) {
        return Ok(Moment::After(time));
    }
    let wrong = "write it like 10s, or like 2026-11-30T14:03:07Z (UTC)";
    let time = humantime::parse_rfc3339_weak(text).map_err(|_| wrong)?;
    let since_epoch = time.duration_since(std::time::UNIX_EPOCH).map_err(|_| wrong)?;
    Ok(Moment::Unix(u64::try_from(since_epoch.as_nanos()).map_err(|_| wrong)?))
}

/// A size of a file: `100MiB`, `1g`.
pub(super) fn max_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err("write it like 100MiB or 1GiB".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "write it like 100MiB or 1GiB")?;
    let bytes = number.saturating_mul(1 << shift);
    if (crate::record::MIN_BOUND..=2 << 30).contains(&bytes) {
        Ok(bytes)
    } else {
        Err("must be between 1MiB and 2GiB".to_owned())
    }
}

/// A percentage as a share: `1%` is 0.01.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let number =
        text.trim().strip_suffix('%').ok_or("write it as a percentage, like 1% or 0.5%")?;
    let percent: f64 = number.trim().parse().map_err(|_| "write it as a percentage, like 1%")?;
    if !(percent > 0.0 && percent <= 100.0) {
        return Err("must be above 0% and at most 100%".to_owned());
    }
    Ok(percent / 100.0)
}

/// By how much something may grow: `10%` is 0.1, and `0%` is allowed.
pub(super) fn growth(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').ok_or("write it as a percentage, like 10%")?;
    let percent: f64 = number.trim().parse().map_err(|_| "write it as a percentage, like 10%")?;
    if !(0.0..=100_000.0).contains(&percent) {
        return Err("must be between 0% and 100000%".to_owned());
    }
    Ok(percent / 100.0)
}

/// A size in bytes, rounded up to whole pages: `36KiB`, `64k`, `131072`.
pub(super) fn stack_bytes(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        _ => return Err("write it like 36KiB, 64k or 131072".to_owned()),
    };
    let number: usize = number.parse().map_err(|_| "write it like 36KiB, 64k or 131072")?;
    match number.checked_mul(unit) {
        Some(bytes) if (PAGE..=MAX_STACK).contains(&bytes) => Ok(bytes.next_multiple_of(PAGE)),
        _ => Err("must be between 4KiB and 128KiB".to_owned()),
    }
}

pub(super) fn regex(text: &str) -> Result<Regex, String> {
    if text.is_empty() {
        return Err("an empty expression matches everything".to_owned());
    }
    Regex::new(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_human_and_sane() {
        assert_eq!(threshold("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(threshold("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(threshold("1s"), Ok(Duration::from_secs(1)));
        for wrong in ["0ms", "0s", "-1s", "10", "1us", "2h", "", "soon", "99999999999999999999s"] {
            assert!(threshold(wrong).is_err(), "{wrong}");
        }
        assert!(observation("0s").is_err());
        assert!(observation("3650days").is_err());
        assert!(interval("1ms").is_err());
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(share("0.5 %"), Ok(0.005));
        for wrong in ["1", "0%", "-1%", "101%", "NaN%", "inf%", "%", "one%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn stacks_are_whole_pages() {
        assert_eq!(stack_bytes("36KiB"), Ok(36 << 10));
        assert_eq!(stack_bytes("64k"), Ok(64 << 10));
        assert_eq!(stack_bytes("5000"), Ok(8192));
        assert_eq!(stack_bytes("128 KiB"), Ok(128 << 10));
        for wrong in ["0", "1", "129KiB", "1m", "-4k", "k", "4x", "99999999999999999999"] {
            assert!(stack_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn moments_are_offsets_or_times() {
        assert_eq!(moment("10s"), Ok(Moment::After(Duration::from_secs(10))));
        let second = 1_000_000_000;
        assert_eq!(moment("1970-01-01T00:00:02Z"), Ok(Moment::Unix(2 * second)));
        assert_eq!(moment("1970-01-01 00:00:02"), Ok(Moment::Unix(2 * second)));
        assert_eq!(Moment::After(Duration::from_secs(3)).unix_ns(second), 4 * second);
        for wrong in ["", "soon", "14:03", "1969-01-01T00:00:00Z"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(max_size("100MiB"), Ok(100 << 20));
        assert_eq!(max_size("1 g"), Ok(1 << 30));
        for wrong in ["", "0", "100", "1k", "3GiB", "-1m", "99999999999999999999g"] {
            assert!(max_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_expressions() {
        assert!(regex("^uvicorn$").is_ok());
        assert!(regex("(").is_err());
        assert!(regex("").is_err());
    }
}
