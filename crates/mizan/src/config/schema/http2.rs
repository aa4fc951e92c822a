//! Limits on HTTP/2, on either side.

use crate::config::text::{Bytes, Text, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits on HTTP/2 with clients.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct ListenerHttp2 {
    /// Streams at once on one connection.
    #[schemars(range(min = 1, max = 10_000))]
    pub(in super::super) streams_max: u32,
    /// What a client may send on one stream before it is read.
    #[schemars(extend("x-minimum" = "64KiB", "x-maximum" = "16MiB"))]
    pub(in super::super) window: Text<Bytes>,
    /// The same for a whole connection.
    #[schemars(extend("x-minimum" = "64KiB", "x-maximum" = "256MiB"))]
    pub(in super::super) connection_window: Text<Bytes>,
    /// Streams that a client has reset and that are still being put away; beyond, its connection is closed.
    #[schemars(range(min = 1, max = 10_000))]
    pub(in super::super) resets_pending_max: u32,
    /// Streams that a client may take back within a second before they are answered; beyond, its connection is closed.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in super::super) resets_per_second_max: u32,
    /// Frames that move no stream (PING, SETTINGS, PRIORITY, unknown kinds, needless WINDOW_UPDATE) that a client may send
    /// within a second, beyond two for each request; with more its connection is closed.
    #[schemars(range(min = 100, max = 1_000_000))]
    pub(in super::super) control_frames_per_second_max: u32,
    /// Age at which a connection is told to go, ± 10 %.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "365d", "x-zero" = "off"))]
    pub(in super::super) age_max: Text<Time>,
    /// Between two pings to a client with open streams.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1h", "x-zero" = "off"))]
    pub(in super::super) ping_interval: Text<Time>,
    /// A client that takes longer to answer a ping is cut.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1h"))]
    pub(in super::super) ping_timeout: Text<Time>,
}

impl Default for ListenerHttp2 {
    fn default() -> Self {
        Self {
            streams_max: 128,
            window: Text::preset("256KiB"),
            connection_window: Text::preset("8MiB"),
            resets_pending_max: 20,
            resets_per_second_max: 256,
            control_frames_per_second_max: 3000,
            age_max: Text::preset("0s"),
            ping_interval: Text::preset("30s"),
            ping_timeout: Text::preset("10s"),
        }
    }
}

/// Limits on HTTP/2 with backends.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct PoolHttp2 {
    /// What a backend may send on one stream before it is read.
    #[schemars(extend("x-minimum" = "64KiB", "x-maximum" = "16MiB"))]
    pub(in super::super) window: Text<Bytes>,
    /// The same for a whole connection, which takes so many streams that each has its whole window: clients that do not
    /// read must not hold up others. More streams are more connections.
    #[schemars(extend("x-minimum" = "64KiB", "x-maximum" = "256MiB"))]
    pub(in super::super) connection_window: Text<Bytes>,
    /// Between two pings to a backend with open streams.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1h", "x-zero" = "off"))]
    pub(in super::super) ping_interval: Text<Time>,
    /// A connection whose backend takes longer to answer a ping is closed.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "1h"))]
    pub(in super::super) ping_timeout: Text<Time>,
}

impl Default for PoolHttp2 {
    fn default() -> Self {
        Self {
            window: Text::preset("128KiB"),
            connection_window: Text::preset("16MiB"),
            ping_interval: Text::preset("30s"),
            ping_timeout: Text::preset("10s"),
        }
    }
}
