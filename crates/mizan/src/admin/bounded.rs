//! What one caller may take: time to read an answer, and a place among those that read metrics or watch the store.
//!
//! A caller that asks and does not read would keep its connection for good, and 256 of them would keep a
//! probe from `/readyz`. A scrape is the one answer that is too large for the kernel's buffers, so scrapers
//! have few of the places, and readiness has the others. Who watches the store stays, so it leaves its place to the next
//! caller and takes one of those for watches.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// A connection whose caller must take each answer within a time, however little it reads at once.
#[derive(Debug)]
pub(super) struct Bounded<S> {
    stream: S,
    limit: Duration,
    /// Runs from the first write that had to wait until all is written.
    due: Option<Pin<Box<Sleep>>>,
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            due: None,
        }
    }

    /// `written`, or the error that there was no time left for it.
    fn in_time(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            return written;
        }
        let limit = self.limit;
        let due = self
            .due
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        due.as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.in_time(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes when it has written all that it had.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.due = None;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A connection's right to read metrics: one of its socket's places for that, taken with its first scrape
/// and given back at its end.
#[derive(Clone, Debug)]
pub(super) struct Scraper {
    places: Arc<Semaphore>,
    taken: Arc<OnceLock<OwnedSemaphorePermit>>,
}

impl Scraper {
    pub(super) fn new(places: &Arc<Semaphore>) -> Self {
        Self {
            places: Arc::clone(places),
            taken: Arc::default(),
        }
    }

    /// Whether this connection has a place, or gets one now.
    pub(super) fn enter(&self) -> bool {
        if self.taken.get().is_some() {
            return true;
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.is_ok_and(|place| self.taken.set(place).is_ok())
    }
}

/// A connection's place among the callers of its socket, which a watch of the store exchanges for one of its own.
#[derive(Clone, Debug)]
pub(super) struct Place {
    connection: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
    watches: Arc<Semaphore>,
}

/// A watch's place, until it is dropped.
#[derive(Debug)]
pub(super) struct WatchPlace {
    #[expect(dead_code, reason = "is given back when it is dropped")]
    permit: OwnedSemaphorePermit,
    place: Place,
}

impl Place {
    pub(super) fn new(connection: OwnedSemaphorePermit, watches: &Arc<Semaphore>) -> Self {
        Self {
            connection: Arc::new(Mutex::new(Some(connection))),
            watches: Arc::clone(watches),
        }
    }

    /// A place to watch from, if one is left.
    pub(super) fn to_watch(&self) -> Option<WatchPlace> {
        let permit = Arc::clone(&self.watches).try_acquire_owned().ok()?;
        Some(WatchPlace {
            permit,
            place: self.clone(),
        })
    }
}

impl WatchPlace {
    /// The watch runs: the connection has no other use from now on, and its place goes to another caller.
    pub(super) fn settle(&self) {
        let connection = self.place.connection.lock();
        drop(connection.unwrap_or_else(PoisonError::into_inner).take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    /// The server's end has so little room that an answer must be read to be written.
    fn pair(limit: Duration) -> (DuplexStream, Bounded<DuplexStream>) {
        let (client, server) = duplex(1);
        (client, Bounded::new(server, limit))
    }

    async fn answer(server: &mut Bounded<DuplexStream>, bytes: &[u8]) -> io::Result<()> {
        server.write_all(bytes).await?;
        server.flush().await
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_ends_in_time() {
        let (_client, mut server) = pair(Duration::from_millis(20));
        let error = answer(&mut server, b"much").await.expect_err("unread");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn an_answer_that_is_read_byte_by_byte_gets_no_more_time() {
        let (mut client, mut server) = pair(Duration::from_millis(50));
        let drip = async {
            let mut tick = tokio::time::interval(Duration::from_millis(5));
            loop {
                tick.tick().await;
                client.read_u8().await.expect("a byte");
            }
        };
        let long = [b'x'; 10_000];
        let result = tokio::select! {
            () = drip => Ok(()),
            result = answer(&mut server, &long) => result,
        };
        let error = result.expect_err("50 seconds of reading");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn each_answer_has_its_own_time() {
        let limit = Duration::from_millis(600);
        let (mut client, mut server) = pair(limit);
        // Each takes a part of the limit, all of them more than it.
        for _ in 0..5 {
            let read = async {
                let mut tick = tokio::time::interval(limit / 3);
                tick.tick().await;
                tick.tick().await;
                client.read_exact(&mut [0; 4]).await.expect("an answer")
            };
            let (written, _) = tokio::join!(answer(&mut server, b"four"), read);
            written.expect("in time");
        }
    }
}
