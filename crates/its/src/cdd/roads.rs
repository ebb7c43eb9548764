//! Roads, lanes, zones, and how long an event lasts.

use crate::uper::macros::{
    enumerated, extensible_enumerated, extensible_sequences, integers, lists, sequences,
};
use crate::uper::{Reader, Uper, Writer};

use super::{
    ActionId, DeltaReferencePosition, InformationQuality, Latitude, Longitude, PathDeltaTime,
    ReferencePosition, TimestampIts,
};

integers! {
    /// Counted from inside: 1 is the innermost driving lane.
    LanePosition(i8) -1..=14, default -1 {
        OFF_THE_ROAD = -1, INNER_HARD_SHOULDER = 0, INNERMOST_DRIVING_LANE = 1, SECOND_LANE_FROM_INSIDE = 2,
        OUTER_HARD_SHOULDER = 14,
    };
    /// km/h.
    SpeedLimit(u8) 1..=255, default 1;
    /// Metres.
    ProtectedZoneRadius(u32) 1..=255 [extensible], default 1;
    /// The number of a zone.
    ProtectedZoneId(u32) 0..=134_217_727, default 0;
}

/// The number of a tolling zone.
pub type CenDsrcTollingZoneId = ProtectedZoneId;

enumerated! {
    /// What a hard shoulder is for.
    HardShoulderStatus { #[default] AvailableForStopping, Closed, AvailableForDriving }
    /// What a road is like.
    RoadType {
        #[default] UrbanNoStructuralSeparation, UrbanWithStructuralSeparation, NonUrbanNoStructuralSeparation,
        NonUrbanWithStructuralSeparation,
    }
}

extensible_enumerated! {
    /// What is protected; the first addition, `Other(0)`, is a tolling zone for a time.
    ProtectedZoneType { #[default] PermanentCenDsrcTolling }
}

extensible_sequences! {
    /// Which lanes are closed.
    #[derive(Copy)]
    ClosedLanes {
        innerhard_shoulder_status: Option<HardShoulderStatus>,
        outerhard_shoulder_status: Option<HardShoulderStatus>,
        driving_lane_status: Option<DrivingLaneStatus>,
    }
    /// A tolling zone ahead.
    #[derive(Copy)]
    CenDsrcTollingZone {
        protected_zone_latitude: Latitude,
        protected_zone_longitude: Longitude,
        cen_dsrc_tolling_zone_id: Option<CenDsrcTollingZoneId>,
    }
    /// A zone in which stations send less.
    #[derive(Copy)]
    ProtectedCommunicationZone {
        protected_zone_type: ProtectedZoneType,
        expiry_time: Option<TimestampIts>,
        protected_zone_latitude: Latitude,
        protected_zone_longitude: Longitude,
        protected_zone_radius: Option<ProtectedZoneRadius>,
        protected_zone_id: Option<ProtectedZoneId>,
    }
}

sequences! {
    /// Where an event was at some time, from where it is now or was a point later.
    #[derive(Copy)]
    EventPoint {
        event_position: DeltaReferencePosition,
        event_delta_time: Option<PathDeltaTime>,
        information_quality: InformationQuality,
    }
}

lists! {
    /// Where an event has been, the latest first.
    EventHistory[EventPoint] 1..=23;
    /// A recommended way.
    ItineraryPath[ReferencePosition] 1..=40;
    /// The zones that a roadside unit knows.
    ProtectedCommunicationZonesRsu[ProtectedCommunicationZone] 1..=16;
    /// Other events that belong to this one.
    ReferenceDenms[ActionId] 1..=8 [extensible];
}

/// Closed driving lanes: a bit per lane, of up to 13.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DrivingLaneStatus {
    /// How many lanes, 1 to 13.
    pub lanes: u8,
    /// Which of them are closed; the innermost lane is the most significant of `lanes` bits.
    pub closed: u16,
}

impl Default for DrivingLaneStatus {
    fn default() -> Self {
        DrivingLaneStatus { lanes: 1, closed: 0 }
    }
}

impl Uper for DrivingLaneStatus {
    const NAME: &'static str = "DrivingLaneStatus";

    fn decode(reader: &mut Reader<'_>) -> Self {
        let lanes = reader.ranged(1, 13, Self::NAME) as u8;
        DrivingLaneStatus { lanes, closed: reader.bits(u32::from(lanes), Self::NAME) as u16 }
    }

    fn encode(&self, writer: &mut Writer) {
        writer.ranged(i64::from(self.lanes), 1, 13, Self::NAME);
        writer.ranged(i64::from(self.closed), 0, (1 << self.lanes.min(13)) - 1, Self::NAME);
    }
}

/// How long an event lasts after its detection, seconds; DEFAULT 600, for which nothing is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValidityDuration(pub u32);

impl ValidityDuration {
    /// A day.
    pub const MOST: u32 = 86_400;

    /// As a span.
    pub const fn duration(self) -> std::time::Duration {
        std::time::Duration::from_secs(self.0 as u64)
    }
}

impl Default for ValidityDuration {
    fn default() -> Self {
        ValidityDuration(600)
    }
}

impl Uper for ValidityDuration {
    const NAME: &'static str = "ValidityDuration";
    const OPTIONAL: bool = true;

    fn decode(reader: &mut Reader<'_>) -> Self {
        ValidityDuration(reader.ranged(0, i64::from(Self::MOST), Self::NAME) as u32)
    }

    fn encode(&self, writer: &mut Writer) {
        writer.ranged(i64::from(self.0), 0, i64::from(Self::MOST), Self::NAME);
    }

    fn decode_component(reader: &mut Reader<'_>, present: bool) -> Self {
        if present { Self::decode(reader) } else { Self::default() }
    }

    fn is_present(&self) -> bool {
        *self != Self::default()
    }
}
