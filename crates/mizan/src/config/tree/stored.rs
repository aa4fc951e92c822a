//! Objects of the store, put beside what the files say: one model, two places.

use super::{Entry, List, Node, Place, Value, shown};
use crate::config::Source;
use crate::config::diagnostic::{Diagnostic, Severity};
use mizan_routing::{Chain, Document, Name, Object};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};

type Table = BTreeMap<String, Entry>;

/// What the store's objects say that no key of a file does.
#[derive(Debug, Default)]
pub(in super::super) struct Stored {
    /// What weights are multiplied by in splits, by the pool's name.
    pub(in super::super) factors: BTreeMap<String, f64>,
    /// The regions of the table, where requests may be of any.
    pub(in super::super) regions: BTreeSet<String>,
    /// Pools that are the store's, by their names here.
    pub(in super::super) pools: BTreeSet<String>,
    /// Chains that are.
    pub(in super::super) chains: BTreeSet<String>,
    /// Settings by their language's tag, in lower case.
    pub(in super::super) settings: BTreeMap<String, BTreeMap<String, String>>,
}

/// What a pool or a chain of the store is called in the configuration of a balancer of region `own`: pools of other regions have
/// theirs before their name.
pub(in super::super) fn pool_name(own: &str, region: &Name, pool: &Name) -> String {
    match region.as_str() == own {
        true => pool.to_string(),
        false => format!("{region}/{pool}"),
    }
}

/// The region that the files name.
fn region(table: &Table) -> String {
    let name = table.get("region").and_then(|it| match &it.node.value {
        Value::Table(fields) => fields.get("name"),
        _ => None,
    });
    match name.map(|entry| &entry.node.value) {
        Some(Value::String(name)) => name.clone(),
        _ => "default".to_owned(),
    }
}

/// Whether requests may be of other regions than the balancer's own.
fn serves_all(table: &Table) -> bool {
    let has = |key: &str| named(table, "region").is_some_and(|region| region.contains_key(key));
    has("header") || has("clients")
}

/// An object with its place among the sources.
#[derive(Clone, Copy)]
struct Here<'a> {
    file: usize,
    object: &'a Object,
    document: &'a Document,
}

/// Puts the store's objects among `sources` into `table`, those that count in its region; gives what pools are boosted by.
pub(super) fn graft(table: &mut Table, sources: &[Source], found: &mut Vec<Diagnostic>) -> Stored {
    let objects: Vec<_> = sources
        .iter()
        .enumerate()
        .filter_map(|(file, source)| {
            source.object.as_ref().map(|stored| Here {
                file,
                object: &stored.object,
                document: &stored.held.document,
            })
        })
        .collect();
    if objects.is_empty() {
        return Stored::default();
    }
    let own = region(table);
    let serves_all = serves_all(table);
    let mut grafting = Grafting {
        wanted: wanted(&objects, &own),
        own,
        table,
        sources,
        found,
        serves_all,
        stored: Stored::default(),
    };
    // Backends, chains and routes name pools.
    for here in &objects {
        if let (Object::Pool { region, pool }, Document::Pool(fields)) =
            (here.object, here.document)
        {
            grafting.pool(here.file, (region, pool), fields);
        }
    }
    for here in &objects {
        grafting.other(here);
    }
    grafting.stored
}

/// Pools of other regions that chains of this one name.
fn wanted(objects: &[Here<'_>], own: &str) -> BTreeSet<String> {
    let chains = objects
        .iter()
        .filter_map(|here| match (here.object, here.document) {
            (Object::Chain { region, .. }, Document::Chain(chain)) if region.as_str() == own => {
                Some((region, chain))
            }
            _ => None,
        });
    chains
        .flat_map(|(region, chain)| names(own, region, chain))
        .collect()
}

/// A chain's pools, by the names that they have here.
fn names(own: &str, region: &Name, chain: &Chain) -> impl Iterator<Item = String> {
    chain
        .links
        .iter()
        .map(move |link| pool_name(own, link.region.as_ref().unwrap_or(region), &link.pool))
}

struct Grafting<'a> {
    own: String,
    wanted: BTreeSet<String>,
    table: &'a mut Table,
    sources: &'a [Source],
    found: &'a mut Vec<Diagnostic>,
    serves_all: bool,
    stored: Stored,
}

