//! Tokens, and what may be asked again.

use super::server::Stage;
use crate::{Denial, Error, LeaseId, Operation, Query, Range, Store, Transaction};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tonic::{Code, Status};

fn put() -> Transaction {
    Transaction {
        compares: Vec::new(),
        operations: vec![Operation::put("a", "1")],
    }
}

fn everything() -> Query {
    Query::now(Range::Prefix("".into()))
}

impl Stage {
    fn refuses(&self, code: Code, messages: &[&str]) {
        let refusals = messages.iter().map(|message| Status::new(code, *message));
        self.script
            .refusals
            .lock()
            .expect("not poisoned")
            .extend(refusals);
    }

    fn refuses_tokens(&self, times: usize) {
        let refusal = Status::unavailable("etcdserver: request timed out");
        let refusals = &self.script.token_refusals;
        *refusals.lock().expect("not poisoned") = vec![refusal; times].into();
    }

    fn transactions(&self) -> u64 {
        self.script.transactions.load(Ordering::SeqCst)
    }

    fn ranges(&self) -> u64 {
        self.script.ranges.load(Ordering::SeqCst)
    }

    fn authenticated(&self) -> u64 {
        self.script.authenticated.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn each_question_about_a_lease_has_the_token() {
    let stage = Stage::guarded("3.6.14").await;
    let lease = stage.store.grant(Duration::from_secs(9)).await;
    assert_eq!(lease.expect("granted").id, LeaseId(5));
    stage.store.keep_alive(LeaseId(5)).await.expect("alive");
    stage.store.lease(LeaseId(5)).await.expect("alive");
    stage.store.revoke(LeaseId(5)).await.expect("revoked");
    let ended = stage.store.keep_alive(LeaseId(6)).await;
    assert_eq!(ended, Err(Error::NoLease(LeaseId(6))));
    assert_eq!(stage.authenticated(), 1, "one token is for all");
}

#[tokio::test]
async fn a_token_that_expired_is_asked_for_again_once() {
    let mut stage = Stage::guarded("3.6.14").await;
    stage.store.list(everything()).await.expect("permitted");
    for turn in 1..=5 {
        stage.script.token.store(turn, Ordering::SeqCst);
        match turn {
            1 => drop(stage.store.list(everything()).await.expect("a new token")),
            2 => drop(stage.store.commit(put()).await.expect("a new token")),
            3 => drop(
                stage
                    .store
                    .grant(Duration::from_secs(9))
                    .await
                    .expect("a new token"),
            ),
            4 => drop(
                stage
                    .store
                    .keep_alive(LeaseId(5))
                    .await
                    .expect("a new token"),
            ),
            _ => {
                let store = stage.store.clone();
                let open =
                    tokio::spawn(async move { store.watch(Range::Key("a".into()), 1).await });
                let played = stage.opened().await;
                played.created(1).await;
                open.await.expect("no panic").expect("a new token");
            }
        }
        assert_eq!(stage.authenticated(), turn + 1);
    }
    assert_eq!(stage.transactions(), 2, "refused, and done");
}

#[tokio::test]
async fn a_token_that_is_never_good_is_no_loop() {
    let stage = Stage::guarded("3.6.14").await;
    stage.refuses(
        Code::InvalidArgument,
        &["etcdserver: revision of auth store is old"; 50],
    );
    let refused = stage.store.commit(put()).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert_eq!((stage.transactions(), stage.authenticated()), (2, 2));
}

#[tokio::test]
async fn what_got_no_token_was_not_sent_and_is_sent_with_the_next() {
    let stage = Stage::guarded("3.6.14").await;
    stage.refuses_tokens(1);
    stage
        .store
        .commit(put())
        .await
        .expect("the next token is given");
    assert_eq!((stage.transactions(), stage.authenticated()), (1, 2));
    let stage = Stage::guarded("3.6.14").await;
    stage.refuses_tokens(50);
    let refused = stage.store.commit(put()).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert_eq!((stage.transactions(), stage.authenticated()), (0, 3));
}

#[tokio::test]
async fn who_may_not_ask_for_the_version_still_learns_whose_store_it_is() {
    let stage = Stage::open("3.6.14").await;
    stage.script.hides_version.store(true, Ordering::SeqCst);
    let identity = stage.store.identity().await.expect("permitted");
    assert_eq!((identity.id, identity.version.as_str()), (7, "unknown"));
    assert_eq!(identity.warnings.len(), 1);
}

#[tokio::test]
async fn who_is_nobody_is_told_so() {
    let stage = Stage::open("3.6.14").await;
    stage.refuses(Code::InvalidArgument, &["etcdserver: user name is empty"]);
    let refused = stage.store.commit(put()).await;
    assert_eq!(refused, Err(Error::Denied(Denial::Anonymous)));
}

#[tokio::test]
async fn what_may_have_been_done_is_not_asked_again() {
    for message in [
        "etcdserver: request timed out",
        "etcdserver: leader changed",
        "etcdserver: server stopped",
    ] {
        let stage = Stage::open("3.6.14").await;
        stage.refuses(Code::Unavailable, &[message]);
        let outcome = stage.store.commit(put()).await;
        assert!(matches!(outcome, Err(Error::Unknown(_))), "{outcome:?}");
        assert_eq!(stage.transactions(), 1);
    }
}

#[tokio::test]
async fn a_change_that_no_leader_took_was_not_made() {
    let stage = Stage::open("3.6.14").await;
    stage.refuses(Code::Unavailable, &["etcdserver: no leader"]);
    let outcome = stage.store.commit(put()).await;
    assert!(matches!(outcome, Err(Error::Unavailable(_))), "{outcome:?}");
    assert_eq!(stage.transactions(), 1);
}

#[tokio::test]
async fn a_read_is_asked_again() {
    let stage = Stage::open("3.6.14").await;
    stage.refuses(
        Code::Unavailable,
        &["etcdserver: leader changed", "etcdserver: no leader"],
    );
    stage.store.list(everything()).await.expect("at last");
    assert_eq!(stage.ranges(), 3);
}

#[tokio::test]
async fn a_read_is_asked_again_for_so_long_and_with_pauses() {
    let stage = Stage::open("3.6.14").await;
    stage.refuses(Code::Unavailable, &["etcdserver: no leader"; 1_000]);
    let outcome = stage.store.list(everything()).await;
    let Err(Error::Unavailable(why)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(
        why.contains("no answer within 2s") && why.contains("no leader"),
        "{why}"
    );
    // Random pauses up to 50 ms, 100 ms, … in 2 s.
    assert!((3..100).contains(&stage.ranges()), "{}", stage.ranges());
}

#[tokio::test]
async fn what_is_too_large_for_this_etcd_is_told() {
    let stage = Stage::open("3.6.14").await;
    stage.refuses(Code::InvalidArgument, &["etcdserver: request is too large"]);
    let outcome = stage.store.commit(put()).await;
    assert!(
        matches!(outcome, Err(Error::TooLarge { .. })),
        "{outcome:?}"
    );
    stage.refuses(
        Code::ResourceExhausted,
        &["etcdserver: mvcc: database space exceeded"],
    );
    let outcome = stage.store.commit(put()).await;
    assert!(matches!(outcome, Err(Error::Full(_))), "{outcome:?}");
}
