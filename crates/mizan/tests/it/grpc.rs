//! Calls of gRPC, as frames of HTTP/2: streams in both directions, deadlines, and errors in gRPC's own terms.

use crate::support::*;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Response};
use std::time::Duration;

const POOL: &str = "protocol = \"http2\"";

/// A call's head.
fn call(path: &str) -> Ask {
    Ask::streamed(path, "")
        .field("content-type", "application/grpc")
        .field("te", "trailers")
}

/// A message with its prefix.
fn message(content: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(content.len()).expect("a message"));
    bytes.put_slice(content);
    bytes.freeze()
}

/// Reads messages out of frames, however they are cut.
struct Messages {
    frames: RecvStream,
    held: BytesMut,
}

impl Messages {
    fn new(frames: RecvStream) -> Self {
        let held = BytesMut::new();
        Self { frames, held }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, h2::Error> {
        loop {
            if self.held.len() >= 5 {
                let length =
                    u32::from_be_bytes([self.held[1], self.held[2], self.held[3], self.held[4]]);
                if self.held.len() >= 5 + length as usize {
                    self.held.advance(5);
                    return Ok(Some(self.held.split_to(length as usize).freeze()));
                }
            }
            match self.frames.data().await {
                Some(data) => {
                    let data = data?;
                    self.frames.flow_control().release_capacity(data.len())?;
                    self.held.extend_from_slice(&data);
                }
                None => return Ok(None),
            }
        }
    }

    async fn status(&mut self) -> Result<Option<String>, h2::Error> {
        let trailers = self.frames.trailers().await?.unwrap_or_default();
        let status = trailers.get("grpc-status");
        Ok(status.map(|status| status.to_str().expect("digits").to_owned()))
    }
}

fn status(code: u32) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code));
    trailers.insert("grpc-message", HeaderValue::from_static("as told"));
    trailers
}

fn head() -> Response<()> {
    let head = Response::builder().header("content-type", "application/grpc");
    head.body(()).expect("sound")
}

/// Waits for room, so that what is sent is bounded by the windows.
async fn send(sending: &mut SendStream<Bytes>, bytes: Bytes) -> Result<(), h2::Error> {
    let mut rest = bytes;
    while !rest.is_empty() {
        sending.reserve_capacity(rest.len());
        let given = std::future::poll_fn(|cx| sending.poll_capacity(cx)).await;
        let count = given.unwrap_or_else(|| Err(h2::Reason::STREAM_CLOSED.into()))?;
        sending.send_data(rest.split_to(count.min(rest.len())), false)?;
    }
    Ok(())
}

/// `/echo` answers each message with the same one as it comes, `/sum` with their number at the end, `/list` sends a
/// hundred, `/code/N` ends with that status, `/cross` sends a thousand messages whatever comes.
fn backend() -> H2Backend {
    H2Backend::start(serve)
}

async fn serve(mut call: Call) -> Result<(), h2::Error> {
    let path = call.head.uri.path().to_owned();
    if let Some(code) = path.strip_prefix("/code/") {
        let trailers = status(code.parse().expect("a code"));
        let mut head = head();
        head.headers_mut().extend(trailers);
        call.respond.send_response(head, true)?;
        return Ok(());
    }
    if path == "/never" {
        return call.hang().await;
    }
    let mut messages = Messages::new(call.frames);
    let mut sending = call.respond.send_response(head(), false)?;
    match path.as_str() {
        "/echo" => {
            while let Some(content) = messages.next().await? {
                send(&mut sending, message(&content)).await?;
            }
        }
        "/list" => {
            for number in 0..100u32 {
                send(&mut sending, message(&number.to_be_bytes())).await?;
            }
        }
        "/cross" => {
            let up = async {
                while messages.next().await?.is_some() {}
                Ok::<_, h2::Error>(())
            };
            let down = async {
                for _ in 0..CROSSING {
                    send(&mut sending, message(&[b'd'; 3_000])).await?;
                }
                Ok(())
            };
            tokio::try_join!(up, down)?;
        }
        _ => {
            let mut count = 0u32;
            while messages.next().await?.is_some() {
                count += 1;
            }
            send(&mut sending, message(&count.to_be_bytes())).await?;
        }
    }
    sending.send_trailers(status(0))
}

/// Messages each way at once: more than all windows on the way hold.
const CROSSING: usize = 1_000;

fn started(backend: &H2Backend) -> (Mizan, H2Client) {
    let mizan = Mizan::start(&config("", POOL, &[backend.address()]));
    let client = H2Client::connect(mizan.address());
    (mizan, client)
}