impl Grafting<'_> {
    /// The pool's name here, if it counts here.
    fn name(&self, region: &Name, pool: &Name) -> Option<String> {
        let name = pool_name(&self.own, region, pool);
        let counts = self.serves_all || region.as_str() == self.own || self.wanted.contains(&name);
        counts.then_some(name)
    }

    fn pool(&mut self, file: usize, (region, pool): (&Name, &Name), fields: &Map<String, Json>) {
        let Some(name) = self.name(region, pool) else {
            return;
        };
        let mut fields = node(file, fields);
        if self.serves_all {
            self.stored.regions.insert(region.to_string());
        }
        if let Value::Table(fields) = &mut fields.value {
            fields.insert("backends".to_owned(), entry(list(file)));
        }
        self.put("pool", name, fields);
    }

    fn other(&mut self, here: &Here<'_>) {
        let file = here.file;
        match (here.object, here.document) {
            (Object::Backend { region, pool, .. }, Document::Backend(fields)) => {
                if let Some(name) = self.name(region, pool) {
                    self.backend(&name, node(file, fields));
                }
            }
            (Object::Route { id }, Document::Route(fields)) => {
                let mut fields = node(file, fields);
                if let Value::Table(fields) = &mut fields.value {
                    let name = || entry(at(file, Value::String(id.to_string())));
                    fields.entry("name".to_owned()).or_insert_with(name);
                }
                self.route(fields);
            }
            (Object::Chain { region, chain }, Document::Chain(document))
                if self.serves_all || region.as_str() == self.own =>
            {
                self.chain(file, (region, chain), document);
            }
            (Object::Boost { region, pool, .. }, Document::Boost(boost)) => {
                if let Some(name) = self.name(region, pool) {
                    *self.stored.factors.entry(name).or_insert(1.0) *= boost.factor;
                }
            }
            (Object::Settings { language }, Document::Settings(settings)) => {
                let tag = language.as_str().to_ascii_lowercase();
                self.stored.settings.insert(tag, settings.values.clone());
            }
            _ => {}
        }
    }

    /// What names a pool that is not there is passed over: the table tells it.
    fn chain(&mut self, file: usize, (region, chain): (&Name, &Name), document: &Chain) {
        let pools = named(self.table, "pool");
        let links = names(&self.own, region, document)
            .filter(|name| pools.is_some_and(|pools| pools.contains_key(name)))
            .map(|name| at(file, Value::String(name)))
            .collect();
        let links = Value::Array(List {
            items: links,
            has_refused: false,
        });
        let fields = BTreeMap::from([("pools".to_owned(), entry(at(file, links)))]);
        let name = pool_name(&self.own, region, chain);
        self.put("chain", name, at(file, Value::Table(fields)));
    }

    fn backend(&mut self, pool: &str, backend: Node) {
        let pool = match self.table.get_mut("pool").map(|it| &mut it.node.value) {
            Some(Value::Table(pools)) => pools.get_mut(pool),
            _ => None,
        };
        // A pool of a file has its backends there.
        let is_stored = |entry: &&mut Entry| self.sources[entry.node.place.file].object.is_some();
        if let Some(pool) = pool.filter(is_stored)
            && let Value::Table(fields) = &mut pool.node.value
            && let Some(Value::Array(backends)) =
                fields.get_mut("backends").map(|it| &mut it.node.value)
        {
            backends.items.push(backend);
        }
    }

    fn route(&mut self, route: Node) {
        let file = route.place.file;
        let routes = self
            .table
            .entry("route".to_owned())
            .or_insert_with(|| entry(list(file)));
        if let Value::Array(routes) = &mut routes.node.value {
            routes.items.push(route);
        }
    }

    /// One name in a file and in the store is an error of the store's object: what the file says stays in force.
    fn put(&mut self, kind: &str, name: String, node: Node) {
        let file = node.place.file;
        let table = self
            .table
            .entry(kind.to_owned())
            .or_insert_with(|| entry(at(file, Value::Table(BTreeMap::new()))));
        let Value::Table(table) = &mut table.node.value else {
            return;
        };
        let Some(there) = table.get(&name) else {
            let stored = match kind {
                "pool" => &mut self.stored.pools,
                _ => &mut self.stored.chains,
            };
            stored.insert(name.clone());
            table.insert(name, entry(node));
            return;
        };
        let message = format!(
            "{kind} `{name}` is there already, in {}",
            shown(self.sources, &there.key_place)
        );
        let source = &self.sources[file];
        let diagnostic = Diagnostic::new(source, 0..0, Severity::Error, "duplicate", message);
        self.found.push(diagnostic);
    }
}

fn named<'t>(table: &'t Table, kind: &str) -> Option<&'t Table> {
    match table.get(kind).map(|entry| &entry.node.value) {
        Some(Value::Table(table)) => Some(table),
        _ => None,
    }
}

/// Objects are small, and their keys say where: no place within one is told.
fn at(file: usize, value: Value) -> Node {
    Node {
        place: Place::new(file, 0..0),
        value,
        refused: false,
    }
}

fn entry(node: Node) -> Entry {
    Entry {
        key_place: node.place.clone(),
        node,
    }
}

fn list(file: usize) -> Node {
    at(
        file,
        Value::Array(List {
            items: Vec::new(),
            has_refused: false,
        }),
    )
}

fn node(file: usize, fields: &Map<String, Json>) -> Node {
    // A null is a key that is not set.
    let set = fields.iter().filter(|(_, value)| !value.is_null());
    let fields = set
        .map(|(key, value)| (key.clone(), entry(value_node(file, value))))
        .collect();
    at(file, Value::Table(fields))
}

fn value_node(file: usize, value: &Json) -> Node {
    let value = match value {
        Json::Object(fields) => return node(file, fields),
        Json::Array(items) => Value::Array(List {
            items: items.iter().map(|item| value_node(file, item)).collect(),
            has_refused: false,
        }),
        Json::String(text) => Value::String(text.clone()),
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Value::Integer(number),
            (None, Some(number)) => Value::Float(number),
            (None, None) => Value::Datetime,
        },
        // No key takes it, as none takes a date.
        Json::Null => Value::Datetime,
    };
    at(file, value)
}
