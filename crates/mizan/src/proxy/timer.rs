//! Coarse time-outs: one wheel for each worker instead of a timer for each read.
//!
//! A connection owns one [`Timer`] and moves its deadline as the request goes on, which costs one store:
//! an entry lies in the wheel once, and when its slot comes up it is looked at, and laid further back if its
//! deadline has moved. Deadlines are met within two ticks of 50 ms.

use super::cut::Cut;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

/// Time between two turns of the wheel.
pub(super) const TICK: Duration = Duration::from_millis(50);
pub(super) const TICK_MS: u64 = 50;
/// One turn of the wheel is 25.6 s; later deadlines are laid back again.
const SLOTS: u64 = 512;
const NEVER: u64 = u64::MAX;

/// The wheel of one worker.
#[derive(Debug)]
pub(super) struct Wheel {
    /// Coarse now in ms; advanced by [`Wheel::advance`] alone.
    now: Cell<u64>,
    slots: RefCell<Vec<Vec<Rc<Entry>>>>,
    cut: Cell<Option<Cut>>,
}

#[derive(Debug)]
struct Entry {
    /// In ms, or [`NEVER`].
    deadline: Cell<u64>,
    /// When its slot comes up, or [`NEVER`] if it lies in none. An entry found in another slot is stale there.
    lies_at: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

impl Entry {
    fn is_waited_for(&self) -> bool {
        self.waker.borrow().is_some()
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

impl Wheel {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            now: Cell::new(0),
            slots: RefCell::new((0..SLOTS).map(|_| Vec::new()).collect()),
            cut: Cell::new(None),
        })
    }

    /// Coarse now in ms since the worker's start.
    pub(super) fn now_ms(&self) -> u64 {
        self.now.get()
    }

    /// Turns the wheel to `now_ms` and wakes what is due.
    pub(super) fn advance(&self, now_ms: u64) {
        while self.now.get() + TICK_MS <= now_ms {
            let now = self.now.get() + TICK_MS;
            self.now.set(now);
            let slot = (now / TICK_MS % SLOTS) as usize;
            let due = std::mem::take(&mut self.slots.borrow_mut()[slot]);
            for entry in due {
                if entry.lies_at.get() != now {
                    continue;
                }
                entry.lies_at.set(NEVER);
                let deadline = entry.deadline.get();
                if deadline == NEVER && !entry.is_waited_for() {
                    continue;
                }
                if deadline <= now {
                    entry.wake();
                } else {
                    self.lay(&entry, deadline);
                }
            }
        }
    }

    /// Tells whoever waits that all is to end.
    pub(super) fn cut(&self, cut: Cut) {
        self.cut.set(Some(cut));
        for entry in self.slots.borrow().iter().flatten() {
            entry.wake();
        }
    }

    /// Whether all is to end.
    pub(super) fn is_cut(&self) -> Option<Cut> {
        self.cut.get()
    }

    fn lay(&self, entry: &Rc<Entry>, deadline: u64) {
        let furthest = self.now.get() + (SLOTS - 1) * TICK_MS;
        let at = (deadline.min(furthest).div_ceil(TICK_MS) * TICK_MS)
            .clamp(self.now.get() + TICK_MS, furthest / TICK_MS * TICK_MS);
        entry.lies_at.set(at);
        self.slots.borrow_mut()[(at / TICK_MS % SLOTS) as usize].push(Rc::clone(entry));
    }
}

/// The time-out of one connection.
#[derive(Debug)]
pub(super) struct Timer {
    entry: Rc<Entry>,
    wheel: Rc<Wheel>,
}

impl Timer {
    pub(super) fn new(wheel: &Rc<Wheel>) -> Self {
        let entry = Entry {
            deadline: Cell::new(NEVER),
            lies_at: Cell::new(NEVER),
            waker: RefCell::new(None),
        };
        Self {
            entry: Rc::new(entry),
            wheel: Rc::clone(wheel),
        }
    }

    /// Coarse now in ms.
    pub(super) fn now_ms(&self) -> u64 {
        self.wheel.now_ms()
    }

    /// Runs out `after` from now; a zero never does.
    pub(super) fn set(&self, after: Duration) {
        self.set_at(self.deadline_after(after));
    }

