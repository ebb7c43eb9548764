//! The commands for events on the road.

use std::time::Duration;

use carnet_api::config::parse_length;
use carnet_api::model::{ActionId, Cause, DenmRequest, GnArea, GnCircle, GnPlace};
use carnet_station::io::DenmAction;
use clap::{Args, Subcommand};

use super::Station;
use super::geonet::{parse_circle, parse_degrees, parse_time, whole_milliseconds};
use crate::facilities::named_numbers::{self, CAUSE_NAMES};

/// `carnet denm`
#[derive(Debug, Args)]
pub struct DenmCommand {
    /// Action on an event.
    #[command(subcommand)]
    pub action: EventAction,
}

/// Commands for an event that the station reports (DENM).
#[derive(Debug, Subcommand)]
pub enum EventAction {
    /// Report a new event, and print its action ID.
    Trigger(Event),
    /// Report a change of an event of this station.
    Update {
        /// Action ID of the event, as `trigger` prints it.
        #[arg(value_name = "EVENT", value_parser = parse_action_id)]
        id: ActionId,
        /// New description of the event.
        #[command(flatten)]
        event: Event,
    },
    /// Report that an event of this station is over.
    Cancel(End),
    /// Report that an event of another station is over.
    Negate(End),
}

/// Description of an event.
#[derive(Debug, Args)]
pub struct Event {
    /// Cause: a word such as stationary_vehicle, or a causeCode of TS 102 894-2.
    #[arg(value_name = "CAUSE", value_parser = parse_cause)]
    pub cause: u8,
    /// subCauseCode: a more precise cause.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub sub_cause: u8,
    /// Certainty of the event, 1 (lowest) to 7 (highest); 0 if unknown.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=7))]
    pub quality: u8,
    /// Position of the event (default: position of the station).
    #[arg(long, value_name = "LAT,LON", value_parser = parse_place, allow_hyphen_values = true)]
    pub at: Option<GnPlace>,
    /// Time for which the event is valid (default: 10m).
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub validity: Option<Duration>,
    /// Distance from the event up to which it is relevant.
    #[arg(long, value_name = "LENGTH", value_parser = parse_length)]
    pub relevance: Option<u16>,
    /// Traffic for which the event is relevant: all, upstream, downstream or opposite.
    #[arg(long, value_name = "TRAFFIC")]
    pub direction: Option<String>,
    /// Destination and repetition of the message.
    #[command(flatten)]
    pub dissemination: Dissemination,
}

/// Destination and repetition of a message.
#[derive(Debug, Args)]
pub struct Dissemination {
    /// Repeat the message at this interval.
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "during")]
    pub every: Option<Duration>,
    /// Repeat the message for this time.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, requires = "every")]
    pub during: Option<Duration>,
    /// Send the message to a named area (default: the event's surroundings, up to the distance of relevance).
    #[arg(long, value_name = "NAME", conflicts_with = "circle")]
    pub area: Option<String>,
    /// Send the message to a circle.
    #[arg(long, value_name = "LAT,LON,METRES", value_parser = parse_circle, allow_hyphen_values = true)]
    pub circle: Option<GnCircle>,
    /// The station.
    #[command(flatten)]
    pub station: Station,
}

/// Action ID of an event that is over.
#[derive(Debug, Args)]
pub struct End {
    /// Action ID of the event, STATION:NUMBER, as `trigger` and `show ldm` print it.
    #[arg(value_name = "EVENT", value_parser = parse_action_id)]
    pub id: ActionId,
    /// Destination and repetition of the message.
    #[command(flatten)]
    pub dissemination: Dissemination,
}

impl EventAction {
    /// Returns the kind of the request, the request, and the station that it goes to.
    pub fn into_request(self) -> (DenmAction, DenmRequest, Station) {
        let (wish, action_id, event, sending) = match self {
            EventAction::Trigger(event) => {
                (DenmAction::Trigger, None, event.to_request(), event.dissemination)
            }
            EventAction::Update { id, event } => {
                (DenmAction::Update, Some(id), event.to_request(), event.dissemination)
            }
            EventAction::Cancel(end) => {
                (DenmAction::Cancel, Some(end.id), DenmRequest::default(), end.dissemination)
            }
            EventAction::Negate(end) => {
                (DenmAction::Negate, Some(end.id), DenmRequest::default(), end.dissemination)
            }
        };
        let request = DenmRequest {
            action_id,
            repetition_interval_ms: sending.every.map(whole_milliseconds),
            repetition_duration_ms: sending.during.map(whole_milliseconds),
            area: sending.area.map(GnArea::Name).or(sending.circle.map(GnArea::Circle)),
            ..event
        };
        (wish, request, sending.station)
    }
}

impl Event {
    fn to_request(&self) -> DenmRequest {
        DenmRequest {
            cause: Cause(self.cause),
            sub_cause: self.sub_cause,
            information_quality: self.quality,
            position: self.at,
            validity_s: self.validity.map(|time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX)),
            relevance_distance_m: self.relevance.map(u32::from),
            relevance_traffic_direction: self.direction.clone(),
            ..DenmRequest::default()
        }
    }
}

fn parse_cause(text: &str) -> Result<u8, String> {
    let number = named_numbers::number_of_name(&CAUSE_NAMES, text).filter(|number| *number > 0);
    number.ok_or_else(|| {
        format!(
            "{text:?} is no cause, expected a number from 1 to 255, or {}",
            named_numbers::list_names(&CAUSE_NAMES)
        )
    })
}

fn parse_action_id(text: &str) -> Result<ActionId, String> {
    let parse = || {
        let (station, number) = text.split_once(':')?;
        let (originating_station_id, sequence_number) = (station.parse().ok()?, number.parse().ok()?);
        Some(ActionId { originating_station_id, sequence_number })
    };
    parse().ok_or_else(|| format!("{text:?} is no event, expected STATION:NUMBER such as 305419896:1"))
}

fn parse_place(text: &str) -> Result<GnPlace, String> {
    let parse = || {
        let (latitude, longitude) = text.split_once(',')?;
        let (latitude, longitude) =
            (parse_degrees(latitude.trim(), 90.0)?, parse_degrees(longitude.trim(), 180.0)?);
        Some(GnPlace { latitude, longitude })
    };
    parse().ok_or_else(|| format!("{text:?} is no position, expected LAT,LON such as 48.8375,2.1008"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_ids_are_parsed() {
        let id = ActionId { originating_station_id: 305_419_896, sequence_number: 1 };
        assert_eq!(parse_action_id("305419896:1"), Ok(id));
        for text in ["", "1", "a:1", "1:65536", "4294967296:0"] {
            assert!(parse_action_id(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cause_codes_are_given_by_name_or_number() {
        assert_eq!((parse_cause("stationary_vehicle"), parse_cause("94")), (Ok(94), Ok(94)));
        for text in ["", "0", "256", "boredom"] {
            assert!(
                parse_cause(text)
                    .is_err_and(|told| told.contains("expected a number from 1 to 255, or traffic"))
            );
        }
    }

    #[test]
    fn event_positions_are_parsed() {
        assert_eq!(parse_place("48.8375, -2.1008"), Ok(GnPlace { latitude: 48.8375, longitude: -2.1008 }));
        assert!(parse_place("91,0").is_err() && parse_place("1").is_err());
    }
}
