//! The PROXY protocol, versions 1 and 2, as HAProxy's `proxy-protocol.txt` has it: bytes in, header out, no I/O.
//!
//! A header says who speaks at the other end of a connection that a balancer has opened in somebody's name. Whoever may
//! send one can claim any address, so it is read strictly: what two readers could understand differently is an error,
//! and an error is final, whatever bytes follow. As long as [`parse`] says `None`, every byte it was shown belongs to the
//! header; so a caller may take them off the socket and never takes one too many.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use thiserror::Error;

/// Longest header that is read: a version 2 header with room for a balancer's notes (TLVs) on a TLS connection.
pub const HEADER_BYTES_MAX: usize = 2048;

/// Longest header of version 1, its CRLF included.
const V1_BYTES_MAX: usize = 107;
const V1_PREFIX: &[u8] = b"PROXY ";
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version with command, family with transport, length.
const V2_FIXED: usize = 16;
/// The TLV that holds a CRC32c of the whole header.
const TLV_CRC32C: u8 = 0x03;

/// Between whom the connection is that this one stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// The sender speaks for itself, as in a probe: the socket's own addresses hold. Version 2 only.
    Local,
    /// Somebody's, but not between IP addresses that the sender can name.
    Unknown,
    /// These.
    Known {
        /// The client.
        source: SocketAddr,
        /// What it connected to.
        destination: SocketAddr,
    },
}

/// A header that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whom it names.
    pub peers: Peers,
    /// Its length in bytes; what follows is the client's.
    pub length: usize,
}

/// The rule that a header breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// Neither version's first bytes.
    #[error("there is no PROXY header")]
    Missing,
    /// No CRLF within 107 bytes.
    #[error("a version 1 header is at most 107 bytes with its CRLF")]
    V1TooLong,
    /// CR or LF alone, or another control byte.
    #[error("a version 1 header is one line of text that ends in CRLF")]
    V1Line,
    /// Not TCP4, TCP6 or UNKNOWN.
    #[error("the family is TCP4, TCP6 or UNKNOWN")]
    V1Family,
    /// Not two addresses and two ports, one space between them.
    #[error("two addresses and two ports follow the family, one space before each")]
    V1Fields,
    /// An address that is not one of the family.
    #[error("an address is not one of the family")]
    V1Address,
    /// A port that is no decimal number up to 65535 without leading zeros.
    #[error("a port is a number from 0 to 65535 without leading zeros")]
    V1Port,
    /// Another version than 2 behind the signature of version 2.
    #[error("the version is not 2")]
    V2Version,
    /// Neither LOCAL nor PROXY.
    #[error("the command is neither LOCAL nor PROXY")]
    V2Command,
    /// A family and transport that are not assigned.
    #[error("the family or the transport is not assigned")]
    V2Family,
    /// Longer than [`HEADER_BYTES_MAX`].
    #[error("the header is longer than 2048 bytes")]
    V2TooLong,
    /// Shorter than the addresses of its family.
    #[error("the length leaves no room for the addresses")]
    V2TooShort,
    /// A TLV that does not end with the header.
    #[error("a TLV is cut off by the end of the header")]
    V2Tlv,
    /// The CRC32c TLV is there and wrong, or there twice.
    #[error("the checksum (CRC32c) is wrong")]
    V2Checksum,
}

/// Reads the header at the start of `bytes`; `None` if it is not whole yet.
///
/// # Errors
/// The rule that is broken. More bytes cannot mend it.
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    match bytes.first() {
        None => Ok(None),
        Some(b'P') => v1(bytes),
        Some(_) => v2(bytes),
    }
}

