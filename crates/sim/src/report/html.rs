//! A report as one page: the table, and for each policy how shares, latency and failures went.

use std::fmt::Write;

use super::chart::{Chart, Line, Scale, Style, draw};
use super::text::{setting, table};
use super::{PolicyReport, Report};

const STYLE: &str = include_str!("page.css");

/// What the columns mean, for those who read the page alone.
const NOTES: &str = "Latency is that of requests that succeeded, with all tries. <b>p99 before</b>: before the \
first fault. <b>after 5 s</b>: failed share of requests that arrived later than 5 s after a fault's begin and \
before its end. <b>share max</b>, <b>peak</b>: the largest share of a backend as a multiple of a fair one, over \
all and in any short window. <b>shift</b>: from a fault's begin until its backend gets less than 15 % of a fair \
share. <b>recover</b>: from its end until more than 80 %. <b>false</b>: ejected without a fault of its own. \
<b>swings</b>: a backend's share going from a quarter above its mean to a quarter below, or back. \
<b>Jain</b>: evenness before the first fault, 1 is even.";

pub(super) fn write(report: &Report) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>mizan simulate: {name}</title><style>{STYLE}</style></head><body>\
         <h1>{name}</h1><p>{about}</p><p class=\"setting\">{setting}</p>",
        name = escaped(&report.scenario),
        about = escaped(&report.about),
        setting = escaped(&setting(report))
    );
    write_table(&mut page, report);
    // Writing to a string cannot fail.
    let _ = write!(page, "<p class=\"notes\">{NOTES} Shaded: faults.</p>");
    for policy in &report.policies {
        let _ = write!(
            page,
            "<h2>{}</h2><div class=\"charts\">{}{}{}</div>",
            escaped(&policy.policy),
            shares(report, policy),
            latency(report, policy),
            failures(report, policy)
        );
    }
    page.push_str("</body></html>\n");
    page
}

fn write_table(page: &mut String, report: &Report) {
    let (headings, rows) = table(report);
    page.push_str("<div class=\"scroll\"><table><thead><tr>");
    for heading in headings {
        let _ = write!(page, "<th>{}</th>", escaped(heading));
    }
    page.push_str("</tr></thead><tbody>");
    for row in rows {
        page.push_str("<tr>");
        for cell in row {
            let _ = write!(page, "<td>{}</td>", escaped(&cell));
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div>");
}

fn shares(report: &Report, policy: &PolicyReport) -> String {
    let lines = &policy.series.shares;
    let of_all = report.policies.iter().flat_map(|policy| {
        let shares = &policy.series.shares;
        let each = shares.backends.iter().flat_map(|(_, shares)| shares);
        each.chain(&shares.rest_max)
    });
    // A few moments far above all others would make the rest flat.
    let fair = 1.0 / report.backends as f64;
    let max = of_all
        .copied()
        .fold(2.0 * fair, f64::max)
        .min(6.0 * fair)
        .min(1.0);
    let (band_low, band_high): (Vec<f64>, Vec<f64>) = (
        lines.rest_min.iter().map(|share| share * 100.0).collect(),
        lines.rest_max.iter().map(|share| share * 100.0).collect(),
    );
    let drawn = lines
        .backends
        .iter()
        .enumerate()
        .map(|(at, (number, shares))| {
            let is_faulty = at < lines.faulty;
            Line {
                label: format!("{number}{}", if is_faulty { " (fault)" } else { "" }),
                colour: at,
                style: if is_faulty { Style::Bold } else { Style::Thin },
                values: Box::new(shares.iter().map(|share| Some(share * 100.0))),
            }
        });
    draw(Chart {
        title: "Share of picks by backend",
        unit: "% of all picks",
        seconds: report.seconds,
        scale: Scale::Linear { max: max * 100.0 },
        faults: &spans(report),
        lines: drawn.collect(),
        band: (!band_low.is_empty()).then_some((&band_low[..], &band_high[..])),
    })
}

fn latency(report: &Report, policy: &PolicyReport) -> String {
    let all = || {
        report.policies.iter().flat_map(|policy| {
            let series = &policy.series;
            series
                .p50_ms
                .iter()
                .chain(&series.p99_ms)
                .copied()
                .flatten()
        })
    };
    let min = all().fold(f64::MAX, f64::min).clamp(1e-3, 1e6) * 0.8;
    let max = all().fold(min * 10.0, f64::max) * 1.2;
    draw(Chart {
        title: "Latency",
        unit: "ms, logarithmic",
        seconds: report.seconds,
        scale: Scale::Logarithmic { min, max },
        faults: &spans(report),
        lines: vec![
            line("p50", 0, &policy.series.p50_ms),
            line("p99", 1, &policy.series.p99_ms),
        ],
        band: None,
    })
}

fn line<'a>(label: &str, colour: usize, values: &'a [Option<f64>]) -> Line<'a> {
    Line {
        label: label.to_owned(),
        colour,
        style: Style::Bold,
        values: Box::new(values.iter().copied()),
    }
}

fn failures(report: &Report, policy: &PolicyReport) -> String {
    let all = report
        .policies
        .iter()
        .flat_map(|policy| policy.series.failed_share.iter().copied());
    let max = all.fold(0.01, f64::max) * 100.0;
    draw(Chart {
        title: "Failed requests",
        unit: "% of those that ended",
        seconds: report.seconds,
        scale: Scale::Linear { max },
        faults: &spans(report),
        lines: vec![Line {
            label: "failed".to_owned(),
            colour: 1,
            style: Style::Bold,
            values: Box::new(
                policy
                    .series
                    .failed_share
                    .iter()
                    .map(|share| Some(share * 100.0)),
            ),
        }],
        band: None,
    })
}

fn spans(report: &Report) -> Vec<(f64, f64)> {
    let spans = report.faults.iter();
    spans
        .map(|fault| (fault.from_seconds, fault.to_seconds))
        .collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
