//! What the DNS client needs of tokio.
//!
//! The library's own glue would switch on tokio's many-threaded runtime: then each socket of the data path is larger and asks
//! at each turn which of two runtimes it is of. This one is as short, and leaves tokio as it is.

use futures_io::{AsyncRead, AsyncWrite};
use hickory_resolver::net::runtime::{DnsTcpStream, DnsUdpSocket, RuntimeProvider, Spawn, Time};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// How long a connect to a server may take that nobody limits.
const CONNECT_MAX: Duration = Duration::from_secs(5);

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The runtime that this is called in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Here;

/// Time as tokio has it.
#[derive(Debug)]
pub(super) struct Tokio;

/// A UDP socket.
#[derive(Debug)]
pub(super) struct Udp(UdpSocket);

/// A TCP connection.
#[derive(Debug)]
pub(super) struct Tcp(TcpStream);

impl RuntimeProvider for Here {
    type Handle = Self;
    type Timer = Tokio;
    type Udp = Udp;
    type Tcp = Tcp;

    fn create_handle(&self) -> Self {
        *self
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        own: Option<SocketAddr>,
        limit: Option<Duration>,
    ) -> Boxed<'static, io::Result<Tcp>> {
        Box::pin(async move {
            let socket = match server {
                SocketAddr::V4(_) => TcpSocket::new_v4(),
                SocketAddr::V6(_) => TcpSocket::new_v6(),
            }?;
            if let Some(own) = own {
                socket.bind(own)?;
            }
            socket.set_nodelay(true)?;
            let limit = limit.unwrap_or(CONNECT_MAX);
            tokio::time::timeout(limit, socket.connect(server))
                .await?
                .map(Tcp)
        })
    }

    fn bind_udp(&self, own: SocketAddr, _: SocketAddr) -> Boxed<'static, io::Result<Udp>> {
        Box::pin(async move { UdpSocket::bind(own).await.map(Udp) })
    }
}

/// What is spawned ends with the runtime.
impl Spawn for Here {
    fn spawn_bg(&mut self, future: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(future);
    }
}

impl Time for Tokio {
    fn delay_for<'a>(duration: Duration) -> Boxed<'a, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn timeout<'a, F>(duration: Duration, future: F) -> Boxed<'a, io::Result<F::Output>>
    where
        F: 'static + Future + Send + 'a,
    {
        Box::pin(async move { Ok(tokio::time::timeout(duration, future).await?) })
    }
}

impl DnsUdpSocket for Udp {
    type Time = Tokio;

    fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buffer = ReadBuf::new(buffer);
        let received = self.0.poll_recv_from(cx, &mut buffer);
        received.map_ok(|from| (buffer.filled().len(), from))
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_send_to(cx, bytes, to)
    }
}

impl DnsTcpStream for Tcp {
    type Time = Tokio;
}

impl AsyncRead for Tcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let read = Pin::new(&mut self.0).poll_read(cx, &mut buffer);
        read.map_ok(|()| buffer.filled().len())
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
