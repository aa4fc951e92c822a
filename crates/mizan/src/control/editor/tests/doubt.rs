//! A store that does not say whether it has done what it was asked.

use super::*;
use mizan_store::{Answer, Committed, Identity, Lease, Listing, Watch};
use std::collections::VecDeque;
use std::sync::Mutex;

/// What becomes of a transaction.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It is done, and nobody hears of it.
    Unheard,
    /// It is not done, and nobody hears of that.
    Lost,
    /// It is done after the next one that was asked for.
    Late,
    /// It is done and nobody hears of it; then nobody is reached any more.
    UnheardAndAway,
    /// It is not done; then nobody is reached any more.
    LostAndAway,
}

/// A store whose next transactions have fates of their own.
#[derive(Debug)]
struct Fickle {
    inner: Arc<dyn Store>,
    fates: Mutex<VecDeque<Fate>>,
    late: Mutex<Option<Transaction>>,
    is_away: Mutex<bool>,
}

fn unsaid() -> Error {
    Error::Unknown("the connection was cut".to_owned())
}

impl Fickle {
    fn reached(&self) -> Result<(), Error> {
        match *self.is_away.lock().expect("no panic") {
            true => Err(Error::Unavailable("nobody answers".to_owned())),
            false => Ok(()),
        }
    }

    async fn meet(&self, transaction: Transaction) -> Result<Committed, Error> {
        self.reached()?;
        let fate = self.fates.lock().expect("no panic").pop_front();
        let Some(fate) = fate else {
            let late = self.late.lock().expect("no panic").take();
            let done = self.inner.commit(transaction).await;
            if let Some(late) = late {
                let too_late = self.inner.commit(late).await;
                assert!(matches!(too_late, Err(Error::Conflict(_))), "{too_late:?}");
            }
            return done;
        };
        match fate {
            Fate::Unheard | Fate::UnheardAndAway => {
                self.inner.commit(transaction).await?;
            }
            Fate::Late => *self.late.lock().expect("no panic") = Some(transaction),
            Fate::Lost | Fate::LostAndAway => {}
        }
        *self.is_away.lock().expect("no panic") =
            matches!(fate, Fate::UnheardAndAway | Fate::LostAndAway);
        Err(unsaid())
    }
}

impl Store for Fickle {
    fn identity(&self) -> Answer<'_, Identity> {
        self.inner.identity()
    }

    fn list(&self, query: Query) -> Answer<'_, Listing> {
        Box::pin(async move {
            self.reached()?;
            self.inner.list(query).await
        })
    }

    fn commit(&self, transaction: Transaction) -> Answer<'_, Committed> {
        Box::pin(self.meet(transaction))
    }

    fn watch(&self, range: Range, from: Revision) -> Answer<'_, Box<dyn Watch>> {
        self.inner.watch(range, from)
    }

    fn grant(&self, life: Duration) -> Answer<'_, Lease> {
        self.inner.grant(life)
    }

    fn keep_alive(&self, id: LeaseId) -> Answer<'_, Lease> {
        self.inner.keep_alive(id)
    }

    fn revoke(&self, id: LeaseId) -> Answer<'_, ()> {
        self.inner.revoke(id)
    }

    fn lease(&self, id: LeaseId) -> Answer<'_, Lease> {
        self.inner.lease(id)
    }

    fn compact(&self, revision: Revision) -> Answer<'_, ()> {
        self.inner.compact(revision)
    }
}

fn place(fates: impl IntoIterator<Item = Fate>) -> (Place, Arc<Fickle>) {
    let mut made = None;
    let place = Place::behind(|inner| {
        let fickle = Arc::new(Fickle {
            inner,
            fates: Mutex::new(fates.into_iter().collect()),
            late: Mutex::new(None),
            is_away: Mutex::new(false),
        });
        made = Some(fickle.clone());
        fickle
    });
    (place, made.expect("it was made"))
}

