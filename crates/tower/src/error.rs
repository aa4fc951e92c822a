//! Why a call has no response.

use mizan_core::NoPick;
use std::fmt;

/// Any error of a backend's service.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a call has no response.
#[derive(Debug)]
pub enum Error {
    /// Nobody was picked: nothing was sent, so trying again cannot do anything twice.
    NoBackend(NoPick),
    /// The service of the backend that was picked failed. The source is its own error.
    Service(BoxError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoBackend(_) => "no backend was picked",
            Self::Service(_) => "the backend's service failed",
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoBackend(why) => Some(why),
            Self::Service(error) => Some(&**error),
        }
    }
}
