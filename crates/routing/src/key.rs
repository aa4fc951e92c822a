//! Which object a key names.
//!
//! ```text
//! pools/REGION/POOL             a pool
//! backends/REGION/POOL/ID       one of its backends
//! chains/REGION/CHAIN           pools that stand in for each other
//! settings/LANGUAGE             free-form settings of a language, as in `settings/ko`, `settings/zh-Hant`
//! routes/ID                     a route; routes are asked in the order of their identifiers
//! boosts/REGION/POOL/ID         a boost that ends by itself
//! meta                          what the table says of itself
//! ```
//!
//! They stand under a prefix of the store that has nothing else: history, nodes' accounts of themselves, locks and secrets lie
//! beside it, not in it.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Longest part of a key, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// A part of a key: 1 to 64 of `a-z A-Z 0-9 . _ -`, the first a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What comes before all names.
    pub(crate) fn before_all() -> Self {
        Self(Arc::from(""))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing is there.
    #[error("a name is missing")]
    Empty,
    /// It is too long.
    #[error("`{0}` is longer than {NAME_BYTES_MAX} bytes")]
    Long(String),
    /// It has a letter that it may not have.
    #[error(
        "`{name}`: {letter:?} cannot stand in a name; letters, digits, `.`, `_` and `-` can, the first a letter or a digit"
    )]
    Letter {
        /// The text.
        name: String,
        /// The first such letter.
        letter: char,
    },
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::Long(text.to_owned()));
        }
        let fits = |(at, letter): (usize, char)| {
            letter.is_ascii_alphanumeric() || (at > 0 && matches!(letter, '.' | '_' | '-'))
        };
        match text.char_indices().find(|place| !fits(*place)) {
            None => Ok(Self(Arc::from(text))),
            Some((_, letter)) => Err(NameError::Letter {
                name: text.to_owned(),
                letter,
            }),
        }
    }
}

/// What a key names. Sorted as the keys are, byte by byte: `pools/us-east/a` before `pools/us/a`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// `backends/REGION/POOL/ID`
    Backend {
        /// Where its pool is.
        region: Name,
        /// Its pool.
        pool: Name,
        /// Which of its backends.
        id: Name,
    },
    /// `boosts/REGION/POOL/ID`
    Boost {
        /// Where the pool is.
        region: Name,
        /// What is boosted.
        pool: Name,
        /// Which of its boosts.
        id: Name,
    },
    /// `chains/REGION/CHAIN`
    Chain {
        /// For whom it holds.
        region: Name,
        /// Its name, which routes give.
        chain: Name,
    },
    /// `meta`
    Meta,
    /// `pools/REGION/POOL`
    Pool {
        /// Where it is.
        region: Name,
        /// Its name, which routes and chains give.
        pool: Name,
    },
    /// `routes/ID`
    Route {
        /// Its place among the routes, and its name.
        id: Name,
    },
    /// `settings/LANGUAGE`
    Settings {
        /// A language tag (BCP 47).
        language: Name,
    },
}

/// Why a key names no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It begins with none of the kinds.
    #[error("`{key}` is no object of a routing table: {shapes}", shapes = SHAPES.join(", "))]
    Kind {
        /// The key.
        key: String,
    },
    /// It has too few or too many parts.
    #[error("`{key}` should look like `{shape}`")]
    Shape {
        /// The key.
        key: String,
        /// What such a key looks like.
        shape: &'static str,
    },
    /// A part is no name.
    #[error("in `{key}`: {error}")]
    Name {
        /// The key.
        key: String,
        /// What is wrong with the part.
        error: NameError,
    },
}

impl KeyError {
    fn kind(key: &str) -> Self {
        Self::Kind {
            key: key.to_owned(),
        }
    }
}

const SHAPES: [&str; 7] = [
    "backends/REGION/POOL/ID",
    "boosts/REGION/POOL/ID",
    "chains/REGION/CHAIN",
    "meta",
    "pools/REGION/POOL",
    "routes/ID",
    "settings/LANGUAGE",
];