#[tokio::test]
async fn what_was_done_unheard_is_told_as_done_and_is_done_once() {
    for fates in [
        vec![Fate::Unheard],
        vec![Fate::Lost],
        vec![Fate::Late],
        vec![Fate::Lost, Fate::Late, Fate::Lost, Fate::Unheard],
    ] {
        let (place, _) = place(fates.clone());
        let first = seen(put("settings/ko", settings("a")), 0);
        let made = place
            .edit(vec![first])
            .await
            .expect("it is made in the end");
        assert_eq!(
            place.stands("settings/ko").await,
            (made.revision, settings("a")),
            "{fates:?}"
        );
        let history = place.editor.history(None, 10).await.expect("a history");
        assert_eq!(history.len(), 1, "{fates:?}");
        assert_eq!(history[0].edit, made.edit);
    }
}

/// Neither as done nor as not done: it cannot be looked for.
#[tokio::test]
async fn what_nobody_knows_is_told_so() {
    for fate in [Fate::UnheardAndAway, Fate::LostAndAway] {
        let (place, fickle) = place([fate]);
        let made = place.edit(vec![put("settings/ko", settings("a"))]).await;
        assert!(
            matches!(&made, Err(EditFailed::Store(Error::Unknown(_)))),
            "{fate:?}: {made:?}"
        );
        *fickle.is_away.lock().expect("no panic") = false;
    }
}

/// While nobody has its place in the history it may yet come into being: a refusal in between would be a lie.
#[tokio::test]
async fn what_may_yet_come_is_not_told_as_refused() {
    let (place, fickle) = place([]);
    place
        .edit(vec![put("pools/kr/kpop", pool())])
        .await
        .expect("a pool");
    let chain = put(
        "chains/kr/trending",
        json!({"schema": 1, "pools": ["kpop"]}),
    );
    fickle.fates.lock().expect("no panic").push_back(Fate::Late);
    // Somebody takes the pool away past all editors, before it is looked at again.
    let gate = Arc::new(Gate {
        inner: place.store().clone(),
        key: place.key("pools/kr/kpop"),
        is_shut: Mutex::new(false),
    });
    let editor = Editor::new(gate, place.editor.layout().clone(), config::judge);
    let made = editor.edit(&wanted(vec![chain])).await;
    assert!(
        matches!(&made, Err(EditFailed::Store(Error::Unknown(_)))),
        "{made:?}"
    );
}

/// Takes a key away behind the first transaction.
#[derive(Debug)]
struct Gate {
    inner: Arc<dyn Store>,
    key: Bytes,
    is_shut: Mutex<bool>,
}

impl Store for Gate {
    fn identity(&self) -> Answer<'_, Identity> {
        self.inner.identity()
    }

    fn list(&self, query: Query) -> Answer<'_, Listing> {
        Box::pin(async move {
            let mut listing = self.inner.list(query).await?;
            if *self.is_shut.lock().expect("no panic") {
                listing.entries.retain(|entry| entry.key != self.key);
            }
            Ok(listing)
        })
    }

    fn commit(&self, transaction: Transaction) -> Answer<'_, Committed> {
        *self.is_shut.lock().expect("no panic") = true;
        self.inner.commit(transaction)
    }

    fn watch(&self, range: Range, from: Revision) -> Answer<'_, Box<dyn Watch>> {
        self.inner.watch(range, from)
    }

    fn grant(&self, life: Duration) -> Answer<'_, Lease> {
        self.inner.grant(life)
    }

    fn keep_alive(&self, id: LeaseId) -> Answer<'_, Lease> {
        self.inner.keep_alive(id)
    }

    fn revoke(&self, id: LeaseId) -> Answer<'_, ()> {
        self.inner.revoke(id)
    }

    fn lease(&self, id: LeaseId) -> Answer<'_, Lease> {
        self.inner.lease(id)
    }

    fn compact(&self, revision: Revision) -> Answer<'_, ()> {
        self.inner.compact(revision)
    }
}
