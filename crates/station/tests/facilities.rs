//! The facilities in whole stations, in virtual time. The tests cover the content of a CAM, its validity, and
//! events from a command to the map of another station.

mod common;

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_cits::facilities::FacilitiesSettings;
use carnet_its::cam::{Cam, HighFrequencyContainer, LowFrequencyContainer};
use carnet_its::cdd::{
    ExteriorLights, Heading, HeadingValue, PathHistory, PathPoint, RelevanceDistance, Speed, SpeedValue,
    StationId, StationType, TimestampIts, Traces, VehicleLengthValue, YawRateValue,
};
use carnet_its::denm::{Denm, LocationContainer, SituationContainer};
use carnet_its::sa::AnnouncedService;
use carnet_its::sam::ItsAid;
use carnet_its::uper;
use carnet_station::io::{
    ActionId, Command, DenmAction, DenmCommand, GeonetOutput, Input, Message, MessageKind, Output, Position,
    PositionQuality,
};
use carnet_station::{GeonetSettings, Station, StationConfig};
use carnet_wire::geonet::{GnAddress, StationType as GnStationType};

use common::facilities_of_passenger_car;
use common::world::NetworkBehaviour;

const START_UNIX_MILLISECONDS: u64 = 1_800_000_000_000;

fn wall_time_at(now: Time) -> WallTime {
    WallTime::from_unix_nanos(START_UNIX_MILLISECONDS * 1_000_000 + now.as_nanos())
}

fn station_with_facilities(index: u8, facilities: Option<FacilitiesSettings>) -> Station {
    let address = GnAddress::new(false, GnStationType::PassengerCar, [2, 0, 0, 0, 0, index]);
    let geonet = GeonetSettings { facilities_settings: facilities, ..common::geonet_settings(address) };
    let config = StationConfig { geonet: Some(geonet), ..StationConfig::default() };
    common::world::station_at_time_zero(config, index.into())
}

/// A radio link between two stations, and the messages that the second station and its applications received.
#[derive(Default)]
struct RadioLink {
    /// Messages that the second station has passed to applications.
    received_messages: Vec<Message>,
    other_outputs: Vec<Output>,
}

type StationPair = common::world::TestNetwork<RadioLink>;

impl NetworkBehaviour for RadioLink {
    fn handle_output(pair: &mut StationPair, from: usize, output: Output) {
        match output {
            Output::Geonet(GeonetOutput::Frame(frame)) => pair.send_now(1 - from, Input::Frame(frame)),
            Output::Geonet(GeonetOutput::Message(message)) if from == 1 => {
                pair.network_behaviour.received_messages.push(message)
            }
            Output::Geonet(GeonetOutput::Triggered(_)) | Output::Geonet(GeonetOutput::EventOver(_)) => {
                pair.network_behaviour.other_outputs.push(output)
            }
            _ => {}
        }
    }
}

impl StationPair {
    /// Returns two stations in range of each other.
    fn new(first: FacilitiesSettings) -> StationPair {
        let stations = [
            station_with_facilities(1, Some(first)),
            station_with_facilities(2, Some(facilities_of_passenger_car())),
        ];
        let mut pair = StationPair::with_stations(stations, RadioLink::default());
        pair.now = Time::from_secs(5);
        pair.set_position(1, 0);
        pair
    }

    /// Sets a position of a station: `north` metres north of the origin, driving at 20 m/s eastwards.
    fn set_position(&mut self, index: usize, north: i32) {
        let milliseconds =
            (START_UNIX_MILLISECONDS - 1_072_915_200_000 + 5000) + self.now.as_nanos() / 1_000_000;
        let position = Position {
            timestamp: milliseconds as u32,
            latitude: 488_375_000 + 90 * north,
            longitude: 21_008_000,
            accurate: true,
            speed: 2000,
            heading: 900,
        };
        self.pass_recorded_input(index, Input::Position(position));
    }

    fn take_cams(&mut self) -> Vec<Cam> {
        let messages = std::mem::take(&mut self.network_behaviour.received_messages);
        let cams = messages.iter().filter(|message| message.kind == MessageKind::Cam);
        cams.map(|message| uper::decode(&message.octets).expect("a CAM")).collect()
    }

