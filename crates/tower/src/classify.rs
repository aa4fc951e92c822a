//! What a result says of the backend that gave it.

use mizan_core::Failure;
use std::error::Error;
use std::io;

/// What a result says of the backend that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It served, and its latency counts.
    Success,
    /// It answered that it failed; 502, 503 and 504 count as failures, other numbers as errors.
    ServerError(u16),
    /// It gave no usable response.
    Failure(Failure),
    /// Nothing: the caller's own mistake, or its own wish.
    Nothing,
}

/// Judges results. Cloned for each request, so keep it small.
pub trait Classify<R> {
    /// What `result` says of the backend that gave it. The error is the service's own; what it wraps
    /// is reached by `source`.
    fn classify(&self, result: Result<&R, &(dyn Error + 'static)>) -> Verdict;
}

/// Every response is a success, every error a [`failure`]. The preset for [`Balance`](crate::Balance).
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyResponse;

impl<R> Classify<R> for AnyResponse {
    fn classify(&self, result: Result<&R, &(dyn Error + 'static)>) -> Verdict {
        match result {
            Ok(_) => Verdict::Success,
            Err(error) => Verdict::Failure(failure(error)),
        }
    }
}

/// By the status: 500 and above is the backend's own error. An error is a [`failure`]. The preset for
/// [`BalanceLayer`](crate::BalanceLayer).
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpStatus;

#[cfg(feature = "http")]
impl<B> Classify<http::Response<B>> for HttpStatus {
    fn classify(&self, result: Result<&http::Response<B>, &(dyn Error + 'static)>) -> Verdict {
        match result.map(|response| response.status().as_u16()) {
            Ok(status @ 500..) => Verdict::ServerError(status),
            Ok(_) => Verdict::Success,
            Err(error) => Verdict::Failure(failure(error)),
        }
    }
}

/// Which failure an error is, by the first `io::Error` or time-out of Tokio in its chain of sources. One that
/// tells nothing is [`Failure::ConnectError`], the only one that claims neither that a backend listens
/// nor that it does not.
pub fn failure(error: &(dyn Error + 'static)) -> Failure {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<tokio::time::error::Elapsed>() {
            return Failure::Timeout;
        }
        if let Some(found) = error.downcast_ref::<io::Error>().and_then(of_io) {
            return found;
        }
        // An `io::Error` that wraps another names that one's source, and not itself, as its own.
        next = match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    Failure::ConnectError
}

fn of_io(error: &io::Error) -> Option<Failure> {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(Failure::ConnectRefused),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Some(Failure::Reset),
        io::ErrorKind::TimedOut => Some(Failure::Timeout),
        io::ErrorKind::InvalidData => Some(Failure::BadResponse),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error as Wrapped;

    fn of(error: impl Error + Send + Sync + 'static) -> Failure {
        failure(&Wrapped::Service(Box::new(error)))
    }

    #[test]
    fn the_first_cause_in_a_chain_that_says_something_is_the_failure() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(of(refused), Failure::ConnectRefused);
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(of(io::Error::other(reset)), Failure::Reset, "wrapped twice");
        assert_eq!(of(io::Error::other("no idea")), Failure::ConnectError);
        let eof = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(of(eof), Failure::Reset);
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_out_of_tokio_is_a_time_out() {
        let never = std::future::pending::<()>();
        let limit = std::time::Duration::from_secs(1);
        let elapsed = tokio::time::timeout(limit, never).await.unwrap_err();
        assert_eq!(of(elapsed), Failure::Timeout);
    }
}
