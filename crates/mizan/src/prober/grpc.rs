//! A probe by gRPC's health protocol: one call of `grpc.health.v1.Health/Check`, and the verdict on its answer.

use super::Fault;
use super::http2::fault;
use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request, Uri};

/// What a probe calls.
pub(super) const PATH: &str = "/grpc.health.v1.Health/Check";
/// `SERVING` of `HealthCheckResponse.ServingStatus`.
const SERVING: u64 = 1;
/// Longest answer that is read; a sound one has seven bytes.
const ANSWER_BYTES_MAX: usize = 4 << 10;

/// Asks how `service` is; "" is the whole server.
pub(super) async fn ask(client: SendRequest<Bytes>, uri: Uri, service: &str) -> Result<(), Fault> {
    let request = Request::post(uri)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "mizan-probe")
        .body(())
        .map_err(|error| Fault::Connection(error.to_string()))?;
    let mut client = client.ready().await.map_err(fault)?;
    let (answer, mut question) = client.send_request(request, false).map_err(fault)?;
    question.send_data(message(service), true).map_err(fault)?;
    let (head, mut body) = answer.await.map_err(fault)?.into_parts();
    if !head.status.is_success() {
        return Err(Fault::Answer(format!(
            "status {}, not of gRPC",
            head.status
        )));
    }
    let mut read = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(fault)?;
        let _ = body.flow_control().release_capacity(piece.len());
        read.extend_from_slice(&piece);
        if read.len() > ANSWER_BYTES_MAX {
            return Err(Fault::Answer("an answer without end".to_owned()));
        }
    }
    let trailers = body.trailers().await.map_err(fault)?;
    verdict(&head.headers, trailers.as_ref(), &read)
}

/// `HealthCheckRequest { service }`, as a message on the wire.
fn message(service: &str) -> Bytes {
    let mut request = Vec::new();
    if !service.is_empty() {
        // Field 1, of bytes; a name is at most 127 bytes long, so its length is one byte.
        request.push(0x0a);
        request.push(service.len() as u8);
        request.extend_from_slice(service.as_bytes());
    }
    let mut message = vec![0, 0, 0, 0, request.len() as u8];
    message.extend_from_slice(&request);
    message.into()
}

fn verdict(head: &HeaderMap, trailers: Option<&HeaderMap>, read: &[u8]) -> Result<(), Fault> {
    let of = |fields: &HeaderMap, name| {
        fields
            .get(name)
            .and_then(|value| value.to_str().ok().map(str::to_owned))
    };
    let field = |name| {
        trailers
            .and_then(|trailers| of(trailers, name))
            .or_else(|| of(head, name))
    };
    let code = field("grpc-status").and_then(|text| text.parse::<u32>().ok());
    let said = match code {
        Some(0) => match serving_status(read) {
            Some(SERVING) => return Ok(()),
            Some(2) => "NOT_SERVING".to_owned(),
            Some(other) => format!("serving status {other}"),
            None => "a message that cannot be read".to_owned(),
        },
        Some(5) => "no service of that name".to_owned(),
        Some(12) => "no health service (UNIMPLEMENTED)".to_owned(),
        Some(code) => {
            let message = field("grpc-message").unwrap_or_default();
            format!("grpc-status {code} {message}")
        }
        None => "an answer without grpc-status".to_owned(),
    };
    Err(Fault::Answer(said.trim_end().to_owned()))
}

/// Field 1 of `HealthCheckResponse`; 0 (`UNKNOWN`) is what is left out.
fn serving_status(read: &[u8]) -> Option<u64> {
    let (prefix, message) = read.split_first_chunk::<5>()?;
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    if prefix[0] != 0 || message.len() < length {
        return None;
    }
    match &message[..length] {
        [] => Some(0),
        [0x08, value @ 0..=0x7f, ..] => Some(u64::from(*value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(status: &str) -> HeaderMap {
        let mut fields = HeaderMap::new();
        fields.insert("grpc-status", status.parse().expect("a value"));
        fields
    }

    fn said(code: &str, read: &[u8]) -> String {
        match verdict(&HeaderMap::new(), Some(&fields(code)), read) {
            Ok(()) => "passed".to_owned(),
            Err(Fault::Answer(text)) => text,
            Err(_) => "another fault".to_owned(),
        }
    }

    #[test]
    fn only_serving_passes() {
        assert_eq!(said("0", b"\0\0\0\0\x02\x08\x01"), "passed");
        assert_eq!(said("0", b"\0\0\0\0\x02\x08\x02"), "NOT_SERVING");
        assert_eq!(said("0", b"\0\0\0\0\0"), "serving status 0");
        assert_eq!(
            said("0", b"\0\0\0\0\x09\x08\x01"),
            "a message that cannot be read"
        );
        assert_eq!(said("5", b""), "no service of that name");
        assert_eq!(said("12", b""), "no health service (UNIMPLEMENTED)");
        assert_eq!(said("14", b""), "grpc-status 14");
    }

    #[test]
    fn an_error_may_come_with_the_head_alone() {
        let verdict = verdict(&fields("12"), None, b"");
        assert!(matches!(verdict, Err(Fault::Answer(text)) if text.contains("UNIMPLEMENTED")));
    }

    #[test]
    fn a_service_is_asked_for_by_name() {
        assert_eq!(&message("")[..], b"\0\0\0\0\0");
        assert_eq!(&message("a.B")[..], b"\0\0\0\0\x05\x0a\x03a.B");
    }
}
