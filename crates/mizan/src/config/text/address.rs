//! Addresses and networks.

use super::{Meaning, did_you_mean};
use crate::snapshot::{Bind, StoreAddress};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// A backend's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum BackendAddress {
    Ip(SocketAddr),
    Unix(PathBuf),
    /// `host:port`, lower case, to be resolved.
    Name(String),
}

/// The name of a service in DNS, lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct ServiceName(pub(in super::super) String);

/// An address to bind, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct BindOrOff(pub(in super::super) Option<SocketAddr>);

/// A path of a Unix socket, or `off`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct SocketOrOff(pub(in super::super) Option<PathBuf>);

/// An absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct AbsolutePath(pub(in super::super) PathBuf);

/// The mode of a Unix socket's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct FileMode(pub(in super::super) u32);

/// The kernel's limit on a Unix socket's path (`sun_path`), without its closing NUL.
const UNIX_PATH_BYTES_MAX: usize = 107;

impl Meaning for Bind {
    const FORMAT: &'static str = "bind";
    const WHAT: &'static str =
        "an address such as \"0.0.0.0:8000\", \"[::]:8000\" or \"unix:/run/app.sock\"";

    fn read(text: &str) -> Result<Self, String> {
        if let Some((scheme @ ("tcp" | "udp" | "http" | "https"), address)) = text.split_once("://")
        {
            let says = match scheme {
                "https" => "a table `tls` has it speak TLS".to_owned(),
                kind => format!("`kind = \"{kind}\"` says what it speaks"),
            };
            let message = format!("`{text}` has a scheme, and {says}");
            return Err(did_you_mean(message, Some(address.trim_end_matches('/'))));
        }
        match text.strip_prefix("unix:") {
            Some(path) => unix_path(path).map(Self::Unix),
            None => socket_address(text).map(Self::Tcp),
        }
    }
}

impl Meaning for SocketAddr {
    const FORMAT: &'static str = "socket_address";
    const WHAT: &'static str = "an address such as \"127.0.0.1:9902\"";

    fn read(text: &str) -> Result<Self, String> {
        socket_address(text)
    }
}

impl Meaning for ServiceName {
    const FORMAT: &'static str = "service_name";
    const WHAT: &'static str = "a service such as \"_http._tcp.app.internal\"";

    fn read(text: &str) -> Result<Self, String> {
        if let Some((name, port)) = text.rsplit_once(':') {
            let message =
                format!("`:{port}` is no part of a service's name: its records say the port");
            return Err(did_you_mean(message, Some(name)));
        }
        let is_label = |label: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            (1..=63).contains(&label.len()) && label.bytes().all(fits)
        };
        let whole = text.strip_suffix('.').unwrap_or(text);
        match whole.len() <= 253 && whole.split('.').all(is_label) {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err(format!("`{}` is no name", text.escape_debug())),
        }
    }
}

impl Meaning for BindOrOff {
    const FORMAT: &'static str = "bind_or_off";
    const WHAT: &'static str = "an address such as \"127.0.0.1:9901\", or \"off\"";

    fn read(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let nearest = super::super::suggest::nearest(text, ["off"]);
        let address = socket_address(text).map_err(|message| {
            if nearest.is_some() {
                did_you_mean(message, nearest)
            } else {
                message
            }
        });
        address.map(|address| Self(Some(address)))
    }
}

impl Meaning for SocketOrOff {
    const FORMAT: &'static str = "socket_or_off";
    const WHAT: &'static str = "a path such as \"/run/mizan/admin.sock\", or \"off\"";

    fn read(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        unix_path(text.strip_prefix("unix:").unwrap_or(text)).map(|path| Self(Some(path)))
    }
}

impl Meaning for AbsolutePath {
    const FORMAT: &'static str = "absolute_path";
    const WHAT: &'static str = "a path such as \"/var/lib/mizan\"";

    fn read(text: &str) -> Result<Self, String> {
        match text.starts_with('/') && !text.contains('\0') {
            true => Ok(Self(PathBuf::from(text))),
            false => Err(format!(
                "`{}` is no absolute path: it begins with `/`",
                text.escape_debug()
            )),
        }
    }
}

impl Meaning for StoreAddress {
    const FORMAT: &'static str = "store_address";
    const WHAT: &'static str = "a store such as \"embedded:/var/lib/mizan/store\" or \"etcd://10.0.0.1:2379,10.0.0.2:2379\"";

    fn read(text: &str) -> Result<Self, String> {
        if let Some(socket) = text.strip_prefix("instance:") {
            return unix_path(socket).map(Self::Instance);
        }
        match text.strip_prefix("embedded:") {
            Some(folder) => AbsolutePath::read(folder).map(|path| Self::Embedded(path.0)),
            None => match mizan_store::etcd::Options::parse(text) {
                Ok(_) => Ok(Self::Etcd(text.to_owned())),
                Err(error) if text.contains("://") => Err(error.to_string()),
                Err(_) => Err(format!(
                    "`{}` is no store: write `embedded:/FOLDER`, `etcd://HOST:2379,HOST:2379` or `instance:/SOCKET`",
                    text.escape_debug()
                )),
            },
        }
    }
}

impl Meaning for FileMode {
    const FORMAT: &'static str = "file_mode";
    const WHAT: &'static str = "a file mode such as \"0660\"";

