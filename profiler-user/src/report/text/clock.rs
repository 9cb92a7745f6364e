//! The time of day of a stall.

use crate::report::Clock;

/// `HH:MM:SS.mmm`.
pub(super) fn time_of_day(unix_ns: u64, clock: Clock) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let millis = unix_ns / 1_000_000 % 1000;
    let local = if clock == Clock::Local { local_second_of_day(seconds) } else { None };
    let second = local.unwrap_or(seconds % 86_400);
    format!("{:02}:{:02}:{:02}.{millis:03}", second / 3600, second / 60 % 60, second % 60)
}

/// Seconds since local midnight; `None` if the C library can't tell.
fn local_second_of_day(unix_seconds: u64) -> Option<u64> {
    let time = libc::time_t::try_from(unix_seconds).ok()?;
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to live values of the right types, which `localtime_r` reads and
    // fills; all-zero bytes are a valid `tm` (its one pointer may be null) in any case.
    let parts = unsafe {
        if libc::localtime_r(&raw const time, parts.as_mut_ptr()).is_null() {
            return None;
        }
        parts.assume_init()
    };
    let field = |value: libc::c_int| u64::try_from(value).ok();
    Some(field(parts.tm_hour)? * 3600 + field(parts.tm_min)? * 60 + field(parts.tm_sec)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_is_arithmetic() {
        assert_eq!(time_of_day(1_700_000_000_123_999_999, Clock::Utc), "22:13:20.123");
        assert_eq!(time_of_day(0, Clock::Utc), "00:00:00.000");
    }

    #[test]
    fn local_time_is_a_time_of_day() {
        let text = time_of_day(1_700_000_000_123_000_000, Clock::Local);
        // Zones differ from UTC by whole minutes, if at all.
        assert!(text.ends_with(":20.123"), "{text}");
    }
}
