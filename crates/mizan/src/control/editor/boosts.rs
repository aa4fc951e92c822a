//! Boosts: set, shown, ended.

use super::{EditFailed, Edited, Editor, Wanted};
use crate::clock;
use mizan_routing::document::FACTOR;
use mizan_routing::edit::Change;
use mizan_routing::table::Held;
use mizan_routing::{Boost, Document, Name, Object, SCHEMA, Table};
use mizan_store::LeaseId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Shortest time of a boost.
pub const BOOST_MIN: Duration = Duration::from_secs(10);
/// Longest time of a boost.
pub const BOOST_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// How long its key outlives it: what ends a boost is its own end, everywhere at once; the lease only cleans up.
const GRACE: Duration = Duration::from_secs(30);
/// A boost that ended so long ago and is still there was not cleaned up: a lease may begin anew with a new leader of etcd.
const LEFT_OVER: Duration = Duration::from_secs(5 * 60);
/// Most of them that one edit takes away.
const CLEANED_MAX: usize = 50;

/// A boost as it stands in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoostView {
    /// Its name within its pool.
    pub id: String,
    /// Where its pool is.
    pub region: String,
    /// What is boosted.
    pub pool: String,
    /// What the pool's weight is multiplied by.
    pub factor: f64,
    /// When it ends, in ms since 1970.
    pub expires_at_ms: u64,
    /// How long that is from now, in seconds; 0: it has ended, and waits to be cleaned up.
    pub left_seconds: u64,
    /// Who set it.
    pub created_by: String,
    /// Why.
    pub why: String,
    /// What all boosts of the pool make together now, from 0.1 to 10.
    pub pool_factor: f64,
    /// What it changes: shares of the pool in splits of the store's routes, as they are with the pool's other boosts.
    pub shares: Vec<Share>,
}

/// A pool's share of a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// The route.
    pub route: String,
    /// Without the boost, 0 to 1.
    pub before: f64,
    /// With it.
    pub after: f64,
}

impl Editor {
    /// Boosts a pool by `factor` for `life`.
    ///
    /// # Errors
    /// See [`Editor::edit`]; also if there is no such pool, or `life` is not from [`BOOST_MIN`] to [`BOOST_MAX`].
    pub async fn boost(
        &self,
        (region, pool): (&Name, &Name),
        (factor, life): (f64, Duration),
        (author, why): (String, String),
    ) -> Result<(Edited, BoostView), EditFailed> {
        if !(BOOST_MIN..=BOOST_MAX).contains(&life) {
            return Err(EditFailed::Invalid(format!(
                "a boost lasts from {} s to {} h, and {} s is not: what is to stay is an edit of the weight",
                BOOST_MIN.as_secs(),
                BOOST_MAX.as_secs() / 3600,
                life.as_secs()
            )));
        }
        if !FACTOR.contains(&factor) {
            let (least, most) = FACTOR.into_inner();
            let message = format!("{factor} is not from {least} to {most}");
            return Err(EditFailed::Invalid(message));
        }
        let id = format!("{:08x}", clock::random() as u32);
        let boost = Boost {
            factor,
            expires_at_ms: (clock::wall() + life).as_millis() as u64,
            created_by: author.clone(),
            why: why.clone(),
        };
        let object = Object::Boost {
            region: region.clone(),
            pool: pool.clone(),
            id: id
                .parse()
                .map_err(|error| EditFailed::Invalid(format!("{error}")))?,
        };
        let document = serde_json::json!({
            "schema": SCHEMA,
            "factor": boost.factor,
            "expires_at_ms": boost.expires_at_ms,
            "created_by": boost.created_by,
            "why": boost.why,
        });
        let mut changes = self.leftover().await?;
        changes.push(Change {
            object: object.clone(),
            document: Some(document.to_string().into_bytes()),
            seen: Some(0),
        });
        let edited = self
            .edit(&Wanted {
                changes,
                author,
                why,
                force: false,
            })
            .await?;
        let table = self.routing().await?;
        let named = (region, pool, &object);
        Ok((edited, view(&table, named, &boost, clock::wall())))
    }

    /// What the boosts among `changes` live by: no longer than the last of them does, and a little.
    ///
    /// # Errors
    /// [`EditFailed::Invalid`] for one that has ended, or that would last too long; the store's.
    pub(super) async fn lease(&self, changes: &[Change]) -> Result<Option<LeaseId>, EditFailed> {
        let now = clock::wall();
        let mut longest: Option<Duration> = None;
        for change in changes {
            let Ok(Some(Document::Boost(boost))) = change.parse() else {
                // What cannot be read is told by the check.
                continue;
            };
            let left = Duration::from_millis(boost.expires_at_ms).saturating_sub(now);
            if left.is_zero() || left > BOOST_MAX {
                return Err(EditFailed::Invalid(format!(
                    "{}: `expires_at_ms` is {}, and a boost ends within {} h from now: `mizan boost add` says when",
                    change.object,
                    boost.expires_at_ms,
                    BOOST_MAX.as_secs() / 3600
                )));
            }
            longest = longest.max(Some(left));
        }
        let Some(longest) = longest else {
            return Ok(None);
        };
        Ok(Some(self.store.grant(longest + GRACE).await?.id))
    }

