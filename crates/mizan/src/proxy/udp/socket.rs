//! A listener's UDP socket: datagrams with the address that they came from, and where several of our addresses lead to
//! it, with the one that they were sent to. An answer must come from there, or the client does not know it.

use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// What is asked of the kernel for datagrams that wait to be read; it gives `net.core.rmem_max` at most.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Who a datagram is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    /// Its address and port.
    pub(super) peer: SocketAddr,
    /// Which of our addresses it speaks to; `None` where the socket is bound to one.
    pub(super) local: Option<Local>,
}

/// One of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Local {
    address: IpAddr,
    /// Its network interface where the address says nothing without; else 0.
    interface: u32,
}

impl Local {
    pub(super) fn new(address: IpAddr, interface: u32) -> Self {
        let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        Self {
            address,
            interface: if is_link_local { interface } else { 0 },
        }
    }
}

/// A datagram that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) client: Client,
    pub(super) length: usize,
    /// It was longer than the room for it.
    pub(super) is_cut: bool,
}

/// Opens one worker's socket. All workers bind to one address; the kernel keeps a client with one of them.
pub(in crate::proxy) fn open(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = bare(address)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    // Best effort: the rest is a system's setting.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    if address.ip().is_unspecified() {
        match address {
            SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?,
            SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?,
        }
    }
    socket.bind(&SockAddr::from(address))?;
    Ok(socket.into())
}

/// Binds without sharing, which fails where another process has the port.
pub(in crate::proxy) fn expect_free(address: SocketAddr) -> io::Result<()> {
    bare(address)?.bind(&SockAddr::from(address))
}

fn bare(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
    if address.is_ipv6() {
        // Dual stack on the unspecified address only, as with TCP.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    Ok(socket)
}

/// A socket of one session: what it reads is `backend`'s alone, and it hears when nothing listens there.
pub(super) fn connected(backend: SocketAddr) -> io::Result<UdpSocket> {
    let domain = Domain::for_address(backend);
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(domain, kind, Some(Protocol::UDP))?;
    socket.connect(&SockAddr::from(backend))?;
    Ok(socket.into())
}

/// Room for what the kernel tells beside a datagram.
pub(super) fn control_room() -> Vec<u8> {
    // The larger of the two; a socket gets one of them.
    nix::cmsg_space!(libc::in6_pktinfo)
}

/// Reads one datagram into `buffer`.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if none waits.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    control: &mut [u8],
) -> io::Result<Received> {
    let mut room = [IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut room,
        Some(control),
        MsgFlags::MSG_DONTWAIT,
    )?;
    let peer = message.address.as_ref().and_then(peer_of);
    let peer = peer.ok_or(io::ErrorKind::InvalidData)?;
    let local = message
        .cmsgs()
        .ok()
        .and_then(|mut told| told.find_map(local_of));
    Ok(Received {
        client: Client { peer, local },
        length: message.bytes,
        is_cut: message.flags.contains(MsgFlags::MSG_TRUNC),
    })
}

/// Sends one datagram to `client`, from the address that it knows.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if the socket's buffer is full.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], client: &Client) -> io::Result<()> {
    let mut v4 = libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: libc::in_addr { s_addr: 0 },
        ipi_addr: libc::in_addr { s_addr: 0 },
    };
    let mut v6 = libc::in6_pktinfo {
        ipi6_addr: libc::in6_addr { s6_addr: [0; 16] },
        ipi6_ifindex: 0,
    };
    let from = client.local.map(|local| match local.address {
        IpAddr::V4(address) => {
            v4.ipi_spec_dst.s_addr = u32::from_ne_bytes(address.octets());
            ControlMessage::Ipv4PacketInfo(&v4)
        }
        IpAddr::V6(address) => {
            v6.ipi6_addr.s6_addr = address.octets();
            v6.ipi6_ifindex = local.interface;
            ControlMessage::Ipv6PacketInfo(&v6)
        }
    });
    let peer = SockaddrStorage::from(client.peer);
    sendmsg(
        socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        from.as_slice(),
        MsgFlags::MSG_DONTWAIT,
        Some(&peer),
    )?;
    Ok(())
}

fn peer_of(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddrV4::new(v4.ip(), v4.port()).into());
    }
    let v6 = address.as_sockaddr_in6()?;
    Some(SocketAddrV6::new(v6.ip(), v6.port(), v6.flowinfo(), v6.scope_id()).into())
}

fn local_of(told: ControlMessageOwned) -> Option<Local> {
    match told {
        // Not the address in the header, which may be a broadcast's: the one to answer from.
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            let address = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
            Some(Local::new(address.into(), 0))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            Some(Local::new(address.into(), info.ipi6_ifindex))
        }
        _ => None,
    }
}
