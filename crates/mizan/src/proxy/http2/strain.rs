//! What a client's connection asks of Mizan beside requests, held against its limits: frames that move no stream, and
//! streams that it takes back.

use super::super::timer::Wheel;
use crate::snapshot::Http2;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

/// What a client says first (RFC 9113 §3.4).
const PREFACE: usize = 24;
const FRAME_HEAD: usize = 9;

/// Types of frames (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// What a stream's head pays for: its priority, its window.
const FRAMES_FOR_A_HEAD: u32 = 2;
/// Bytes of an answer that pay for an update of a window: no frame with a byte of content is shorter.
const BYTES_FOR_AN_UPDATE: u32 = 8;

/// A limit that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    ControlFrames(u32),
    Resets(u32),
}

/// The account of one connection; the connection, what reads for it and its streams share it.
#[derive(Debug)]
pub(super) struct Strain {
    wheel: Rc<Wheel>,
    control: Rate,
    resets: Rate,
    /// Frames that are paid for.
    paid: Cell<u32>,
    /// Bytes that were sent and have paid for nothing.
    sent: Cell<u32>,
    passed: Cell<Option<Limit>>,
    /// Of the connection.
    waker: RefCell<Option<Waker>>,
}

impl Strain {
    pub(super) fn new(settings: &Http2, wheel: &Rc<Wheel>) -> Rc<Self> {
        Rc::new(Self {
            wheel: Rc::clone(wheel),
            control: Rate::new(settings.control_frames_per_second_max),
            resets: Rate::new(settings.resets_per_second_max),
            paid: Cell::default(),
            sent: Cell::default(),
            passed: Cell::default(),
            waker: RefCell::default(),
        })
    }

    /// The limit that was passed, if one was; if not, `cx` is woken when it is.
    pub(super) fn poll_passed(&self, cx: &Context<'_>) -> Option<Limit> {
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            *waker = Some(cx.waker().clone());
        }
        self.passed.get()
    }

    /// The client has taken a stream back.
    pub(super) fn reset(&self) {
        if self.resets.is_passed(1, self.wheel.now_ms()) {
            self.pass(Limit::Resets(self.resets.most));
        }
    }

    /// `count` bytes were sent.
    pub(super) fn sent(&self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.sent.set(self.sent.get().saturating_add(count));
    }

    /// These frames have come; whether the connection is to be read no more.
    pub(super) fn seen(&self, seen: &Seen) -> bool {
        if seen.control == 0 && seen.updates == 0 && seen.heads == 0 {
            return self.passed.get().is_some();
        }
        let updates = seen.updates.min(self.sent.get() / BYTES_FOR_AN_UPDATE);
        self.sent
            .set(self.sent.get() - updates * BYTES_FOR_AN_UPDATE);
        let unpaid = seen.control + (seen.updates - updates);
        let paid = self.paid.get() + seen.heads * FRAMES_FOR_A_HEAD;
        self.paid
            .set(paid.saturating_sub(unpaid).min(self.control.most));
        let count = unpaid.saturating_sub(paid);
        if count > 0 && self.control.is_passed(count, self.wheel.now_ms()) {
            self.pass(Limit::ControlFrames(self.control.most));
        }
        self.passed.get().is_some()
    }

    fn pass(&self, limit: Limit) {
        if self.passed.get().is_none() {
            self.passed.set(Some(limit));
            if let Some(waker) = self.waker.borrow_mut().take() {
                waker.wake();
            }
        }
    }
}

/// So many at once, and so many more with each second: there is no moment at which the count begins anew.
#[derive(Debug)]
struct Rate {
    most: u32,
    /// Thousandths.
    level: Cell<u64>,
    at_ms: Cell<u64>,
}

impl Rate {
    fn new(most: u32) -> Self {
        Self {
            most,
            level: Cell::default(),
            at_ms: Cell::default(),
        }
    }

    /// Whether `count` more at `now_ms` are too many.
    fn is_passed(&self, count: u32, now_ms: u64) -> bool {
        let most = u64::from(self.most);
        let drained = now_ms.saturating_sub(self.at_ms.replace(now_ms)) * most;
        let level = self.level.get().saturating_sub(drained) + u64::from(count) * 1000;
        self.level.set(level);
        level > most * 1000
    }
}

/// Frames of the kinds that are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) heads: u32,
    pub(super) updates: u32,
    /// PING and SETTINGS with their acknowledgements, PRIORITY, and kinds that nobody knows.
    pub(super) control: u32,
}

/// Finds the heads of frames in what a client sends.
#[derive(Debug)]
pub(super) struct Follower {
    /// Bytes up to the next head.
    skip: usize,
    head: [u8; FRAME_HEAD],
    held: usize,
}

