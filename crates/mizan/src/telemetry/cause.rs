//! Closed sets of label values. Their text is part of the contract: dashboards and alerts name it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes an enum whose values have a stable text and a dense index.
macro_rules! labels {
    ($(#[$meta:meta])* $name:ident { $($(#[$value_meta:meta])* $value:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$value_meta])* $value,)+ }

        impl $name {
            /// All values, in the order of their index.
            pub const ALL: &'static [Self] = &[$(Self::$value,)+];

            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The label's text.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

labels! {
    /// Why a request reached nothing, or was cut where it stood because Mizan ended. A backend's own 5xx, a client that went away and a probe's 503 are not here.
    Cause {
        /// No backend could be picked.
        NoBackend = "no_backend",
        /// The backend's address refused the connection, or there was no way to it.
        ConnectRefused = "connect_refused",
        /// The connection was not established in time.
        ConnectTimeout = "connect_timeout",
        /// The TLS handshake with the backend failed.
        TlsFailed = "tls_failed",
        /// A new connection was reset or closed before a response byte.
        ResetBeforeResponse = "reset_before_response",
        /// A reused idle connection turned out to be closed.
        PoolReuse = "pool_reuse",
        /// The pool's queue was full, or the wait in it too long.
        QueueFull = "queue_full",
        /// The drain's deadline cut it.
        DrainCut = "drain_cut",
        /// The process was stopped at once.
        Shutdown = "shutdown",
    }
}

labels! {
    /// Why a request was tried again.
    RetryCause {
        /// See [`Cause::ConnectRefused`].
        ConnectRefused = "connect_refused",
        /// See [`Cause::ConnectTimeout`].
        ConnectTimeout = "connect_timeout",
        /// See [`Cause::TlsFailed`].
        TlsFailed = "tls_failed",
        /// See [`Cause::ResetBeforeResponse`].
        ResetBeforeResponse = "reset_before_response",
        /// See [`Cause::PoolReuse`].
        PoolReuse = "pool_reuse",
        /// No response head in time.
        Timeout = "timeout",
        /// The response could not be understood.
        BadResponse = "bad_response",
        /// The backend answered with a status that the pool retries.
        Status = "status",
    }
}

labels! {
    /// Why a client's connection was not served.
    ConnectionRefusal {
        /// The listener's allow or deny list.
        Network = "network",
        /// The listener's `connections_per_address_max`.
        Address = "address",
        /// The listener's `connections_max`.
        Limit = "limit",
        /// The process ran out of descriptors or memory.
        Resources = "resources",
        /// No PROXY header, or a malformed one, where there must be one.
        ProxyProtocol = "proxy_protocol",
    }
}

labels! {
    /// Why a datagram was dropped.
    DatagramDrop {
        /// The listener's allow or deny list.
        Network = "network",
        /// The listener's `sessions_max`.
        Limit = "limit",
        /// The process ran out of descriptors, memory or ports.
        Resources = "resources",
        /// No backend could be picked.
        NoBackend = "no_backend",
        /// Longer than the way on takes.
        TooLarge = "too_large",
        /// The way on is full.
        Full = "full",
        /// It could not be sent on for another reason.
        Unsendable = "unsendable",
    }
}

labels! {
    /// What became of a client's TLS handshake.
    Handshake {
        /// A new session.
        Full = "full",
        /// The client came back with a ticket.
        Resumed = "resumed",
        /// None.
        Failed = "failed",
    }
}

labels! {
    /// What became of a reload.
    ReloadResult {
        /// The new configuration is in force.
        Applied = "applied",
        /// The new configuration was refused; the old one stays.
        Refused = "refused",
        /// The files had not changed.
        Unchanged = "unchanged",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_json_use_the_same_words() {
        fn words<T: Serialize>(all: &[T]) -> String {
            serde_json::to_string(all)
                .expect("JSON")
                .replace(['"', '[', ']'], "")
        }
        fn labels<T: std::fmt::Display>(all: &[T]) -> String {
            all.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(",")
        }
        assert_eq!(words(Cause::ALL), labels(Cause::ALL));
        assert_eq!(words(RetryCause::ALL), labels(RetryCause::ALL));
        assert_eq!(
            words(ConnectionRefusal::ALL),
            labels(ConnectionRefusal::ALL)
        );
        assert_eq!(words(DatagramDrop::ALL), labels(DatagramDrop::ALL));
        assert_eq!(words(Handshake::ALL), labels(Handshake::ALL));
        assert_eq!(words(ReloadResult::ALL), labels(ReloadResult::ALL));
    }
}
