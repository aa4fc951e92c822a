//! Members of pools that are learned while a balancer runs.

use crate::support::*;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

/// A name whose addresses are loopback ones, all with the port of `backend`.
fn at_name(dns: &DnsServer, name: &str, backend: SocketAddr) -> String {
    let text = format!(
        "[dns]\nservers = [\"{}\"]\n\n{}",
        dns.address(),
        config("", "", &[])
    );
    let named = format!("backends = [\"{name}:{}\"]", backend.port());
    text.replace("backends = []", &named)
}

/// Two backends with one port, on 127.0.0.1 and on 127.0.0.2.
fn twins() -> [Backend; 2] {
    let one = Backend::healthy("one");
    let port = one.address().port();
    let two = Backend::start_at(&format!("127.0.0.2:{port}"), "two", Exchange::serve);
    [one, two.expect("a free port")]
}

/// Who answers the next request.
fn answers(mizan: &Mizan) -> String {
    let text = mizan.get("/").text();
    text.split(':').next().unwrap_or_default().to_owned()
}

/// What `mizan status --json` says of the only pool.
fn pool(mizan: &Mizan) -> Value {
    let output = mizan.command(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    status["pools"][0].clone()
}

/// The keys of the pool's backends.
fn keys(mizan: &Mizan) -> Vec<String> {
    let pool = pool(mizan);
    let backends = pool["backends"].as_array().expect("a list");
    let key = |backend: &Value| backend["key"].as_str().expect("a key").to_owned();
    backends.iter().map(key).collect()
}

fn shown(mizan: &Mizan) -> String {
    String::from_utf8(mizan.command(&["status"]).stdout).expect("text")
}

#[test]
fn a_name_is_asked_for_again_when_its_ttl_has_ended() {
    let (dns, [one, _two]) = (DnsServer::start(), twins());
    dns.set("app.test", 1, &["127.0.0.1"]);
    dns.set("slow.test", 3600, &["127.0.0.1"]);
    let mizan = Mizan::start(&at_name(&dns, "app.test", one.address()).replace(
        "\"app.test",
        &format!("\"slow.test:{}\", \"app.test", one.address().port()),
    ));
    let at_first = dns.asked("slow.test");
    assert_eq!(answers(&mizan), "one");
    dns.set("app.test", 1, &["127.0.0.2"]);
    let port = one.address().port();
    let want = [
        format!("slow.test:{port}/127.0.0.1"),
        format!("app.test:{port}/127.0.0.2"),
    ];
    // Long before the thirty seconds that names were resolved after.
    eventually(SOON, "the new address is a member", || keys(&mizan) == want);
    assert_eq!(dns.asked("slow.test"), at_first, "its TTL has not ended");
}

#[test]
fn an_outage_of_dns_keeps_the_last_answer_and_is_told() {
    let (dns, [one, _two]) = (DnsServer::start(), twins());
    dns.set("app.test", 1, &["127.0.0.1"]);
    let mizan = Mizan::start(&at_name(&dns, "app.test", one.address()));
    let kept = keys(&mizan);
    let says = [
        (Outage::Failing, "Server Failure"),
        (Outage::Refusing, "Refused"),
        (Outage::Silent, "do not answer"),
    ];
    for (outage, told) in says {
        dns.set_outage(Some(outage));
        eventually(Duration::from_secs(30), told, || {
            shown(&mizan).contains(told)
        });
        assert_eq!(
            (keys(&mizan), answers(&mizan)),
            (kept.clone(), "one".into())
        );
        dns.set_outage(None);
        eventually(Duration::from_secs(30), "it is heard again", || {
            !shown(&mizan).contains("NOT HEARD")
        });
    }
    assert!(mizan.metric("mizan_pool_discovery_failures_total", "pool=\"api\"") >= 3.0);
    dns.remove("app.test");
    eventually(SOON, "it is gone", || {
        shown(&mizan).contains("there is no such name")
    });
    assert_eq!((keys(&mizan), answers(&mizan)), (kept, "one".into()));
    dns.set("app.test", 1, &["127.0.0.2"]);
    eventually(Duration::from_secs(30), "it is back", || {
        answers(&mizan) == "two"
    });
}

#[test]
fn addresses_of_one_family_stay_when_only_that_cannot_be_asked_for() {
    let dns = DnsServer::start();
    dns.set("app.test", 1, &["127.0.0.1", "::1"]);
    let mizan = Mizan::start(&at_name(&dns, "app.test", ([127, 0, 0, 1], 9).into()));
    let both = ["app.test:9/127.0.0.1", "app.test:9/::1"];
    assert_eq!(keys(&mizan), both);
    dns.set("app.test", 1, &["127.0.0.2", "::2"]);
    dns.set_outage(Some(Outage::FailingForV4));
    let want = ["app.test:9/127.0.0.1", "app.test:9/::2"];
    eventually(Duration::from_secs(30), "the other family is new", || {
        keys(&mizan) == want
    });
}

#[test]
fn a_name_that_is_unknown_at_the_start_joins_when_it_is_there() {
    let (dns, [one, _two]) = (DnsServer::start(), twins());
    let mizan = Mizan::start(&at_name(&dns, "app.test", one.address()));
    assert_eq!(mizan.get("/").status, 503);
    dns.set("app.test", 1, &["127.0.0.1"]);
    eventually(SOON, "it serves", || answers(&mizan) == "one");
}
