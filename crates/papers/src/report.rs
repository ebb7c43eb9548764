//! Writes one page for each paper. The page has our figures with the paper's axes and numbers, both numbers
//! with their ratio, and the differences between the experiments. The page is one file without references to
//! other files, for light and dark, wide and narrow windows.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::paper::{Figure, Paper};
use super::results::{CurvePoint, Results};
use super::results_page::{PaperNumber, format_ratio, own_numbers_heading, paper_numbers};
use super::test_networks::{IPV4_SERIES, PLAIN_SERIES, ROUTER_SERIES, SUBJECT_SERIES};
use super::trace::{SINGLE_MOVE_STEP_SECONDS, Trace, WHOLE_RUN_STEP_SECONDS};
use carnet_testbed::clock::{SECOND, monotonic_now, sleep};
use carnet_testbed::report::chart::{Chart, ChartCurve, MarkedValue, draw_chart};
use carnet_testbed::report::{FIGURE_STYLE, PAGE_STYLE, escape_html, put};

/// Widths of pictures for wide and narrow screens, in pixels.
const CHART_WIDTHS: [f64; 2] = [1020.0, 400.0];
/// Maximum time that a browser may take to print a page.
const PRINT_TIMEOUT: u64 = 30 * SECOND;

/// Returns the words for a curve in legends.
pub fn series_label(name: &str, results: &Results) -> String {
    match name {
        PLAIN_SERIES => "plain routing".into(),
        IPV4_SERIES => "IPv4, plain routing".into(),
        ROUTER_SERIES => "seen from the mobile router".into(),
        SUBJECT_SERIES => results.subject.name.clone(),
        other => other.into(),
    }
}

/// Returns the page of a paper.
pub fn html_report(paper: &Paper, results: &Results) -> String {
    let mut out = String::new();
    put!(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    put!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    put!(out, "<title>{} \u{2013} carnet-lab</title>", escape_html(&paper.title));
    put!(out, "<style>\n{FIGURE_STYLE}{PAGE_STYLE}</style></head><body><main>\n");
    put!(
        out,
        "<h1>{}</h1>\n<p class=\"sub\">{}, {}</p>",
        escape_html(&paper.title),
        escape_html(&paper.authors),
        paper.year
    );
    put!(
        out,
        "<p><b>There:</b> {}</p><p><b>Here:</b> {} beside plain routing, by turns, in network namespaces of \
         one machine; {}.</p>\n",
        escape_html(&paper.setting),
        escape_html(&results.subject.name),
        escape_html(&results.time)
    );
    for (role, command) in [("mr", &results.subject.mr), ("ha", &results.subject.ha)] {
        if let Some(command) = command {
            put!(out, "<p class=\"sub\">{role}: <code>{}</code></p>", escape_html(command));
        }
    }
    for warning in results.warnings_about_machine() {
        put!(out, "<p class=\"fail\"><b>Not to be relied on:</b> {}.</p>", escape_html(&warning));
    }
    let all: Vec<(&Figure, Vec<PaperNumber>)> =
        paper.figures.iter().map(|figure| (figure, paper_numbers(paper, figure, results))).collect();
    put!(
        out,
        "<h2>At a glance</h2>\n<p class=\"sub\">Medians; in brackets the lowest and the highest repetition, \
         each taken alone, where there is more than one and they differ.</p>\n"
    );
    write_table(
        &mut out,
        results,
        all.iter().flat_map(|(figure, rows)| rows.iter().map(move |row| (Some(*figure), row))),
    );
    for (figure, rows) in &all {
        write_figure_section(&mut out, paper, figure, rows, results);
    }
    write_machine_description(&mut out, results);
    put!(out, "</main></body></html>\n");
    out
}

fn write_table<'a>(
    out: &mut String,
    results: &Results,
    rows: impl Iterator<Item = (Option<&'a Figure>, &'a PaperNumber)>,
) {
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return;
    }
    let first = if rows[0].0.is_some() { "<th>figure</th>" } else { "" };
    put!(
        out,
        "<div class=\"scroll\" style=\"margin-top:10px\"><table><thead><tr>{first}<th></th><th \
         class=\"n\">paper</th><th class=\"n\">{}</th><th class=\"n\">here / paper</th><th \
         class=\"opt\">place in the paper</th></tr></thead><tbody>\n",
        own_numbers_heading(results)
    );
    for (at, (figure, row)) in rows.iter().enumerate() {
        // The table shows the name of a figure once for all of its rows.
        let same = |other: &&(Option<&Figure>, &PaperNumber)| {
            other.0.map(|one| &one.id) == figure.map(|one| &one.id)
        };
        let first = match figure {
            Some(figure) if at == 0 || !same(&&rows[at - 1]) => {
                let many = rows[at..].iter().take_while(same).count();
                format!("<td rowspan=\"{many}\">{}</td>", escape_html(&figure.title))
            }
            _ => String::new(),
        };
        let here = match &row.reason_not_measured {
            Some(why) => format!("<td class=\"sub\" colspan=\"2\">{}</td>", escape_html(why)),
            None => format!(
                "<td class=\"n\">{}{}</td><td class=\"n {}\">{}</td>",
                escape_html(&row.measured),
                format_spread_cell(row),
                row.ratio_css_class(),
                format_ratio(row.ratio_to_paper)
            ),
        };
        put!(
            out,
            "<tr>{first}<td>{}</td><td class=\"n\">{}</td>{here}<td class=\"opt sub\">{}</td></tr>\n",
            escape_html(&row.what),
            escape_html(&row.paper),
            escape_html(&row.place_in_paper)
        );
    }
    put!(out, "</tbody></table></div>\n");
}