async fn begin(client: &H2Client, path: &str) -> (Messages, SendStream<Bytes>) {
    let (response, sending) = client.begin(&call(path)).await.expect("it is sent");
    let response = response.await.expect("a head");
    assert_eq!(response.status(), 200);
    (Messages::new(response.into_body()), sending)
}

#[test]
fn a_unary_call_passes_with_its_trailers() {
    let backend = backend();
    let (mizan, client) = started(&backend);
    let mut ask = call("/sum");
    ask.body = Some(message(b"hello").to_vec());
    let answer = client.exchange(ask);
    assert_eq!(answer.body, &message(&1u32.to_be_bytes())[..]);
    assert_eq!(answer.trailers.get("grpc-status").expect("a status"), "0");
    assert_eq!(
        answer.trailers.get("grpc-message").expect("a text"),
        "as told"
    );
    assert_eq!(answer.field("content-type"), Some("application/grpc"));
    let seen = backend.seen();
    assert_eq!(seen[0].headers.get("te").expect("it is said"), "trailers");
    eventually(PATIENCE, "it is counted", || {
        mizan.metric("mizan_grpc_calls_total", "code=\"OK\"") >= 1.0
    });
}

#[test]
fn a_stream_of_answers_passes_message_by_message() {
    let backend = backend();
    let (_mizan, client) = started(&backend);
    run(async {
        let (mut messages, mut sending) = begin(&client, "/list").await;
        sending.send_data(Bytes::new(), true).expect("an end");
        let mut count = 0u32;
        while let Some(content) = messages.next().await.expect("a message") {
            assert_eq!(content[..], count.to_be_bytes());
            count += 1;
        }
        assert_eq!(count, 100);
        assert_eq!(
            messages.status().await.expect("trailers").as_deref(),
            Some("0")
        );
    });
}

#[test]
fn a_stream_of_questions_passes_message_by_message() {
    let backend = backend();
    let (_mizan, client) = started(&backend);
    run(async {
        let (mut messages, mut sending) = begin(&client, "/sum").await;
        for _ in 0..100 {
            send(&mut sending, message(&[b'q'; 2_000]))
                .await
                .expect("sent");
        }
        sending.send_data(Bytes::new(), true).expect("an end");
        let content = messages.next().await.expect("a message").expect("one");
        assert_eq!(content[..], 100u32.to_be_bytes());
        assert_eq!(
            messages.status().await.expect("trailers").as_deref(),
            Some("0")
        );
    });
}

#[test]
fn question_and_answer_take_turns_on_one_stream() {
    let backend = backend();
    let (_mizan, client) = started(&backend);
    run(async {
        let (mut messages, mut sending) = begin(&client, "/echo").await;
        for number in 0..50u32 {
            send(&mut sending, message(&number.to_be_bytes()))
                .await
                .expect("sent");
            let content = messages.next().await.expect("a message").expect("one");
            assert_eq!(content[..], number.to_be_bytes());
        }
        sending.send_data(Bytes::new(), true).expect("an end");
        assert!(messages.next().await.expect("an end").is_none());
        assert_eq!(
            messages.status().await.expect("trailers").as_deref(),
            Some("0")
        );
    });
}

#[test]
fn messages_cross_in_both_directions_at_once() {
    let backend = backend();
    let (_mizan, client) = started(&backend);
    run(async {
        let calls = (0..4).map(|_| async {
            let (mut messages, mut sending) = begin(&client, "/cross").await;
            let up = async {
                for _ in 0..CROSSING {
                    send(&mut sending, message(&[b'u'; 3_000]))
                        .await
                        .expect("sent");
                }
                sending.send_data(Bytes::new(), true).expect("an end");
            };
            let down = async {
                let mut count = 0;
                while messages.next().await.expect("a message").is_some() {
                    count += 1;
                }
                count
            };
            let ((), count) = tokio::join!(up, down);
            assert_eq!(count, CROSSING);
            assert_eq!(
                messages.status().await.expect("trailers").as_deref(),
                Some("0")
            );
        });
        let mut calls = calls.map(Box::pin);
        let mut next = || calls.next().expect("four");
        tokio::join!(next(), next(), next(), next());
    });
}

