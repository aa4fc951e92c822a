//! The sessions of one listener on one worker: by client, and in the order of their last datagram.
//!
//! All sessions of a listener may be silent for the same time, so the one whose time is up first is always the one that
//! was touched longest ago: a list in that order needs no timer for each. Whoever calls says what time it is.

use super::socket::Client;
use std::collections::HashMap;

/// The end of the list.
const NONE: u32 = u32::MAX;

/// A session's place while it lives; a later session may get it again.
pub(super) type Slot = u32;

/// Sessions by client and by age.
#[derive(Debug)]
pub(super) struct Table<T> {
    // With the standard library's keyed hash: clients choose their ports, and must not choose collisions.
    slots: HashMap<Client, Slot>,
    entries: Vec<Option<Entry<T>>>,
    free: Vec<Slot>,
    oldest: Slot,
    newest: Slot,
}

#[derive(Debug)]
struct Entry<T> {
    client: Client,
    touched_ms: u64,
    older: Slot,
    newer: Slot,
    session: T,
}

impl<T> Table<T> {
    /// No session.
    pub(super) fn new() -> Self {
        Self {
            slots: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
        }
    }

    /// The session of this client.
    pub(super) fn find(&self, client: &Client) -> Option<Slot> {
        self.slots.get(client).copied()
    }

    /// The session at `slot`, and whose it is.
    pub(super) fn at(&mut self, slot: Slot) -> Option<(Client, &mut T)> {
        let entry = self.entries.get_mut(slot as usize)?.as_mut()?;
        Some((entry.client, &mut entry.session))
    }

    /// A session begins, for a client that has none.
    pub(super) fn insert(&mut self, client: Client, session: T, now_ms: u64) -> Slot {
        let entry = Entry {
            client,
            touched_ms: now_ms,
            older: NONE,
            newer: NONE,
            session,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = Some(entry);
                slot
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as Slot
            }
        };
        let before = self.slots.insert(client, slot);
        debug_assert!(before.is_none(), "a client with two sessions");
        self.append(slot);
        slot
    }

    /// A datagram of the session at `slot` has passed.
    pub(super) fn touch(&mut self, slot: Slot, now_ms: u64) {
        let Some(entry) = self.entry(slot) else {
            return;
        };
        // The clock is coarse: most datagrams of a busy session come within one tick of each other.
        if std::mem::replace(&mut entry.touched_ms, now_ms) < now_ms {
            self.detach(slot);
            self.append(slot);
        }
    }

    /// The session at `slot` ends.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<(Client, T)> {
        self.entry(slot)?;
        self.detach(slot);
        let entry = self.entries[slot as usize].take()?;
        self.slots.remove(&entry.client);
        self.free.push(slot);
        if self.slots.is_empty() {
            // What a flood has grown goes with its last session.
            *self = Self::new();
        }
        Some((entry.client, entry.session))
    }

    /// The session that was touched longest ago, and when.
    pub(super) fn oldest(&self) -> Option<(Slot, u64)> {
        let entry = self.entries.get(self.oldest as usize)?.as_ref()?;
        Some((self.oldest, entry.touched_ms))
    }

    fn entry(&mut self, slot: Slot) -> Option<&mut Entry<T>> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    fn append(&mut self, slot: Slot) {
        let newest = std::mem::replace(&mut self.newest, slot);
        match self.entry(newest) {
            Some(entry) => entry.newer = slot,
            None => self.oldest = slot,
        }
        if let Some(entry) = self.entry(slot) {
            (entry.older, entry.newer) = (newest, NONE);
        }
    }

    fn detach(&mut self, slot: Slot) {
        let Some(entry) = self.entry(slot) else {
            return;
        };
        let (older, newer) = (entry.older, entry.newer);
        match self.entry(older) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entry(newer) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn client(port: u16) -> Client {
        Client {
            peer: SocketAddr::from(([192, 0, 2, 1], port)),
            local: None,
        }
    }

    /// Ends those that were silent for `idle` at `now`; their sessions.
    fn expire(table: &mut Table<u16>, now: u64, idle: u64) -> Vec<u16> {
        let mut ended = Vec::new();
        while let Some((slot, touched)) = table.oldest()
            && touched + idle <= now
        {
            ended.extend(table.remove(slot).map(|(_, session)| session));
        }
        ended
    }

    #[test]
    fn who_was_silent_longest_ends_first_and_a_datagram_keeps() {
        let mut table = Table::new();
        for port in 1..=4 {
            table.insert(client(port), port, u64::from(port) * 10);
        }
        let first = table.find(&client(1)).expect("it is in");
        table.touch(first, 50);
        assert_eq!(expire(&mut table, 119, 100), [] as [u16; 0]);
        assert_eq!(expire(&mut table, 130, 100), [2, 3]);
        assert_eq!(expire(&mut table, 150, 100), [4, 1]);
        assert_eq!(table.oldest(), None);
    }

    #[test]
    fn a_place_is_given_again_and_the_client_before_is_forgotten() {
        let mut table = Table::new();
        table.insert(client(1), 1, 0);
        let second = table.insert(client(2), 2, 0);
        assert_eq!(table.remove(second), Some((client(2), 2)));
        assert_eq!(table.remove(second), None);
        assert_eq!(table.find(&client(2)), None);
        assert_eq!(table.insert(client(3), 3, 5), second);
        assert_eq!(table.at(second), Some((client(3), &mut 3)));
    }

    #[test]
    fn one_address_that_speaks_to_two_of_ours_has_two_sessions() {
        use super::super::socket::Local;
        let mut table = Table::new();
        let to = |last| Client {
            local: Some(Local::new([127, 0, 0, last].into(), 0)),
            ..client(1)
        };
        assert_ne!(table.insert(to(1), 1, 0), table.insert(to(2), 2, 0));
    }

    #[test]
    fn room_that_a_flood_took_is_given_back_with_its_last_session() {
        let mut table = Table::new();
        for port in 1..=1000 {
            table.insert(client(port), port, 0);
        }
        assert_eq!(expire(&mut table, 1, 1).len(), 1000);
        assert_eq!(table.entries.capacity() + table.slots.capacity(), 0);
    }

    proptest::proptest! {
        #[test]
        fn the_list_has_every_session_once_and_in_order(
            steps in proptest::collection::vec((0u8..3, 0u16..8), 0..200),
        ) {
            let mut table = Table::new();
            let mut model: Vec<(u16, u64)> = Vec::new();
            for (now, (what, port)) in (1u64..).zip(steps) {
                let slot = table.find(&client(port));
                proptest::prop_assert_eq!(slot.is_some(), model.iter().any(|(p, _)| *p == port));
                match (what, slot) {
                    (0, None) => {
                        table.insert(client(port), port, now);
                        model.push((port, now));
                    }
                    (1, Some(slot)) => {
                        table.touch(slot, now);
                        model.retain(|(p, _)| *p != port);
                        model.push((port, now));
                    }
                    (2, Some(slot)) => {
                        table.remove(slot);
                        model.retain(|(p, _)| *p != port);
                    }
                    _ => {}
                }
                let oldest = table.oldest().map(|(_, touched)| touched);
                proptest::prop_assert_eq!(oldest, model.first().map(|(_, at)| *at));
            }
            let order: Vec<u16> = model.iter().map(|(port, _)| *port).collect();
            proptest::prop_assert_eq!(expire(&mut table, u64::MAX, 0), order);
        }
    }
}
