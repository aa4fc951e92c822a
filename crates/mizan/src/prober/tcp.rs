//! Connecting to a backend, and the probe that does no more than that.

use super::Fault;
use mizan_core::backend::Address;
use socket2::SockRef;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// A TCP (or Unix) connect; `first` is sent, too, if the backend waits for that much.
pub(super) async fn probe(address: &Address, first: &[u8]) -> Result<(), Fault> {
    match address {
        Address::Ip(address) => {
            let mut stream = connect(*address).await?;
            send(&mut stream, first).await?;
            // A reset on the heels of a header would make an error of it in the backend's log.
            if first.is_empty() {
                reset_on_close(&stream);
            }
        }
        Address::Unix(path) => {
            let mut stream = connect_unix(path).await?;
            send(&mut stream, first).await?;
        }
    }
    Ok(())
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), Fault> {
    stream
        .write_all(bytes)
        .await
        .map_err(|error| Fault::io("write", &error))
}

/// Has the connection be reset rather than closed: its verdict is there, nobody reads on, and a prober of thousands of
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
