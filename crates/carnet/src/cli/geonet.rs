//! The commands for GeoNetworking.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_api::config::{parse_duration, parse_group, parse_length};
use carnet_api::model::{
    AreaRequest, AreaShape, GnArea, GnAround, GnCircle, GnNextHeader, GnPingRequest, GnPlace, GnReceived,
    GnSendRequest, GnStation, GnTarget, GnTransport,
};
use carnet_wire::address::Octets;
use clap::{Args, ValueEnum};

use super::{Format, Station};

/// `carnet area`
#[derive(Debug, Args)]
pub struct AreaCommand {
    /// Name of the area. An area with this name that was set before is replaced.
    pub name: String,
    /// Centre of the area: `here`, a place (LAT,LON), or a station by its GeoNetworking, MAC or IPv6 address.
    #[arg(
        long,
        value_name = "PLACE",
        value_parser = parse_area_centre,
        allow_hyphen_values = true,
        required_unless_present = "remove"
    )]
    pub around: Option<GnAround>,
    /// Shape of the area.
    #[arg(long, value_enum, default_value = "circle")]
    pub shape: Shape,
    /// Radius of a circle.
    #[arg(long, value_name = "LENGTH", value_parser = parse_length, conflicts_with_all = ["distance_a", "dist\
        ance_b", "angle"])]
    pub radius: Option<u16>,
    /// Distance from the centre to the edge, in the direction of the angle.
    #[arg(long, value_name = "LENGTH", value_parser = parse_length)]
    pub distance_a: Option<u16>,
    /// Distance from the centre to the edge, across the direction of the angle.
    #[arg(long, value_name = "LENGTH", value_parser = parse_length)]
    pub distance_b: Option<u16>,
    /// Direction in degrees clockwise from North (default: 0).
    #[arg(long, value_name = "DEGREES", value_parser = clap::value_parser!(u16).range(..360))]
    pub angle: Option<u16>,
    /// IPv6 multicast group whose packets go to the area.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_group)]
    pub group: Option<Ipv6Addr>,
    /// Lifetime of the area (default: until it is removed or the station ends).
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub lifetime: Option<Duration>,
    /// Remove the area.
    #[arg(long, conflicts_with_all = ["around", "radius", "distance_a", "distance_b", "angle", "group", "life\
        time"])]
    pub remove: bool,
    /// The station.
    #[command(flatten)]
    pub station: Station,
}

/// A shape of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Circle, with a radius.
    Circle,
    /// Rectangle, with two distances and an angle.
    Rectangle,
    /// Ellipse, with two distances and an angle.
    Ellipse,
}

impl AreaCommand {
    /// Returns the request to set an area; `None` to remove it. Returns the mistake if the command line has
    /// one.
    pub fn into_area_request(self) -> Result<Option<AreaRequest>, String> {
        let Some(around) = self.around else { return Ok(None) };
        let (shape, distance_a_m, distance_b_m) =
            match (self.shape, self.radius, self.distance_a, self.distance_b) {
                (Shape::Circle, Some(radius), ..) => (AreaShape::Circle, radius, None),
                (Shape::Circle, None, ..) => {
                    return Err("a circle has a radius, expected --radius LENGTH".into());
                }
                (Shape::Rectangle, None, Some(a), Some(b)) => (AreaShape::Rectangle, a, Some(b)),
                (Shape::Ellipse, None, Some(a), Some(b)) => (AreaShape::Ellipse, a, Some(b)),
                (Shape::Rectangle | Shape::Ellipse, ..) => {
                    return Err("only a circle has a radius, expected --distance-a and --distance-b".into());
                }
            };
        Ok(Some(AreaRequest {
            name: self.name,
            around,
            shape,
            distance_a_m,
            distance_b_m,
            angle_deg: self.angle,
            group: self.group,
            lifetime_ms: self.lifetime.map(whole_milliseconds),
        }))
    }
}

/// `carnet gnping`
#[derive(Debug, Args)]
pub struct GnPing {
    /// Target: a GeoNetworking address, a MAC address, an IPv6 address, or area:NAME.
    pub target: GnTarget,
    /// Number of requests to send.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=65535),
    )]
    pub count: u32,
    /// Interval between requests.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub interval: Duration,
    /// Time to wait for the answers to a request.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_time)]
    pub timeout: Duration,
    /// The output.
    #[command(flatten)]
    pub format: Format,
    /// The station.
    #[command(flatten)]
    pub station: Station,
}

