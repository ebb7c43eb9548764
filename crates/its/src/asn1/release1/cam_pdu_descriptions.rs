//! `CAM-PDU-Descriptions` (ETSI EN 302 637-2 V1.4.1).
//!
//! Generated from `asn1/release1/CAM-PDU-Descriptions.asn` by `cargo xtask gen-asn1`.
//! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.

use super::its_container::*;
use crate::uper::macros::*;

integers! {
    /// TimestampIts of the reference position, modulo 65,536 (B.3).
    GenerationDeltaTime(u16) 0..=65_535, default 0 { ONE_MILLI_SEC = 1 };
}

sequences! {
    /// Where a vehicle goes, and how.
    #[derive(Copy, Hash)]
    BasicVehicleContainerHighFrequency {
        heading: Heading,
        speed: Speed,
        drive_direction: DriveDirection,
        vehicle_length: VehicleLength,
        vehicle_width: VehicleWidth,
        longitudinal_acceleration: LongitudinalAcceleration,
        curvature: Curvature,
        curvature_calculation_mode: CurvatureCalculationMode,
        yaw_rate: YawRate,
        acceleration_control: Option<AccelerationControl>,
        lane_position: Option<LanePosition>,
        steering_wheel_angle: Option<SteeringWheelAngle>,
        lateral_acceleration: Option<LateralAcceleration>,
        vertical_acceleration: Option<VerticalAcceleration>,
        performance_class: Option<PerformanceClass>,
        cen_dsrc_tolling_zone: Option<CenDsrcTollingZone>,
    }
    /// What changes slowly.
    BasicVehicleContainerLowFrequency {
        vehicle_role: VehicleRole,
        exterior_lights: ExteriorLights,
        path_history: PathHistory,
    }
    /// The message.
    Cam { header: ItsPduHeader, cam: CoopAwareness }
    /// Its body.
    CoopAwareness { generation_delta_time: GenerationDeltaTime, cam_parameters: CamParameters }
    /// Of one that carries dangerous goods.
    #[derive(Copy, Hash)]
    DangerousGoodsContainer { dangerous_goods_basic: DangerousGoodsBasic }
    /// Of an emergency vehicle.
    #[derive(Copy, Hash)]
    EmergencyContainer {
        light_bar_siren_in_use: LightBarSirenInUse,
        incident_indication: Option<CauseCode>,
        emergency_priority: Option<EmergencyPriority>,
    }
    /// Of a bus or tram.
    PublicTransportContainer { embarkation_status: EmbarkationStatus, pt_activation: Option<PtActivation> }
    /// Of a rescue vehicle.
    #[derive(Copy, Hash)]
    RescueContainer { light_bar_siren_in_use: LightBarSirenInUse }
    /// Of one that works on the road.
    #[derive(Copy, Hash)]
    RoadWorksContainerBasic {
        roadworks_sub_cause_code: Option<RoadworksSubCauseCode>,
        light_bar_siren_in_use: LightBarSirenInUse,
        closed_lanes: Option<ClosedLanes>,
    }
    /// Of a safety car.
    #[derive(Copy, Hash)]
    SafetyCarContainer {
        light_bar_siren_in_use: LightBarSirenInUse,
        incident_indication: Option<CauseCode>,
        traffic_rule: Option<TrafficRule>,
        speed_limit: Option<SpeedLimit>,
    }
    /// Of a heavy or large load.
    #[derive(Copy, Hash)]
    SpecialTransportContainer {
        special_transport_type: SpecialTransportType,
        light_bar_siren_in_use: LightBarSirenInUse,
    }
}

extensible_sequences! {
    /// Who is where.
    #[derive(Copy, Hash)]
    BasicContainer { station_type: StationType, reference_position: ReferencePosition }
    /// The containers.
    CamParameters {
        basic_container: BasicContainer,
        high_frequency_container: HighFrequencyContainer,
        low_frequency_container: Option<LowFrequencyContainer>,
        special_vehicle_container: Option<SpecialVehicleContainer>,
    }
    /// What a roadside unit says.
    RsuContainerHighFrequency { protected_communication_zones_rsu: Option<ProtectedCommunicationZonesRsu> }
}

extensible_choices! {
    /// What is in every CAM.
    HighFrequencyContainer {
        BasicVehicleContainerHighFrequency(BasicVehicleContainerHighFrequency),
        RsuContainerHighFrequency(RsuContainerHighFrequency),
    }
    /// What is in a CAM every half second.
    LowFrequencyContainer { BasicVehicleContainerLowFrequency(BasicVehicleContainerLowFrequency) }
    /// What vehicles with a role say.
    SpecialVehicleContainer {
        PublicTransportContainer(PublicTransportContainer),
        SpecialTransportContainer(SpecialTransportContainer),
        DangerousGoodsContainer(DangerousGoodsContainer),
        RoadWorksContainerBasic(RoadWorksContainerBasic),
        RescueContainer(RescueContainer),
        EmergencyContainer(EmergencyContainer),
        SafetyCarContainer(SafetyCarContainer),
    }
}
