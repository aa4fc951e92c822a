//! Where a request goes: a pure function, the same for the data path, the command line and the console.

use crate::key::Name;
use crate::table::Table;
use crate::{Document, Object};
use std::collections::BTreeMap;

/// Where a request goes, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// Pools in the order in which they are asked; the next one where those before have no usable backend.
    pub candidates: Vec<Candidate>,
    /// Pools that were passed over, each with the reason.
    pub passed: Vec<String>,
    /// The settings of the request's language.
    pub settings: BTreeMap<String, String>,
    /// Which language's they are, as their key has it: `zh-hant-tw` has those of `zh-Hant` where it has none of its own.
    /// `None`: of no language.
    pub language: Option<Name>,
}

/// A pool that may get the request.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Where it is.
    pub region: Name,
    /// Which.
    pub pool: Name,
    /// What its weight is multiplied by now.
    pub factor: f64,
    /// Why it is one, at this place.
    pub reason: String,
}

/// The settings of `language`, or of the longest of its beginnings that has some (RFC 4647, section 3.4: lookup). Upper and
/// lower case are one.
fn settings<'t>(table: &'t Table, language: &Name) -> Option<(&'t Name, &'t crate::Settings)> {
    let language = language.as_str().to_ascii_lowercase();
    let mut tag = &language[..];
    loop {
        if let Some(found) = table.settings_of(tag) {
            return Some(found);
        }
        tag = &tag[..tag.rfind('-')?];
        // A letter alone only says of what kind the next part is.
        if tag.len() >= 2 && tag.as_bytes()[tag.len() - 2] == b'-' {
            tag = &tag[..tag.len() - 2];
        }
    }
}

/// Where a request of `region` and `language` goes that asks for `service`: a chain of that name in its region, or a pool.
pub fn resolve(
    table: &Table,
    region: &Name,
    language: Option<&Name>,
    service: &Name,
    now_ms: u64,
) -> Resolution {
    let mut resolution = Resolution {
        candidates: Vec::new(),
        passed: Vec::new(),
        settings: BTreeMap::new(),
        language: None,
    };
    if let Some((tag, found)) = language.and_then(|language| settings(table, language)) {
        resolution.settings.clone_from(&found.values);
        resolution.language = Some(tag.clone());
    }
    let links = match table.chain(region, service) {
        Some(chain) => chain.links.iter(),
        None => [].iter(),
    };
    let mut wanted: Vec<_> = links
        .enumerate()
        .map(|(at, link)| {
            let place = format!("link {} of chains/{region}/{service}", at + 1);
            (link.object(region), place)
        })
        .collect();
    if wanted.is_empty() {
        let (region, pool) = (region.clone(), service.clone());
        let place = "the pool of that name: there is no such chain".to_owned();
        wanted.push((Object::Pool { region, pool }, place));
    }
    for (object, place) in wanted {
        let is_there = matches!(
            table.held(&object).map(|held| &held.document),
            Some(Document::Pool(_))
        );
        let Object::Pool { region, pool } = object else {
            continue;
        };
        if !is_there {
            let passed = format!("pools/{region}/{pool} ({place}) is not there");
            resolution.passed.push(passed);
            continue;
        }
        let factor = table.factor(&region, &pool, now_ms);
        let reason = match factor == 1.0 {
            true => place,
            false => format!("{place}; boosted × {factor}"),
        };
        resolution.candidates.push(Candidate {
            region,
            pool,
            factor,
            reason,
        });
    }
    resolution
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Stored;

    fn table() -> Table {
        let documents = [
            (
                "boosts/kr/kpop/b",
                r#"{"schema": 1, "factor": 3, "expires_at_ms": 100}"#,
            ),
            (
                "chains/kr/trending",
                r#"{"schema": 1, "pools": ["kpop", "rock", {"pool": "jpop", "region": "jp", "allow_remote": true}]}"#,
            ),
            ("pools/jp/jpop", r#"{"schema": 1}"#),
            ("pools/kr/kpop", r#"{"schema": 1}"#),
            ("settings/zh", r#"{"schema": 1, "tokenizer": "jieba"}"#),
            ("settings/zh-Hant", r#"{"schema": 1, "tokenizer": "ckip"}"#),
        ];
        let stored = documents.iter().map(|(key, value)| Stored {
            key: key.as_bytes(),
            value: value.as_bytes(),
            modified: 1,
        });
        Table::build(1, stored, None).expect("it passes no limit")
    }

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn of(region: &str, language: Option<&str>, service: &str) -> Resolution {
        let language = language.map(name);
        resolve(
            &table(),
            &name(region),
            language.as_ref(),
            &name(service),
            50,
        )
    }

    #[test]
    fn a_chain_gives_its_pools_in_order_and_says_why() {
        let resolution = of("kr", None, "trending");
        let said: Vec<_> = resolution
            .candidates
            .iter()
            .map(|candidate| {
                format!(
                    "{}/{}: {}",
                    candidate.region, candidate.pool, candidate.reason
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                "kr/kpop: link 1 of chains/kr/trending; boosted × 3",
                "jp/jpop: link 3 of chains/kr/trending",
            ]
        );
        assert_eq!(
            resolution.passed,
            ["pools/kr/rock (link 2 of chains/kr/trending) is not there"]
        );
    }

    #[test]
    fn a_pool_is_a_service_where_no_chain_has_its_name() {
        let resolution = of("jp", None, "jpop");
        assert_eq!(resolution.candidates.len(), 1);
        // Another region's pool is never taken because the own has none.
        let nothing = of("kr", None, "jpop");
        assert_eq!(nothing.candidates, []);
        assert!(
            nothing.passed[0].starts_with("pools/kr/jpop"),
            "{nothing:?}"
        );
    }

    #[test]
    fn a_language_has_the_settings_of_the_longest_tag_that_has_some() {
        let tokenizer = |language| {
            of("kr", Some(language), "trending")
                .settings
                .get("tokenizer")
                .cloned()
        };
        assert_eq!(tokenizer("zh-Hant-TW").as_deref(), Some("ckip"));
        assert_eq!(tokenizer("zh-Hans").as_deref(), Some("jieba"));
        assert_eq!(tokenizer("ko"), None);
    }

    /// Browsers and libraries write tags as they like: `zh-hant-tw` had the settings of nobody.
    #[test]
    fn upper_and_lower_case_are_one_language() {
        for asked in ["zh-Hant-TW", "zh-hant-tw", "ZH-HANT", "zH-hAnT-x-a"] {
            let found = of("kr", Some(asked), "trending");
            let language = found.language.as_ref().map(Name::as_str);
            assert_eq!(language, Some("zh-Hant"), "{asked}");
            assert_eq!(found.settings["tokenizer"], "ckip", "{asked}");
            assert_eq!(table().settings(&name("ZH")), table().settings(&name("zh")));
        }
    }

    /// `zh-x` names no language: RFC 4647 takes the letter away with what followed it.
    #[test]
    fn a_letter_alone_is_not_looked_up() {
        let documents = [
            ("settings/zh", r#"{"schema": 1, "tokenizer": "jieba"}"#),
            ("settings/zh-x", r#"{"schema": 1, "tokenizer": "none"}"#),
        ];
        let stored = documents.iter().map(|(key, value)| Stored {
            key: key.as_bytes(),
            value: value.as_bytes(),
            modified: 1,
        });
        let table = Table::build(1, stored, None).expect("it passes no limit");
        let (tag, _) = settings(&table, &name("zh-x-private")).expect("there are some");
        assert_eq!(tag.as_str(), "zh");
    }
}
