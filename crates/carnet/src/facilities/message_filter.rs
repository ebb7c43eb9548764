//! An application's filter for messages or the map, given as the query of a URL.

use carnet_api::model::{GnArea, GnCircle};
use carnet_geonet::geodesy::is_inside;
use carnet_station::io::MessageKind;
use carnet_wire::geonet::GeoArea;

use super::ReceivedMessage;
use super::named_numbers::{self, CAUSE_NAMES};

/// Filter of a client for messages and objects; a filter without values passes all of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MessageFilter {
    /// Kinds that pass: CAM (for the map: stations) or DENM (for the map: events). With `None` all kinds
    /// pass.
    message_kinds: Option<Vec<MessageKind>>,
    /// Named area or circle. Only messages and objects inside it pass the filter.
    pub area: Option<GnArea>,
    station_types: Option<Vec<u8>>,
    event_causes: Option<Vec<u8>>,
}

impl MessageFilter {
    /// Parses a query of the form `KEY=VALUE&KEY=VALUE`.
    ///
    /// # Errors
    /// Returns the mistake, with the expected value.
    pub fn parse(query: &str) -> Result<MessageFilter, String> {
        let mut filter = MessageFilter::default();
        let mut circle: [Option<f64>; 3] = [None; 3];
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode_percent(value).ok_or_else(|| format!("{key}: {value:?} is no text"))?;
            match key {
                "type" => {
                    filter.message_kinds = Some(parse_each(&value, |word| match word {
                        "cam" => Ok(MessageKind::Cam),
                        "denm" => Ok(MessageKind::Denm),
                        _ => Err(format!("type: {word:?} is not known, expected cam or denm")),
                    })?);
                }
                "area" => filter.area = Some(GnArea::Name(value)),
                "station_type" => {
                    let names = named_numbers::station_type_names();
                    filter.station_types =
                        Some(parse_each(&value, |word| parse_numbered(key, &names, word))?);
                }
                "cause" => {
                    filter.event_causes =
                        Some(parse_each(&value, |word| parse_numbered(key, &CAUSE_NAMES, word))?)
                }
                "latitude" => circle[0] = Some(parse_bounded(key, &value, -90.0, 90.0)?),
                "longitude" => circle[1] = Some(parse_bounded(key, &value, -180.0, 180.0)?),
                "radius_m" => circle[2] = Some(parse_bounded(key, &value, 1.0, 65535.0)?),
                _ => {
                    return Err(format!(
                        "{key:?} is not known, expected type, area, latitude, longitude, radius_m, \
                         station_type or cause"
                    ));
                }
            }
        }
        match (circle, &filter.area) {
            ([None, None, None], _) => Ok(filter),
            ([Some(latitude), Some(longitude), Some(radius)], None) => {
                let circle = GnCircle { latitude, longitude, radius_m: radius as u16 };
                Ok(MessageFilter { area: Some(GnArea::Circle(circle)), ..filter })
            }
            _ => {
                Err("an area has a name, or latitude, longitude and radius_m, expected one of the two".into())
            }
        }
    }

    /// Returns whether messages of this kind pass the filter.
    pub fn accepts_kind(&self, kind: MessageKind) -> bool {
        self.message_kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }

    /// Returns whether stations of this type pass the filter.
    pub fn has_station_type(&self, number: u8) -> bool {
        self.station_types.as_ref().is_none_or(|types| types.contains(&number))
    }

    /// Returns whether events with this cause pass the filter.
    pub fn has_cause(&self, cause: Option<u8>) -> bool {
        self.event_causes.as_ref().is_none_or(|causes| cause.is_some_and(|cause| causes.contains(&cause)))
    }

    /// Returns whether a message passes the filter; `area` is the present position of the filter's area.
    pub fn accepts_message(&self, message: &ReceivedMessage, area: Option<&GeoArea>) -> bool {
        // A DENM that ends an event has only the action ID and no position, so only its kind is compared.
        let Some(place) = message.message_position else { return self.accepts_kind(message.kind) };
        self.accepts_kind(message.kind)
            && self.has_station_type(message.station_type)
            && (message.kind == MessageKind::Cam || self.has_cause(message.event_cause))
            && area.is_none_or(|area| is_inside(area, place))
    }
}

fn parse_each<T>(value: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    value.split(',').map(read).collect()
}

