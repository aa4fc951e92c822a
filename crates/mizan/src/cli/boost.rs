//! `mizan boost`.

use super::client::{ClientError, segment};
use super::output::{self, Exit, table};
use super::table::{Place, failed, not_in_force, why};
use crate::admin::table::{BoostRequest, BoostSet};
use crate::config;
use crate::control::editor::{BoostView, Edited};
use crate::telemetry::json::time_string;
use clap::{Args, Subcommand};
use std::time::Duration;

/// A boost of this length is asked about by people later.
const LONG: Duration = Duration::from_secs(6 * 60 * 60);

/// Gives a pool more or less traffic for a while: it ends by itself, whatever becomes of the store or of you.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mizan boost add kpop --region kr --factor 3 --for 6h --why \"comeback week\"
  mizan boost list
  mizan boost end 1f3a9c04

Exit status:
  0  done
  2  usage, or the boost is refused
  3  it has changed since you looked
  4  no instance answers, or the store cannot be reached
  10 the store did not say whether it was done")]
pub(super) struct Boost {
    #[command(flatten)]
    place: Place,
    /// Prints JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Multiplies a pool's weight in the splits that name it.
    Add {
        /// The pool.
        pool: String,
        /// Where it is.
        #[arg(long, default_value = "default")]
        region: String,
        /// By how much, 0.1 to 10; several boosts of a pool multiply, up to 10.
        #[arg(long)]
        factor: f64,
        /// For how long, 10s to 12h.
        #[arg(long = "for", value_name = "DURATION", value_parser = config::duration)]
        life: Duration,
        /// Why.
        #[arg(long)]
        why: String,
    },
    /// Shows all boosts, and when they end.
    List,
    /// Ends a boost now.
    End {
        /// Its name, as list shows it.
        id: String,
    },
}

impl Boost {
    pub(super) fn run(&self) -> Exit {
        self.outcome().unwrap_or_else(|error| failed(&error))
    }

    fn outcome(&self) -> Result<Exit, ClientError> {
        match &self.command {
            Command::Add {
                pool,
                region,
                factor,
                life,
                why,
            } => {
                let request = BoostRequest {
                    region: region.clone(),
                    pool: pool.clone(),
                    factor: *factor,
                    seconds: life.as_secs(),
                    why: why.clone(),
                };
                self.add(&request, *life)
            }
            Command::List => self.list(),
            Command::End { id } => {
                let path = format!("/v1/boosts/{}", segment(id));
                let edited: Edited = self.place.client()?.delete(&path)?;
                not_in_force(&edited);
                Ok(match self.json {
                    true => output::json(&edited, Exit::Done),
                    false => output::out(&format!("boost {id} has ended"), Exit::Done),
                })
            }
        }
    }

    fn add(&self, request: &BoostRequest, life: Duration) -> Result<Exit, ClientError> {
        let set: BoostSet = self.place.client()?.post_json("/v1/boosts", request)?;
        not_in_force(&set.edit);
        if self.json {
            return Ok(output::json(&set, Exit::Done));
        }
        if life > LONG {
            output::err(
                "mizan: a boost of over 6 hours is likely to be forgotten: an edit of the weight stays and is seen",
            );
        }
        let BoostView {
            id,
            region,
            pool,
            factor,
            pool_factor,
            ..
        } = &set.boost;
        let mut text = format!(
            "boost {id}: pool {pool} of region {region} × {factor} until {}",
            end(&set.boost)
        );
        if pool_factor != factor {
            text += &format!("\n  with its other boosts × {pool_factor}");
        }
        if set.boost.shares.is_empty() {
            text += "\n  no route of the store splits traffic to it: those of files may";
        }
        for share in &set.boost.shares {
            text += &format!(
                "\n  route {}: {:.1} % → {:.1} %",
                share.route,
                share.before * 100.0,
                share.after * 100.0
            );
        }
        Ok(output::out(&text, Exit::Done))
    }

    fn list(&self) -> Result<Exit, ClientError> {
        let boosts: Vec<BoostView> = self.place.client()?.get("/v1/boosts")?;
        if self.json {
            return Ok(output::json(&boosts, Exit::Done));
        }
        if boosts.is_empty() {
            return Ok(output::out("no pool is boosted", Exit::Done));
        }
        let row = |cells: [&str; 7]| cells.map(str::to_owned).to_vec();
        let mut rows = vec![row([
            "BOOST", "REGION", "POOL", "FACTOR", "UNTIL", "BY", "WHY",
        ])];
        rows.extend(boosts.iter().map(|boost| {
            row([
                &boost.id,
                &boost.region,
                &boost.pool,
                &format!("× {}", boost.factor),
                &end(boost),
                &boost.created_by,
                why(&boost.why),
            ])
        }));
        Ok(output::out(&table("", &rows), Exit::Done))
    }
}

fn end(boost: &BoostView) -> String {
    let at = time_string(Duration::from_millis(boost.expires_at_ms));
    match boost.left_seconds {
        0 => format!("{at} (ended, awaits cleaning up)"),
        left => format!("{at} ({left} s left)"),
    }
}
