//! Operators' commands to the GeoNetworking plane, the facilities and security, with their bodies in the API.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::geo_destinations::{self, AreaDestination};
use carnet_geonet::geodesy;
use carnet_wire::address::{MacAddress, Octets};
use carnet_wire::as_string;
use carnet_wire::btp::port;
use carnet_wire::geonet::GnAddress;
use serde::{Deserialize, Serialize};

use super::output::{GnPacketType, Output};
use super::plane::Geonet;
use crate::facilities::command::DenmCommand;
use crate::facilities::plane::NO_FACILITIES_ERROR;
use crate::position::{AreaShape, GnArea, GnPlace};
use crate::security::command::NO_PSEUDONYMS_ERROR;

/// Body of `POST /v1/channel`: a program has measured the load of the channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelRequest {
    /// Share of the time for which the GeoNetworking channel was busy, 0 to 100.
    pub busy_percent: f64,
}

/// Body of `POST /v1/areas`: sets an area. It replaces an area that was set before with the same name.
///
/// ```
/// use carnet_cits::geonetworking::command::{AreaRequest, GnAround};
/// use carnet_cits::position::AreaShape;
/// let request = r#"{"name": "near", "around": "here", "distance_a_m": 300, "group": "ff1e::42",
///     "lifetime_ms": 600000}"#;
/// let request: AreaRequest = serde_json::from_str(request).expect("a request");
/// assert_eq!((request.around, request.shape), (GnAround::Here, AreaShape::Circle));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaRequest {
    /// Name of the area, 1 to 64 characters; not that of an area of the config.
    pub name: String,
    /// Centre of the area.
    pub around: GnAround,
    /// Shape of the area; a circle if absent.
    #[serde(default)]
    pub shape: AreaShape,
    /// Metres from the centre to the edge: the radius; or along the angle.
    pub distance_a_m: u16,
    /// Metres from the centre to the edge across the angle; `null` for a circle.
    #[serde(default)]
    pub distance_b_m: Option<u16>,
    /// Degrees clockwise from North; `null` for 0.
    #[serde(default)]
    pub angle_deg: Option<u16>,
    /// The IPv6 multicast group of all stations inside; `null` without a group.
    #[serde(default)]
    pub group: Option<Ipv6Addr>,
    /// Milliseconds until the area expires; `null`: it stays until it is removed, or the station ends.
    #[serde(default)]
    pub lifetime_ms: Option<u64>,
}

/// Body of `POST /v1/areas/remove`: removes an area that was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaRemoval {
    /// Name of the area.
    pub name: String,
}

/// Centre of an area: a string, or an object for a place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GnAround {
    /// This station, wherever it goes: `"here"`.
    Here,
    /// Another station, wherever it goes: `{"station": "1400:0200:0000:000a"}`.
    Station(GnStation),
    /// A place: `{"place": {"latitude": 48.8375, "longitude": 2.1008}}`.
    Place(GnPlace),
}

/// A station by one of its addresses: a string.
///
/// The three kinds cannot be mistaken for each other: four groups of four digits, six groups of two, or an
/// IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GnStation {
    /// GeoNetworking address of the station.
    Address(GnAddress),
    /// Link-layer address of the station.
    Mac(MacAddress),
    /// IPv6 address of the station on the GeoNetworking link.
    Ipv6(Ipv6Addr),
}

/// Target of a ping: a string, an address or `area:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GnTarget {
    /// One station.
    Station(GnStation),
    /// Every station in an area with a name.
    Area(String),
}

/// Error for a text that is neither a station's address nor, where allowed, a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?} is no {parsed_item}, expected a GeoNetworking address (1400:0200:0000:000a), a MAC address, \
         an IPv6 address{further_forms}"
)]
pub struct ParseTargetError {
    found: String,
    parsed_item: &'static str,
    further_forms: &'static str,
}

impl FromStr for GnStation {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<GnStation, ParseTargetError> {
        let address = text.parse().map(GnStation::Address).ok();
        let mac = || text.parse().map(GnStation::Mac).ok();
        let ipv6 = || text.parse().map(GnStation::Ipv6).ok();
        address.or_else(mac).or_else(ipv6).ok_or_else(|| ParseTargetError {
            found: text.to_owned(),
            parsed_item: "station",
            further_forms: "",
        })
    }
}

