//! Writes `report.html`, which needs no other files.
//!
//! The lab makes the page from `results.json` alone. Pictures are inline SVG, each drawn twice, for wide and
//! for narrow screens. Colours follow the reader's preference for light or dark.

pub mod chart;
mod map;
mod picture;
mod plot;

use std::fmt::Write;

use crate::expect::{ExpectationOutcome, format_number, format_value};
use crate::results::Results;
use crate::scenario::WHOLE_RUN_SECTION;

/// Style sheet of the pictures, with the colours.
pub const FIGURE_STYLE: &str = include_str!("figure.css");
/// Style sheet of the pages.
pub const PAGE_STYLE: &str = include_str!("style.css");

/// Escapes text for HTML.
pub fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Writes into a string, which never fails.
#[macro_export]
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{ let _ = write!($out, $($arg)*); }};
}
pub use put;

/// Returns the run against time as a separate picture.
pub fn timeline_picture(r: &Results) -> String {
    let picture = plot::draw_timeline(r, 1020.0);
    let (tag, content) = picture.split_once('>').unwrap_or((&picture, ""));
    format!(
        "{tag} xmlns=\"http://www.w3.org/2000/svg\">\n<style>\n{FIGURE_STYLE}svg {{ background: var(--card); \
         }}\n</style>{content}\n"
    )
}