impl GnPing {
    /// Returns the request to the station.
    pub fn to_request(&self) -> GnPingRequest {
        GnPingRequest {
            target: self.target.clone(),
            count: self.count,
            interval_ms: whole_milliseconds(self.interval),
            timeout_ms: whole_milliseconds(self.timeout),
        }
    }
}

/// `carnet gnsend`
#[derive(Debug, Args)]
pub struct GnSend {
    /// Type of the packet.
    #[arg(value_name = "TYPE")]
    pub kind: PacketKind,
    /// Destination: a station by its GeoNetworking, MAC or IPv6 address, or an area as area:NAME.
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["area", "circle"])]
    pub to: Option<GnTarget>,
    /// Destination: a named area.
    #[arg(long, value_name = "NAME", conflicts_with = "circle")]
    pub area: Option<String>,
    /// Destination: a circle.
    #[arg(long, value_name = "LAT,LON,METRES", value_parser = parse_circle, allow_hyphen_values = true)]
    pub circle: Option<GnCircle>,
    /// Maximum number of hops (default: 10).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub hops: Option<u8>,
    /// Lifetime of the packet (default: 60s).
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub lifetime: Option<Duration>,
    /// Store, carry, forward: a station without a next hop stores the packet until it has one.
    #[arg(long)]
    pub scf: bool,
    /// Type of the payload.
    #[arg(long, value_name = "HEADER", value_enum, default_value = "any")]
    pub next_header: NextHeader,
    /// Put a BTP header with this destination port before the payload.
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// The payload, two hexadecimal digits for each octet.
    #[arg(long, value_name = "HEX")]
    pub payload: Octets,
    /// The station.
    #[command(flatten)]
    pub station: Station,
}

/// Type of a GeoNetworking packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PacketKind {
    /// GeoUnicast: to a station.
    Guc,
    /// GeoAnycast: to the first station in an area that receives it.
    Gac,
    /// GeoBroadcast: to all stations in an area.
    Gbc,
    /// Topologically-scoped broadcast: to all stations within a number of hops.
    Tsb,
    /// Single-hop broadcast: to all stations in radio range.
    Shb,
}

/// Type of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NextHeader {
    /// Unspecified.
    Any,
    /// BTP-A, interactive transport.
    BtpA,
    /// BTP-B, non-interactive transport.
    BtpB,
    /// An IPv6 packet.
    Ipv6,
}

impl GnSend {
    /// Returns the request to the station; or the mistake in the command line, with the expected value.
    pub fn into_request(self) -> Result<GnSendRequest, String> {
        let (to, area) = match self.to {
            Some(GnTarget::Station(station)) => (Some(station), None),
            Some(GnTarget::Area(name)) => (None, Some(GnArea::Name(name))),
            None => (None, self.area.map(GnArea::Name).or(self.circle.map(GnArea::Circle))),
        };
        let transport = match (self.kind, to, area) {
            (PacketKind::Guc, Some(to), _) => GnTransport::Guc { to },
            (PacketKind::Guc, None, _) => return Err("guc goes to a station, expected --to TARGET".into()),
            (PacketKind::Gac, None, Some(area)) => GnTransport::Gac { area },
            (PacketKind::Gbc, None, Some(area)) => GnTransport::Gbc { area },
            (PacketKind::Gac | PacketKind::Gbc, ..) => {
                return Err(
                    "gac and gbc go to an area, expected --area NAME or --circle LAT,LON,METRES".into()
                );
            }
            (PacketKind::Tsb, None, None) => GnTransport::Tsb {},
            (PacketKind::Shb, None, None) => GnTransport::Shb {},
            (PacketKind::Tsb | PacketKind::Shb, ..) => {
                return Err("tsb and shb go to all stations in range, expected no --to, --area or \
                            --circle"
                    .into());
            }
        };
        if self.kind == PacketKind::Shb && self.hops.is_some_and(|hops| hops > 1) {
            return Err("shb goes one hop, expected no --hops, or tsb".into());
        }
        let next_header = self.next_header.into();
        if self.port.is_some() && !matches!(self.next_header, NextHeader::BtpA | NextHeader::BtpB) {
            return Err("a port needs BTP, expected --next-header btp-a or btp-b".into());
        }
        Ok(GnSendRequest {
            transport,
            next_header,
            port: self.port,
            hop_limit: self.hops,
            lifetime_ms: self.lifetime.map(whole_milliseconds),
            scf: self.scf,
            payload: self.payload,
        })
    }
}

/// Parses a duration above zero.
pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err(format!("{text:?} is no time, expected a duration above zero")),
        time => Ok(time),
    }
}

