//! Line charts as SVG that stands in a page: axes with labels and units, a legend, faults shaded.

use std::fmt::Write;

/// Size of a chart, and of the frame within it that the lines are in.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 62.0;
/// Colours that `html`'s style has, `c0` to `c7`.
const COLOURS: usize = 8;
/// Labels of a legend's line, and characters that one label takes at most.
const LEGEND_LABELS: usize = 6;

/// What is drawn.
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    /// What the vertical axis shows, with its unit.
    pub(super) unit: &'a str,
    /// Seconds that the horizontal axis spans.
    pub(super) seconds: f64,
    pub(super) scale: Scale,
    /// Begin and end of each fault, seconds.
    pub(super) faults: &'a [(f64, f64)],
    pub(super) lines: Vec<Line<'a>>,
    /// Lower and upper edge of a band behind the lines.
    pub(super) band: Option<(&'a [f64], &'a [f64])>,
}

/// A vertical axis.
#[derive(Clone, Copy)]
pub(super) enum Scale {
    /// From 0.
    Linear { max: f64 },
    /// In powers of ten.
    Logarithmic { min: f64, max: f64 },
}

/// Values at even distances; a gap where there is none.
pub(super) struct Line<'a> {
    pub(super) label: String,
    pub(super) colour: usize,
    pub(super) style: Style,
    pub(super) values: Box<dyn Iterator<Item = Option<f64>> + 'a>,
}

/// How a line is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Bold,
    Thin,
}

/// The chart as an `svg` element.
pub(super) fn draw(chart: Chart<'_>) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}: {unit}\">\
         <title>{title}: {unit}</title>\
         <text class=\"title\" x=\"{LEFT}\" y=\"15\">{title}</text>\
         <text class=\"unit\" x=\"{right}\" y=\"15\">{unit}</text>",
        title = chart.title,
        unit = chart.unit,
        right = WIDTH - RIGHT
    );
    faults(&mut svg, &chart);
    axes(&mut svg, &chart);
    if let Some((low, high)) = chart.band {
        band(&mut svg, &chart, low, high);
    }
    let (mut legend, mut paths) = (Vec::new(), Vec::new());
    let (seconds, scale) = (chart.seconds, chart.scale);
    for line in chart.lines {
        let width = if line.style == Style::Bold {
            "bold"
        } else {
            "thin"
        };
        let class = format!("c{} {width}", line.colour % COLOURS);
        let values: Vec<Option<f64>> = line.values.collect();
        let path = path(&values, seconds, scale);
        paths.push(format!("<path class=\"line {class}\" d=\"{path}\"/>"));
        legend.push((class, line.label));
    }
    // The first are the ones to look at, so they come on top.
    svg.extend(paths.into_iter().rev());
    if chart.band.is_some() {
        legend.push(("band".to_owned(), "range of the others".to_owned()));
    }
    draw_legend(&mut svg, &legend);
    svg.push_str("</svg>");
    svg
}

fn faults(svg: &mut String, chart: &Chart<'_>) {
    for &(from, to) in chart.faults {
        let (x, end) = (x(from, chart.seconds), x(to, chart.seconds));
        let _ = write!(
            svg,
            "<rect class=\"fault\" x=\"{x:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            (end - x).max(1.0),
            HEIGHT - TOP - BOTTOM
        );
    }
}

fn axes(svg: &mut String, chart: &Chart<'_>) {
    let (floor, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for value in ticks(chart.scale) {
        let y = y(value, chart.scale);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
             <text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            number(value)
        );
    }
    let step = nice(chart.seconds / 6.0);
    let mut at = 0.0;
    while at <= chart.seconds * 1.001 {
        let _ = write!(
            svg,
            "<text class=\"x\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x(at, chart.seconds),
            floor + 15.0,
            number(at)
        );
        at += step;
    }
    let _ = write!(
        svg,
        "<path class=\"axis\" d=\"M{LEFT} {TOP}V{floor}H{right}\"/>\
         <text class=\"unit\" x=\"{right}\" y=\"{:.1}\">time, s</text>",
        floor + 28.0
    );
}

fn band(svg: &mut String, chart: &Chart<'_>, low: &[f64], high: &[f64]) {
    let count = low.len();
    let point = |at: usize, value: f64| {
        let time = middle(at, count, chart.seconds);
        format!("{:.1} {:.1}", x(time, chart.seconds), y(value, chart.scale))
    };
    let there = high.iter().enumerate().map(|(at, &value)| point(at, value));
    let back = low.iter().enumerate().rev();
    let points: Vec<String> = there
        .chain(back.map(|(at, &value)| point(at, value)))
        .collect();
    let _ = write!(svg, "<path class=\"band\" d=\"M{}Z\"/>", points.join("L"));
}

