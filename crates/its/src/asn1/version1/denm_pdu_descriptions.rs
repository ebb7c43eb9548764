//! `DENM-PDU-Descriptions` (ETSI EN 302 637-3 V1.2.2).
//!
//! Generated from `asn1/version1/DENM-PDU-Descriptions.asn` by `cargo xtask gen-asn1`.
//! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.

use super::its_container::*;
use crate::uper::macros::*;

enumerated! {
    /// How an event ends before its time: by its originator, or by somebody who sees that it is over.
    Termination { #[default] IsCancellation, IsNegation }
}

lists! {
    /// Other events that belong to this one.
    ReferenceDenms[ActionId] 1..=8 [extensible];
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
    /// What belongs to some events.
    AlacarteContainer {
        lane_position: Option<LanePosition>,
        impact_reduction: Option<ImpactReductionContainer>,
        external_temperature: Option<Temperature>,
        road_works: Option<RoadWorksContainerExtended>,
        positioning_solution: Option<PositioningSolutionType>,
        stationary_vehicle: Option<StationaryVehicleContainer>,
    }
    /// How one gets there.
    LocationContainer {
        event_speed: Option<Speed>,
        event_position_heading: Option<Heading>,
        traces: Traces,
        road_type: Option<RoadType>,
    }
    /// Which event, when and where, and how long it is spoken of.
    #[derive(Copy, Hash)]
    ManagementContainer {
        action_id: ActionId,
        detection_time: TimestampIts,
        reference_time: TimestampIts,
        termination: Option<Termination>,
        event_position: ReferencePosition,
        relevance_distance: Option<RelevanceDistance>,
        relevance_traffic_direction: Option<RelevanceTrafficDirection>,
        validity_duration: ValidityDuration = ValidityDuration(600),
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
}
