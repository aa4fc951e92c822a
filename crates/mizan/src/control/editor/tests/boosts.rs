//! Boosts and their ends.

use super::*;
use crate::clock;
use mizan_routing::Name;

const HOUR: Duration = Duration::from_secs(3600);

fn ana() -> (String, String) {
    ("ana".to_owned(), "comeback week".to_owned())
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Pools `kpop` and `pop` of region kr, and a route that splits between them.
async fn place() -> Place {
    let place = Place::new();
    let split = json!([{"pool": "kpop", "weight": 1}, {"pool": "pop", "weight": 3}]);
    place
        .edit(vec![
            put("pools/kr/kpop", pool()),
            put("pools/kr/pop", pool()),
            put(
                "routes/a",
                json!({"schema": 1, "prefix": "/", "split": split}),
            ),
        ])
        .await
        .expect("it may be made");
    place
}

async fn boost(
    place: &Place,
    pool: &str,
    factor: f64,
    life: Duration,
) -> Result<BoostView, EditFailed> {
    let named = (&name("kr"), &name(pool));
    let boosted = place.editor.boost(named, (factor, life), ana()).await;
    boosted.map(|(_, view)| view)
}

async fn left(place: &Place, id: &str) -> Duration {
    let key = place.key(&format!("boosts/kr/kpop/{id}"));
    let entry = place.editor.entry(key, None).await.expect("a store");
    let lease = entry.and_then(|entry| entry.lease).expect("it has a lease");
    place.store().lease(lease).await.expect("it is alive").left
}

#[tokio::test]
async fn a_boost_says_what_it_changes_and_lives_a_little_longer_than_it_lasts() {
    let place = place().await;
    let begun = clock::wall();
    let set = boost(&place, "kpop", 3.0, HOUR)
        .await
        .expect("it may be boosted");
    assert_eq!((&*set.created_by, &*set.why), ("ana", "comeback week"));
    let end = Duration::from_millis(set.expires_at_ms);
    assert!(end + Duration::from_millis(1) >= begun + HOUR && end <= clock::wall() + HOUR);
    let [share] = &set.shares[..] else {
        panic!("one route names it: {:?}", set.shares);
    };
    assert_eq!((&*share.route, share.before, share.after), ("a", 0.25, 0.5));
    let grace = Duration::from_secs(30);
    let left = left(&place, &set.id).await;
    assert!(left <= HOUR + grace && left > HOUR, "{left:?}");
    // The next one stands on it.
    let next = boost(&place, "kpop", 2.0, HOUR)
        .await
        .expect("it may be boosted");
    assert_eq!(next.pool_factor, 6.0);
    assert_eq!(next.shares[0].before, 0.5);
    let (before, after) = (next.shares[0].after, 6.0 / 9.0);
    assert!((before - after).abs() < 1e-9, "{before}");
    let capped = boost(&place, "kpop", 10.0, HOUR)
        .await
        .expect("it may be boosted");
    assert_eq!(capped.pool_factor, 10.0);
    assert_eq!(place.editor.boosts().await.expect("boosts").len(), 3);
}

#[tokio::test]
async fn what_cannot_be_boosted_is_told_and_leaves_nothing() {
    let place = place().await;
    let second = Duration::from_secs(1);
    for (factor, life) in [
        (3.0, BOOST_MIN - second),
        (3.0, BOOST_MAX + second),
        (0.09, HOUR),
        (10.1, HOUR),
        (f64::NAN, HOUR),
        (f64::INFINITY, HOUR),
        (-1.0, HOUR),
    ] {
        let refused = boost(&place, "kpop", factor, life).await;
        assert!(
            matches!(refused, Err(EditFailed::Invalid(_))),
            "{factor} {life:?}: {refused:?}"
        );
    }
    let nothing = boost(&place, "rock", 3.0, HOUR).await;
    assert!(
        matches!(nothing, Err(EditFailed::Refused(_))),
        "{nothing:?}"
    );
    assert_eq!(place.editor.boosts().await.expect("boosts"), []);
    for life in [BOOST_MIN, BOOST_MAX] {
        boost(&place, "kpop", 3.0, life)
            .await
            .expect("a bound is in bounds");
    }
}

#[tokio::test]
async fn a_boost_ends_once() {
    let place = place().await;
    let set = boost(&place, "kpop", 3.0, HOUR)
        .await
        .expect("it may be boosted");
    let other = boost(&place, "pop", 3.0, HOUR)
        .await
        .expect("it may be boosted");
    place
        .editor
        .end_boost(&set.id, ana())
        .await
        .expect("it is there");
    let again = place.editor.end_boost(&set.id, ana()).await;
    assert!(matches!(again, Err(EditFailed::Nothing(_))), "{again:?}");
    let boosts = place.editor.boosts().await.expect("boosts");
    let ids: Vec<_> = boosts.iter().map(|it| &it.id).collect();
    assert_eq!(ids, [&other.id]);
    assert_eq!(place.whys().await.len(), 4);
}

/// With the store's revision, so with a lease that began anew; and none that has hung about for long.
#[tokio::test]
async fn a_boost_that_has_ended_is_shown_and_cleaned_up_by_the_next() {
    let place = place().await;
    let ended = |ago: Duration| {
        let at = (clock::wall() - ago).as_millis() as u64;
        json!({"schema": 1, "factor": 3, "expires_at_ms": at})
    };
    place.write("boosts/kr/kpop/old", &ended(HOUR)).await;
    place
        .write("boosts/kr/kpop/new", &ended(Duration::from_secs(1)))
        .await;
    let boosts = place.editor.boosts().await.expect("boosts");
    assert_eq!(boosts.len(), 2);
    assert!(
        boosts
            .iter()
            .all(|it| it.left_seconds == 0 && it.pool_factor == 1.0),
        "{boosts:?}"
    );
    let set = boost(&place, "kpop", 3.0, HOUR)
        .await
        .expect("it may be boosted");
    assert_eq!(set.pool_factor, 3.0, "what has ended counts no more");
    let boosts = place.editor.boosts().await.expect("boosts");
    let mut ids: Vec<_> = boosts.iter().map(|it| &*it.id).collect();
    ids.sort_unstable();
    let mut rest = ["new", &*set.id];
    rest.sort_unstable();
    assert_eq!(ids, rest);
}

/// Whichever way a boost is put, it has an end that is near, and a lease that cleans up.
#[tokio::test]
async fn a_boost_that_is_put_as_an_object_ends_as_any_other() {
    let place = place().await;
    let boost = |left: i64| {
        let at = clock::wall().as_millis() as i64 + left;
        put(
            "boosts/kr/kpop/own",
            json!({"schema": 1, "factor": 3, "expires_at_ms": at}),
        )
    };
    for left in [-1_000, 13 * 3_600_000] {
        let refused = place.edit(vec![boost(left)]).await;
        assert!(
            matches!(refused, Err(EditFailed::Invalid(_))),
            "{left}: {refused:?}"
        );
    }
    let changes = vec![boost(3_600_000), put("settings/ko", settings("a"))];
    place.edit(changes).await.expect("it may be made");
    let left = left(&place, "own").await;
    assert!(
        left <= HOUR + Duration::from_secs(30) && left > HOUR,
        "{left:?}"
    );
    // What else the edit puts stays.
    let key = place.key("settings/ko");
    let entry = place
        .editor
        .entry(key, None)
        .await
        .expect("a store")
        .expect("it is there");
    assert_eq!(entry.lease, None);
}