/// Returns the report of a run as an HTML page.
pub fn html_report(r: &Results) -> String {
    let mut out = String::new();
    put!(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    put!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    put!(out, "<title>{} \u{2013} carnet-lab</title>", escape_html(&r.title));
    put!(out, "<style>\n{FIGURE_STYLE}{PAGE_STYLE}</style></head><body><main>\n");
    write_head(&mut out, r);
    let s = &r.series;
    if !(s.rtt.is_empty() && s.delay.is_empty() && s.broadcasts.is_empty() && s.load.is_empty()) {
        put!(out, "<h2>The run against time</h2>\n<figure>");
        put!(out, "<div class=\"wide\">{}</div>", plot::draw_timeline(r, 1020.0));
        put!(out, "<div class=\"narrow\">{}</div>", plot::draw_timeline(r, 400.0));
        put!(
            out,
            "<figcaption>{}Lines are medians of 100 ms, the shade reaches up to the highest value in them. \
             Red ticks are lost packets, or broadcasts that somebody did not get. Round-trip times and \
             delays are on a logarithmic scale.</figcaption></figure>\n",
            if r.actions.is_empty() { "" } else { "Numbered lines are the actions of the table below. " }
        );
    }
    write_sections(&mut out, r);
    if r.has_verdict() || r.flows.is_empty() {
        write_expectations(&mut out, r);
    } else {
        write_flows(&mut out, r);
    }
    if let Some(map) = &r.map {
        put!(out, "<h2>The radios</h2>\n<figure>");
        put!(out, "<div class=\"wide\">{}</div>", map::draw_map(map, 1020.0, true));
        put!(out, "<div class=\"narrow\">{}</div>", map::draw_map(map, 400.0, false));
        put!(
            out,
            "<figcaption>Where the nodes are when the timetable begins, and the way that each goes until its \
             end; those in orange ask or warn. Dashed: how far a radio reaches, {} m. The lanes of a long \
             road are drawn apart. Orange circles: where packets are sent to. Every node is a network \
             namespace of one kernel with a carnet of its own; the medium between them is the \
             lab's.</figcaption></figure>\n",
            format_number(map.range_m)
        );
    }
    if !r.topology.nodes.is_empty() {
        put!(out, "<h2>The testbed</h2>\n<figure>");
        put!(out, "<div class=\"wide\">{}</div>", picture::draw_topology(&r.topology, false));
        put!(out, "<div class=\"narrow\">{}</div>", picture::draw_topology(&r.topology, true));
        put!(
            out,
            "<figcaption>Every box is a network namespace of one kernel; framed in blue are those in which \
             carnet runs. Links have no delay of their own.</figcaption></figure>\n"
        );
    }
    write_events(&mut out, r);
    write_machine(&mut out, r);
    put!(out, "</main></body></html>\n");
    out
}

fn write_head(out: &mut String, r: &Results) {
    let failed = r.expectations.iter().filter(|e| e.outcome == ExpectationOutcome::Fail).count();
    let judged = r.expectations.iter().filter(|e| e.outcome != ExpectationOutcome::Skipped).count();
    put!(out, "<h1>{}</h1>\n<p>", escape_html(&r.title));
    if let Some(why) = &r.no_verdict {
        put!(out, "<span class=\"verdict fail\">\u{2717} no verdict: {}</span>", escape_html(why));
    } else if r.passed && !r.has_verdict() {
        put!(out, "<span class=\"sub\">nothing was judged</span> ");
    } else if r.passed {
        put!(out, "<span class=\"verdict pass\">\u{2713} all {judged} expectations held</span>");
    } else {
        put!(out, "<span class=\"verdict fail\">\u{2717} {failed} of {judged} expectations failed</span>");
    }
    put!(
        out,
        "<span class=\"sub\">{}, {} s{}, {}</span></p>\n<p class=\"sub\">{}</p>\n",
        escape_html(&r.time),
        format_number(r.duration_s),
        if r.quick { " (quick run)" } else { "" },
        escape_html(&r.mode),
        escape_html(&r.about)
    );
    if let Some(warning) = r.machine.emulation_warning() {
        put!(out, "<p class=\"fail\"><b>Not to be relied on:</b> {}.</p>\n", escape_html(&warning));
    }
    for warning in &r.warnings {
        put!(out, "<p class=\"fail\">{}</p>\n", escape_html(warning));
    }
    put!(out, "<div class=\"cards\">");
    for h in &r.headline {
        let text = format_value(h.value, &h.unit);
        let text = match text.split_once(' ') {
            Some((value, unit)) if h.value.is_some() => {
                format!("{} <small>{}</small>", escape_html(value), escape_html(unit))
            }
            _ => format!("<small>{}</small>", escape_html(&text)),
        };
        put!(out, "<div class=\"card\"><b>{text}</b><span>{}</span>", escape_html(&h.label));
        if !h.beside.is_empty() {
            put!(out, "<span><small>beside: {}</small></span>", escape_html(&h.beside));
        }
        put!(out, "</div>");
    }
    put!(out, "</div>\n");
}

/// Writes a row for each section of the run. The probes determine the columns.
fn write_sections(out: &mut String, r: &Results) {
    if r.actions.is_empty() {
        return;
    }
    let probes: Vec<&str> = r.series.delay.iter().map(|l| l.name.as_str()).collect();
    let Some(probe) = probes.first() else { return };
    put!(out, "<h2>What happened</h2>\n<div class=\"scroll\"><table><thead><tr><th class=\"n\">at</th>");
    put!(out, "<th>action</th><th>uplink then</th><th class=\"n\">lost</th><th class=\"n opt\">twice</th>");
    put!(out, "<th class=\"n\">longest gap</th><th class=\"n opt\">registration</th></tr></thead><tbody>\n");
    for (n, a) in r.actions.iter().enumerate() {
        let get = |name: &str| r.metrics.get(&a.name).and_then(|m| m.get(name)).copied();
        let own = |what: &str| get(&format!("{probe}.{what}"));
        let cell = |v: Option<f64>, unit: &str| match v {
            Some(_) => format_value(v, unit),
            None => "\u{2013}".into(),
        };
        let until = r.actions.get(n + 1).map_or(r.duration_s, |next| next.at_s);
        let uplinks: Vec<&str> = r
            .active
            .iter()
            .filter(|s| s.from_s < until && s.to_s >= until - 1e-6)
            .map(|s| s.uplink.as_deref().unwrap_or("none"))
            .collect();
        let registration = r
            .topology
            .nodes
            .iter()
            .filter_map(|node| get(&format!("{}.registration_ms", node.name)))
            .reduce(f64::max);
        let lost = own("lost");
        put!(
            out,
            "<tr><td class=\"n t\">{:.1} s</td><td>{}&ensp;{}</td><td>{}</td><td class=\"n{}\">{}</td>\
             <td class=\"n opt\">{}</td><td class=\"n\">{}</td><td class=\"n opt\">{}</td></tr>\n",
            a.at_s,
            n + 1,
            escape_html(&a.label),
            escape_html(&uplinks.join(", ")),
            if lost.is_some_and(|l| l > 0.0) { " fail" } else { "" },
            cell(lost, ""),
            cell(own("duplicated"), ""),
            cell(own("outage_ms"), "ms"),
            cell(registration, "ms")
        );
    }
    let run = |what: &str| {
        r.metrics
            .get(WHOLE_RUN_SECTION)
            .and_then(|m| m.get(&format!("{probe}.{what}")))
            .map_or("\u{2013}".into(), |v| format_number(*v))
    };
    put!(
        out,
        "</tbody></table></div>\n<p class=\"sub\" style=\"margin-top:8px\">Counted are the {} packets of the \
         probe in both directions, each in the section in which it was sent; the longest gap is the longest \
         time in which none arrived in one direction. Registration is from the first Binding Update to its \
         acknowledgement.</p>\n",
        run("sent")
    );
}

/// Writes the flows of a run without expectations.
fn write_flows(out: &mut String, r: &Results) {
    put!(out, "<h2>Flows</h2>\n<div class=\"scroll\"><table><tbody>\n");
    for flow in &r.flows {
        put!(out, "<tr><td>{}</td><td>{}</td>", escape_html(&flow.name), escape_html(&flow.kind));
        for (what, value, unit) in &flow.figures {
            put!(out, "<td>{}: {}</td>", escape_html(what), escape_html(&format_value(*value, unit)));
        }
        put!(out, "</tr>\n");
    }
    put!(out, "</tbody></table></div>\n");
}

fn write_expectations(out: &mut String, r: &Results) {
    put!(out, "<h2>Expectations</h2>\n<div class=\"scroll\"><table><thead><tr><th></th><th>expectation</th>");
    put!(out, "<th class=\"n\">expected</th><th class=\"n\">measured</th></tr></thead><tbody>\n");
    for e in &r.expectations {
        let (class, word) = match e.outcome {
            ExpectationOutcome::Pass => ("pass", "\u{2713} pass"),
            ExpectationOutcome::Fail => ("fail", "\u{2717} fail"),
            ExpectationOutcome::Skipped => ("skipped", "\u{2013} skipped"),
        };
        let measured = e.why.clone().unwrap_or_else(|| format_value(e.measured, &e.unit));
        put!(
            out,
            "<tr title=\"{}: {}\"><td class=\"o {class}\">{word}</td><td>{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td></tr>\n",
            escape_html(&e.section),
            escape_html(&e.metric),
            escape_html(&e.what),
            escape_html(&e.expected),
            escape_html(&measured)
        );
    }
    put!(out, "</tbody></table></div>\n");
}

/// Writes the events of the stations.
fn write_events(out: &mut String, r: &Results) {
    if r.events.is_empty() {
        return;
    }
    put!(
        out,
        "<h2>What the stations told</h2>\n<div class=\"scroll\"><table><thead><tr><th class=\"n\">at</th>"
    );
    put!(out, "<th>station</th><th>event</th><th>details</th></tr></thead><tbody>\n");
    for e in &r.events {
        let Some(fields) = e.event.as_object() else { continue };
        let details: Vec<String> = fields
            .iter()
            .filter(|(key, value)| !["event", "time"].contains(&key.as_str()) && !value.is_null())
            .map(|(key, value)| {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                format!("{} {}", key.replace('_', " "), shown.replace('"', ""))
            })
            .collect();
        put!(
            out,
            "<tr><td class=\"n t\">{:.2} s</td><td>{}</td><td>{}</td><td class=\"sub\">{}</td></tr>\n",
            e.at_s,
            escape_html(&e.node),
            escape_html(&crate::station::event_kind(&e.event).replace('_', " ")),
            escape_html(&details.join(", "))
        );
    }
    put!(out, "</tbody></table></div>\n");
}

fn write_machine(out: &mut String, r: &Results) {
    let m = &r.machine;
    put!(out, "<h2>The machine</h2>\n<figure><dl>");
    let rows = [
        ("processor", m.processor_text()),
        ("memory", format!("{} GiB", format_number((m.memory_mib as f64 / 102.4).round() / 10.0))),
        ("kernel", m.kernel.clone()),
        ("faults of the processor", m.mitigations_text()),
        ("system", m.system.clone()),
        ("carnet", m.carnet.clone()),
        ("commit", m.commit.clone().unwrap_or_else(|| "unknown".into())),
        ("testbed", r.mode.clone()),
        ("time", r.time.clone()),
    ];
    for (key, parse_value) in rows {
        put!(out, "<dt>{key}</dt><dd>{}</dd>", escape_html(&parse_value));
    }
    put!(out, "</dl></figure>\n");
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
