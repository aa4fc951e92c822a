//! What `mizan lab` prints: where everything is, what runs, and the drill to type.

use super::stage::Stage;
use std::io::{self, Write};

/// Prints it. `wanted` is the port that was asked for.
pub(super) fn print(stage: &Stage, wanted: u16, out: &mut dyn Write) -> io::Result<()> {
    let setup = &stage.setup;
    if setup.proxy.port() != wanted {
        let port = setup.proxy.port();
        writeln!(out, "Port {wanted} is taken: the proxy has {port}.")?;
    }
    writeln!(out, "proxy     http://{}", setup.proxy)?;
    for backend in &stage.backends {
        let id = backend.id().map(|id| format!("process {id}"));
        let (name, address) = (&backend.name, backend.address);
        writeln!(
            out,
            "{name:<8}  http://{address}   {}",
            id.unwrap_or_default()
        )?;
    }
    writeln!(out, "metrics   http://{}/metrics", setup.metrics)?;
    writeln!(out, "admin     {}", setup.admin.display())?;
    let config = stage.config_path();
    writeln!(out, "config    {}", config.display())?;
    writeln!(
        out,
        "\nIt runs this; save a change to the file and it is in force:\n"
    )?;
    for line in setup.to_toml().lines() {
        writeln!(out, "    {line}")?;
    }
    writeln!(out, "{}", steps(stage))?;
    out.flush()
}

fn steps(stage: &Stage) -> String {
    // The one that is killed, and the one that is slow: the same if there is only one.
    let victim = &stage.backends[1.min(stage.backends.len() - 1)];
    let slow = &stage.backends[stage.backends.len() - 1];
    // This very binary: it need not be on the PATH.
    let mizan =
        std::env::current_exe().map_or_else(|_| "mizan".into(), |path| path.display().to_string());
    format!(
        r#"
The drill, for a second terminal:

1. Rotation
     for i in 1 2 3 4 5 6; do curl -si {proxy} | grep -i '^x-upstream'; done
   Each backend in turn.

2. Kill one
     kill -9 {id}
     for i in 1 2 3 4 5 6; do curl -si {proxy} | grep -iE '^http|^x-upstream'; done
     {mizan} status --admin {admin}
   200 each time and {port} is gone; the status says `refused`, since nothing listens there.

3. Bring it back
     {mizan} lab-backend --port {port} --name {name} &
     sleep 2
     for i in 1 2 3 4 5 6; do curl -si {proxy} | grep -i '^x-upstream'; done
   It is in again after two probes that passed: within about a second, hence the wait.

4. Least connections, and one slow backend
     sed -i 's/^policy = .*/policy = "least_connections"/' {config}
     curl -d '{{"delay_ms": 500}}' http://{slow}/control
     sleep 1
     for i in $(seq 40); do curl -si {proxy} | grep -i '^x-upstream' & sleep 0.05; done | sort | uniq -c
     curl -d '{{"delay_ms": 0}}' http://{slow}/control
   {slow} gets fewer than the others. (A change of the file is in force after 200 ms of quiet, hence the wait.)

5. Consistent hash by client address
     sed -i 's/^policy = .*/policy = "consistent_hash"\nhash_key = "client_address"/' {config}
     sleep 1
     for i in $(seq 20); do curl -si --interface 127.0.1.$i {proxy} | grep -i '^x-upstream'; done
   The same list each time. Kill one as in 2: only its own clients move, and to different others.

6. Panic
     curl -d '{{"healthy": false}}' http://{first}/control   # and another one, so that most are ill
     sleep 2
     {mizan} status --admin {admin}
   Fewer than half pass their probe (two in a row must fail, hence the wait): health is ignored, and all of
   them go on answering.

Ctrl-C drains the proxy and stops everything. `{mizan} lab --drill` plays all this by itself.
"#,
        proxy = stage.setup.proxy,
        admin = stage.setup.admin.display(),
        config = stage.config_path().display(),
        id = victim.id().unwrap_or_default(),
        port = victim.address.port(),
        name = victim.name,
        slow = slow.address,
        first = stage.backends[0].address,
    )
}
