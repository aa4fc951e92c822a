//! Backups and zones, over real sockets.

use crate::support::*;
use serde_json::Value;

/// What `mizan status --json` says of the only pool.
fn pool(mizan: &Mizan) -> Value {
    let output = mizan.command(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    status["pools"][0].clone()
}

/// Who answers the next request.
fn answers(mizan: &Mizan) -> String {
    let text = mizan.get("/").text();
    text.split(':').next().unwrap_or_default().to_owned()
}

fn state(mizan: &Mizan, index: usize) -> String {
    pool(mizan)["backends"][index]["state"]
        .as_str()
        .expect("a word")
        .to_owned()
}

#[test]
fn a_backup_takes_over_without_a_lost_request_and_hands_back() {
    let mut main = Backend::healthy("main");
    let spare = Backend::healthy("spare");
    let (first, second) = (main.address(), spare.address());
    let lines = format!(
        "backends = [\"{first}\", {{ address = \"{second}\", backup = true }}]\n\
         adaptive = {{ slow_start = \"100ms\" }}"
    );
    let text = config("", &lines, &[]).replace("backends = []", "");
    let mizan = Mizan::start(&text);
    for _ in 0..50 {
        assert_eq!(answers(&mizan), "main");
    }
    assert_eq!(spare.requests(), 0);
    assert_eq!(state(&mizan, 1), "standby");
    let shown = String::from_utf8(mizan.command(&["status"]).stdout).expect("text");
    assert!(
        shown.contains("tier 0 gets 100 % of the requests"),
        "{shown}"
    );
    assert!(
        shown.contains("asked where tier 0 cannot bear the traffic"),
        "{shown}"
    );

    main.stop();
    for _ in 0..50 {
        assert_eq!(answers(&mizan), "spare");
    }
    assert_eq!(state(&mizan, 1), "usable");
    assert!(
        mizan.log().contains("traffic moved: tier 1 gets 100 %"),
        "{}",
        mizan.log()
    );

    main.restart();
    eventually(PATIENCE, "the first is asked again", || {
        (0..20).all(|_| answers(&mizan) == "main")
    });
}

#[test]
fn a_reload_brings_a_zone_and_takes_it_away() {
    let near = Backend::healthy("near");
    let far = Backend::healthy("far");
    let lines = format!(
        "policy = \"round_robin\"\n\
         backends = [{{ address = \"{}\", zone = \"a\" }}, {{ address = \"{}\", zone = \"b\" }}]",
        near.address(),
        far.address()
    );
    let plain = config("", &lines, &[]).replace("backends = []", "");
    let mizan = Mizan::start(&plain);
    let heard = |mizan: &Mizan| -> Vec<String> { (0..10).map(|_| answers(mizan)).collect() };
    assert!(heard(&mizan).contains(&"far".to_owned()));
    mizan.write_config(&format!("{plain}\n[node]\nzone = \"a\"\n"));
    assert!(mizan.command(&["reload"]).status.success());
    assert_eq!(heard(&mizan), vec!["near"; 10]);
    assert_eq!(state(&mizan, 1), "standby");
    mizan.write_config(&plain);
    assert!(mizan.command(&["reload"]).status.success());
    assert!(heard(&mizan).contains(&"far".to_owned()));
    assert_eq!(state(&mizan, 1), "usable");
}
