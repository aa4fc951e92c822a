//! What was promised, and what was seen.

use crate::lab::stage::LabError;
use serde::Serialize;
use std::io::Write;

/// One promise, played.
#[derive(Debug, Serialize)]
struct Promise {
    chapter: String,
    promise: String,
    kept: bool,
    saw: String,
}

/// Collects promises and prints each as it is played, or all at the end as JSON.
pub(super) struct Report<'a> {
    out: &'a mut dyn Write,
    json: bool,
    chapter: String,
    promises: Vec<Promise>,
}

impl<'a> Report<'a> {
    pub(super) fn new(out: &'a mut dyn Write, json: bool) -> Self {
        Self {
            out,
            json,
            chapter: String::new(),
            promises: Vec::new(),
        }
    }

    /// Begins a chapter.
    pub(super) fn chapter(&mut self, title: &str) -> Result<(), LabError> {
        self.chapter = title.to_owned();
        if self.json {
            return Ok(());
        }
        self.print(&format!("\n{title}\n"))
    }

    /// States a promise, whether it was kept, and what was seen of it.
    pub(super) fn promise(
        &mut self,
        promise: &str,
        kept: bool,
        saw: String,
    ) -> Result<(), LabError> {
        if !self.json {
            let mark = if kept { "kept  " } else { "BROKEN" };
            self.print(&format!("  {mark}  {promise}\n            {saw}\n"))?;
        }
        let (chapter, promise) = (self.chapter.clone(), promise.to_owned());
        self.promises.push(Promise {
            chapter,
            promise,
            kept,
            saw,
        });
        Ok(())
    }

    /// Says how it went; false if a promise was broken, or none was played.
    pub(super) fn finish(mut self) -> Result<bool, LabError> {
        let broken = self.promises.iter().filter(|promise| !promise.kept).count();
        let all = self.promises.len();
        let text = if self.json {
            format!(
                "{}\n",
                serde_json::json!({ "promises": self.promises, "broken": broken })
            )
        } else {
            format!("\n{all} promises, {broken} broken.\n")
        };
        self.print(&text)?;
        Ok(broken == 0 && all > 0)
    }

    fn print(&mut self, text: &str) -> Result<(), LabError> {
        let printed = self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush());
        printed.map_err(LabError::io("print the report"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(promises: &[bool], json: bool) -> (bool, String) {
        let mut out = Vec::new();
        let mut report = Report::new(&mut out, json);
        report.chapter("Rotation").unwrap();
        for kept in promises {
            report
                .promise("in turn", *kept, "1 2 3".to_owned())
                .unwrap();
        }
        let kept = report.finish().unwrap();
        (kept, String::from_utf8(out).unwrap())
    }

    #[test]
    fn one_broken_promise_breaks_the_drill() {
        assert!(play(&[true, true], false).0);
        let (kept, text) = play(&[true, false], false);
        assert!(!kept);
        assert!(
            text.contains("  BROKEN  in turn\n            1 2 3\n"),
            "{text}"
        );
        assert!(text.ends_with("\n2 promises, 1 broken.\n"), "{text}");
    }

    #[test]
    fn a_drill_that_played_nothing_has_not_passed() {
        assert!(!play(&[], false).0);
    }

    #[test]
    fn json_holds_each_promise() {
        let (_, text) = play(&[true, false], true);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["broken"], 1);
        assert_eq!(value["promises"][0]["chapter"], "Rotation");
        assert_eq!(value["promises"][1]["kept"], false);
    }
}
