//! Where etcd is, and who we are to it.

use bytes::Bytes;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The port of etcd's clients.
const PORT: u16 = 2379;

/// Where etcd is, and who we are to it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its members, each `host:port`, or `host` for port 2379; an IPv6 address in brackets. Not empty.
    pub members: Vec<String>,
    /// How to speak TLS; `None`: without.
    pub tls: Option<Tls>,
    /// User and password; `None`: without, or who the client certificate says.
    pub credentials: Option<Credentials>,
    /// What stands before each key in etcd, and is not seen here; empty: nothing.
    pub namespace: Bytes,
    /// How long is waited.
    pub deadlines: Deadlines,
}

/// TLS, from version 1.2.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Certificates of the authorities that are trusted, as PEM; `None`: the system's.
    pub roots: Option<Bytes>,
    /// What we show of ourselves.
    pub client: Option<ClientCertificate>,
    /// The name that the members' certificates are for; `None`: each member's host.
    pub server_name: Option<String>,
}

/// A certificate with its key.
#[derive(Clone)]
pub struct ClientCertificate {
    /// Ours first, then those that lead to the authority, as PEM.
    pub chain: Bytes,
    /// The key of the first, as PEM.
    pub key: Bytes,
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}

/// A user of etcd.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Its name.
    pub user: String,
    /// Where its password is.
    pub password: Password,
}

/// Where a password is.
#[derive(Clone)]
pub enum Password {
    /// Here.
    Text(String),
    /// The first line of this file, read whenever etcd asks for it.
    File(PathBuf),
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// How long is waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// For one member to be connected with, TLS and all. Default: 1 s.
    pub connect: Duration,
    /// For an answer, before the next question goes to another member and one that may be repeated is. Default: 1 s.
    pub patience: Duration,
    /// For an answer, whoever gives it. Default: 5 s.
    pub request: Duration,
    /// Between two questions whether an idle watch is alive; it is given up when three are not answered. At least a second
    /// against a real etcd, so as not to burden it. Default: 1 s.
    pub progress: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            patience: Duration::from_secs(1),
            request: Duration::from_secs(5),
            progress: Duration::from_secs(1),
        }
    }
}

/// What is wrong with options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOptions {
    /// An address that cannot be read.
    #[error("`{address}`: {why}")]
    Address {
        /// Which.
        address: String,
        /// What is wrong with it, and what was meant.
        why: String,
    },
    /// Certificates or keys that cannot be read, or do not belong together.
    #[error("TLS: {0}")]
    Tls(String),
    /// A namespace that leaves no room for keys, in bytes.
    #[error("the namespace has {found} bytes, more than {limit}")]
    Namespace {
        /// How long it is.
        found: usize,
        /// How long it may be.
        limit: usize,
    },
}

impl Options {
    /// Reads `etcd://a:2379,b:2379`, or `etcds://…` for TLS with the system's roots. A member without a port is at 2379.
    ///
    /// # Errors
    /// [`InvalidOptions::Address`] for anything else.
    pub fn parse(address: &str) -> Result<Self, InvalidOptions> {
        let wrong = |why: &str| InvalidOptions::Address {
            address: address.to_owned(),
            why: why.to_owned(),
        };
        let (members, tls) = if let Some(rest) = address.strip_prefix("etcds://") {
            (rest, Some(Tls::default()))
        } else if let Some(rest) = address.strip_prefix("etcd://") {
            (rest, None)
        } else if let Some((scheme @ ("http" | "https"), rest)) = address.split_once("://") {
            let ours = if scheme == "http" { "etcd" } else { "etcds" };
            return Err(wrong(&format!("write `{ours}://{rest}`")));
        } else {
            return Err(wrong(
                "it begins with `etcd://`, or with `etcds://` for TLS, as in `etcd://10.0.0.1:2379,10.0.0.2:2379`",
            ));
        };
        if members.contains('@') {
            return Err(InvalidOptions::Address {
                // Not the address itself: it holds a secret.
                address: "etcd://…@…".to_owned(),
                why: "user and password do not stand in an address, where everybody can read them; they have options of their own"
                    .to_owned(),
            });
        }
        if members.contains('/') {
            return Err(wrong(
                "nothing comes after the members: a prefix of the keys is the setting `namespace`",
            ));
        }
        let members = members
            .split(',')
            .map(|member| parse_member(member).map_err(|why| wrong(&why)))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            members,
            tls,
            credentials: None,
            namespace: Bytes::new(),
            deadlines: Deadlines::default(),
        })
    }
}

