use super::*;
use std::net::TcpListener;

/// A server that takes one connection, reads one request and writes `answer`; the thread's value is the peer's address.
fn server(answer: &'static [u8]) -> (SocketAddr, std::thread::JoinHandle<SocketAddr>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        stream.write_all(answer).unwrap();
        peer
    });
    (address, thread)
}

fn get(answer: &'static [u8]) -> Result<Answer, Fault> {
    let (address, thread) = server(answer);
    let got = Client::connect(address, None).and_then(|mut client| client.get("/"));
    thread.join().unwrap();
    got
}

#[test]
fn an_answer_is_read_by_its_framing() {
    let answer = get(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-Upstream: b1\r\nContent-Length: 2\r\n\r\nhi").unwrap();
    assert_eq!(
        answer,
        Answer {
            status: 200,
            upstream: Some("b1".to_owned()),
            body: b"hi".to_vec(),
            closing: false
        }
    );
    let answer = get(b"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n").unwrap();
    assert_eq!(
        (answer.status, &*answer.body, answer.closing),
        (503, &b"hi!"[..], true)
    );
    let answer = get(b"HTTP/1.1 200 OK\r\n\r\nto the end").unwrap();
    assert_eq!((&*answer.body, answer.closing), (&b"to the end"[..], true));
}

#[test]
fn a_failure_says_whether_an_answer_had_begun() {
    assert!(matches!(get(b""), Err(Fault::Before(_))));
    assert!(matches!(get(b"HTTP/1.1 200"), Err(Fault::Cut(_))));
    assert!(matches!(
        get(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi"),
        Err(Fault::Cut(_))
    ));
    assert!(matches!(
        get(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi"),
        Err(Fault::Cut(_))
    ));
    let (address, thread) = server(b"");
    drop(Client::connect(address, None).and_then(|mut client| client.get("/")));
    thread.join().unwrap();
    assert!(matches!(
        Client::connect(address, None),
        Err(Fault::Connect(_))
    ));
}

#[test]
fn a_client_has_the_source_address_it_was_given() {
    let (address, thread) = server(b"HTTP/1.1 204 X\r\n\r\n");
    let source = Ipv4Addr::new(127, 0, 3, 7);
    Client::connect(address, Some(source))
        .unwrap()
        .get("/")
        .unwrap();
    assert_eq!(thread.join().unwrap().ip(), source);
}
