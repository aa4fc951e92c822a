//! The layer: one service that reaches every backend, and requests that are sent to the one that was picked.

use crate::backends::Backends;
use crate::balance::Balance;
use crate::classify::AnyResponse;
use crate::key::NoKey;
use crate::source::Source;
use mizan_core::Backend;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// Sends a request to a backend.
pub trait Direct<Req> {
    /// Changes `request` so that the service below sends it to `backend`.
    fn direct(&self, request: &mut Req, backend: &Backend);
}

impl<Req, F: Fn(&mut Req, &Backend)> Direct<Req> for F {
    fn direct(&self, request: &mut Req, backend: &Backend) {
        self(request, backend);
    }
}

/// Balances what goes to one service that reaches every backend, such as an HTTP client with its pool of connections.
/// The service is cloned for each request.
#[derive(Clone, Debug)]
pub struct BalanceLayer<D, C = AnyResponse, K = NoKey> {
    backends: Backends,
    direct: D,
    classify: C,
    key: K,
}

#[cfg(feature = "http")]
impl BalanceLayer<SetAuthority, crate::HttpStatus> {
    /// For HTTP: the backend's address becomes the URI's authority, and 500 and above is a backend's own error.
    pub fn new(backends: &Backends) -> Self {
        BalanceLayer::with(backends, SetAuthority).classify(crate::HttpStatus)
    }
}

impl<D> BalanceLayer<D> {
    /// For any protocol: `direct` sends a request to a backend; a closure will do.
    pub fn with(backends: &Backends, direct: D) -> Self {
        Self {
            backends: backends.clone(),
            direct,
            classify: AnyResponse,
            key: NoKey,
        }
    }
}

impl<D, C, K> BalanceLayer<D, C, K> {
    /// As [`Balance::classify`].
    pub fn classify<C2>(self, classify: C2) -> BalanceLayer<D, C2, K> {
        BalanceLayer {
            backends: self.backends,
            direct: self.direct,
            classify,
            key: self.key,
        }
    }

    /// As [`Balance::key`].
    pub fn key<K2>(self, key: K2) -> BalanceLayer<D, C, K2> {
        BalanceLayer {
            backends: self.backends,
            direct: self.direct,
            classify: self.classify,
            key,
        }
    }
}

impl<S: Clone, D: Clone, C: Clone, K: Clone> Layer<S> for BalanceLayer<D, C, K> {
    type Service = Balance<Reach<S, D>, C, K>;

    fn layer(&self, inner: S) -> Self::Service {
        let direct = self.direct.clone();
        Balance::new(&self.backends, Reach { inner, direct })
            .classify(self.classify.clone())
            .key(self.key.clone())
    }
}

/// One service for all backends.
#[derive(Clone, Debug)]
pub struct Reach<S, D> {
    inner: S,
    direct: D,
}

impl<S: Clone, D: Clone> Source for Reach<S, D> {
    type Service = ToBackend<S, D>;

    fn service(&self, backend: &Arc<Backend>) -> Option<ToBackend<S, D>> {
        Some(ToBackend {
            inner: self.inner.clone(),
            direct: self.direct.clone(),
            backend: Arc::clone(backend),
        })
    }
}

/// The one service, on its way to one backend.
#[derive(Clone, Debug)]
pub struct ToBackend<S, D> {
    inner: S,
    direct: D,
    backend: Arc<Backend>,
}

impl<Req, S: Service<Req>, D: Direct<Req>> Service<Req> for ToBackend<S, D> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Req) -> S::Future {
        self.direct.direct(&mut request, &self.backend);
        self.inner.call(request)
    }
}

/// Makes the backend's address the authority of the URI. The scheme stays, `http` if there was none. What was the
/// authority before is what the backend is asked for: it becomes the `Host` header where there is none. A Unix
/// socket has no authority: such a request is left as it is, and the client has to know where to go.
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAuthority;

#[cfg(feature = "http")]
impl<B> Direct<http::Request<B>> for SetAuthority {
    fn direct(&self, request: &mut http::Request<B>, backend: &Backend) {
        use http::header::{Entry, HOST, HeaderValue};
        use http::uri::{Authority, PathAndQuery, Scheme, Uri};

        let mizan_core::Address::Ip(address) = backend.address() else {
            return;
        };
        let Ok(authority) = Authority::try_from(address.to_string()) else {
            return;
        };
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        let before = parts.authority.replace(authority);
        parts.scheme.get_or_insert(Scheme::HTTP);
        parts
            .path_and_query
            .get_or_insert(PathAndQuery::from_static("/"));
        // Scheme, authority and path are there, which is all that is asked for.
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
        if let Some(before) = before
            && let Entry::Vacant(host) = request.headers_mut().entry(HOST)
            && let Ok(value) = HeaderValue::from_str(host_of(&before))
        {
            host.insert(value);
        }
    }
}

/// Host and port, without the name and password that an authority may begin with.
#[cfg(feature = "http")]
fn host_of(authority: &http::uri::Authority) -> &str {
    let text = authority.as_str();
    text.rsplit_once('@').map_or(text, |(_, host)| host)
}
