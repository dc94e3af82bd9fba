//! Medians, percentiles, ratios.

/// The middle one, or the mean of the two in the middle; not a number where there is none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(below), Some(above)) if sorted.len().is_multiple_of(2) => f64::midpoint(*below, *above),
        (_, Some(one)) => *one,
        _ => f64::NAN,
    }
}

/// Milliseconds at or below which so many of a hundred times are, of sorted microseconds; not a number of none.
pub(crate) fn percentile(sorted: &[i64], percent: usize) -> f64 {
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).map_or(f64::NAN, |micros| ratio(*micros, 1_000))
}

/// One count for each of another.
#[expect(clippy::cast_precision_loss, reason = "no count here comes near what a float cannot hold")]
pub(crate) fn ratio(count: i64, of: i64) -> f64 {
    count as f64 / of.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_same(found: f64, expected: f64) {
        assert_eq!(found.to_bits(), expected.to_bits(), "{found} and not {expected}");
    }

    #[test]
    fn a_median_does_not_care_for_outliers() {
        assert_same(median(&[3.0, 1_000.0, 1.0]), 3.0);
        assert_same(median(&[1.0, 2.0, 3.0, 1_000.0]), 2.5);
        assert_same(median(&[7.0]), 7.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn percentiles_are_times_that_were_taken() {
        let times: Vec<i64> = (1..=200).map(|n| n * 1_000).collect();
        for (percent, expected) in [(50, 100.0), (95, 190.0), (99, 198.0), (100, 200.0)] {
            assert_same(percentile(&times, percent), expected);
        }
        assert_same(percentile(&[7_500], 50), 7.5);
        assert!(percentile(&[], 50).is_nan());
    }

    #[test]
    fn a_ratio_of_nothing_is_a_number() {
        assert_same(ratio(6, 4), 1.5);
        assert_same(ratio(6, 0), 6.0);
    }
}