    fn read(text: &str) -> Result<Self, String> {
        let is_octal = text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
        match u32::from_str_radix(text, 8) {
            Ok(mode @ 0..=0o777) if is_octal && (3..=4).contains(&text.len()) => Ok(Self(mode)),
            _ => Err(format!(
                "`{}` is no file mode such as `0660`: three octal digits, for owner, group and others",
                text.escape_debug()
            )),
        }
    }
}

impl Meaning for IpNet {
    const FORMAT: &'static str = "network";
    const WHAT: &'static str = "a network such as \"10.0.0.0/8\"";

    fn read(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::from(address.to_canonical()));
        }
        let network: Self = text.parse().map_err(|_| {
            let address = text.split_once('/').map_or(text, |(address, _)| address);
            match address.parse::<IpAddr>() {
                Ok(address) => {
                    let bits = if address.is_ipv4() { 32 } else { 128 };
                    format!("`{text}` is no network: the prefix length goes from 0 to {bits}")
                }
                Err(_) => format!("`{text}` is no network such as `10.0.0.0/8` or `2001:db8::/32`"),
            }
        })?;
        if network != network.trunc() {
            return Err(did_you_mean(
                format!("`{text}` has bits behind its prefix length"),
                Some(network.trunc()),
            ));
        }
        Ok(network)
    }
}

impl Meaning for BackendAddress {
    const FORMAT: &'static str = "backend_address";
    const WHAT: &'static str =
        "an address such as \"10.0.0.1:8080\", \"app.local:8080\" or \"unix:/run/app.sock\"";

    fn read(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix_path(path).map(Self::Unix);
        }
        let (bare, port) = without_scheme_and_path(text)?;
        if bare != text {
            let part = if text.contains("://") {
                "scheme"
            } else {
                "path"
            };
            let meant = if bare.contains(':') {
                bare.to_owned()
            } else {
                format!("{bare}:{port}")
            };
            return Err(did_you_mean(
                format!("a backend's address has no {part}"),
                Some(meant),
            ));
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return usable(address).map(Self::Ip);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Err(did_you_mean(
                format!("`{text}` lacks its port"),
                Some(SocketAddr::new(address, 80)),
            ));
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            let meant = host_name(text).ok().map(|host| format!("{host}:80"));
            return Err(did_you_mean(format!("`{text}` lacks its port"), meant));
        };
        let port: u16 = port
            .parse()
            .map_err(|_| format!("`{port}` is no port; ports go from 1 to 65535"))?;
        if port == 0 {
            return Err("port 0 cannot be connected to; ports go from 1 to 65535".to_owned());
        }
        Ok(Self::Name(format!("{}:{port}", host_name(host)?)))
    }
}

/// What is left of a URL, and the port that its scheme stands for.
fn without_scheme_and_path(text: &str) -> Result<(&str, u16), String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let port = if scheme == "https" { 443 } else { 80 };
    let bare = rest.split('/').next().unwrap_or(rest);
    if bare.is_empty() {
        return Err(format!("`{text}` is no address such as `10.0.0.1:8080`"));
    }
    Ok((bare, port))
}

fn usable(address: SocketAddr) -> Result<SocketAddr, String> {
    if address.ip().is_unspecified() {
        return Err(format!(
            "`{}` stands for every address; a backend needs one of its own, such as `127.0.0.1`",
            address.ip()
        ));
    }
    if address.port() == 0 {
        return Err("port 0 cannot be connected to; ports go from 1 to 65535".to_owned());
    }
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// RFC 1123 §2.1, and `_` as found in container networks; lower case.
fn host_name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    let looks_like_ip = name
        .split('.')
        .next_back()
        .is_some_and(|label| label.bytes().all(|b| b.is_ascii_digit()));
    if name.len() > 253 || looks_like_ip || !name.split('.').all(is_label) {
        return Err(format!(
            "`{}` is neither an IP address nor a host name",
            text.escape_debug()
        ));
    }
    Ok(name.to_ascii_lowercase())
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let message = format!(
        "`{}` is no address such as `0.0.0.0:8000`",
        text.escape_debug()
    );
    if let Ok(port) = text.trim_start_matches(['*', ':']).parse::<u16>() {
        return Err(did_you_mean(message, Some(format!("0.0.0.0:{port}"))));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Err(did_you_mean(
            format!("`{text}` lacks its port"),
            Some(SocketAddr::new(address, 8000)),
        ));
    }
    if let Some((host, port)) = text.rsplit_once(':') {
        if port.parse::<u32>().is_ok_and(|port| port > 65_535) {
            return Err(format!("`{port}` is no port; ports go from 0 to 65535"));
        }
        if host == "localhost" {
            return Err(did_you_mean(message, Some(format!("127.0.0.1:{port}"))));
        }
    }
    if text.starts_with('/') {
        return Err(did_you_mean(message, Some(format!("unix:{text}"))));
    }
    Err(message)
}

fn unix_path(path: &str) -> Result<PathBuf, String> {
    if !path.starts_with('/') {
        return Err(format!(
            "the path of a Unix socket is absolute; `{}` is not",
            path.escape_debug()
        ));
    }
    if path.len() > UNIX_PATH_BYTES_MAX {
        return Err(format!(
            "the path of a Unix socket has at most {UNIX_PATH_BYTES_MAX} bytes; this one has {}",
            path.len()
        ));
    }
    if path.contains('\0') {
        return Err("the path of a Unix socket must not hold a NUL".to_owned());
    }
    Ok(PathBuf::from(path))
}