impl FromStr for GnTarget {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<GnTarget, ParseTargetError> {
        match text.strip_prefix("area:") {
            Some(name) if !name.is_empty() => Ok(GnTarget::Area(name.to_owned())),
            _ => text.parse().map(GnTarget::Station).map_err(|error: ParseTargetError| ParseTargetError {
                parsed_item: "target",
                further_forms: " or area:NAME",
                ..error
            }),
        }
    }
}

impl fmt::Display for GnStation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GnStation::Address(address) => address.fmt(f),
            GnStation::Mac(address) => address.fmt(f),
            GnStation::Ipv6(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for GnTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GnTarget::Station(station) => station.fmt(f),
            GnTarget::Area(name) => write!(f, "area:{name}"),
        }
    }
}

as_string!(GnStation, GnTarget);

/// Body of `POST /v1/gnping`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnPingRequest {
    /// Target of the ping.
    pub target: GnTarget,
    /// Number of requests, 1 to 65535.
    pub count: u32,
    /// Milliseconds from one request to the next.
    pub interval_ms: u64,
    /// Milliseconds for which the station waits for answers to a request.
    pub timeout_ms: u64,
}

/// Body of `POST /v1/gnsend`: one packet.
///
/// ```
/// use carnet_cits::geonetworking::command::GnSendRequest;
/// let request = r#"{
///     "transport": {"type": "gbc", "area": {"circle": {"latitude": 48.8375, "longitude": 2.1008,
///                   "radius_m": 300}}},
///     "next_header": "btp-b", "port": 2002, "payload": "0102"
/// }"#;
/// let request: GnSendRequest = serde_json::from_str(request).expect("a request");
/// assert_eq!((request.port, request.scf, request.lifetime_ms), (Some(2002), false, None));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnSendRequest {
    /// Transport and destination.
    pub transport: GnTransport,
    /// Type of the payload; `any` if absent.
    #[serde(default)]
    pub next_header: GnNextHeader,
    /// Destination port of a BTP header that the station puts before the payload; `null`: no BTP header. Only
    /// with a next header of BTP.
    #[serde(default)]
    pub port: Option<u16>,
    /// Hop limit; `null` for the default, and for `shb`, which goes one hop.
    #[serde(default)]
    pub hop_limit: Option<u8>,
    /// Lifetime of the packet in milliseconds; `null` for the default.
    #[serde(default)]
    pub lifetime_ms: Option<u64>,
    /// Store, carry and forward: a station without a next hop keeps the packet until there is one.
    #[serde(default)]
    pub scf: bool,
    /// The payload.
    pub payload: Octets,
}

/// Transport and destination of a packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum GnTransport {
    /// GeoUnicast: to a station.
    Guc {
        /// The station.
        to: GnStation,
    },
    /// GeoAnycast: to one station in an area.
    Gac {
        /// The area.
        area: GnArea,
    },
    /// GeoBroadcast: to all stations in an area.
    Gbc {
        /// The area.
        area: GnArea,
    },
    /// Topologically-scoped broadcast: to all stations within some hops.
    Tsb {},
    /// Single-hop broadcast: to all stations in range.
    Shb {},
}

impl GnTransport {
    /// Returns the type of the packet.
    pub fn packet_type(&self) -> GnPacketType {
        match self {
            GnTransport::Guc { .. } => GnPacketType::Guc,
            GnTransport::Gac { .. } => GnPacketType::Gac,
            GnTransport::Gbc { .. } => GnPacketType::Gbc,
            GnTransport::Tsb {} => GnPacketType::Tsb,
            GnTransport::Shb {} => GnPacketType::Shb,
        }
    }
}

/// Type of a payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GnNextHeader {
    /// Unspecified.
    #[default]
    Any,
    /// BTP-A: interactive packet transport.
    BtpA,
    /// BTP-B: non-interactive packet transport.
    BtpB,
    /// An IPv6 packet.
    Ipv6,
}

/// Centre of an area that an operator sets at run time, as recordings store it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AreaCentreCommand {
    /// A fixed place, in tenths of a microdegree, north and east positive.
    Place {
        /// Latitude of the place.
        latitude: i32,
        /// Longitude of the place.
        longitude: i32,
    },
    /// The present position of this station.
    Here,
    /// The area follows the station with this GN address.
    Station(u64),
}

