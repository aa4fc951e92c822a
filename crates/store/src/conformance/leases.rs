//! What ends by itself. Whoever waits for an end waits for the watch to say it.

use super::cases;
use super::place::Place;
use crate::clock::{Clock, System};
use crate::{Error, LeaseId};
use std::time::Duration;

cases! {
    a_lease_is_granted_for_what_was_asked_at_least
    leases_have_names_of_their_own
    a_lease_says_what_is_left
    a_lease_without_keys_makes_no_revision
    a_key_says_its_lease
    an_end_deletes_the_keys_at_one_revision
    an_end_leaves_keys_of_other_leases
    a_key_put_under_another_lease_leaves_the_first
    a_key_put_without_a_lease_stays
    a_key_put_under_its_lease_again_hangs_on_it_once
    a_deleted_key_leaves_its_lease
    a_key_made_anew_does_not_hang_on_the_old_lease
    an_ended_lease_is_no_lease
    a_lease_that_never_was_is_no_lease
    a_lease_ends_by_itself_in_time
    a_lease_that_ends_by_itself_is_no_lease
    a_lease_that_is_kept_alive_stays
    one_lease_holds_many_keys
}

/// Longer than the suite.
const LONG: Duration = Duration::from_secs(600);

async fn a_lease_is_granted_for_what_was_asked_at_least(place: Place) -> Result<(), Error> {
    for life in [60_000, 90_500] {
        let life = Duration::from_millis(life);
        let lease = place.store.grant(life).await?;
        assert!(lease.granted >= life, "{lease:?}");
        assert!(lease.granted <= life + Duration::from_secs(2), "{lease:?}");
        assert!(lease.left <= lease.granted, "{lease:?}");
        place.store.revoke(lease.id).await?;
    }
    Ok(())
}

async fn leases_have_names_of_their_own(place: Place) -> Result<(), Error> {
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let id = place.store.grant(LONG).await?.id;
        assert!(id.0 > 0, "{id:?}");
        assert!(seen.insert(id), "{id:?} is granted twice");
    }
    for id in seen {
        place.store.revoke(id).await?;
    }
    Ok(())
}

async fn a_lease_says_what_is_left(place: Place) -> Result<(), Error> {
    let granted = place.store.grant(LONG).await?;
    let lease = place.store.lease(granted.id).await?;
    assert_eq!((lease.id, lease.granted), (granted.id, granted.granted));
    assert!(lease.left <= lease.granted, "{lease:?}");
    assert!(
        lease.left >= lease.granted - Duration::from_secs(30),
        "{lease:?}"
    );
    let kept = place.store.keep_alive(granted.id).await?;
    assert_eq!((kept.id, kept.granted), (granted.id, granted.granted));
    assert!(kept.left >= lease.left - Duration::from_secs(1), "{kept:?}");
    place.store.revoke(granted.id).await
}

async fn a_lease_without_keys_makes_no_revision(place: Place) -> Result<(), Error> {
    let before = place.put("a", "1").await?;
    let id = place.store.grant(LONG).await?.id;
    place.store.keep_alive(id).await?;
    place.store.revoke(id).await?;
    assert_eq!(place.revision().await?, before);
    assert_eq!(place.put("a", "2").await?, before + 1);
    Ok(())
}

async fn a_key_says_its_lease(place: Place) -> Result<(), Error> {
    let id = place.store.grant(LONG).await?.id;
    place.commit([], [place.leased("a", id)]).await?;
    let entry = place.entry("a").await?.expect("it was put");
    assert_eq!(entry.lease, Some(id));
    place.store.revoke(id).await
}

async fn an_end_deletes_the_keys_at_one_revision(place: Place) -> Result<(), Error> {
    let id = place.store.grant(LONG).await?.id;
    for name in ["c", "a", "b"] {
        place.commit([], [place.leased(name, id)]).await?;
    }
    place.put("stays", "1").await?;
    let before = place.revision().await?;
    let mut watch = place.watch_all().await?;
    place.store.revoke(id).await?;
    assert_eq!(place.revision().await?, before + 1);
    assert_eq!(place.names().await?, ["stays"]);
    assert_eq!(watch.words().await?, "-a -b -c");
    let listing = place.list_at(place.all(), before).await?;
    assert_eq!(listing.entries.len(), 4);
    Ok(())
}

async fn an_end_leaves_keys_of_other_leases(place: Place) -> Result<(), Error> {
    let one = place.store.grant(LONG).await?.id;
    let two = place.store.grant(LONG).await?.id;
    let operations = [place.leased("a", one), place.leased("b", two)];
    place.commit([], operations).await?;
    place.store.revoke(one).await?;
    assert_eq!(place.names().await?, ["b"]);
    place.store.revoke(two).await?;
    assert!(place.names().await?.is_empty());
    Ok(())
}

async fn a_key_put_under_another_lease_leaves_the_first(place: Place) -> Result<(), Error> {
    let one = place.store.grant(LONG).await?.id;
    let two = place.store.grant(LONG).await?.id;
    place.commit([], [place.leased("a", one)]).await?;
    let last = place.commit([], [place.leased("a", two)]).await?.revision;
    place.store.revoke(one).await?;
    assert_eq!(place.revision().await?, last, "no key is left to it");
    let entry = place.entry("a").await?.expect("it stays");
    assert_eq!(entry.lease, Some(two));
    place.store.revoke(two).await?;
    assert_eq!(place.entry("a").await?, None);
    Ok(())
}

async fn a_key_put_without_a_lease_stays(place: Place) -> Result<(), Error> {
    let id = place.store.grant(LONG).await?.id;
    place.commit([], [place.leased("a", id)]).await?;
    place.put("a", "for good").await?;
    place.store.revoke(id).await?;
    let entry = place.entry("a").await?.expect("it stays");
    assert_eq!((entry.lease, entry.version), (None, 2));
    Ok(())
}

