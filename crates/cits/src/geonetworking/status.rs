//! The status of the GeoNetworking plane and its counters, with those of the facilities and of security. The
//! types with serde are part of the JSON of the API. This file declares each field and fills it.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{DropReason, Time};
use carnet_geonet::dcc::DccDrop;
use carnet_geonet::geo_destinations::{AreaCentre, AreaDestination, UnknownCentre};
use carnet_geonet::geodesy;
use carnet_geonet::ipv6_adaptation::Ipv6Drop;
use carnet_geonet::location_table::LocationTableEntry;
use carnet_geonet::multicast::{MulticastDrop, SourceFilter};
use carnet_wire::address::{MacAddress, Octets};
use carnet_wire::geonet::{GeoArea, GnAddress, Timestamp};
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use super::command::{GnAround, GnNextHeader, GnStation};
use super::output::GnPacketType;
use super::plane::Geonet;
use crate::position::{AreaShape, to_degrees};
use crate::security::plane::SecurityPlane;

/// The GeoNetworking router in a few words. The program fills the fields of link, path and positioning.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GeonetStatus {
    /// Address of this station; `null` as long as the interface that gives the address does not exist.
    pub gn_address: Option<GnAddress>,
    /// Interface that the router waits for before it can begin, in words.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// State of the link: `up`, `down` or `missing`.
    #[serde(default)]
    pub link: String,
    /// Path of packets over GeoNetworking: `bpf` or `tun`.
    #[serde(default)]
    pub path: String,
    /// Path of the packets as soon as the kernel has its programs, which a thread loads; `null` otherwise.
    #[serde(default)]
    pub path_loading: Option<String>,
    /// State of the positioning, in one snake_case word, such as `fix` or `no_fix`.
    pub position: String,
    /// Own latitude in degrees, north positive; `null` before the first position.
    pub latitude: Option<f64>,
    /// Own longitude in degrees, east positive; `null` before the first position.
    pub longitude: Option<f64>,
    /// Stations in range.
    pub neighbours: u64,
    /// Stations whose position is known, neighbours included.
    pub locations: u64,
}

/// A station whose position is known: an entry of the location table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Location {
    /// GeoNetworking address.
    pub gn_address: GnAddress,
    /// Link-layer address.
    pub mac: MacAddress,
    /// Degrees, north positive.
    pub latitude: f64,
    /// Degrees, east positive.
    pub longitude: f64,
    /// Speed in metres per second, negative backwards.
    pub speed_mps: f64,
    /// Degrees clockwise from North.
    pub heading_deg: f64,
    /// Milliseconds since the station was there.
    pub age_ms: u64,
    /// True where the station is in range.
    pub neighbour: bool,
}

/// An area that has a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Area {
    /// Name of the area; a learnt area has the name of its interface.
    pub name: String,
    /// Origin of the area.
    #[serde(default)]
    pub origin: AreaOrigin,
    /// Shape of the area.
    pub shape: AreaShape,
    /// Centre of an area that moves: `here` or a station; `null` if the area does not move.
    #[serde(default)]
    pub around: Option<GnAround>,
    /// Latitude of the centre in degrees, north positive; `null` while it is not known.
    pub latitude: Option<f64>,
    /// Longitude of the centre in degrees, east positive; `null` while it is not known.
    pub longitude: Option<f64>,
    /// Metres from the centre to the edge: the radius of a circle; for other shapes, in the direction of the
    /// angle.
    pub distance_a_m: u16,
    /// Metres from the centre to the edge across the angle; `null` for a circle.
    pub distance_b_m: Option<u16>,
    /// Degrees clockwise from North; `null` for a circle.
    pub angle_deg: Option<u16>,
    /// Whether this station is inside; `null` while its own position or that of the area is unknown.
    pub inside: Option<bool>,
    /// IPv6 multicast group of all hosts inside the area.
    #[serde(default)]
    pub group: Option<Ipv6Addr>,
    /// The IPv6 subnets of the area.
    #[serde(default)]
    pub prefixes: Vec<Ipv6Net>,
    /// The interface to all stations inside.
    #[serde(default)]
    pub ipv6_interface: Option<String>,
    /// Seconds until the area expires; `null` if it does not expire.
    #[serde(default)]
    pub remaining_s: Option<u32>,
}

