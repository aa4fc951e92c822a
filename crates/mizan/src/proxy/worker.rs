//! A worker: one OS thread, one current-thread runtime, its own sockets, connections, pools and counters.

use super::buffer::BufferPool;
use super::connection;
use super::cut::{self, Cut};
use super::listen::{self, Accepted, OpenCount};
use super::timer::{TICK, Wheel};
use super::udp;
use super::upstream::Upstreams;
use crate::clock;
use crate::snapshot::{Bind, Current, Listener, Snapshot};
use crate::telemetry::access_log::AccessLogger;
use crate::telemetry::metrics::{Metrics, Series, WorkerSeries};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::futures::Notified;
use tokio::sync::{mpsc, oneshot, watch};

/// Of a drain's deadline, the part in which connections are ended one by one: the rest is for their last words.
const LEAVE_SHARE: f64 = 0.8;

/// What all workers share: pointers and a few counters that no request touches.
#[derive(Debug)]
pub struct Shared {
    /// The snapshot in force.
    pub current: Arc<Current>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Set once the drain has closed the listeners: answers carry `Connection: close`.
    pub closing: AtomicBool,
    /// Open client connections of each worker, for handing over and for the drain.
    pub connections: Vec<Padded>,
    /// Requests in flight on each worker.
    pub in_flight: Vec<Padded>,
    /// UDP sessions of all listeners. A drain does not wait for them.
    pub sessions: OpenCount,
    /// Most client connections and sessions that descriptors allow, over all workers and listeners.
    pub clients_max: usize,
    /// Ways to the workers.
    pub mailboxes: Vec<mpsc::UnboundedSender<Message>>,
    /// Series of the snapshot in force, made once for all workers.
    pub series: std::sync::Mutex<Option<(u64, Arc<Series>)>>,
}

/// A counter on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded(pub AtomicUsize);

impl Shared {
    /// Open client connections in all.
    pub fn connections(&self) -> usize {
        self.connections
            .iter()
            .map(|count| count.0.load(Ordering::Relaxed))
            .sum()
    }

    /// Clients whose connections or sessions hold descriptors.
    pub(super) fn clients(&self) -> usize {
        self.connections() + self.sessions.get()
    }

    /// The worker that a connection accepted by `own` shall go to; it is counted there from now on, so that a drain
    /// sees it while it is on its way.
    pub(super) fn assign(&self, own: usize) -> usize {
        let open = |index: usize| self.connections[index].0.load(Ordering::Relaxed);
        let least = (0..self.connections.len())
            .min_by_key(|index| open(*index))
            .unwrap_or(own);
        // The kernel's hash spreads a few connections unevenly: 70:30 is common. One above the least is even enough.
        let chosen = if open(own) > open(least) + 1 {
            least
        } else {
            own
        };
        self.connections[chosen].0.fetch_add(1, Ordering::Relaxed);
        chosen
    }

    /// Requests in flight in all.
    pub fn in_flight(&self) -> usize {
        self.in_flight
            .iter()
            .map(|count| count.0.load(Ordering::Relaxed))
            .sum()
    }

    /// The series of `snapshot`, made if they are not. Whoever publishes a snapshot asks for them first, so that no
    /// worker has to make those of thousands of routes between two requests.
    pub fn series(&self, snapshot: &Snapshot) -> Arc<Series> {
        let mut made = self
            .series
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*made {
            Some((generation, series)) if *generation == snapshot.generation => Arc::clone(series),
            _ => {
                let series = self.metrics.register(snapshot);
                *made = Some((snapshot.generation, Arc::clone(&series)));
                series
            }
        }
    }
}

/// What a worker is told.
#[derive(Debug)]
pub enum Message {
    /// Accept on this socket, too, or read datagrams from it; all workers' of one listener count together.
    Listen(Bind, std::os::fd::OwnedFd, OpenCount),
    /// Empty the socket's queue, then close it; answered when that is done.
    Unlisten(Bind, oneshot::Sender<()>),
    /// A connection that another worker accepted.
    Serve(Accepted),
    /// Answered when the worker uses the snapshot in force for new requests.
    Refresh(oneshot::Sender<()>),
    /// Ends, and cuts what is in flight.
    Stop(Cut),
}

