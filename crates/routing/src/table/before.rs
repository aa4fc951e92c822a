//! The table of before, beside the one that is made.

use super::{Held, Table};
use crate::key::Object;
use std::collections::BTreeMap;
use std::collections::btree_map::Iter;
use std::iter::Peekable;
use std::sync::Arc;

/// A table of before, gone through beside what is stored now: both are in the order of their keys.
pub(super) struct Before<'t> {
    table: Option<&'t Table>,
    rest: Peekable<Iter<'t, Object, Arc<Held>>>,
    /// What is bad now stays as it was.
    stays: bool,
}

impl<'t> Before<'t> {
    pub(super) fn new(table: Option<&'t Table>, stays: bool) -> Self {
        static NOTHING: BTreeMap<Object, Arc<Held>> = BTreeMap::new();
        let objects = table.map_or(&NOTHING, |table| &table.objects);
        Self {
            table,
            rest: objects.iter().peekable(),
            stays,
        }
    }

    /// What it had under `key`, if no key behind it was asked for before.
    pub(super) fn beside(&mut self, key: &[u8]) -> Option<(&'t Object, &'t Arc<Held>)> {
        while let Some((object, _)) = self.rest.peek() {
            if object.is_key(key) {
                return self.rest.next();
            }
            if object.bytes().gt(key.iter().copied()) {
                return None;
            }
            self.rest.next();
        }
        None
    }

    /// What stays of an object that says nothing now.
    pub(super) fn staying(&self, object: &Object) -> Option<&'t Arc<Held>> {
        let table = self.table.filter(|_| self.stays)?;
        table.objects.get(object)
    }
}
