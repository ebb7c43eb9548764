//! Routes to the mobile networks of neighbouring vehicles: connects [`carnet_mobility::mnpp`] to
//! GeoNetworking, the tunnel and the desired state.

use std::net::Ipv6Addr;

use carnet_base::{Rng, Time};
use carnet_mobility::Mnpp;
use carnet_mobility::mnpp::{MnppConfig, Output as Wish};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::{MobilityHeader, PrefixTest};
use carnet_wire::nd::RouterAdvertisement;
use ipnet::Ipv6Net;

use super::access::Access;
use super::{Nemo, Scope};
use crate::config::MnppSettings;
use crate::forwarding::neighbour_entries;
use crate::forwarding::packet::PacketBuffer;
use crate::input::{InRange, Stations};
use crate::output::Output;

/// Part of a station that maintains the routes to neighbouring mobile networks.
#[derive(Debug)]
pub(crate) struct Neighbours {
    pub(crate) machine: Mnpp,
    interface: String,
    /// Number of packets that took the tunnel because their direct route had just ended.
    diverted: u64,
}

/// An order to GeoNetworking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GeonetOrder {
    /// Send an IPv6 packet to all stations within this number of hops.
    Announce {
        /// Hop limit.
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
    /// Take back the packets that still wait for this station, and [`Nemo::divert`] them.
    TakeBack([u8; 6]),
}

impl Nemo {
    /// Returns the neighbouring mobile networks with their routes; `None` if the config does not use them.
    pub fn neighbours(&self) -> Option<&Mnpp> {
        self.neighbours.as_ref().map(|neighbours| &neighbours.machine)
    }

    pub(crate) fn neighbour_interface(&self) -> Option<&str> {
        self.neighbours.as_ref().map(|neighbours| neighbours.interface.as_str())
    }

    pub(crate) fn diverted(&self) -> u64 {
        self.neighbours.as_ref().map_or(0, |neighbours| neighbours.diverted)
    }

    /// Starts, ends or changes the use of routes to neighbouring mobile networks.
    pub(super) fn configure_neighbours(&mut self, settings: Option<MnppSettings>) {
        let router = self.router.as_ref().map(|router| router.machine.config());
        let wanted = settings.zip(router).map(|(settings, router)| {
            let config = MnppConfig {
                prefixes: router.prefixes.clone(),
                home_address: router.home_address,
                home_agent: router.home_agent,
                home_prefix: router.home_prefix,
                authorization: settings.authorization,
                shortest: settings.shortest,
                hops: settings.hops,
                interval: settings.interval,
            };
            (settings.interface, config)
        });
        let old = self.neighbours.take();
        self.neighbours = wanted.map(|(interface, config)| match old {
            Some(old) if old.interface == interface && *old.machine.config() == config => old,
            _ => {
                let machine = Mnpp::new(config, Rng::new(self.rng.u64()));
                Neighbours { machine, interface, diverted: 0 }
            }
        });
        self.configure_access();
        self.forward_neighbours();
    }

    /// Returns whether the plane needs the messages of neighbouring mobile routers and of access routers.
    pub fn listens_to_stations(&self) -> bool {
        self.neighbours.is_some() || self.access.is_some()
    }

    /// Recomputes the desired entries of the routes to neighbouring mobile networks.
    fn forward_neighbours(&mut self) {
        let entries = match (&self.neighbours, &self.router) {
            (Some(neighbours), Some(router)) => {
                let routes = neighbours.machine.routes();
                neighbour_entries(router.machine.config(), &router.lan, &neighbours.interface, &routes)
            }
            _ => Vec::new(),
        };
        self.desired.replace(Scope::Neighbours, entries);
    }

    /// Runs the timers of these routes that are due now.
    pub fn handle_neighbour_timeout(&mut self, now: Time, in_range: InRange<'_>) {
        if let (Some(neighbours), Some(stations)) = (&mut self.neighbours, in_range)
            && neighbours.machine.poll_timeout().is_some_and(|due| due <= now)
        {
            neighbours.machine.handle_timeout(now, stations);
        }
    }