fn path(values: &[Option<f64>], seconds: f64, scale: Scale) -> String {
    let mut path = String::new();
    let mut is_down = false;
    for (at, value) in values.iter().enumerate() {
        let Some(value) = value else {
            is_down = false;
            continue;
        };
        let command = if is_down { 'L' } else { 'M' };
        let time = middle(at, values.len(), seconds);
        let _ = write!(
            path,
            "{command}{:.1} {:.1}",
            x(time, seconds),
            y(*value, scale)
        );
        is_down = true;
    }
    path
}

fn draw_legend(svg: &mut String, legend: &[(String, String)]) {
    let each = (WIDTH - LEFT - RIGHT) / LEGEND_LABELS as f64;
    for (at, (class, label)) in legend.iter().enumerate() {
        let x = LEFT + (at % LEGEND_LABELS) as f64 * each;
        let y = HEIGHT - 22.0 + (at / LEGEND_LABELS) as f64 * 14.0;
        let (line, thick) = if class == "band" {
            ("", 7)
        } else {
            ("line ", 1)
        };
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<path class=\"{line}{class} key\" d=\"M{x:.1} {:.1}h14v{thick}h-14z\"/>\
             <text class=\"label\" x=\"{:.1}\" y=\"{y:.1}\">{label}</text>",
            y - 3.0 - f64::from(thick),
            x + 18.0
        );
    }
}

/// The middle of the stretch number `at` of `count`, seconds.
fn middle(at: usize, count: usize, seconds: f64) -> f64 {
    (at as f64 + 0.5) * seconds / count.max(1) as f64
}

fn x(time: f64, seconds: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * (time / seconds).clamp(0.0, 1.0)
}

fn y(value: f64, scale: Scale) -> f64 {
    let part = match scale {
        Scale::Linear { max } => value / max,
        Scale::Logarithmic { min, max } => (value.max(min) / min).ln() / (max / min).ln(),
    };
    HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part.clamp(0.0, 1.0)
}

fn ticks(scale: Scale) -> Vec<f64> {
    match scale {
        Scale::Linear { max } => {
            let step = nice(max / 4.0);
            (0..)
                .map(|n| f64::from(n) * step)
                .take_while(|&value| value <= max * 1.001)
                .collect()
        }
        Scale::Logarithmic { min, max } => {
            let first = min.log10().floor() as i32;
            // Over a short range the powers of ten alone would leave the axis bare.
            let within: &[f64] = if max / min < 50.0 {
                &[1.0, 2.0, 5.0]
            } else {
                &[1.0]
            };
            let powers = (first..=first + 12).map(|power| 10f64.powi(power));
            powers
                .flat_map(|power| within.iter().map(move |factor| factor * power))
                .skip_while(|&value| value < min)
                .take_while(|&value| value <= max * 1.001)
                .collect()
        }
    }
}

/// 1, 2 or 5 times a power of ten, not below `value`.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1e-9).log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0];
    let fits = factor
        .into_iter()
        .find(|&factor| factor * power >= value * 0.999);
    fits.unwrap_or(10.0) * power
}

/// As short as it can be: `0.5`, `20`, `2000`.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_numbers_are_short() {
        for (value, expected) in [
            (0.9, 1.0),
            (1.1, 2.0),
            (3.0, 5.0),
            (60.0, 100.0),
            (0.012, 0.02),
        ] {
            assert!((nice(value) - expected).abs() < 1e-12, "{value}");
        }
        assert_eq!(
            [0.0, 0.5, 20.0, 1_000.0].map(number),
            ["0", "0.5", "20", "1000"]
        );
        let scale = Scale::Logarithmic {
            min: 0.5,
            max: 200.0,
        };
        assert_eq!(ticks(scale), [1.0, 10.0, 100.0]);
        let short = Scale::Logarithmic {
            min: 8.0,
            max: 60.0,
        };
        assert_eq!(ticks(short), [10.0, 20.0, 50.0]);
    }

    #[test]
    fn a_gap_interrupts_a_line() {
        let scale = Scale::Linear { max: 1.0 };
        let path = path(&[Some(0.0), Some(1.0), None, Some(0.5)], 4.0, scale);
        assert_eq!(path.matches('M').count(), 2);
        assert_eq!(path.matches('L').count(), 1);
    }
}
