//! Reads floating car data that SUMO has written (`sumo --fcd-output`).
//!
//! ```xml
//! <timestep time="0.00">
//!     <vehicle id="v0" x="12.5" y="-1.6" angle="90.00" speed="13.90"/>
//! </timestep>
//! ```
//!
//! A vehicle exists from its first to its last time step. A vehicle of the first time step also stands at its
//! place before that. So its station has a position from the start. With `--fcd-output.geo` x is the
//! longitude and y the latitude. The parser reads the tags `timestep`, `vehicle` and `person`. It computes
//! speed and angle from the places. The parser accepts only SUMO's kind of XML: tags with attributes in
//! double quotes.

use std::collections::BTreeMap;

use super::{Track, TrackFileError};
use crate::medium::geometry::{MapOrigin, Point, check_degrees};

/// Reads a file and returns the tracks by id of the vehicle. With `geo`, the coordinates are degrees.
///
/// # Errors
/// The error contains the line of the mistake.
pub fn parse(text: &str, geo: Option<&MapOrigin>) -> Result<BTreeMap<String, Track>, TrackFileError> {
    let mut points: BTreeMap<String, Vec<(f64, Point)>> = BTreeMap::new();
    let (mut time, mut begin) = (None, None);
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let before = &text[..text.len() - rest.len() + start];
        let wrong = |message: String| TrackFileError { line: before.matches('\n').count() + 1, message };
        rest = &rest[start + 1..];
        let end = if rest.starts_with("!--") { rest.find("-->") } else { rest.find('>') };
        let Some(end) = end else { return Err(wrong("a tag without end".into())) };
        let tag = &rest[..end];
        rest = &rest[end..];
        let name = tag.split(|c: char| c.is_whitespace() || c == '/').next().unwrap_or_default();
        match name {
            "timestep" => {
                let seconds = parse_number(tag, "time").map_err(wrong)?;
                if time.is_some_and(|before| before >= seconds) {
                    return Err(wrong(format!("time {seconds} is not later than the time before it")));
                }
                time = Some(seconds);
                begin.get_or_insert(seconds);
            }
            "vehicle" | "person" => {
                let Some(seconds) = time else { return Err(wrong("a vehicle outside of a timestep".into())) };
                let id = attribute_value(tag, "id").ok_or_else(|| wrong(format!("<{name}> has no id")))?;
                let (x, y) = (parse_number(tag, "x").map_err(wrong)?, parse_number(tag, "y").map_err(wrong)?);
                if geo.is_some() {
                    check_degrees((y, x)).map_err(|message| wrong(format!("vehicle {id:?}: {message}")))?;
                }
                let place = geo.map_or(Point { x, y }, |origin| origin.point_at(y, x));
                let points = points.entry(id.to_owned()).or_default();
                if points.last().is_some_and(|last| last.0 >= seconds) {
                    return Err(wrong(format!("vehicle {id:?} occurs twice in one timestep")));
                }
                points.push((seconds, place));
            }
            _ => {}
        }
    }
    let track = |points: Vec<(f64, Point)>| match points.first().map(|first| first.0) == begin {
        true => Track::disappearing_at_end(points),
        false => Track::appearing_and_disappearing(points),
    };
    Ok(points.into_iter().filter_map(|(id, points)| Some((id, track(points)?))).collect())
}

/// Returns the value of an attribute in an XML tag; `None` if the tag lacks the attribute.
fn attribute_value<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = tag;
    loop {
        let at = rest.find(name)?;
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        if before.ends_with(char::is_whitespace)
            && let Some(value) = after.strip_prefix("=\"")
        {
            return value.split('"').next();
        }
        rest = after;
    }
}

