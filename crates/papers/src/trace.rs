//! Draws a scenario's ping against time, with the moments at which the uplink changed. One picture shows the
//! whole run, and further pictures show all moves to the same uplink over each other.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::paper::Figure;
use carnet_bench::figures::Series;
use carnet_testbed::report::chart::{Chart, ChartCurve, EventMarker, MarkedValue, PointWithRange};
use carnet_testbed::results::{ActiveUplinkPeriod, NamedSeries, Topology};

/// Time step in the picture of the whole run, in seconds.
pub const WHOLE_RUN_STEP_SECONDS: f64 = 0.5;
/// Time step in the picture of a move, in seconds.
pub const SINGLE_MOVE_STEP_SECONDS: f64 = 0.01;
/// Time before and after a move that a picture shows, in seconds.
const SECONDS_AROUND_MOVE: f64 = 0.3;

/// Round-trip times of a scenario's ping over time, with the times at which its traffic moved to another
/// uplink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Name of the paper.
    pub paper: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Sender of the ping, in words.
    pub label: String,
    /// Time of each request, in seconds from the begin of the timetable.
    #[serde(rename = "at_s")]
    pub sent_at_s: Vec<f64>,
    /// Round trip of each request in milliseconds; `null` for a lost request.
    #[serde(rename = "ms")]
    pub round_trip_ms: Vec<Option<f64>>,
    /// Moves of the traffic to another uplink.
    pub moves: Vec<UplinkMove>,
}

/// A move of the traffic to another uplink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UplinkMove {
    /// Time in seconds from the begin of the timetable.
    pub at_s: f64,
    /// Kind of the link to which the traffic moved.
    #[serde(rename = "to")]
    pub new_uplink: String,
}

impl Trace {
    /// Returns the ping of this name from a scenario's results (`results.json`); `None` if the results lack
    /// it.
    pub fn from_scenario_results(told: &Value, name: &str) -> Option<Trace> {
        let lines: Vec<NamedSeries<(f64, Option<f64>)>> =
            serde_json::from_value(told["series"]["rtt"].clone()).ok()?;
        let active: Vec<ActiveUplinkPeriod> = serde_json::from_value(told["active"].clone()).ok()?;
        let topology: Topology = serde_json::from_value(told["topology"].clone()).ok()?;
        let line = lines.into_iter().find(|line| line.name == name)?;
        let moves = active.windows(2).filter(|pair| pair[0].node == pair[1].node).filter_map(|pair| {
            let uplink = pair[1].uplink.as_deref()?;
            Some(UplinkMove {
                at_s: pair[1].from_s,
                new_uplink: medium_of_uplink(&topology, &pair[1].node, uplink),
            })
        });
        let (at_s, ms) = line.points.into_iter().unzip();
        let moves = moves.collect();
        Some(Trace {
            paper: String::new(),
            experiment: String::new(),
            label: line.label,
            sent_at_s: at_s,
            round_trip_ms: ms,
            moves,
        })
    }

    /// Returns the number of lost echoes, and of all echoes.
    pub fn lost_and_sent_echoes(&self) -> (usize, usize) {
        (self.round_trip_ms.iter().filter(|ms| ms.is_none()).count(), self.round_trip_ms.len())
    }

    fn echoes_in_order(&self) -> impl Iterator<Item = (f64, Option<f64>)> {
        self.sent_at_s.iter().copied().zip(self.round_trip_ms.iter().copied())
    }

    /// Returns the pictures: the whole run, then the moves to each uplink.
    pub fn charts(&self, figure: &Figure, subject: &str) -> Vec<Chart> {
        let mut uplinks: Vec<&str> = Vec::new();
        for one in &self.moves {
            if !uplinks.contains(&one.new_uplink.as_str()) {
                uplinks.push(&one.new_uplink);
            }
        }
        let marks = figure.values.iter().filter(|value| value.marked);
        let marks: Vec<MarkedValue> =
            marks.map(|value| MarkedValue { label: value.what.clone(), x: None, y: value.paper }).collect();
        let chart = |title: String, x: String, echoes: &[(f64, Option<f64>)], step: f64| Chart {
            title,
            x: Some(x),
            y: figure.y.clone().unwrap_or_default(),
            curves: vec![ChartCurve {
                label: subject.into(),
                is_dashed: false,
                points: summarize_in_steps(echoes, step),
            }],
            marks: marks.clone(),
            lost_at: echoes.iter().filter(|echo| echo.1.is_none()).map(|echo| echo.0).collect(),
            ..Chart::default()
        };
        let all: Vec<_> = self.echoes_in_order().collect();
        let kind = |to: &str| uplinks.iter().position(|uplink| *uplink == to).unwrap_or(0);
        let moment =
            |to: &str, x: f64| EventMarker { label: format!("moves to {to}"), kind_index: kind(to), x };
        let whole = Chart {
            event_markers: self.moves.iter().map(|one| moment(&one.new_uplink, one.at_s)).collect(),
            ..chart(figure.title.clone(), figure.x.clone().unwrap_or_default(), &all, WHOLE_RUN_STEP_SECONDS)
        };
        let of_moves = uplinks.iter().copied().map(|uplink| {
            let moves: Vec<&UplinkMove> = self.moves.iter().filter(|one| one.new_uplink == uplink).collect();
            let title = match moves.len() {
                1 => format!("The move to {uplink}"),
                count => format!("All {count} moves to {uplink}, laid over each other"),
            };
            let axis = format!("{} from the move to {uplink}", figure.x.as_deref().unwrap_or_default());
            Chart {
                event_markers: vec![moment(uplink, 0.0)],
                ..chart(title, axis, &self.echoes_around(&moves), SINGLE_MOVE_STEP_SECONDS)
            }
        });
        std::iter::once(whole).chain(of_moves).collect()
    }