impl Default for Follower {
    fn default() -> Self {
        Self {
            skip: PREFACE,
            head: [0; FRAME_HEAD],
            held: 0,
        }
    }
}

impl Follower {
    /// The frames that begin in `bytes`, or whose heads end there.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) -> Seen {
        let mut seen = Seen::default();
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return seen;
            }
            let more = (FRAME_HEAD - self.held).min(bytes.len());
            self.head[self.held..self.held + more].copy_from_slice(&bytes[..more]);
            self.held += more;
            bytes = &bytes[more..];
            if self.held < FRAME_HEAD {
                return seen;
            }
            self.held = 0;
            let [one, two, three, kind, ..] = self.head;
            self.skip = u32::from_be_bytes([0, one, two, three]) as usize;
            match kind {
                DATA | RST_STREAM | GOAWAY | CONTINUATION => {}
                HEADERS => seen.heads += 1,
                WINDOW_UPDATE => seen.updates += 1,
                _ => seen.control += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PING: u8 = 6;

    fn frame(kind: u8, length: usize) -> Vec<u8> {
        let [_, one, two, three] = (length as u32).to_be_bytes();
        let mut frame = vec![one, two, three, kind, 0, 0, 0, 0, 0];
        frame.resize(FRAME_HEAD + length, PING);
        frame
    }

    fn strain(control: u32) -> Rc<Strain> {
        let settings = Http2 {
            control_frames_per_second_max: control,
            resets_per_second_max: 5,
            ..Http2::default()
        };
        Strain::new(&settings, &Wheel::new())
    }

    fn control(count: u32) -> Seen {
        Seen {
            control: count,
            ..Seen::default()
        }
    }

    proptest! {
        #[test]
        fn frames_are_found_wherever_the_bytes_are_cut(
            kinds in prop::collection::vec((0u8..12, 0usize..60), 0..20),
            cut in 1usize..40,
        ) {
            let mut bytes = vec![PING; PREFACE];
            for (kind, length) in &kinds {
                bytes.extend(frame(*kind, *length));
            }
            let mut follower = Follower::default();
            let mut all = Seen::default();
            for part in bytes.chunks(cut) {
                let seen = follower.follow(part);
                all.heads += seen.heads;
                all.updates += seen.updates;
                all.control += seen.control;
            }
            let count = |wanted: &[u8]| {
                kinds.iter().filter(|(kind, _)| wanted.contains(kind)).count() as u32
            };
            prop_assert_eq!(all.heads, count(&[HEADERS]));
            prop_assert_eq!(all.updates, count(&[WINDOW_UPDATE]));
            prop_assert_eq!(all.control, count(&[2, 4, 5, PING, 10, 11]));
        }
    }

    #[test]
    fn a_rate_holds_over_any_second() {
        let rate = Rate::new(10);
        assert!(!rate.is_passed(10, 950));
        // The second of the clock is another, the time that has passed is little.
        assert!(rate.is_passed(1, 1_000));
        let rate = Rate::new(1);
        for second in 0..100 {
            assert!(!rate.is_passed(1, second * 1_000));
        }
        // What drains away in parts of a thousandth is not lost.
        let rate = Rate::new(1);
        assert!(!rate.is_passed(1, 0));
        for ms in (0..1_000).step_by(10) {
            rate.is_passed(0, ms);
        }
        assert!(!rate.is_passed(1, 1_000));
    }

    #[test]
    fn frames_beside_requests_are_paid_for_by_requests_and_updates_by_answers() {
        let strain = strain(100);
        for _ in 0..1_000 {
            strain.sent(40);
            let seen = Seen {
                heads: 1,
                updates: 5,
                control: 2,
            };
            assert!(!strain.seen(&seen));
        }
        // What was saved up is no more than a second's worth.
        assert!(!strain.seen(&control(100)));
        assert!(strain.seen(&control(101)));
        assert!(strain.seen(&Seen::default()));
    }

    #[test]
    fn updates_that_nothing_was_sent_for_are_control_frames() {
        let strain = strain(100);
        let seen = Seen {
            updates: 101,
            ..Seen::default()
        };
        assert!(strain.seen(&seen));
    }

    #[test]
    fn the_first_limit_that_was_passed_is_told() {
        let strain = strain(100);
        let cx = Context::from_waker(Waker::noop());
        for _ in 0..5 {
            strain.reset();
        }
        assert_eq!(strain.poll_passed(&cx), None);
        strain.reset();
        assert!(strain.seen(&control(1_000)));
        assert_eq!(strain.poll_passed(&cx), Some(Limit::Resets(5)));
    }
}
