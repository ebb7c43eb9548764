//! Routes to the mobile networks of neighbouring vehicles: connects [`carnet_mobility::mnpp`] to
//! GeoNetworking, the tunnel and the desired state.

use std::net::Ipv6Addr;

use carnet_base::{Rng, Time};
use carnet_mobility::Mnpp;
use carnet_mobility::mnpp::MnppConfig;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::{MobilityHeader, PrefixTest};
use carnet_wire::nd::RouterAdvertisement;
use ipnet::Ipv6Net;

use super::data_path::SlowDataPath;
use super::roadside_units::RoadsideUnits;
use super::{RouterRole, StateOwner};
use crate::config::MnppSettings;
use crate::forwarding::neighbour_entries;
use crate::input::{OptionalStations, Stations};

/// Part of a station that maintains the routes to neighbouring mobile networks.
#[derive(Debug)]
pub(crate) struct NeighbourRoutes {
    pub(crate) state_machine: Mnpp,
    pub(super) interface: String,
    /// Number of packets that took the tunnel because their direct route had just ended.
    pub(super) diverted_packets: u64,
}

/// An order to GeoNetworking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GeonetCommand {
    /// Send an IPv6 packet to all stations within this number of hops.
    Announce {
        /// Hop limit of the packet.
        hops: u8,
        /// The IPv6 packet.
        packet: Vec<u8>,
    },
    /// Send an IPv6 packet to one station.
    Send {
        /// Hop limit.
        hops: u8,
        /// Link-layer address of the station.
        station: [u8; 6],
        /// The IPv6 packet.
        packet: Vec<u8>,
    },
    /// Take back the packets that still wait for this station, and pass them to
    /// [`crate::Nemo::divert_into_tunnel`].
    TakeBack([u8; 6]),
}

impl NeighbourRoutes {
    /// Returns the routes to neighbouring mobile networks as the config demands them; `None` if it demands
    /// none. `old` are the present ones, which stay if their config does not change.
    pub(super) fn configured_neighbour_routes(
        old: Option<NeighbourRoutes>,
        settings: Option<MnppSettings>,
        router: Option<&RouterRole>,
        rng: &mut Rng,
    ) -> Option<NeighbourRoutes> {
        let (settings, router) = settings.zip(router.map(|router| router.state_machine.config()))?;
        let config = MnppConfig {
            prefixes: router.prefixes.clone(),
            home_address: router.home_address,
            home_agent: router.home_agent,
            home_prefix: router.home_prefix,
            authorization: settings.authorization,
            shortest_prefix_length: settings.shortest_prefix_length,
            announcement_hop_limit: settings.announcement_hop_limit,
            announcement_interval: settings.interval,
        };
        let interface = settings.interface;
        let is_same =
            |old: &NeighbourRoutes| old.interface == interface && *old.state_machine.config() == config;
        Some(match old {
            Some(old) if is_same(&old) => old,
            _ => {
                let machine = Mnpp::new(config, Rng::new(rng.random_u64()));
                NeighbourRoutes { state_machine: machine, interface, diverted_packets: 0 }
            }
        })
    }

    /// Runs the timers that are due now.
    pub(super) fn handle_timeout(&mut self, now: Time, stations: &dyn Stations) {
        if self.state_machine.poll_timeout().is_some_and(|due| due <= now) {
            self.state_machine.handle_timeout(now, stations);
        }
    }

    /// Returns whether a packet to this station takes the tunnel, because its direct route has ended.
    pub(super) fn diverts_packets_to(&self, station: [u8; 6], packet: &[u8]) -> bool {
        destination_of(packet).is_some_and(|to| self.state_machine.must_use_tunnel(station, to))
    }

    /// Answers a packet from the mobile router's tunnel if it is a neighbour's test of a prefix. Returns
    /// whether the packet was such a test.
    pub(super) fn answer_prefix_test(
        &mut self,
        now: Time,
        in_range: OptionalStations<'_>,
        inner: &[u8],
    ) -> bool {
        // Most packets are no Mobility Header messages, so this check returns early.
        if inner.get(6) != Some(&protocol::MOBILITY) {
            return false;
        }
        let Some(stations) = in_range else { return false };
        let Some((header, test)) = prefix_test_in(inner) else { return false };
        Ipv6Net::new(test.prefix, test.prefix_length).is_ok_and(|asked| asked.contains(&header.destination))
            && self.state_machine.handle_test_init(now, header.source, &test, stations)
    }
}

/// Recomputes the desired entries of the routes to neighbouring mobile networks.
pub(super) fn update_desired_routes(
    neighbours: Option<&NeighbourRoutes>,
    router: Option<&RouterRole>,
    data_path: &mut SlowDataPath,
) {
    let entries = match (neighbours, router) {
        (Some(neighbours), Some(router)) => {
            let routes = neighbours.state_machine.routes();
            neighbour_entries(
                router.state_machine.config(),
                &router.lan_interfaces,
                &neighbours.interface,
                &routes,
            )
        }
        _ => Vec::new(),
    };
    data_path.desired_state.replace_scope(StateOwner::Neighbours, entries);
}

/// Passes a message of another station to its receiver: the routes to neighbouring mobile networks, or the
/// selection of roadside units.
pub(super) fn handle_packet(
    machine: Option<&mut Mnpp>,
    access: Option<&mut RoadsideUnits>,
    now: Time,
    station: [u8; 6],
    packet: &[u8],
    stations: &dyn Stations,
) {
    let Ok((header, message)) = Header::parse_packet(packet) else { return };
    if header.next_header == protocol::MOBILITY {
        if let (Some(machine), Some((header, test))) = (machine, prefix_test_in(packet)) {
            // Ignore the result: `Mnpp` counts the messages that it rejects.
            let _counted = machine.handle_message_of_station(now, station, header.source, &test, stations);
        }
    } else if let Ok(advertisement) = RouterAdvertisement::parse(message) {
        if let Some(access) = access {
            access.handle_advertisement(now, station, header.source, &advertisement, stations);
        }
        if let Some(machine) = machine {
            machine.handle_advertisement(now, station, header.source, &advertisement, stations);
        }
    }
}

fn prefix_test_in(packet: &[u8]) -> Option<(Header, PrefixTest)> {
    let header = Header::parse(packet).ok()?;
    let octets = packet.get(HEADER_LEN..)?;
    let mobility = MobilityHeader::parse_verified(octets, header.source, header.destination).ok()?;
    Some((header, PrefixTest::parse(&mobility).ok()?))
}

/// Returns the destination of an IPv6 packet; `None` if its header is not complete.
fn destination_of(packet: &[u8]) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = packet.get(HEADER_LEN - 16..HEADER_LEN)?.try_into().ok()?;
    Some(octets.into())
}
