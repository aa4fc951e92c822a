//! Retries: what is saved by one, and what must never be sent twice.

use crate::support::*;
use std::io;

/// Reads the whole request and then resets: it may have been carried out.
fn take_and_reset(exchange: &mut Exchange) -> io::Result<Next> {
    exchange.body()?;
    Ok(Next::Reset)
}

/// `bad` backends that take a request and reset, and one that answers.
struct Few {
    mizan: Mizan,
    bad: Vec<Backend>,
    sound: Backend,
}

impl Few {
    fn start(bad: usize, pool: &str) -> Self {
        let bad: Vec<_> = (0..bad).map(|_| Backend::start(take_and_reset)).collect();
        let sound = Backend::healthy("sound");
        let addresses: Vec<_> = bad.iter().chain([&sound]).map(Backend::address).collect();
        let pool = format!("policy = \"round_robin\"\nejection = {{ enabled = false }}\n{pool}");
        let mizan = Mizan::start(&config("", &pool, &addresses));
        Self { mizan, bad, sound }
    }

    fn taken(&self) -> usize {
        self.bad.iter().map(Backend::requests).sum()
    }
}

#[test]
fn a_post_that_a_backend_took_is_not_sent_again() {
    let few = Few::start(1, "");
    let statuses: Vec<_> = (0..20)
        .map(|_| few.mizan.client().post("/order", b"one").status)
        .collect();
    let failed = statuses.iter().filter(|status| **status == 502).count();
    assert_eq!(
        few.taken() + few.sound.requests(),
        20,
        "sent twice, or not at all: {statuses:?}"
    );
    assert_eq!(failed, few.taken(), "{statuses:?}");
    assert!(failed > 0, "none went to the bad backend");
}

#[test]
fn a_post_with_an_idempotency_key_is_tried_again_elsewhere_with_its_body_when_that_is_kept() {
    let few = Few::start(1, "retry = { buffer_max = \"64KiB\" }");
    for number in 0..10 {
        let head =
            format!("POST /order HTTP/1.1\r\nHost: a.example\r\nIdempotency-Key: {number}\r\n");
        let response = few
            .mizan
            .client()
            .exchange(format!("{head}Content-Length: 5\r\n\r\nhello"));
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "sound:5")
        );
    }
    assert!(few.taken() > 0, "none went to the bad backend");
    assert_eq!(few.sound.requests(), 10);
}

#[test]
fn a_put_whose_body_is_larger_than_what_is_kept_is_not_tried_again() {
    let few = Few::start(1, "retry = { buffer_max = \"1KiB\" }");
    let body = "x".repeat(10_000);
    let put = format!("PUT /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10000\r\n\r\n{body}");
    let statuses: Vec<_> = (0..10)
        .map(|_| few.mizan.client().exchange(&put).status)
        .collect();
    assert_eq!(few.taken() + few.sound.requests(), 10, "{statuses:?}");
    assert!(
        statuses.contains(&502) && statuses.contains(&200),
        "{statuses:?}"
    );
}

#[test]
fn each_try_goes_to_another_backend() {
    let few = Few::start(
        2,
        "retry = { tries_max = 3, budget = 1.0, budget_min_per_second = 100 }",
    );
    for _ in 0..12 {
        let before = few.bad.iter().map(Backend::requests).collect::<Vec<_>>();
        assert_eq!(few.mizan.get("/").status, 200);
        for (bad, before) in few.bad.iter().zip(before) {
            assert!(
                bad.requests() <= before + 1,
                "one request was tried twice on a backend"
            );
        }
    }
    assert!(
        few.taken() >= 12,
        "{} tries on the bad backends",
        few.taken()
    );
}

#[test]
fn the_retry_budget_holds_when_everything_fails() {
    let bad = Backend::start(take_and_reset);
    let pool = "retry = { tries_max = 8, budget = 0.2, budget_min_per_second = 0, backoff = \"0s\" }\nejection = { enabled = false }";
    let mizan = Mizan::start(&config("", pool, &[bad.address()]));
    let mut client = mizan.client();
    for _ in 0..200 {
        assert_eq!(client.get("/").status, 502);
    }
    assert!(bad.requests() >= 200);
    assert!(
        bad.requests() <= 200 + 200 / 5 + 10,
        "{} tries for 200 requests",
        bad.requests()
    );
}

#[test]
fn a_status_that_is_retried_stays_what_the_client_sees_when_no_try_is_left() {
    let unready = |exchange: &mut Exchange| {
        exchange.body()?;
        exchange.send("HTTP/1.1 503 Own\r\nX-Own: yes\r\nContent-Length: 3\r\n\r\nown")?;
        Ok(Next::Keep)
    };
    let bad = [Backend::start(unready), Backend::start(unready)];
    let pool = "retry = { tries_max = 2, statuses = [503] }\nejection = { enabled = false }";
    let mizan = Mizan::start(&config("", pool, &bad.each_ref().map(Backend::address)));
    let response = mizan.get("/");
    assert_eq!(
        (
            response.status,
            response.text().as_str(),
            response.field("x-own")
        ),
        (503, "own", Some("yes"))
    );
    assert_eq!(bad.each_ref().map(Backend::requests), [1, 1]);
    assert_eq!(mizan.client().post("/", b"x").status, 503);
    assert_eq!(
        bad.iter().map(Backend::requests).sum::<usize>(),
        3,
        "a POST was tried twice"
    );
}

#[test]
fn nothing_is_tried_again_after_a_byte_of_the_answer_reached_the_client() {
    let cut = |exchange: &mut Exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello")?;
        // The reset must not overtake the bytes before it.
        exchange.pause(std::time::Duration::from_millis(50))?;
        Ok(Next::Reset)
    };
    let bad = [Backend::start(cut), Backend::start(cut)];
    let mizan = Mizan::start(&config("", "", &bad.each_ref().map(Backend::address)));
    let mut client = mizan.client();
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let seen = client.try_read("GET").expect_err("it was cut");
    assert_eq!(seen.body, b"hello");
    assert_eq!(bad.iter().map(Backend::requests).sum::<usize>(), 1);
}
