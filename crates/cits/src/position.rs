//! Positions and areas as values, for all layers of this crate.

use carnet_wire::geonet::{GeoArea, GeoAreaShape, GnAddress, LongPositionVector, Timestamp};
use serde::{Deserialize, Serialize};

/// Converts tenths of a microdegree to degrees.
pub fn to_degrees(tenths_of_microdegrees: i32) -> f64 {
    f64::from(tenths_of_microdegrees) / 1e7
}

/// Converts degrees to tenths of a microdegree. The cast saturates, and converts NaN to 0.
pub fn to_tenths_of_microdegrees(degrees: f64) -> i32 {
    (degrees * 1e7).round() as i32
}

/// Position of this station, in the units of the wire (EN 302 636-4-1 9.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Time of the position: TAI milliseconds since 2004-01-01, modulo 2^32.
    pub timestamp: u32,
    /// Latitude in tenths of a microdegree, north positive.
    pub latitude: i32,
    /// Longitude in tenths of a microdegree, east positive.
    pub longitude: i32,
    /// Whether the position is accurate (position accuracy indicator, PAI).
    pub accurate: bool,
    /// Speed in centimetres per second.
    pub speed: i16,
    /// Heading in tenths of a degree clockwise from North.
    pub heading: u16,
}

impl Position {
    pub(crate) fn position_vector(self, address: GnAddress) -> LongPositionVector {
        LongPositionVector {
            address,
            timestamp: Timestamp(self.timestamp),
            latitude: self.latitude,
            longitude: self.longitude,
            accurate: self.accurate,
            speed: self.speed,
            heading: self.heading,
        }
    }
}

/// An area, in the units of GeoNetworking packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// Shape of the area: circle, rectangle or ellipse.
    pub shape: AreaShape,
    /// Latitude of the centre in tenths of a microdegree, north positive.
    pub latitude: i32,
    /// Longitude of the centre in tenths of a microdegree, east positive.
    pub longitude: i32,
    /// Radius, or half the length along the angle, in metres.
    pub distance_a: u16,
    /// Half the length across the angle, in metres; 0 for a circle.
    pub distance_b: u16,
    /// Angle of the area in degrees clockwise from North.
    pub angle: u16,
}

/// The shape of an area.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AreaShape {
    /// A circle.
    #[default]
    Circle,
    /// A rectangle.
    Rectangle,
    /// An ellipse.
    Ellipse,
}

impl From<AreaShape> for GeoAreaShape {
    fn from(shape: AreaShape) -> GeoAreaShape {
        match shape {
            AreaShape::Circle => GeoAreaShape::Circle,
            AreaShape::Rectangle => GeoAreaShape::Rectangle,
            AreaShape::Ellipse => GeoAreaShape::Ellipse,
        }
    }
}

impl From<GeoAreaShape> for AreaShape {
    fn from(shape: GeoAreaShape) -> AreaShape {
        match shape {
            GeoAreaShape::Circle => AreaShape::Circle,
            GeoAreaShape::Rectangle => AreaShape::Rectangle,
            GeoAreaShape::Ellipse => AreaShape::Ellipse,
        }
    }
}

impl From<GeoArea> for Area {
    fn from(area: GeoArea) -> Area {
        Area {
            shape: area.shape.into(),
            latitude: area.latitude,
            longitude: area.longitude,
            distance_a: area.distance_a,
            distance_b: area.distance_b,
            angle: area.angle,
        }
    }
}

impl From<Area> for GeoArea {
    fn from(area: Area) -> GeoArea {
        GeoArea {
            shape: area.shape.into(),
            latitude: area.latitude,
            longitude: area.longitude,
            distance_a: area.distance_a,
            distance_b: area.distance_b,
            angle: area.angle,
        }
    }
}

/// A place on the ground.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnPlace {
    /// Latitude in degrees, north positive.
    pub latitude: f64,
    /// Longitude in degrees, east positive.
    pub longitude: f64,
}

/// Destination area of a packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GnArea {
    /// An area with a name: `{"name": "crossing"}`.
    Name(String),
    /// A circle: `{"circle": {"latitude": 48.8375, "longitude": 2.1008, "radius_m": 300}}`.
    Circle(GnCircle),
}

/// A circle on the ground.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnCircle {
    /// Latitude of the centre in degrees, north positive.
    pub latitude: f64,
    /// Longitude of the centre in degrees, east positive.
    pub longitude: f64,
    /// Radius in metres.
    pub radius_m: u16,
}

/// Quality of a position that the facilities report in their messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionQuality {
    /// Radius in centimetres of a circle that contains the true position with 95 % probability; `None` if
    /// unknown.
    #[serde(default)]
    pub confidence_cm: Option<u32>,
    /// Altitude above the WGS 84 ellipsoid, centimetres; `None` if unknown.
    #[serde(default)]
    pub altitude_cm: Option<i32>,
    /// Whether the speed is known.
    pub moves: bool,
    /// Whether the heading is known.
    pub heads: bool,
    /// Whether the receiver has lost its fix; the next positions are then computed by dead reckoning.
    #[serde(default)]
    pub lost: bool,
}

impl Default for PositionQuality {
    /// Returns the quality that holds until the caller reports another: speed and heading are known.
    fn default() -> PositionQuality {
        PositionQuality { confidence_cm: None, altitude_cm: None, moves: true, heads: true, lost: false }
    }
}
