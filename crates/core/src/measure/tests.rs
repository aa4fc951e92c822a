use proptest::prelude::*;

use super::window::{SLICES, Window};
use super::*;

fn slice(latencies: &[Duration], failed: u32) -> Slice {
    let cells = Cells::default();
    for (worker, &latency) in latencies.iter().enumerate() {
        cells.answered(worker, latency);
    }
    (0..failed).for_each(|_| cells.failed(0));
    cells.take().unwrap_or_default()
}

proptest! {
    #[test]
    fn a_bucket_holds_what_falls_into_it(micros in 0u64..200_000_000) {
        let latency = Duration::from_micros(micros);
        let bucket = bucket_of(latency);
        prop_assert!(start_of(bucket) <= latency);
        prop_assert!(bucket == BUCKETS - 1 || latency < start_of(bucket + 1));
    }

    #[test]
    fn a_quantile_is_right_within_a_bucket(mut micros in prop::collection::vec(20u64..50_000_000, 1..300), share in 0.01f64..1.0) {
        let latencies: Vec<Duration> = micros.iter().copied().map(Duration::from_micros).collect();
        let mut window = Window::default();
        window.push(slice(&latencies, 0));
        micros.sort_unstable();
        let rank = (micros.len() as f64 * share).ceil().max(1.0) as usize;
        let exact = micros[rank - 1] as f64;
        let found = window.quantile(share).expect("there are answers").as_micros() as f64;
        prop_assert!((found / exact - 1.0).abs() < 0.13, "{found} for {exact}");
    }

    #[test]
    fn a_window_is_the_sum_of_its_last_slices(counts in prop::collection::vec((0usize..20, 0u32..20), 1..40)) {
        let mut window = Window::default();
        for &(answered, failed) in &counts {
            window.push(slice(&vec![Duration::from_millis(3); answered], failed));
        }
        let last = &counts[counts.len().saturating_sub(SLICES)..];
        prop_assert_eq!(window.answered(), last.iter().map(|&(answered, _)| answered as u32).sum::<u32>());
        prop_assert_eq!(window.failed(), last.iter().map(|&(_, failed)| failed).sum::<u32>());
        prop_assert_eq!(window.quantile(0.5).is_some(), window.answered() > 0);
        prop_assert_eq!(window.quantile_within(0.5, SLICES), window.quantile(0.5));
        let all = window.answered();
        let slower = |ms| window.slower_within(Duration::from_millis(ms), SLICES);
        prop_assert_eq!((slower(2).slow, slower(2).answered), (all, all));
        prop_assert_eq!((slower(4).slow, slower(4).seconds), (0, 0));
    }
}

#[test]
fn what_was_taken_is_not_there_again() {
    let cells = Cells::default();
    assert_eq!(cells.take(), None);
    cells.answered(3, Duration::from_millis(1));
    cells.failed(11);
    let slice = cells.take().expect("two were counted");
    assert_eq!((slice.answered, slice.failed), (1, 1));
    assert_eq!(cells.take(), None);
}

#[test]
fn nothing_is_lost_between_threads_that_count_and_one_that_takes() {
    let cells = Cells::default();
    let taken = std::thread::scope(|scope| {
        for worker in 0..3 {
            let cells = &cells;
            scope.spawn(move || {
                for count in 0..20_000 {
                    cells.answered(worker, Duration::from_micros(count));
                }
            });
        }
        (0..1_000)
            .filter_map(|_| cells.take())
            .map(|slice| slice.answered)
            .sum::<u32>()
    });
    let rest = cells.take().map_or(0, |slice| slice.answered);
    assert_eq!(taken + rest, 60_000);
}

#[test]
fn few_requests_prove_little() {
    assert_eq!(least_share(0, 0, 3.0), 0.0);
    assert!(least_share(1, 1, 3.0) < 0.11);
    assert!(least_share(5, 5, 3.0) > 0.3);
    assert!(least_share(6, 100, 3.0) < 0.05);
    assert!(least_share(500, 1_000, 3.0) > 0.45);
}
