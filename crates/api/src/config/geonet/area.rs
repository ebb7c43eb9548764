//! Config table `[[geonet.area]]`.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use super::super::keys::{
    Key, OptionalKey, Section, integer_kind, key_with_default, optional_key, required_key, text_kind,
    value_kind, words_kind,
};
use super::super::reader::{Located, LocatedValue};
use super::super::table::{Table, all};
use super::super::{kinds, values as common};
use super::{AreaShape, Coordinates, values};

/// Values of the config table `[[geonet.area]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// Unique name.
    pub name: String,
    /// Shape of the area.
    pub area_shape: AreaShape,
    /// Centre of the area.
    pub center: Coordinates,
    /// Radius in metres, or the distance from the centre to the edge along the angle; above 0.
    pub distance_a_m: u16,
    /// Distance in metres from the centre to the edge across the angle, above 0; 0 for a circle.
    pub distance_b_m: u16,
    /// Angle in degrees clockwise from North, 0 to 359; 0 for a circle.
    pub angle_deg: u16,
    /// IPv6 multicast group whose packets go to all stations in the area.
    pub group: Option<Ipv6Addr>,
    /// IPv6 subnet of the area.
    pub prefix: Option<Ipv6Net>,
    /// Interface whose multicast packets go to all stations in the area.
    pub ipv6_interface: Option<String>,
}

static NAME: Key<String> = required_key("name", kinds::NAME_KIND, "Its name.");
static SHAPE: Key<AreaShape> = required_key(
    "shape",
    words_kind(&[
        ("circle", AreaShape::Circle),
        ("rectangle", AreaShape::Rectangle),
        ("ellipse", AreaShape::Ellipse),
    ]),
    "A circle has a `radius`; the others have `distance_a`, `distance_b` and `angle`.",
);
static CENTER: Key<Coordinates> =
    required_key("center", value_kind("coordinates", values::EXPECTED_CENTER, read_center), "Its centre.");
static RADIUS: OptionalKey<u16> =
    optional_key("radius", kinds::LENGTH_KIND, "Distance from the centre to the edge of a circle.");
static DISTANCE_A: OptionalKey<u16> = optional_key(
    "distance_a",
    kinds::LENGTH_KIND,
    "Distance from the centre to the edge in the direction of `angle`: half the length of the area.",
);
static DISTANCE_B: OptionalKey<u16> = optional_key(
    "distance_b",
    kinds::LENGTH_KIND,
    "Distance from the centre to the edge across it: half the width of the area.",
);
static ANGLE_KEY: Key<u16> =
    key_with_default("angle", integer_kind(0, 359), "0", "Degrees clockwise from north.");
static GROUP: OptionalKey<Ipv6Addr> = optional_key(
    "group",
    text_kind("multicast group", values::EXPECTED_GROUP, values::group),
    "The IPv6 multicast group of the area; no two areas have the same. Packets to it that enter any interface
     of IPv6 over GeoNetworking go to all stations in the area, and come out of their
     `geonet.ipv6_interface`.",
);
static PREFIX: OptionalKey<Ipv6Net> = optional_key(
    "prefix",
    text_kind("prefix", common::EXPECTED_PREFIX, values::parse_subnet),
    "The IPv6 subnet of the area, /64 or shorter. Multicast groups that are made of it (RFC 3306) lead to the
     area without being named. Its geographic anycast address, the prefix and `fdff:ffff:ffff:fffd`, leads to
     one station there.",
);
static IPV6_INTERFACE: OptionalKey<String> = optional_key(
    "ipv6_interface",
    kinds::INTERFACE_KIND,
    "An interface that carnet makes for the area (the standard's static geographic virtual link). Multicast
     packets into it go to all stations in the area, and come out of the interface that they have for it. It
     needs `geonet.ipv6_interface`.",
);

/// Keys of the config table `[[geonet.area]]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[[geonet.area]]",
    "geonet.area",
    &[
        &NAME,
        &SHAPE,
        &CENTER,
        &RADIUS,
        &DISTANCE_A,
        &DISTANCE_B,
        &ANGLE_KEY,
        &GROUP,
        &PREFIX,
        &IPV6_INTERFACE,
    ],
);

