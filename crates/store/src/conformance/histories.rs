//! Random histories, each step held against the model.

use super::cases;
use super::model::Model;
use super::place::{Place, Reader};
use super::random::Random;
use crate::{
    Compare, Error, Listing, Message, Operation, Query, Range, Relation, Revision, Target,
    Transaction,
};
use bytes::Bytes;
use std::time::Duration;

cases! {
    a_random_history_is_the_models
    a_random_history_with_leases_is_the_models
    a_random_history_with_compaction_is_the_models
    a_random_history_of_everything_is_the_models
}

/// What stands in a history besides transactions.
#[derive(Clone, Copy, Debug)]
struct Mix {
    leases: bool,
    compactions: bool,
}

async fn a_random_history_is_the_models(place: Place) -> Result<(), Error> {
    let mix = Mix {
        leases: false,
        compactions: false,
    };
    History::begin(place, mix, 1).await?.run().await
}

async fn a_random_history_with_leases_is_the_models(place: Place) -> Result<(), Error> {
    let mix = Mix {
        leases: true,
        compactions: false,
    };
    History::begin(place, mix, 2).await?.run().await
}

async fn a_random_history_with_compaction_is_the_models(place: Place) -> Result<(), Error> {
    let mix = Mix {
        leases: false,
        compactions: true,
    };
    History::begin(place, mix, 3).await?.run().await
}

async fn a_random_history_of_everything_is_the_models(place: Place) -> Result<(), Error> {
    let mix = Mix {
        leases: true,
        compactions: true,
    };
    History::begin(place, mix, 4).await?.run().await
}

/// Few, so that they meet: some are prefixes of others, some share a folder, one is not text.
const NAMES: &[&[u8]] = &[
    b"a",
    b"a/",
    b"a/1",
    b"a/2",
    b"a/2/x",
    b"ab",
    b"b",
    b"b/1",
    b"b/2",
    b"c\xff\xff",
    b"c\xff",
    b"d",
];

/// A watch, and what it has said.
#[derive(Debug)]
struct Watched {
    reader: Reader,
    range: Range,
    /// What is expected from it comes after this.
    after: Revision,
    /// It was told that what it had still to say is forgotten.
    ended: bool,
}

/// A store, what it should be, and who follows it.
#[derive(Debug)]
struct History {
    place: Place,
    mix: Mix,
    random: Random,
    model: Model,
    watched: Vec<Watched>,
}

impl History {
    async fn begin(place: Place, mix: Mix, salt: u64) -> Result<Self, Error> {
        let random = Random::new(place.seed.wrapping_mul(31).wrapping_add(salt));
        let model = Model::new(place.revision().await?);
        Ok(Self {
            place,
            mix,
            random,
            model,
            watched: Vec::new(),
        })
    }

    async fn run(mut self) -> Result<(), Error> {
        for _ in 0..self.place.history_steps {
            self.step().await?;
        }
        // Everybody who watches is told of one last change, so that it is known when all is said.
        let puts = NAMES
            .iter()
            .map(|name| Operation::put(self.place.key(name), "last"));
        let transaction = Transaction {
            compares: Vec::new(),
            operations: puts.collect(),
        };
        self.commit(transaction).await?;
        for at in 0..self.watched.len() {
            self.drain(at).await?;
        }
        for id in self.model.leases.clone() {
            self.place.store.revoke(id).await?;
        }
        Ok(())
    }

    async fn step(&mut self) -> Result<(), Error> {
        match self.random.below(20) {
            0..12 => {
                let transaction = self.transaction();
                self.commit(transaction).await
            }
            12..14 => self.list().await,
            14 => self.open().await,
            15..17 => self.read_some().await,
            17 if self.mix.leases => self.grant().await,
            18 if self.mix.leases => self.revoke().await,
            19 if self.mix.compactions && self.random.once_in(4) => self.compact().await,
            _ => self.list().await,
        }
    }

    fn key(&mut self) -> Bytes {
        self.place.key(self.random.one_of(NAMES))
    }

    fn range(&mut self) -> Range {
        match self.random.below(6) {
            0 => self.place.all(),
            1..3 => Range::Prefix(self.key()),
            _ => Range::Key(self.key()),
        }
    }

    /// One of those that are still held, sometimes one before or after them.
    fn old_revision(&mut self) -> Revision {
        let (oldest, revision) = (self.model.oldest, self.model.revision());
        let span = (revision - oldest) as usize + 1;
        match self.random.below(12) {
            0 if self.model.has_forgotten() => oldest - 1,
            1 => revision + 1,
            _ => oldest + self.random.below(span) as u64,
        }
    }

    fn transaction(&mut self) -> Transaction {
        let mut transaction = Transaction::default();
        for _ in 0..self.random.below(3) {
            let compare = self.compare();
            transaction.compares.push(compare);
        }
        for _ in 0..self.random.below(5) {
            let operation = self.operation();
            transaction.operations.push(operation);
            if transaction.check().is_err() {
                transaction.operations.pop();
            }
        }
        transaction
    }

