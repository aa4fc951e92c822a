//! A DNS server on loopback, by bytes: what it answers changes on command.

use super::{Stop, locked};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const A: u16 = 1;
const AAAA: u16 = 28;
const SRV: u16 = 33;

/// The server; gone when dropped.
#[derive(Debug)]
pub(crate) struct DnsServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    zone: Mutex<Zone>,
    stop: Stop,
}

#[derive(Debug, Default)]
struct Zone {
    /// By name and type.
    records: BTreeMap<(String, u16), Records>,
    outage: Option<Outage>,
    asked: BTreeMap<String, usize>,
}

/// The TTL in seconds, and the data of each record.
type Records = (u32, Vec<Vec<u8>>);

/// How the server does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// It says nothing.
    Silent,
    /// SERVFAIL.
    Failing,
    /// REFUSED.
    Refusing,
    /// SERVFAIL to who asks for IPv4 addresses, and to nobody else.
    FailingForV4,
}

/// A record of a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service<'a> {
    pub(crate) priority: u16,
    pub(crate) weight: u16,
    pub(crate) port: u16,
    pub(crate) target: &'a str,
}

impl DnsServer {
    /// A server that knows no name.
    pub(crate) fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("it is bound");
        let limit = Some(Duration::from_millis(20));
        socket.set_read_timeout(limit).expect("a time-out");
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        std::thread::spawn(move || serve(&socket, &own));
        Self { address, shared }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// `name` has these addresses, for so many seconds.
    pub(crate) fn set(&self, name: &str, ttl: u32, addresses: &[&str]) {
        let addresses: Vec<IpAddr> = addresses
            .iter()
            .map(|address| address.parse().expect("an address"))
            .collect();
        let bytes = |address: &IpAddr| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        for (kind, is_v4) in [(A, true), (AAAA, false)] {
            let of_kind = addresses.iter().filter(|it| it.is_ipv4() == is_v4);
            self.put(name, kind, ttl, of_kind.map(bytes).collect());
        }
    }

    /// `name` is served so, for so many seconds.
    pub(crate) fn set_service(&self, name: &str, ttl: u32, services: &[Service<'_>]) {
        let bytes = |service: &Service<'_>| {
            let numbers = [service.priority, service.weight, service.port];
            let mut data: Vec<u8> = numbers.iter().flat_map(|it| it.to_be_bytes()).collect();
            write_name(&mut data, service.target);
            data
        };
        self.put(name, SRV, ttl, services.iter().map(bytes).collect());
    }

    /// There is no such name.
    pub(crate) fn remove(&self, name: &str) {
        let is_other = |(known, _): &(String, u16)| known != name;
        locked(&self.shared.zone)
            .records
            .retain(|key, _| is_other(key));
    }

    /// From now on it does not serve, or does again.
    pub(crate) fn set_outage(&self, outage: Option<Outage>) {
        locked(&self.shared.zone).outage = outage;
    }

    /// Questions for `name` so far, whatever their type.
    pub(crate) fn asked(&self, name: &str) -> usize {
        let zone = locked(&self.shared.zone);
        zone.asked.get(name).copied().unwrap_or_default()
    }

    fn put(&self, name: &str, kind: u16, ttl: u32, data: Vec<Vec<u8>>) {
        let mut zone = locked(&self.shared.zone);
        zone.records.insert((name.to_owned(), kind), (ttl, data));
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.shared.stop.stop();
    }
}

fn serve(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = [0; 1500];
    while !shared.stop.is_stopped() {
        // A time-out: nobody has asked.
        let Ok((length, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        if let Some(answer) = answer(&buffer[..length], &mut locked(&shared.zone)) {
            // Who asked may be gone.
            let _ = socket.send_to(&answer, from);
        }
    }
}

/// The answer to a question (RFC 1035, section 4); `None`: there is none.
fn answer(question: &[u8], zone: &mut Zone) -> Option<Vec<u8>> {
    let (name, after) = read_name(question, 12)?;
    let kind = u16::from_be_bytes(question.get(after..after + 2)?.try_into().ok()?);
    *zone.asked.entry(name.clone()).or_default() += 1;
    let is_known = zone.records.keys().any(|(known, _)| *known == name);
    let code = match zone.outage {
        Some(Outage::Silent) => return None,
        Some(Outage::Failing) => 2,
        Some(Outage::Refusing) => 5,
        Some(Outage::FailingForV4) if kind == A => 2,
        _ if is_known => 0,
        _ => 3,
    };
    let (ttl, data) = match zone.records.get(&(name, kind)) {
        Some((ttl, data)) if code == 0 => (*ttl, data.as_slice()),
        _ => (0, [].as_slice()),
    };
    let mut out = question[..2].to_vec();
    out.extend([0x81, 0x80 | code, 0, 1]);
    out.extend((data.len() as u16).to_be_bytes());
    out.extend([0, 0, 0, 0]);
    out.extend(&question[12..after + 4]);
    for record in data {
        // The question's name, by its place.
        out.extend([0xc0, 12]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1]);
        out.extend(ttl.to_be_bytes());
        out.extend((record.len() as u16).to_be_bytes());
        out.extend(record);
    }
    Some(out)
}

/// The name at `at`, in lower case, and where it ends.
fn read_name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        let label = message.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
}

fn write_name(out: &mut Vec<u8>, name: &str) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(label.len() as u8);
        out.extend(label.as_bytes());
    }
    out.push(0);
}
