//! gRPC-Web, as browsers speak it, turned into gRPC for the backend (PROTOCOL-WEB of gRPC).
//!
//! The messages are the same; the trailers, which browsers do not show, come as a last message of the body, marked with
//! the highest bit of its flags. In its text form all of the body is in base64.

use data_encoding::BASE64;
use http::header::{self, HeaderMap, HeaderValue};

/// Flag of the message that holds the trailers.
const TRAILERS: u8 = 0x80;

/// How a call is spelt towards the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Spelling {
    /// `application/grpc-web`
    Binary,
    /// `application/grpc-web-text`
    Text,
}

impl Spelling {
    /// The spelling of a request with this `Content-Type`; `None`: it is no call of gRPC-Web.
    pub(in super::super) fn of(content_type: &[u8]) -> Option<Self> {
        let rest = content_type.strip_prefix(b"application/grpc-web")?;
        let (spelling, rest) = match rest.strip_prefix(b"-text") {
            Some(rest) => (Self::Text, rest),
            None => (Self::Binary, rest),
        };
        matches!(rest.first(), None | Some(b'+' | b';')).then_some(spelling)
    }

    /// Without what says how messages are coded.
    pub(in super::super) fn content_type(self) -> &'static str {
        match self {
            Self::Binary => "application/grpc-web",
            Self::Text => "application/grpc-web-text",
        }
    }

    /// Makes the head of a call one of gRPC.
    pub(super) fn to_grpc(self, fields: &mut HeaderMap) {
        rename(fields, self.content_type(), "application/grpc");
        fields.insert(header::TE, HeaderValue::from_static("trailers"));
        if self == Self::Text {
            fields.remove(header::CONTENT_LENGTH);
        }
    }

    /// Makes the head of a response one of gRPC-Web.
    pub(super) fn to_web(self, fields: &mut HeaderMap) {
        rename(fields, "application/grpc", self.content_type());
        // The trailers come on top.
        fields.remove(header::CONTENT_LENGTH);
    }

    /// A piece of the response's body as the client gets it.
    pub(super) fn encode(self, piece: bytes::Bytes) -> bytes::Bytes {
        match self {
            Self::Binary => piece,
            // Padded pieces one behind the other are what the text form is made of.
            Self::Text => BASE64.encode(&piece).into_bytes().into(),
        }
    }

    /// The message that holds `trailers`.
    pub(super) fn trailers(self, trailers: &HeaderMap) -> bytes::Bytes {
        let mut message = vec![TRAILERS, 0, 0, 0, 0];
        for (name, value) in trailers {
            message.extend_from_slice(name.as_str().as_bytes());
            message.extend_from_slice(b": ");
            message.extend_from_slice(value.as_bytes());
            message.extend_from_slice(b"\r\n");
        }
        let length = u32::try_from(message.len() - 5).unwrap_or(u32::MAX);
        message[1..5].copy_from_slice(&length.to_be_bytes());
        self.encode(message.into())
    }
}

/// What follows `from` in the `Content-Type` follows `to` in the new one.
fn rename(fields: &mut HeaderMap, from: &str, to: &str) {
    let Some(Ok(value)) = fields.get(header::CONTENT_TYPE).map(HeaderValue::to_str) else {
        return;
    };
    if let Some(rest) = value.strip_prefix(from)
        && let Ok(value) = HeaderValue::try_from(format!("{to}{rest}"))
    {
        fields.insert(header::CONTENT_TYPE, value);
    }
}

/// Decodes the text form of a request's body as it comes.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The beginning of a group of four.
    rest: Vec<u8>,
}

impl Decoder {
    /// Whether the text so far ends with a whole group.
    pub(super) fn is_whole(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes that `text` brings; `None` if it is not base64.
    pub fn decode(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        self.rest.extend_from_slice(text);
        let whole = self.rest.len() / 4 * 4;
        let mut out = Vec::with_capacity(whole / 4 * 3);
        // Padding may stand at the end of each piece that a client has encoded by itself.
        let mut from = 0;
        while from < whole {
            let padded = self.rest[from..whole].iter().position(|byte| *byte == b'=');
            let to = padded.map_or(whole, |at| (from + at) / 4 * 4 + 4);
            out.extend(BASE64.decode(&self.rest[from..to]).ok()?);
            from = to;
        }
        self.rest.drain(..whole);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_call_is_told_by_its_type() {
        let of = |text: &str| Spelling::of(text.as_bytes());
        assert_eq!(of("application/grpc-web"), Some(Spelling::Binary));
        assert_eq!(of("application/grpc-web+proto"), Some(Spelling::Binary));
        assert_eq!(of("application/grpc-web-text"), Some(Spelling::Text));
        assert_eq!(of("application/grpc-web-text+proto"), Some(Spelling::Text));
        for other in [
            "application/grpc",
            "application/grpc-webs",
            "application/grpc-web-textile",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn types_are_renamed_with_what_follows() {
        let mut fields = HeaderMap::new();
        let text = HeaderValue::from_static("application/grpc-web-text+proto");
        fields.insert(header::CONTENT_TYPE, text.clone());
        Spelling::Text.to_grpc(&mut fields);
        assert_eq!(fields[header::CONTENT_TYPE], "application/grpc+proto");
        Spelling::Text.to_web(&mut fields);
        assert_eq!(fields[header::CONTENT_TYPE], text);
    }

    #[test]
    fn trailers_are_a_message_with_the_highest_bit_set() {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let message = Spelling::Binary.trailers(&trailers);
        assert_eq!(&message[..], b"\x80\0\0\0\x10grpc-status: 0\r\n");
        let text = Spelling::Text.trailers(&trailers);
        assert_eq!(BASE64.decode(&text).expect("base64"), message);
    }

    proptest! {
        /// Pieces encoded each by itself, cut anywhere on their way, are what they were.
        #[test]
        fn text_is_decoded_wherever_it_is_cut(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
            cut in 1usize..9,
        ) {
            let text: String = pieces.iter().map(|piece| BASE64.encode(piece)).collect();
            let mut decoder = Decoder::default();
            let mut out = Vec::new();
            for part in text.as_bytes().chunks(cut) {
                out.extend(decoder.decode(part).expect("base64"));
            }
            prop_assert_eq!(out, pieces.concat());
        }
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        assert_eq!(Decoder::default().decode(b"a*c="), None);
    }
}