#[test]
fn what_mizan_answers_itself_is_a_status_of_grpc() {
    let text = "[[listener]]\nbind = \"{listen}\"\n[[route]]\nhost = \"a.example\"\nprefix = \"/a\"\npool = \"api\"\n[pool.api]\nprotocol = \"http2\"\nbackends = [\"127.0.0.1:1\"]\n";
    let mizan = Mizan::start(text);
    let client = H2Client::connect(mizan.address());
    for (path, code) in [("/a/b", "14"), ("/b", "12")] {
        let answer = client.exchange(call(path));
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.fields.get("grpc-status").expect("in the head"),
            code,
            "{path}"
        );
        assert_eq!(answer.field("content-type"), Some("application/grpc"));
        assert_eq!(answer.field("content-length"), None);
        assert!(
            answer.body.is_empty() && answer.trailers.is_empty(),
            "{answer:?}"
        );
    }
}

#[test]
fn a_deadline_is_kept_and_not_held_against_the_backend() {
    let backend = backend();
    let pool = "protocol = \"http2\"\nejection = { failures = 3, time = \"300s\" }";
    let other = H2Backend::start(serve);
    let mizan = Mizan::start(&config("", pool, &[backend.address(), other.address()]));
    let client = H2Client::connect(mizan.address());
    for _ in 0..12 {
        let started = now();
        let answer = client.exchange(call("/never").field("grpc-timeout", "60m"));
        assert_eq!(answer.field("grpc-status"), Some("4"));
        let took = now() - started;
        assert!(took >= Duration::from_millis(50), "after {took:?}");
        assert!(took < Duration::from_secs(3), "after {took:?}");
    }
    assert_eq!(mizan.metric("mizan_pool_backends_usable", ""), 2.0);
    let told = |backend: &H2Backend| {
        let seen = backend.seen();
        seen.iter()
            .all(|head| head.headers.contains_key("grpc-timeout"))
    };
    assert!(
        told(&backend) && told(&other),
        "the deadline was kept from the backend"
    );
    eventually(PATIENCE, "the backends hear of the end", || {
        backend.resets().len() + other.resets().len() == 12
    });
}

#[test]
fn a_deadline_that_passes_in_mid_stream_cancels_the_call_and_blames_nobody() {
    let backend = H2Backend::start(|mut call| async move {
        let mut sending = call.respond.send_response(head(), false)?;
        send(&mut sending, message(b"a part")).await?;
        let reason = std::future::poll_fn(|cx| sending.poll_reset(cx)).await?;
        assert_eq!(reason, h2::Reason::CANCEL);
        call.note(reason);
        Ok(())
    });
    let (mizan, client) = started(&backend);
    for number in 1..=8 {
        let ask = call("/").field("grpc-timeout", "100m");
        let (response, _sending) = run(client.begin(&ask)).expect("it is sent");
        let mut messages = Messages::new(run(response).expect("a head").into_body());
        let part = run(messages.next()).expect("a message").expect("one");
        assert_eq!(part[..], *b"a part");
        assert!(run(messages.next()).is_err(), "the call goes on");
        eventually(PATIENCE, "the backend hears of it", || {
            backend.resets().len() == number
        });
    }
    assert_eq!(mizan.metric("mizan_backend_failures_total", ""), 0.0);
    assert_eq!(
        mizan.metric("mizan_grpc_calls_total", "code=\"DEADLINE_EXCEEDED\""),
        8.0
    );
}

#[test]
fn five_calls_unavailable_eject_a_backend_and_not_found_does_not() {
    let backends = [backend(), backend()];
    let pool = "protocol = \"http2\"\npolicy = \"round_robin\"\nejection = { failures = 5, time = \"300s\" }";
    let addresses = backends.each_ref().map(H2Backend::address);
    let mizan = Mizan::start(&config("", pool, &addresses));
    let client = H2Client::connect(mizan.address());
    for _ in 0..30 {
        let answer = client.exchange(call("/code/5"));
        assert_eq!(answer.field("grpc-status"), Some("5"));
    }
    assert_eq!(mizan.metric("mizan_pool_backends_usable", ""), 2.0);
    for _ in 0..10 {
        let answer = client.exchange(call("/code/14"));
        assert_eq!(answer.field("grpc-status"), Some("14"));
    }
    eventually(PATIENCE, "one is ejected", || {
        mizan.metric("mizan_pool_backends_usable", "") < 2.0
    });
    assert_eq!(
        mizan.metric("mizan_grpc_calls_total", "code=\"NOT_FOUND\""),
        30.0
    );
    assert_eq!(
        mizan.metric("mizan_grpc_calls_total", "code=\"UNAVAILABLE\""),
        10.0
    );
}