/// Origin of an area.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AreaOrigin {
    /// The config.
    #[default]
    Config,
    /// An operator, by `POST /v1/areas`.
    Api,
    /// A Router Advertisement that came over GeoNetworking.
    Learnt,
}

/// An IPv6 multicast group to which a host in the mobile network listens, by an interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The group.
    pub group: Ipv6Addr,
    /// The interface of the mobile network.
    pub interface: String,
    /// Whether the hosts want all sources except `sources`; otherwise only those.
    pub exclude: bool,
    /// The sources.
    pub sources: Vec<Ipv6Addr>,
    /// Whether the group leads to an area.
    pub mapped: bool,
    /// Another router that is the querier on this interface; `null` if it is this router.
    pub querier: Option<Ipv6Addr>,
    /// Seconds until the router removes the group, unless a host reports it again.
    pub remaining_s: Option<f64>,
}

/// Congestion control: the gate in front of the radio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dcc {
    /// `reactive` or `adaptive`.
    pub algorithm: String,
    /// Load of the channel in percent: as measured, or else as the config assumes.
    pub busy_percent: f64,
    /// Milliseconds since the last measurement; `null` if that is too long ago, or without a measurement.
    pub told_ms: Option<u64>,
    /// Reactive: `relaxed`, `active_1` to `active_3` or `restrictive`.
    pub state: Option<String>,
    /// Adaptive: the share of the channel that this station may have, percent.
    pub duty_cycle_percent: Option<f64>,
    /// Milliseconds until the next packet may go; 0 while the gate is open.
    pub closed_ms: f64,
    /// Packets that wait, DP0 to DP3.
    pub waiting: Vec<u64>,
}

/// Event of a ping. The stream ends after [`GnPingEvent::Done`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum GnPingEvent {
    /// A station answered. To a ping of an area there may be many answers.
    Answer(GnPingAnswer),
    /// No station answered a request in time.
    Timeout {
        /// Number of the request, from 1.
        sequence: u32,
    },
    /// All requests were sent, and have been answered or waited for.
    Done {
        /// Requests that were sent.
        sent: u32,
        /// Requests that at least one station answered.
        answered: u32,
    },
}

/// An answer to a ping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GnPingAnswer {
    /// Number of the request, from 1.
    pub sequence: u32,
    /// GeoNetworking address of the answering station.
    pub gn_address: GnAddress,
    /// Link-layer address of the answering station.
    pub mac: MacAddress,
    /// Latitude of the answering station in degrees, north positive.
    pub latitude: f64,
    /// Longitude of the answering station in degrees, east positive.
    pub longitude: f64,
    /// Milliseconds from the request to the answer.
    pub rtt_ms: f64,
    /// Hops that the request went; 1 to a neighbour.
    pub hops: u8,
    /// The stations that the request passed, the answering one last; `null` if they were not recorded.
    pub path: Option<Vec<GnAddress>>,
}

/// A payload that was delivered to the upper layer: a message of `GET /v1/gnrecv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GnReceived {
    /// Transport of the payload.
    #[serde(rename = "type")]
    pub packet_type: GnPacketType,
    /// Type of the payload.
    pub next_header: GnNextHeader,
    /// Destination port of the BTP header (EN 302 636-5-1); `null` without a BTP header.
    #[serde(default)]
    pub port: Option<u16>,
    /// Source port, with BTP-A.
    #[serde(default)]
    pub source_port: Option<u16>,
    /// Destination port info, with BTP-B.
    #[serde(default)]
    pub port_info: Option<u16>,
    /// Address of the sender.
    pub source: GnAddress,
    /// Latitude of the sender in degrees, north positive.
    pub latitude: f64,
    /// Longitude of the sender in degrees, east positive.
    pub longitude: f64,
    /// Remaining hop limit of the received packet.
    pub remaining_hop_limit: u8,
    /// Payload of the packet, without the BTP header if it has one.
    pub payload: Octets,
}

