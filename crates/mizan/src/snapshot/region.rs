//! Regions and languages of requests: what a route does for each.

use super::HashKey;
use super::route::{HeaderEdits, Split};
use ipnet::IpNet;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// How a request's region is known where a balancer serves several.
#[derive(Debug, Default)]
pub struct Regions {
    /// The others, by name, sorted; [`Regions::of`] gives a place behind them, from 1.
    names: Vec<Arc<str>>,
    /// The header that names it, in lower case.
    header: Option<String>,
    /// Networks of clients, by the length of their prefix, the longest first; each with its region's place.
    clients: Vec<(u8, HashMap<IpAddr, u16>)>,
}

impl Regions {
    /// Those of `names` beside the balancer's `own`. A region of a network that is none of them is as if it were not there.
    pub fn new(
        own: &str,
        mut names: Vec<Arc<str>>,
        header: Option<String>,
        clients: impl IntoIterator<Item = (IpNet, Arc<str>)>,
    ) -> Self {
        names.sort();
        names.dedup();
        names.retain(|name| **name != *own);
        let mut regions = Self {
            names,
            header,
            clients: Vec::new(),
        };
        for (network, name) in clients {
            let place = match *name == *own {
                true => Some(0),
                false => regions.place(name.as_bytes()),
            };
            let Some(place) = place else { continue };
            let length = width(network.prefix_len(), network.addr());
            let at = regions.clients.binary_search_by(|(own, _)| length.cmp(own));
            let at = at.unwrap_or_else(|at| {
                regions.clients.insert(at, (length, HashMap::new()));
                at
            });
            regions.clients[at].1.insert(network.network(), place);
        }
        regions
    }

    /// The other regions, in the order of their places.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Whether requests may be of another region than the balancer's own.
    pub fn is_single(&self) -> bool {
        self.names.is_empty()
    }

    /// The name of the header that says it, if one does.
    pub fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }

    /// The place of a region by its name, on a balancer of region `own`; `None`: no request here is of it.
    pub fn named(&self, own: &str, name: &str) -> Option<u16> {
        match name == own {
            true => Some(0),
            false => self.place(name.as_bytes()),
        }
    }

    fn place(&self, name: &[u8]) -> Option<u16> {
        let found = self.names.binary_search_by(|own| own.as_bytes().cmp(name));
        u16::try_from(found.ok()? + 1).ok()
    }

    /// The place of a request's region: what its header names, else where its client is, else the balancer's own, which is 0.
    /// A name that is no region's is as none.
    pub fn of(&self, header: Option<&[u8]>, client: Option<IpAddr>) -> u16 {
        if let Some(place) = header.and_then(|name| self.place(name)) {
            return place;
        }
        let Some(client) = client else { return 0 };
        let client = client.to_canonical();
        let found = self.clients.iter().find_map(|(length, networks)| {
            let bits = match client {
                IpAddr::V4(_) => length.checked_sub(96)?,
                IpAddr::V6(_) => *length,
            };
            let network = IpNet::new(client, bits).ok()?.network();
            networks.get(&network).copied()
        });
        found.unwrap_or(0)
    }
}

/// A prefix's length as if all addresses were of version 6, so that one order holds for both.
fn width(length: u8, address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => length + 96,
        IpAddr::V6(_) => length,
    }
}

/// What a route does that depends on a request's region and language.
#[derive(Debug, Default)]
pub struct Varying {
    /// For each region of [`Regions::names`] where its requests go; `None`: the route's pools are not there.
    pub regions: Vec<Option<Split>>,
    /// The settings that backends are offered.
    pub settings: Option<SettingHeaders>,
}

/// Settings of a language, as headers.
#[derive(Debug)]
pub struct SettingHeaders {
    /// What of a request says its language: a tag, or a list as `Accept-Language` has it.
    pub language: HashKey,
    /// The route's edits with the settings in them, by the language's tag in lower case.
    pub by_language: HashMap<String, HeaderEdits>,
    /// Those of a language without settings: what a client claims reaches no backend.
    pub without: HeaderEdits,
}

impl SettingHeaders {
    /// The edits for a request that says `language` (RFC 4647 §3.4: the longest tag that has some).
    pub fn of(&self, language: Option<&[u8]>) -> &HeaderEdits {
        let said = language.and_then(|it| std::str::from_utf8(it).ok());
        let Some(said) = said else {
            return &self.without;
        };
        preferred(said)
            .find_map(|tag| self.lookup(tag))
            .unwrap_or(&self.without)
    }