/// Returns the range of the measured number, which the table shows below it.
fn format_spread_cell(row: &PaperNumber) -> String {
    if row.spread.is_empty() {
        String::new()
    } else {
        format!("<br><small class=\"sub\">{}</small>", escape_html(&row.spread))
    }
}

fn write_figure_section(
    out: &mut String,
    paper: &Paper,
    figure: &Figure,
    rows: &[PaperNumber],
    results: &Results,
) {
    put!(out, "<h2>{}</h2>\n<p>{}</p>\n", escape_html(&figure.title), escape_html(&figure.shows));
    if let Some(why) = &figure.not_measured {
        put!(out, "<p class=\"sub\">Not measured here. {}</p>\n", escape_html(why));
    }
    let why = figure.experiment.as_ref().and_then(|id| results.reason_for_omission(&paper.name, id));
    if let Some(why) = why {
        put!(out, "<p class=\"fail\">Left out in this run: {}</p>\n", escape_html(why));
    }
    let traces = trace_charts(paper, figure, results);
    match figure_chart(paper, figure, results) {
        Some(chart) => write_chart(out, &chart, &chart_caption(&chart)),
        None if !traces.is_empty() => {
            traces.iter().for_each(|(chart, caption)| write_chart(out, chart, caption))
        }
        None if figure.experiment.is_some()
            && why.is_none()
            && results.curves(&paper.name, figure.experiment.as_deref().unwrap_or(""), None).is_empty() =>
        {
            put!(out, "<p class=\"sub\">Not part of this run.</p>\n");
        }
        None => {}
    }
    write_table(out, results, rows.iter().map(|row| (None, row)));
    if !figure.differs.is_empty() {
        put!(out, "<p class=\"sub\" style=\"margin-top:8px\">Not comparable:</p><ul class=\"sub\">");
        for what in &figure.differs {
            put!(out, "<li>{}</li>", escape_html(what));
        }
        put!(out, "</ul>\n");
    }
}

fn write_chart(out: &mut String, chart: &Chart, caption: &str) {
    let [wide, narrow] = CHART_WIDTHS.map(|width| draw_chart(chart, width));
    put!(
        out,
        "<figure><div class=\"wide\">{wide}</div><div class=\"narrow\">{narrow}</div><figcaption>{}\
         </figcaption></figure>\n",
        escape_html(caption)
    );
}

/// Returns the figure's pictures against time, each with its caption.
fn trace_charts(paper: &Paper, figure: &Figure, results: &Results) -> Vec<(Chart, String)> {
    let of_it = |one: &&Trace| one.paper == paper.name && Some(&one.experiment) == figure.experiment.as_ref();
    let wanted = results.traces.iter().filter(of_it).filter(|_| figure.trace.is_some());
    let drawn = wanted.flat_map(|trace| {
        let (lost, all) = trace.lost_and_sent_echoes();
        let whole = format!(
            "Echoes {}: medians of {WHOLE_RUN_STEP_SECONDS} s, the shade from the lowest to the highest in \
             them. Lost: {lost} \
             of {all}. Diamonds are the paper's numbers.",
            trace.label,
        );
        let charts = trace.charts(figure, &series_label(SUBJECT_SERIES, results));
        charts.into_iter().enumerate().map(move |(number, chart)| {
            let caption = match number {
                0 => whole.clone(),
                _ => format!(
                    "{}: echoes by when they were sent; at 0 the new uplink takes the traffic. Medians of {} \
                     ms, the shade from the lowest to the highest.",
                    chart.title,
                    1e3 * SINGLE_MOVE_STEP_SECONDS
                ),
            };
            (chart, caption)
        })
    });
    drawn.collect()
}

