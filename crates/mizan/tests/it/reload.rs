//! Reload: by signal, command and file change; what it changes and what it must leave alone.

use crate::support::*;
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A configuration that says its number at `/number`.
fn numbered(number: usize, backends: &[Backend]) -> String {
    let addresses: Vec<_> = backends.iter().map(Backend::address).collect();
    format!(
        "{}\n[[route]]\npath = \"/number\"\nrespond = {{ status = 200, body = \"{number}\" }}\n",
        config("", "policy = \"round_robin\"", &addresses)
    )
}

fn wait_for_number(mizan: &Mizan, number: usize) {
    let number = number.to_string();
    eventually(PATIENCE, "the new configuration is in force", || {
        mizan.get("/number").text() == number
    });
}

#[test]
fn a_hundred_reloads_under_load_fail_nothing() {
    let _alone = alone();
    let backends = ["a", "b", "c"].map(Backend::healthy);
    let mizan = Mizan::start(&numbered(0, &backends));
    let load = Load::start(mizan.address(), Plan::default());
    load.wait_for(100);
    for number in 1..=100 {
        mizan.write_config(&numbered(number, &backends));
        mizan.signal(Signal::HUP);
        wait_for_number(&mizan, number);
    }
    load.stop().expect_no_failure();
}

#[test]
fn a_connection_outlives_a_reload_and_its_next_request_meets_the_new_configuration() {
    let backends = [Backend::healthy("a")];
    let mizan = Mizan::start(&numbered(1, &backends));
    let mut client = mizan.client();
    assert_eq!(client.get("/number").text(), "1");
    mizan.write_config(&numbered(2, &backends));
    mizan.signal(Signal::HUP);
    wait_for_number(&mizan, 2);
    assert_eq!(client.get("/number").text(), "2");
}

#[test]
fn a_request_in_flight_is_finished_as_it_began() {
    let backend = Backend::start(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")?;
        exchange.some_of_body(1)?;
        exchange.send("world")?;
        Ok(Next::Keep)
    });
    let mizan = Mizan::start(&config("", "", &[backend.address()]));
    let mut client = mizan.client();
    client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\r\n");
    client.read_head();
    assert_eq!(client.read_exactly(5), b"hello");
    mizan.write_config("[[listener]]\nbind = \"{listen}\"\n[[route]]\nrespond = { status = 200, body = \"new\" }\n");
    assert_eq!(mizan.command(&["reload"]).status.code(), Some(0));
    assert_eq!(mizan.get("/").text(), "new");
    client.send("!");
    assert_eq!(client.read_exactly(5), b"world");
}

#[test]
fn a_bad_file_leaves_the_old_configuration_running_and_says_so() {
    let backends = [Backend::healthy("a")];
    let mizan = Mizan::start(&numbered(1, &backends));
    assert_eq!(mizan.command(&["status"]).status.code(), Some(0));
    mizan.write_config(&format!(
        "{}\n[pool.api.health]\nintervall = \"2s\"\n",
        numbered(2, &backends)
    ));
    let reload = mizan.command(&["reload"]);
    let said = String::from_utf8_lossy(&[reload.stdout, reload.stderr].concat()).into_owned();
    assert_eq!(reload.status.code(), Some(2), "{said}");
    assert!(said.contains("intervall"), "{said}");
    assert_eq!(mizan.get("/number").text(), "1");
    eventually(PATIENCE, "the log names the mistake", || {
        mizan.log().contains("intervall")
    });
    assert_eq!(
        mizan.command(&["status"]).status.code(),
        Some(1),
        "status says that the last reload was refused"
    );

    mizan.write_config(&numbered(3, &backends));
    assert_eq!(mizan.command(&["reload"]).status.code(), Some(0));
    assert_eq!(
        mizan.get("/number").text(),
        "3",
        "the command returns when the new one is in force"
    );
    assert_eq!(mizan.command(&["status"]).status.code(), Some(0));
}