impl FromStr for Object {
    type Err = KeyError;

    fn from_str(key: &str) -> Result<Self, KeyError> {
        let mut parts = key.split('/');
        let kind = parts.next().unwrap_or_default();
        let begins = |shape: &&&str| shape.split('/').next() == Some(kind);
        let shape = SHAPES.iter().find(begins).copied();
        let shape = shape.ok_or_else(|| KeyError::kind(key))?;
        let names: Vec<_> = parts.map(Name::from_str).collect();
        if names.len() + 1 != shape.split('/').count() {
            let key = key.to_owned();
            return Err(KeyError::Shape { key, shape });
        }
        let names: Result<Vec<_>, _> = names.into_iter().collect();
        let mut names = names
            .map_err(|error| KeyError::Name {
                key: key.to_owned(),
                error,
            })?
            .into_iter();
        // As many as were counted.
        let mut name = || names.next().ok_or_else(|| KeyError::kind(key));
        Ok(match kind {
            "backends" => Self::Backend {
                region: name()?,
                pool: name()?,
                id: name()?,
            },
            "boosts" => Self::Boost {
                region: name()?,
                pool: name()?,
                id: name()?,
            },
            "chains" => Self::Chain {
                region: name()?,
                chain: name()?,
            },
            "pools" => Self::Pool {
                region: name()?,
                pool: name()?,
            },
            "routes" => Self::Route { id: name()? },
            "settings" => Self::Settings { language: name()? },
            _ => Self::Meta,
        })
    }
}

impl Object {
    /// The parts of its key behind its kind.
    fn parts(&self) -> (&'static str, [Option<&str>; 3]) {
        let (kind, parts) = match self {
            Self::Backend { region, pool, id } => {
                ("backends", [Some(region), Some(pool), Some(id)])
            }
            Self::Boost { region, pool, id } => ("boosts", [Some(region), Some(pool), Some(id)]),
            Self::Chain { region, chain } => ("chains", [Some(region), Some(chain), None]),
            Self::Meta => ("meta", [None; 3]),
            Self::Pool { region, pool } => ("pools", [Some(region), Some(pool), None]),
            Self::Route { id } => ("routes", [Some(id), None, None]),
            Self::Settings { language } => ("settings", [Some(language), None, None]),
        };
        (kind, parts.map(|part| part.map(Name::as_str)))
    }

    /// The region and the name of the pool that it is, or belongs to.
    pub fn pool(&self) -> Option<(&Name, &Name)> {
        match self {
            Self::Backend { region, pool, .. }
            | Self::Boost { region, pool, .. }
            | Self::Pool { region, pool } => Some((region, pool)),
            Self::Chain { .. } | Self::Meta | Self::Route { .. } | Self::Settings { .. } => None,
        }
    }

    /// The bytes of its key.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> {
        let (kind, parts) = self.parts();
        let parts = parts.into_iter().flatten();
        kind.bytes()
            .chain(parts.flat_map(|part| b"/".iter().copied().chain(part.bytes())))
    }

    /// How many bytes its key has.
    pub(crate) fn key_len(&self) -> usize {
        let (kind, parts) = self.parts();
        let parts = parts.into_iter().flatten();
        kind.len() + parts.map(|part| 1 + part.len()).sum::<usize>()
    }

    /// Whether `key` names it.
    pub(crate) fn is_key(&self, key: &[u8]) -> bool {
        let (kind, parts) = self.parts();
        let rest = parts.into_iter().flatten().try_fold(
            key.strip_prefix(kind.as_bytes()),
            |rest, part| {
                let rest = rest?.strip_prefix(b"/")?;
                Some(rest.strip_prefix(part.as_bytes()))
            },
        );
        rest.flatten().is_some_and(<[u8]>::is_empty)
    }
}

