//! Rules of `discover` in `[pool.NAME]`.

use super::Seen;
use crate::config::report::Cx;
use crate::config::schema::{File, Pool};
use crate::config::tree::At;

pub(super) fn check(cx: &mut Cx<'_>, file: &File, pool: &Pool, at: &At<'_>) {
    let list = at.key("discover");
    let (has_backends, has_list) = (cx.is_set(&at.key("backends")), cx.is_set(&list));
    if !has_backends && !has_list && !cx.is_partial(at) {
        let help = "it is a list; or `discover` says where backends are learned from";
        cx.error_with(at, "missing_key", "`backends` is missing", help);
    }
    let mut seen = Seen::new();
    for (index, from) in pool.discover.iter().enumerate() {
        let at = list.index(index);
        let said = [
            ("srv", from.srv.as_ref().map(|it| it.value.0.as_str())),
            ("file", from.file.as_deref()),
            ("instances", from.instances.as_deref()),
        ];
        let there: Vec<_> = said
            .iter()
            .filter_map(|(key, name)| Some((*key, (*name)?)))
            .collect();
        match there[..] {
            [(key, name)] => seen.once(cx, &at.key(key), key, name),
            [] if cx.is_partial(&at) => {}
            [] => {
                let help = "`srv = \"_http._tcp.app.internal\"`, `file = \"backends.json\"` or `instances = \"app\"`";
                let message = "it does not say where backends are learned from";
                cx.error_with(&at, "missing_key", message, help);
            }
            [_, (key, _), ..] => {
                let message = "one entry is one place: `srv`, `file` or `instances`";
                let help = "add another entry for the second";
                cx.error_with(&at.key(key), "contradiction", message, help);
            }
        }
        if from.instances.is_some() && !cx.has_store(file) {
            let message = "instances say in a store where they are, and there is none";
            let help = "`[store] address`, or `--store` where it is started";
            cx.error_with(&at.key("instances"), "missing_key", message, help);
        }
        // Whoever writes to the store must not have this machine's files read.
        if from.file.is_some() && cx.is_stored(&at.key("file")) {
            let message = "a pool of the store learns from no file of this machine";
            let help = "put the pool into the configuration's file";
            cx.error_with(&at.key("file"), "refused", message, help);
        }
    }
}