fn chart_caption(chart: &Chart) -> String {
    let repeated = chart.curves.iter().flat_map(|curve| &curve.points).any(|point| point.3 > point.2);
    let what = match (chart.x.is_some(), repeated) {
        (true, true) => "Medians; the shade reaches from the lowest to the highest repetition.",
        (true, false) => "No repetition differs.",
        (false, true) => "Medians; the thin line reaches from the lowest to the highest repetition.",
        (false, false) => "No repetition differs.",
    };
    match chart.marks.is_empty() {
        true => what.into(),
        false => format!("{what} Dashed outlines and diamonds are the paper's numbers."),
    }
}

/// Returns the picture of a figure; `None` if nothing was measured, or if its numbers form no curve.
fn figure_chart(paper: &Paper, figure: &Figure, results: &Results) -> Option<Chart> {
    let mut curves = Vec::new();
    let experiments = figure.experiment.iter().chain(&figure.against);
    for (number, experiment) in experiments.enumerate() {
        // The page shows metrics of a scenario in a table and not in a picture.
        if figure.values.iter().any(|v| v.ours.as_ref().is_some_and(|ours| ours.metric.is_some())) {
            return None;
        }
        for ((name, with), points) in results.curves(&paper.name, experiment, figure.quantity.as_deref()) {
            let mut label = series_label(name, results);
            if let Some(with) = with {
                label += &format!(", {with}");
            }
            if figure.against.is_some() {
                label += if number == 0 { ", limited" } else { ", all of a core" };
            }
            let point = |one: &&CurvePoint| {
                (one.x.unwrap_or(0.0), one.values.median, one.values.lowest, one.values.highest)
            };
            let dashed = name == PLAIN_SERIES || name == IPV4_SERIES;
            curves.push(ChartCurve { label, is_dashed: dashed, points: points.iter().map(point).collect() });
        }
    }
    if curves.is_empty() {
        return None;
    }
    // If all curves have a single point, an axis would say nothing.
    let single = curves.iter().all(|curve| curve.points.len() == 1);
    let marks = figure.values.iter().filter(|value| {
        let plain = |ours: &super::paper::NumberSelector| {
            ours.over.is_none()
                && ours.minus.is_none()
                && ours.over_experiment.is_none()
                && ours.shape.is_none()
                && ours.times.is_none()
        };
        value.ours.as_ref().is_some_and(plain)
    });
    let marks = marks.map(|value| MarkedValue {
        label: value.what.clone(),
        x: value.ours.as_ref().and_then(|ours| ours.x),
        y: value.paper,
    });
    Some(Chart {
        title: figure.title.clone(),
        x: figure.x.clone().filter(|_| !single),
        y: figure.y.clone().unwrap_or_default(),
        is_logarithmic: figure.scale.as_deref() == Some("log"),
        curves,
        marks: marks.collect(),
        ..Chart::default()
    })
}

fn write_machine_description(out: &mut String, results: &Results) {
    let m = &results.machine;
    put!(out, "<h2>The machine</h2>\n<figure><dl>");
    let load = results.load_before;
    let [others, stolen] = results.core_shares_of_others.map(|share| share * 100.0);
    let rows = [
        ("processor", m.processor_text()),
        ("memory", format!("{} MiB", m.memory_mib)),
        ("kernel", m.kernel.clone()),
        ("faults of the processor", m.mitigations_text()),
        ("system", m.system.clone()),
        ("carnet", m.carnet.clone()),
        ("commit", m.commit.clone().unwrap_or_else(|| "unknown".into())),
        ("load before", format!("{:.2} {:.2} {:.2}", load[0], load[1], load[2])),
        ("meanwhile", format!("other programs {others:.1} % of all cores, other guests {stolen:.1} %")),
        ("time", format!("{}, {:.0} s", results.time, results.duration_s)),
    ];
    for (key, value) in rows {
        put!(out, "<dt>{key}</dt><dd>{}</dd>", escape_html(&value));
    }
    put!(out, "</dl></figure>\n");
}

