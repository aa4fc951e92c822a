//! Each rule fails on what it forbids and passes what it permits.

use super::explained;
use super::rules::{self, FILE_LINES_MAX, FUNCTION_LINES_MAX, Offence};
use super::source::Source;

const PROXY: &str = "crates/mizan/src/proxy.rs";
const DEEP: &str = "crates/mizan/src/proxy/h1/head.rs";

fn lines(rule: fn(&Source) -> Vec<Offence>, path: &str, text: &str) -> Vec<usize> {
    rule(&Source::new(path, text))
        .iter()
        .map(|offence| offence.line)
        .collect()
}

#[test]
fn a_forbidden_direction_is_found_however_it_is_written() {
    let forbidden = [
        "use crate::config::compile;",
        "pub use crate::config;",
        "use crate::{clock, config::compile};",
        "use crate::{\n    snapshot::{Pool, route::Route},\n    config,\n};",
        "fn f() { crate::config::compile(); }",
        "use super::config;",
        "mod inner { use super::super::config; }",
        "macro_rules! m { () => { $crate::config::compile() } }",
        "use crate::*;",
        "fn f(x: &'static str) { let q = '\"'; crate::config::compile() }",
    ];
    for text in forbidden {
        assert_eq!(lines(rules::directions, PROXY, text).len(), 1, "{text}");
    }
    assert_eq!(
        lines(rules::directions, DEEP, "use super::super::super::config;").len(),
        1
    );
    assert_eq!(
        lines(
            rules::directions,
            PROXY,
            "use crate::{\n    clock,\n    admin,\n};"
        ),
        [3]
    );
}

#[test]
fn a_permitted_direction_passes() {
    let permitted = [
        "use crate::snapshot::{Pool, config};",
        "use crate::{clock, snapshot::route::Route, telemetry};",
        "use super::snapshot;",
        "mod inner { use super::*; }",
        "pub(crate) fn f() {}",
        "// use crate::config;",
        "/* use crate::config; /* nested */ use crate::admin; */",
        "/// See [`crate::config`].",
        "const X: &str = \"crate::config\";",
        "const X: &str = r#\"\"crate::config\"\"#;",
        "const X: &[u8] = b\"\\\"crate::config\";",
        "use crate::proxy::h1;",
        "use std::config::x;",
    ];
    for text in permitted {
        assert_eq!(lines(rules::directions, PROXY, text), [0usize; 0], "{text}");
    }
    assert_eq!(
        lines(rules::directions, DEEP, "use super::super::config;"),
        [0usize; 0]
    );
}

#[test]
fn each_module_has_its_own_directions() {
    let forbidden = [
        ("snapshot", "clock"),
        ("snapshot/pool", "telemetry"),
        ("clock", "telemetry"),
        ("telemetry", "admin"),
        ("prober", "proxy"),
        ("proxy", "prober"),
        ("config", "proxy"),
        ("admin", "proxy"),
        ("admin/api", "app"),
        ("app", "cli"),
        ("app", "lab"),
        ("cli", "proxy"),
        ("lab", "proxy"),
        ("store", "config"),
        ("unheard_of", "snapshot"),
    ];
    let permitted = [
        ("cli", "app"),
        ("cli/check", "config"),
        ("lab", "app"),
        ("app", "proxy"),
        ("admin", "config"),
        ("config/compile", "snapshot"),
        ("prober", "clock"),
        ("telemetry", "snapshot"),
        ("telemetry/log", "clock"),
        ("store", "telemetry"),
        ("lib", "anything"),
    ];
    for (table, expected) in [(&forbidden[..], 1), (&permitted[..], 0)] {
        for (file, module) in table {
            let path = format!("crates/mizan/src/{file}.rs");
            let found = lines(rules::directions, &path, &format!("use crate::{module};")).len();
            assert_eq!(found, expected, "{file} → {module}");
        }
    }
    assert_eq!(
        lines(
            rules::directions,
            "crates/mizan/src/main.rs",
            "use mizan::app;"
        )
        .len(),
        1
    );
    assert_eq!(
        lines(
            rules::directions,
            "crates/mizan/src/main.rs",
            "use mizan::cli;"
        )
        .len(),
        0
    );
    assert_eq!(
        lines(rules::directions, PROXY, "use mizan_sim::World;").len(),
        1
    );
    assert_eq!(
        lines(
            rules::directions,
            "crates/mizan/src/cli/simulate.rs",
            "use mizan_sim::World;"
        )
        .len(),
        0
    );
}

#[test]
fn long_files_and_mod_rs_are_found() {
    assert_eq!(
        lines(rules::files, PROXY, &"\n".repeat(FILE_LINES_MAX)).len(),
        0
    );
    assert_eq!(
        lines(rules::files, PROXY, &"\n".repeat(FILE_LINES_MAX + 1)).len(),
        1
    );
    assert_eq!(
        lines(rules::files, "crates/mizan/src/proxy/mod.rs", "").len(),
        1
    );
    assert_eq!(
        lines(rules::files, "crates/mizan/src/proxy/model.rs", "").len(),
        0
    );
}

