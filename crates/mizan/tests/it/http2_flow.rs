//! Backpressure over HTTP/2: who does not read stalls the other side, and costs little meanwhile.

use crate::support::frames::{self, Fate, Frames, HEADERS};
use crate::support::h2_client::RUNTIME;
use crate::support::*;
use bytes::Bytes;
use http::Response;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A backend of HTTP/2 that sends 100 MiB, and how much of it has left.
fn endless() -> (H2Backend, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let backend = H2Backend::start(move |mut call| {
        let sent = Arc::clone(&counted);
        async move {
            let mut sending = call.respond.send_response(Response::new(()), false)?;
            let piece = vec![b'x'; 64 << 10];
            for _ in 0..1_600 {
                send_part(&mut sending, &piece).await?;
                sent.fetch_add(piece.len(), Ordering::SeqCst);
            }
            sending.send_data(Bytes::new(), true)
        }
    });
    (backend, sent)
}

/// Sends `piece` as the window allows, and does not end the stream.
async fn send_part(sending: &mut h2::SendStream<Bytes>, piece: &[u8]) -> Result<(), h2::Error> {
    let mut rest = Bytes::copy_from_slice(piece);
    while !rest.is_empty() {
        sending.reserve_capacity(rest.len());
        let given = std::future::poll_fn(|cx| sending.poll_capacity(cx)).await;
        let count = given.unwrap_or_else(|| Err(h2::Reason::STREAM_CLOSED.into()))?;
        sending.send_data(rest.split_to(count.min(rest.len())), false)?;
    }
    Ok(())
}

/// Waits until `count` has not grown for a while: what is counted has stalled.
fn settled(what: &str, count: impl Fn() -> usize) -> usize {
    const QUIET: Duration = Duration::from_millis(300);
    let (mut seen, mut since) = (count(), now());
    eventually(PATIENCE, what, || {
        if seen != count() {
            (seen, since) = (count(), now());
        }
        seen > 0 && now() > since + QUIET
    });
    seen
}

#[test]
fn a_hundred_downloads_that_nobody_reads_cost_little_memory() {
    let _alone = alone();
    let (two, two_sent) = endless();
    let one_sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&one_sent);
    let one = Backend::start(move |exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n")?;
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..1_600 {
            exchange.send(&piece)?;
            counted.fetch_add(piece.len(), Ordering::SeqCst);
        }
        Ok(Next::Keep)
    });
    let text = format!(
        "[[listener]]\nbind = \"{{listen}}\"\nhttp2_limits = {{ streams_max = 200 }}\n[[route]]\nhost = \"one.example\"\npool = \"one\"\n[[route]]\npool = \"two\"\n[pool.one]\nbackends = [\"{}\"]\n[pool.two]\nprotocol = \"http2\"\nbackends = [\"{}\"]\n",
        one.address(),
        two.address()
    );
    let mizan = Mizan::start(&text);
    let before = mizan.resident_bytes();
    // No window beyond what each stream begins with, and that is nothing.
    let mut client = Frames::open(mizan.address(), &frames::setting(4, 0));
    for number in 0..100 {
        let host = if number % 4 == 0 {
            "one.example"
        } else {
            "two.example"
        };
        let mut lines = frames::request("GET", "/");
        lines[2].1 = host;
        client.head(2 * number + 1, frames::END_STREAM, &lines);
    }
    for _ in 0..100 {
        client.until(|frame| frame.kind == HEADERS).expect("a head");
    }
    let sent = settled("the backends stall", || {
        one_sent
            .load(Ordering::SeqCst)
            .min(two_sent.load(Ordering::SeqCst))
    });
    let grown = mizan.resident_bytes().saturating_sub(before);
    assert!(grown < 40 * MIB, "{} MiB for 100 downloads", grown / MIB);
    assert!((sent as u64) < 2_000 * MIB, "{sent} bytes left a backend");
    // Who else is there is served.
    assert!(mizan.in_flight() > 0);
    assert_eq!(
        H2Client::connect(mizan.address())
            .exchange(Ask::get("/").to("none"))
            .status,
        200
    );
    drop(client);
    eventually(PATIENCE, "all are given up", || mizan.in_flight() == 0);
}

#[test]
fn a_download_that_nobody_reads_is_cut_by_the_minimum_rate() {
    let (backend, _) = endless();
    let listener = "min_rate = { download = \"1KiB\", grace = \"300ms\" }";
    let mizan = Mizan::start(&config(
        listener,
        "protocol = \"http2\"",
        &[backend.address()],
    ));
    let mut client = Frames::open(mizan.address(), &frames::setting(4, 100));
    client.get(1, "/");
    assert_eq!(client.fate(1), Fate::Status(200));
    // What the window held came; then the stream is cut, not the connection.
    assert!(matches!(client.fate(1), Fate::Reset(_)), "not cut");
    eventually(PATIENCE, "its place is given back", || {
        mizan.in_flight() == 0
    });
    client.send(frames::PING, 0, 0, b"12345678");
    assert!(client.until(|frame| frame.kind == frames::PING).is_some());
}

#[test]
fn a_client_that_takes_no_byte_is_cut_after_the_send_time_out() {
    let (backend, _) = endless();
    let listener = "min_rate = { download = \"0\" }\ntimeouts = { send = \"400ms\" }";
    let mizan = Mizan::start(&config(
        listener,
        "protocol = \"http2\"",
        &[backend.address()],
    ));
    let mut client = Frames::open(mizan.address(), &frames::setting(4, 100));
    client.get(1, "/");
    assert_eq!(client.fate(1), Fate::Status(200));
    assert!(matches!(client.fate(1), Fate::Reset(_)), "not cut");
    eventually(PATIENCE, "its place is given back", || {
        mizan.in_flight() == 0
    });
}

