//! The Decentralized Environmental Notification Message (EN 302 637-3 V1.3.1 annex A; TS 103 831 has the same root).
//!
//! Transcribed from ETSI's ASN.1 module `DENM-PDU-Descriptions`, whose copyright notice stands in `LICENSE-ETSI`
//! beside this crate. Left out: the additions of release 2, which are skipped.

use crate::cdd::{
    ActionId, CauseCode, ClosedLanes, DangerousGoodsExtended, DeltaReferencePosition, EnergyStorageType,
    EventHistory, Heading, HeightLonCarr, InformationQuality, ItineraryPath, ItsPduHeader, LanePosition,
    LightBarSirenInUse, NumberOfOccupants, PosCentMass, PosFrontAx, PosLonCarr, PositionOfOccupants,
    PositionOfPillars, PositioningSolutionType, ReferenceDenms, ReferencePosition, RelevanceDistance,
    RelevanceTrafficDirection, RequestResponseIndication, RestrictedTypes, RoadType, Speed, SpeedLimit,
    StationType, StationarySince, Temperature, TimestampIts, Traces, TrafficRule, TransmissionInterval,
    TurningRadius, ValidityDuration, VehicleIdentification, VehicleMass, WheelBaseVehicle,
};
use crate::uper::macros::{enumerated, extensible_sequences, sequences};
use crate::uper::{Error, decode, encode};

impl Denm {
    /// Reads a message. The codec is compiled here and nowhere else: whoever called [`crate::uper::decode`] would get
    /// a copy of all of it.
    ///
    /// # Errors
    /// Why the octets are none.
    #[inline(never)]
    pub fn from_octets(octets: &[u8]) -> Result<Denm, Error> {
        decode(octets)
    }

    /// The message's octets, compiled here likewise.
    ///
    /// # Errors
    /// Which value does not fit.
    #[inline(never)]
    pub fn to_octets(&self) -> Result<Vec<u8>, Error> {
        encode(self)
    }
}

enumerated! {
    /// How an event ends before its time: by its originator, or by somebody who sees that it is over.
    Termination { #[default] IsCancellation, IsNegation }
}

sequences! {
    /// The message.
    Denm { header: ItsPduHeader, denm: DecentralizedEnvironmentalNotificationMessage }
    /// Its body.
    DecentralizedEnvironmentalNotificationMessage {
        management: ManagementContainer,
        situation: Option<SituationContainer>,
        location: Option<LocationContainer>,
        alacarte: Option<AlacarteContainer>,
    }
    /// How a vehicle is built, for the moment before an impact.
    ImpactReductionContainer {
        height_lon_carr_left: HeightLonCarr,
        height_lon_carr_right: HeightLonCarr,
        pos_lon_carr_left: PosLonCarr,
        pos_lon_carr_right: PosLonCarr,
        position_of_pillars: PositionOfPillars,
        pos_cent_mass: PosCentMass,
        wheel_base_vehicle: WheelBaseVehicle,
        turning_radius: TurningRadius,
        pos_front_ax: PosFrontAx,
        position_of_occupants: PositionOfOccupants,
        vehicle_mass: VehicleMass,
        request_response_indication: RequestResponseIndication,
    }
    /// Of roadworks.
    RoadWorksContainerExtended {
        light_bar_siren_in_use: Option<LightBarSirenInUse>,
        closed_lanes: Option<ClosedLanes>,
        restriction: Option<RestrictedTypes>,
        speed_limit: Option<SpeedLimit>,
        incident_indication: Option<CauseCode>,
        recommended_path: Option<ItineraryPath>,
        starting_point_speed_limit: Option<DeltaReferencePosition>,
        traffic_flow_rule: Option<TrafficRule>,
        reference_denms: Option<ReferenceDenms>,
    }
    /// Of a vehicle that stands.
    StationaryVehicleContainer {
        stationary_since: Option<StationarySince>,
        stationary_cause: Option<CauseCode>,
        carrying_dangerous_goods: Option<DangerousGoodsExtended>,
        number_of_occupants: Option<NumberOfOccupants>,
        vehicle_identification: Option<VehicleIdentification>,
        energy_storage_type: Option<EnergyStorageType>,
    }
}

extensible_sequences! {
    /// Which event, when and where, and how long it is spoken of.
    #[derive(Copy)]
    ManagementContainer {
        action_id: ActionId,
        detection_time: TimestampIts,
        reference_time: TimestampIts,
        termination: Option<Termination>,
        event_position: ReferencePosition,
        relevance_distance: Option<RelevanceDistance>,
        relevance_traffic_direction: Option<RelevanceTrafficDirection>,
        validity_duration: ValidityDuration,
        transmission_interval: Option<TransmissionInterval>,
        station_type: StationType,
    }
    /// What happens.
    SituationContainer {
        information_quality: InformationQuality,
        event_type: CauseCode,
        linked_cause: Option<CauseCode>,
        event_history: Option<EventHistory>,
    }
    /// How one gets there.
    LocationContainer {
        event_speed: Option<Speed>,
        event_position_heading: Option<Heading>,
        traces: Traces,
        road_type: Option<RoadType>,
    }
    /// What belongs to some events.
    AlacarteContainer {
        lane_position: Option<LanePosition>,
        impact_reduction: Option<ImpactReductionContainer>,
        external_temperature: Option<Temperature>,
        road_works: Option<RoadWorksContainerExtended>,
        positioning_solution: Option<PositioningSolutionType>,
        stationary_vehicle: Option<StationaryVehicleContainer>,
    }
}
