//! Routes to the mobile networks of neighbouring vehicles: connects [`carnet_mobility::mnpp`] to
//! GeoNetworking, the tunnel and the desired state.

use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_mobility::Mnpp;
use carnet_mobility::mnpp::{Authorization, MnppConfig, Output as Wish, Surroundings};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::mobility::{MobilityHeader, PrefixTest};
use carnet_wire::nd::RouterAdvertisement;
use ipnet::Ipv6Net;

use super::access::Access;
use super::{Scope, Station};
use crate::geonet::neighbours::{Around, Heard, destination_of};
use crate::io::{Frame, Output};
use carnet_nemo::forwarding::neighbour_entries;
use carnet_nemo::forwarding::packet::PacketBuffer;

/// Settings of the routes to neighbouring mobile networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MnppSettings {
    /// Name of the interface of IPv6 over GeoNetworking.
    pub interface: String,
    /// Rule by which the station accepts an announced prefix.
    pub authorization: Authorization,
    /// Length of the shortest prefix that the station accepts.
    pub shortest: u8,
    /// Hop limit of the station's announcements.
    pub hops: u8,
    /// Largest interval between announcements while a neighbour is in range.
    pub interval: Duration,
}

/// Part of a station that maintains the routes to neighbouring mobile networks.
#[derive(Debug)]
pub(super) struct Neighbours {
    pub(super) machine: Mnpp,
    interface: String,
    /// Number of packets that took the tunnel because their direct route had just ended.
    diverted: u64,
}