/// The parsed table, with the values that the checks compare with other tables.
pub(in crate::config) struct UncheckedArea {
    pub name: Option<Located<String>>,
    pub group: Option<Located<Ipv6Addr>>,
    pub ipv6_interface: Option<Located<String>>,
    pub config: Option<Area>,
}

impl UncheckedArea {
    /// Reads the table; `largest` is the largest area in square kilometres.
    pub(super) fn read_table(table: &Table<'_>, largest: u32) -> UncheckedArea {
        let name = table.read_key_with_offset(&NAME);
        let shape = table.read_key(&SHAPE);
        let center = table.read_key(&CENTER);
        let extent = read_extent(table, shape, largest);
        let group = table.find_key_with_offset(&GROUP);
        let ipv6_interface = table.find_key_with_offset(&IPV6_INTERFACE);
        let config = all!(Area {
            name: name.clone().map(|name| name.value),
            area_shape: shape,
            center: center,
            distance_a_m: extent.map(|(distance, _, _)| distance),
            distance_b_m: extent.map(|(_, distance, _)| distance),
            angle_deg: extent.map(|(_, _, angle)| angle),
            group: group.map(|group| group.map(|group| group.value)),
            prefix: table.read_key(&PREFIX),
            ipv6_interface: ipv6_interface.clone().map(|name| name.map(|name| name.value)),
        });
        UncheckedArea { name, group: group.flatten(), ipv6_interface: ipv6_interface.flatten(), config }
    }
}

/// Reads the extent of an area: a radius for a circle, otherwise two distances and an angle.
fn read_extent(table: &Table<'_>, shape: Option<AreaShape>, largest: u32) -> Option<(u16, u16, u16)> {
    let radius = table.read_key(&RADIUS);
    let distance_a = table.read_key(&DISTANCE_A);
    let distance_b = table.read_key(&DISTANCE_B);
    let angle = table.read_key(&ANGLE_KEY);
    let shape = shape?;
    let circle = [&RADIUS];
    let distances = [&DISTANCE_A, &DISTANCE_B];
    let refuse = |value: Option<LocatedValue<'_>>, message: &str| {
        if let Some(value) = value {
            value.report_error(message);
        }
    };
    let needed = if shape == AreaShape::Circle {
        let message = "a circle does not have this key, expected only `radius`";
        distances.iter().for_each(|key| refuse(table.value_of_key(*key), message));
        refuse(table.value_of_key(&ANGLE_KEY), message);
        &circle[..]
    } else {
        refuse(
            table.value_of_key(&RADIUS),
            "only a circle has a radius, expected `distance_a` and `distance_b`",
        );
        &distances[..]
    };
    for key in needed.iter().filter(|key| table.value_of_key(**key).is_none()) {
        table.report_missing(*key, common::EXPECTED_LENGTH);
    }
    let (a, b) = if shape == AreaShape::Circle { (radius??, 0) } else { (distance_a??, distance_b??) };
    let (a_km, b_km) = (f64::from(a) / 1000.0, f64::from(b) / 1000.0);
    let size = match shape {
        AreaShape::Circle => std::f64::consts::PI * a_km * a_km,
        AreaShape::Rectangle => 4.0 * a_km * b_km,
        AreaShape::Ellipse => std::f64::consts::PI * a_km * b_km,
    };
    if size > f64::from(largest) {
        let lengths = [&RADIUS, &DISTANCE_A, &DISTANCE_B];
        let at = lengths
            .iter()
            .find_map(|key| table.value_of_key(*key))
            .map_or(table.table_offset(), |value| value.offset());
        let message = format!("the area has {size:.2} square kilometres, expected {largest} at most");
        table.error_sink().push(at, message);
    }
    Some((a, b, angle?))
}

/// Reads the centre of an area, `[LATITUDE, LONGITUDE]` in degrees.
fn read_center(value: &LocatedValue<'_>) -> Option<Coordinates> {
    let items = value.read_array(values::EXPECTED_CENTER)?;
    let [latitude, longitude] = items.as_slice() else {
        value.report_error(&format!(
            "an array of {} is not permitted here, expected {}",
            items.len(),
            values::EXPECTED_CENTER
        ));
        return None;
    };
    let latitude = latitude.read_number("a latitude from -90 to 90 degrees", values::parse_latitude);
    let longitude = longitude.read_number("a longitude from -180 to 180 degrees", values::parse_longitude);
    Some(Coordinates { latitude: latitude?, longitude: longitude? })
}
