use super::client::ClientError;
use super::output::Exit;
use super::{Cli, Command};
use crate::admin::fixture::{Running, TOKEN};
use crate::admin::view::state_of;
use crate::admin::view::{PoolView, StatusView};
use crate::telemetry::ReloadResult;
use clap::{CommandFactory, Parser};
use mizan_core::availability::{Admin, Availability};
use mizan_core::pool::{Claim, Pick};
use tokio::task::JoinHandle;

fn parse(arguments: &[&str]) -> Cli {
    let all = std::iter::once("mizan").chain(arguments.iter().copied());
    Cli::try_parse_from(all).unwrap_or_else(|error| panic!("{error}"))
}

/// Starts a command that talks to an instance, on a thread of its own as in life.
fn start(running: &Running, arguments: &[&str]) -> JoinHandle<Result<Exit, ClientError>> {
    let socket = running.socket.display().to_string();
    let cli = parse(&[arguments, &["--admin", &socket]].concat());
    tokio::task::spawn_blocking(move || talk(cli))
}

async fn run(running: &Running, arguments: &[&str]) -> Result<Exit, ClientError> {
    start(running, arguments).await.expect("no panic")
}

fn talk(cli: Cli) -> Result<Exit, ClientError> {
    match cli.command {
        Command::Status(command) => command.run(),
        Command::Drain(command) => command.run(),
        Command::Undrain(command) => command.run(),
        Command::Reload(command) => command.run(),
        command => panic!("{command:?} talks to nobody"),
    }
}

fn usable(running: &Running) -> Vec<bool> {
    running.state.current.load().pools["api"]
        .core
        .backends()
        .iter()
        .map(|backend| backend.is_usable())
        .collect()
}

fn claim(running: &Running) -> Claim {
    running.state.current.load().pools["api"]
        .core
        .pick(&Pick::default())
        .expect("a backend")
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn the_help_of_status_has_every_word_that_it_shows_a_state_by() {
    let command = Cli::command();
    let status = command.find_subcommand("status").expect("a command");
    let help = status.clone().render_long_help().to_string();
    let availabilities = [
        Availability::Usable,
        Availability::UsedInPanic,
        Availability::Withdrawn(Admin::Drain),
        Availability::Withdrawn(Admin::Maintenance),
        Availability::Refused,
        Availability::Ejected,
        Availability::Down,
        Availability::Standby,
        Availability::Outside,
    ];
    let words = availabilities.map(state_of);
    for word in words.iter().map(String::as_str).chain(["degraded"]) {
        assert!(
            help.contains(&format!("\n  {word} ")),
            "no {word} in {help}"
        );
    }
}

#[test]
fn every_help_has_an_example_and_an_exit_status_where_it_matters() {
    for command in Cli::command()
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        let help = command.clone().render_long_help().to_string();
        assert!(help.contains("Example"), "{}: {help}", command.get_name());
        assert!(
            help.contains(&format!("mizan {}", command.get_name())),
            "{}: {help}",
            command.get_name()
        );
        assert!(
            help.contains("\nExit status:\n  0  "),
            "{}: {help}",
            command.get_name()
        );
    }
}

/// What stands in columns must not be broken by a terminal of the usual width.
#[test]
fn no_line_of_a_help_is_wider_than_a_terminal() {
    let root = Cli::command();
    for command in std::iter::once(&root).chain(root.get_subcommands()) {
        let text = command.get_after_help().map(ToString::to_string);
        for line in text.unwrap_or_default().lines() {
            assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
        }
    }
}

#[tokio::test]
async fn drain_and_undrain_change_who_is_picked() {
    let running = Running::start();
    assert_eq!(
        run(&running, &["drain", "api/10.0.0.1:8000", "--wait"])
            .await
            .expect("drained"),
        Exit::Done
    );
    assert_eq!(usable(&running), [false, true]);
    assert_eq!(
        run(&running, &["undrain", "api/10.0.0.1:8000", "--json"])
            .await
            .expect("back"),
        Exit::Done
    );
    assert_eq!(usable(&running), [true, true]);
    running.stop().await;
}

