//! A TCP relay with faults that are switched on while it runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// What the relay does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Passes them on.
    None,
    /// Ends each connection, and each new one.
    Cut,
    /// Passes nothing on either way, and says nothing; connections stay and are taken.
    Stall,
    /// Passes what comes from etcd on so much later.
    Delay(Duration),
}

/// The relay; it ends when it is dropped.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    fault: watch::Sender<Fault>,
    /// Connections that were taken so far.
    taken: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    acceptor: JoinHandle<()>,
}

impl Relay {
    /// A relay before `to`.
    pub(crate) async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (fault, seen) = watch::channel(Fault::None);
        let taken = Arc::new(AtomicUsize::new(0));
        let open = Arc::new(AtomicUsize::new(0));
        let (taken_too, open_too) = (Arc::clone(&taken), Arc::clone(&open));
        let acceptor = tokio::spawn(async move {
            while let Ok((front, _)) = listener.accept().await {
                taken_too.fetch_add(1, Ordering::SeqCst);
                open_too.fetch_add(1, Ordering::SeqCst);
                let (relay, open) = (
                    relay(front, to.clone(), seen.clone()),
                    Arc::clone(&open_too),
                );
                tokio::spawn(async move {
                    relay.await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            address,
            fault,
            taken,
            open,
            acceptor,
        }
    }

    /// Another fault, at once, for open connections too.
    pub(crate) fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Ends all connections, and no new one; returns when they have ended.
    pub(crate) async fn cut(&self) {
        self.set(Fault::Cut);
        let ended = super::node::eventually(|| async {
            let open = self.open.load(Ordering::SeqCst);
            (open == 0).then_some(())
        });
        ended.await.expect("they end");
        self.set(Fault::None);
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.acceptor.abort();
        self.set(Fault::Cut);
    }
}

async fn relay(front: TcpStream, to: String, fault: watch::Receiver<Fault>) {
    let Ok(back) = TcpStream::connect(to).await else {
        return;
    };
    let (mut front_in, mut front_out) = front.into_split();
    let (mut back_in, mut back_out) = back.into_split();
    let mut seen = fault.clone();
    let cut = async {
        let _ = seen.wait_for(|fault| *fault == Fault::Cut).await;
    };
    let requests = pump(&mut front_in, &mut back_out, fault.clone(), false);
    let responses = pump(&mut back_in, &mut front_out, fault, true);
    tokio::select! {
        () = cut => {}
        () = requests => {}
        () = responses => {}
    }
}

async fn pump<R, W>(from: &mut R, to: &mut W, mut fault: watch::Receiver<Fault>, is_response: bool)
where
    R: AsyncReadExt + Unpin,
    W: AsyncWriteExt + Unpin,
{
    let mut bytes = vec![0; 16 << 10];
    loop {
        let Ok(length @ 1..) = from.read(&mut bytes).await else {
            return;
        };
        if fault
            .wait_for(|fault| *fault != Fault::Stall)
            .await
            .is_err()
        {
            return;
        }
        let now = *fault.borrow();
        if let (Fault::Delay(late), true) = (now, is_response) {
            // What the relay is there to do, not what a test waits by.
            let _ = timeout(late, std::future::pending::<()>()).await;
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
