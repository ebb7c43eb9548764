//! The bridge between GeoNetworking and NEMO: the stations in radio range, their messages, and the packets
//! that pass from one plane to the other.
//!
//! Neighbours are those of the location table. If the positions of both stations are accurate, dead reckoning
//! predicts when a neighbour comes into range and when it leaves the range. The range is
//! `itsGnDefaultMaxCommunicationRange`. The station does not use the outermost part of this range, so that
//! the route changes while the neighbour is still reachable.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_cits::geonetworking::{Geonet, StationMessage};
use carnet_geonet::approach::predicted_distance;
use carnet_geonet::ipv6_adaptation::{Ipv6Adaptation, addresses};
use carnet_geonet::location_table::mac_key;
use carnet_geonet::{MacAddress, Router};
use carnet_mobility::mnpp::{StationObservation, StationObserver};
use carnet_nemo::input::{OptionalStations, Stations};
use carnet_nemo::{GeonetCommand, Nemo};
use carnet_wire::geonet::LongPositionVector;

use crate::io::Frame;
use crate::station::Station;

/// Share of the radio range: a neighbour counts as leaving if it will be farther away than this within
/// [`LEAVING_PREDICTION_TIME`].
const LEAVING_RANGE_SHARE: f64 = 0.95;
const LEAVING_PREDICTION_TIME: Duration = Duration::from_secs(1);
/// Share of the radio range: a neighbour counts as staying if its distance is below this share now and after
/// [`STAYING_PREDICTION_TIME`].
const STAYING_RANGE_SHARE: f64 = 0.9;
const STAYING_PREDICTION_TIME: Duration = Duration::from_secs(2);
/// Distances of the stations in the router's location table.
#[derive(Debug)]
struct StationDistances<'a>(&'a Router);

impl StationObserver for StationDistances<'_> {
    fn observation(&self, now: Time, station: MacAddress) -> Option<StationObservation> {
        let StationDistances(router) = self;
        let table = router.location_table();
        let entry = table.entry(table.find_slot_of_station(now, mac_key(station))?);
        let near = entry.is_neighbour();
        let unknown = StationObservation {
            received_at: entry.last_received_at(),
            is_neighbour: near,
            stays_in_range: near,
            leaves_range: false,
        };
        let accurate = |vector: &&LongPositionVector| vector.accurate;
        let own = router.position_vector().filter(accurate);
        let Some((own, other)) = own.zip(Some(entry.position_vector()).filter(accurate)) else {
            return Some(unknown);
        };
        let range = router.mib().max_communication_range;
        let (at_once, soon, later) = (
            predicted_distance(own, other, Duration::ZERO),
            predicted_distance(own, other, LEAVING_PREDICTION_TIME),
            predicted_distance(own, other, STAYING_PREDICTION_TIME),
        );
        let stays = near && at_once.max(later) <= STAYING_RANGE_SHARE * range;
        Some(StationObservation {
            stays_in_range: stays,
            leaves_range: at_once.max(soon) > LEAVING_RANGE_SHARE * range,
            ..unknown
        })
    }

    fn link_local(&self, station: MacAddress) -> Ipv6Addr {
        addresses::link_local_address(station)
    }

    fn has_neighbours(&self) -> bool {
        self.0.location_table().neighbour_count() > 0
    }
}

impl Stations for StationDistances<'_> {
    fn predicted_distance_of(&self, now: Time, station: MacAddress) -> f64 {
        let StationDistances(router) = self;
        let table = router.location_table();
        let other =
            table.find_slot_of_station(now, mac_key(station)).map(|slot| table.entry(slot).position_vector());
        let both = router.position_vector().zip(other);
        both.map_or(f64::INFINITY, |(own, other)| predicted_distance(own, other, Duration::ZERO))
    }

    fn beacon_interval(&self) -> Duration {
        let StationDistances(router) = self;
        router.mib().beacon_retransmit_timer + router.mib().beacon_max_jitter
    }
}

/// The GeoNetworking stations in radio range; `None` if the station has no GeoNetworking router.
#[derive(Debug)]
pub(crate) struct StationsInRange<'a>(Option<StationDistances<'a>>);