/// An operator's order to set an area at run time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AreaCommand {
    /// Name of the area. An area with the same name is replaced.
    pub name: String,
    /// Centre of the area.
    pub around: AreaCentreCommand,
    /// Shape of the area: circle, rectangle or ellipse.
    pub shape: AreaShape,
    /// Radius, or half the length along the angle, in metres.
    pub distance_a: u16,
    /// Half the length across the angle, in metres; 0 for a circle.
    pub distance_b: u16,
    /// Angle of the area in degrees clockwise from North.
    pub angle: u16,
    /// IPv6 multicast group of all stations in the area.
    pub group: Option<Ipv6Addr>,
    /// Lifetime of the area in milliseconds; `None`: unlimited.
    pub lifetime_ms: Option<u64>,
}

impl AreaCommand {
    pub(crate) fn to_area_destination(&self) -> AreaDestination {
        AreaDestination {
            centre: match self.around {
                AreaCentreCommand::Place { latitude, longitude } => {
                    geo_destinations::AreaCentre::Place(geodesy::Position::new(latitude, longitude))
                }
                AreaCentreCommand::Here => geo_destinations::AreaCentre::Here,
                AreaCentreCommand::Station(address) => {
                    geo_destinations::AreaCentre::Station(GnAddress(address))
                }
            },
            shape: self.shape.into(),
            distance_a: self.distance_a,
            distance_b: self.distance_b,
            angle: self.angle,
            group: self.group,
        }
    }
}

impl Geonet {
    /// Sets or replaces an area.
    ///
    /// # Errors
    /// Returns the reason, in words for the operator, if the area cannot be set.
    pub fn handle_area_command(&mut self, now: Time, order: &AreaCommand) -> Result<(), String> {
        if let Some(group) = order.group {
            let ipv6 = self.ipv6.as_ref().ok_or("this station has no IPv6 over GeoNetworking")?;
            if !group.is_multicast() || group.octets()[1] & 0x0f <= 2 {
                return Err(format!("{group} is no multicast group with more than link scope"));
            }
            if ipv6.is_configured_group(group) {
                return Err(format!("an area of the config already has the multicast group {group}"));
            }
        }
        let lifetime = order.lifetime_ms.map(Duration::from_millis);
        let set = self.geo_destinations.set_area(
            now,
            &order.name,
            order.to_area_destination(),
            lifetime,
            &self.router,
        );
        set.map_err(|refusal| refusal.to_string())?;
        self.update_areas(now);
        Ok(())
    }

    /// Removes an area.
    ///
    /// # Errors
    /// Returns an error if no area has this name.
    pub fn handle_area_removal(&mut self, now: Time, name: &str) -> Result<(), String> {
        if !self.geo_destinations.remove(name) {
            return Err(format!(
                "expected the name of an area that was set at run time, found {name:?}; areas of the config \
                 cannot be removed"
            ));
        }
        self.update_groups_if_due(now);
        Ok(())
    }

    /// Executes an application's order about an event.
    ///
    /// # Errors
    /// Returns the reason of a failure, in words for the operator.
    pub fn handle_denm_command(&mut self, now: Time, order: &DenmCommand) -> Result<(), String> {
        self.check_permission_for_message(now, port::DENM, &order.denm)?;
        let facilities = self.facilities.as_mut().ok_or(NO_FACILITIES_ERROR)?;
        let largest = self.router.mib().max_area_size;
        if order.area.is_some_and(|area| geodesy::area_size(&area.into()) > largest) {
            return Err(format!(
                "the area is too large, expected at most {} square kilometres (mib.max_area_size)",
                largest / 1e6
            ));
        }
        let made = facilities.handle_denm_command(now, order)?;
        self.outputs.extend(made.map(|action| Output::Triggered(action.into())));
        self.collect_outputs(now);
        Ok(())
    }

    /// Changes the pseudonym now, also while an application has locked it.
    ///
    /// # Errors
    ///
    /// Returns the reason of a failure, for the operator.
    pub fn handle_pseudonym_change(&mut self, now: Time) -> Result<(), String> {
        let identity =
            self.security_plane.as_mut().ok_or(NO_PSEUDONYMS_ERROR)?.handle_pseudonym_change(now)?;
        self.change_identity(now, Some(identity));
        Ok(())
    }

    /// Locks the pseudonym for the duration `span`; a duration of zero ends the lock.
    ///
    /// # Errors
    /// Returns the reason of a failure, in words for the operator.
    pub fn handle_pseudonym_lock(&mut self, now: Time, span: Duration) -> Result<(), String> {
        self.security_plane.as_mut().ok_or(NO_PSEUDONYMS_ERROR)?.handle_pseudonym_lock(now, span)
    }
}
