//! What is meant by a name that is none.

use crate::config;

/// The nearest of `known`, or what there is.
pub(super) fn meant(text: &str, known: &[&str]) -> String {
    match config::nearest(text, known.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if known.is_empty() => String::new(),
        None if known.len() == 1 => format!("; there is {}", list(known)),
        None => format!("; there are {}", list(known)),
    }
}

/// `a`, `b` and `c`; of many the first few.
pub(super) fn list(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    let shown = names.len().min(SHOWN);
    let mut names: Vec<String> = names[..shown]
        .iter()
        .map(|name| format!("`{name}`"))
        .chain((names.len() > SHOWN).then(|| format!("{} more", names.len() - SHOWN)))
        .collect();
    match names.pop() {
        Some(last) if names.is_empty() => last,
        Some(last) => format!("{} and {last}", names.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_is_answered_with_what_is_meant_or_there() {
        assert_eq!(meant("apj", &["api", "web"]), "; did you mean `api`?");
        assert_eq!(meant("none", &["api"]), "; there is `api`");
        assert_eq!(
            meant("none", &["api", "web"]),
            "; there are `api` and `web`"
        );
        assert_eq!(meant("none", &[]), "");
        let many: Vec<String> = (0..100).map(|at| format!("10.0.0.{at}:80")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(meant("none", &many).ends_with("`10.0.0.7:80` and 92 more"));
    }
}
