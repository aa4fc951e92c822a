//! Connecting to a backend, and the probe that does no more than that.

use super::{Fault, Opening};
use mizan_core::backend::Address;
use socket2::SockRef;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// A TCP (or Unix) connect, and a handshake if the backend speaks TLS.
pub(super) async fn probe(
    address: &Address,
    opening: Opening<'_>,
    connected: &mut bool,
) -> Result<(), Fault> {
    match address {
        Address::Ip(address) => {
            let stream = connect(*address).await?;
            // A reset on the heels of a header would make an error of it in the backend's log.
            if opening.first.is_empty() {
                reset_on_close(&stream);
            }
            *connected = true;
            shake(stream, opening).await
        }
        Address::Unix(path) => {
            let stream = connect_unix(path).await?;
            *connected = true;
            shake(stream, opening).await
        }
    }
}

async fn shake<S>(mut stream: S, opening: Opening<'_>) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    send(&mut stream, opening.first).await?;
    match opening.tls {
        Some(tls) => tls.handshake(stream).await.map(drop),
        None => Ok(()),
    }
}

pub(super) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
) -> Result<(), Fault> {
    stream
        .write_all(bytes)
        .await
        .map_err(|error| Fault::io("write", &error))
}

/// Has the connection be reset rather than closed: when it is, its verdict is there, nobody reads on, and a prober of thousands of
/// backends would otherwise keep a minute's worth of sockets in TIME_WAIT.
pub(super) fn reset_on_close(stream: &TcpStream) {
    // Only a courtesy to the kernel: without it the probe has said what it says as well.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

pub(super) async fn connect(address: SocketAddr) -> Result<TcpStream, Fault> {
    TcpStream::connect(address)
        .await
        .map_err(|error| Fault::io("connect", &error))
}

pub(super) async fn connect_unix(path: &Path) -> Result<UnixStream, Fault> {
    UnixStream::connect(path)
        .await
        .map_err(|error| Fault::io("connect", &error))
}
