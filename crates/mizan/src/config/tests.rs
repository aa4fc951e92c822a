use super::*;

fn compile_text(text: &str) -> Result<(Snapshot, Vec<Diagnostic>), Vec<Diagnostic>> {
    let sources = [Source::new("lb.toml", text)];
    compile(
        &sources,
        None,
        &|_| Err(io::Error::other("no names here")),
        Instant::from_nanos(0),
        1,
    )
}
#[test]
fn scratch() {
    std::fs::write(
        "/tmp/t/schema.json",
        serde_json::to_string_pretty(&json_schema()).unwrap(),
    )
    .unwrap();
    for text in [
        "[[listener]]\nbind = \"0.0.0.0:8000\"\n\n[[route]]\npool = \"api\"\n\n[pool.api]\npolicy = \"power_of_two\"\nhealth = { path = \"/healthz\", interval = \"2s\", timeout = \"1s\", fall = 3, rise = 2 }\nbackends = [\"10.0.0.1:8080\", { address = \"10.0.0.2:8080\", weight = 2, version = \"v2\" }]\n",
        "[[listener]]\nbind = \"0.0.0.0\"\n\n[[route]]\npol = \"api\"\n\n[pool.api]\npolicy = \"roundrobin\"\nhealth = { path = \"/healthz\", intervall = \"2s\", timeout = 1, fall = 0, rise = \"2\" }\nbackends = [\"10.0.0.1\", { address = \"10.0.0.2:8080\", weight = -2, version = \"v2\" }, \"a:1\", \"a:1\"]\n",
    ] {
        let sources = [Source::new("lb.toml", text)];
        match compile_text(text) {
            Ok((s, w)) => {
                println!("{s:#?}");
                for w in w {
                    println!("{}", w.render(&sources));
                }
            }
            Err(e) => {
                for w in e {
                    println!("{}", w.render(&sources));
                }
            }
        }
    }
}
