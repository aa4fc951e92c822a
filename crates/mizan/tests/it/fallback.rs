//! Pools that stand in for others.

use crate::support::mizan::free_address;
use crate::support::*;
use std::time::Duration;

/// A route to pool `near`, for which `far` stands in.
fn config(
    near: &str,
    far: &str,
    near_at: &[std::net::SocketAddr],
    far_at: &[std::net::SocketAddr],
) -> String {
    let listener =
        "[[listener]]\nbind = \"{listen}\"\n\n[[route]]\npool = \"near\"\nfallback = [\"far\"]\n\n";
    let pool = |name: &str, more: &str, at: &[std::net::SocketAddr]| {
        let at: Vec<_> = at.iter().map(|at| format!("\"{at}\"")).collect();
        format!("[pool.{name}]\n{more}\nbackends = [{}]\n\n", at.join(", "))
    };
    format!(
        "{listener}{}{}",
        pool("near", near, near_at),
        pool("far", far, far_at)
    )
}

const SOON: Duration = Duration::from_secs(5);

const UNCHECKED: &str = "ejection = { enabled = false }";

#[test]
fn where_no_backend_of_a_pool_can_be_reached_the_next_pool_gets_every_request() {
    let far = Backend::healthy("far");
    let nobody = [free_address(), free_address()];
    let mizan = Mizan::start(&config(UNCHECKED, "", &nobody, &[far.address()]));
    for _ in 0..5 {
        let got = mizan.get("/");
        assert!(
            got.status == 200 && got.text().starts_with("far"),
            "{}",
            got.text()
        );
        // A POST, too: it has reached nobody.
        assert_eq!(mizan.client().post("/order", b"one").status, 200);
    }
    assert_eq!(far.requests(), 10, "each is sent once");
    assert_eq!(mizan.metric("mizan_unreached_total", "pool"), 0.0);
    assert!(mizan.metric("mizan_rescued_total", "cause=\"connect_refused\"") >= 10.0);
}

#[test]
fn a_pool_that_is_back_has_its_requests_back() {
    let (mut near, far) = (Backend::healthy("near"), Backend::healthy("far"));
    let health = "health = { path = \"/healthz\", interval = \"100ms\", timeout = \"50ms\", rise = 1, fall = 1 }";
    let mizan = Mizan::start(&config(health, "", &[near.address()], &[far.address()]));
    let by = |name: &str| {
        let got = mizan.get("/");
        assert_eq!(got.status, 200, "{}", got.text());
        got.text().starts_with(name)
    };
    eventually(SOON, "its own pool serves", || by("near"));
    near.stop();
    eventually(SOON, "the other one serves", || by("far"));
    near.restart();
    eventually(SOON, "its own pool serves again", || by("near"));
}

/// Drained by people, not broken.
#[test]
fn a_pool_that_is_drained_is_stood_in_for_and_explained() {
    let (near, far) = (Backend::healthy("near"), Backend::healthy("far"));
    let mizan = Mizan::start(&config("", "", &[near.address()], &[far.address()]));
    assert!(mizan.get("/").text().starts_with("near"));
    let explained = mizan.command(&["explain", "http://a.example/"]);
    let said = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(
        said.contains("far: where nobody of near can be reached"),
        "{said}"
    );
    let drained = mizan.command(&["drain", &format!("near/{}", near.address())]);
    assert!(drained.status.success(), "{drained:?}");
    let warned = String::from_utf8_lossy(&drained.stderr).into_owned();
    assert!(
        warned.contains("near has no usable backend left"),
        "{warned}"
    );
    assert!(
        warned.contains("goes to pool far, which stands in"),
        "{warned}"
    );
    assert!(!warned.contains("503"), "{warned}");
    eventually(SOON, "the other one serves", || {
        mizan.get("/").text().starts_with("far")
    });
    let explained = mizan.command(&["explain", "http://a.example/"]);
    let said = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(
        said.contains("far (") && said.contains("in place of near"),
        "{said}"
    );
    assert!(said.contains("pool near, then far"), "{said}");
    assert!(!said.contains("THEN"), "it is the last one: {said}");
    let drained = mizan.command(&["drain", &format!("far/{}", far.address())]);
    let warned = String::from_utf8_lossy(&drained.stderr).into_owned();
    assert!(
        warned.ends_with("pool far has no usable backend left\n"),
        "no route of its own: {warned}"
    );
    let drained = mizan.command(&["drain", &format!("near/{}", near.address())]);
    let warned = String::from_utf8_lossy(&drained.stderr).into_owned();
    assert!(warned.contains("would send there gets 503"), "{warned}");
}