impl StationsInRange<'_> {
    pub(crate) fn as_optional_stations(&self) -> OptionalStations<'_> {
        self.0.as_ref().map(|around| around as &dyn Stations)
    }
}

impl Station {
    /// Returns the NEMO plane together with the GeoNetworking stations in radio range, which many of its
    /// inputs need.
    pub(crate) fn nemo_and_stations_in_range(&mut self) -> (&mut Nemo, StationsInRange<'_>) {
        let Station { nemo, geonet, .. } = self;
        (nemo, StationsInRange(geonet.get().map(|geonet| StationDistances(geonet.router()))))
    }

    /// Makes GeoNetworking keep messages of neighbouring mobile routers and of access routers for the NEMO
    /// plane.
    pub(crate) fn start_station_messages(&mut self) {
        if let Some(geonet) = self.geonet.get_mut() {
            geonet.listen_to_stations(self.nemo.listens_to_stations());
        }
    }

    /// Completes the outputs of all planes after an input.
    pub(crate) fn execute_all_outputs(&mut self, now: Time, wall: WallTime) {
        // Take the MTU of GeoNetworking into account from the start. Otherwise hosts on board would have to
        // learn a smaller MTU when a neighbouring vehicle appears.
        let mtu = self.geonet.get().and_then(Geonet::ipv6).map(Ipv6Adaptation::mtu);
        self.nemo.collect_outputs(now, wall, mtu);
        self.complete_geonet_outputs(now);
    }

    /// Completes the outputs after an input that concerns GeoNetworking alone. Passes messages that
    /// GeoNetworking has queued to the NEMO plane, and the NEMO plane's resulting requests back to
    /// GeoNetworking.
    pub(crate) fn complete_geonet_outputs(&mut self, now: Time) {
        let Some(geonet) = self.geonet.get_mut() else { return };
        let own = geonet.router().address().mid();
        let link_local = addresses::link_local_address(own);
        self.nemo.handle_own_station_addresses(now, own, link_local);
        while let Some(message) = geonet.poll_station_message() {
            match message {
                StationMessage::Neighbour { roadside } => {
                    if let Some(packet) = self.nemo.handle_new_station(now, roadside, own, link_local) {
                        geonet.send_announcement(now, 1, &packet);
                    }
                }
                StationMessage::Packet(station, packet) => {
                    self.nemo.handle_station_packet(
                        now,
                        station,
                        &packet,
                        &StationDistances(geonet.router()),
                    );
                }
            }
        }
        self.execute_station_requests(now);
    }

    fn execute_station_requests(&mut self, now: Time) {
        while let Some(order) = self.nemo.poll_geonet_command() {
            match (order, self.geonet.get_mut()) {
                (GeonetCommand::Announce { hops, packet }, Some(geonet)) => {
                    geonet.send_announcement(now, hops, &packet)
                }
                (GeonetCommand::Send { hops, station, packet }, Some(geonet)) => {
                    geonet.send_to_neighbour(now, hops, station, &packet);
                }
                (GeonetCommand::TakeBack(station), Some(geonet)) => {
                    for packet in geonet.remove_packets_for(station) {
                        self.nemo.divert_into_tunnel(now, &packet);
                    }
                }
                (_, None) => {}
            }
        }
    }

    /// Handles a unicast frame that the receiver has not acknowledged. Returns `true` if the NEMO plane has
    /// sent the frame's IPv6 packet on another route.
    pub(crate) fn send_again_on_other_route(&mut self, now: Time, frame: &Frame) -> bool {
        let Some(geonet) = self.geonet.get_mut() else { return false };
        if !self.nemo.handle_unreachable_station(now, frame.destination) {
            return false;
        }
        let wanted = |packet: &[u8]| self.nemo.diverts_packets_to(frame.destination, packet);
        let packet = geonet.take_back_unacknowledged(now, frame.destination, &frame.packet, wanted);
        self.execute_station_requests(now);
        match packet {
            Some(packet) => {
                self.nemo.divert_into_tunnel(now, &packet);
                true
            }
            None => false,
        }
    }
}
