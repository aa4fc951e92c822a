//! `mizan simulate --figures`.

use super::super::output;
use mizan_sim::{Contender, Judged, Judgement, PolicyReport};
use std::fmt::Write;

/// All scenarios as a table, the default beside each baseline; below it what is asked of it, bar by bar.
pub(super) fn text(judgements: &[Judgement]) -> String {
    let names: Vec<String> = Contender::BASELINES.map(Contender::name).into();
    let mut heading = vec!["p99 ms (failed %)".to_owned(), "the default".to_owned()];
    heading.extend(names.iter().cloned());
    let mut rows = vec![heading];
    rows.extend(judgements.iter().map(|one| row(one, &names)));
    let judged = || judgements.iter().flat_map(|one| &one.judged);
    let mut text = output::table("", &rows);
    text.push_str("\n\n");
    for one in judged() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{one}");
    }
    let missed = judged().filter(|one| !one.is_kept()).count();
    let kept = judged().count() - missed;
    let _ = write!(text, "\n{kept} kept, {missed} missed");
    text
}

pub(super) fn all_kept(judgements: &[Judgement]) -> bool {
    let mut judged = judgements.iter().flat_map(|one| &one.judged);
    judged.all(Judged::is_kept)
}

fn row(judgement: &Judgement, names: &[String]) -> Vec<String> {
    let report = &judgement.report;
    let ours = report.policies.first();
    let baselines = names.iter().map(|name| report.policy(name));
    let cells = std::iter::once(ours).chain(baselines).map(cell);
    std::iter::once(report.scenario.clone())
        .chain(cells)
        .collect()
}

fn cell(one: Option<&PolicyReport>) -> String {
    let Some(one) = one else {
        return "-".to_owned();
    };
    let p99 = one.latency.map_or_else(
        || "-".to_owned(),
        |latency| format!("{:.1}", latency.p99_ms),
    );
    match one.failed_share {
        0.0 => p99,
        share => format!("{p99} ({:.2})", share * 100.0),
    }
}
