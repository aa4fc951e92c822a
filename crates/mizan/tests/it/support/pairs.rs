//! All pairings of protocols at once: one Mizan, four ways to ask it and four kinds of backends behind it.

use super::h2_client::{Answer, Ask, H2Client};
use super::tls::{self, Authority, Relay};
use super::{Backend, Call, Client, Exchange, H2Backend, Mizan, Next, locked};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

/// A request as a backend saw it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) authority: String,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Seen {
    /// The values of all fields of this name.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let same = self.fields.iter().filter(|field| field.0 == name);
        same.map(|(_, value)| value.as_str()).collect()
    }
}

/// How Mizan is asked.
#[derive(Debug)]
pub(crate) enum Way {
    One(&'static str, Mutex<Client>),
    Two(&'static str, H2Client),
}

/// Mizan between them all.
pub(crate) struct Pairs {
    _mizan: Mizan,
    pub(crate) ways: Vec<Way>,
    seen: Arc<Mutex<Vec<Seen>>>,
    _backends: (Backend, H2Backend),
    _relays: Vec<Relay>,
}

/// What the backends are called: HTTP/1 and HTTP/2, in the clear and over TLS.
pub(crate) const KINDS: [&str; 4] = ["one.example", "ones.example", "two.example", "twos.example"];

impl Pairs {
    pub(crate) fn start() -> Self {
        let authority = Authority::new();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (one_seen, two_seen) = (Arc::clone(&seen), Arc::clone(&seen));
        let one = Backend::start(move |exchange| serve_one(exchange, &one_seen));
        let two = H2Backend::start(move |call| serve_two(call, Arc::clone(&two_seen)));
        let issued = authority.issue(&["backend.test", "127.0.0.1"]);
        let fronts = [
            Relay::front(issued.acceptor(&[]), one.address()),
            Relay::front(issued.acceptor(&["h2"]), two.address()),
        ];
        let listed = authority.issue(&["a.example"]);
        let mut text = format!(
            "[[listener]]\nbind = \"{{listen}}\"\n[[listener]]\nbind = \"{{listen2}}\"\n[listener.tls]\ncertificates = [{}]\n",
            listed.entry()
        );
        let tls = format!("tls = {{ roots = {:?} }}\n", authority.roots_file());
        let backends = [
            (one.address(), String::new()),
            (fronts[0].address, tls.clone()),
            (two.address(), "protocol = \"http2\"\n".to_owned()),
            (fronts[1].address, format!("protocol = \"http2\"\n{tls}")),
        ];
        for (kind, (address, more)) in KINDS.iter().zip(backends) {
            let pool = kind.replace('.', "-");
            text.push_str(&format!(
                "[[route]]\nhost = \"{kind}\"\npool = \"{pool}\"\n[pool.{pool}]\nbackends = [\"{address}\"]\n{more}"
            ));
        }
        let mizan = Mizan::start(&text);
        let back = Relay::back(authority.client(&[]), mizan.address2(), "a.example");
        let secure = authority.client(&["h2", "http/1.1"]);
        let ways = vec![
            Way::One("http", Mutex::new(mizan.client())),
            Way::One("https", Mutex::new(Client::connect(back.address))),
            Way::Two("http", H2Client::connect(mizan.address())),
            Way::Two(
                "https",
                tls::h2_client(mizan.address2(), "a.example", secure),
            ),
        ];
        Self {
            _mizan: mizan,
            ways,
            seen,
            _backends: (one, two),
            _relays: fronts.into_iter().chain([back]).collect(),
        }
    }

    /// Asks in each way for each kind of backend; gives what came with what the backend saw.
    pub(crate) fn each(&self, ask: &Ask, mut check: impl FnMut(&Way, &str, Answer, Seen)) {
        for kind in KINDS {
            for way in &self.ways {
                let (answer, seen) = self.one(way, ask.clone().to(kind));
                check(way, kind, answer, seen);
            }
        }
    }

    /// Asks in one way.
    #[track_caller]
    pub(crate) fn one(&self, way: &Way, ask: Ask) -> (Answer, Seen) {
        locked(&self.seen).clear();
        let kind = ask.authority.clone();
        let answer = way.ask(ask);
        let seen = locked(&self.seen).pop();
        let seen = seen.unwrap_or_else(|| panic!("{way:?} to {kind}: {answer:?}"));
        (answer, seen)
    }
}

impl Way {
    /// The protocol's scheme.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::One(scheme, _) | Self::Two(scheme, _) => scheme,
        }
    }

