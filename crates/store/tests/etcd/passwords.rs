//! Users, roles, tokens.

use super::node::{Node, Plan, all, binaries, gateway, next_words, options_of, put, value};
use mizan_store::etcd::{Credentials, Etcd, Password};
use mizan_store::{Denial, Error, Operation, Query, Range, Store, Transaction};
use std::io::Write;
use std::time::Duration;

/// A node with a root, and a user `writer` that may do everything below `mine/`.
async fn guarded(binary: &super::node::Binary, flags: &[&str]) -> Node {
    let mut plan = Plan::alone();
    plan.flags
        .extend(flags.iter().map(|flag| (*flag).to_owned()));
    let node = Node::start(binary, plan);
    node.store().await;
    let steps = [
        ("user/add", r#"{"name":"root","password":"r00t"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("user/add", r#"{"name":"writer","password":"wr1te"}"#),
        ("role/add", r#"{"name":"mine"}"#),
        (
            "role/grant",
            // From `mine/` to `mine0`, in base64.
            r#"{"name":"mine","perm":{"permType":"READWRITE","key":"bWluZS8=","range_end":"bWluZTA="}}"#,
        ),
        ("user/grant", r#"{"user":"writer","role":"mine"}"#),
        ("enable", "{}"),
    ];
    for (at, (path, body)) in steps.iter().enumerate() {
        if at == 1 {
            gateway(&node, "/v3/auth/role/add", r#"{"name":"root"}"#);
        }
        gateway(&node, &format!("/v3/auth/{path}"), body);
    }
    node
}

fn as_user(node: &Node, user: &str, password: Password, namespace: &'static str) -> Etcd {
    let mut options = options_of([node.address()]);
    options.credentials = Some(Credentials {
        user: user.to_owned(),
        password,
    });
    options.namespace = namespace.into();
    Etcd::new(&options).expect("good options")
}

fn text(password: &str) -> Password {
    Password::Text(password.to_owned())
}

/// Keys, leases and watches, all of them.
async fn uses_everything(store: &Etcd) {
    let lease = store.grant(Duration::from_secs(60)).await.expect("granted");
    let transaction = Transaction {
        compares: Vec::new(),
        operations: vec![Operation::Put {
            key: "a".into(),
            value: "leased".into(),
            lease: Some(lease.id),
        }],
    };
    let revision = store.commit(transaction).await.expect("permitted").revision;
    let mut watch = store.watch(all(), revision).await.expect("permitted");
    assert_eq!(next_words(watch.as_mut()).await.expect("said"), "a=leased");
    assert!(store.lease(lease.id).await.expect("alive").left > Duration::ZERO);
    store.keep_alive(lease.id).await.expect("alive");
    store.revoke(lease.id).await.expect("alive");
    assert_eq!(next_words(watch.as_mut()).await.expect("said"), "-a");
    assert_eq!(value(store, "a").await, Ok(None));
    store.identity().await.expect("permitted");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_do_what_they_may_and_no_more() {
    for binary in binaries() {
        let node = guarded(&binary, &[]).await;
        uses_everything(&as_user(&node, "root", text("r00t"), "")).await;
        uses_everything(&as_user(&node, "writer", text("wr1te"), "mine/")).await;
        let beyond = as_user(&node, "writer", text("wr1te"), "");
        let refused = [
            put(&beyond, "other", "1").await.expect_err("not permitted"),
            value(&beyond, "other").await.expect_err("not permitted"),
            beyond.watch(all(), 1).await.expect_err("not permitted"),
        ];
        for error in refused {
            let is_told = matches!(error, Error::Denied(Denial::Permission(_)));
            assert!(is_told, "{error:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_and_none_at_all_are_told_apart() {
    for binary in binaries() {
        let node = guarded(&binary, &[]).await;
        for (user, password) in [("root", "wrong"), ("nobody", "r00t")] {
            let store = as_user(&node, user, text(password), "");
            let refused = [
                put(&store, "a", "1").await.expect_err("refused"),
                value(&store, "a").await.expect_err("refused"),
                store.watch(all(), 1).await.expect_err("refused"),
                store
                    .grant(Duration::from_secs(9))
                    .await
                    .expect_err("refused"),
            ];
            for error in refused {
                assert_eq!(error, Error::Denied(Denial::Password));
            }
        }
        let nobody = Etcd::new(&options_of([node.address()])).expect("good options");
        let refused = [
            put(&nobody, "a", "1").await.expect_err("refused"),
            value(&nobody, "a").await.expect_err("refused"),
        ];
        for error in refused {
            assert_eq!(error, Error::Denied(Denial::Anonymous));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_in_a_file_is_read_when_it_is_needed() {
    let node = guarded(&super::node::newest(), &[]).await;
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let store = as_user(&node, "root", Password::File(file.path().to_owned()), "");
    let refused = put(&store, "a", "1").await;
    assert_eq!(refused, Err(Error::Denied(Denial::Password)));
    writeln!(file, "r00t").expect("it can be written");
    put(&store, "a", "1").await.expect("the file is read again");
    std::fs::remove_file(file.path()).expect("it is there");
    put(&store, "a", "2")
        .await
        .expect("the token is still good");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_a_restart_forgot_are_asked_for_again() {
    for binary in binaries() {
        let mut node = guarded(&binary, &[]).await;
        let store = as_user(&node, "root", text("r00t"), "");
        let revision = put(&store, "a", "1").await.expect("permitted");
        node.kill();
        node.restart();
        node.up(&store).await;
        // Whatever is first after it: a change, a watch, a lease.
        let mut watch = store.watch(all(), revision).await.expect("permitted");
        assert_eq!(next_words(watch.as_mut()).await.expect("said"), "a=1");
        for turn in 0..3 {
            node.kill();
            node.restart();
            let direct = as_user(&node, "root", text("r00t"), "");
            node.up(&direct).await;
            match turn {
                0 => drop(store.watch(all(), 1).await.expect("permitted")),
                1 => drop(put(&store, "a", "2").await.expect("permitted")),
                _ => drop(
                    store
                        .grant(Duration::from_secs(9))
                        .await
                        .expect("permitted"),
                ),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_tokens_that_a_change_of_users_made_old_are_asked_for_again() {
    for binary in binaries() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let key = rcgen::KeyPair::generate().expect("a key");
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("key"), key.serialize_pem()).expect("written");
        std::fs::write(path("public"), key.public_key_pem()).expect("written");
        let flag = format!(
            "--auth-token=jwt,pub-key={},priv-key={},sign-method=ES256,ttl=10m",
            path("public"),
            path("key")
        );
        let node = guarded(&binary, &[&flag]).await;
        let store = as_user(&node, "root", text("r00t"), "");
        put(&store, "a", "1").await.expect("permitted");
        for turn in 0..3 {
            let change = format!(r#"{{"name":"another {turn}"}}"#);
            let root = as_user(&node, "root", text("r00t"), "");
            put(&root, "b", "1").await.expect("permitted");
            // By whoever manages users, with a token of its own.
            let token = gateway(
                &node,
                "/v3/auth/authenticate",
                r#"{"name":"root","password":"r00t"}"#,
            );
            let (_, token) = token.split_once("\"token\":\"").expect("a token");
            let token = token.split('"').next().expect("it ends");
            super::node::gateway_as(&node, token, "/v3/auth/role/add", &change);
            match turn {
                0 => drop(put(&store, "a", "2").await.expect("a new token")),
                1 => drop(
                    store
                        .list(Query::now(Range::Key("a".into())))
                        .await
                        .expect("a new token"),
                ),
                _ => drop(
                    store
                        .grant(Duration::from_secs(9))
                        .await
                        .expect("a new token"),
                ),
            }
        }
    }
}