fn parse_numbered(key: &str, names: &[(&str, u8)], word: &str) -> Result<u8, String> {
    named_numbers::number_of_name(names, word).ok_or_else(|| {
        format!("{key}: {word:?} is not known, expected a number or {}", named_numbers::list_names(names))
    })
}

fn parse_bounded(key: &str, value: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{key} is {value:?}, expected a number from {least} to {most}"))
}

/// Decodes the `%XX` sequences of a value (RFC 3986 2.1); `None` if a sequence is invalid or the result is no
/// UTF-8 text.
fn decode_percent(text: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        octets.push(match first {
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                rest = rest.get(2..)?;
                u8::from_str_radix(digits, 16).ok()?
            }
            octet => *octet,
        });
    }
    String::from_utf8(octets).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_geonet::geodesy::Position;

    fn received_message(kind: MessageKind, station_type: u8, cause: Option<u8>) -> ReceivedMessage {
        let place = Some(Position::new(488_375_000, 21_008_000));
        ReceivedMessage {
            kind,
            message_position: place,
            station_type,
            event_cause: cause,
            json_text: String::new(),
        }
    }

    #[test]
    fn empty_message_filter_matches_everything() {
        let filter = MessageFilter::parse("").expect("a filter");
        assert!(filter.accepts_message(&received_message(MessageKind::Cam, 5, None), None));
        assert!(filter.accepts_message(&received_message(MessageKind::Denm, 5, Some(94)), None));
    }

    #[test]
    fn filter_selects_by_message_station_type_and_cause() {
        let filter = MessageFilter::parse("type=denm&station_type=bus,5&cause=stationary_vehicle,1")
            .expect("a filter");
        let takes = |kind, station_type, cause| {
            filter.accepts_message(&received_message(kind, station_type, cause), None)
        };
        assert!(takes(MessageKind::Denm, 6, Some(94)) && takes(MessageKind::Denm, 5, Some(1)));
        assert!(!takes(MessageKind::Cam, 6, None) && !takes(MessageKind::Denm, 7, Some(94)));
        assert!(!takes(MessageKind::Denm, 6, Some(95)) && !takes(MessageKind::Denm, 6, None));
        // A filter for causes does not exclude CAMs.
        let filter = MessageFilter::parse("cause=94").expect("a filter");
        assert!(filter.accepts_message(&received_message(MessageKind::Cam, 6, None), None));
    }

    #[test]
    fn filter_selects_by_area_name_or_circle() {
        let named = MessageFilter::parse("area=the%20crossing").expect("a filter");
        assert_eq!(named.area, Some(GnArea::Name("the crossing".into())));
        let circle =
            MessageFilter::parse("latitude=48.8375&longitude=2.1008&radius_m=300").expect("a filter");
        let expected = GnCircle { latitude: 48.8375, longitude: 2.1008, radius_m: 300 };
        assert_eq!(circle.area, Some(GnArea::Circle(expected)));
        let far = ReceivedMessage {
            message_position: Some(Position::default()),
            ..received_message(MessageKind::Cam, 5, None)
        };
        let area = carnet_station::io::Area {
            shape: carnet_station::io::AreaShape::Circle,
            latitude: 488_375_000,
            longitude: 21_008_000,
            distance_a: 300,
            distance_b: 0,
            angle: 0,
        };
        assert!(circle.accepts_message(&received_message(MessageKind::Cam, 5, None), Some(&area.into())));
        assert!(!circle.accepts_message(&far, Some(&area.into())));
    }

    #[test]
    fn invalid_message_filters_are_refused_with_reason() {
        for (query, expected) in [
            ("kind=cam", "\"kind\" is not known, expected type, area"),
            ("type=spatem", "type: \"spatem\" is not known, expected cam or denm"),
            (
                "station_type=boat",
                "station_type: \"boat\" is not known, expected a number or unknown, pedestrian",
            ),
            ("cause=256", "cause: \"256\" is not known"),
            ("latitude=91&longitude=0&radius_m=1", "latitude is \"91\", expected a number from -90 to 90"),
            ("latitude=1", "an area has a name, or latitude, longitude and radius_m"),
            ("area=a&latitude=1&longitude=0&radius_m=1", "expected one of the two"),
            ("area=%zz", "area: \"%zz\" is no text"),
        ] {
            let told = MessageFilter::parse(query).expect_err(query);
            assert!(told.contains(expected), "{query}: {told}");
        }
    }
}
