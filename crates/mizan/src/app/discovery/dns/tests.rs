use super::*;

fn name(text: &str) -> Name {
    Name::from_ascii(text).expect("a name")
}

fn servers(search: &[&str], dots: usize) -> Servers {
    let search = search.iter().map(|domain| name(domain)).collect();
    let server = name_server(([127, 0, 0, 1], 9).into());
    let mut options = ResolverOpts::default();
    options.ndots = dots;
    let config = ResolverConfig::from_parts(None, search, vec![server]);
    Servers::new(config, options).expect("it can be made")
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

#[test]
fn names_stand_for_what_the_search_list_says() {
    let shown = |search: &[&str], dots, text: &str| -> Vec<String> {
        let names = servers(search, dots).candidates(&name(text));
        names.iter().map(Name::to_ascii).collect()
    };
    let search = ["a.test.", "b.test."];
    assert_eq!(
        shown(&search, 1, "app"),
        ["app.a.test.", "app.b.test.", "app."]
    );
    assert_eq!(
        shown(&search, 1, "app.x"),
        ["app.x.", "app.x.a.test.", "app.x.b.test."]
    );
    assert_eq!(
        shown(&search, 5, "app.x"),
        ["app.x.a.test.", "app.x.b.test.", "app.x."]
    );
    assert_eq!(shown(&search, 5, "app.x."), ["app.x."]);
    assert_eq!(shown(&[], 1, "app"), ["app."]);
}

/// What a machine without a usable `/etc/resolv.conf` has.
#[test]
fn without_servers_the_system_is_asked() {
    let resolver = Resolver {
        hosts: Hosts::default(),
        servers: None,
        is_system: true,
    };
    let found = run(resolver.addresses("localhost")).expect("every system knows it");
    assert!(found.found.iter().all(IpAddr::is_loopback), "{found:?}");
    assert_eq!((found.ttl, found.lost), (TTL_MAX, None));
    let lost = run(resolver.services("_http._tcp.app.test"));
    assert!(matches!(lost, Err(Missing::Outage(_))), "{lost:?}");
}

#[test]
fn the_hosts_file_goes_before_all_servers() {
    let mut hosts = Hosts::default();
    let lines = "127.0.0.7 app.test app\n::7 app\n";
    hosts.read_hosts_conf(lines.as_bytes()).expect("it is read");
    let resolver = Resolver {
        hosts,
        servers: None,
        is_system: false,
    };
    let found = |name: &str| run(resolver.addresses(name)).expect("it is there").found;
    let v4: IpAddr = [127, 0, 0, 7].into();
    let v6: IpAddr = "::7".parse().expect("an address");
    assert_eq!(found("app.test"), [v4]);
    assert_eq!(found("APP"), [v4, v6]);
}

#[test]
fn an_answer_holds_as_long_as_its_shortest_record_within_bounds() {
    let record = |ttl| {
        Record::from_rdata(
            name("a.test."),
            ttl,
            RData::A(std::net::Ipv4Addr::LOCALHOST.into()),
        )
    };
    let ttl = |ttls: &[u32]| {
        let records: Vec<Record> = ttls.iter().map(|ttl| record(*ttl)).collect();
        time_to_live(&records).as_secs()
    };
    assert_eq!(ttl(&[20, 7, 9]), 7);
    assert_eq!((ttl(&[0]), ttl(&[86_400]), ttl(&[])), (1, 30, 30));
}
