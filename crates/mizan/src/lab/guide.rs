//! What `mizan lab` prints: where everything is, what runs, and the drill to type.

use super::config::POOL;
use super::stage::Stage;
use std::io::{self, Write};

/// Prints it. `wanted` is the port that was asked for.
pub(super) fn print(stage: &Stage, wanted: u16, out: &mut dyn Write) -> io::Result<()> {
    let setup = &stage.setup;
    if setup.proxy.port() != wanted {
        writeln!(
            out,
            "Port {wanted} is taken: the proxy has {}.",
            setup.proxy.port()
        )?;
    }
    writeln!(out, "proxy     http://{}", setup.proxy)?;
    for backend in &stage.backends {
        let id = backend
            .id()
            .map(|id| format!("process {id}"))
            .unwrap_or_default();
        writeln!(
            out,
            "{:<8}  http://{}   {id}",
            backend.name, backend.address
        )?;
    }
    writeln!(out, "metrics   http://{}/metrics", setup.metrics)?;
    writeln!(out, "admin     {}", setup.admin.display())?;
    let config = stage.config_path();
    writeln!(
        out,
        "config    {}; save a change and it is in force\n",
        config.display()
    )?;
    for line in setup.to_toml().lines() {
        writeln!(out, "    {line}")?;
    }
    steps(stage, out)?;
    writeln!(
        out,
        "\nCtrl-C drains the proxy and stops everything. `mizan lab --drill` plays all this by itself.\n"
    )?;
    out.flush()
}

fn steps(stage: &Stage, out: &mut dyn Write) -> io::Result<()> {
    let proxy = stage.setup.proxy;
    let admin = stage.setup.admin.display();
    let config = stage.config_path();
    let config = config.display();
    // The one that is killed, and the one that is slow: there are two at least, or they are the same.
    let victim = &stage.backends[1.min(stage.backends.len() - 1)];
    let slow = &stage.backends[stage.backends.len() - 1];
    let (name, port) = (&victim.name, victim.address.port());
    let ask = |count: usize, filter: &str| {
        format!("for i in $(seq {count}); do curl -si http://{proxy}/ | grep -iE '{filter}'; done")
    };
    let id = victim.id().unwrap_or_default();

    writeln!(out, "\nThe drill, for a second terminal\n")?;
    writeln!(out, "1. Rotation\n     {}", ask(6, "^x-upstream"))?;
    writeln!(out, "   Each backend in turn.\n")?;
    writeln!(
        out,
        "2. Kill one\n     kill -9 {id}\n     {}",
        ask(6, "^http|^x-upstream")
    )?;
    writeln!(
        out,
        "   200 each time, and {port} is gone.\n     mizan status --admin {admin}"
    )?;
    writeln!(out, "   {name} is down, and why.\n")?;
    writeln!(
        out,
        "3. Bring it back\n     mizan lab-backend --port {port} --name {name} &\n     {}",
        ask(6, "^x-upstream")
    )?;
    writeln!(
        out,
        "   It is in again after two probes that passed, one second.\n"
    )?;
    writeln!(
        out,
        "4. Least connections\n     sed -i 's/^policy = .*/policy = \"least_connections\"/' {config}"
    )?;
    writeln!(
        out,
        "     curl -d '{{\"delay_ms\": 500}}' http://{}/control",
        slow.address
    )?;
    writeln!(
        out,
        "     for i in $(seq 30); do curl -si http://{proxy}/ | grep -i '^x-upstream' & sleep 0.05; done | sort | uniq -c"
    )?;
    writeln!(
        out,
        "   {} is slow now and gets fewer. `\"delay_ms\": 0` mends it.\n",
        slow.name
    )?;
    writeln!(out, "5. Consistent hash by client address")?;
    writeln!(
        out,
        "     sed -i 's/^policy = .*/policy = \"consistent_hash\"\\nhash_key = \"client_address\"/' {config}"
    )?;
    writeln!(
        out,
        "     for i in $(seq 20); do curl -si --interface 127.0.1.$i http://{proxy}/ | grep -i '^x-upstream'; done"
    )?;
    writeln!(
        out,
        "   Twice the same list. Kill one as in 2: only its own clients move.\n"
    )?;
    writeln!(
        out,
        "6. Panic\n     curl -d '{{\"healthy\": false}}' http://{}/control   # and one more",
        stage.backends[0].address
    )?;
    writeln!(
        out,
        "   With fewer than half of pool `{POOL}` passing their probe, health is ignored: all still answer.\n     mizan status --admin {admin}"
    )
}
