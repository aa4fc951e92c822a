//! The records of a service (RFC 2782) as backends.

use crate::snapshot::Configured;
use hickory_resolver::proto::rr::rdata::SRV;
use mizan_core::backend::{Address, Member};
use mizan_core::spread::Place;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Most tiers that a pool tells apart; services with further priorities share the last.
const TIER_MAX: u32 = 100;
/// Largest weight of a backend.
const WEIGHT_MAX: u32 = 65_535;
/// How many times the chance of one of weight 0 another of weight 1 has, where there is room for that.
const SMALL: u32 = 100;

/// The backends of `records`, sorted; their names are to be looked up yet. One record with the target `.` says that the
/// service is not there: no backends.
///
/// The lowest priority is tier 0, the next tier 1, and so on. Within a tier shares go by weight; one of weight 0 among others
/// has a very small chance, and where all have it they are alike.
pub(super) fn backends(records: &[&SRV]) -> Vec<Configured> {
    let mut tiers: BTreeMap<u16, Vec<&SRV>> = BTreeMap::new();
    for record in records {
        let is_there = !record.target.is_root() && record.port != 0;
        if is_there {
            tiers.entry(record.priority).or_default().push(record);
        }
    }
    let mut backends = Vec::new();
    for (tier, (_, mut records)) in tiers.into_iter().enumerate() {
        records.sort_by_key(|record| (record.target.to_lowercase(), record.port));
        records.dedup_by_key(|record| (record.target.to_lowercase(), record.port));
        let largest = records.iter().map(|it| u32::from(it.weight)).max();
        let has_zero = records.iter().any(|record| record.weight == 0);
        let factor = match largest {
            Some(largest) if has_zero && largest > 0 => (WEIGHT_MAX / largest).clamp(1, SMALL),
            _ => 1,
        };
        backends.extend(records.into_iter().map(|record| {
            // All names here are whole: no search list is asked for them.
            let target = record.target.to_ascii().to_ascii_lowercase();
            let name = format!("{}.:{}", target.trim_end_matches('.'), record.port);
            let place = Place {
                tier: u32::try_from(tier).map_or(TIER_MAX, |tier| tier.min(TIER_MAX)),
                zone: Arc::from(""),
            };
            Configured::Named {
                template: Member {
                    key: Arc::from(name.as_str()),
                    address: Address::Ip(SocketAddr::from(([0, 0, 0, 0], 0))),
                    weight: (u32::from(record.weight) * factor).max(1),
                    version: Arc::from(""),
                    in_flight_max: None,
                    place,
                },
                name,
                servers: Arc::from([]),
                networks: Arc::from([]),
            }
        }));
    }
    backends
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::proto::rr::Name;

    fn srv(priority: u16, weight: u16, target: &str) -> SRV {
        let target = Name::from_ascii(target).expect("a name");
        SRV::new(priority, weight, 8080, target)
    }

    fn told(records: &[SRV]) -> Vec<(String, u32, u32)> {
        let records: Vec<&SRV> = records.iter().collect();
        let show = |backend: Configured| {
            let member = backend.template();
            (member.key.to_string(), member.weight, member.place.tier)
        };
        backends(&records).into_iter().map(show).collect()
    }

    #[test]
    fn priorities_are_tiers_and_weights_are_weights() {
        let records = [
            srv(20, 5, "c.test."),
            srv(10, 2, "B.test."),
            srv(10, 1, "a.test."),
        ];
        assert_eq!(
            told(&records),
            [
                ("a.test.:8080".to_owned(), 1, 0),
                ("b.test.:8080".to_owned(), 2, 0),
                ("c.test.:8080".to_owned(), 5, 1),
            ]
        );
    }

    #[test]
    fn a_weight_of_zero_is_a_very_small_one_and_alone_it_is_none() {
        let weights = |records: &[SRV]| -> Vec<u32> {
            told(records)
                .into_iter()
                .map(|(_, weight, _)| weight)
                .collect()
        };
        assert_eq!(weights(&[srv(0, 0, "a."), srv(0, 0, "b.")]), [1, 1]);
        assert_eq!(weights(&[srv(0, 0, "a."), srv(0, 3, "b.")]), [1, 300]);
        assert_eq!(
            weights(&[srv(0, 0, "a."), srv(0, 40_000, "b.")]),
            [1, 40_000]
        );
        assert_eq!(weights(&[srv(0, 1, "a."), srv(0, 3, "b.")]), [1, 3]);
    }

    #[test]
    fn a_service_that_is_not_there_has_no_backends() {
        assert_eq!(told(&[srv(0, 0, ".")]), []);
    }
}