#[tokio::test]
async fn a_waiting_drain_ends_when_the_last_request_does() {
    let running = Running::start();
    let held = claim(&running);
    let name = format!("api/{}", held.backend().key());
    let late = run(&running, &["drain", &name, "--wait", "--timeout", "0s"])
        .await
        .expect("an answer");
    assert_eq!(late, Exit::NotConverged);
    assert_eq!(
        run(&running, &["undrain", &name]).await.expect("back"),
        Exit::Done
    );
    let waiting = start(&running, &["drain", &name, "--wait"]);
    while usable(&running) == [true, true] {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished(), "a request is in flight");
    drop(held);
    assert_eq!(
        waiting.await.expect("no panic").expect("drained"),
        Exit::Done
    );
    running.stop().await;
}

#[tokio::test]
async fn what_does_not_exist_is_said() {
    let running = Running::start();
    let error = run(&running, &["drain", "api/10.9.9.9:1"])
        .await
        .expect_err("no such backend");
    assert_eq!(
        (error.exit(), &*error.to_string()),
        (
            Exit::Usage,
            "pool `api` has no backend `10.9.9.9:1`; there are `10.0.0.1:8000` and `10.0.0.1:8001`"
        )
    );
    let error = run(&running, &["undrain", "none/10.0.0.1:8000"])
        .await
        .expect_err("no such pool");
    assert_eq!(
        (error.exit(), &*error.to_string()),
        (
            Exit::Usage,
            "there is no pool `none`; there are `api` and `web`"
        )
    );
    running.stop().await;
}

#[tokio::test]
async fn a_refused_reload_is_seen_in_reload_and_status() {
    let running = Running::start();
    assert_eq!(
        run(&running, &["reload"]).await.expect("an answer"),
        Exit::Done
    );
    assert_eq!(
        run(&running, &["status"]).await.expect("an answer"),
        Exit::Done
    );
    running.control.report.lock().expect("no panic").result = ReloadResult::Refused;
    assert_eq!(
        run(&running, &["reload", "--json"])
            .await
            .expect("an answer"),
        Exit::Usage
    );
    assert_eq!(
        run(&running, &["status", "--json"])
            .await
            .expect("an answer"),
        Exit::Violated
    );
    running.stop().await;
}

#[tokio::test]
async fn without_an_instance_the_status_is_4() {
    let running = Running::start();
    let socket = running.socket.display().to_string();
    let folder = running.stop().await;
    let error = tokio::task::spawn_blocking(move || talk(parse(&["status", "--admin", &socket])));
    let error = error.await.expect("no panic").expect_err("nobody is there");
    assert_eq!(error.exit(), Exit::Unreachable);
    drop(folder);
}

#[tokio::test]
async fn the_client_speaks_tcp_with_the_token() {
    let running = Running::start();
    let address = running.addresses[0].to_string();
    let ask = move |token: Option<&str>| {
        let client =
            super::Client::new(Some(&address), token.map(str::to_owned)).expect("a client");
        client
            .get::<StatusView>("/v1/status")
            .map(|status| status.generation)
    };
    let asked = move || (ask(Some(TOKEN)), ask(None), ask(Some("another")));
    let (with, without, other) = tokio::task::spawn_blocking(asked).await.expect("no panic");
    assert_eq!(with.expect("let in"), 1);
    let kept_out = without.expect_err("kept out");
    assert_eq!(kept_out.exit(), Exit::Usage);
    let text = kept_out.to_string();
    assert!(text.contains("wants its token in MIZAN_TOKEN"), "{text}");
    let text = other.expect_err("kept out").to_string();
    assert!(text.contains("another token than MIZAN_TOKEN"), "{text}");
    running.stop().await;
}

#[tokio::test]
async fn what_is_no_mizan_is_said() {
    let running = Running::start();
    let socket = running.socket.display().to_string();
    let asked = tokio::task::spawn_blocking(move || {
        super::Client::new(Some(&socket), None)
            .expect("a client")
            .get::<PoolView>("/v1/status")
            .map(|_| ())
    });
    let error = asked
        .await
        .expect("no panic")
        .expect_err("a status is no pool");
    assert_eq!(error.exit(), Exit::Unreachable);
    assert!(error.to_string().contains("is not understood"), "{error}");
    running.stop().await;
}
