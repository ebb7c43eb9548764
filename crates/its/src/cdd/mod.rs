//! The Common Data Dictionary (TS 102 894-2 V1.3.1): what CAM and DENM are made of.
//!
//! Transcribed from ETSI's ASN.1 module `ITS-Container`, whose copyright notice stands in `LICENSE-ETSI` beside this
//! crate. Release 2 of the dictionary (V2.x) gave other names to some of these and added to them, but left their
//! encoding: what is encoded here is valid in both, and messages of release 2 are read without their additions.
//!
//! [`Default`] of a value is *unavailable* wherever the dictionary has that; so the default of a container is
//! what a station sends that knows nothing.

mod causes;
mod roads;
mod vehicles;

pub use causes::*;
pub use roads::*;
pub use vehicles::*;

use carnet_base::WallTime;
use carnet_geonet::geodesy::Position;
use carnet_wire::geonet::Timestamp;

use crate::uper::macros::{enumerated, extensible_sequences, integers, lists, sequences};

integers! {
    /// protocolVersion of the ITS PDU header: 1 in the first editions, 2 today.
    ProtocolVersion(u8) 0..=255, default 2;
    /// messageID.
    MessageId(u8) 0..=255, default 0 {
        DENM = 1, CAM = 2, POI = 3, SPATEM = 4, MAPEM = 5, IVIM = 6, EV_RSR = 7, SREM = 9, SSEM = 10, EVCSN = 11,
        SAEM = 12, RTCMEM = 13, CPM = 14, VAM = 16,
    };
    /// A station's number, which changes with its pseudonym.
    StationId(u32) 0..=4_294_967_295, default 0;
    /// What a station is.
    StationType(u8) 0..=255, default 0 {
        UNKNOWN = 0, PEDESTRIAN = 1, CYCLIST = 2, MOPED = 3, MOTORCYCLE = 4, PASSENGER_CAR = 5, BUS = 6,
        LIGHT_TRUCK = 7, HEAVY_TRUCK = 8, TRAILER = 9, SPECIAL_VEHICLES = 10, TRAM = 11, ROAD_SIDE_UNIT = 15,
    };
    /// Milliseconds of TAI since the start of 2004 in UTC.
    TimestampIts(u64) 0..=4_398_046_511_103, default 0;

    /// WGS 84 latitude, 0.1 microdegree, north positive.
    Latitude(i32) -900_000_000..=900_000_001, default 900_000_001 { UNAVAILABLE = 900_000_001 };
    /// WGS 84 longitude, 0.1 microdegree, east positive.
    Longitude(i32) -1_800_000_000..=1_800_000_001, default 1_800_000_001 { UNAVAILABLE = 1_800_000_001 };
    /// Half an axis of the ellipse in which a position lies with 95 % confidence, 0.01 m.
    SemiAxisLength(u16) 0..=4095, default 4095 { OUT_OF_RANGE = 4094, UNAVAILABLE = 4095 };
    /// Height above the WGS 84 ellipsoid, 0.01 m.
    AltitudeValue(i32) -100_000..=800_001, default 800_001 { UNAVAILABLE = 800_001 };
    /// 0.1 microdegree north of a reference.
    DeltaLatitude(i32) -131_071..=131_072, default 131_072 { UNAVAILABLE = 131_072 };
    /// 0.1 microdegree east of a reference.
    DeltaLongitude(i32) -131_071..=131_072, default 131_072 { UNAVAILABLE = 131_072 };
    /// 0.01 m above a reference.
    DeltaAltitude(i16) -12_700..=12_800, default 12_800 { UNAVAILABLE = 12_800 };
    /// Since the previous point of a path, 10 ms.
    PathDeltaTime(u32) 1..=65_535 [extensible], default 1;

    /// 0.1 degree clockwise from North.
    HeadingValue(u16) 0..=3601, default 3601 { NORTH = 0, EAST = 900, SOUTH = 1800, WEST = 2700, UNAVAILABLE = 3601 };
    /// Half the width of the 95 % interval, 0.1 degree.
    HeadingConfidence(u8) 1..=127, default 127 { OUT_OF_RANGE = 126, UNAVAILABLE = 127 };
    /// 0.01 m/s.
    SpeedValue(u16) 0..=16_383, default 16_383 { STANDSTILL = 0, UNAVAILABLE = 16_383 };
    /// Half the width of the 95 % interval, 0.01 m/s.
    SpeedConfidence(u8) 1..=127, default 127 { OUT_OF_RANGE = 126, UNAVAILABLE = 127 };

    /// Of an event; wraps around.
    SequenceNumber(u16) 0..=65_535, default 0;
    /// Between two sendings of a DENM at its originator, milliseconds.
    TransmissionInterval(u16) 1..=10_000, default 1;
}

