//! As whom the author of an edit is known, where the system says so.

use std::fs;

/// The user of this number, by its name if the system has one for it.
pub fn user(id: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let own = fields.nth(1)?.parse::<u32>().ok()?;
        (own == id).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("user {id}"))
}

/// The user of this process.
pub fn this_user() -> String {
    user(rustix::process::getuid().as_raw())
}