#[test]
fn a_status_in_trailers_ejects_as_well() {
    let backends = [(); 2].map(|()| {
        H2Backend::start(|mut call| async move {
            let mut sending = call.respond.send_response(head(), false)?;
            send(&mut sending, message(b"a part")).await?;
            sending.send_trailers(status(14))
        })
    });
    let pool = "protocol = \"http2\"\npolicy = \"round_robin\"\nejection = { time = \"300s\" }";
    let addresses = backends.each_ref().map(H2Backend::address);
    let mizan = Mizan::start(&config("", pool, &addresses));
    let client = H2Client::connect(mizan.address());
    for _ in 0..12 {
        let answer = client.exchange(call("/"));
        assert_eq!(answer.trailers.get("grpc-status").expect("a status"), "14");
    }
    eventually(PATIENCE, "one is ejected", || {
        mizan.metric("mizan_pool_backends_usable", "") < 2.0
    });
}

#[test]
fn a_client_that_hangs_up_in_mid_call_cancels_it() {
    let backend = backend();
    let text = config("", POOL, &[backend.address()]);
    let mizan = Mizan::start(&format!("{text}[log]\naccess = \"{{dir}}/access.log\"\n"));
    let client = H2Client::connect(mizan.address());
    let asked = run(client.begin(&call("/never"))).expect("it is sent");
    eventually(PATIENCE, "it is on its way", || backend.requests() == 1);
    drop(asked);
    eventually(PATIENCE, "the backend hears of it", || {
        backend.resets() == [h2::Reason::CANCEL]
    });
    eventually(PATIENCE, "it is counted", || {
        mizan.metric("mizan_grpc_calls_total", "code=\"CANCELLED\"") == 1.0
    });
    let log = mizan.directory().join("access.log");
    eventually(PATIENCE, "it is logged", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains("\"grpc_status\":1,")
    });
    assert_eq!(mizan.in_flight(), 0);
}

#[test]
fn a_call_of_grpc_web_has_its_trailers_in_the_body_and_nowhere_else() {
    let backend = backend();
    let text = config("", POOL, &[backend.address()]);
    let text = text.replace("pool = \"api\"\n", "pool = \"api\"\ngrpc_web = true\n");
    let mizan = Mizan::start(&text);
    let call = |kind: &str| {
        let ask = Ask::post("/sum", message(b"a")).field("content-type", kind);
        H2Client::connect(mizan.address()).exchange(ask)
    };
    let answer = call("application/grpc-web");
    let told = b"\x80\0\0\0\x27grpc-status: 0\r\ngrpc-message: as told\r\n";
    let expected = [&message(&1u32.to_be_bytes())[..], told].concat();
    assert_eq!(answer.body, expected);
    assert!(answer.trailers.is_empty(), "{:?}", answer.trailers);
    let plain = call("application/grpc");
    assert_eq!(plain.trailers["grpc-status"], "0");
}

/// Clients take a call that ends without a status they can read for one that has failed; a page that is no answer to a
/// call is what a client gets that calls what serves none.
#[test]
fn a_call_without_a_readable_status_is_counted_as_unknown_and_as_the_backend_s_failure() {
    let backend = H2Backend::start(|mut call| async move {
        let path = call.head.uri.path().to_owned();
        if path == "/page" {
            return call
                .respond
                .send_response(Response::new(()), true)
                .map(|_| ());
        }
        let mut sending = call.respond.send_response(head(), false)?;
        send(&mut sending, message(b"a part")).await?;
        if path == "/none" {
            return sending.send_data(Bytes::new(), true);
        }
        let mut trailers = HeaderMap::new();
        if path != "/missing" {
            let value = path[1..].parse().expect("a value");
            trailers.insert("grpc-status", value);
        }
        trailers.insert("x", HeaderValue::from_static("1"));
        sending.send_trailers(trailers)
    });
    let (mizan, client) = started(&backend);
    let failing = ["/none", "/missing", "/-1", "/99999999999", "/one"];
    for (number, path) in failing.into_iter().enumerate() {
        client.exchange(call(path));
        let count = (number + 1) as f64;
        eventually(PATIENCE, "it is counted", || {
            mizan.metric("mizan_grpc_calls_total", "code=\"UNKNOWN\"") == count
        });
        assert_eq!(mizan.metric("mizan_backend_failures_total", ""), count);
    }
    client.exchange(call("/page"));
    eventually(PATIENCE, "it is counted", || {
        mizan.metric("mizan_grpc_calls_total", "code=\"UNKNOWN\"") == 6.0
    });
    assert_eq!(mizan.metric("mizan_backend_failures_total", ""), 5.0);
}