/// A snapshot in force with what a worker derives from it.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) series: WorkerSeries,
}

/// One worker's state; everything in it belongs to its thread.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) index: usize,
    pub(super) shared: Arc<Shared>,
    in_force: RefCell<Rc<InForce>>,
    pub(super) buffers: Rc<BufferPool>,
    pub(super) wheel: Rc<Wheel>,
    pub(super) upstreams: Upstreams,
    pub(super) access_log: RefCell<Option<AccessLogger>>,
    scratch: RefCell<Vec<Vec<u8>>>,
    listening: RefCell<HashMap<Bind, watch::Sender<bool>>>,
    /// Wakes the accept loops that stopped for want of descriptors.
    pub(super) descriptors_freed: tokio::sync::Notify,
    /// Wakes what a drain ends before its deadline.
    drain_begun: tokio::sync::Notify,
    /// When they were woken, in ms of the wheel.
    drain_told_ms: Cell<Option<u64>>,
}

impl Worker {
    /// The snapshot in force: one load to see that it still is.
    pub(super) fn in_force(&self) -> Rc<InForce> {
        let held = Rc::clone(&self.in_force.borrow());
        if self.shared.current.is(&held.snapshot) {
            return held;
        }
        let snapshot = self.shared.current.load();
        let series = self.shared.series(&snapshot).worker(self.index);
        let fresh = Rc::new(InForce { snapshot, series });
        *self.in_force.borrow_mut() = Rc::clone(&fresh);
        fresh
    }

    /// An empty vector with room, for heads; give it back with [`Worker::put_scratch`].
    pub(super) fn scratch(&self) -> Vec<u8> {
        self.scratch
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(2048))
    }

    pub(super) fn put_scratch(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        if bytes.capacity() <= 64 << 10 && self.scratch.borrow().len() < 256 {
            self.scratch.borrow_mut().push(bytes);
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.shared.closing.load(Ordering::Relaxed)
    }

    /// Serves a connection here, which [`Shared::assign`] has counted.
    pub(super) fn serve(self: &Rc<Self>, accepted: Accepted) {
        let worker = Rc::clone(self);
        if let Some(connection) = connection::serve(worker, accepted) {
            tokio::task::spawn_local(connection);
        }
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(super) fn in_flight(self: &Rc<Self>) -> InFlight {
        self.add_in_flight(1);
        InFlight {
            worker: Rc::clone(self),
        }
    }

    /// This worker alone writes its cell: a load and a store are enough.
    fn add_in_flight(&self, change: isize) {
        let cell = &self.shared.in_flight[self.index].0;
        cell.store(
            cell.load(Ordering::Relaxed).wrapping_add_signed(change),
            Ordering::Relaxed,
        );
    }

    pub(super) fn has_in_flight(&self) -> bool {
        self.shared.in_flight[self.index].0.load(Ordering::Relaxed) > 0
    }

    /// A connection has ended.
    pub(super) fn closed(&self) {
        self.shared.connections[self.index]
            .0
            .fetch_sub(1, Ordering::Relaxed);
        self.descriptors_freed.notify_waiters();
    }

    /// The listener bound to `bind` in the snapshot in force.
    pub(super) fn listener(snapshot: &Snapshot, bind: &Bind) -> Option<Arc<Listener>> {
        snapshot
            .listeners
            .iter()
            .find(|listener| listener.bind == *bind)
            .cloned()
    }

    fn tick(&self, now_ms: u64) {
        self.wheel.advance(now_ms);
        if let Some(log) = self.access_log.borrow_mut().as_mut() {
            log.flush();
        }
        self.upstreams.sweep(self.wheel.now_ms());
        if self.is_closing() && self.drain_told_ms.get().is_none() {
            self.drain_told_ms.set(Some(self.wheel.now_ms()));
            self.drain_begun.notify_waiters();
        }
    }

    /// Ready soon after the drain has closed the listeners, if it was looked at before: after that look
    /// [`Worker::is_closing`] says whether that was too late.
    pub(super) fn drain_told(&self) -> Notified<'_> {
        self.drain_begun.notified()
    }

    /// When something that a drain ends is to end, in ms of the wheel: at random within what is left of most of the
    /// drain's deadline, so that clients do not all come back at once.
    pub(super) fn leave_at_ms(&self) -> u64 {
        let deadline = self.in_force().snapshot.settings.drain.deadline;
        let now_ms = self.wheel.now_ms();
        let begun_ms = self.drain_told_ms.get().unwrap_or(now_ms);
        let last_ms = begun_ms + deadline.mul_f64(LEAVE_SHARE).as_millis() as u64;
        now_ms + clock::random() % (last_ms.saturating_sub(now_ms) + 1)
    }
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    worker: Rc<Worker>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.worker.add_in_flight(-1);
    }
}

