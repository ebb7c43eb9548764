//! `CAM-PDU-Descriptions` (ETSI TS 103 900 V2.3.1).
//!
//! Generated from `asn1/release2/CAM-PDU-Descriptions.asn` by `cargo xtask gen-asn1`.
//! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.

use super::etsi_its_cdd::*;
use crate::uper::macros::*;

integers! {
    /// `vruSubProfileBicyclist` of [`CyclistTypeSpecificInformation`].
    CyclistTypeSpecificInformationVruSubProfileBicyclist(u8) 0..=10, default 0 {
        UNAVAILABLE = 0,
        BICYCLIST = 1,
        WHEELCHAIR_USER = 2,
        HORSE_AND_RIDER = 3,
        ROLLERSKATER = 4,
        E_SCOOTER = 5,
        PERSONAL_TRANSPORTER = 6,
        PEDELEC = 7,
        SPEED_PEDELEC = 8,
        ROADBIKE = 9,
        CHILDRENSBIKE = 10,
    };
    /// This DE represents the identifier of the container type.
    ExtensionContainerId(u32) 1..=16 [extensible], default 1;
}

lists! {
    /// This DF represents a list of CAM containers, each with their type identifier.
    WrappedExtensionContainers[WrappedExtensionContainer] 1..=8 [extensible];
}

sequences! {
    /// This type contains detaild information of the Basic Vehicle Container High Frequency.
    #[derive(Copy, Hash)]
    BasicVehicleContainerHighFrequency {
        heading: Heading,
        speed: Speed,
        drive_direction: DriveDirection,
        vehicle_length: VehicleLength,
        vehicle_width: VehicleWidth,
        longitudinal_acceleration: AccelerationComponent,
        curvature: Curvature,
        curvature_calculation_mode: CurvatureCalculationMode,
        yaw_rate: YawRate,
        acceleration_control: Option<AccelerationControl>,
        lane_position: Option<LanePosition>,
        steering_wheel_angle: Option<SteeringWheelAngle>,
        lateral_acceleration: Option<AccelerationComponent>,
        vertical_acceleration: Option<AccelerationComponent>,
        performance_class: Option<PerformanceClass>,
        cen_dsrc_tolling_zone: Option<CenDsrcTollingZone>,
    }
    /// This type contains detaild information of the Basic Vehicle Container Low Frequency.
    BasicVehicleContainerLowFrequency {
        vehicle_role: VehicleRole,
        exterior_lights: ExteriorLights,
        path_history: Path,
    }
    /// The root data frame for cooperative awareness messages
    Cam { header: ItsPduHeader, cam: CamPayload }
    /// This type represents the CAM payload.
    CamPayload { generation_delta_time: GenerationDeltaTime, cam_parameters: CamParameters }
    /// This type contains detaild information of the Dangerous Goods Container.
    #[derive(Copy, Hash)]
    DangerousGoodsContainer { dangerous_goods_basic: DangerousGoodsBasic }
    /// This type contains detaild information of the Emergency Container.
    #[derive(Copy, Hash)]
    EmergencyContainer {
        light_bar_siren_in_use: LightBarSirenInUse,
        incident_indication: Option<CauseCodeV2>,
        emergency_priority: Option<EmergencyPriority>,
    }
    /// This type contains detaild information of the Public Transport Container.
    PublicTransportContainer { embarkation_status: EmbarkationStatus, pt_activation: Option<PtActivation> }
    /// This type contains detaild information of the Rescue Container.
    #[derive(Copy, Hash)]
    RescueContainer { light_bar_siren_in_use: LightBarSirenInUse }
    /// This type contains detaild information of the Road Works Container Basic.
    #[derive(Copy, Hash)]
    RoadWorksContainerBasic {
        roadworks_sub_cause_code: Option<RoadworksSubCauseCode>,
        light_bar_siren_in_use: LightBarSirenInUse,
        closed_lanes: Option<ClosedLanes>,
    }
    /// This type contains detaild information of the Safety Car Container.
    #[derive(Copy, Hash)]
    SafetyCarContainer {
        light_bar_siren_in_use: LightBarSirenInUse,
        incident_indication: Option<CauseCodeV2>,
        traffic_rule: Option<TrafficRule>,
        speed_limit: Option<SpeedLimit>,
    }
    /// This type contains detaild information of the Special Transport Container.
    #[derive(Copy, Hash)]
    SpecialTransportContainer {
        special_transport_type: SpecialTransportType,
        light_bar_siren_in_use: LightBarSirenInUse,
    }
}