    fn order_denm(
        &mut self,
        index: usize,
        wish: DenmAction,
        denm: &Denm,
    ) -> Result<Option<ActionId>, String> {
        let order = DenmCommand {
            wish,
            denm: uper::encode(denm).expect("encodes"),
            repetition_duration_ms: None,
            repetition_interval_ms: None,
            area: None,
            traffic_class: None,
        };
        self.try_recorded_input(index, Input::Command(Command::Denm(order)))?;
        Ok(self.network_behaviour.other_outputs.drain(..).find_map(|output| match output {
            Output::Geonet(GeonetOutput::Triggered(action)) => Some(action),
            _ => None,
        }))
    }

    /// Returns the number of events on the map of the second station.
    fn event_count(&self) -> usize {
        let facilities = self.stations[1].facilities().expect("facilities");
        facilities.services().ldm.events_in(self.now, None).len()
    }
}

fn high_frequency_of(cam: &Cam) -> carnet_its::cam::BasicVehicleContainerHighFrequency {
    match &cam.cam.cam_parameters.high_frequency_container {
        HighFrequencyContainer::BasicVehicleContainerHighFrequency(high) => *high,
        other => panic!("{other:?}"),
    }
}

fn low_frequency_of(cam: &Cam) -> Option<carnet_its::cam::BasicVehicleContainerLowFrequency> {
    match &cam.cam.cam_parameters.low_frequency_container {
        Some(LowFrequencyContainer::BasicVehicleContainerLowFrequency(low)) => Some(low.clone()),
        _ => None,
    }
}

#[test]
fn cam_contains_position_and_movement_of_vehicle() {
    let mut pair = StationPair::new(facilities_of_passenger_car());
    let quality =
        PositionQuality { confidence_cm: Some(250), altitude_cm: Some(12_345), ..Default::default() };
    pair.pass_recorded_input(0, Input::PositionQuality(quality));
    // The station moves 5 m in each tenth of a second: each movement causes a CAM.
    for step in 0..10 {
        pair.set_position(0, 5 * step);
        pair.run_for(Duration::from_millis(100));
    }
    let cams = pair.take_cams();
    // The eleventh CAM follows a tenth of a second after the tenth.
    assert_eq!(cams.len(), 11);
    let last = cams.last().expect("a CAM");
    assert_eq!(last.header.station_id, StationId(1), "the last 32 bits of the address");
    let basic = last.cam.cam_parameters.basic_container;
    let reference = basic.reference_position;
    assert_eq!(
        (basic.station_type, reference.latitude.0),
        (StationType::PASSENGER_CAR, 488_375_000 + 90 * 45)
    );
    assert_eq!(
        (reference.position_confidence_ellipse.semi_major_confidence.0, reference.altitude.altitude_value.0),
        (250, 12_345)
    );
    let high = high_frequency_of(last);
    assert_eq!((high.speed.speed_value.0, high.heading.heading_value.0), (2000, 900));
    assert_eq!((high.vehicle_length.vehicle_length_value.0, high.vehicle_width.0), (43, 18));
    // The time in the CAM is the time of the position, in TAI as the standard requires.
    let date = TimestampIts::from_wall_time(wall_time_at(Time::from_millis(5900)));
    assert_eq!(last.cam.generation_delta_time.0, date.0 as u16);
    let with_path = cams.iter().filter_map(low_frequency_of).next_back().expect("a low-frequency container");
    assert!(!with_path.path_history.0.is_empty());
    let map = &pair.stations[1].facilities().expect("facilities").services().ldm;
    assert_eq!(map.station(StationId(1)).map(|known| known.speed), Some(SpeedValue(2000)));
    assert_eq!(
        (pair.counter(0, "facilities.cam.sent"), pair.counter(1, "facilities.cam.received")),
        (11, 11)
    );
}