/// An area for GeoBroadcast or GeoAnycast packets that an operator has set at run time.
#[derive(Debug, Clone, Copy)]
pub struct GeoDestination<'a> {
    /// Name of the area.
    pub name: &'a str,
    /// Shape and centre of the area, or the station that it follows.
    pub destination: &'a AreaDestination,
    /// Time at which the area expires; `None` if it never expires.
    pub expires: Option<Time>,
    /// Present position of the area, which may follow a station.
    pub area: Result<GeoArea, UnknownCentre>,
}

impl Area {
    /// Returns the status of an area without group, subnets, interface and lifetime. `own` is the position of
    /// this station.
    pub fn new(name: &str, origin: AreaOrigin, area: GeoArea, own: Option<geodesy::Position>) -> Area {
        let shape = AreaShape::from(area.shape);
        let round = shape == AreaShape::Circle;
        Area {
            name: name.to_owned(),
            origin,
            shape,
            around: None,
            latitude: Some(to_degrees(area.latitude)),
            longitude: Some(to_degrees(area.longitude)),
            distance_a_m: area.distance_a,
            distance_b_m: (!round).then_some(area.distance_b),
            angle_deg: (!round).then_some(area.angle),
            inside: own.map(|own| geodesy::is_inside(&area, own)),
            group: None,
            prefixes: Vec::new(),
            ipv6_interface: None,
            remaining_s: None,
        }
    }
}

/// Returns the remaining seconds, rounded up, so that an existing area has at least one second. Returns
/// `None` for an area that never expires.
fn remaining_seconds(now: Time, expires: Time) -> Option<u32> {
    let left = expires.saturating_since(now) + Duration::from_millis(999);
    (expires < Time::MAX).then(|| u32::try_from(left.as_secs()).unwrap_or(u32::MAX))
}

impl GeoDestination<'_> {
    fn area_status_of(&self, now: Time, own: Option<geodesy::Position>) -> Area {
        let destination = self.destination;
        let nowhere = GeoArea {
            shape: destination.shape,
            latitude: 0,
            longitude: 0,
            distance_a: destination.distance_a,
            distance_b: destination.distance_b,
            angle: destination.angle,
        };
        let area = self.area.ok();
        let mut status = Area::new(self.name, AreaOrigin::Api, area.unwrap_or(nowhere), own);
        if area.is_none() {
            (status.latitude, status.longitude, status.inside) = (None, None, None);
        }
        Area {
            around: match destination.centre {
                AreaCentre::Place(_) => None,
                AreaCentre::Here => Some(GnAround::Here),
                AreaCentre::Station(address) => Some(GnAround::Station(GnStation::Address(address))),
            },
            group: destination.group,
            remaining_s: self.expires.and_then(|expires| remaining_seconds(now, expires)),
            ..status
        }
    }
}

fn location_of(entry: &LocationTableEntry, now: Timestamp) -> Location {
    let vector = entry.position_vector();
    Location {
        gn_address: vector.address,
        mac: MacAddress(entry.mac()),
        latitude: to_degrees(vector.latitude),
        longitude: to_degrees(vector.longitude),
        speed_mps: f64::from(vector.speed) / 100.0,
        heading_deg: f64::from(vector.heading) / 10.0,
        // If the other station's clock is ahead, the age is 0, not negative.
        age_ms: u64::try_from(now.milliseconds_since(vector.timestamp)).unwrap_or(0),
        neighbour: entry.is_neighbour(),
    }
}

impl Geonet {
    /// Returns the router's part of the status.
    pub fn status(&self) -> GeonetStatus {
        let table = self.router.location_table();
        let own = self.router.position_vector();
        GeonetStatus {
            gn_address: Some(self.router.address()),
            latitude: own.map(|vector| to_degrees(vector.latitude)),
            longitude: own.map(|vector| to_degrees(vector.longitude)),
            neighbours: table.neighbour_count() as u64,
            locations: table.len() as u64,
            ..GeonetStatus::default()
        }
    }

    /// Returns the stations of the location table, or only the neighbours. `now` is the present time in the
    /// form of position vectors.
    pub fn location_status(&self, now: Timestamp, only_neighbours: bool) -> Vec<Location> {
        let entries = self.router.location_table().iter().map(|(_, entry)| entry);
        let wanted = entries.filter(|entry| entry.is_neighbour() || !only_neighbours);
        let mut locations: Vec<Location> = wanted.map(|entry| location_of(entry, now)).collect();
        locations.sort_by_key(|location| location.gn_address);
        locations
    }

