//! Log-linear (HDR) histogram of durations: at most 3.2 % wide buckets from 1 ns to 73 minutes.
//!
//! Buckets below 32 ns are exact; above, every power of two is divided into 32 equal parts, so a
//! bucket's middle is within 1.6 % of every value in it.

const SUB_BITS: u32 = 5;
const SUB: u64 = 1 << SUB_BITS;
/// Durations of this many bits and more go into the last bucket.
const MAX_BITS: u32 = 42;
/// Number of buckets.
pub const BUCKETS: usize = (MAX_BITS - SUB_BITS + 1) as usize * SUB as usize;

/// Counts of turns by duration.
pub type Histogram = [u64; BUCKETS];

/// The bucket of a duration in nanoseconds.
#[inline(always)]
#[must_use]
pub const fn bucket(ns: u64) -> usize {
    if ns < SUB {
        return ns as usize;
    }
    if ns >> MAX_BITS != 0 {
        return BUCKETS - 1;
    }
    // Position of the highest set bit by bisection: BPF has no instruction for it.
    let mut rest = ns >> SUB_BITS;
    let mut shift: u32 = 0;
    if rest >> 32 != 0 {
        rest >>= 32;
        shift += 32;
    }
    if rest >> 16 != 0 {
        rest >>= 16;
        shift += 16;
    }
    if rest >> 8 != 0 {
        rest >>= 8;
        shift += 8;
    }
    if rest >> 4 != 0 {
        rest >>= 4;
        shift += 4;
    }
    if rest >> 2 != 0 {
        rest >>= 2;
        shift += 2;
    }
    if rest >> 1 != 0 {
        shift += 1;
    }
    let sub = (ns >> shift) - SUB;
    ((shift as u64 + 1) * SUB + sub) as usize
}

/// The lowest duration of a bucket and the first above it, in nanoseconds.
#[must_use]
pub const fn bounds(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    if bucket < SUB {
        return (bucket, bucket + 1);
    }
    let shift = bucket / SUB - 1;
    let low = (SUB + bucket % SUB) << shift;
    (low, low + (1 << shift))
}

/// The duration at a quantile (0 to 1): the middle of the bucket that holds it; 0 without counts.
#[must_use]
pub fn quantile(histogram: &[u64], q: f64) -> u64 {
    let total: u64 = histogram.iter().sum();
    if total == 0 {
        return 0;
    }
    // Nearest rank: the smallest value with at least q of the counts at or below it.
    let exact = q * total as f64;
    let mut rank = exact as u64;
    if (rank as f64) < exact {
        rank += 1;
    }
    let rank = rank.clamp(1, total);
    let mut seen = 0;
    for (index, count) in histogram.iter().enumerate() {
        seen += count;
        if seen >= rank {
            let (low, high) = bounds(index);
            return low + (high - low) / 2;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_falls_into_the_bucket_that_bounds_it() {
        let mut ns = 0_u64;
        while ns >> MAX_BITS == 0 {
            let (low, high) = bounds(bucket(ns));
            assert!(low <= ns && ns < high, "{ns} not in {low}..{high}");
            assert!((high - low) * 32 <= low.max(32), "{ns}: bucket wider than 1/32");
            ns = ns + ns / 61 + 1;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket((1 << MAX_BITS) - 1), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_three_percent() {
        let mut histogram = [0; BUCKETS];
        for ms in 1..=1000_u64 {
            histogram[bucket(ms * 1_000_000)] += 1;
        }
        for (q, expected) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = quantile(&histogram, q) as f64 / 1e6;
            assert!((found / expected - 1.0).abs() < 0.03, "{q}: {found} instead of {expected}");
        }
        assert_eq!(quantile(&[0; BUCKETS], 0.5), 0);
    }
}