    /// Takes this station's addresses on the GeoNetworking link.
    pub fn handle_own_station(&mut self, now: Time, station: [u8; 6], link_local: Ipv6Addr) {
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.machine.handle_station(station, link_local);
            let valid = self.router.as_ref().is_some_and(|router| router.machine.may_advertise());
            neighbours.machine.set_valid(now, valid);
        }
    }

    /// Handles that a station came into range. `roadside` says whether the station is a roadside unit; `own`
    /// and `link_local` are this station's addresses. Returns a Router Solicitation to all stations in range.
    pub fn handle_new_station(
        &mut self,
        now: Time,
        roadside: bool,
        own: [u8; 6],
        link_local: Ipv6Addr,
    ) -> Option<Vec<u8>> {
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.machine.handle_neighbour(now);
        }
        let access = self.access.as_mut().filter(|_| roadside);
        access.and_then(|access| access.solicitation(now, own, link_local))
    }

    /// Handles a message of a neighbouring mobile router or of an access router.
    pub fn handle_station_packet(
        &mut self,
        now: Time,
        station: [u8; 6],
        packet: &[u8],
        stations: &dyn Stations,
    ) {
        let machine = self.neighbours.as_mut().map(|neighbours| &mut neighbours.machine);
        hear(machine, self.access.as_mut(), now, station, packet, stations);
    }

    /// Executes the outputs of the routes to neighbouring mobile networks, up to the next one that concerns
    /// GeoNetworking. The caller carries out that order and calls again, until the result is `None`.
    pub fn poll_geonet_order(&mut self) -> Option<GeonetOrder> {
        loop {
            let neighbours = self.neighbours.as_mut()?;
            let hops = neighbours.machine.config().hops;
            match neighbours.machine.poll_output()? {
                Wish::Announce(packet) => return Some(GeonetOrder::Announce { hops, packet }),
                Wish::Straight(station, packet) => {
                    return Some(GeonetOrder::Send { hops, station, packet });
                }
                Wish::Withdrawn(station) => return Some(GeonetOrder::TakeBack(station)),
                Wish::ThroughTunnel(packet) => {
                    let paths = self.router.as_ref().map(|router| router.machine.paths());
                    let path = paths.into_iter().flatten().find(|path| path.transmit);
                    if let Some(path) = path {
                        self.forwarder.send((path.local, path.remote), &packet);
                        self.collect_caused();
                    }
                }
                Wish::Routes => {
                    self.forward_neighbours();
                    self.take_changes();
                }
                Wish::Event(event) => self.outputs.push_back(Output::Event(event)),
            }
        }
    }

    /// Sends a packet of the mobile network into the tunnel instead of the direct route.
    pub fn divert(&mut self, now: Time, packet: &[u8]) {
        let Ok((header, _)) = Header::parse_packet(packet) else { return };
        if header.source.is_unicast_link_local() || header.destination.is_unicast_link_local() {
            return;
        }
        let mut buffer = PacketBuffer::new();
        buffer.copy_from(packet);
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.diverted += 1;
        }
        let verdict = self.forwarder.encapsulate(now, &header, &mut buffer);
        self.carry_out(verdict, &buffer);
        self.collect_caused();
    }

    /// Sends a host's packet to a station into the tunnel if the direct route to that station has just ended.
    /// The host does not know this yet. Returns whether the packet took the tunnel.
    pub fn was_diverted(&mut self, now: Time, station: [u8; 6], packet: &[u8]) -> bool {
        let Some(neighbours) = &mut self.neighbours else { return false };
        neighbours.machine.handle_use(now, station);
        let diverts = |to| neighbours.machine.diverts(station, to);
        if !destination_of(packet).is_some_and(diverts) {
            return false;
        }
        self.divert(now, packet);
        true
    }

    /// Notes that the fast path has sent packets to these stations, so that the routes over them stay in use.
    pub fn handle_stations_used(&mut self, now: Time, stations: &[[u8; 6]]) {
        if let Some(neighbours) = &mut self.neighbours {
            stations.iter().for_each(|station| neighbours.machine.handle_use(now, *station));
        }
    }

    /// Notes that a station has not acknowledged a frame. Returns whether the plane has routes to
    /// neighbouring mobile networks.
    pub fn handle_unreachable_station(&mut self, now: Time, station: [u8; 6]) -> bool {
        let Some(neighbours) = &mut self.neighbours else { return false };
        neighbours.machine.handle_unreachable(now, station);
        true
    }

    /// Returns whether a packet to this station takes the tunnel, because its direct route has ended.
    pub fn diverts(&self, station: [u8; 6], packet: &[u8]) -> bool {
        let machine = self.neighbours();
        machine.is_some_and(|machine| destination_of(packet).is_some_and(|to| machine.diverts(station, to)))
    }

    /// Answers a packet from the mobile router's tunnel if it is a neighbour's test of a prefix. Returns
    /// whether it was one.
    pub(super) fn is_prefix_test(&mut self, now: Time, in_range: InRange<'_>, inner: &[u8]) -> bool {
        // Most packets are no Mobility Header messages, so this check returns early.
        if inner.get(6) != Some(&protocol::MOBILITY) {
            return false;
        }
        let (Some(neighbours), Some(stations)) = (&mut self.neighbours, in_range) else { return false };
        let Some((header, test)) = prefix_test(inner) else { return false };
        Ipv6Net::new(test.prefix, test.prefix_length).is_ok_and(|asked| asked.contains(&header.destination))
            && neighbours.machine.handle_init(now, header.source, &test, stations)
    }
}

/// Passes a message to the machine that it concerns.
fn hear(
    machine: Option<&mut Mnpp>,
    access: Option<&mut Access>,
    now: Time,
    station: [u8; 6],
    packet: &[u8],
    stations: &dyn Stations,
) {
    let Ok((header, message)) = Header::parse_packet(packet) else { return };
    if header.next_header == protocol::MOBILITY {
        if let (Some(machine), Some((header, test))) = (machine, prefix_test(packet)) {
            // Ignore the result: `Mnpp` counts the messages that it rejects.
            let _counted = machine.handle_straight(now, station, header.source, &test, stations);
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

fn prefix_test(packet: &[u8]) -> Option<(Header, PrefixTest)> {
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