fn parse_number(tag: &str, name: &str) -> Result<f64, String> {
    let text = attribute_value(tag, name).ok_or_else(|| format!("no attribute {name} in <{tag}>"))?;
    let number = text.parse().ok().filter(|value: &f64| value.is_finite());
    number.ok_or_else(|| format!("{name} is {text:?}, expected a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FCD_FILE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!-- generated on 2026-01-01 by <Eclipse> SUMO -->
<fcd-export xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
    <timestep time="0.00"/>
    <timestep time="1.00">
        <vehicle id="v0" x="10.00" y="-1.60" angle="90.00" type="car" speed="13.90"
                 pos="5.10" lane="e_0" slope="0.00"/>
    </timestep>
    <timestep time="2.00">
        <vehicle id="v0" x="23.90" y="-1.60" angle="90.00" type="car" speed="13.90"
                 pos="19.00" lane="e_0" slope="0.00"/>
        <vehicle id="v1" x="0.00" y="1.60" angle="270.00" type="car" speed="0.00"
                 pos="0.00" lane="f_0" slope="0.00"/>
    </timestep>
</fcd-export>
"#;

    #[test]
    fn fcd_vehicles_appear_and_disappear() {
        let tracks = parse(FCD_FILE, None).expect("is good");
        assert_eq!(tracks.keys().collect::<Vec<_>>(), ["v0", "v1"]);
        let place =
            |id: &str, t: f64| tracks[id].position_at(t).map(|p| ((p.x * 100.0).round() / 100.0, p.y));
        assert_eq!([place("v0", 0.5), place("v0", 1.5)], [None, Some((16.95, -1.6))]);
        assert_eq!(place("v1", 2.0), Some((0.0, 1.6)));
    }

    #[test]
    fn fcd_vehicle_has_first_position_before_start() {
        let text = FCD_FILE.replace("    <timestep time=\"0.00\"/>\n", "");
        let tracks = parse(&text, None).expect("is good");
        let place = |id: &str, t: f64| tracks[id].position_at(t).map(|p| p.x);
        assert_eq!([place("v0", -100.0), place("v0", 1.0), place("v0", 2.1)], [Some(10.0), Some(10.0), None]);
        assert_eq!(place("v1", -100.0), None);
    }

    #[test]
    fn fcd_degrees_become_metres() {
        let origin = MapOrigin::new(48.8375, 2.1008);
        let place = Point { x: 250.0, y: -400.0 };
        let (latitude, longitude) = origin.to_degrees(place);
        let text =
            format!("<timestep time=\"0\"><vehicle id=\"a\" x=\"{longitude}\" y=\"{latitude}\"/></timestep>");
        let found = parse(&text, Some(&origin)).expect("is good")["a"].position_at(0.0).expect("is there");
        assert!(found.distance_to(place) < 0.01, "{found:?}");
    }

    #[test]
    fn invalid_fcd_positions_are_named_with_line() {
        let origin = MapOrigin::new(48.8375, 2.1008);
        for (x, y) in [("2.1", "90.5"), ("2.1", "-91"), ("180.2", "48.8"), ("-1e9", "48.8"), ("2.1", "1e308")]
        {
            let vehicle = format!("<vehicle id=\"a\" x=\"{x}\" y=\"{y}\"/>");
            let text = format!("<fcd-export>\n<timestep time=\"0\">\n{vehicle}</timestep>\n");
            let wrong = parse(&text, Some(&origin)).expect_err("is off the globe");
            assert_eq!(wrong.line, 3, "{wrong:?}");
            let named = "vehicle \"a\": latitude ";
            assert!(wrong.message.starts_with(named) && wrong.message.contains("expected"), "{wrong:?}");
            assert!(parse(&text, None).is_ok(), "these are metres");
        }
    }

    #[test]
    fn fcd_errors_name_the_line() {
        for (from, to, line, message) in [
            ("x=\"23.90\"", "x=\"far\"", 10, "x is \"far\", expected a number"),
            ("id=\"v1\"", "id=\"v0\"", 12, "vehicle \"v0\" occurs twice in one timestep"),
            ("time=\"2.00\"", "time=\"1.00\"", 9, "time 1 is not later than the time before it"),
            ("<timestep time=\"1.00\">", "<timestep>", 5, "no attribute time"),
            ("</fcd-export>\n", "<vehicle", 15, "a tag without end"),
        ] {
            assert!(FCD_FILE.contains(from));
            let mistake = parse(&FCD_FILE.replacen(from, to, 1), None).expect_err("is bad");
            assert!(mistake.message.starts_with(message), "{}", mistake.message);
            assert_eq!(mistake.line, line, "{to}");
        }
        let alone = parse("<vehicle id=\"a\" x=\"1\" y=\"2\"/>", None).expect_err("is bad");
        assert_eq!(alone.message, "a vehicle outside of a timestep");
    }
}
