use super::super::tests::{check, core};
use super::super::{ProbeResult, probe};
use crate::snapshot::{HealthCheck, ProbeKind, StatusSet};
use bytes::Bytes;
use http::Response;
use mizan_core::backend::Address;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Answers every request with that status and body, in two pieces; gives its address.
async fn backend(status: u16, body: &'static str) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut connection) = h2::server::handshake(stream).await else {
                continue;
            };
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let health = request.uri().path() == "/healthz";
                let status = if health { status } else { 404 };
                let response = Response::builder().status(status).body(()).unwrap();
                let mut send = respond.send_response(response, false).unwrap();
                let (one, other) = body.split_at(body.len() / 2);
                send.send_data(Bytes::from_static(one.as_bytes()), false)
                    .unwrap();
                send.send_data(Bytes::from_static(other.as_bytes()), true)
                    .unwrap();
            }
        }
    });
    Address::Ip(address)
}

async fn probed(address: &Address, path: &str, body: Option<&str>) -> ProbeResult {
    let kind = ProbeKind::Http {
        path: path.to_owned(),
        host: Some("health.example".to_owned()),
        expect: StatusSet(vec![(200, 399)]),
        body: body.map(str::to_owned),
    };
    let check = HealthCheck {
        http2: true,
        ..check(kind)
    };
    let backend = core(std::slice::from_ref(address)).backends()[0].clone();
    probe(Arc::new(check), backend).await.unwrap()
}

fn failed(reason: &str) -> ProbeResult {
    ProbeResult::Failed {
        refused: false,
        reason: reason.to_owned(),
    }
}

#[tokio::test]
async fn a_backend_of_http2_is_judged_by_status_and_body() {
    let good = backend(200, "all is well").await;
    assert_eq!(probed(&good, "/healthz", None).await, ProbeResult::Passed);
    let found = probed(&good, "/healthz", Some("is well")).await;
    assert_eq!(found, ProbeResult::Passed);
    assert_eq!(
        probed(&good, "/healthz", Some("is ill")).await,
        failed("answer's body does not hold \"is ill\"")
    );
    assert_eq!(
        probed(&good, "/other", None).await,
        failed("status 404, expected 200-399")
    );
    let busy = backend(503, "").await;
    assert_eq!(
        probed(&busy, "/healthz", None).await,
        failed("status 503, expected 200-399")
    );
}

#[tokio::test]
async fn what_answers_in_http1_is_no_backend_of_http2() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Ip(listener.local_addr().unwrap());
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let text = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
        tokio::io::AsyncWriteExt::write_all(&mut stream, text)
            .await
            .unwrap();
        stream
    };
    let (_open, result) = tokio::join!(answer, probed(&address, "/healthz", None));
    assert!(
        matches!(&result, ProbeResult::Failed { reason, .. } if reason == "the backend speaks HTTP/1.1: see `protocol`"),
        "{result:?}"
    );
}

/// A server of gRPC that knows the service `a.B` alone, which serves.
async fn health_service() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut connection) = h2::server::handshake(stream).await else {
                continue;
            };
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let path = request.uri().path() == "/grpc.health.v1.Health/Check";
                let mut body = request.into_body();
                tokio::spawn(async move {
                    let asked = body.data().await.unwrap().unwrap();
                    let known = path && &asked[..] == b"\0\0\0\0\x05\x0a\x03a.B";
                    let response = Response::builder().status(200).body(()).unwrap();
                    let mut send = respond.send_response(response, false).unwrap();
                    if known {
                        let message = Bytes::from_static(b"\0\0\0\0\x02\x08\x01");
                        send.send_data(message, false).unwrap();
                    }
                    let status = if known { "0" } else { "5" };
                    let mut trailers = http::HeaderMap::new();
                    trailers.insert("grpc-status", status.parse().unwrap());
                    send.send_trailers(trailers).unwrap();
                });
            }
        }
    });
    Address::Ip(address)
}

#[tokio::test]
async fn a_backend_of_grpc_is_judged_by_its_health_service() {
    let address = health_service().await;
    let asked = |service: &str| {
        let kind = ProbeKind::Grpc {
            service: service.to_owned(),
            host: None,
        };
        let check = Arc::new(check(kind));
        let backend = core(std::slice::from_ref(&address)).backends()[0].clone();
        probe(check, backend)
    };
    assert_eq!(asked("a.B").await.unwrap(), ProbeResult::Passed);
    assert_eq!(asked("").await.unwrap(), failed("no service of that name"));
    // One that speaks HTTP/2 and no gRPC.
    let other = backend(200, "").await;
    let kind = ProbeKind::Grpc {
        service: String::new(),
        host: None,
    };
    let backend = core(std::slice::from_ref(&other)).backends()[0].clone();
    let result = probe(Arc::new(check(kind)), backend).await.unwrap();
    assert_eq!(result, failed("status 404 Not Found, not of gRPC"));
}