#[test]
fn a_key_that_is_read_at_start_only_is_told_and_the_rest_is_applied() {
    let backends = [Backend::healthy("a")];
    let mizan = Mizan::start(&numbered(1, &backends));
    mizan.write_config(&format!("workers = 1\n{}", numbered(2, &backends)));
    let told = "`workers` is read at start only: 1 takes effect with a restart; 2 run now";
    let reload = mizan.command(&["reload", "--json"]);
    assert_eq!(reload.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&reload.stdout).expect("JSON");
    assert_eq!(report["result"], "applied");
    let problem = &report["problems"][0];
    assert_eq!(
        (&problem["severity"], &problem["path"], &problem["message"]),
        (&"warning".into(), &"workers".into(), &told.into())
    );
    assert_eq!(mizan.get("/number").text(), "2");
    eventually(PATIENCE, "the log says so", || mizan.log().contains(told));

    let again = mizan.command(&["reload"]);
    let said = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(said.contains("unchanged") && said.contains(told), "{said}");
    let status = mizan.command(&["status", "--json"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        status.contains(told) && status.contains("\"workers\": 2"),
        "{status}"
    );
}

#[test]
fn a_reload_whose_listener_or_log_cannot_be_opened_says_what_and_why() {
    let backends = [Backend::healthy("a")];
    let one = numbered(1, &backends);
    let mizan = Mizan::start(&one);
    let refusal = |config: &str| {
        mizan.write_config(config);
        let reload = mizan.command(&["reload"]);
        assert_eq!(reload.status.code(), Some(2));
        String::from_utf8_lossy(&[reload.stdout, reload.stderr].concat()).into_owned()
    };
    let bound = std::net::TcpListener::bind("127.0.0.1:0").expect("the loopback");
    let taken = bound.local_addr().expect("it is bound");
    let said = refusal(&format!("[[listener]]\nbind = \"{taken}\"\n{one}"));
    assert!(
        said.contains(&format!("cannot listen on {taken}")) && said.contains("in use"),
        "{said}"
    );
    let said = refusal(&format!("{one}[log]\naccess = \"/nowhere/access.log\"\n"));
    assert!(
        said.contains("access log") && said.contains("No such file"),
        "{said}"
    );
    assert_eq!(mizan.get("/number").text(), "1");
}

#[test]
fn one_bad_edit_that_is_read_twice_is_logged_once() {
    let backends = [Backend::healthy("a")];
    let mizan = Mizan::start(&numbered(1, &backends));
    let times = |word: &str| mizan.log().matches(word).count();
    mizan.write_config("nonsense = 1\n");
    assert_eq!(mizan.command(&["reload"]).status.code(), Some(2));
    assert_eq!(mizan.command(&["reload"]).status.code(), Some(2));
    eventually(PATIENCE, "both refusals are in the log", || {
        times("reload refused again") == 1
    });
    assert_eq!(times("unknown key `nonsense`"), 1, "{}", mizan.log());

    mizan.write_config("nonsense = 2\n");
    assert_eq!(mizan.command(&["reload"]).status.code(), Some(2));
    eventually(PATIENCE, "another bad edit is logged anew", || {
        times("unknown key `nonsense`") == 2
    });
}

#[test]
fn a_changed_file_is_loaded_by_itself() {
    let backends = [Backend::healthy("a")];
    let watching = |number| format!("{}[reload]\nwatch = true\n", numbered(number, &backends));
    let mizan = Mizan::start(&watching(1));
    mizan.write_config(&watching(2));
    wait_for_number(&mizan, 2);
}

#[test]
fn a_listener_is_added_and_taken_away_while_the_other_stays() {
    let backend = Backend::healthy("a");
    let one = config("", "", &[backend.address()]);
    let two = format!("[[listener]]\nbind = \"{{listen2}}\"\n{one}");
    let mizan = Mizan::start(&one);
    let mut kept = mizan.client();
    assert_eq!(kept.get("/").status, 200);
    assert!(Client::try_connect(mizan.address2()).is_err());

    mizan.write_config(&two);
    mizan.signal(Signal::HUP);
    eventually(PATIENCE, "the new listener answers", || {
        Client::try_connect(mizan.address2()).is_ok()
    });
    let mut leaving = Client::connect(mizan.address2());
    assert_eq!(leaving.get("/").status, 200);
    assert_eq!(kept.get("/").status, 200);

    mizan.write_config(&one);
    mizan.signal(Signal::HUP);
    eventually(PATIENCE, "the old listener is closed", || {
        Client::try_connect(mizan.address2()).is_err()
    });
    if !leaving.is_closed() {
        let response = leaving.get("/");
        assert_eq!(
            response.status, 200,
            "a connection of a listener that went is answered, then closed"
        );
        assert!(response.head.connection_has("close"), "{:?}", response.head);
    }
    assert_eq!(kept.get("/").status, 200);
}

#[test]
fn connections_in_the_accept_queue_of_a_listener_that_goes_are_served() {
    let backend = Backend::healthy("a");
    let one = config("", "", &[backend.address()]);
    let two = format!("[[listener]]\nbind = \"{{listen2}}\"\n{one}");
    let mizan = Mizan::start(&two);
    mizan.write_config(&one);
    let mut queued = mizan.queue_requests(mizan.address2(), 50);
    mizan.signal(Signal::HUP);
    mizan.signal(Signal::CONT);
    for client in &mut queued {
        assert_eq!(client.read().status, 200);
    }
    eventually(PATIENCE, "the old listener is closed", || {
        Client::try_connect(mizan.address2()).is_err()
    });
}

#[test]
fn what_an_operator_drained_stays_drained_over_a_reload() {
    let backends = ["a", "b"].map(Backend::healthy);
    let mizan = Mizan::start(&numbered(1, &backends));
    let drained = format!("api/{}", backends[0].address());
    assert_eq!(
        mizan.command(&["drain", &drained, "--wait"]).status.code(),
        Some(0)
    );
    mizan.write_config(&numbered(2, &backends));
    mizan.signal(Signal::HUP);
    wait_for_number(&mizan, 2);
    let before = backends[0].requests();
    for _ in 0..40 {
        assert_eq!(mizan.get("/").field("x-backend"), Some("b"));
    }
    assert_eq!(backends[0].requests(), before);
    assert_eq!(mizan.command(&["undrain", &drained]).status.code(), Some(0));
    eventually(PATIENCE, "it gets traffic again", || {
        mizan.get("/").field("x-backend") == Some("a")
    });
}

#[test]
fn an_ejected_backend_stays_ejected_over_a_reload() {
    let bad = Backend::start(|_| Ok(Next::Reset));
    let backends = [bad, Backend::healthy("b")];
    let mizan = Mizan::start(&numbered(1, &backends));
    eventually(PATIENCE, "the bad backend is ejected", || {
        assert_eq!(mizan.get("/").status, 200);
        mizan.log().contains("is ejected")
    });
    let log = mizan.log();
    let line = log.lines().find(|line| line.contains("is ejected"));
    assert!(
        line.is_some_and(|line| line.contains("WARN")),
        "what degrades service is a warning: {line:?}"
    );
    let before = backends[0].requests();
    mizan.write_config(&numbered(2, &backends));
    mizan.signal(Signal::HUP);
    wait_for_number(&mizan, 2);
    (0..40).for_each(|_| assert_eq!(mizan.get("/").status, 200));
    assert_eq!(
        backends[0].requests(),
        before,
        "the reload forgot the ejection"
    );
}

#[test]
fn backends_that_go_and_come_with_a_reload_get_traffic_only_while_they_are_there() {
    let backends = ["a", "b"].map(Backend::healthy);
    let mizan = Mizan::start(&numbered(1, &backends[..1]));
    assert_eq!(mizan.get("/").field("x-backend"), Some("a"));
    mizan.write_config(&numbered(2, &backends[1..]));
    assert_eq!(mizan.command(&["reload"]).status.code(), Some(0));
    let before = backends[0].requests();
    (0..20).for_each(|_| assert_eq!(mizan.get("/").field("x-backend"), Some("b")));
    assert_eq!(backends[0].requests(), before);
    eventually(
        Duration::from_secs(10),
        "idle connections to a backend that went are closed",
        || backends[0].open() == 0,
    );
}

/// What is in an accept queue has a connection: it is served when its listener goes, also if that was at its limit.
#[test]
fn connections_queued_at_the_limit_of_a_listener_that_goes_are_served() {
    let backend = Backend::healthy("a");
    let rest = config("", "", &[backend.address()]);
    let two =
        format!("workers = 1\n[[listener]]\nbind = \"{{listen2}}\"\nconnections_max = 1\n{rest}");
    let mizan = Mizan::start(&two);
    let mut first = Client::connect(mizan.address2());
    assert_eq!(first.get("/").status, 200);
    let mut queued: Vec<_> = (0..5).map(|_| Client::connect(mizan.address2())).collect();
    for client in &mut queued {
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    }
    mizan.write_config(&format!("workers = 1\n{rest}"));
    mizan.signal(Signal::HUP);
    for client in &mut queued {
        assert_eq!(client.read().status, 200);
    }
}

/// Clients that connect without pause to a listener that comes and goes: whoever got a connection gets an answer.
#[test]
fn a_connection_made_as_its_listener_closes_is_served() {
    let _alone = alone();
    const ROUNDS: usize = 60;
    let backend = Backend::healthy("a");
    let rest = config("", "", &[backend.address()]);
    let two = format!("[[listener]]\nbind = \"{{listen2}}\"\n{rest}");
    let mizan = Mizan::start(&two);
    let address = mizan.address2();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut answered = 0;
                    while !done.load(Ordering::SeqCst) {
                        if let Ok(mut client) = Client::try_connect(address) {
                            assert_eq!(client.get("/").status, 200);
                            answered += 1;
                        }
                    }
                    answered
                })
            })
            .collect();
        for _ in 0..ROUNDS {
            mizan.write_config(&rest);
            assert!(mizan.command(&["reload"]).status.success());
            mizan.write_config(&two);
            assert!(mizan.command(&["reload"]).status.success());
            eventually(PATIENCE, "it is open again", || {
                Client::try_connect(address).is_ok()
            });
        }
        done.store(true, Ordering::SeqCst);
        for client in clients {
            assert!(client.join().expect("no connection was lost") > 0);
        }
    });
}

/// A FIFO that nobody writes to blocks whoever opens it, as a dead network file system does.
#[test]
fn a_configuration_that_cannot_be_read_holds_up_no_signal_and_no_operator() {
    for watch in [false, true] {
        cannot_be_read(watch);
    }
}

fn cannot_be_read(watch: bool) {
    let backend = Backend::healthy("a");
    let mut mizan = Mizan::start(&format!(
        "{}[reload]\nwatch = {watch}\n",
        config("", "", &[backend.address()])
    ));
    let path = mizan.config_path();
    std::fs::remove_file(&path).expect("it is there");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
        .expect("a FIFO");
    mizan.signal(Signal::HUP);
    // Longer than a watched file is left alone.
    pass(Duration::from_millis(500));
    for _ in 0..3 {
        assert!(mizan.command(&["status"]).status.success());
    }
    assert_eq!(mizan.get("/").status, 200);
    mizan.signal(Signal::TERM);
    assert_eq!(mizan.wait(Duration::from_secs(5)).code(), Some(0));
}
