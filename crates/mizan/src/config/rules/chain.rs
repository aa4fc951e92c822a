//! Rules of `[chain.NAME]`.

use super::Seen;
use crate::config::report::Cx;
use crate::config::schema::File;
use crate::config::tree::At;

pub(super) fn check(cx: &mut Cx<'_>, file: &File) {
    let list = At::ROOT.key("chain");
    for (name, chain) in &file.chain {
        let at = list.key(name);
        let pools = at.key("pools");
        if chain.pools.is_empty() && cx.list_len(&pools) == Some(0) {
            let message = format!("chain `{name}` has no pool: requests for it are answered 503");
            let help =
                "`pools = [\"FIRST\", \"NEXT\"]` names them in the order in which they are asked";
            cx.warn(&pools, "empty", message, help);
        }
        let mut seen = Seen::new();
        for (index, pool) in chain.pools.iter().enumerate() {
            let at = pools.index(index);
            super::tcp::known_pool(cx, file, pool, &at);
            seen.once(cx, &at, "pool", pool);
        }
        // Other programs than balancers may go by the store's chains.
        let is_used = || file.route.iter().any(|it| it.chain.as_ref() == Some(name));
        if !cx.is_stored(&at) && !is_used() && !cx.report.has_errors() {
            let message = format!("no route uses chain `{name}`");
            cx.warn(&at, "unused", message, "a route names it by `chain`");
        }
    }
}
