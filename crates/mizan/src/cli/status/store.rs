//! The store in `mizan status`.

use crate::admin::view::{Account, StoreView};
use crate::cli::output::{count, table};

/// Whether what is in force differs somewhere: from node to node, or from what the store says.
pub(super) fn differs(store: &StoreView) -> bool {
    let own = &store.node;
    let is_behind = |node: &Account| !node.held_back.is_empty() || node.waiting > 0;
    let is_other = |node: &Account| node.digest != own.digest || is_behind(node);
    is_behind(own) || store.nodes.iter().any(is_other)
}

/// The store, and what each node has in force.
pub(super) fn describe(store: &StoreView) -> String {
    let mut text = format!(
        "STORE {} ({}): {}",
        store.address,
        store.namespace,
        standing(store)
    );
    let node = &store.node;
    text += &format!(
        "\n  in force here: revision {}, digest {}, {}",
        node.revision,
        node.digest,
        count(store.objects, "object")
    );
    for warning in &store.warnings {
        text += &format!("\n  WARNING: {warning}");
    }
    if !node.held_back.is_empty() {
        text += &format!("\n  HELD BACK: {}", node.held_back);
    }
    for rejected in &store.rejected {
        text += &format!("\n  REJECTED {rejected}");
    }
    for waiting in &store.waiting {
        text += &format!("\n  WAITS {waiting}");
    }
    if !store.nodes_unknown.is_empty() {
        text += &format!("\n  the other nodes are not known: {}", store.nodes_unknown);
    } else if !store.nodes.is_empty() {
        text += "\n";
        text += &nodes(store);
    }
    text
}

fn standing(store: &StoreView) -> String {
    let age = store.age_seconds;
    let why = match &*store.trouble {
        "" => String::new(),
        trouble => format!(": {trouble}"),
    };
    match &*store.standing {
        "live" => format!("live, revision {}", store.revision),
        "stale" => format!("STALE for {age} s{why}"),
        "restored" => format!(
            "RESTORED: what was in force {age} s ago is in force, and the store was not heard since{why}"
        ),
        _ => format!("NOT REACHED, and no table is known{why}"),
    }
}

fn nodes(store: &StoreView) -> String {
    let row = |cells: [&str; 6]| cells.map(str::to_owned).to_vec();
    let mut rows = vec![row([
        "NODE", "REGION", "REVISION", "DIGEST", "REJECTED", "",
    ])];
    for node in &store.nodes {
        let note = match (
            &*node.held_back,
            node.waiting,
            node.digest == store.node.digest,
        ) {
            ("", 0, true) => "",
            ("", 0, false) => "DIFFERS",
            ("", _, _) => "WAITS",
            (_, _, _) => "HOLDS BACK",
        };
        rows.push(row([
            &node.node,
            &node.region,
            &node.revision.to_string(),
            &node.digest,
            &node.rejected.to_string(),
            note,
        ]));
    }
    table("  ", &rows)
}
