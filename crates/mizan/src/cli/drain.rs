//! `mizan drain` and `mizan undrain`.

use super::Instance;
use super::client::{Client, ClientError, segment};
use super::output::{self, Exit};
use crate::admin::view::{BackendView, ForwardView, PoolView, RouteView};
use crate::clock;
use crate::config;
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
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

Exit status:
  0  drained and holding no request (--wait), or asked for
  2  no such backend
  4  no instance answers
  5  it still holds requests after --timeout, and stays drained")]
pub(super) struct Drain {
    /// Pool and backend, as `mizan status` shows them.
    #[arg(value_name = "POOL/BACKEND", value_parser = Name::parse)]
    backend: Name,
    /// Returns when the backend holds no request.
    #[arg(long)]
    wait: bool,
    /// How long to wait.
    #[arg(long, default_value = "60s", value_parser = config::duration, requires = "wait")]
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

Its health still counts: if its probes fail it stays out, and `mizan status`
says so.

Exit status:
  0  asked for
  2  no such backend
  4  no instance answers")]
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
        let asked: BackendView = client.post(&self.backend.path(want))?;
        if !may_serve(&self.pool(&client)?) {
            let routes: Vec<RouteView> = client.get("/v1/routes")?;
            let pools: Vec<PoolView> = client.get("/v1/pools")?;
            output::err(&nobody_left(&self.backend.pool, &routes, &pools));
        }
        let backend = if self.wait {
            match self.drained(&client, asked)? {
                Ok(backend) => backend,
                Err(exit) => return Ok(exit),
            }
        } else {
            asked
        };
        if self.json {
            return Ok(output::json(&backend, Exit::Done));
        }
        let rest = if self.wait {
            "holds no request".into()
        } else {
            format!("{} in flight", backend.in_flight)
        };
        let text = format!("{}: {}, {rest}", self.backend, backend.state);
        Ok(output::out(&text, Exit::Done))
    }

    fn pool(&self, client: &Client) -> Result<PoolView, ClientError> {
        client.get(&format!("/v1/pools/{}", segment(&self.backend.pool)))
    }

    /// Waits until `backend` holds no request; the inner error is the exit status if it does not come to that.
    fn drained(
        &self,
        client: &Client,
        mut backend: BackendView,
    ) -> Result<Result<BackendView, Exit>, ClientError> {
        let start = clock::now();
        let mut told = None;
        while backend.in_flight > 0 {
            if !self.json && told != Some(backend.in_flight) {
                told = Some(backend.in_flight);
                output::err(&format!(
                    "{}: {} in flight",
                    self.backend, backend.in_flight
                ));
            }
            let waited = clock::now() - start;
            if waited >= self.timeout {
                output::err(&format!(
                    "mizan: {} still holds {}; it stays out (mizan undrain {} brings it back)",
                    self.backend,
                    output::count(backend.in_flight, "request"),
                    self.backend
                ));
                return Ok(Err(Exit::NotConverged));
            }
            client.pause(INTERVAL.min(self.timeout - waited));
            let backends = self.pool(client)?.backends;
            match backends
                .into_iter()
                .find(|found| found.key == self.backend.backend)
            {
                Some(found) => backend = found,
                None => {
                    output::err(&format!(
                        "mizan: {} is no longer in the configuration",
                        self.backend
                    ));
                    return Ok(Err(Exit::Usage));
                }
            }
        }
        Ok(Ok(backend))
    }
}

impl Undrain {
    pub(super) fn run(&self) -> Result<Exit, ClientError> {
        let backend: BackendView = self
            .instance
            .client()?
            .post(&self.backend.path("undrain"))?;
        if self.json {
            return Ok(output::json(&backend, Exit::Done));
        }
        let why = if backend.reason.is_empty() {
            String::new()
        } else {
            format!(": {}", backend.reason)
        };
        let text = format!("{}: {}{why}", self.backend, backend.state);
        Ok(output::out(&text, Exit::Done))
    }
}

/// Whether a request may find a backend there.
fn may_serve(pool: &PoolView) -> bool {
    let mut backends = pool.backends.iter();
    backends.any(|backend| backend.usable && backend.state != "outside")
}

/// What becomes of the requests of a pool that has nobody left.
fn nobody_left(pool: &str, routes: &[RouteView], pools: &[PoolView]) -> String {
    let stands_in = |forward: &ForwardView| {
        let is_well = |name: &&String| {
            let found = pools.iter().find(|pool| pool.summary.name == **name);
            found.is_some_and(may_serve)
        };
        forward.fallback.iter().find(is_well).cloned()
    };
    // By what becomes of them, each route once: it stands here for each of its hosts, and may differ by region.
    let mut fates: BTreeMap<Option<String>, BTreeSet<&str>> = BTreeMap::new();
    for route in routes {
        let mut forwards = route.forwards.iter();
        while let Some(forward) =
            forwards.find(|forward| forward.pools.iter().any(|name| name == pool))
        {
            fates
                .entry(stands_in(forward))
                .or_default()
                .insert(&route.name);
        }
    }
    let is_divided = |route: &&str| {
        fates
            .values()
            .filter(|routes| routes.contains(route))
            .count()
            > 1
    };
    let divided = fates.values().flatten().any(is_divided);
    let by_region = if divided {
        " (it depends on the region)"
    } else {
        ""
    };
    let told = fates.iter().map(|(stand_in, routes)| {
        let routes: Vec<&str> = routes.iter().copied().collect();
        let of = match routes.len() {
            1 => format!("route {}", routes[0]),
            _ => format!("routes {}", routes.join(", ")),
        };
        match stand_in {
            Some(name) => {
                format!("; what {of} would send there goes to pool {name}, which stands in")
            }
            None => format!("; what {of} would send there gets 503"),
        }
    });
    let told: String = told.collect();
    format!("mizan: warning: pool {pool} has no usable backend left{told}{by_region}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

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

    #[test]
    fn a_timeout_is_read_as_the_configuration_reads_its_own() {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            drain: Drain,
        }
        let read = |text| Line::try_parse_from(["drain", "api/b", "--wait", "--timeout", text]);
        for (text, ms) in [
            ("1.5s", 1500),
            ("1m30s", 90_000),
            ("0", 0),
            ("1d", 86_400_000),
            ("250ms", 250),
        ] {
            let line = read(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(line.drain.timeout, Duration::from_millis(ms), "{text}");
        }
        let text = read("2").expect_err("it has no unit").to_string();
        assert!(text.contains("did you mean `2s`?"), "{text}");
    }
}
