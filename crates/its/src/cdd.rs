//! The Common Data Dictionary (TS 102 894-2 V1.3.1): the data elements of CAM and DENM.
//!
//! The types are those of ETSI's module `ITS-Container`. Release 2 of the dictionary (V2.x) renamed and
//! extended some of these types, but kept their encoding. So carnet's messages are valid in both releases,
//! and the parser skips the additions in messages of release 2. [`crate::release2`] has the full types.
//!
//! [`Default`] of a value is *unavailable* if the dictionary has this value. So a station without data sends
//! the default of a container.

use carnet_base::WallTime;
use carnet_geonet::geodesy::Position;
use carnet_wire::geonet::Timestamp;

pub use crate::asn1::release1::its_container::*;

impl ReferencePosition {
    /// Returns a reference position at `latitude` and `longitude` (0.1 microdegree), whose altitude and
    /// confidence are "unavailable".
    pub fn at_coordinates(latitude: i32, longitude: i32) -> ReferencePosition {
        ReferencePosition {
            latitude: Latitude(latitude),
            longitude: Longitude(longitude),
            ..ReferencePosition::default()
        }
    }

    /// Returns the position for geodesy; `None` if it is unavailable.
    pub fn position(&self) -> Option<Position> {
        let position = Position::new(self.latitude.0, self.longitude.0);
        position.is_on_earth().then_some(position)
    }
}

impl RelevanceDistance {
    /// Returns the distance in metres; 10 km for `Over10km`, which has no upper limit.
    pub const fn to_metres(self) -> u16 {
        match self {
            RelevanceDistance::LessThan50m => 50,
            RelevanceDistance::LessThan100m => 100,
            RelevanceDistance::LessThan200m => 200,
            RelevanceDistance::LessThan500m => 500,
            RelevanceDistance::LessThan1000m => 1_000,
            RelevanceDistance::LessThan5km => 5_000,
            RelevanceDistance::LessThan10km | RelevanceDistance::Over10km => 10_000,
        }
    }
}

impl TimestampIts {
    /// Returns the timestamp of a date. Like the timestamp of a position vector it includes leap seconds.
    /// Unlike that timestamp, it is not reduced modulo 2^32.
    pub fn from_wall_time(date: WallTime) -> TimestampIts {
        let unix = date.as_unix_nanos() / 1_000_000;
        let before = (Timestamp::EPOCH_UNIX_MILLISECONDS - 1000 * Timestamp::LEAP_SECONDS).unsigned_abs();
        TimestampIts(unix.saturating_sub(before))
    }

    /// Returns the timestamp that is `span` later.
    #[must_use]
    pub fn after_duration(self, span: std::time::Duration) -> TimestampIts {
        TimestampIts(
            self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)).min(Self::MOST),
        )
    }
}

impl ValidityDuration {
    /// Returns the validity as a duration.
    pub const fn as_duration(self) -> std::time::Duration {
        std::time::Duration::from_secs(self.0 as u64)
    }
}