    /// A condition; two of three hold.
    fn compare(&mut self) -> Compare {
        let key = self.key();
        let entry = self.model.entry(&key).cloned();
        let nearby = |number: u64, random: &mut Random| match random.below(4) {
            0 => number + 1,
            1 => number.saturating_sub(1),
            _ => number,
        };
        let random = &mut self.random;
        let target = match random.below(5) {
            0 => Target::Value(entry.map_or("0".into(), |entry| entry.value)),
            1 => Target::Created(nearby(entry.map_or(0, |entry| entry.created), random)),
            2 => Target::Modified(nearby(entry.map_or(0, |entry| entry.modified), random)),
            3 => Target::Version(nearby(entry.map_or(0, |entry| entry.version), random)),
            _ => Target::Lease(entry.and_then(|entry| entry.lease)),
        };
        let mut compare = Compare {
            key,
            relation: Relation::Equal,
            target,
        };
        let relations = [
            Relation::Equal,
            Relation::NotEqual,
            Relation::Greater,
            Relation::Less,
        ];
        for _ in 0..2 {
            compare.relation = *random.one_of(&relations);
            if compare.holds(self.model.entry(&compare.key)) {
                break;
            }
        }
        compare
    }

    fn operation(&mut self) -> Operation {
        if self.random.once_in(3) {
            return Operation::Delete(self.range());
        }
        let leases: Vec<_> = self.model.leases.iter().copied().collect();
        let lease = match self.random.below(3) {
            0 if !leases.is_empty() => Some(*self.random.one_of(&leases)),
            _ => None,
        };
        Operation::Put {
            key: self.key(),
            value: self.random.below(100).to_string().into(),
            lease,
        }
    }

    async fn commit(&mut self, transaction: Transaction) -> Result<(), Error> {
        let expected = self.model.commit(&transaction);
        let done = self.place.store.commit(transaction.clone()).await;
        assert_eq!(done, expected, "{transaction:?}");
        Ok(())
    }

    async fn list(&mut self) -> Result<(), Error> {
        let range = self.range();
        let at = match self.random.once_in(2) {
            true => None,
            false => Some(self.old_revision()),
        };
        let revision = self.model.revision();
        let expected = self
            .model
            .list(&range, at.unwrap_or(revision))
            .map(|entries| Listing { revision, entries });
        let query = Query {
            at,
            ..Query::now(range.clone())
        };
        let listed = self.place.store.list(query).await;
        assert_eq!(listed, expected, "{range:?} at {at:?}");
        Ok(())
    }

    async fn grant(&mut self) -> Result<(), Error> {
        if self.model.leases.len() < 4 {
            let lease = self.place.store.grant(Duration::from_secs(900)).await?;
            assert!(self.model.leases.insert(lease.id), "{lease:?} is not new");
        }
        Ok(())
    }

    async fn revoke(&mut self) -> Result<(), Error> {
        let leases: Vec<_> = self.model.leases.iter().copied().collect();
        if leases.is_empty() {
            return Ok(());
        }
        let id = *self.random.one_of(&leases);
        self.model.revoke(id);
        self.place.store.revoke(id).await
    }

    async fn compact(&mut self) -> Result<(), Error> {
        let (oldest, revision) = (self.model.oldest, self.model.revision());
        if revision == oldest {
            return Ok(());
        }
        let span = (revision - oldest) as usize;
        let at = oldest + 1 + self.random.below(span) as u64;
        self.place.store.compact(at).await?;
        self.model.oldest = at;
        Ok(())
    }

    /// One more who watches, from a revision that is held or from the next ones.
    async fn open(&mut self) -> Result<(), Error> {
        if self.watched.len() >= 12 {
            return Ok(());
        }
        let range = self.range();
        let span = (self.model.revision() - self.model.oldest) as usize + 4;
        let from = self.model.oldest + 1 + self.random.below(span) as u64;
        let reader = self.place.watch(range.clone(), from).await?;
        self.watched.push(Watched {
            reader,
            range,
            after: from - 1,
            ended: false,
        });
        Ok(())
    }

    /// Reads what one of the watches has to say at once.
    async fn read_some(&mut self) -> Result<(), Error> {
        if self.watched.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.watched.len());
        for _ in 0..self.random.below(6) {
            if self.watched[at].ended {
                break;
            }
            let said = self.watched[at].reader.poll().await;
            if let Ok(None) = said {
                break;
            }
            self.hold(at, said.map(|change| change.expect("something is said")))?;
        }
        Ok(())
    }

    /// Reads a watch up to now.
    async fn drain(&mut self, at: usize) -> Result<(), Error> {
        let last = self.model.revision();
        while !self.watched[at].ended && self.watched[at].after < last {
            let said = self.watched[at].reader.change().await;
            self.hold(at, said)?;
        }
        Ok(())
    }

    /// What a watch says is what the model's next change is.
    fn hold(&mut self, at: usize, said: Result<Message, Error>) -> Result<(), Error> {
        let watched = &mut self.watched[at];
        let expected = self.model.next_change(&watched.range, watched.after);
        match said {
            Ok(Message::Batch(batch)) => {
                assert_eq!(Some(&batch), expected.as_ref(), "{watched:?}");
                watched.after = batch.revision;
            }
            Ok(Message::Progress(revision)) => {
                let next = expected.map_or(u64::MAX, |batch| batch.revision);
                assert!(revision < next, "progress of {revision} passes {next}");
                assert!(revision <= self.model.revision());
                watched.after = watched.after.max(revision);
            }
            Err(Error::Compacted { oldest }) => {
                assert!(watched.after < oldest, "what is held is said: {watched:?}");
                assert!(oldest <= self.model.oldest);
                watched.ended = true;
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }
}
