//! Tests the whole page of the report.

use super::*;
use crate::expect::JudgedExpectation;
use crate::results::{
    ActiveUplinkPeriod, HeadlineValue, NamedSeries, PerformedAction, TopologyLink, TopologyNode,
};

fn test_results() -> Results {
    let mut r = Results {
        title: "A <test> & more".into(),
        time: "2026-01-01 00:00:00 UTC".into(),
        mode: "as root".into(),
        duration_s: 10.0,
        ..Results::default()
    };
    r.headline.push(HeadlineValue {
        label: "outage".into(),
        value: Some(1.5),
        unit: "ms".into(),
        beside: "4.4 ms, others".into(),
    });
    r.expectations.push(JudgedExpectation {
        what: "nothing is lost".into(),
        section: "run".into(),
        metric: "probe.lost".into(),
        expected: "0".into(),
        measured: Some(2.0),
        unit: "packets".into(),
        outcome: ExpectationOutcome::Fail,
        why: None,
    });
    r.actions.push(PerformedAction { name: "cut".into(), label: "w0 cut".into(), at_s: 5.0 });
    r.active.push(ActiveUplinkPeriod {
        node: "mr".into(),
        uplink: Some("w0".into()),
        from_s: 0.0,
        to_s: 10.0,
    });
    let points = vec![(0.1, Some(0.2)), (0.2, None), (0.3, Some(0.4))];
    r.series.rtt = vec![NamedSeries { name: "rtt".into(), label: "tunnel".into(), points }];
    r.series.delay =
        vec![NamedSeries { name: "probe".into(), label: "a to b".into(), points: vec![(0.1, 0.2, 0.3)] }];
    r.series.lost = vec![NamedSeries { name: "probe".into(), label: "a to b".into(), points: vec![5.0] }];
    r.metrics.entry("cut".into()).or_default().insert("probe.lost".into(), 2.0);
    for (x, name) in ["a", "b"].iter().enumerate() {
        r.topology.nodes.push(TopologyNode {
            name: name.to_string(),
            role: "host".into(),
            x: x as f64,
            y: 0.0,
            carnet: x == 0,
            addresses: Default::default(),
        });
    }
    let ends = vec![("a".into(), "e0".into()), ("b".into(), "e1".into())];
    r.topology.links.push(TopologyLink { ends, label: String::new(), shared: false });
    r
}

#[test]
fn report_loads_no_remote_content() {
    let page = html_report(&test_results());
    for word in ["http:", "https:", "src=", "href=", "@import", "url(", "//"] {
        assert!(!page.contains(word), "the page contains {word}");
    }
}

#[test]
fn report_shows_actions_and_expectations() {
    let page = html_report(&test_results());
    for text in ["A &lt;test&gt; &amp; more", "1 of 1 expectations failed", "w0 cut", "1.5 <small>ms</small>"]
    {
        assert!(page.contains(text), "the page lacks {text}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"), "a coordinate is no number");
}

#[test]
fn report_exists_for_run_without_traffic() {
    let page = html_report(&Results { duration_s: 1.0, ..Results::default() });
    assert!(page.contains("The machine"));
    assert!(!page.contains("NaN"));
}
