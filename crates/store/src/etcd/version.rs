//! What a version of etcd gets wrong, and what that means here.

/// Three numbers, as in `3.5.13`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u32, u32, u32);

/// What the answer to a progress request is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// All changes up to its revision were said before.
    Proven,
    /// It comes, but may overtake changes (etcd's issue 15220): it says that the stream is alive, no more.
    Alive,
    /// It may never come (etcd's pull request 17557), or cannot be asked for.
    Unsaid,
}

impl Version {
    /// `None` if it is not written as etcd writes it. What follows the numbers (`-rc.1`, `+git`) is left out.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let numbers = text.split(['-', '+']).next()?;
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        let version = Self(parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(version)
    }

    /// What a progress answer of it is worth.
    pub(super) fn progress(self) -> Progress {
        match self {
            Self(3, 4, ..25) | Self(3, 5, ..8) => Progress::Alive,
            Self(3, 4, 25..31) | Self(3, 5, 8..13) => Progress::Unsaid,
            Self(..3, _, _) | Self(3, ..4, _) => Progress::Unsaid,
            _ => Progress::Proven,
        }
    }

    /// Whether it has what was mended in `three_four` of 3.4, `three_five` of 3.5, and after.
    fn has(self, three_four: u32, three_five: u32) -> bool {
        match self {
            Self(3, 4, patch) => patch >= three_four,
            Self(3, 5, patch) => patch >= three_five,
            other => other > Self(3, 5, 0),
        }
    }
}

/// What users of a server that calls itself `version` should know, a sentence each: what is wrong, and what is done about it
/// here or has to be done by them. `docs/etcd.md` has the same as a table.
pub(super) fn warnings(version: &str) -> Vec<String> {
    let Some(known) = Version::parse(version) else {
        return vec![format!(
            "etcd calls its version `{version}`, which says nothing: an idle watch is told of no progress."
        )];
    };
    let mut warnings = Vec::new();
    let mut warn = |text: &str| warnings.push(format!("etcd {version} {text}"));
    if known < Version(3, 4, 0) {
        warn(
            "is older than 3.4, the oldest that this is tested with: it may refuse what it is asked, and nothing works around that. Take 3.5 or later.",
        );
    } else if known < Version(3, 5, 0) {
        warn("is of a series that gets no more mends since June 2026: take 3.5 or later.");
    }
    if known.progress() != Progress::Proven {
        warn(
            "does not prove how far a watch has come (before 3.4.31 and 3.5.13): an idle watch is told of no progress, and one that is taken up late lists again where it has to.",
        );
    }
    if !known.has(36, 18) {
        warn(
            "may lose deletes around a compaction (before 3.4.36 and 3.5.18): who follows it compares its keys with a listing each minute, and lists again where they differ.",
        );
    }
    if !known.has(31, 13) {
        warn(
            "may end leases that are alive when its leader changes (before 3.4.31 and 3.5.13): their keys go with them, and whoever needs one writes it again.",
        );
    }
    if !known.has(42, 33) || (Version(3, 6, 0)..Version(3, 6, 14)).contains(&known) {
        warn(
            "lets users see or do what they may not (before 3.4.42, 3.5.33 and 3.6.14): nothing here can prevent that, take a later one.",
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(version: &str) -> Progress {
        Version::parse(version).expect(version).progress()
    }

    #[test]
    fn progress_is_proven_from_the_versions_that_mended_it() {
        for version in [
            "3.4.31",
            "3.4.42",
            "3.5.13",
            "3.6.0",
            "3.7.1",
            "4.0.0",
            "3.6.0-rc.1",
        ] {
            assert_eq!(progress(version), Progress::Proven, "{version}");
        }
        for version in ["3.4.0", "3.4.24", "3.5.0", "3.5.7"] {
            assert_eq!(progress(version), Progress::Alive, "{version}");
        }
        for version in ["3.4.25", "3.4.30", "3.5.8", "3.5.12", "3.3.27", "2.3.8"] {
            assert_eq!(progress(version), Progress::Unsaid, "{version}");
        }
    }

    #[test]
    fn what_is_no_version_is_none() {
        for text in ["", "3", "3.5", "3.5.x", "3.5.1.2", "main"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn faults_are_told_of_the_versions_that_have_them() {
        assert_eq!(warnings("3.6.14"), [""; 0]);
        assert_eq!(warnings("3.5.33"), [""; 0]);
        assert_eq!(warnings("3.4.42").len(), 1);
        assert_eq!(warnings("3.4.23").len(), 5);
        assert_eq!(warnings("3.5.1").len(), 4);
        assert_eq!(warnings("3.6.0").len(), 1);
        assert_eq!(warnings("3.3.27").len(), 5);
        assert!(warnings("main")[0].contains("no progress"));
    }

    /// A warning that leaves its reader alone with a fault is of no use.
    #[test]
    fn a_version_that_is_too_old_is_told_with_what_is_done_about_it() {
        for version in ["2.3.8", "3.3.27"] {
            let said = warnings(version);
            assert!(said[0].contains("older than 3.4"), "{said:?}");
            assert!(said[0].contains("Take 3.5 or later"), "{said:?}");
        }
        assert!(!warnings("3.4.0")[0].contains("older than"));
        for warning in warnings("3.3.27").iter().chain(&warnings("3.4.23")) {
            let does = warning.split_once(": ").map(|(_, does)| does);
            assert!(does.is_some_and(|does| does.ends_with('.')), "{warning}");
        }
    }
}
