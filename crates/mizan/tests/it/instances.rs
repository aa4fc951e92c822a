//! Instances that say in the store where they are: their leases end, they die, the store is away.

use crate::support::etcd::Etcd;
use crate::support::*;
use mizan_store::remote::Remote;
use mizan_store::{LeaseId, Operation, Store, Transaction, etcd};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(15);

/// A pool of the instances `app`, whose probes notice a dead one within two seconds.
fn learning(store: &str, more: &str) -> String {
    let from = "discover = [{ instances = \"app\" }]\n\
                health = { path = \"/healthz\", interval = \"500ms\", timeout = \"450ms\", fall = 3, rise = 1 }\n\
                adaptive = { slow_start = \"0s\" }";
    let text = config("", "", &[]).replace("backends = []", from);
    format!("[store]\naddress = \"{store}\"\n{more}\n\n{text}")
}

/// What an instance does by itself: it says where it is, under a lease.
fn register(store: &dyn Store, id: &str, json: &str) -> LeaseId {
    run(async {
        let lease = store.grant(Duration::from_secs(60)).await.expect("a lease");
        put(store, id, json, lease.id).await;
        lease.id
    })
}

async fn put(store: &dyn Store, id: &str, json: &str, lease: LeaseId) {
    let put = Operation::Put {
        key: format!("/mizan/default/v1/instances/app/{id}").into(),
        value: json.to_owned().into(),
        lease: Some(lease),
    };
    let transaction = Transaction {
        compares: Vec::new(),
        operations: vec![put],
    };
    store.commit(transaction).await.expect("it is put");
}

fn revoke(store: &dyn Store, lease: LeaseId) {
    run(async { store.revoke(lease).await.expect("it was alive") });
}

fn at(address: SocketAddr) -> String {
    format!("{{\"address\": \"{address}\", \"started_by\": \"a test\"}}")
}

/// What `mizan status --json` says of the only pool.
fn pool(mizan: &Mizan) -> Value {
    let output = mizan.command(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    status["pools"][0].clone()
}

/// The keys of the pool's backends, sorted.
fn keys(mizan: &Mizan) -> Vec<String> {
    let pool = pool(mizan);
    let backends = pool["backends"].as_array().expect("a list");
    let key = |backend: &Value| backend["key"].as_str().expect("a key").to_owned();
    let mut keys: Vec<String> = backends.iter().map(key).collect();
    keys.sort();
    keys
}

fn sorted(addresses: &[SocketAddr]) -> Vec<String> {
    let mut keys: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    keys.sort();
    keys
}

fn shown(mizan: &Mizan) -> String {
    String::from_utf8(mizan.command(&["status"]).stdout).expect("text")
}

fn kept(mizan: &Mizan) -> usize {
    let pool = pool(mizan);
    pool["discovery"][0]["kept"].as_array().map_or(0, Vec::len)
}

#[track_caller]
fn all_serve(mizan: &Mizan) {
    for _ in 0..20 {
        assert_eq!(mizan.get("/").status, 200);
    }
}

/// A lease that is lost while its instance serves; one that dies; all at once; one that moves.
fn leases_come_and_go(mizan: &Mizan, store: &dyn Store) {
    let (one, mut two, three) = (
        Backend::healthy("one"),
        Backend::healthy("two"),
        Backend::healthy("three"),
    );
    let [first, second, third] = [one.address(), two.address(), three.address()];
    assert_eq!(mizan.get("/").status, 503, "nobody is there yet");
    let lease_of_one = register(store, "one", &at(first));
    let lease_of_two = register(store, "two", &at(second));
    let both = sorted(&[first, second]);
    eventually(SOON, "both are there", || keys(mizan) == both);
    all_serve(mizan);

    revoke(store, lease_of_two);
    eventually(SOON, "it is told that its lease has ended", || {
        shown(mizan).contains(&format!("KEPT though its lease has ended: {second}"))
    });
    let probes = two.probes();
    eventually(SOON, "it is probed on", || two.probes() > probes + 2);
    assert_eq!(keys(mizan), both, "it passes its probe");
    all_serve(mizan);
    two.stop();
    eventually(SOON, "it is gone", || keys(mizan) == sorted(&[first]));
    all_serve(mizan);
    assert_eq!(kept(mizan), 0);

    revoke(store, lease_of_one);
    eventually(SOON, "the last one is kept, too", || kept(mizan) == 1);
    all_serve(mizan);
    let weighed = at(first).replace('}', ", \"weight\": 3, \"version\": \"v2\"}");
    let lease_of_one = register(store, "one", &weighed);
    eventually(SOON, "it is back", || {
        let backend = &pool(mizan)["backends"][0];
        kept(mizan) == 0 && backend["weight"] == 3 && backend["version"] == "v2"
    });
    run(put(store, "one", &at(third), lease_of_one));
    eventually(SOON, "it is elsewhere, so it is another one", || {
        keys(mizan) == sorted(&[third])
    });
    all_serve(mizan);
}

#[test]
fn a_lost_lease_takes_nobody_away_who_serves_with_an_embedded_store() {
    let mizan = Mizan::start(&learning("embedded:{dir}/store", ""));
    let store = Remote::new(mizan.directory().join("admin.sock"));
    leases_come_and_go(&mizan, &store);
}

fn client(etcd: &Etcd) -> etcd::Etcd {
    let options = etcd::Options::parse(&etcd.address()).expect("an address");
    etcd::Etcd::new(&options).expect("good options")
}

#[test]
fn a_lost_lease_takes_nobody_away_who_serves_with_etcd() {
    let etcd = Etcd::start();
    let mizan = Mizan::start(&learning(&etcd.address(), ""));
    leases_come_and_go(&mizan, &client(&etcd));
}

#[test]
fn a_store_that_is_away_or_empty_takes_nobody_away() {
    let mut etcd = Etcd::start();
    let backends = ["one", "two"].map(Backend::healthy);
    let addresses = backends.each_ref().map(Backend::address);
    let mizan = Mizan::start(&learning(&etcd.address(), ""));
    for (id, address) in ["one", "two"].iter().zip(addresses) {
        register(&client(&etcd), id, &at(address));
    }
    let both = sorted(&addresses);
    eventually(SOON, "both are there", || keys(&mizan) == both);

    etcd.kill();
    eventually(SOON, "it is told", || {
        let shown = shown(&mizan);
        let told = shown
            .lines()
            .find(|line| line.contains("from instances app"));
        told.is_some_and(|line| line.contains("TROUBLE"))
    });
    assert_eq!(keys(&mizan), both);
    all_serve(&mizan);

    etcd.start_anew();
    eventually(Duration::from_secs(30), "their leases are all gone", || {
        kept(&mizan) == 2
    });
    assert_eq!(keys(&mizan), both);
    all_serve(&mizan);
}

#[test]
fn an_instance_outside_of_the_networks_is_passed_over() {
    let mizan = Mizan::start(&learning(
        "embedded:{dir}/store",
        "backend_networks = [\"127.0.0.0/30\"]",
    ));
    let store = Remote::new(mizan.directory().join("admin.sock"));
    let inside = Backend::healthy("inside");
    register(&store, "out", "{\"address\": \"127.0.0.9:80\"}");
    register(&store, "name", "{\"address\": \"localhost:80\"}");
    register(&store, "in", &at(inside.address()));
    eventually(SOON, "one is there", || {
        keys(&mizan) == sorted(&[inside.address()])
    });
    eventually(SOON, "what cannot be one is told", || {
        shown(&mizan).contains("app/name: an instance gives its own IP address")
    });
}
