//! Which members of a pool are asked, before a policy picks among them: tiers, zones, subsets.
//!
//! All three are decided off the hot path, whenever the picker is built anew, and come to who is a candidate;
//! so each policy has them, and a pick costs what it did. Traffic falls to *groups*: a tier, or a zone within
//! a tier. A group's share depends on how much of it is available (`tiers`), and within the group the policy
//! decides. Only while more than one group gets traffic a request's group is drawn first, by its hash where
//! the policy goes by one, so that keys move no more than shares do.
//!
//! | | who is asked | what is kept back |
//! | --- | --- | --- |
//! | tier (`tiers`) | the first that bears the traffic | the next ones, until it does not |
//! | zone (`zones`) | one's own, as far as it bears its part | the others, likewise |
//! | `subset` | a slice of each tier | the rest of it, unless too many of the slice are out |
//!
//! What is kept back is still asked when a request would otherwise fail: where it failed at two of those that
//! are asked, or at all, or all of them are full. What lies outside of a subset is not.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub(crate) mod subset;
pub(crate) mod tiers;
pub(crate) mod zones;

pub use subset::Subset;
use zones::Zone;

/// How traffic is spread over tiers and zones, and which part of the pool it is spread over.
#[derive(Clone, Debug, PartialEq)]
pub struct SpreadConfig {
    /// A tier, or a zone, bears its available share times this, 1.0 or more. Default 1.4.
    pub overprovisioning: f64,
    /// The zone that this balancer is in; `None`: zones do not count.
    pub zone: Option<Arc<str>>,
    /// Which part of the pool this balancer sends to; `None`: all of it.
    pub subset: Option<Subset>,
}

impl Default for SpreadConfig {
    fn default() -> Self {
        Self {
            overprovisioning: 1.4,
            zone: None,
            subset: None,
        }
    }
}

/// Where a member stands among the others. The default is what a pool without tiers and zones has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// 0 is asked first.
    pub tier: u32,
    /// The zone it is in; empty if not said.
    pub zone: Arc<str>,
}

/// What a share depends on.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) place: Place,
    /// Of its key.
    pub(crate) hash: u64,
    /// Its weight as configured.
    pub(crate) width: u32,
    /// What its policy goes by: that weight, or 1 where weights are ignored.
    pub(crate) weight: f64,
    /// How much of its weight it gets, `0.0..=1.0`.
    pub(crate) level: f64,
    /// Whether it is in its first slow start: nobody has counted on it yet, so that what it lacks is not missing.
    pub(crate) is_new: bool,
    /// Whether people left it in.
    pub(crate) is_ready: bool,
    /// Whether it looks healthy, too.
    pub(crate) is_able: bool,
    /// Whether it may be picked in the pool's mode.
    pub(crate) is_open: bool,
    /// Whether it may be tried once, after it refused.
    pub(crate) is_on_trial: bool,
}

/// A tier, or a zone within a tier.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) tier: u32,
    /// `None`: all of the tier.
    pub(crate) zone: Option<Arc<str>>,
    /// Of all traffic, `0.0..=1.0`.
    pub(crate) share: f64,
    /// How much of it is available, `0.0..=1.0`.
    pub(crate) available: f64,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.zone {
            None => write!(f, "tier {}", self.tier),
            Some(zone) if self.tier == 0 => write!(f, "zone {zone}"),
            Some(zone) => write!(f, "zone {zone} of tier {}", self.tier),
        }
    }
}

/// What becomes of a member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Standing {
    /// Its group gets traffic.
    Asked {
        /// Index into the groups.
        group: usize,
        /// How much of its weight counts, `0.0..=1.0`, not 0.
        part: f64,
    },
    /// It is kept back.
    Standby {
        /// Index into the groups.
        group: usize,
    },
    /// It lies outside of the subset.
    Outside,
}

/// How traffic is spread at present.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spread {
    /// In the order in which they are asked.
    pub(crate) groups: Vec<Group>,
    /// By member.
    pub(crate) standings: Vec<Standing>,
}