    /// Returns the areas that operators have set and those that the station has learnt.
    pub fn area_status(&self, now: Time) -> Vec<Area> {
        let own = self.own_position();
        let set = self.geo_destinations(now).map(|set| set.area_status_of(now, own));
        let learnt = self.ipv6().into_iter().flat_map(|ipv6| ipv6.learned_areas()).map(|learnt| {
            let prefixes = learnt.prefixes.iter();
            Area {
                prefixes: prefixes.filter_map(|it| Ipv6Net::new(it.address, it.prefix_length).ok()).collect(),
                ipv6_interface: Some(learnt.interface.to_owned()),
                remaining_s: remaining_seconds(now, learnt.expires),
                ..Area::new(learnt.interface, AreaOrigin::Learnt, learnt.area, own)
            }
        });
        set.chain(learnt).collect()
    }

    /// Returns the position of this station, if it is known.
    pub fn own_position(&self) -> Option<geodesy::Position> {
        let vector = self.router.position_vector()?;
        Some(geodesy::Position::new(vector.latitude, vector.longitude))
    }

    /// Returns the multicast groups of the mobile network.
    pub fn group_status(&self, now: Time) -> Vec<Group> {
        let memberships = self.multicast_proxy().into_iter().flat_map(|proxy| proxy.memberships());
        let groups = memberships.map(|membership| {
            let (exclude, sources) = match membership.filter {
                SourceFilter::Include(sources) => (false, sources),
                SourceFilter::Exclude(sources) => (true, sources),
            };
            Group {
                group: membership.group,
                interface: membership.interface.to_owned(),
                exclude,
                sources: sources.into_iter().collect(),
                mapped: self.ipv6().is_some_and(|ipv6| ipv6.has_area_mapping(membership.group)),
                querier: membership.querier,
                remaining_s: membership.expires_at.map(|until| until.saturating_since(now).as_secs_f64()),
            }
        });
        groups.collect()
    }

    /// Returns the state of congestion control, if the station has it.
    pub fn dcc_status(&self, now: Time) -> Option<Dcc> {
        let gate = self.congestion_gate()?;
        let (reading, state) = (gate.busy_ratio_reading(now), gate.reactive_state_name());
        Some(Dcc {
            algorithm: if state.is_some() { "reactive" } else { "adaptive" }.to_owned(),
            busy_percent: 100.0 * gate.busy_ratio(now),
            told_ms: reading
                .map(|(at, _)| u64::try_from(now.saturating_since(at).as_millis()).unwrap_or(u64::MAX)),
            state: state.map(str::to_owned),
            duty_cycle_percent: gate.duty_cycle().map(|share| 100.0 * share),
            closed_ms: 1e3 * gate.gate_opens_at().saturating_since(now).as_secs_f64(),
            waiting: gate.queue_lengths().map(|count| count as u64).to_vec(),
        })
    }