#[test]
fn a_function_is_measured_in_lines_of_code() {
    let function = |body: &str| {
        format!(
            "impl X {{\n    fn long<T: Fn(u8)>(&self, a: [u8; 2]) -> Y\n    {{\n{body}    }}\n}}\n"
        )
    };
    let full = "        step();\n".repeat(FUNCTION_LINES_MAX);
    assert_eq!(
        lines(rules::functions, PROXY, &function(&full)),
        [0usize; 0]
    );
    assert_eq!(
        lines(
            rules::functions,
            PROXY,
            &function(&format!("{full}\n    // a reason\n"))
        ),
        [0usize; 0]
    );
    assert_eq!(
        lines(
            rules::functions,
            PROXY,
            &function(&format!("{full}        one_more();\n"))
        ),
        [2]
    );
    let no_body = format!("trait T {{ fn f(&self); }}\ntype F = fn(u8);\n{full}");
    assert_eq!(lines(rules::functions, PROXY, &no_body), [0usize; 0]);
}

#[test]
fn clock_and_entropy_are_found() {
    let forbidden = [
        "let a = Instant::now();",
        "let a = std::time::SystemTime::now();",
        "tokio::time::Instant::now()",
        "since.elapsed()",
        "fastrand::u64(..)",
        "rand::random()",
    ];
    for text in forbidden {
        assert_eq!(lines(rules::clock_and_random, PROXY, text), [1], "{text}");
    }
    let permitted = "clock::now(); // Instant::now()\nlet elapsed = now - since; operand::x(); \"rand::random()\"";
    assert_eq!(
        lines(rules::clock_and_random, PROXY, permitted),
        [0usize; 0]
    );
}

#[test]
fn effects_in_core_are_found() {
    for text in [
        "async fn f() {}",
        "x.await",
        "use std::fs;",
        "std::env::var(x)",
        "use std::net::TcpStream;",
    ] {
        assert_eq!(
            lines(rules::effects, "crates/core/src/pool.rs", text).len(),
            1,
            "{text}"
        );
    }
    assert_eq!(
        lines(
            rules::effects,
            "crates/core/src/pool.rs",
            "use std::net::SocketAddr;"
        ),
        [0usize; 0]
    );
}

#[test]
fn a_sleep_is_found_in_tests_and_only_there() {
    let sleep = "fn wait() { tokio::time::sleep(second); }";
    assert_eq!(
        lines(rules::sleeps, "crates/mizan/tests/it/drain.rs", sleep),
        [1]
    );
    assert_eq!(
        lines(rules::sleeps, "crates/mizan/src/proxy/tests.rs", sleep),
        [1]
    );
    assert_eq!(lines(rules::sleeps, PROXY, sleep), [0usize; 0]);
    let inline = format!("{sleep}\n#[cfg(test)]\nmod tests {{\n    {sleep}\n}}\n{sleep}");
    assert_eq!(lines(rules::sleeps, PROXY, &inline), [4]);
    assert_eq!(
        lines(
            rules::sleeps,
            PROXY,
            &format!("#[cfg(test)]\nmod tests;\n{sleep}")
        ),
        [0usize; 0]
    );
}

#[test]
fn unfinished_code_is_found() {
    for text in [
        "todo!()",
        "unimplemented!(\"x\")",
        "dbg!(x)",
        "#[ignore]",
        "#[ignore = \"slow\"]",
    ] {
        assert_eq!(lines(rules::unfinished, PROXY, text), [1], "{text}");
    }
    assert_eq!(
        lines(
            rules::unfinished,
            PROXY,
            "// todo!()\nlet todo = ignore(x);"
        ),
        [0usize; 0]
    );
}

#[test]
fn unsafe_is_found() {
    assert_eq!(
        lines(rules::unsafe_code, PROXY, "fn f() {\n    unsafe { g() }\n}"),
        [2]
    );
    assert_eq!(
        lines(
            rules::unsafe_code,
            PROXY,
            "#![forbid(unsafe_code)] // unsafe"
        ),
        [0usize; 0]
    );
}

#[test]
fn a_name_from_outside_the_lexicon_is_found() {
    for text in [
        "struct ClusterMap;",
        "fn pick_endpoint() {}",
        "let mut strategy = 1;",
        "mod util;",
        "fn get_pool() {}",
    ] {
        assert_eq!(lines(rules::names, PROXY, text), [1], "{text}");
    }
    let permitted = "fn utilisation() {}\nstruct Pool;\nlet x = map.get_mut(endpoint_of_theirs());\nfn get(&self) {}";
    assert_eq!(lines(rules::names, PROXY, permitted), [0usize; 0]);
}

#[test]
fn a_file_that_no_mod_line_reaches_is_found() {
    let files = |lib: &str| {
        [
            Source::new("crates/mizan/src/lib.rs", lib),
            Source::new("crates/mizan/src/main.rs", ""),
            Source::new("crates/mizan/src/proxy.rs", "mod h1;"),
            Source::new("crates/mizan/src/proxy/h1.rs", ""),
            Source::new("crates/mizan/tests/it/main.rs", ""),
        ]
    };
    assert_eq!(rules::unreached(&files("pub mod proxy;")), []);
    let found = rules::unreached(&files("// mod proxy;"));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, "crates/mizan/src/proxy.rs");
}

#[test]
fn a_dependency_without_a_row_is_found() {
    let table =
        "| crate | instead of |\n| `serde`, `toml` | our own reader |\n| `x` | what `tokio` does |";
    assert!(explained(table, "toml"));
    assert!(!explained(table, "tokio"));
}
