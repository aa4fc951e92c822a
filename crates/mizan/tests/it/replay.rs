//! What `mizan serve` logs, `mizan simulate --replay` reads.

use crate::support::*;
use serde_json::Value;
use std::process::Command;

#[test]
fn the_log_of_an_instance_is_played_again() {
    let backends = ["a", "b"].map(Backend::healthy);
    let addresses = backends.each_ref().map(Backend::address);
    let logged = "[log]\naccess = \"{dir}/access.log\"\n";
    let mizan = Mizan::start(&format!(
        "{logged}{}",
        config("", "policy = \"round_robin\"", &addresses)
    ));
    for _ in 0..20 {
        assert_eq!(mizan.get("/").status, 200);
    }
    let log = mizan.directory().join("access.log");
    eventually(PATIENCE, "all requests are logged", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.matches('\n').count() == 20)
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_mizan"));
    command.args(["simulate", "--policy", "round_robin", "--json", "--replay"]);
    let output = command.arg(&log).output().expect("mizan runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["counts"]["requests"], 20);
    assert_eq!(report["counts"]["bad"], 0);
    assert_eq!(report["recorded_backends"], 2);
    assert_eq!(
        (
            &report["recorded"]["requests"],
            &report["played"][0]["requests"]
        ),
        (&20.into(), &20.into())
    );
    assert_eq!(report["recorded"]["busiest"], 1.0, "in turn");
}