#[test]
fn movement_from_application_is_valid_for_two_seconds() {
    let mut pair = StationPair::new(facilities_of_passenger_car());
    let mut cam = Cam::default();
    let HighFrequencyContainer::BasicVehicleContainerHighFrequency(told) =
        &mut cam.cam.cam_parameters.high_frequency_container
    else {
        panic!("a vehicle's")
    };
    told.speed.speed_value = SpeedValue(1234);
    told.yaw_rate.yaw_rate_value = YawRateValue(-450);
    told.vehicle_length.vehicle_length_value = VehicleLengthValue(120);
    let lights = carnet_its::cam::BasicVehicleContainerLowFrequency {
        exterior_lights: ExteriorLights::FOG_LIGHT_ON,
        ..Default::default()
    };
    cam.cam.cam_parameters.low_frequency_container =
        Some(LowFrequencyContainer::BasicVehicleContainerLowFrequency(lights));
    pair.set_position(0, 0);
    pair.pass_recorded_input(0, Input::Vehicle(uper::encode(&cam).expect("encodes")));
    let mut seen = Vec::new();
    for step in 1..=30 {
        pair.set_position(0, 5 * step);
        pair.run_for(Duration::from_millis(100));
        seen.extend(pair.take_cams());
    }
    let fresh = &seen[5];
    assert_eq!(
        (high_frequency_of(fresh).speed.speed_value.0, high_frequency_of(fresh).yaw_rate.yaw_rate_value.0),
        (1234, -450)
    );
    let stale = seen.iter().rfind(|cam| low_frequency_of(cam).is_some()).expect("a CAM");
    assert_eq!(
        (high_frequency_of(stale).speed.speed_value.0, high_frequency_of(stale).yaw_rate),
        (2000, Default::default())
    );
    // Vehicle data that does not describe movement (here the length) stays valid.
    assert_eq!(high_frequency_of(stale).vehicle_length.vehicle_length_value.0, 120);
    assert_eq!(low_frequency_of(stale).map(|low| low.exterior_lights), Some(ExteriorLights::FOG_LIGHT_ON));
    let refused = pair.try_recorded_input(0, Input::Vehicle(vec![1, 2, 3])).expect_err("no CAM");
    assert!(refused.starts_with("the vehicle data is not a CAM"), "{refused}");
}

#[test]
fn cams_end_two_seconds_after_loss_of_position() {
    let mut pair = StationPair::new(facilities_of_passenger_car());
    pair.set_position(0, 0);
    pair.run_for(Duration::from_millis(100));
    pair.take_cams();
    pair.try_recorded_input(0, Input::PositionQuality(PositionQuality { lost: true, ..Default::default() }))
        .expect("accepted");
    for step in 0..50 {
        pair.set_position(0, 5 * step);
        pair.run_for(Duration::from_millis(100));
    }
    let cams = pair.take_cams();
    assert!((1..=3).contains(&cams.len()), "{}", cams.len());
    // When the CA service has stopped sending, it has no timer either.
    let due = pair.stations[0].facilities().expect("facilities").services().ca_service.poll_timeout();
    assert_eq!(due, None);
}

#[test]
fn station_without_ca_service_still_receives_cams() {
    let mut pair = StationPair::new(FacilitiesSettings {
        sends_cams: false,
        station_id: Some(StationId(77)),
        ..facilities_of_passenger_car()
    });
    for step in 0..10 {
        pair.set_position(0, 5 * step);
        pair.set_position(1, 5 * step);
        pair.run_for(Duration::from_millis(100));
    }
    assert_eq!(pair.take_cams().len(), 0);
    assert!(pair.counter(0, "facilities.cam.received") >= 9);
}

#[test]
fn event_is_sent_at_station_position_and_ends() {
    let mut pair = StationPair::new(facilities_of_passenger_car());
    pair.set_position(0, 0);
    pair.set_position(0, 40);
    let mut denm = Denm::default();
    denm.denm.situation = Some(SituationContainer::default());
    denm.denm.management.relevance_distance = Some(RelevanceDistance::LessThan500m);
    let action = pair.order_denm(0, DenmAction::Trigger, &denm).expect("told").expect("a name");
    assert_eq!(action, ActionId { originating_station_id: 1, sequence_number: 0 });
    assert_eq!(pair.event_count(), 1);
    let heard = pair
        .network_behaviour
        .received_messages
        .iter()
        .find(|message| message.kind == MessageKind::Denm)
        .expect("a DENM");
    let told: Denm = uper::decode(&heard.octets).expect("a DENM");
    assert_eq!(told.denm.management.event_position.latitude.0, 488_375_000 + 90 * 40);
    let detected = TimestampIts::from_wall_time(wall_time_at(pair.now));
    assert_eq!(told.denm.management.detection_time, detected);
    // The trace that leads to the event contains the path of the station.
    let traces = told.denm.location.expect("a location").traces.0;
    assert!(traces.len() == 1 && !traces[0].0.is_empty(), "{traces:?}");

    denm.denm.management.action_id = carnet_its::cdd::ActionId {
        originating_station_id: StationId(1),
        sequence_number: Default::default(),
    };
    for (index, wish, expected) in [
        (1, DenmAction::Cancel, "event 1:0 does not belong to this station"),
        (0, DenmAction::Negate, "event 1:0 belongs to this station"),
        (1, DenmAction::Update, "event 1:0 does not exist, or it has ended"),
    ] {
        let refused = pair.order_denm(index, wish, &denm).expect_err("refused");
        assert!(refused.contains(expected), "{refused}");
    }
    pair.run_for(Duration::from_millis(50));
    pair.order_denm(0, DenmAction::Update, &denm).expect("told");
    assert_eq!((pair.event_count(), pair.counter(1, "facilities.denm.received")), (1, 2));
    pair.run_for(Duration::from_millis(50));
    pair.order_denm(0, DenmAction::Cancel, &denm).expect("told");
    assert_eq!((pair.event_count(), pair.counter(1, "facilities.denm.received")), (0, 3));
}