#[test]
fn where_all_pools_have_nobody_the_answer_says_so() {
    let mizan = Mizan::start(&config("", "", &[], &[]));
    let got = mizan.get("/");
    assert_eq!(
        (got.status, got.text().contains("no_backend")),
        (503, true),
        "{}",
        got.text()
    );
    let metric = mizan.metric("mizan_unreached_total", "cause=\"no_backend\"");
    assert_eq!(metric, 1.0, "counted once, whatever the number of pools");
}

/// A backend that had the request is no reason to send it to another pool.
#[test]
fn a_request_that_was_delivered_is_not_sent_to_another_pool() {
    let near = Backend::start(|exchange| {
        exchange.body()?;
        Ok(Next::Reset)
    });
    let far = Backend::healthy("far");
    let mizan = Mizan::start(&config(UNCHECKED, "", &[near.address()], &[far.address()]));
    assert_eq!(mizan.client().post("/order", b"one").status, 502);
    assert_eq!((near.requests(), far.requests()), (1, 0));
}

/// What failed in the first pool is no account of the second: its queue is full, and nobody is to be asked after it.
#[test]
fn the_answer_says_what_became_of_the_pool_that_was_asked_last() {
    let far = Backend::start(|exchange| exchange.hang());
    let backend = format!(
        "[pool.far]\nqueue = {{ requests_max = 0 }}\nbackends = [{{ address = \"{}\", in_flight_max = 1 }}]\n",
        far.address()
    );
    let listener =
        "[[listener]]\nbind = \"{listen}\"\n\n[[route]]\npool = \"near\"\nfallback = [\"far\"]\n\n";
    let mizan = Mizan::start(&format!(
        "{listener}[pool.near]\nbackends = []\n\n{backend}"
    ));
    let mut first = mizan.client();
    assert!(first.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"));
    eventually(SOON, "the one place is taken", || far.requests() == 1);
    let got = mizan.get("/");
    assert_eq!(got.status, 503);
    assert!(got.text().contains("queue_full"), "{}", got.text());
}

/// The whole pool dies with requests in its hands: more than its retry budget would send again.
#[test]
fn what_a_dying_pool_held_is_answered_by_the_next_one_if_it_may_be_sent_again() {
    const HELD: usize = 60;
    let (mut near, far) = (Backend::start(|it| it.hang()), Backend::healthy("far"));
    let mizan = Mizan::start(&config(UNCHECKED, "", &[near.address()], &[far.address()]));
    let mut clients: Vec<_> = (0..=HELD).map(|_| mizan.client()).collect();
    let (order, readers) = clients.split_first_mut().expect("there are clients");
    assert!(order.send("POST /order HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n"));
    for reader in &mut *readers {
        assert!(reader.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"));
    }
    eventually(SOON, "the pool holds them", || near.requests() == HELD + 1);
    near.stop();
    for reader in &mut *readers {
        let got = reader.read();
        assert_eq!(got.status, 200, "{}", got.text());
    }
    assert_eq!(order.read().status, 502, "it may have been acted on");
    assert_eq!(far.requests(), HELD, "each is sent once");
    // Counted once it is over, which the client may be told of before.
    eventually(SOON, "each is counted as rescued", || {
        mizan.metric("mizan_rescued_total", "pool=\"far\"") == HELD as f64
    });
}