    /// Returns the echoes around these moves. Each has its time in seconds relative to the move, and its
    /// round trip in milliseconds; `None` for a lost echo.
    fn echoes_around(&self, moves: &[&UplinkMove]) -> Vec<(f64, Option<f64>)> {
        let near = |at: f64| {
            moves.iter().map(move |one| at - one.at_s).find(|from| from.abs() <= SECONDS_AROUND_MOVE)
        };
        self.echoes_in_order().filter_map(|(at, ms)| Some((near(at)?, ms))).collect()
    }
}

/// Returns the name of an uplink's link in the scenario, up to a comma; without such a name, the uplink's own
/// name.
fn medium_of_uplink(topology: &Topology, node: &str, uplink: &str) -> String {
    let end = (node.to_owned(), uplink.to_owned());
    let link = topology.links.iter().find(|link| link.ends.contains(&end));
    let word = link.and_then(|link| link.label.split(',').next()).map(str::trim);
    word.filter(|word| !word.is_empty()).unwrap_or(uplink).to_owned()
}

/// Returns median, lowest and highest of the answered echoes for each step of time. Leaves out a step without
/// answers.
fn summarize_in_steps(echoes: &[(f64, Option<f64>)], step: f64) -> Vec<PointWithRange> {
    let mut steps: std::collections::BTreeMap<i64, Vec<f64>> = std::collections::BTreeMap::new();
    for (at, ms) in echoes {
        if let Some(ms) = ms {
            steps.entry((at / step).floor() as i64).or_default().push(*ms);
        }
    }
    let point = |(at, values)| {
        let values = Series::of_rounds(values);
        ((at as f64 + 0.5) * step, values.median, values.lowest, values.highest)
    };
    steps.into_iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns results with one second over Wi-Fi and one over WiMAX. An echo is sent every 10 ms; one is
    /// lost in the move at 1 s.
    fn scenario_results() -> Value {
        let echo = |n: u32| {
            let ms = if n < 100 { 3.0 } else { 47.0 };
            json!([f64::from(n) / 100.0, if n == 100 { Value::Null } else { json!(ms) }])
        };
        let active = |uplink: &str, from: f64| {
            json!({"node": "mr", "uplink": uplink, "from_s": from, "to_\
            s": from + 1.0})
        };
        let link = |uplink: &str, label: &str| {
            json!({"ends": [["ar", uplink], ["mr", uplink]], "labe\
            l": label, "shared": false})
        };
        json!({
            "series": {"rtt": [{"name": "rtt", "label": "in the \
                tunnel", "points": (0..200).map(echo).collect::<Vec<_>>()}]},
            "active": [active("w0", 0.0), active("w1", 1.0)],
            "topology": {"nodes": [], "links": [link("w0", "Wi-Fi, 3 ms"), link("w1", "")]},
        })
    }

    fn trace_figure() -> Figure {
        let text = "id='f'\ntitle='A figure'\nshows=''\nx='seconds'\ny='round trip, ms'\n\
                    [[value]]\nwhat='mean'\npaper=47.0\nunit='ms'\nplace=''\nincomparable='x'\nmarked=true\n";
        toml::from_str(text).expect("is good")
    }

    #[test]
    fn trace_contains_pings_and_moves() {
        let trace = Trace::from_scenario_results(&scenario_results(), "rtt").expect("is there");
        assert_eq!(trace.lost_and_sent_echoes(), (1, 200));
        assert_eq!(
            (trace.sent_at_s[100], trace.round_trip_ms[100], trace.round_trip_ms[101]),
            (1.0, None, Some(47.0))
        );
        assert_eq!(trace.moves, [UplinkMove { at_s: 1.0, new_uplink: "w1".into() }]);
        assert!(Trace::from_scenario_results(&scenario_results(), "other").is_none());
        let mut back = scenario_results();
        back["active"] = json!([back["active"][1], back["active"][0]]);
        assert_eq!(
            Trace::from_scenario_results(&back, "rtt").expect("is there").moves[0].new_uplink,
            "Wi-Fi"
        );
    }

    #[test]
    fn trace_plot_shows_whole_run_and_each_move() {
        let charts = Trace::from_scenario_results(&scenario_results(), "rtt")
            .expect("is there")
            .charts(&trace_figure(), "carnet");
        assert_eq!(charts.len(), 2);
        assert_eq!((charts[0].event_markers[0].x, charts[1].event_markers[0].x), (1.0, 0.0));
        assert_eq!(charts[0].lost_at, [1.0]);
        assert!(charts[1].lost_at[0].abs() < 1e-9, "{:?}", charts[1].lost_at);
        assert_eq!(charts[1].marks[0].y, 47.0);
        let points = &charts[1].curves[0].points;
        assert!(
            points.iter().all(|point| point.0.abs() <= SECONDS_AROUND_MOVE + SINGLE_MOVE_STEP_SECONDS),
            "{points:?}"
        );
        let (before, after): (Vec<&PointWithRange>, Vec<&PointWithRange>) =
            points.iter().partition(|point| point.0 < 0.0);
        assert!(before.len() > 20 && before.iter().all(|point| point.1 == 3.0), "{before:?}");
        assert!(after.len() > 20 && after.iter().all(|point| point.1 == 47.0), "{after:?}");
    }

    #[test]
    fn trace_steps_contain_median_lowest_and_highest_echo() {
        let echoes =
            [(0.01, Some(3.0)), (0.02, Some(1.0)), (0.05, Some(9.0)), (0.15, None), (0.25, Some(5.0))];
        assert_eq!(summarize_in_steps(&echoes, 0.1), [(0.05, 3.0, 1.0, 9.0), (0.25, 5.0, 5.0, 5.0)]);
    }
}
