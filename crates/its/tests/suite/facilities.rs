//! Facilities of several stations that receive each other's messages, without a network between them.

use carnet_base::Time;
use carnet_its::ca::{CamContent, StationData};
use carnet_its::cam::BasicVehicleContainerLowFrequency;
use carnet_its::cdd::{StationId, StationType};
use carnet_its::den::EventRequest;
use carnet_its::facilities::{FacilitiesParameters, Output};
use carnet_its::ldm::StationTypes;
use carnet_its::{Facilities, ItsDrop};
use carnet_wire::btp::{BtpB, port};
use carnet_wire::geonet::GnAddress;

use crate::support::{circle_around_home, now_at, now_at_milliseconds, reference_position_at};

fn stations_in_a_line(count: u32) -> Vec<Facilities> {
    (1..=count)
        .map(|id| {
            let seed = u64::from(id);
            let mut station = Facilities::new(
                FacilitiesParameters::default(),
                StationId(id),
                StationType::PASSENGER_CAR,
                seed,
            );
            station.ca_service.set_active(now_at_milliseconds(0), true);
            let content = CamContent::Vehicle {
                high_frequency: Default::default(),
                low_frequency: BasicVehicleContainerLowFrequency::default(),
                special: None,
            };
            let provided = StationData {
                reference_position: reference_position_at(f64::from(id) * 10.0, 0.0),
                position_time: now_at_milliseconds(0).timestamp,
                content,
            };
            station.handle_station_data(now_at_milliseconds(0), provided);
            station
        })
        .collect()
}

/// Delivers each station's messages to all others; returns the number of messages.
fn exchange_messages(stations: &mut [Facilities], time: u64) -> usize {
    let mut sent = 0;
    for sender in 0..stations.len() {
        while let Some(output) = stations[sender].poll_output(now_at_milliseconds(time)) {
            let Output::Transmit(transmission) = output else { continue };
            sent += 1;
            let (header, message) = BtpB::parse(&transmission.payload).unwrap();
            for (number, station) in stations.iter_mut().enumerate() {
                let taken = station.handle_message(
                    now_at_milliseconds(time),
                    header.destination_port,
                    message,
                    GnAddress(2),
                    Some(circle_around_home(500)),
                );
                assert_eq!(taken, if number == sender { Err(ItsDrop::OwnMessage) } else { Ok(()) });
            }
        }
    }
    // Discard the remaining outputs of all stations: only the sent messages count here.
    for station in stations {
        while station.poll_output(now_at_milliseconds(time)).is_some() {}
    }
    sent
}

#[test]
fn each_station_is_on_the_map_of_each_other_station() {
    let mut stations = stations_in_a_line(4);
    assert_eq!(exchange_messages(&mut stations, 0), 4);
    for (own, station) in (1..).zip(&stations) {
        let mut ids: Vec<u32> = station
            .ldm
            .stations_in(Time::ZERO, None, StationTypes::ALL)
            .iter()
            .map(|s| s.station_id.0)
            .collect();
        ids.sort_unstable();
        let expected: Vec<u32> = (1..=4).filter(|id| *id != own).collect();
        assert_eq!(ids, expected);
    }
    // A second later each station sends its next CAM.
    let due = stations[0].poll_timeout().unwrap();
    assert_eq!(due, Time::from_secs(1));
    stations.iter_mut().for_each(|station| station.handle_timeout(now_at(due)));
    assert_eq!(exchange_messages(&mut stations, 1000), 4);
}

#[test]
fn event_is_on_all_maps_until_it_ends() {
    let mut stations = stations_in_a_line(3);
    let event = EventRequest { event_position: reference_position_at(0.0, 0.0), ..EventRequest::default() };
    let action = stations[0].den_service.trigger_event(now_at_milliseconds(0), &event).unwrap();
    exchange_messages(&mut stations, 0);
    for station in &stations[1..] {
        let events = station.ldm.events_in(Time::ZERO, Some(&circle_around_home(50)));
        assert_eq!(events.iter().map(|event| event.action_id).collect::<Vec<_>>(), [action]);
    }
    stations[0]
        .den_service
        .terminate_event(now_at_milliseconds(500), action, &EventRequest::default())
        .unwrap();
    exchange_messages(&mut stations, 500);
    assert!(stations.iter().all(|station| station.ldm.events_in(Time::from_millis(500), None).is_empty()));
}

#[test]
fn btp_port_without_service_is_ignored() {
    let mut station = stations_in_a_line(1).remove(0);
    assert_eq!(
        station.handle_message(now_at_milliseconds(0), port::SPATEM, &[], GnAddress(2), None),
        Err(ItsDrop::UnknownPort)
    );
    assert_eq!(
        station.handle_message(now_at_milliseconds(0), port::CAM, &[], GnAddress(2), None),
        Err(ItsDrop::Malformed)
    );
    assert_eq!(
        station.handle_message(now_at_milliseconds(0), port::DENM, &[2, 1], GnAddress(2), None),
        Err(ItsDrop::Malformed)
    );
}