#[test]
fn an_upload_that_the_backend_does_not_read_stalls_the_client_and_costs_little() {
    let _alone = alone();
    let backend = H2Backend::start(Call::hang);
    let pool = "protocol = \"http2\"";
    let mizan = Mizan::start(&config("", pool, &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    let before = mizan.resident_bytes();
    let sent = Arc::new(AtomicUsize::new(0));
    let uploads: Vec<_> = (0..50)
        .map(|_| {
            let ask = Ask::streamed("/", "");
            let (response, mut sending) = run(client.begin(&ask)).expect("it is sent");
            let sent = Arc::clone(&sent);
            let upload = RUNTIME.spawn(async move {
                let piece = vec![b'x'; 64 << 10];
                for _ in 0..1_600 {
                    send_part(&mut sending, &piece).await?;
                    sent.fetch_add(piece.len(), Ordering::SeqCst);
                }
                Ok::<_, h2::Error>(())
            });
            (response, upload)
        })
        .collect();
    settled("the uploads stall", || sent.load(Ordering::SeqCst));
    let grown = mizan.resident_bytes().saturating_sub(before);
    assert!(grown < 40 * MIB, "{} MiB for 50 uploads", grown / MIB);
    drop(uploads);
    client.cut();
    eventually(PATIENCE, "all are given up", || mizan.in_flight() == 0);
    eventually(PATIENCE, "the backend hears of it", || {
        backend.resets().len() == 50
    });
}

#[test]
fn clients_that_do_not_read_hold_up_nobody_else_at_the_same_backend() {
    let backend = H2Backend::start(|mut call| async move {
        if call.head.uri.path() != "/endless" {
            return call.serve().await;
        }
        let mut sending = call.respond.send_response(Response::new(()), false)?;
        loop {
            send_part(&mut sending, &[b'x'; 16 << 10]).await?;
        }
    });
    let text = format!(
        "workers = 1\n{}",
        config(
            "min_rate = { download = \"0\" }",
            "protocol = \"http2\"",
            &[backend.address()]
        )
    );
    let mizan = Mizan::start(&text);
    let mut stalled = Frames::open(mizan.address(), &frames::setting(4, 0));
    for number in 0..100 {
        stalled.get(2 * number + 1, "/endless");
    }
    for _ in 0..100 {
        stalled
            .until(|frame| frame.kind == HEADERS)
            .expect("a head");
    }
    let client = H2Client::connect(mizan.address());
    for _ in 0..5 {
        let body = vec![b'x'; 500_000];
        assert_eq!(client.get("/bytes/500000").body.len(), 500_000);
        assert_eq!(
            client.exchange(Ask::post("/", body)).text(),
            "backend:500000"
        );
    }
}

#[test]
fn an_upload_that_drips_is_cut_by_the_minimum_rate_and_its_connection_lives() {
    let backend = H2Backend::healthy("a");
    let listener = "min_rate = { upload = \"10KiB\", grace = \"300ms\" }";
    let mizan = Mizan::start(&config(
        listener,
        "protocol = \"http2\"",
        &[backend.address()],
    ));
    let mut client = Frames::open(mizan.address(), &[]);
    client.head(1, 0, &frames::request("POST", "/"));
    for _ in 0..20 {
        client.send(frames::DATA, 0, 1, b"a drop");
        pass(Duration::from_millis(50));
    }
    assert_eq!(client.fate(1), Fate::Status(408));
    client.get(3, "/");
    assert!(matches!(client.fate(3), Fate::Status(_)));
    eventually(PATIENCE, "its place is given back", || {
        mizan.in_flight() == 0
    });
}

#[test]
fn small_frames_that_came_together_leave_together() {
    const COUNT: usize = 400;
    let counts = Arc::new(std::sync::Mutex::new((0, 0)));
    let counted = Arc::clone(&counts);
    let backend = H2Backend::start(move |mut call| {
        let counts = Arc::clone(&counted);
        async move {
            while let Some(data) = call.frames.data().await {
                let data = data?;
                call.frames.flow_control().release_capacity(data.len())?;
                let mut counts = locked(&counts);
                (counts.0, counts.1) = (counts.0 + 1, counts.1 + data.len());
            }
            call.answer(b"ok").await
        }
    });
    let mizan = Mizan::start(&config("", "protocol = \"http2\"", &[backend.address()]));
    let mut client = Frames::open(mizan.address(), &[]);
    let mut bytes = frames::frame(
        HEADERS,
        frames::END_HEADERS,
        1,
        &frames::block(&frames::request("POST", "/")),
    );
    for _ in 0..COUNT {
        bytes.extend(frames::frame(frames::DATA, 0, 1, b"x"));
    }
    bytes.extend(frames::frame(frames::DATA, frames::END_STREAM, 1, b""));
    client.raw(&bytes);
    // More than a backend of this library takes at a time, one by one.
    assert_eq!(client.fate(1), Fate::Status(200));
    let (frames, length) = *locked(&counts);
    assert!(
        length == COUNT && frames < COUNT / 4,
        "{frames} frames of {length}"
    );
}