/// `member` with its port; or what is wrong with it, and what was meant.
pub(super) fn parse_member(member: &str) -> Result<String, String> {
    if member.is_empty() {
        return Err("a member is missing: between two commas, or before or behind one".to_owned());
    }
    let member = match member.strip_prefix('[') {
        Some(rest) => {
            let Some((host, port)) = rest.split_once(']') else {
                return Err(format!("`{member}`: the bracket is not closed"));
            };
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(format!("`{host}` is no IPv6 address"));
            }
            match port {
                "" => format!("[{host}]:{PORT}"),
                _ => member.to_owned(),
            }
        }
        None if member.matches(':').count() > 1 => {
            return Err(format!(
                "`{member}`: an IPv6 address stands in brackets, as in `[{member}]:{PORT}`"
            ));
        }
        None if member.contains(':') => member.to_owned(),
        None => format!("{member}:{PORT}"),
    };
    let (host, port) = split(&member);
    if host.is_empty() {
        return Err(format!("`{member}`: there is no host before the port"));
    }
    if let Some(odd) = host.chars().find(|c| !is_of_a_host(*c)) {
        return Err(format!(
            "`{host}`: a host has no `{}`",
            odd.escape_default()
        ));
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(member),
        _ => Err(format!(
            "`{port}` is no port: a number from 1 to 65535, as in `{host}:{PORT}`"
        )),
    }
}

fn is_of_a_host(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._[]:".contains(character)
}

/// A member's host and port.
pub(super) fn split(member: &str) -> (&str, &str) {
    member.rsplit_once(':').unwrap_or((member, ""))
}

impl Password {
    /// What it is now.
    pub(super) fn read(&self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => Ok(text.lines().next().unwrap_or_default().to_owned()),
                Err(error) => Err(format!("{}: {error}", path.display())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (address, members) in [
            ("etcd://a", &["a:2379"][..]),
            ("etcd://a:1,b", &["a:1", "b:2379"]),
            ("etcd://[::1],[::1]:5", &["[::1]:2379", "[::1]:5"]),
            ("etcds://etcd-0.internal_x:1", &["etcd-0.internal_x:1"]),
        ] {
            let options = Options::parse(address).expect(address);
            assert_eq!(options.members, members);
            assert_eq!(options.tls.is_some(), address.starts_with("etcds"));
        }
    }

    #[test]
    fn what_is_wrong_with_an_address_is_told_with_its_mend() {
        for (address, told) in [
            ("a:2379", "begins with `etcd://`"),
            ("https://a:2379", "write `etcds://a:2379`"),
            ("http://a", "write `etcd://a`"),
            ("etcd://", "a member is missing"),
            ("etcd://a,,b", "a member is missing"),
            ("etcd://a:0", "`0` is no port"),
            ("etcd://a:http", "`http` is no port"),
            ("etcd://a:", "`` is no port"),
            ("etcd://:2379", "no host"),
            ("etcd://::1", "`[::1]:2379`"),
            ("etcd://[::1", "not closed"),
            ("etcd://[x]:1", "no IPv6 address"),
            ("etcd://a/mizan", "`namespace`"),
            ("etcd://a b", "has no ` `"),
        ] {
            let error = Options::parse(address).expect_err(address).to_string();
            assert!(error.contains(told), "{address}: {error}");
            assert!(error.contains(address), "{address}: {error}");
        }
    }

    #[test]
    fn members_that_are_named_one_by_one_are_looked_at_too() {
        let mut options = Options::parse("etcd://a").expect("good");
        options.members = vec!["::1".to_owned()];
        let error = crate::etcd::Etcd::new(&options).expect_err("refused");
        assert!(error.to_string().contains("`[::1]:2379`"), "{error}");
        options.members.clear();
        let error = crate::etcd::Etcd::new(&options).expect_err("refused");
        assert!(error.to_string().contains("no member is named"), "{error}");
    }

    #[test]
    fn a_secret_in_an_address_is_not_repeated() {
        let error = Options::parse("etcd://root:s3cret@a").expect_err("refused");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let credentials = Credentials {
            user: "root".to_owned(),
            password: Password::Text("s3cret".to_owned()),
        };
        let certificate = ClientCertificate {
            chain: "s3cret".into(),
            key: "s3cret".into(),
        };
        let shown = format!("{credentials:?} {certificate:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}
