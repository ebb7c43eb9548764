//! Position vectors (clause 9.5): the position of a station and its time.

use super::fields::{field_at, set_field_at};
use super::{GnAddress, Timestamp};

/// A Long Position Vector (clause 9.5.2), 24 octets: the position of a packet's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LongPositionVector {
    /// GeoNetworking address of the station (GN_ADDR).
    pub address: GnAddress,
    /// Time at which the station acquired the position.
    pub timestamp: Timestamp,
    /// WGS 84 latitude, 0.1 microdegree, north positive.
    pub latitude: i32,
    /// WGS 84 longitude, 0.1 microdegree, east positive.
    pub longitude: i32,
    /// PAI, position accuracy indicator: the 95 % confidence interval is smaller than half of
    /// `itsGnPaiInterval`.
    pub accurate: bool,
    /// Speed, 0.01 m/s, backwards negative; -16384 to 16383. The emitter writes a value outside this range as
    /// the nearest limit.
    pub speed: i16,
    /// Heading, 0.1 degree clockwise from North, 0 to 3599.
    pub heading: u16,
}

impl LongPositionVector {
    /// Length of the vector, octets.
    pub const LEN: usize = 24;
    /// The lowest speed that fits 15 bits, 0.01 m/s.
    pub const SPEED_MIN: i16 = -0x4000;
    /// The highest speed that fits 15 bits, 0.01 m/s.
    pub const SPEED_MAX: i16 = 0x3fff;

    /// Reads the vector; every combination of octets is a valid vector.
    pub fn from_octets(octets: &[u8; Self::LEN]) -> LongPositionVector {
        let speed = u16::from_be_bytes(field_at::<20, 2, 24>(octets));
        LongPositionVector {
            address: GnAddress(u64::from_be_bytes(field_at::<0, 8, 24>(octets))),
            timestamp: Timestamp(u32::from_be_bytes(field_at::<8, 4, 24>(octets))),
            latitude: i32::from_be_bytes(field_at::<12, 4, 24>(octets)),
            longitude: i32::from_be_bytes(field_at::<16, 4, 24>(octets)),
            accurate: speed & 0x8000 != 0,
            // Bit 14 is the sign: shift it to bit 15, then shift back with sign extension.
            speed: ((speed << 1) as i16) >> 1,
            heading: u16::from_be_bytes(field_at::<22, 2, 24>(octets)),
        }
    }

    /// Returns the octets of the vector.
    pub fn to_octets(&self) -> [u8; Self::LEN] {
        let speed = self.speed.clamp(Self::SPEED_MIN, Self::SPEED_MAX) as u16 & 0x7fff;
        let accurate = if self.accurate { 0x8000 } else { 0 };
        let mut octets = [0; Self::LEN];
        set_field_at::<0, 8, 24>(&mut octets, self.address.0.to_be_bytes());
        set_field_at::<8, 4, 24>(&mut octets, self.timestamp.0.to_be_bytes());
        set_field_at::<12, 4, 24>(&mut octets, self.latitude.to_be_bytes());
        set_field_at::<16, 4, 24>(&mut octets, self.longitude.to_be_bytes());
        set_field_at::<20, 2, 24>(&mut octets, (accurate | speed).to_be_bytes());
        set_field_at::<22, 2, 24>(&mut octets, self.heading.to_be_bytes());
        octets
    }

    /// Returns the short vector: without speed, heading and accuracy.
    pub fn to_short(&self) -> ShortPositionVector {
        ShortPositionVector {
            address: self.address,
            timestamp: self.timestamp,
            latitude: self.latitude,
            longitude: self.longitude,
        }
    }

    /// Returns whether latitude and longitude are on the globe. The format also allows values such as 200
    /// degrees north.
    pub fn is_on_globe(&self) -> bool {
        is_on_globe(self.latitude, self.longitude)
    }
}

/// A Short Position Vector (clause 9.5.3), 20 octets: the position of a packet's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ShortPositionVector {
    /// GeoNetworking address of the station (GN_ADDR).
    pub address: GnAddress,
    /// Time at which the station acquired the position.
    pub timestamp: Timestamp,
    /// WGS 84 latitude, 0.1 microdegree, north positive.
    pub latitude: i32,
    /// WGS 84 longitude, 0.1 microdegree, east positive.
    pub longitude: i32,
}

impl ShortPositionVector {
    /// Length of the vector, octets.
    pub const LEN: usize = 20;

    /// Reads the vector; every combination of octets is a valid vector.
    pub fn from_octets(octets: &[u8; Self::LEN]) -> ShortPositionVector {
        ShortPositionVector {
            address: GnAddress(u64::from_be_bytes(field_at::<0, 8, 20>(octets))),
            timestamp: Timestamp(u32::from_be_bytes(field_at::<8, 4, 20>(octets))),
            latitude: i32::from_be_bytes(field_at::<12, 4, 20>(octets)),
            longitude: i32::from_be_bytes(field_at::<16, 4, 20>(octets)),
        }
    }

    /// Returns the octets of the vector.
    pub fn to_octets(&self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        set_field_at::<0, 8, 20>(&mut octets, self.address.0.to_be_bytes());
        set_field_at::<8, 4, 20>(&mut octets, self.timestamp.0.to_be_bytes());
        set_field_at::<12, 4, 20>(&mut octets, self.latitude.to_be_bytes());
        set_field_at::<16, 4, 20>(&mut octets, self.longitude.to_be_bytes());
        octets
    }

    /// Returns whether latitude and longitude are on the globe.
    pub fn is_on_globe(&self) -> bool {
        is_on_globe(self.latitude, self.longitude)
    }
}

impl From<&LongPositionVector> for ShortPositionVector {
    fn from(long: &LongPositionVector) -> ShortPositionVector {
        long.to_short()
    }
}

/// Returns whether the latitude is within 90 degrees and the longitude within 180 degrees; both in 0.1
/// microdegree.
pub(super) fn is_on_globe(latitude: i32, longitude: i32) -> bool {
    latitude.unsigned_abs() <= 900_000_000 && longitude.unsigned_abs() <= 1_800_000_000
}
