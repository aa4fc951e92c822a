//! Who is asked: the members' gates and weights follow what [`crate::spread`] decides.

use crate::adaptive::LEVELS;
use crate::availability::{Gate, Mode};
use crate::backend::live::FACTORS;
use crate::policy::{Groups, PolicyKind, stable_hash};
use crate::spread::{Candidate, Spread, Standing};

use super::control::Control;
use super::entry::Entry;
use super::event::Event;

/// Backends that people left in.
#[derive(Clone, Copy, Default)]
pub(super) struct Census {
    pub(super) ready: usize,
    /// Those that look healthy.
    pub(super) usable: usize,
    /// Those that do not refuse connections.
    pub(super) accepting: usize,
}

impl Control {
    pub(super) fn census(&self) -> Census {
        let mut census = Census::default();
        for entry in &self.entries {
            let gate = entry.backend.live().gate.load();
            if gate.has(Gate::NEVER) {
                continue;
            }
            census.ready += 1;
            census.usable += usize::from(!gate.has(Gate::UNHEALTHY));
            // One on trial has not answered yet: it must not end the last resort by itself.
            census.accepting += usize::from(!gate.has(Gate::REFUSED.or(Gate::TRIAL)));
        }
        census
    }

    pub(super) fn mode(&self, census: Census) -> Mode {
        match (self.is_panic(), census.accepting) {
            (false, _) => Mode::Normal,
            (true, 0) if census.ready > 0 => Mode::LastResort,
            (true, _) => Mode::Panic,
        }
    }

    /// Decides whether health is to be ignored. `members` where tiers, zones or a subset count.
    pub(super) fn decide_panic(&mut self, census: Census, members: Option<&[Candidate]>) {
        let (usable, total) = (census.usable, census.ready);
        let (sound, of) = match members {
            Some(members) => self.config.spread.soundest(members),
            None => (usable, total),
        };
        let threshold = self.config.panic_threshold;
        if self.panic.observe(sound, of, threshold) {
            self.events.push(if self.is_panic() {
                Event::PanicEntered {
                    usable,
                    total,
                    belief: self.belief(),
                }
            } else {
                Event::PanicLeft { usable, total }
            });
        }
    }

    /// Puts each member where the spread has it: asked, kept back or outside. After this gates and weights
    /// say all that a table is built from, but the groups that hashes are split between.
    pub(super) fn spread_out(
        &mut self,
        mode: Mode,
        members: Option<Vec<Candidate>>,
    ) -> Option<Groups> {
        let Some(mut members) = members else {
            if self.spread.take().is_some() {
                for entry in &self.entries {
                    stand(entry, Gate::OPEN, 1);
                }
                self.built = None;
            }
            return None;
        };
        self.open(&mut members, mode);
        let spread = self.config.spread.spread(&members, self.is_panic());
        self.place(&spread);
        let is_same = |before: &Spread| before.standings.len() == spread.standings.len();
        if let Some(before) = self.spread.as_ref().filter(|before| is_same(before))
            && spread.asks_others_than(before)
        {
            let asked = |spread: &Spread| spread.groups.iter().rposition(|group| group.share > 0.0);
            self.events.push(Event::SpreadChanged {
                to: spread.describe(),
                falls_back: asked(&spread) > asked(before),
            });
        }
        let groups = spread.is_split().then(|| groups_of(&spread, &self.entries));
        self.spread = Some(spread);
        groups
    }

    fn spreads(&self) -> bool {
        let places = self.entries.iter().map(|entry| &entry.place);
        self.config.spread.applies(places)
    }

    /// What the spread depends on, but for the mode; `None` where there is nothing to spread.
    pub(super) fn members(&self) -> Option<Vec<Candidate>> {
        if !self.spreads() {
            return None;
        }
        let by_weight = self.config.policy != PolicyKind::RoundRobin;
        let member = |entry: &Entry| {
            let live = entry.backend.live();
            let gate = live.gate.load();
            let weight = live.nominal_weight();
            Candidate {
                place: entry.place.clone(),
                hash: stable_hash(entry.backend.key().as_bytes()),
                width: weight,
                weight: if by_weight { f64::from(weight) } else { 1.0 },
                level: f64::from(live.level()) / f64::from(LEVELS),
                is_new: entry.adaptive.is_new(),
                is_ready: !gate.has(Gate::NEVER),
                is_able: !gate.has(Gate::NEVER.or(Gate::UNHEALTHY)),
                is_open: false,
                is_on_trial: false,
            }
        };
        Some(self.entries.iter().map(member).collect())
    }

