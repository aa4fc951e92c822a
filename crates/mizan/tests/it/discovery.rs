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
            !shown(&mizan).contains("TROUBLE")
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

/// A pool that learns its backends from elsewhere, asking `dns` for names.
fn learning(dns: &DnsServer, from: &str) -> String {
    let text = format!(
        "[dns]\nservers = [\"{}\"]\n\n{}",
        dns.address(),
        config("", "", &[])
    );
    text.replace("backends = []", &format!("discover = [{from}]"))
}

fn service(priority: u16, weight: u16, (target, port): (&str, u16)) -> Service<'_> {
    Service {
        priority,
        weight,
        port,
        target,
    }
}

/// Key, weight and tier of the pool's backends.
fn shares(mizan: &Mizan) -> Vec<(String, u64, u64)> {
    let pool = pool(mizan);
    let backends = pool["backends"].as_array().expect("a list");
    let number = |backend: &Value, key: &str| backend[key].as_u64().expect("a number");
    let share = |backend: &Value| {
        let key = backend["key"].as_str().expect("a key").to_owned();
        (key, number(backend, "weight"), number(backend, "priority"))
    };
    backends.iter().map(share).collect()
}

#[test]
fn a_service_says_ports_weights_and_tiers_and_is_followed() {
    const NAME: &str = "_http._tcp.app.test";
    let (dns, [one, two]) = (DnsServer::start(), twins());
    let spare = Backend::healthy("spare");
    let (port, other) = (one.address().port(), spare.address().port());
    assert_eq!(two.address().port(), port);
    dns.set("a.test", 1, &["127.0.0.1"]);
    dns.set("b.test", 1, &["127.0.0.2"]);
    dns.set("c.test", 1, &["127.0.0.1"]);
    let first = service(10, 3, ("a.test", port));
    let second = service(20, 0, ("c.test", other));
    dns.set_service(NAME, 1, &[second, first]);
    let mizan = Mizan::start(&learning(&dns, "{ srv = \"_HTTP._tcp.app.test\" }"));
    let (a, b, c) = (
        format!("a.test:{port}/127.0.0.1"),
        format!("b.test:{port}/127.0.0.2"),
        format!("c.test:{other}/127.0.0.1"),
    );
    assert_eq!(shares(&mizan), [(a, 3, 0), (c.clone(), 1, 1)]);
    assert_eq!(answers(&mizan), "one");

    let moved = service(10, 3, ("b.test", port));
    dns.set_service(NAME, 1, &[moved, second]);
    let now = [(b.clone(), 3, 0), (c, 1, 1)];
    eventually(SOON, "the new one is there", || shares(&mizan) == now);
    assert_eq!(answers(&mizan), "two");

    // A target that nobody knows yet takes nobody away.
    dns.set_outage(Some(Outage::Failing));
    eventually(SOON, "it is told", || {
        shown(&mizan).contains(&format!("from srv {NAME}: heard"))
            && shown(&mizan).contains("TROUBLE")
    });
    assert_eq!(shares(&mizan), now);
    dns.set_outage(None);
    dns.remove(NAME);
    eventually(Duration::from_secs(30), "it is gone", || {
        shown(&mizan).contains("there is no such service")
    });
    assert_eq!(shares(&mizan), now);

    dns.set_service(NAME, 1, &[service(0, 0, ("", 0))]);
    eventually(
        Duration::from_secs(30),
        "it says that it is not there",
        || shares(&mizan).is_empty(),
    );
    assert_eq!(mizan.get("/").status, 503);
}

/// Puts another file in its place at once, as whoever makes one should.
fn put_file(mizan: &Mizan, text: &str) {
    let path = mizan.directory().join("backends.json");
    let new = mizan.directory().join("backends.json.new");
    std::fs::write(&new, text).expect("the folder can be written");
    std::fs::rename(&new, path).expect("it can be renamed");
}

#[test]
fn a_file_is_followed_and_a_bad_one_keeps_the_last() {
    let dns = DnsServer::start();
    let backends = ["one", "two"].map(Backend::healthy);
    let [one, two] = backends.each_ref().map(Backend::address);
    let mizan = Mizan::start(&learning(
        &dns,
        "{ file = \"backends.json\", zone = \"here\", in_flight_max = 7 }",
    ));
    assert!(
        mizan
            .log()
            .contains("backends.json` cannot be read: No such file")
    );
    assert_eq!(mizan.get("/").status, 503, "the pool has nobody yet");
    let generation = |mizan: &Mizan| {
        let status = mizan.command(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
        status["status"]["generation"].clone()
    };
    let before = generation(&mizan);

    put_file(&mizan, &format!("[\"{one}\"]"));
    eventually(SOON, "it serves", || answers(&mizan) == "one");
    assert_eq!(pool(&mizan)["backends"][0]["zone"], "here");

    let both = format!(
        "{{\"backends\": [\n  {{\"address\": \"{two}\", \"weight\": 2, \"version\": \"v2\"}},\n  \"{one}\"\n]}}\n"
    );
    put_file(&mizan, &both);
    let now = [(two.to_string(), 2, 0), (one.to_string(), 1, 0)];
    eventually(SOON, "both are there", || shares(&mizan) == now);

    let path = mizan.directory().join("backends.json");
    let slip = both.replace("\"weight\"", "\"wieght\"");
    std::fs::write(&path, &slip).expect("it can be written");
    let line = slip.lines().nth(1).expect("a second line");
    let column = line.find("\"wieght\"").expect("it is there") + 1;
    let told =
        format!("backends.json:2:{column}: error: unknown key `wieght`; did you mean `weight`?");
    eventually(SOON, "what is wrong is told, and where", || {
        shown(&mizan).contains(&told)
    });
    assert_eq!(shares(&mizan), now);
    std::fs::write(&path, &both[..both.len() - 6]).expect("it can be written");
    eventually(SOON, "half a file is no file", || {
        shown(&mizan).contains("this is no JSON")
    });
    assert_eq!(shares(&mizan), now);
    std::fs::remove_file(&path).expect("it is there");
    eventually(SOON, "it is gone", || {
        shown(&mizan).contains("TROUBLE: No such file")
    });
    assert_eq!(shares(&mizan), now);

    put_file(&mizan, &format!("[\"{two}\"]"));
    eventually(SOON, "it is followed again", || {
        shares(&mizan) == [(two.to_string(), 1, 0)]
    });
    assert_eq!(answers(&mizan), "two");
    assert!(!shown(&mizan).contains("TROUBLE"), "{}", shown(&mizan));
    assert_eq!(generation(&mizan), before, "no reload was needed for it");
}

#[test]
fn what_is_learned_stays_within_the_networks_that_backends_may_be_in() {
    let dns = DnsServer::start();
    dns.set("out.test", 1, &["127.0.0.9"]);
    dns.set("in.test", 1, &["127.0.0.1"]);
    let text = learning(&dns, "{ file = \"backends.json\" }");
    let text = format!("[store]\nbackend_networks = [\"127.0.0.0/30\"]\n\n{text}");
    let mizan = Mizan::start(&text);
    let list =
        "[\"10.0.0.1:9\", \"127.0.0.2:9\", \"unix:/run/app.sock\", \"out.test:9\", \"in.test:9\"]";
    put_file(&mizan, list);
    eventually(SOON, "it is read", || {
        keys(&mizan) == ["127.0.0.2:9", "in.test:9/127.0.0.1"]
    });
}
