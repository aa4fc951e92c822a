//! `mizan drain` and `mizan undrain`.

use super::client::{ClientError, segment};
use super::output::{self, Exit};
use super::{Instance, duration};
use crate::admin::view::{BackendView, PoolView};
use crate::clock;
use clap::Args;
use std::time::Duration;

/// How often a waiting `drain` looks.
const INTERVAL: Duration = Duration::from_millis(200);

/// Takes a backend out: it gets no new requests, and those that it has end by themselves.
///
/// It stays out until `mizan undrain`, over reloads too, but not over a restart of Mizan. With --wait the
/// command returns when the backend holds no request, so that a deploy can go on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mizan drain api/10.0.0.1:8080 --wait && ssh 10.0.0.1 systemctl restart api
  mizan drain api/10.0.0.1:8080 --wait --timeout 2m
  mizan drain 'api/unix:/run/app.sock' --maintenance

Exit status: 0 drained (with --wait), or asked for; 2 no such backend; 4 no instance answers; 5 it still
holds requests after --timeout (it stays drained).")]
pub(super) struct Drain {
    /// Pool and backend, as `mizan status` shows them.
    #[arg(value_name = "POOL/BACKEND", value_parser = Name::parse)]
    backend: Name,
    /// Returns when the backend holds no request.
    #[arg(long)]
    wait: bool,
    /// How long to wait.
    #[arg(long, default_value = "60s", value_parser = duration::parse, requires = "wait")]
    timeout: Duration,
    /// Says that the backend is down on purpose, not only drained.
    #[arg(long)]
    maintenance: bool,
    /// Prints the backend as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    instance: Instance,
}

/// Brings a drained backend back.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mizan undrain api/10.0.0.1:8080

Its health still counts: if its probes fail it stays out, and `mizan status` says so.")]
pub(super) struct Undrain {
    /// Pool and backend, as `mizan status` shows them.
    #[arg(value_name = "POOL/BACKEND", value_parser = Name::parse)]
    backend: Name,
    /// Prints the backend as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    instance: Instance,
}

/// A backend's name over all pools.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    pool: String,
    backend: String,
}

impl Name {
    /// A pool's name has no slash, a backend's may.
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((pool, backend)) if !pool.is_empty() && !backend.is_empty() => Ok(Self {
                pool: pool.into(),
                backend: backend.into(),
            }),
            _ => Err("write POOL/BACKEND, such as api/10.0.0.1:8080".into()),
        }
    }

    fn path(&self, want: &str) -> String {
        format!(
            "/v1/pools/{}/backends/{}/{want}",
            segment(&self.pool),
            segment(&self.backend)
        )
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.pool, self.backend)
    }
}

impl Drain {
    pub(super) fn run(&self) -> Result<Exit, ClientError> {
        let client = self.instance.client()?;
        let want = if self.maintenance {
            "maintenance"
        } else {
            "drain"
        };
        let mut backend: BackendView = client.post(&self.backend.path(want))?;
        let start = clock::now();
        let mut told = None;
        while self.wait && backend.in_flight > 0 {
            if !self.json && told != Some(backend.in_flight) {
                told = Some(backend.in_flight);
                output::err(&format!(
                    "{}: {} in flight",
                    self.backend, backend.in_flight
                ));
            }
            if clock::now() - start >= self.timeout {
                output::err(&format!(
                    "mizan: {} still holds {} requests; it stays out (mizan undrain {} brings it back)",
                    self.backend, backend.in_flight, self.backend
                ));
                return Ok(Exit::NotInTime);
            }
            client.pause(INTERVAL);
            let pool: PoolView =
                client.get(&format!("/v1/pools/{}", segment(&self.backend.pool)))?;
            match pool
                .backends
                .into_iter()
                .find(|found| found.key == self.backend.backend)
            {
                Some(found) => backend = found,
                None => {
                    output::err(&format!(
                        "mizan: {} is no longer in the configuration",
                        self.backend
                    ));
                    return Ok(Exit::Usage);
                }
            }
        }
        if self.json {
            output::json(&backend);
        } else {
            let rest = if self.wait {
                "holds no request".into()
            } else {
                format!("{} in flight", backend.in_flight)
            };
            output::out(&format!("{}: {}, {rest}", self.backend, backend.state));
        }
        Ok(Exit::Done)
    }
}

impl Undrain {
    pub(super) fn run(&self) -> Result<Exit, ClientError> {
        let backend: BackendView = self
            .instance
            .client()?
            .post(&self.backend.path("undrain"))?;
        if self.json {
            output::json(&backend);
        } else {
            let why = if backend.reason.is_empty() {
                String::new()
            } else {
                format!(": {}", backend.reason)
            };
            output::out(&format!("{}: {}{why}", self.backend, backend.state));
        }
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_the_first_slash() {
        let name = Name::parse("api/unix:/run/app.sock").expect("a name");
        assert_eq!((&*name.pool, &*name.backend), ("api", "unix:/run/app.sock"));
        assert_eq!(
            name.path("drain"),
            "/v1/pools/api/backends/unix:%2Frun%2Fapp.sock/drain"
        );
        for wrong in ["", "api", "api/", "/10.0.0.1:80"] {
            assert!(Name::parse(wrong).is_err(), "{wrong}");
        }
    }
}