/// Writes a header of version 1. A probe has no word of its own in it: [`Peers::Local`] becomes `UNKNOWN`.
pub fn write_v1(out: &mut Vec<u8>, peers: &Peers) {
    let Peers::Known {
        source,
        destination,
    } = peers
    else {
        out.extend_from_slice(b"PROXY UNKNOWN\r\n");
        return;
    };
    let (source_port, destination_port) = (source.port(), destination.port());
    let line = match same_family(source.ip(), destination.ip()) {
        Family::V4(source, destination) => {
            format!("PROXY TCP4 {source} {destination} {source_port} {destination_port}\r\n")
        }
        Family::V6(source, destination) => {
            format!("PROXY TCP6 {source} {destination} {source_port} {destination_port}\r\n")
        }
    };
    out.extend_from_slice(line.as_bytes());
}

/// Writes a header of version 2, for a stream.
pub fn write_v2(out: &mut Vec<u8>, peers: &Peers) {
    out.extend_from_slice(V2_SIGNATURE);
    let Peers::Known {
        source,
        destination,
    } = peers
    else {
        let command = if *peers == Peers::Local { 0x20 } else { 0x21 };
        out.extend_from_slice(&[command, 0, 0, 0]);
        return;
    };
    match same_family(source.ip(), destination.ip()) {
        Family::V4(source, destination) => {
            out.extend_from_slice(&[0x21, 0x11, 0, 12]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
        }
        Family::V6(source, destination) => {
            out.extend_from_slice(&[0x21, 0x21, 0, 36]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

enum Family {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

/// Both addresses in one family: IPv4 if both are, or are mapped from it.
fn same_family(source: IpAddr, destination: IpAddr) -> Family {
    let mapped = |address| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    match (source.to_canonical(), destination.to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Family::V4(source, destination),
        (source, destination) => Family::V6(mapped(source), mapped(destination)),
    }
}

fn v1(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    let begun = bytes.len().min(V1_PREFIX.len());
    if bytes[..begun] != V1_PREFIX[..begun] {
        return Err(HeaderError::Missing);
    }
    let seen = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = seen.iter().position(|byte| byte.is_ascii_control()) else {
        return if seen.len() == V1_BYTES_MAX {
            Err(HeaderError::V1TooLong)
        } else {
            Ok(None)
        };
    };
    match (seen[end], seen.get(end + 1)) {
        (b'\r', Some(b'\n')) => {}
        (b'\r', None) if end + 1 < V1_BYTES_MAX => return Ok(None),
        (b'\r', None) => return Err(HeaderError::V1TooLong),
        _ => return Err(HeaderError::V1Line),
    }
    // The prefix holds no control byte, so the end lies behind it.
    let line = std::str::from_utf8(&seen[V1_PREFIX.len()..end]).map_err(|_| HeaderError::V1Line)?;
    Ok(Some(Header {
        peers: v1_peers(line)?,
        length: end + 2,
    }))
}

/// What stands behind `PROXY `.
fn v1_peers(line: &str) -> Result<Peers, HeaderError> {
    let (family, rest) = line.split_once(' ').unwrap_or((line, ""));
    if family == "UNKNOWN" {
        // "The receiver must ignore anything presented before the CRLF."
        return Ok(Peers::Unknown);
    }
    let read: fn(&str) -> Option<IpAddr> = match family {
        "TCP4" => |text| text.parse().ok().map(IpAddr::V4),
        "TCP6" => |text| text.parse().ok().map(IpAddr::V6),
        _ => return Err(HeaderError::V1Family),
    };
    let mut fields = rest.split(' ');
    let mut next = || fields.next().ok_or(HeaderError::V1Fields);
    let [source, destination, source_port, destination_port] = [next()?, next()?, next()?, next()?];
    if fields.next().is_some() {
        return Err(HeaderError::V1Fields);
    }
    let address = |text| read(text).ok_or(HeaderError::V1Address);
    Ok(Peers::Known {
        source: SocketAddr::new(address(source)?, v1_port(source_port)?),
        destination: SocketAddr::new(address(destination)?, v1_port(destination_port)?),
    })
}

fn v1_port(text: &str) -> Result<u16, HeaderError> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_canonical = text == "0" || !text.starts_with('0');
    let port = text.parse().ok().filter(|_| is_decimal && is_canonical);
    port.ok_or(HeaderError::V1Port)
}

fn v2(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    let begun = bytes.len().min(V2_SIGNATURE.len());
    if bytes[..begun] != V2_SIGNATURE[..begun] {
        return Err(HeaderError::Missing);
    }
    // Each byte is judged when it is there, so that an error does not wait for more.
    let at = |index: usize| bytes.get(index).copied();
    let is_local = match at(12) {
        None => return Ok(None),
        Some(byte) if byte >> 4 != 2 => return Err(HeaderError::V2Version),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return Err(HeaderError::V2Command),
    };
    let Some(family) = at(13) else {
        return Ok(None);
    };
    let addresses = match family {
        // What stands behind LOCAL is passed over, "including the family which is ignored".
        _ if is_local => 0,
        0x00 => 0,
        0x11 | 0x12 => 12,
        0x21 | 0x22 => 36,
        0x31 | 0x32 => 216,
        _ => return Err(HeaderError::V2Family),
    };
    let (Some(high), Some(low)) = (at(14), at(15)) else {
        return Ok(None);
    };
    let length = V2_FIXED + usize::from(u16::from_be_bytes([high, low]));
    if length > HEADER_BYTES_MAX {
        return Err(HeaderError::V2TooLong);
    }
    if length < V2_FIXED + addresses {
        return Err(HeaderError::V2TooShort);
    }
    let Some(header) = bytes.get(..length) else {
        return Ok(None);
    };
    let peers = if is_local {
        Peers::Local
    } else {
        check_tlvs(header, V2_FIXED + addresses)?;
        v2_peers(&header[V2_FIXED..V2_FIXED + addresses])
    };
    Ok(Some(Header { peers, length }))
}

/// The addresses, by their length; those of Unix sockets name no client that anything here could go by.
fn v2_peers(addresses: &[u8]) -> Peers {
    let port = |at: usize| u16::from_be_bytes([addresses[at], addresses[at + 1]]);
    let (source, destination, ports) = match addresses.len() {
        12 => (v4(&addresses[..4]), v4(&addresses[4..8]), 8),
        36 => (v6(&addresses[..16]), v6(&addresses[16..32]), 32),
        _ => return Peers::Unknown,
    };
    match (source, destination) {
        (Some(source), Some(destination)) => Peers::Known {
            source: SocketAddr::new(source, port(ports)),
            destination: SocketAddr::new(destination, port(ports + 2)),
        },
        _ => Peers::Unknown,
    }
}

fn v4(octets: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 4] = octets.try_into().ok()?;
    Some(IpAddr::from(octets))
}

fn v6(octets: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 16] = octets.try_into().ok()?;
    Some(IpAddr::from(octets))
}

/// Passes over the TLVs, which begin at `at`: each must end within the header, and a checksum must be right.
fn check_tlvs(header: &[u8], mut at: usize) -> Result<(), HeaderError> {
    let mut checksum = None;
    while at < header.len() {
        let Some(&[kind, high, low]) = header.get(at..at + 3) else {
            return Err(HeaderError::V2Tlv);
        };
        let value = at + 3;
        at = value + usize::from(u16::from_be_bytes([high, low]));
        if at > header.len() {
            return Err(HeaderError::V2Tlv);
        }
        if kind == TLV_CRC32C {
            if at - value != 4 || checksum.is_some() {
                return Err(HeaderError::V2Checksum);
            }
            checksum = Some(value);
        }
    }
    match checksum {
        Some(value) if crc32c(header, value) != be32(&header[value..value + 4]) => {
            Err(HeaderError::V2Checksum)
        }
        _ => Ok(()),
    }
}

fn be32(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// CRC32c (RFC 3309) of `bytes` with the four at `hole` taken for zeros. By bits: a header is short and comes once.
fn crc32c(bytes: &[u8], hole: usize) -> u32 {
    let mut crc = u32::MAX;
    for (at, byte) in bytes.iter().enumerate() {
        let byte = if (hole..hole + 4).contains(&at) {
            0
        } else {
            *byte
        };
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests;