/// Prints a page to PDF by a headless Chromium. The browser may write only that file.
pub fn print_to_pdf(browser: &Path, page: &Path, pdf: &Path) -> anyhow::Result<()> {
    let profile = pdf.with_extension("profile");
    let mut command = Command::new(browser);
    command
        .args([
            "--headless",
            "--disable-gpu",
            "--no-sandbox",
            "--no-pdf-header-footer",
            "--disable-extensions",
        ])
        .args(["--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--print-to-pdf={}", pdf.display()))
        .arg(format!("file://{}", page.canonicalize()?.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("cannot start {}", browser.display()))?;
    let until = monotonic_now() + PRINT_TIMEOUT;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if monotonic_now() > until {
            child.kill()?;
            child.wait()?;
            break None;
        }
        sleep(SECOND / 20);
    };
    let _ = std::fs::remove_dir_all(&profile);
    ensure!(
        status.is_some_and(|status| status.success()) && pdf.exists(),
        "expected output from the program {}, found none",
        browser.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::{Effort, papers_named};
    use crate::results::tests::test_results;

    #[test]
    fn report_has_paper_and_measured_numbers_and_no_remote_content() {
        let mut results = test_results();
        results.subject.name = "a <router>".into();
        let paper = &papers_named(&["nemo-basic-support".into()], Effort::Full).expect("is good")[0];
        let page = html_report(paper, &results);
        for word in ["http:", "https:", "src=", "href=", "@import", "url(", "//", "<router>", "NaN"] {
            assert!(!page.contains(word), "the page contains {word}");
        }
        for word in ["92.8 Mbit/s", "92.1 Mbit/s", "0.992", "a &lt;router&gt;", "Not part of this run"] {
            assert!(page.contains(word), "the page lacks {word}");
        }
        assert!(page.contains(">here</th>") && !page.contains("emulated"), "nothing is emulated");
        // The page says at its head and in every table that the machine was emulated.
        results.machine.emulated = true;
        let emulated = html_report(paper, &results);
        let (above, below) = emulated.split_once("<h2>").expect("has headings");
        assert!(above.contains("<b>Not to be relied on:</b> an emulated machine: "), "{above}");
        assert_eq!(below.matches("<thead>").count(), below.matches(">here, emulated</th>").count());
        assert!(page.contains("92.1 Mbit/s<br><small class=\"sub\">(92 to 92.2)</small>"), "a spread");
        // Each picture is drawn twice.
        assert_eq!(page.matches("aria-label=\"Figure 2: UDP throughput with and without NEMO\"").count(), 2);
    }

    #[test]
    fn report_draws_handover_against_time() {
        use crate::trace::UplinkMove;
        let paper = &papers_named(&["nemo-wimax".into()], Effort::Full).expect("is good")[0];
        let trace = Trace {
            paper: "nemo-wimax".into(),
            experiment: "media-handover".into(),
            label: "in the <tunnel>".into(),
            sent_at_s: (0..200).map(|n| f64::from(n) / 100.0).collect(),
            round_trip_ms: (0..200).map(|n| (n != 100).then_some(3.0)).collect(),
            moves: vec![UplinkMove { at_s: 1.0, new_uplink: "WiMAX".into() }],
        };
        let mut results = Results { traces: vec![trace], ..test_results() };
        let page = html_report(paper, &results);
        for word in
            ["in the &lt;tunnel&gt;: medians of 0.5 s", "Lost: 1 of 200.", "The move to WiMAX: echoes"]
        {
            assert!(page.contains(word), "the page lacks {word}");
        }
        for word in [
            "moves to WiMAX</text>",
            "lost (1)</text>",
            "round trip, Wi-Fi (emulated as in the paper): 3.1</text>",
        ] {
            // The picture of the whole run and the picture of the moves are each drawn twice.
            assert_eq!(page.matches(word).count(), 4, "{word}");
        }
        results.traces[0].experiment = "tcp-up".into();
        assert!(!html_report(paper, &results).contains("medians of 0.5 s"), "another experiment's");
    }
}
