//! How long the work of each recorded request took: its latency without the wait for a slot.
//!
//! A backend that works on c requests at once begins with a request when it comes, or when one of the c before it
//! has ended. Both are in the log, so the wait can be taken out exactly, if the backend serves in order and c is
//! right. Served again in the same way by the same backends, the requests take as long as they did.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Recorded;

/// The least work of a request, nanoseconds.
const WORK_MIN: u64 = 1_000;

/// A log's times are known to the millisecond, at both ends of a wait.
const SLACK: u64 = 2_000_000;

/// What a station of so many slots does with what was recorded at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fit {
    /// Requests that ended before a slot was free by this reckoning: there must have been more slots.
    pub(super) too_early: u64,
}

/// The most requests that were at one of `stations` at once. `requests` are in the order of their begins, each with
/// the number of its station. All stations are found in one pass: a log has many of both.
pub(super) fn in_flight_max<'r>(
    requests: impl Iterator<Item = (usize, &'r Recorded)>,
    stations: usize,
) -> usize {
    let mut all: Vec<BinaryHeap<Reverse<u64>>> = vec![BinaryHeap::new(); stations];
    let mut most = 0;
    for (station, request) in requests {
        let ends = &mut all[station];
        while ends.peek().is_some_and(|Reverse(end)| *end <= request.at) {
            ends.pop();
        }
        ends.push(Reverse(request.end()));
        most = most.max(ends.len());
    }
    most
}

/// Takes the wait for one of a station's `slots` out of the latency of `requests`, which are in the order of their
/// begins, each with the number of its station; what is left is their work.
pub(super) fn take_out_waits<'r>(
    requests: impl Iterator<Item = (usize, &'r mut Recorded)>,
    stations: usize,
    slots: usize,
) -> Fit {
    let mut all: Vec<BinaryHeap<Reverse<u64>>> = vec![BinaryHeap::new(); stations];
    let mut fit = Fit::default();
    for (station, request) in requests {
        let busy = &mut all[station];
        let free_at = match busy.len() < slots.max(1) {
            true => 0,
            false => busy.pop().map_or(0, |Reverse(end)| end),
        };
        let (begin, end) = (request.at.max(free_at), request.end());
        fit.too_early += u64::from(end + SLACK < begin);
        request.work = end.saturating_sub(begin).max(WORK_MIN);
        busy.push(Reverse(end));
    }
    fit
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Serves in order by `slots`; gives what a log would have.
    fn served(slots: usize, work: &[(u64, u64)]) -> Vec<Recorded> {
        let mut free: Vec<u64> = vec![0; slots];
        let mut now = 0;
        let mut recorded = Vec::new();
        for &(gap, work) in work {
            now += gap;
            free.sort_unstable();
            let end = now.max(free[0]) + work;
            free[0] = end;
            recorded.push(Recorded {
                at: now,
                latency: end - now,
                ..Recorded::default()
            });
        }
        recorded
    }

    proptest! {
        #[test]
        fn the_work_is_what_it_was_if_the_slots_are_right(
            slots in 1usize..5,
            work in prop::collection::vec((0u64..50_000, WORK_MIN..100_000), 1..80),
        ) {
            let mut recorded = served(slots, &work);
            let fit = take_out_waits(recorded.iter_mut().map(|one| (0, one)), 1, slots);
            prop_assert_eq!(fit.too_early, 0);
            let found: Vec<u64> = recorded.iter().map(|request| request.work).collect();
            let expected: Vec<u64> = work.iter().map(|(_, work)| *work).collect();
            prop_assert_eq!(found, expected);
            // With as many slots as there ever were requests nobody has waited.
            let most = in_flight_max(recorded.iter().map(|one| (0, one)), 1);
            let fit = take_out_waits(recorded.iter_mut().map(|one| (0, one)), 1, most);
            prop_assert_eq!(fit.too_early, 0);
            prop_assert!(recorded.iter().all(|request| request.work == request.latency));
        }
    }

    proptest! {
        /// What is found of a station does not depend on what goes on at the others.
        #[test]
        fn all_stations_together_are_each_by_itself(
            slots in 1usize..4,
            requests in prop::collection::vec((0usize..3, 0u64..1_000_000, 1u64..9_000_000), 1..120),
        ) {
            let mut now = 0;
            let recorded: Vec<(usize, Recorded)> = requests
                .into_iter()
                .map(|(station, gap, latency)| {
                    now += gap;
                    (station, Recorded { at: now, latency, ..Recorded::default() })
                })
                .collect();
            let of = |wanted: usize| {
                let own = recorded.iter().filter(move |(station, _)| *station == wanted);
                own.map(|(_, request)| *request).collect::<Vec<_>>()
            };
            let (mut most, mut work, mut too_early) = (0, vec![Vec::new(); 3], 0);
            for (station, work) in work.iter_mut().enumerate() {
                let mut own = of(station);
                most = most.max(in_flight_max(own.iter().map(|one| (0, one)), 1));
                too_early += take_out_waits(own.iter_mut().map(|one| (0, one)), 1, slots).too_early;
                *work = own.iter().map(|one| one.work).collect();
            }
            let all = recorded.iter().map(|(station, request)| (*station, request));
            prop_assert_eq!(in_flight_max(all, 3), most);
            let mut together = recorded.clone();
            let all = together.iter_mut().map(|(station, request)| (*station, request));
            prop_assert_eq!(take_out_waits(all, 3, slots).too_early, too_early);
            for (station, work) in work.iter().enumerate() {
                let own = together.iter().filter(|(at, _)| *at == station);
                let own: Vec<u64> = own.map(|(_, request)| request.work).collect();
                prop_assert_eq!(&own, work);
            }
        }
    }

    #[test]
    fn too_few_slots_are_told() {
        let mut both: Vec<_> = served(2, &[(0, 90_000_000), (0, 10_000_000)]);
        assert_eq!(in_flight_max(both.iter().map(|one| (0, one)), 1), 2);
        assert_eq!(
            take_out_waits(both.iter_mut().map(|one| (0, one)), 1, 1).too_early,
            1
        );
    }
}