    /// Returns the areas that operators have set at run time.
    pub fn geo_destinations(&self, now: Time) -> impl Iterator<Item = GeoDestination<'_>> {
        self.geo_destinations.iter().map(move |(name, destination, expires)| GeoDestination {
            name,
            destination,
            expires,
            area: self.geo_destinations.area(now, name, &self.router).unwrap_or(Err(UnknownCentre::Own)),
        })
    }

    /// Appends all counters of the plane, each by its dotted name.
    pub fn add_counters(&self, counters: &mut Vec<(String, u64)>) {
        {
            let counted = self.router().counters();
            for (name, count) in [
                ("received", counted.received_frames),
                ("forwarded", counted.forwarded_packets),
                ("delivered", counted.delivered_payloads),
                ("sent", counted.sent_packets),
                ("beacons", counted.sent_beacons),
                ("from_the_future", counted.from_the_future),
                ("recoveries", counted.perimeter_recoveries),
                ("unacknowledged", counted.unacknowledged_frames),
                ("rerouted", counted.rerouted_frames),
            ] {
                counters.push((format!("geonet.{name}"), count));
            }
            for reason in carnet_geonet::GeonetDrop::ALL {
                counters.push((format!("geonet.dropped.{}", reason.name()), counted.dropped(*reason)));
            }
        }
        if let Some(security) = self.security_plane().map(SecurityPlane::entity) {
            let counted = security.counters();
            for (name, count) in [
                ("received", counted.received_packets),
                ("verified", counted.verified_packets),
                ("copies", counted.accepted_copies),
                ("plain", counted.accepted_unsigned),
                ("verifications", counted.verified_signatures),
                ("signed", counted.signed_packets),
                ("with_certificate", counted.with_certificate),
                ("forwarded", counted.forwarded_packets),
                ("requests", counted.sent_certificate_requests),
                ("pseudonyms", counted.pseudonym_changes),
            ] {
                counters.push((format!("security.{name}"), count));
            }
            for reason in carnet_security::SecurityDrop::ALL {
                counters.push((format!("security.dropped.{}", reason.name()), counted.dropped(*reason)));
            }
        }
        if let Some(gate) = self.congestion_gate() {
            let counted = gate.counters();
            for (profile, count) in counted.sent_by_profile.iter().enumerate() {
                counters.push((format!("geonet.dcc.sent.dp{profile}"), *count));
            }
            counters.push(("geonet.dcc.held".into(), counted.held_packets));
            counters.push(("geonet.dcc.airtime".into(), counted.on_air_us));
            counters.push(("geonet.dcc.stale".into(), counted.stale_reports));
            for reason in DccDrop::ALL {
                let name = format!("geonet.dcc.dropped.{}", reason.name());
                counters.push((name, counted.dropped(*reason)));
            }
        }
        if let Some(facilities) = self.facilities() {
            let counted = facilities.counters();
            for (name, count) in [
                ("cam.sent", counted.sent_messages[0]),
                ("cam.received", counted.received_messages[0]),
                ("denm.sent", counted.sent_messages[1]),
                ("denm.received", counted.received_messages[1]),
                ("saem.sent", counted.sent_messages[2]),
                ("saem.received", counted.received_messages[2]),
                ("unsent", counted.unsent_messages),
            ] {
                counters.push((format!("facilities.{name}"), count));
            }
            for reason in carnet_its::ItsDrop::ALL {
                counters.push((format!("facilities.dropped.{}", reason.name()), counted.dropped(*reason)));
            }
        }
        if let Some(ipv6) = self.ipv6() {
            let counted = ipv6.counters();
            for (name, count) in [
                ("sent", counted.sent_packets),
                ("received", counted.received_packets),
                ("settled", counted.locally_answered_packets),
                ("marked", counted.congestion_marked_packets),
                ("fragments.cut", counted.fragmented_packets),
                ("fragments.joined", counted.reassembled_packets),
                ("fragments.incomplete", counted.abandoned_packets),
            ] {
                counters.push((format!("geonet.ipv6.{name}"), count));
            }
            let (held, late) = self.reordered_counts().unwrap_or_default();
            counters.extend([("geonet.ipv6.held".into(), held), ("geonet.ipv6.late".into(), late)]);
            let (held, spared) = self.delayed_ack_counts().unwrap_or_default();
            counters.extend([
                ("geonet.ipv6.acknowledgements.held".into(), held),
                ("geonet.ipv6.acknowledgements.spared".into(), spared),
            ]);
            if let Some(multicast) = self.multicast_proxy() {
                let counted = multicast.counters();
                for (name, count) in [
                    ("upstream", counted.sent_upstream),
                    ("downstream", counted.sent_downstream),
                    ("queries", counted.sent_queries),
                    ("reports", counted.received_reports),
                ] {
                    counters.push((format!("geonet.multicast.{name}"), count));
                }
                for reason in MulticastDrop::ALL {
                    let name = format!("geonet.multicast.dropped.{}", reason.name());
                    counters.push((name, counted.dropped(*reason)));
                }
            }
            for reason in Ipv6Drop::ALL {
                let name = format!("geonet.ipv6.dropped.{}", reason.name());
                counters.push((name, counted.dropped(*reason)));
            }
        }
    }
}