/// Triggers an event at the first station, and returns the location that the second station receives.
fn received_location(pair: &mut StationPair, denm: &Denm) -> LocationContainer {
    pair.network_behaviour.received_messages.clear();
    pair.order_denm(0, DenmAction::Trigger, denm).expect("told");
    let heard = pair
        .network_behaviour
        .received_messages
        .iter()
        .find(|message| message.kind == MessageKind::Denm)
        .expect("a DENM");
    let told: Denm = uper::decode(&heard.octets).expect("a DENM");
    told.denm.location.expect("a location")
}

/// A location with speed or heading has at least one trace, which may have no points (SIZE(1..7)).
#[test]
fn event_with_speed_or_heading_keeps_its_trace() {
    let speed = Some(Speed { speed_value: SpeedValue(1200), ..Speed::default() });
    let heading = Some(Heading { heading_value: HeadingValue(900), ..Heading::default() });
    let without_points = Traces(vec![PathHistory::default()]);
    for (event_speed, event_position_heading) in [(speed, None), (None, heading), (speed, heading)] {
        let mut pair = StationPair::new(facilities_of_passenger_car());
        pair.set_position(0, 0);
        pair.set_position(0, 40);
        let location = LocationContainer {
            event_speed,
            event_position_heading,
            traces: without_points.clone(),
            ..LocationContainer::default()
        };
        let mut denm = Denm::default();
        denm.denm.situation = Some(SituationContainer::default());
        denm.denm.location = Some(location.clone());
        let told = received_location(&mut pair, &denm);
        let points: Vec<_> = told.traces.0.iter().flat_map(|trace| &trace.0).collect();
        // The event's trace has one point: 40 m south of the event, where the station was before.
        let [point] = points[..] else { panic!("{told:?}") };
        assert_eq!(point.path_position.delta_latitude.0, -90 * 40);
        assert_eq!((told.event_speed, told.event_position_heading), (event_speed, event_position_heading));

        // The station does not replace traces that the application gives.
        let own = Traces(vec![PathHistory(vec![PathPoint::default()]), PathHistory::default()]);
        denm.denm.location = Some(LocationContainer { traces: own.clone(), ..location.clone() });
        assert_eq!(received_location(&mut pair, &denm).traces, own);

        // The next event is at another place, to which the station's own path does not lead.
        denm.denm.location = Some(location);
        denm.denm.management.event_position.latitude.0 = 488_375_000;
        denm.denm.management.event_position.longitude.0 = 21_018_000;
        assert_eq!(received_location(&mut pair, &denm).traces, without_points);
    }
}

#[test]
fn event_ends_by_negation_or_expiry() {
    let mut pair = StationPair::new(facilities_of_passenger_car());
    pair.set_position(0, 0);
    let mut denm = Denm::default();
    denm.denm.management.validity_duration = carnet_its::cdd::ValidityDuration(3);
    // Now the second station triggers an event. The applications of the first station have not subscribed to
    // events.
    let action = pair.order_denm(1, DenmAction::Trigger, &denm).expect("told").expect("a name");
    pair.run_for(Duration::from_secs(4));
    let over = |output: &Output| *output == Output::Geonet(GeonetOutput::EventOver(action));
    assert!(
        pair.network_behaviour.other_outputs.iter().any(over),
        "{:?}",
        pair.network_behaviour.other_outputs
    );

    denm.denm.management.validity_duration = carnet_its::cdd::ValidityDuration(60);
    pair.set_position(0, 10);
    pair.set_position(1, 10);
    pair.order_denm(0, DenmAction::Trigger, &denm).expect("told").expect("a name");
    assert_eq!(pair.event_count(), 1);
    denm.denm.management.action_id.originating_station_id = StationId(1);
    pair.order_denm(1, DenmAction::Negate, &denm).expect("told");
    let sent = pair.counter(0, "facilities.dropped.own_message");
    assert_eq!(sent, 1, "its end is the originator's business");
}