    /// Takes away what leases should have cleaned up: a few boosts that ended long ago.
    async fn leftover(&self) -> Result<Vec<Change>, EditFailed> {
        let now = self.now().await?;
        let long_ago = clock::wall().saturating_sub(LEFT_OVER).as_millis() as u64;
        let is_over = |held: &Held| matches!(&held.document, Document::Boost(boost) if boost.expires_at_ms < long_ago);
        let over = now.table.objects().filter(|(_, held)| is_over(held));
        Ok(over
            .take(CLEANED_MAX)
            .map(|(object, _)| Change {
                object: object.clone(),
                document: None,
                // Its lease may yet be quicker.
                seen: None,
            })
            .collect())
    }

    /// All boosts that stand in the store, those that have ended too.
    ///
    /// # Errors
    /// The store's.
    pub async fn boosts(&self) -> Result<Vec<BoostView>, EditFailed> {
        let table = self.routing().await?;
        let now = clock::wall();
        let boosts = table
            .objects()
            .filter_map(|(object, held)| match (object, &held.document) {
                (Object::Boost { region, pool, .. }, Document::Boost(boost)) => {
                    Some(view(&table, (region, pool, object), boost, now))
                }
                _ => None,
            });
        Ok(boosts.collect())
    }

    /// Ends a boost now, by its name.
    ///
    /// # Errors
    /// See [`Editor::edit`]; also if there is no such boost.
    pub async fn end_boost(
        &self,
        id: &str,
        (author, why): (String, String),
    ) -> Result<Edited, EditFailed> {
        let now = self.now().await?;
        let is_meant = |object: &&Object| matches!(object, Object::Boost { id: own, .. } if own.as_str() == id);
        let Some(object) = now.entries.keys().find(is_meant) else {
            return Err(EditFailed::Nothing(format!(
                "there is no boost `{id}`: it has ended already, or never was; `mizan boost list` shows them"
            )));
        };
        let change = Change {
            object: object.clone(),
            document: None,
            seen: Some(now.modified(object)),
        };
        self.edit(&Wanted {
            changes: vec![change],
            author,
            why,
            force: false,
        })
        .await
    }
}

fn view(
    table: &Table,
    (region, pool, object): (&Name, &Name, &Object),
    boost: &Boost,
    now: Duration,
) -> BoostView {
    let now_ms = now.as_millis() as u64;
    let key = object.to_string();
    BoostView {
        id: key.rsplit('/').next().unwrap_or_default().to_owned(),
        region: region.to_string(),
        pool: pool.to_string(),
        factor: boost.factor,
        expires_at_ms: boost.expires_at_ms,
        left_seconds: boost.expires_at_ms.saturating_sub(now_ms).div_ceil(1000),
        created_by: boost.created_by.clone(),
        why: boost.why.clone(),
        pool_factor: table.factor(region, pool, now_ms),
        shares: shares(table, object, now_ms),
    }
}

/// The pool's share of each split of the store's routes, without the boost and with it.
fn shares(table: &Table, boost: &Object, now_ms: u64) -> Vec<Share> {
    let Object::Boost { region, pool, .. } = boost else {
        return Vec::new();
    };
    let factor = |name: &Name, without: Option<&Object>| {
        let (least, most) = FACTOR.into_inner();
        let counts = |(object, it): &(&Object, &Boost)| {
            Some(*object) != without && it.expires_at_ms > now_ms
        };
        let product: f64 = table
            .boosts(region, name)
            .filter(counts)
            .map(|(_, it)| it.factor)
            .product();
        product.clamp(least, most)
    };
    let routes = table
        .objects()
        .filter_map(|(object, held)| match (object, &held.document) {
            (Object::Route { id }, Document::Route(fields)) => {
                Some((id, fields.get("split")?.as_array()?))
            }
            _ => None,
        });
    let mut found = Vec::new();
    for (id, parts) in routes {
        let parts: Vec<(Name, f64)> = parts
            .iter()
            .filter_map(|part| {
                let name = part.get("pool")?.as_str()?.parse().ok()?;
                Some((name, part.get("weight")?.as_f64()?))
            })
            .collect();
        if !parts.iter().any(|(name, _)| name == pool) {
            continue;
        }
        let share = |without: Option<&Object>| {
            let weight = |(name, weight): &(Name, f64)| weight * factor(name, without);
            let all: f64 = parts.iter().map(weight).sum();
            let own: f64 = parts
                .iter()
                .filter(|(name, _)| name == pool)
                .map(weight)
                .sum();
            if all > 0.0 { own / all } else { 0.0 }
        };
        found.push(Share {
            route: id.to_string(),
            before: share(Some(boost)),
            after: share(None),
        });
    }
    found
}