/// Runs a worker on the calling thread until it is told to stop.
///
/// # Errors
/// If the runtime cannot be made.
pub fn run(
    index: usize,
    shared: Arc<Shared>,
    mailbox: mpsc::UnboundedReceiver<Message>,
    access_log: Option<AccessLogger>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .event_interval(128)
        .build_local(tokio::runtime::LocalOptions::default())?;
    let snapshot = shared.current.load();
    let series = shared.series(&snapshot).worker(index);
    let idle_max = snapshot
        .settings
        .upstream_idle_max
        .div_ceil(shared.connections.len());
    let worker = Rc::new(Worker {
        index,
        in_force: RefCell::new(Rc::new(InForce { snapshot, series })),
        buffers: Rc::default(),
        wheel: Wheel::new(),
        upstreams: Upstreams::new(Arc::clone(&shared.metrics), index, idle_max),
        access_log: RefCell::new(access_log),
        scratch: RefCell::default(),
        listening: RefCell::default(),
        descriptors_freed: tokio::sync::Notify::new(),
        drain_begun: tokio::sync::Notify::new(),
        drain_told_ms: Cell::new(None),
        shared,
    });
    runtime.block_on(drive(worker, mailbox));
    Ok(())
}

async fn drive(worker: Rc<Worker>, mut mailbox: mpsc::UnboundedReceiver<Message>) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let origin = clock::now();
    loop {
        tokio::select! {
            _ = tick.tick() => worker.tick(clock::now().saturating_since(origin).as_millis() as u64),
            message = mailbox.recv() => match message {
                None => return,
                Some(Message::Stop(why)) => return cut::all(&worker, why).await,
                Some(message) => worker.handle(message),
            },
        }
    }
}

impl Worker {
    fn handle(self: &Rc<Self>, message: Message) {
        match message {
            Message::Listen(bind, socket, open) => {
                let (stop, stopped) = watch::channel(false);
                self.listening.borrow_mut().insert(bind.clone(), stop);
                let worker = Rc::clone(self);
                if let Bind::Udp(address) = bind {
                    let socket = (address, socket);
                    tokio::task::spawn_local(udp::serve(worker, socket, open, stopped));
                } else {
                    let accepting = listen::accept_loop(worker, bind, socket, open, stopped);
                    tokio::task::spawn_local(accepting);
                }
            }
            Message::Unlisten(bind, done) => {
                let stop = self.listening.borrow_mut().remove(&bind);
                tokio::task::spawn_local(async move {
                    if let Some(stop) = stop {
                        let _ = stop.send(true);
                        stop.closed().await;
                    }
                    let _ = done.send(());
                });
            }
            Message::Serve(accepted) => self.serve(accepted),
            Message::Refresh(done) => {
                self.in_force();
                let _ = done.send(());
            }
            Message::Stop(_) => {}
        }
    }
}