extensible_sequences! {
    /// `CamParameters` of `CAM-PDU-Descriptions`.
    CamParameters {
        basic_container: BasicContainer,
        high_frequency_container: HighFrequencyContainer,
        low_frequency_container: Option<LowFrequencyContainer>,
        special_vehicle_container: Option<SpecialVehicleContainer>,
    } {
        extension_containers: WrappedExtensionContainers,
    }
    /// This type contains type-specific information about cyclists.
    #[derive(Copy, Hash)]
    CyclistTypeSpecificInformation {
        vru_sub_profile_bicyclist: Option<CyclistTypeSpecificInformationVruSubProfileBicyclist>,
        vru_movement_control: Option<VruMovementControl>,
    }
    /// This type contains contextual, map-based location information. eHorizon is defined as a tool to convey
    /// the part of the road network and its characteristics derived from map data located in front of and
    /// behind the vehicle along the road.
    EHorizonLocationSharingContainer {
        segment_ahead: PolygonalLine,
        node_probabilities: Option<ConfidenceLevels>,
        segment_behind: PolygonalLine,
        lane_level_details: Option<BasicLaneConfiguration>,
        segment_source: Option<MetaInformation>,
    }
    /// This type represents the generalized lane positions container.
    GeneralizedLanePositionsContainer { generalized_lane_positions: GeneralizedLanePositions }
    /// This type represents the path prediction container.
    PathPredictionContainer { path_predicted_list: PathPredictedList }
    /// This type contains detaild information of the RSU Container High Frequency.
    RsuContainerHighFrequency { protected_communication_zones_rsu: Option<ProtectedCommunicationZonesRsu> }
    /// This type contains detailed information about two wheelers. It is meant to use for StationType
    /// cyclist, moped and motorcycle.
    TwoWheelerContainer {
        type_specific_information: Option<TwoWheelerTypeSpecificInformation>,
        roll_angle: Option<CartesianAngle>,
        orientation: Option<Wgs84Angle>,
        stability_change_indication: Option<StabilityChangeIndication>,
    }
    /// This type represents the vehicle movement control container.
    #[derive(Copy, Hash)]
    VehicleMovementControlContainer { vehicle_movement_control: VehicleMovementControl }
    /// This type represents the very low frequency container.
    #[derive(Copy, Hash)]
    VeryLowFrequencyContainer {
        vehicle_height: Option<VehicleHeight2>,
        wiper_status: Option<WiperStatus>,
        brake_control: Option<BrakeControl>,
    }
}

extensible_choices! {
    /// This type represents the high frequency container.
    HighFrequencyContainer {
        BasicVehicleContainerHighFrequency(BasicVehicleContainerHighFrequency),
        RsuContainerHighFrequency(RsuContainerHighFrequency),
    }
    /// This type represents the low frequency container.
    LowFrequencyContainer { BasicVehicleContainerLowFrequency(BasicVehicleContainerLowFrequency) }
    /// This type represent the Special Vehicle Container.
    SpecialVehicleContainer {
        PublicTransportContainer(PublicTransportContainer),
        SpecialTransportContainer(SpecialTransportContainer),
        DangerousGoodsContainer(DangerousGoodsContainer),
        RoadWorksContainerBasic(RoadWorksContainerBasic),
        RescueContainer(RescueContainer),
        EmergencyContainer(EmergencyContainer),
        SafetyCarContainer(SafetyCarContainer),
    }
    /// This type contains type specific information about a two wheeler.
    TwoWheelerTypeSpecificInformation { Cyclist(CyclistTypeSpecificInformation) }
}

numbered! {
    /// This DF represents a CAM container preceded by its type identifier and a length indicator.
    WrappedExtensionContainer(ExtensionContainerId) {
        TwoWheelerContainer(TwoWheelerContainer) = 1,
        EHorizonLocationSharingContainer(EHorizonLocationSharingContainer) = 2,
        VeryLowFrequencyContainer(VeryLowFrequencyContainer) = 3,
        PathPredictionContainer(PathPredictionContainer) = 4,
        GeneralizedLanePositionsContainer(GeneralizedLanePositionsContainer) = 5,
        VehicleMovementControlContainer(VehicleMovementControlContainer) = 6,
    }
}