#[test]
fn station_without_facilities_refuses_events_and_ignores_messages() {
    let mut pair = StationPair::new(facilities_of_passenger_car());
    pair.stations[1] = station_with_facilities(2, None);
    pair.set_position(1, 0);
    pair.set_position(0, 0);
    assert!(pair.network_behaviour.received_messages.is_empty() && pair.stations[1].facilities().is_none());
    for input in [
        Input::Vehicle(uper::encode(&Cam::default()).expect("encodes")),
        Input::Command(Command::Denm(DenmCommand {
            wish: DenmAction::Trigger,
            denm: uper::encode(&Denm::default()).expect("encodes"),
            repetition_duration_ms: None,
            repetition_interval_ms: None,
            area: None,
            traffic_class: None,
        })),
    ] {
        let refused = pair.try_recorded_input(1, input).expect_err("refused");
        assert!(refused.contains("this station has no facilities"), "{refused}");
    }
    assert!(pair.stations[1].counters().iter().all(|(name, _)| !name.starts_with("facilities.")));
}

#[test]
fn event_with_too_large_area_is_refused_at_once() {
    let mut pair = StationPair::new(facilities_of_passenger_car());
    pair.set_position(0, 0);
    let area = carnet_station::io::Area {
        shape: carnet_station::io::AreaShape::Circle,
        latitude: 488_375_000,
        longitude: 21_008_000,
        distance_a: 2000,
        distance_b: 0,
        angle: 0,
    };
    let order = DenmCommand {
        wish: DenmAction::Trigger,
        denm: uper::encode(&Denm::default()).expect("encodes"),
        repetition_duration_ms: None,
        repetition_interval_ms: None,
        area: Some(area),
        traffic_class: None,
    };
    let refused = pair.try_recorded_input(0, Input::Command(Command::Denm(order))).expect_err("too large");
    assert!(refused.contains("expected at most 10 square kilometres"), "{refused}");
    assert_eq!(pair.counter(0, "facilities.denm.sent"), 0);
}

#[test]
fn station_lists_services_while_they_are_announced() {
    let service = AnnouncedService {
        its_aid: ItsAid(36),
        address: Some("2001:db8::1".parse().expect("an address")),
        port: Some(8080),
        context: Vec::new(),
    };
    let announcing = FacilitiesSettings {
        announced_services: vec![service.clone()],
        advertiser_name: Some("kiosk".into()),
        ..facilities_of_passenger_car()
    };
    let mut pair = StationPair::new(announcing);
    pair.set_position(0, 0);
    pair.run_for(Duration::from_secs(2));
    let known = |pair: &StationPair| {
        let sa = &pair.stations[1].facilities().expect("facilities").services().sa_service;
        sa.known_advertisements().map(|it| (it.identifier.clone(), it.services.clone())).collect::<Vec<_>>()
    };
    assert_eq!(known(&pair), [(Some("kiosk".to_owned()), vec![service])]);
    let counters = |index: usize| *pair.stations[index].facilities().expect("facilities").counters();
    assert!(counters(0).sent_messages[2] >= 2 && counters(1).received_messages[2] >= 2, "{:?}", counters(0));
    assert_eq!(
        (counters(0).sent_messages[1], counters(1).sent_messages[2]),
        (0, 0),
        "neither DENMs nor announcements of the other"
    );
    // The announced service disappears after the first station has been out of range for three announcement
    // intervals.
    let end = pair.now + Duration::from_secs(4);
    while let Some(due) = pair.stations[1].poll_timeout().filter(|due| *due <= end) {
        pair.now = pair.now.max(due);
        pair.stations[1].handle_input(pair.now, wall_time_at(pair.now), Input::Timeout).expect("accepted");
        while pair.stations[1].poll_output().is_some() {}
    }
    assert_eq!(known(&pair), []);
}
