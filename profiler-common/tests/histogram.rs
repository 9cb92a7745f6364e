//! Quantiles of the kernel's histogram against the exact ones.

use profiler_common::histogram::{BUCKETS, bounds, bucket, quantile};
use proptest::collection::vec;
use proptest::prelude::*;

/// 73 minutes: longer durations share the last bucket.
const LIMIT: u64 = 1 << 42;

/// Every order of magnitude alike.
fn duration() -> impl Strategy<Value = u64> {
    (0..42_u32, any::<u64>()).prop_map(|(bits, random)| random & ((2 << bits) - 1))
}

fn exact(sorted: &[u64], q: f64) -> u64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn quantiles_are_within_their_error(
        mut durations in vec(duration(), 1..400),
        q in prop_oneof![0.0..=1.0_f64, Just(0.5), Just(0.99), Just(0.0), Just(1.0)],
    ) {
        let mut histogram = vec![0; BUCKETS];
        for ns in &durations {
            histogram[bucket(*ns)] += 1;
        }
        durations.sort_unstable();
        let (found, exact) = (quantile(&histogram, q), exact(&durations, q));
        let error = found.abs_diff(exact) as f64;
        prop_assert!(error <= 0.032 * exact as f64, "{q}: {found} instead of {exact}");
    }

    #[test]
    fn a_bucket_bounds_its_durations(ns in duration()) {
        let (low, high) = bounds(bucket(ns));
        prop_assert!(low <= ns && ns < high);
    }

    #[test]
    fn longer_durations_are_in_no_lower_bucket(one in any::<u64>(), two in any::<u64>()) {
        let (short, long) = (one.min(two), one.max(two));
        prop_assert!(bucket(short) <= bucket(long));
        prop_assert!(bucket(long) < BUCKETS);
    }
}

#[test]
fn buckets_adjoin_and_end_at_the_limit() {
    let mut end = 0;
    for index in 0..BUCKETS {
        let (low, high) = bounds(index);
        assert_eq!(low, end, "bucket {index} does not begin where the one before it ends");
        assert_eq!((bucket(low), bucket(high - 1)), (index, index));
        end = high;
    }
    assert_eq!(end, LIMIT);
    assert_eq!(bucket(LIMIT), BUCKETS - 1);
}

#[test]
fn no_duration_has_a_quantile_of_none() {
    assert_eq!(quantile(&[], 0.5), 0);
    assert_eq!(quantile(&[0; 8], 1.0), 0);
}