async fn a_key_put_under_its_lease_again_hangs_on_it_once(place: Place) -> Result<(), Error> {
    let id = place.store.grant(LONG).await?.id;
    for _ in 0..3 {
        place.commit([], [place.leased("a", id)]).await?;
    }
    let mut watch = place.watch_all().await?;
    place.store.revoke(id).await?;
    assert_eq!(watch.words().await?, "-a");
    Ok(())
}

async fn a_deleted_key_leaves_its_lease(place: Place) -> Result<(), Error> {
    let id = place.store.grant(LONG).await?.id;
    place.commit([], [place.leased("a", id)]).await?;
    let last = place.delete("a").await?.revision;
    place.store.revoke(id).await?;
    assert_eq!(place.revision().await?, last);
    Ok(())
}

async fn a_key_made_anew_does_not_hang_on_the_old_lease(place: Place) -> Result<(), Error> {
    let id = place.store.grant(LONG).await?.id;
    place.commit([], [place.leased("a", id)]).await?;
    place.delete("a").await?;
    place.put("a", "new").await?;
    place.store.revoke(id).await?;
    let entry = place.entry("a").await?.expect("it stays");
    assert_eq!((entry.lease, entry.version), (None, 1));
    Ok(())
}

/// Nothing can be done with lease `id`.
async fn is_no_lease(place: &Place, id: LeaseId) -> Result<(), Error> {
    let before = place.revision().await?;
    assert_eq!(place.store.lease(id).await, Err(Error::NoLease(id)));
    assert_eq!(place.store.keep_alive(id).await, Err(Error::NoLease(id)));
    assert_eq!(place.store.revoke(id).await, Err(Error::NoLease(id)));
    let put = place.commit([], [place.leased("dead", id)]).await;
    assert_eq!(put, Err(Error::NoLease(id)));
    assert_eq!(place.revision().await?, before);
    Ok(())
}

async fn an_ended_lease_is_no_lease(place: Place) -> Result<(), Error> {
    let id = place.store.grant(LONG).await?.id;
    place.store.revoke(id).await?;
    is_no_lease(&place, id).await
}

async fn a_lease_that_never_was_is_no_lease(place: Place) -> Result<(), Error> {
    for id in [0, 1, 424_242, -5, i64::MAX, i64::MIN] {
        is_no_lease(&place, LeaseId(id)).await?;
    }
    Ok(())
}

async fn a_lease_ends_by_itself_in_time(place: Place) -> Result<(), Error> {
    let mut watch = place.watch_all().await?;
    let asked = System.monotonic();
    let lease = place.store.grant(Duration::from_secs(1)).await?;
    let granted = System.monotonic();
    let operations = [place.leased("a", lease.id), place.leased("b", lease.id)];
    place.commit([], operations).await?;
    place.put("stays", "1").await?;
    assert_eq!(watch.words().await?, "+a=leased +b=leased");
    assert_eq!(watch.words().await?, "+stays=1");
    assert_eq!(watch.words().await?, "-a -b");
    let now = System.monotonic();
    assert!(
        now - asked >= lease.granted,
        "it ended after {:?}",
        now - asked
    );
    let late = (now - granted).saturating_sub(lease.granted);
    assert!(late <= place.expiry_late_max, "it ended {late:?} late");
    assert_eq!(place.names().await?, ["stays"]);
    Ok(())
}

async fn a_lease_that_ends_by_itself_is_no_lease(place: Place) -> Result<(), Error> {
    let mut watch = place.watch_all().await?;
    let id = place.store.grant(Duration::from_secs(1)).await?.id;
    place.commit([], [place.leased("a", id)]).await?;
    assert_eq!(watch.words().await?, "+a=leased");
    assert_eq!(watch.words().await?, "-a");
    is_no_lease(&place, id).await
}

/// Time passes by the end of shorter leases: of one before the other would have ended, and, after that was kept alive, of
/// one more.
async fn a_lease_that_is_kept_alive_stays(place: Place) -> Result<(), Error> {
    let mut watch = place.watch_all().await?;
    let kept = place.store.grant(Duration::from_secs(5)).await?;
    place.commit([], [place.leased("kept", kept.id)]).await?;
    assert_eq!(watch.words().await?, "+kept=leased");
    for (name, life) in [("one", 2), ("two", 4)] {
        let id = place.store.grant(Duration::from_secs(life)).await?.id;
        place.commit([], [place.leased(name, id)]).await?;
        assert_eq!(watch.words().await?, format!("+{name}=leased"));
        assert_eq!(watch.words().await?, format!("-{name}"));
        let alive = place.store.keep_alive(kept.id).await?;
        assert_eq!(alive.granted, kept.granted);
        assert!(alive.left >= Duration::from_secs(4), "{alive:?}");
    }
    assert_eq!(place.names().await?, ["kept"]);
    place.store.revoke(kept.id).await?;
    assert_eq!(watch.words().await?, "-kept");
    Ok(())
}

async fn one_lease_holds_many_keys(place: Place) -> Result<(), Error> {
    let id = place.store.grant(LONG).await?.id;
    let puts: Vec<_> = (0..1_000)
        .map(|at| place.leased(&format!("k{at:03}"), id))
        .collect();
    for puts in puts.chunks(100) {
        place.commit([], puts).await?;
    }
    let before = place.revision().await?;
    let mut watch = place.watch_all().await?;
    place.store.revoke(id).await?;
    let batch = watch.batch().await?;
    assert_eq!((batch.revision, batch.events.len()), (before + 1, 1_000));
    assert!(batch.events.is_sorted_by(|a, b| a.key() < b.key()));
    Ok(())
}
