//! `DENM-PDU-Description` (ETSI TS 103 831 V2.3.1).
//!
//! Generated from `asn1/release2/DENM-PDU-Description.asn` by `cargo xtask gen-asn1`.
//! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.

use super::etsi_its_cdd::*;
use crate::uper::macros::*;

/// This DE indicates whether a vehicle has perceived an event (e.g. a stationary vehicle using camera
/// sensors) or whether it is itself the cause of the event. the value shall be set to: - True - in case the
/// vehicle has perceived the event - False - in case the vehicle itself is the cause of the event (e.g.
/// vehicle is stationary) or part of the cause (e.g. traffic jam) or is directly exposed to the environmental
/// condition (e.g. adverse weather)
pub type PerceivedEvent = bool;

enumerated! {
    /// `Termination` of `DENM-PDU-Description`.
    Termination { #[default] IsCancellation, IsNegation }
}

sequences! {
    /// Additions to [`AlacarteContainer`].
    AlacarteContainerRoadConfigurationGroup {
        road_configuration: Option<RoadConfigurationContainer>,
        pre_crash: Option<PreCrashContainer>,
    }
    /// This type represents the DENM PDU.
    Denm { header: ItsPduHeader, denm: DenmPayload }
    /// This type represents the DENM payload.
    DenmPayload {
        management: ManagementContainer,
        situation: Option<SituationContainer>,
        location: Option<LocationContainer>,
        alacarte: Option<AlacarteContainer>,
    }
    /// This type contains detailed information about the vehicle in which the originating ITS-S is mounted,
    /// for mitigating the consequences of a collision.
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
    /// Additions to [`LocationContainer`].
    LocationContainerLanePositionsGroup {
        lane_positions: Option<GeneralizedLanePositions>,
        occupied_lanes: Option<OccupiedLanesWithConfidence>,
        linked_ivims: Option<IvimReferences>,
        linked_mapems: Option<MapReferences>,
        detection_zones_to_specified_event_point: Option<TracesExtended>,
        predicted_paths: Option<PathPredictedList>,
    }
    /// This type contains detailed information of a roadwork zone and specific access conditions.
    RoadWorksContainerExtended {
        light_bar_siren_in_use: Option<LightBarSirenInUse>,
        closed_lanes: Option<ClosedLanes>,
        restriction: Option<RestrictedTypes>,
        speed_limit: Option<SpeedLimit>,
        incident_indication: Option<CauseCodeV2>,
        recommended_path: Option<ItineraryPath>,
        starting_point_speed_limit: Option<DeltaReferencePosition>,
        traffic_flow_rule: Option<TrafficRule>,
        reference_denms: Option<ActionIdList>,
    }
    /// Additions to [`SituationContainer`].
    SituationContainerLinkedDenmsGroup { linked_denms: Option<ActionIdList>, event_end: Option<Position1d> }
    /// Additions to [`SituationContainer`].
    #[derive(Copy, Hash)]
    SituationContainerEventEndFactorGroup {
        event_end_factor: Option<MultiplicativeFactor>,
        perceived_event: Option<PerceivedEvent>,
    }
    /// This type contains detailed information about a stationary vehicle.
    StationaryVehicleContainer {
        stationary_since: Option<StationarySince>,
        stationary_cause: Option<CauseCodeV2>,
        carrying_dangerous_goods: Option<DangerousGoodsExtended>,
        number_of_occupants: Option<NumberOfOccupants>,
        vehicle_identification: Option<VehicleIdentification>,
        energy_storage_type: Option<EnergyStorageType>,
    }
}

extensible_sequences! {
    /// This type represents the A La Carte Container.
    AlacarteContainer {
        lane_position: Option<LanePosition>,
        impact_reduction: Option<ImpactReductionContainer>,
        external_temperature: Option<Temperature>,
        road_works: Option<RoadWorksContainerExtended>,
        positioning_solution: Option<PositioningSolutionType>,
        stationary_vehicle: Option<StationaryVehicleContainer>,
    } {
        road_configuration_group: AlacarteContainerRoadConfigurationGroup,
    }
    /// This type represents the Location Container.
    LocationContainer {
        event_speed: Option<Speed>,
        event_position_heading: Option<Wgs84Angle>,
        detection_zones_to_event_position: Traces,
        road_type: Option<RoadType>,
    } {
        lane_positions_group: LocationContainerLanePositionsGroup,
    }
    /// This type represents the Management Container.
    #[derive(Copy, Hash)]
    ManagementContainer {
        action_id: ActionId,
        detection_time: TimestampIts,
        reference_time: TimestampIts,
        termination: Option<Termination>,
        event_position: ReferencePosition,
        awareness_distance: Option<StandardLength3b>,
        traffic_direction: Option<TrafficDirection>,
        validity_duration: DeltaTimeSecond = DeltaTimeSecond(600),
        transmission_interval: Option<DeltaTimeMilliSecondPositive>,
        station_type: StationType,
    }
    /// This type contains detailed information about an object with which a vehicle and/or the traffic is
    /// likely to collide.
    PreCrashContainer {
        perceived_pre_crash_object: PerceivedObject,
        object_station_id: Option<StationId>,
        time_to_collision: Option<DeltaTimeMilliSecondPositive>,
        impact_section: Option<ObjectFace>,
        estimated_braking_distance: Option<StandardLength12b>,
    }
    /// This type contains detailed information about the configuration of road section(s) that are
    /// geographically related to the event.
    RoadConfigurationContainer {
        road_configuration_confidence: MetaInformation,
        road_configuration_section_list: RoadConfigurationSectionList,
    }
    /// This type represents the situation container.
    SituationContainer {
        information_quality: InformationQuality,
        event_type: CauseCodeV2,
        linked_cause: Option<CauseCodeV2>,
        event_zone: Option<EventZone>,
    } {
        linked_denms_group: SituationContainerLinkedDenmsGroup,
        event_end_factor_group: SituationContainerEventEndFactorGroup,
    }
}