impl Station {
    /// Returns the neighbouring mobile networks and the routes to them; `None` if the config has no such
    /// routes.
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
        self.listen_to_neighbours();
    }

    /// Makes GeoNetworking queue the messages of neighbouring mobile routers and of access routers.
    pub(super) fn listen_to_neighbours(&mut self) {
        let listen = self.neighbours.is_some() || self.access.is_some();
        if let Some(geonet) = &mut self.geonet {
            geonet.listen_to_neighbours(listen);
        }
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
    pub(super) fn look_at_neighbours(&mut self, now: Time) {
        if let (Some(neighbours), Some(geonet)) = (&mut self.neighbours, &self.geonet)
            && neighbours.machine.poll_timeout().is_some_and(|due| due <= now)
        {
            neighbours.machine.handle_timeout(now, &Around(geonet.router()));
        }
    }

    /// Handles the messages that GeoNetworking has queued, and executes the outputs.
    pub(super) fn follow_neighbours(&mut self, now: Time) {
        let Some(geonet) = &mut self.geonet else { return };
        let mut machine = self.neighbours.as_mut().map(|neighbours| &mut neighbours.machine);
        let mid = geonet.router().address().mid();
        let link_local = Around(geonet.router()).link_local(mid);
        if let Some(machine) = &mut machine {
            machine.handle_station(mid, link_local);
            let valid = self.router.as_ref().is_some_and(|router| router.machine.may_advertise());
            machine.set_valid(now, valid);
        }
        while let Some(heard) = geonet.poll_heard() {
            match heard {
                Heard::Neighbour { roadside } => {
                    if let Some(machine) = &mut machine {
                        machine.handle_neighbour(now);
                    }
                    let access = self.access.as_mut().filter(|_| roadside);
                    if let Some(packet) = access.and_then(|access| access.solicitation(now, mid, link_local))
                    {
                        geonet.announce(now, 1, &packet);
                    }
                }
                Heard::Packet(station, packet) => {
                    let around = Around(geonet.router());
                    hear(machine.as_deref_mut(), self.access.as_mut(), now, station, &packet, &around);
                }
            }
        }
        self.carry_out_wishes(now);
    }

    fn carry_out_wishes(&mut self, now: Time) {
        while let Some(wish) = self.neighbours.as_mut().and_then(|it| it.machine.poll_output()) {
            let hops = self.neighbours.as_ref().map_or(1, |it| it.machine.config().hops);
            match (wish, &mut self.geonet) {
                (Wish::Announce(packet), Some(geonet)) => geonet.announce(now, hops, &packet),
                (Wish::Straight(station, packet), Some(geonet)) => {
                    geonet.send_straight(now, hops, station, &packet);
                }
                (Wish::Withdrawn(station), Some(geonet)) => {
                    for packet in geonet.take_back(station) {
                        self.divert(now, &packet);
                    }
                }
                (Wish::Announce(_) | Wish::Straight(..) | Wish::Withdrawn(_), None) => {}
                (Wish::ThroughTunnel(packet), _) => {
                    let paths = self.router.as_ref().map(|router| router.machine.paths());
                    let path = paths.into_iter().flatten().find(|path| path.transmit);
                    if let Some(path) = path {
                        self.forwarder.send((path.local, path.remote), &packet);
                        self.collect_caused();
                    }
                }
                (Wish::Routes, _) => {
                    self.forward_neighbours();
                    self.take_changes();
                }
                (Wish::Event(event), _) => self.outputs.push_back(Output::Event(event)),
            }
        }
    }

    /// Sends a packet of the mobile network into the tunnel instead of the direct route.
    fn divert(&mut self, now: Time, packet: &[u8]) {
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
    pub(super) fn was_diverted(&mut self, now: Time, station: [u8; 6], packet: &[u8]) -> bool {
        let Some(neighbours) = &mut self.neighbours else { return false };
        neighbours.machine.handle_use(now, station);
        let diverts = |to| neighbours.machine.diverts(station, to);
        if !destination_of(packet).is_some_and(diverts) {
            return false;
        }
        self.divert(now, packet);
        true
    }

    /// Notes that a fast path has sent packets to these stations, so that their routes count as used.
    pub(super) fn use_neighbours(&mut self, now: Time, stations: &[[u8; 6]]) {
        if let Some(neighbours) = &mut self.neighbours {
            stations.iter().for_each(|station| neighbours.machine.handle_use(now, *station));
        }
    }

    /// Handles a frame that its destination has not acknowledged. Returns `true` if its packet has taken
    /// another route.
    pub(super) fn is_unreachable(&mut self, now: Time, frame: &Frame) -> bool {
        let (Some(neighbours), Some(geonet)) = (&mut self.neighbours, &mut self.geonet) else { return false };
        neighbours.machine.handle_unreachable(now, frame.destination);
        let machine = &neighbours.machine;
        let wanted =
            |packet: &[u8]| destination_of(packet).is_some_and(|to| machine.diverts(frame.destination, to));
        let packet = geonet.take_back_unacknowledged(now, frame.destination, &frame.packet, wanted);
        self.carry_out_wishes(now);
        match packet {
            Some(packet) => {
                self.divert(now, &packet);
                true
            }
            None => false,
        }
    }

    /// Answers an inner packet out of the mobile router's tunnel if the packet is a neighbour's test of a
    /// prefix. Returns whether the packet was such a test.
    pub(super) fn is_prefix_test(&mut self, now: Time, inner: &[u8]) -> bool {
        // Fast check: most packets are no Mobility Header message, and the function returns here.
        if inner.get(6) != Some(&protocol::MOBILITY) {
            return false;
        }
        let (Some(neighbours), Some(geonet)) = (&mut self.neighbours, &self.geonet) else { return false };
        let Some((header, test)) = prefix_test(inner) else { return false };
        Ipv6Net::new(test.prefix, test.prefix_length).is_ok_and(|asked| asked.contains(&header.destination))
            && neighbours.machine.handle_init(now, header.source, &test, &Around(geonet.router()))
    }
}

/// Handles a message of a neighbouring mobile router or of an access router.
fn hear(
    machine: Option<&mut Mnpp>,
    access: Option<&mut Access>,
    now: Time,
    station: [u8; 6],
    packet: &[u8],
    around: &Around<'_>,
) {
    let Ok((header, message)) = Header::parse_packet(packet) else { return };
    if header.next_header == protocol::MOBILITY {
        if let (Some(machine), Some((header, test))) = (machine, prefix_test(packet)) {
            // `Mnpp` counts the message, so the result has no further use.
            let _counted = machine.handle_straight(now, station, header.source, &test, around);
        }
    } else if let Ok(advertisement) = RouterAdvertisement::parse(message) {
        if let Some(access) = access {
            access.handle_advertisement(now, station, header.source, &advertisement, around);
        }
        if let Some(machine) = machine {
            machine.handle_advertisement(now, station, header.source, &advertisement, around);
        }
    }
}

fn prefix_test(packet: &[u8]) -> Option<(Header, PrefixTest)> {
    let header = Header::parse(packet).ok()?;
    let octets = packet.get(HEADER_LEN..)?;
    let mobility = MobilityHeader::parse_verified(octets, header.source, header.destination).ok()?;
    Some((header, PrefixTest::parse(&mobility).ok()?))
}
