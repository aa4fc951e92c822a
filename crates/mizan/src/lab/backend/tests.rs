use super::*;
use std::net::Ipv4Addr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Starts a backend, sends the requests one after the other, and gives status and body of each.
fn talk(requests: &[(&str, &str)]) -> Vec<(u16, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve("b1".to_owned(), listener, std::future::pending()));
        let mut answers = Vec::new();
        for (line, body) in requests {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let length = body.len();
            let request = format!(
                "{line} HTTP/1.1\r\nHost: x\r\nX-Request-Id: r7\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            answers.push((head[9..12].parse().unwrap(), body.to_owned()));
        }
        answers
    })
}

#[test]
fn it_says_who_it_is_and_what_it_was_told() {
    let answers = talk(&[
        ("GET /a/b", ""),
        ("GET /status/503", ""),
        ("GET /slow?ms=1", ""),
        ("GET /status/99", ""),
    ]);
    assert_eq!(answers[0].0, 200);
    assert!(
        answers[0].1.starts_with("b1 at 127.0.0.1:"),
        "{}",
        answers[0].1
    );
    assert!(
        answers[0]
            .1
            .ends_with(": /a/b\nrequest id: r7\nforwarded for: -\n"),
        "{}",
        answers[0].1
    );
    assert_eq!(answers[1].0, 503);
    assert_eq!(answers[2], (200, "b1 slept 1 ms\n".to_owned()));
    assert_eq!(answers[3].0, 400);
}

#[test]
fn it_can_be_made_ill_and_well_again() {
    let answers = talk(&[
        ("GET /healthz", ""),
        ("POST /control", r#"{"healthy":false}"#),
        ("GET /healthz", ""),
        ("GET /", ""),
        ("POST /control", r#"{"healthy":true,"delay_ms":2}"#),
        ("GET /healthz", ""),
        ("POST /control", r#"{"helthy":false}"#),
        ("GET /control", ""),
    ]);
    let statuses: Vec<_> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 503, 200, 200, 200, 400, 200]);
    let state: State = serde_json::from_str(&answers[7].1).unwrap();
    let expected = State {
        name: "b1".to_owned(),
        healthy: true,
        delay_ms: 2,
        requests: 1,
        probes: 3,
        probes_before_traffic: Some(2),
    };
    assert_eq!(state, expected);
}