pub(super) fn whole_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Parses the centre of an area: `here`, `LAT,LON` or a station.
fn parse_area_centre(text: &str) -> Result<GnAround, String> {
    let wrong = || {
        format!(
            "{text:?} is no position, expected here, LAT,LON such as 48.8375,2.1008, or the GeoNetworking, \
             MAC \
             or IPv6 address of a station"
        )
    };
    match text.split_once(',') {
        _ if text == "here" => Ok(GnAround::Here),
        Some((latitude, longitude)) => {
            let place = parse_degrees(latitude.trim(), 90.0).zip(parse_degrees(longitude.trim(), 180.0));
            place
                .map(|(latitude, longitude)| GnAround::Place(GnPlace { latitude, longitude }))
                .ok_or_else(wrong)
        }
        None => text.parse::<GnStation>().map(GnAround::Station).map_err(|_| wrong()),
    }
}

pub(super) fn parse_degrees(text: &str, limit: f64) -> Option<f64> {
    text.parse().ok().filter(|degrees| (-limit..=limit).contains(degrees))
}

/// Parses a circle, `LAT,LON,METRES`.
pub(super) fn parse_circle(text: &str) -> Result<GnCircle, String> {
    let wrong = || format!("{text:?} is no circle, expected LAT,LON,METRES such as 48.8375,2.1008,300");
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [latitude, longitude, radius] = parts.as_slice() else { return Err(wrong()) };
    let degrees = |text: &str, limit: f64| parse_degrees(text, limit).ok_or_else(wrong);
    let radius_m = radius
        .strip_suffix('m')
        .unwrap_or(radius)
        .parse()
        .ok()
        .filter(|metres| *metres > 0)
        .ok_or_else(wrong)?;
    Ok(GnCircle { latitude: degrees(latitude, 90.0)?, longitude: degrees(longitude, 180.0)?, radius_m })
}

/// `carnet gnrecv`
#[derive(Debug, Args)]
pub struct GnRecv {
    /// Print only payloads of this type.
    #[arg(long, value_name = "KIND")]
    pub next_header: Option<NextHeader>,
    /// Print only payloads with a BTP header and this destination port.
    #[arg(long)]
    pub port: Option<u16>,
    /// The station.
    #[command(flatten)]
    pub station: Station,
}

impl GnRecv {
    /// Returns whether the filter accepts this payload.
    pub fn accepts_payload(&self, payload: &GnReceived) -> bool {
        self.next_header.is_none_or(|wanted| GnNextHeader::from(wanted) == payload.next_header)
            && (self.port.is_none() || self.port == payload.port)
    }
}

impl From<NextHeader> for GnNextHeader {
    fn from(next_header: NextHeader) -> GnNextHeader {
        match next_header {
            NextHeader::Any => GnNextHeader::Any,
            NextHeader::BtpA => GnNextHeader::BtpA,
            NextHeader::BtpB => GnNextHeader::BtpB,
            NextHeader::Ipv6 => GnNextHeader::Ipv6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn area_centres_are_parsed() {
        assert_eq!(parse_area_centre("here"), Ok(GnAround::Here));
        let place = GnPlace { latitude: 48.8375, longitude: -2.1008 };
        assert_eq!(parse_area_centre("48.8375, -2.1008"), Ok(GnAround::Place(place)));
        let station: GnStation = "1400:0200:0000:000a".parse().expect("a station");
        assert_eq!(parse_area_centre("1400:0200:0000:000a"), Ok(GnAround::Station(station)));
        for text in ["", "there", "1,2,3", "91,0", "0,181", "bus-42"] {
            assert!(
                parse_area_centre(text)
                    .is_err_and(|error| error.starts_with(&format!("{text:?} is no position, expected here")))
            );
        }
    }

    #[test]
    fn circles_are_parsed() {
        let paris = GnCircle { latitude: 48.8375, longitude: -2.1008, radius_m: 300 };
        for text in ["48.8375,-2.1008,300", "48.8375, -2.1008, 300m"] {
            assert_eq!(parse_circle(text), Ok(paris), "{text}");
        }
        for text in
            ["", "1,2", "1,2,3,4", "91,0,1", "0,181,1", "nan,0,1", "0,0,0", "0,0,65536", "0,0,1.5", "0,0,1mm"]
        {
            assert_eq!(
                parse_circle(text),
                Err(format!("{text:?} is no circle, expected LAT,LON,METRES such as 48.8375,2.1008,300"))
            );
        }
    }
}
