//! A probe of a backend that speaks HTTP/2: one `GET` on a connection of its own, and the verdict on its answer.

use super::http::{BODY_BYTES_MAX, HEAD_BYTES_MAX, Question, missing, statuses};
use super::{Fault, grpc};
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{Request, Uri};
use tokio::io::{AsyncRead, AsyncWrite};

/// Asks on `stream`, which is connected and, if `secure`, protected.
pub(super) async fn exchange<S>(
    stream: S,
    secure: bool,
    authority: &str,
    question: Question<'_>,
) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let uri = Uri::builder()
        .scheme(if secure { "https" } else { "http" })
        .authority(question.host.unwrap_or(authority))
        .path_and_query(question.path)
        .build()
        .map_err(|_| Fault::Connection("`host` is no authority of HTTP/2".to_owned()))?;
    let shaken = Builder::new()
        .enable_push(false)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .handshake(stream)
        .await;
    let (client, connection) = shaken.map_err(fault)?;
    let mut asked = std::pin::pin!(async {
        match question.grpc_service {
            Some(service) => grpc::ask(client, uri, service).await,
            None => ask(client, uri, question).await,
        }
    });
    // The connection moves the bytes of the question; what it ends with, the question hears.
    tokio::select! {
        biased;
        verdict = &mut asked => verdict,
        _ = connection => asked.await,
    }
}

async fn ask(client: SendRequest<Bytes>, uri: Uri, question: Question<'_>) -> Result<(), Fault> {
    let request = Request::get(uri)
        .header("user-agent", "mizan-probe")
        .header("accept", "*/*")
        .body(())
        .map_err(|error| Fault::Connection(error.to_string()))?;
    let mut client = client.ready().await.map_err(fault)?;
    let (answer, _) = client.send_request(request, true).map_err(fault)?;
    let (head, mut body) = answer.await.map_err(fault)?.into_parts();
    let status = head.status.as_u16();
    if !question.expect.contains(status) {
        let expected = statuses(question.expect);
        return Err(Fault::Answer(format!(
            "status {status}, expected {expected}"
        )));
    }
    let Some(text) = question.body else {
        return Ok(());
    };
    let mut searched = Vec::new();
    while searched.len() < BODY_BYTES_MAX
        && let Some(piece) = body.data().await
    {
        let piece = piece.map_err(fault)?;
        // Room for as much again; that the connection is gone shows with the next piece.
        let _ = body.flow_control().release_capacity(piece.len());
        searched.extend_from_slice(&piece);
        let seen = &searched[..searched.len().min(BODY_BYTES_MAX)];
        if memchr::memmem::find(seen, text.as_bytes()).is_some() {
            return Ok(());
        }
    }
    Err(Fault::Answer(missing(text)))
}

pub(super) fn fault(error: h2::Error) -> Fault {
    if error.is_io() {
        let text = error.to_string();
        return match error.into_io() {
            Some(error) => Fault::io("read", &error),
            None => Fault::Connection(text),
        };
    }
    // `HTT` would be the length of a frame, of more than 4 MiB.
    if error.is_library() && error.reason() == Some(h2::Reason::FRAME_SIZE_ERROR) {
        return Fault::Answer("the backend speaks HTTP/1.1: see `protocol`".to_owned());
    }
    Fault::Answer(format!("answer is not sound HTTP/2: {error}"))
}

#[cfg(test)]
mod tests;