enumerated! {
    /// The 95 % confidence of an altitude: within 0.01 m, ... within 200 m.
    AltitudeConfidence {
        Within0m01, Within0m02, Within0m05, Within0m1, Within0m2, Within0m5, Within1m, Within2m, Within5m, Within10m,
        Within20m, Within50m, Within100m, Within200m, OutOfRange, #[default] Unavailable,
    }
    /// How far from its position an event matters.
    RelevanceDistance {
        #[default] LessThan50m, LessThan100m, LessThan200m, LessThan500m, LessThan1000m, LessThan5km, LessThan10km,
        Over10km,
    }
    /// To which traffic an event matters.
    RelevanceTrafficDirection {
        #[default] AllTrafficDirections, UpstreamTraffic, DownstreamTraffic, OppositeTraffic,
    }
}

sequences! {
    /// What every ITS message begins with.
    #[derive(Copy)]
    ItsPduHeader { protocol_version: ProtocolVersion, message_id: MessageId, station_id: StationId }
    /// An altitude.
    #[derive(Copy)]
    Altitude { altitude_value: AltitudeValue, altitude_confidence: AltitudeConfidence }
    /// Where a position lies with 95 % confidence; the orientation is that of the longer axis.
    #[derive(Copy)]
    PosConfidenceEllipse {
        semi_major_confidence: SemiAxisLength,
        semi_minor_confidence: SemiAxisLength,
        semi_major_orientation: HeadingValue,
    }
    /// A position on the earth.
    #[derive(Copy)]
    ReferencePosition {
        latitude: Latitude,
        longitude: Longitude,
        position_confidence_ellipse: PosConfidenceEllipse,
        altitude: Altitude,
    }
    /// A position from a reference.
    #[derive(Copy)]
    DeltaReferencePosition {
        delta_latitude: DeltaLatitude,
        delta_longitude: DeltaLongitude,
        delta_altitude: DeltaAltitude,
    }
    /// A point of a path, from the point before.
    #[derive(Copy)]
    PathPoint { path_position: DeltaReferencePosition, path_delta_time: Option<PathDeltaTime> }
    /// A direction.
    #[derive(Copy)]
    Heading { heading_value: HeadingValue, heading_confidence: HeadingConfidence }
    /// A speed.
    #[derive(Copy)]
    Speed { speed_value: SpeedValue, speed_confidence: SpeedConfidence }
    /// An event, whoever speaks of it.
    #[derive(Copy, PartialOrd, Ord, Hash)]
    ActionId { originating_station_id: StationId, sequence_number: SequenceNumber }
}

extensible_sequences! {
    /// Why: the cause, and more precisely within it ([`cause`] has the causes).
    #[derive(Copy, Hash)]
    CauseCode { cause_code: CauseCodeType, sub_cause_code: SubCauseCodeType }
}

lists! {
    /// Where somebody came from, the latest point first.
    PathHistory[PathPoint] 0..=40;
    /// Ways to an event.
    Traces[PathHistory] 1..=7;
}

impl ReferencePosition {
    /// The position at `latitude` and `longitude` (0.1 microdegree), with unknown altitude and confidence.
    pub fn at(latitude: i32, longitude: i32) -> ReferencePosition {
        ReferencePosition {
            latitude: Latitude(latitude),
            longitude: Longitude(longitude),
            ..ReferencePosition::default()
        }
    }

    /// The position for geodesy; `None` if it is unavailable.
    pub fn position(&self) -> Option<Position> {
        let position = Position::new(self.latitude.0, self.longitude.0);
        position.is_on_earth().then_some(position)
    }
}

impl RelevanceDistance {
    /// The distance in metres; 10 km stands for everything beyond.
    pub const fn metres(self) -> u16 {
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
    /// The timestamp of a date, counted as position vectors count (leap seconds included), but in full.
    pub fn of(date: WallTime) -> TimestampIts {
        let unix = date.as_unix_nanos() / 1_000_000;
        let before = (Timestamp::EPOCH_UNIX_MILLISECONDS - 1000 * Timestamp::LEAP_SECONDS).unsigned_abs();
        TimestampIts(unix.saturating_sub(before))
    }

    /// The time `span` later.
    #[must_use]
    pub fn later(self, span: std::time::Duration) -> TimestampIts {
        TimestampIts(
            self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)).min(Self::MOST),
        )
    }
}