    /// What Mizan says of it to backends.
    pub(crate) fn via(&self) -> &'static str {
        match self {
            Self::One(..) => "1.1 mizan",
            Self::Two(..) => "2.0 mizan",
        }
    }

    #[track_caller]
    fn ask(&self, ask: Ask) -> Answer {
        match self {
            Self::One(_, client) => ask_one(&mut locked(client), &ask),
            Self::Two(_, client) => client.exchange(ask),
        }
    }
}

fn ask_one(client: &mut Client, ask: &Ask) -> Answer {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\n",
        ask.method, ask.path, ask.authority
    );
    for (name, value) in &ask.fields {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().expect("text")));
    }
    let mut bytes = Vec::new();
    match &ask.body {
        Some(body) if !ask.fields.contains_key("content-length") => {
            head.push_str("Transfer-Encoding: chunked\r\n");
            for chunk in body.chunks(10_000) {
                bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n");
            for (name, value) in &ask.trailers {
                let value = value.to_str().expect("text");
                bytes.extend(format!("{name}: {value}\r\n").into_bytes());
            }
            bytes.extend_from_slice(b"\r\n");
        }
        Some(body) => bytes.extend_from_slice(body),
        None => {}
    }
    client.send(format!("{head}\r\n"));
    client.send(bytes);
    let read = client.try_read(ask.method.as_str());
    let read = read.unwrap_or_else(|cut| panic!("no whole response: {cut:?}"));
    let interim = read.interim.iter().map(|head| head.word(1).parse());
    Answer {
        status: read.status,
        fields: fields(&read.head.fields),
        body: read.body,
        trailers: fields(&read.trailers),
        interim: interim.collect::<Result<_, _>>().expect("statuses"),
    }
}

fn fields(lines: &[(String, String)]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::try_from(name.as_str()).expect("a name");
        fields.append(
            name,
            HeaderValue::try_from(value.as_str()).expect("a value"),
        );
    }
    fields
}

/// What a path asks of a backend, on either side.
struct Wanted {
    status: u16,
    fields: BTreeMap<&'static str, String>,
    body: Option<Vec<u8>>,
    trailers: Vec<(&'static str, &'static str)>,
    hints: bool,
}

/// `/echo` answers with the request's body and its length, `/streamed` the same without a length, `/trailers` with
/// trailers behind it, `/hints` after a 103, `/204` and `/304` without a body, `/bytes/N` N bytes.
fn wanted(path: &str, body: &[u8], is_head: bool) -> Wanted {
    let mut wanted = Wanted {
        status: 200,
        fields: BTreeMap::from([("x-answer", "a, \"b\"".to_owned())]),
        body: Some(body.to_vec()),
        trailers: Vec::new(),
        hints: path == "/hints",
    };
    let path = path.split('?').next().unwrap_or_default();
    match path {
        "/204" => (wanted.status, wanted.body) = (204, None),
        "/304" => {
            (wanted.status, wanted.body) = (304, None);
            wanted.fields.insert("etag", "\"one\"".to_owned());
        }
        "/streamed" => {}
        "/trailers" => wanted.trailers = vec![("x-checksum", "abc"), ("x-more", "1")],
        _ => {
            if let Some(count) = path.strip_prefix("/bytes/") {
                let count = count.parse().expect("a number");
                wanted.body = Some((0..count).map(|at: usize| (at / 7) as u8).collect());
            }
            let length = wanted.body.as_ref().map_or(0, Vec::len);
            wanted.fields.insert("content-length", length.to_string());
        }
    }
    if is_head {
        wanted.body = None;
    }
    wanted
}