    /// Which of `members` may be picked in `mode`, and how much of its weight each gets.
    fn open(&self, members: &mut [Candidate], mode: Mode) {
        let reasons = mode.mask().without(Gate::KEPT_BACK);
        for (member, entry) in members.iter_mut().zip(&self.entries) {
            let live = entry.backend.live();
            let gate = live.gate.load();
            // What was looked at before the weights were set is older than they are.
            member.level = f64::from(live.level()) / f64::from(LEVELS);
            member.is_new = entry.adaptive.is_new();
            member.is_open = !gate.has(reasons);
            member.is_on_trial = gate.has(Gate::TRIAL) && !gate.has(reasons);
        }
    }

    fn place(&mut self, spread: &Spread) {
        let parts = |part: f64| ((part * f64::from(FACTORS)).round() as u32).clamp(1, FACTORS);
        let is_whole = |standing: &Standing| match standing {
            Standing::Asked { part, .. } => *part >= 1.0,
            Standing::Standby { .. } | Standing::Outside => true,
        };
        let is_even = spread.standings.iter().all(is_whole);
        let factor = |standing: &Standing| match standing {
            Standing::Asked { part, .. } if !is_even => parts(*part),
            _ => 1,
        };
        let mut moved = false;
        for (entry, standing) in self.entries.iter().zip(&spread.standings) {
            let bits = match standing {
                Standing::Asked { .. } => Gate::OPEN,
                Standing::Standby { .. } => Gate::STANDBY,
                Standing::Outside => Gate::OUTSIDE,
            };
            let before = stand(entry, bits, factor(standing));
            moved |= before.has(Gate::OUTSIDE) != bits.has(Gate::OUTSIDE);
        }
        if moved {
            // Hashes have places at those within the subset alone.
            self.built = None;
        }
    }

    /// Those that are kept back and may be picked in `mode`, in the order in which they are asked.
    pub(super) fn reserve(&self, mode: Mode) -> Vec<Vec<u32>> {
        let Some(spread) = &self.spread else {
            return Vec::new();
        };
        let reasons = mode.mask().without(Gate::STANDBY);
        let mut reserve = vec![Vec::new(); spread.groups.len()];
        for ((entry, standing), index) in self.entries.iter().zip(&spread.standings).zip(0..) {
            let gate = entry.backend.live().gate.load();
            if let Standing::Standby { group } = *standing
                && !gate.has(reasons)
            {
                reserve[group].push(index);
            }
        }
        reserve.retain(|group| !group.is_empty());
        reserve
    }

    /// Why the member at `index` is not asked; empty if it is.
    pub(super) fn standing_reason(&self, index: usize) -> String {
        let spread = self.spread.as_ref();
        match spread.and_then(|spread| spread.standings.get(index)) {
            Some(Standing::Outside) => {
                let number = self.config.spread.subset.map_or(String::new(), |subset| {
                    format!(" (index {} of {})", subset.index, subset.of)
                });
                format!("outside of the part of the pool that this balancer sends to{number}")
            }
            Some(&Standing::Standby { group }) => {
                spread.map_or(String::new(), |spread| spread.why_not(group))
            }
            Some(Standing::Asked { .. }) | None => String::new(),
        }
    }

    /// Which tiers and zones get how much, as a sentence; empty where there is nothing to tell apart.
    pub(super) fn spread_described(&self) -> String {
        let several = self
            .spread
            .as_ref()
            .filter(|spread| spread.groups.len() > 1);
        several.map_or(String::new(), Spread::describe)
    }
}

/// Sets where a member stands; gives its gate as it was.
fn stand(entry: &Entry, bits: Gate, factor: u32) -> Gate {
    let live = entry.backend.live();
    live.set_factor(factor);
    let put = |gate: Gate| Some(gate.without(Gate::KEPT_BACK).or(bits));
    match live.gate.update(put) {
        Ok(before) | Err(before) => before,
    }
}

fn groups_of(spread: &Spread, entries: &[Entry]) -> Groups {
    let name = |zone: &Option<std::sync::Arc<str>>| {
        zone.as_ref().map_or(0, |zone| stable_hash(zone.as_bytes()))
    };
    let shares = spread.groups.iter().map(|group| {
        (
            stable_hash(&group.tier.to_be_bytes()) ^ name(&group.zone),
            group.share,
        )
    });
    let of = entries.iter().enumerate().map(|(index, entry)| {
        let is_on_trial = entry.backend.live().gate.load().has(Gate::TRIAL);
        spread.group_of(index).filter(|_| !is_on_trial)
    });
    Groups::new(shares, of)
}