/// A table of thousands compares a million times, so this goes by parts, not by bytes.
impl Ord for Object {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((kind, parts), (other_kind, other_parts)) = (self.parts(), other.parts());
        // No kind is the beginning of another, and keys of one kind have as many parts.
        let mut order = kind.cmp(other_kind);
        for (at, (part, other)) in parts.into_iter().zip(other_parts).enumerate() {
            let (Some(part), Some(other), Ordering::Equal) = (part, other, order) else {
                return order;
            };
            let (part, other) = (part.as_bytes(), other.as_bytes());
            let common = part.len().min(other.len());
            // What stands behind a part that the other one goes on from: some letters are before `/`, others behind it.
            let end = parts.get(at + 1).and_then(|next| next.map(|_| b'/'));
            let next = |part: &[u8]| part.get(common).copied().or(end);
            order = part[..common]
                .cmp(&other[..common])
                .then_with(|| next(part).cmp(&next(other)));
        }
        order
    }
}

impl PartialOrd for Object {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, parts) = self.parts();
        f.write_str(kind)?;
        parts
            .into_iter()
            .flatten()
            .try_for_each(|part| write!(f, "/{part}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(key: &str) -> String {
        let error = key.parse::<Object>().expect_err("it names nothing");
        error.to_string()
    }

    #[test]
    fn each_kind_of_key_is_read_and_written() {
        for key in [
            "backends/kr/kpop/10.0.0.1-8080",
            "boosts/kr/kpop/b7",
            "chains/kr/trending",
            "meta",
            "pools/kr/kpop",
            "routes/010-search",
            "settings/zh-Hant",
        ] {
            let object: Object = key.parse().expect("it names an object");
            assert_eq!(object.to_string(), key);
        }
    }

    #[test]
    fn what_is_wrong_with_a_key_is_said() {
        assert!(refused("pool/kr/kpop").contains("pools/REGION/POOL"));
        assert!(refused("pools/kpop").contains("should look like `pools/REGION/POOL`"));
        assert!(refused("pools/kr/k pop").contains("' ' cannot stand in a name"));
        assert!(refused("pools//kpop").contains("a name is missing"));
        assert!(refused("routes/.hidden").contains("'.' cannot stand"));
        assert!(refused(&format!("routes/{}", "a".repeat(65))).contains("longer than 64"));
        assert!(refused("").contains("is no object"));
    }

    proptest! {
        #[test]
        fn objects_are_sorted_as_their_keys(a in "(pools|chains)/[ab]{1,2}[-.]?[ab]{0,1}/[ab]{1,2}[-.]?|routes/[ab]{1,2}[-.]?[ab]?", b in "(pools|chains)/[ab]{1,2}[-.]?[ab]{0,1}/[ab]{1,2}[-.]?|routes/[ab]{1,2}[-.]?[ab]?") {
            let object = |key: &str| key.parse::<Object>().expect("it names an object");
            prop_assert_eq!(object(&a).cmp(&object(&b)), a.cmp(&b));
        }

        #[test]
        fn a_key_names_what_is_read_of_it_and_nothing_else(a in "(pools|chains)/[ab]{1,2}/[ab]{1,2}|routes/[ab]{1,3}|meta", b in "(pools|chains)/[ab]{1,2}/[ab]{1,2}|routes/[ab]{1,3}/?|meta/?") {
            let object: Object = a.parse().expect("it names an object");
            prop_assert!(object.is_key(a.as_bytes()));
            prop_assert_eq!(object.is_key(b.as_bytes()), a == b);
            prop_assert_eq!(object.key_len(), a.len());
        }

        #[test]
        fn no_key_makes_it_panic_and_what_is_read_is_written_the_same(key in "[a-z/._ -]{0,40}|(pools|routes|chains)(/[a-z.]{0,3}){0,4}") {
            if let Ok(object) = key.parse::<Object>() {
                prop_assert_eq!(object.to_string(), key);
            }
        }
    }
}
