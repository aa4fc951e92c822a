//! How a tier's traffic is split between zones, as seen from one of them.
//!
//! Envoy's zone-aware routing: a balancer sends to its own zone what that can bear, and the rest to zones
//! that have room. Envoy counts its peers in each zone; here each zone is taken to get the same part
//! of all requests, which needs nobody's account. Then a zone with less than its part of the backends
//! (by weight) sends on just so much that every backend of every zone gets the same, and all else stays
//! at home. A zone that loses backends keeps, as a [tier](super::tiers) does, what is left of it times the
//! overprovisioning factor.

use super::tiers::borne;

/// The backends of one zone, by weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Zone {
    /// Those that people left in.
    pub(crate) ready: f64,
    /// Of those, the healthy ones, as far as they have come in their slow start.
    pub(crate) able: f64,
}

/// Each zone's share of the traffic; the first zone is one's own. The shares add up to 1. `None`: nothing
/// is to be preferred, as nobody at all is able.
pub(crate) fn shares(zones: &[Zone], overprovisioning: f64) -> Option<Vec<f64>> {
    let (own, others) = zones.split_first()?;
    let ready: f64 = zones.iter().map(|zone| zone.ready).sum();
    let count = zones.iter().filter(|zone| zone.ready > 0.0).count();
    let fair = ready / count.max(1) as f64;
    // Room beyond what a zone's own balancers send there.
    let room = |zone: &Zone| (zone.able - fair).max(0.0);
    let able = |zone: &Zone| zone.able;
    let has_room = others.iter().any(|zone| room(zone) > fair * 1e-9);
    let measure: &dyn Fn(&Zone) -> f64 = if has_room { &room } else { &able };
    let elsewhere: f64 = others.iter().map(measure).sum();
    let kept = match own.able > 0.0 {
        _ if own.able + elsewhere <= 0.0 => return None,
        true if elsewhere <= 0.0 => 1.0,
        true => (own.ready / fair).min(1.0) * borne(own.able / own.ready, overprovisioning),
        false => 0.0,
    };
    let rest = others
        .iter()
        .map(|zone| (1.0 - kept) * measure(zone) / elsewhere.max(f64::MIN_POSITIVE));
    Some(std::iter::once(kept).chain(rest).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(ready: f64) -> Zone {
        Zone { ready, able: ready }
    }

    fn percent(zones: &[Zone]) -> Vec<u32> {
        let shares = shares(zones, 1.4).expect("somebody is able");
        shares
            .iter()
            .map(|share| (share * 100.0).round() as u32)
            .collect()
    }

    #[test]
    fn what_ones_own_zone_can_bear_stays_there() {
        let equal = [whole(3.0); 3];
        assert_eq!(percent(&equal), [100, 0, 0]);
        assert_eq!(percent(&[whole(1.0), whole(3.0)]), [50, 50]);
        assert_eq!(
            percent(&[whole(1.0), whole(3.0), whole(2.0)]),
            [50, 50, 0],
            "the rest goes where there is room"
        );
        assert_eq!(percent(&[whole(3.0), whole(1.0)]), [100, 0]);
    }

    #[test]
    fn a_dead_zone_gets_nothing_and_one_that_comes_back_gets_as_much_as_it_has_come() {
        let own = |able| Zone { ready: 4.0, able };
        let at = |able| percent(&[own(able), whole(4.0), whole(4.0)]);
        assert_eq!(at(0.0), [0, 50, 50]);
        assert_eq!(at(0.4), [14, 43, 43]);
        assert_eq!(at(2.0), [70, 15, 15]);
        assert_eq!(at(3.0), [100, 0, 0]);
        let dead = Zone {
            ready: 4.0,
            able: 0.0,
        };
        assert_eq!(percent(&[own(4.0), dead, dead]), [100, 0, 0]);
        assert_eq!(percent(&[own(0.4), dead, dead]), [100, 0, 0], "nobody else");
        assert_eq!(percent(&[own(0.0), dead, whole(4.0)]), [0, 0, 100]);
        assert_eq!(shares(&[dead, dead], 1.4), None);
    }

    proptest! {
        /// Balancers in all zones, as many requests in each: every backend gets the same for its weight.
        #[test]
        fn all_zones_together_load_every_backend_the_same(
            weights in prop::collection::vec(1u32..50, 2..6),
        ) {
            let mut loads = vec![0.0; weights.len()];
            for own in 0..weights.len() {
                let mut order: Vec<usize> = (0..weights.len()).collect();
                order.swap(0, own);
                let zones: Vec<Zone> = order.iter().map(|&at| whole(f64::from(weights[at]))).collect();
                for (share, &at) in shares(&zones, 1.4).expect("all are able").iter().zip(&order) {
                    loads[at] += share;
                }
            }
            let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
            for (load, &weight) in loads.iter().zip(&weights) {
                let fair = f64::from(weight) / total * weights.len() as f64;
                prop_assert!((load - fair).abs() < 1e-9, "{loads:?} for {weights:?}");
            }
        }

        #[test]
        fn shares_add_up_and_the_dead_get_none(
            zones in prop::collection::vec((0u32..20, 0.0f64..=1.0), 1..6), factor in 1.0f64..5.0,
        ) {
            let zones: Vec<Zone> = zones
                .iter()
                .map(|&(ready, part)| Zone { ready: f64::from(ready), able: f64::from(ready) * (part - 0.3).max(0.0) })
                .collect();
            let Some(shares) = shares(&zones, factor) else {
                prop_assert!(zones.iter().all(|zone| zone.able <= 0.0));
                return Ok(());
            };
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
            for (share, zone) in shares.iter().zip(&zones) {
                prop_assert!(share.is_finite() && *share >= 0.0);
                prop_assert!(*share == 0.0 || zone.able > 0.0, "{shares:?} for {zones:?}");
            }
        }
    }
}
