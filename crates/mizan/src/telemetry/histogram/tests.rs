use super::*;
use proptest::prelude::*;

#[test]
fn bounds_grow_and_each_value_lies_at_or_below_its_bound() {
    for at in 1..BUCKETS - 1 {
        assert!(bound_us(at) > bound_us(at - 1), "bucket {at}");
        assert_eq!(
            index(bound_us(at) * 1000),
            at,
            "a bound belongs to its own bucket"
        );
        assert_eq!(
            index(bound_us(at) * 1000 + 1),
            at + 1,
            "what is past it to the next"
        );
    }
    assert_eq!(bound_us(BUCKETS - 2), 1 << EXPONENT_MAX);
}

#[test]
fn quantiles_of_nothing_are_nothing() {
    assert_eq!(Merged::default().quantile(0.5), None);
}

#[test]
fn workers_add_up() {
    let (one, two) = (Histogram::default(), Histogram::default());
    one.record(Duration::from_millis(1));
    two.record(Duration::from_millis(2));
    two.record(Duration::from_secs(3600));
    let mut merged = Merged::default();
    merged.add(&one);
    merged.add(&two);
    assert_eq!(merged.count(), 3);
    assert!((merged.sum_seconds() - 3600.003).abs() < 1e-9);
    let last = merged.exposed().last().expect("bounds");
    assert_eq!(last, (67.108864, 2), "an hour is only in +Inf");
}

#[test]
fn the_exposition_stays_small() {
    let bounds: Vec<f64> = Merged::default()
        .exposed()
        .map(|(bound, _)| bound)
        .collect();
    assert_eq!(bounds.len(), 45);
    assert_eq!(bounds[..4], [0.000016, 0.000024, 0.000032, 0.000048]);
}

proptest! {
    #[test]
    fn a_quantile_is_off_by_at_most_an_eighth(mut values in prop::collection::vec(16_000u64..60_000_000_000, 1..200), share in 0.01f64..1.0) {
        let histogram = Histogram::default();
        for value in &values {
            histogram.record(Duration::from_nanos(*value));
        }
        let mut merged = Merged::default();
        merged.add(&histogram);
        values.sort_unstable();
        let rank = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len());
        let exact = values[rank - 1] as f64;
        let told = merged.quantile(share).expect("values").as_nanos() as f64;
        prop_assert!(told >= exact * 0.9999, "{told} < {exact}");
        prop_assert!(told <= exact * 1.126 + 1000.0, "{told} > {exact} by more than an eighth");
    }
}
