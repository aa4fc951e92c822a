//! Ticket keys that instances share through the store.

use super::*;
use mizan_store::remote::Remote;
use mizan_store::{Operation, Store, Transaction};

fn write(mizan: &Mizan, name: &str, text: &str) {
    let store = Remote::new(mizan.admin_socket());
    let put = Operation::put(
        format!("/mizan/default/v1/secrets/tickets/{name}"),
        text.to_owned(),
    );
    let transaction = Transaction {
        compares: Vec::new(),
        operations: vec![put],
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    runtime
        .block_on(store.commit(transaction))
        .expect("it is written");
}

#[test]
fn a_session_goes_on_with_another_instance_by_keys_of_the_store() {
    let etcd = Etcd::start();
    let pki = Pki::new();
    pki.issue("a");
    let start = |node: &str| {
        let tls = format!(
            "[[listener]]\nname = \"tls\"\nbind = \"{{listen2}}\"\n[listener.tls]\ncertificates = [{}]\ntickets = {{ store = \"edge\" }}\n",
            pki.pair("a")
        );
        Mizan::start(&(config(node, &etcd.address()) + &tls))
    };
    let (one, other) = (start("one"), start("other"));
    assert!(
        one.log().contains("the store has no ticket keys `edge`"),
        "{}",
        one.log()
    );
    // A client that was with one, and then is with the other.
    let resumes = || {
        let client = pki.client(None);
        let ask = |mizan: &Mizan| {
            ask_secured(&client, mizan.address2(), "a.example", ("/", "")).expect("an answer")
        };
        assert!(!ask(&one).is_resumed);
        ask(&other).is_resumed
    };
    assert!(!resumes(), "each has keys of its own");
    write(&one, "edge", &"11".repeat(32));
    eventually(SOON, "both have the store's keys", resumes);
    write(&one, "edge", "no key");
    eventually(SOON, "it is told", || {
        other.log().contains("the store's ticket keys are none")
    });
    assert!(resumes(), "those of before stay");
    write(&one, "edge", &"22".repeat(32));
    write(&one, "unused", "no key");
    eventually(SOON, "the next ones are in use", resumes);
}
