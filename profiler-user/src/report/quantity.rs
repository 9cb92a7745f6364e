//! Numbers as people read them: three significant digits, a unit, a space between.

/// A duration in nanoseconds with three significant digits: `312 µs`, `50.4 ms`, `1.00 s`. From
/// 1000 s on in minutes and seconds, from 100 minutes on in hours and minutes.
#[must_use]
pub fn duration(ns: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    if ns < 1000 {
        return format!("{ns} ns");
    }
    for (unit, per_unit) in UNITS {
        // Hundredths, tenths, ones: the first step at which three digits are enough.
        for (places, divisor) in [(2_usize, 100_u64), (1, 10), (0, 1)] {
            let step = per_unit / divisor;
            let scaled = ns / step + u64::from(ns % step >= step.div_ceil(2));
            if scaled < 1000 {
                let (whole, part) = (scaled / divisor, scaled % divisor);
                return if places == 0 {
                    format!("{whole} {unit}")
                } else {
                    format!("{whole}.{part:0places$} {unit}")
                };
            }
        }
    }
    let seconds = ns / 1_000_000_000 + u64::from(ns % 1_000_000_000 >= 500_000_000);
    if seconds < 6000 {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    } else {
        format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60)
    }
}

/// A duration that somebody chose, in nanoseconds, without rounding or idle zeros: `10 ms`, `1.5 s`.
#[must_use]
pub fn exact(ns: u64) -> String {
    let (unit, per_unit) = match ns {
        0..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    let (whole, part) = (ns / per_unit, ns % per_unit);
    if part == 0 {
        return format!("{whole} {unit}");
    }
    let places = per_unit.ilog10() as usize;
    let digits = format!("{part:0places$}");
    format!("{whole}.{} {unit}", digits.trim_end_matches('0'))
}

/// A share from 0 to 1 in per cent: `99.8 %`, `< 0.1 %`, `100 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if !percent.is_finite() {
        "? %".to_owned()
    } else if percent >= 99.95 {
        format!("{percent:.0} %")
    } else if percent > 0.0 && percent < 0.1 {
        "< 0.1 %".to_owned()
    } else {
        format!("{percent:.1} %")
    }
}

/// A count with thousands apart: `12,345`.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count and its noun: `1 stall`, `2 stalls`.
#[must_use]
pub fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A part of a whole as a share; 0 of nothing.
#[must_use]
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::{count, counted, duration, exact, percent};

    #[test]
    fn durations_have_three_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (312_400, "312 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (50_440_000, "50.4 ms"),
            (9_995_000, "10.0 ms"),
            (201_400_000, "201 ms"),
            (999_600_000, "1.00 s"),
            (1_004_000_000, "1.00 s"),
            (34_000_000_000, "34.0 s"),
            (999_499_000_000, "999 s"),
            (999_500_000_000, "16 min 40 s"),
            (7_260_000_000_000, "2 h 01 min"),
        ] {
            assert_eq!(duration(ns), text, "{ns}");
        }
        assert_eq!(duration(u64::MAX), "5124095 h 34 min");
    }

    #[test]
    fn chosen_durations_stay_as_chosen() {
        assert_eq!(exact(10_000_000), "10 ms");
        assert_eq!(exact(250_000), "250 µs");
        assert_eq!(exact(1_500_000_000), "1.5 s");
        assert_eq!(exact(0), "0 ns");
    }

    #[test]
    fn shares_and_counts() {
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.998), "99.8 %");
        assert_eq!(percent(0.0004), "< 0.1 %");
        assert_eq!(percent(0.0), "0.0 %");
        assert_eq!(percent(f64::NAN), "? %");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(counted(1, "stall"), "1 stall");
        assert_eq!(counted(2000, "stall"), "2,000 stalls");
    }
}