impl SpreadConfig {
    /// Whether there is anything to decide among members that stand at `places`.
    pub(crate) fn applies<'a>(&self, mut places: impl Iterator<Item = &'a Place>) -> bool {
        let first = places.next();
        self.subset.is_some()
            || first.is_some_and(|first| {
                let is_own = |place: &Place| Some(&place.zone) == self.zone.as_ref();
                places.any(|place| {
                    place.tier != first.tier
                        || (self.zone.is_some() && is_own(place) != is_own(first))
                })
            })
    }

    /// How many look healthy and how many people left in, of the tier or zone where that is best: while
    /// one is well, what looks bad of the others is believed.
    pub(crate) fn soundest(&self, members: &[Candidate]) -> (usize, usize) {
        let mut counts: BTreeMap<(u32, &str), (usize, usize)> = BTreeMap::new();
        let is_own = |member: &Candidate| Some(&member.place.zone) == self.zone.as_ref();
        let by_zone = members.iter().any(is_own);
        for member in members.iter().filter(|member| member.is_ready) {
            let zone = if by_zone { &*member.place.zone } else { "" };
            let (able, ready) = counts.entry((member.place.tier, zone)).or_default();
            *able += usize::from(member.is_able);
            *ready += 1;
        }
        let better = |a: &(usize, usize), b: &(usize, usize)| (a.0 * b.1).cmp(&(b.0 * a.1));
        let best = counts
            .into_values()
            .max_by(|a, b| better(a, b).then(a.1.cmp(&b.1)));
        best.unwrap_or_default()
    }

    /// How traffic is spread over `members`. In a panic zones do not count, and health not within a tier.
    pub(crate) fn spread(&self, members: &[Candidate], is_panic: bool) -> Spread {
        let parts = self.parts(members, is_panic);
        let mut tiers: BTreeMap<u32, Tier> = BTreeMap::new();
        for (index, member) in members.iter().enumerate() {
            let tier = tiers.entry(member.place.tier).or_default();
            tier.add(index, member, parts[index]);
        }
        let available: Vec<f64> = tiers.values().map(Tier::available).collect();
        let mut shares = tiers::shares(&available, self.overprovisioning);
        if shares.iter().all(|&share| share == 0.0) {
            // Nobody looks healthy: the first tier that has anybody who may be picked.
            let first = tiers.values().position(|tier| tier.is_open).unwrap_or(0);
            if let Some(share) = shares.get_mut(first) {
                *share = 1.0;
            }
        }
        let mut spread = Spread {
            groups: Vec::new(),
            standings: vec![Standing::Outside; members.len()],
        };
        for ((&number, tier), share) in tiers.iter().zip(shares) {
            let zones = self.zones(tier, members, !is_panic && share > 0.0);
            tier.found(number, share, zones, members, &mut spread);
        }
        spread.ask(members, &parts);
        spread
    }

    fn parts(&self, members: &[Candidate], is_panic: bool) -> Vec<subset::Part> {
        let whole = subset::Part {
            planned: 1.0,
            now: 1.0,
        };
        let mut parts = vec![whole; members.len()];
        let Some(subset) = &self.subset else {
            return parts;
        };
        let mut tiers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, member) in members.iter().enumerate() {
            tiers.entry(member.place.tier).or_default().push(index);
        }
        for indices in tiers.into_values() {
            let place = |&index: &usize| subset::Place {
                hash: members[index].hash,
                width: members[index].width,
                is_able: members[index].is_able || (is_panic && members[index].is_open),
            };
            let places: Vec<subset::Place> = indices.iter().map(place).collect();
            let slice = subset::slice(&places, subset, self.overprovisioning);
            for (index, part) in indices.into_iter().zip(slice) {
                parts[index] = part;
            }
        }
        parts
    }

    /// The zones of a tier with their shares of its traffic, one's own first; `None`: they do not count.
    fn zones(&self, tier: &Tier, members: &[Candidate], count: bool) -> Option<Vec<Portion>> {
        let own = self.zone.as_ref().filter(|_| count)?;
        let mut zones: BTreeMap<&Arc<str>, Zone> = BTreeMap::new();
        for &index in &tier.members {
            let member = &members[index];
            let zone = zones.entry(&member.place.zone).or_default();
            zone.ready += member.planned();
            zone.able += member.able();
        }
        let own = (own, zones.remove(own)?);
        let order: Vec<(&Arc<str>, Zone)> = std::iter::once(own).chain(zones).collect();
        let figures: Vec<Zone> = order.iter().map(|(_, zone)| *zone).collect();
        let shares = zones::shares(&figures, self.overprovisioning)?;
        let portion = |((name, zone), share): (&(&Arc<str>, Zone), f64)| Portion {
            zone: Arc::clone(name),
            share,
            available: part_of(zone.able, zone.ready),
        };
        Some(order.iter().zip(shares).map(portion).collect())
    }
}

/// A zone's share of its tier's traffic.
struct Portion {
    zone: Arc<str>,
    share: f64,
    available: f64,
}

/// One tier, as far as it lies within the subset.
#[derive(Default)]
struct Tier {
    members: Vec<usize>,
    /// Weights: of those that are planned with, and of those that serve.
    ready: f64,
    able: f64,
    is_open: bool,
}

impl Candidate {
    /// The weight that is counted on.
    fn planned(&self) -> f64 {
        match (self.is_ready, self.is_new && self.is_able) {
            (false, _) => 0.0,
            (true, true) => self.weight * self.level,
            (true, false) => self.weight,
        }
    }