fn serve_one(exchange: &mut Exchange, seen: &Mutex<Vec<Seen>>) -> io::Result<Next> {
    if exchange.head.field("expect").is_some() {
        exchange.send("HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let (body, trailers) = exchange.body_and_trailers()?;
    let head = &exchange.head;
    let lower = |(name, value): &(String, String)| (name.to_ascii_lowercase(), value.clone());
    locked(seen).push(Seen {
        method: head.word(0).to_owned(),
        target: head.word(1).to_owned(),
        authority: head.field("host").unwrap_or_default().to_owned(),
        fields: head.fields.iter().map(lower).collect(),
        body: body.clone(),
        trailers,
    });
    let wanted = wanted(head.word(1), &body, head.word(0) == "HEAD");
    let mut answer = String::new();
    if wanted.hints {
        answer.push_str("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
    }
    answer.push_str(&format!("HTTP/1.1 {} Fine\r\n", wanted.status));
    for (name, value) in &wanted.fields {
        answer.push_str(&format!("{name}: {value}\r\n"));
    }
    let is_chunked = wanted.body.is_some() && !wanted.fields.contains_key("content-length");
    if is_chunked {
        answer.push_str("Transfer-Encoding: chunked\r\n");
    }
    exchange.send(format!("{answer}\r\n"))?;
    let body = wanted.body.unwrap_or_default();
    if !is_chunked {
        exchange.send(body)?;
        return Ok(Next::Keep);
    }
    for chunk in body.chunks(10_000) {
        exchange.send(format!("{:x}\r\n", chunk.len()))?;
        exchange.send(chunk)?;
        exchange.send("\r\n")?;
    }
    let trailers = wanted.trailers.iter();
    let trailers: String = trailers
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    exchange.send(format!("0\r\n{trailers}\r\n"))?;
    Ok(Next::Keep)
}

async fn serve_two(mut call: Call, seen: Arc<Mutex<Vec<Seen>>>) -> Result<(), h2::Error> {
    if call.head.headers.contains_key("expect") {
        let mut interim = Response::new(());
        *interim.status_mut() = http::StatusCode::CONTINUE;
        call.respond.send_informational(interim)?;
    }
    let read = call.read().await?;
    let lines = |fields: &HeaderMap| -> Vec<_> {
        let text = |value: &HeaderValue| value.to_str().unwrap_or("?").to_owned();
        let lines = fields.iter();
        lines
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect()
    };
    let uri = &call.head.uri;
    let authority = uri.authority().map(|authority| authority.as_str());
    let (target, is_head) = (uri.path().to_owned(), call.head.method == "HEAD");
    locked(&seen).push(Seen {
        method: call.head.method.to_string(),
        target: uri
            .path_and_query()
            .map_or_else(String::new, ToString::to_string),
        authority: authority.unwrap_or_default().to_owned(),
        fields: lines(&call.head.headers),
        body: read.body.clone(),
        trailers: lines(&read.trailers),
    });
    let wanted = wanted(&target, &read.body, is_head);
    if wanted.hints {
        let hints = Response::builder().status(103).header("link", "</a.css>");
        call.respond
            .send_informational(hints.body(()).expect("sound"))?;
    }
    let mut head = Response::builder().status(wanted.status);
    for (name, value) in &wanted.fields {
        head = head.header(*name, value);
    }
    let mut trailers = HeaderMap::new();
    for (name, value) in &wanted.trailers {
        trailers.append(*name, HeaderValue::from_static(value));
    }
    call.respond_with(head, wanted.body.as_deref(), &trailers)
        .await
}