    fn lookup(&self, tag: &str) -> Option<&HeaderEdits> {
        let tag = tag.to_ascii_lowercase();
        let mut tag = tag.as_str();
        loop {
            if let Some(found) = self.by_language.get(tag) {
                return Some(found);
            }
            let (shorter, _) = tag.rsplit_once('-')?;
            // A single letter says what comes behind it, and means nothing alone.
            tag = match shorter.rsplit_once('-') {
                Some((rest, last)) if last.len() == 1 => rest,
                _ => shorter,
            };
        }
    }
}

/// Most languages of a list that are looked at.
const LANGUAGES_MAX: usize = 8;

/// The tags of a list, the most wanted first (RFC 9110 §12.5.4); what is not wanted at all is left out.
fn preferred(list: &str) -> impl Iterator<Item = &str> {
    let mut tags: Vec<(f32, &str)> = list
        .split(',')
        .take(LANGUAGES_MAX)
        .filter_map(|item| {
            let mut parts = item.split(';').map(str::trim);
            let tag = parts.next().filter(|tag| !tag.is_empty())?;
            let quality = parts.find_map(|part| part.strip_prefix("q="));
            let quality = quality.map_or(Some(1.0), |it| it.parse().ok())?;
            (quality > 0.0).then_some((quality, tag))
        })
        .collect();
    // Stable: of equal ones the first.
    tags.sort_by(|a, b| b.0.total_cmp(&a.0));
    tags.into_iter().map(|(_, tag)| tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions() -> Regions {
        let names = ["jp", "kr", "sg"].map(Arc::from).to_vec();
        let clients = [
            ("10.0.0.0/8", "jp"),
            ("10.1.0.0/16", "sg"),
            ("10.2.0.0/16", "kr"),
            ("2001:db8::/32", "jp"),
            ("0.0.0.0/0", "sg"),
            ("192.0.2.0/24", "nowhere"),
        ];
        let clients = clients.map(|(net, name)| (net.parse().expect("a network"), Arc::from(name)));
        Regions::new("kr", names, Some("x-region".into()), clients)
    }

    #[test]
    fn the_header_goes_before_the_client_and_the_longest_network_counts() {
        let regions = regions();
        let of = |header: Option<&str>, client: &str| {
            let client = client.parse().expect("an address");
            match regions.of(header.map(str::as_bytes), Some(client)) {
                0 => "kr",
                place => &*regions.names()[usize::from(place) - 1],
            }
        };
        assert_eq!(of(Some("sg"), "10.0.0.1"), "sg");
        assert_eq!(of(Some("mars"), "10.0.0.1"), "jp");
        assert_eq!(of(None, "10.1.2.3"), "sg");
        assert_eq!(of(None, "10.2.2.3"), "kr");
        assert_eq!(of(None, "::ffff:10.1.2.3"), "sg");
        assert_eq!(of(None, "2001:db8::1"), "jp");
        assert_eq!(of(None, "2001:db9::1"), "kr");
        assert_eq!(of(None, "192.0.2.1"), "sg");
        assert_eq!(regions.of(None, None), 0);
    }

    fn headers() -> SettingHeaders {
        let edits = |value: &str| HeaderEdits {
            set: vec![("x-tokenizer".into(), value.into())],
            ..HeaderEdits::default()
        };
        let tags = ["ko", "zh", "zh-hant"];
        SettingHeaders {
            language: HashKey::Header("accept-language".into()),
            by_language: tags.map(|tag| (tag.to_owned(), edits(tag))).into(),
            without: HeaderEdits::default(),
        }
    }

    #[test]
    fn a_language_has_the_settings_of_the_longest_tag_that_has_some_and_the_most_wanted_first() {
        let headers = headers();
        let of = |said: &str| {
            let edits = headers.of(Some(said.as_bytes()));
            edits.set.first().map_or("", |(_, value)| value.as_str())
        };
        assert_eq!(of("ko"), "ko");
        assert_eq!(of("KO-kr"), "ko");
        assert_eq!(of("zh-Hant-TW"), "zh-hant");
        assert_eq!(of("zh-Hans-CN"), "zh");
        assert_eq!(of("zh-x-private"), "zh");
        assert_eq!(of("en, zh-hant;q=0.3, ko;q=0.8"), "ko");
        assert_eq!(of("ko;q=0, zh;q=0.1"), "zh");
        assert_eq!(of("fr"), "");
        assert_eq!(of("*"), "");
        assert_eq!(of(";q=,,;;-"), "");
        assert!(headers.of(None).is_empty());
        assert!(headers.of(Some(b"\xff")).is_empty());
    }
}