    fn able(&self) -> f64 {
        if self.is_able {
            self.weight * self.level
        } else {
            0.0
        }
    }
}

impl Tier {
    fn add(&mut self, index: usize, member: &Candidate, part: subset::Part) {
        self.ready += member.planned() * part.planned;
        if part.now > 0.0 {
            self.members.push(index);
            self.able += member.able() * part.now;
            self.is_open |= member.is_open;
        }
    }

    fn available(&self) -> f64 {
        part_of(self.able, self.ready)
    }

    /// Makes its groups, with `share` of all traffic between them.
    fn found(
        &self,
        number: u32,
        share: f64,
        zones: Option<Vec<Portion>>,
        members: &[Candidate],
        spread: &mut Spread,
    ) {
        let first = spread.groups.len();
        let all = || {
            vec![Group {
                tier: number,
                zone: None,
                share,
                available: self.available(),
            }]
        };
        let groups = zones.map_or_else(all, |zones| {
            let group = |portion: Portion| Group {
                tier: number,
                zone: Some(portion.zone),
                share: share * portion.share,
                available: portion.available,
            };
            zones.into_iter().map(group).collect()
        });
        spread.groups.extend(groups);
        for &index in &self.members {
            let zone = &members[index].place.zone;
            let is_its = |group: &Group| group.zone.as_ref().is_none_or(|of| of == zone);
            let group = spread.groups[first..].iter().position(is_its);
            spread.standings[index] = Standing::Standby {
                group: first + group.unwrap_or(0),
            };
        }
    }
}

impl Spread {
    /// Marks the members of groups with traffic.
    fn ask(&mut self, members: &[Candidate], parts: &[subset::Part]) {
        let last = self.groups.iter().rposition(|group| group.share > 0.0);
        for (index, member) in members.iter().enumerate() {
            let Some(group) = self.group_of(index) else {
                continue;
            };
            // Else who refused in a group that is asked first would never be seen to be back.
            let is_tried = member.is_on_trial && Some(group) < last;
            if self.groups[group].share > 0.0 || is_tried {
                let part = parts[index].now;
                self.standings[index] = Standing::Asked { group, part };
            }
        }
    }

    pub(crate) fn group_of(&self, index: usize) -> Option<usize> {
        match self.standings[index] {
            Standing::Asked { group, .. } | Standing::Standby { group } => Some(group),
            Standing::Outside => None,
        }
    }

    /// Whether traffic is split between groups.
    pub(crate) fn is_split(&self) -> bool {
        self.groups.iter().filter(|group| group.share > 0.0).count() > 1
    }

    /// Whether other groups get traffic than in `before`, which is of the same members.
    pub(crate) fn asks_others_than(&self, before: &Self) -> bool {
        let names = |spread: &Self| -> Vec<String> {
            let asked = spread.groups.iter().filter(|group| group.share > 0.0);
            asked.map(Group::to_string).collect()
        };
        names(self) != names(before)
    }

    /// Why `group` gets nothing.
    pub(crate) fn why_not(&self, group: usize) -> String {
        let before = self.groups[..group].iter().rfind(|group| group.share > 0.0);
        let own = self.groups[group].tier;
        match before {
            // Whatever its zone: it is asked for the whole of a tier that is before its own.
            Some(before) if before.tier != own => format!(
                "stands by: asked where tier {} cannot bear the traffic",
                before.tier
            ),
            Some(before) => format!("stands by: asked where {before} cannot bear the traffic"),
            None => "stands by".to_owned(),
        }
    }

    /// Who gets how much, as a sentence: `tier 0 gets 70 %, tier 1 gets 30 % of the requests; available are
    /// 50 % of tier 0`.
    pub(crate) fn describe(&self) -> String {
        let asked: Vec<&Group> = self
            .groups
            .iter()
            .filter(|group| group.share > 0.0)
            .collect();
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        let list: Vec<String> = asked
            .iter()
            .map(|group| format!("{group} gets {}", percent(group.share)))
            .collect();
        let short = self.groups.iter().take_while(|group| {
            asked
                .last()
                .is_some_and(|last| !std::ptr::eq(*group, *last))
        });
        let short: Vec<String> = short
            .map(|group| format!("{} of {group}", percent(group.available)))
            .collect();
        match short.is_empty() {
            true => format!("{} of the requests", list.join(", ")),
            false => format!(
                "{} of the requests; available are {}",
                list.join(", "),
                short.join(", ")
            ),
        }
    }
}

/// `able` of `ready`, `0.0..=1.0`.
fn part_of(able: f64, ready: f64) -> f64 {
    match able > 0.0 {
        true => (able / ready.max(able)).min(1.0),
        false => 0.0,
    }
}