    /// The deadline `after` from now in ms, for [`Timer::set_at`]; `u64::MAX` for zero.
    pub(super) fn deadline_after(&self, after: Duration) -> u64 {
        if after.is_zero() {
            NEVER
        } else {
            self.wheel.now_ms() + TICK_MS + after.as_millis() as u64
        }
    }

    /// Runs out at `deadline`.
    pub(super) fn set_at(&self, deadline: u64) {
        self.entry.deadline.set(deadline);
        if deadline < self.entry.lies_at.get() {
            self.wheel.lay(&self.entry, deadline);
        }
    }

    /// Whether it has run out.
    pub(super) fn is_expired(&self) -> bool {
        self.entry.deadline.get() <= self.wheel.now_ms()
    }

    /// See [`Wheel::is_cut`].
    pub(super) fn is_cut(&self) -> Option<Cut> {
        self.wheel.is_cut()
    }

    /// Whether it has run out; if not, `cx` is woken when it does.
    pub(super) fn poll_expired(&self, cx: &Context<'_>) -> bool {
        if self.is_expired() {
            return true;
        }
        let mut waker = self.entry.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            *waker = Some(cx.waker().clone());
        }
        // One that never runs out lies there, too, for [`Wheel::cut`] to find.
        if self.entry.lies_at.get() == NEVER {
            self.wheel.lay(&self.entry, NEVER);
        }
        false
    }

    /// A future that ends when it runs out.
    pub(super) async fn expired(&self) {
        std::future::poll_fn(|cx| {
            if self.poll_expired(cx) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // The entry may lie in its slot for a while: without deadline and waker it holds nothing alive.
        self.entry.deadline.set(NEVER);
        self.entry.waker.borrow_mut().take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Count(AtomicU32);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn woken_at(wheel: &Rc<Wheel>, timer: &Timer, until: u64) -> Option<u64> {
        let count = Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        assert!(!timer.poll_expired(&Context::from_waker(&waker)));
        (wheel.now_ms()..=until).step_by(50).find(|at| {
            wheel.advance(*at);
            count.0.load(Ordering::Relaxed) > 0
        })
    }

    #[test]
    fn a_timer_fires_within_two_ticks_of_its_deadline() {
        for after in [1, 49, 50, 51, 999, 1000, 25_550, 25_600, 60_000, 200_000] {
            let wheel = Wheel::new();
            let timer = Timer::new(&wheel);
            timer.set(Duration::from_millis(after));
            let fired = woken_at(&wheel, &timer, after + 1000).expect("fires");
            assert!(
                (after..=after + 100).contains(&fired),
                "after {after} fired at {fired}"
            );
        }
    }

    #[test]
    fn moving_a_deadline_back_and_forth_keeps_the_last() {
        let wheel = Wheel::new();
        let timer = Timer::new(&wheel);
        timer.set(Duration::from_secs(75));
        timer.set(Duration::from_secs(10));
        timer.set(Duration::from_secs(30));
        assert!((30_000..=30_100).contains(&woken_at(&wheel, &timer, 80_000).expect("fires")));
        timer.set(Duration::from_secs(30));
        timer.set(Duration::from_secs(1));
        assert!((31_000..=31_200).contains(&woken_at(&wheel, &timer, 80_000).expect("fires")));
        timer.set_at(NEVER);
        assert_eq!(woken_at(&wheel, &timer, 200_000), None);
    }

    #[test]
    fn a_cut_wakes_whoever_waits_also_who_waits_without_end() {
        let wheel = Wheel::new();
        let timers: Vec<_> = (0..2).map(|_| Timer::new(&wheel)).collect();
        timers[0].set(Duration::from_secs(75));
        let count = Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        for timer in &timers {
            assert!(!timer.poll_expired(&Context::from_waker(&waker)));
        }
        // Longer than a turn of the wheel.
        wheel.advance(60_000);
        assert_eq!((count.0.load(Ordering::Relaxed), wheel.is_cut()), (0, None));
        wheel.cut(Cut::Deadline);
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert_eq!(timers[1].is_cut(), Some(Cut::Deadline));
    }

    #[test]
    fn a_timer_moved_each_request_lies_in_the_wheel_once() {
        let wheel = Wheel::new();
        let timer = Timer::new(&wheel);
        for at in 0..1000 {
            wheel.advance(at * 50);
            timer.set(Duration::from_secs(10));
        }
        assert!(
            Rc::strong_count(&timer.entry) <= 3,
            "{} references",
            Rc::strong_count(&timer.entry)
        );
    }
}
