//! The Cooperative Awareness Message (EN 302 637-2 V1.4.1 annex A; TS 103 900 has the same root).
//!
//! Transcribed from ETSI's ASN.1 module `CAM-PDU-Descriptions`, whose copyright notice stands in `LICENSE-ETSI`
//! beside this crate. Left out: the extension containers of release 2, which are skipped: both releases have the same
//! port and protocolVersion, and a station hears both.

use crate::cdd::{
    AccelerationControl, CauseCode, CenDsrcTollingZone, ClosedLanes, Curvature, CurvatureCalculationMode,
    DangerousGoodsBasic, DriveDirection, EmergencyPriority, ExteriorLights, Heading, ItsPduHeader,
    LanePosition, LateralAcceleration, LightBarSirenInUse, LongitudinalAcceleration, PathHistory,
    PerformanceClass, ProtectedCommunicationZonesRsu, PtActivation, ReferencePosition, RoadworksSubCauseCode,
    SpecialTransportType, Speed, SpeedLimit, StationType, SteeringWheelAngle, TrafficRule, VehicleLength,
    VehicleRole, VehicleWidth, VerticalAcceleration, YawRate,
};
use crate::uper::macros::{extensible_choices, extensible_sequences, integers, sequences};
use crate::uper::{Error, decode, encode};

impl Cam {
    /// Reads a message. The codec is compiled here and nowhere else: whoever called [`crate::uper::decode`] would get
    /// a copy of all of it.
    ///
    /// # Errors
    /// Why the octets are none.
    #[inline(never)]
    pub fn from_octets(octets: &[u8]) -> Result<Cam, Error> {
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

integers! {
    /// TimestampIts of the reference position, modulo 65,536 (B.3).
    GenerationDeltaTime(u16) 0..=65_535, default 0;
}

sequences! {
    /// The message.
    Cam { header: ItsPduHeader, cam: CoopAwareness }
    /// Its body.
    CoopAwareness { generation_delta_time: GenerationDeltaTime, cam_parameters: CamParameters }
    /// Where a vehicle goes, and how.
    #[derive(Copy)]
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
    /// Of a bus or tram.
    PublicTransportContainer { embarkation_status: bool, pt_activation: Option<PtActivation> }
    /// Of a heavy or large load.
    SpecialTransportContainer {
        special_transport_type: SpecialTransportType,
        light_bar_siren_in_use: LightBarSirenInUse,
    }
    /// Of one that carries dangerous goods.
    DangerousGoodsContainer { dangerous_goods_basic: DangerousGoodsBasic }
    /// Of one that works on the road.
    RoadWorksContainerBasic {
        roadworks_sub_cause_code: Option<RoadworksSubCauseCode>,
        light_bar_siren_in_use: LightBarSirenInUse,
        closed_lanes: Option<ClosedLanes>,
    }
    /// Of a rescue vehicle.
    RescueContainer { light_bar_siren_in_use: LightBarSirenInUse }
    /// Of an emergency vehicle.
    EmergencyContainer {
        light_bar_siren_in_use: LightBarSirenInUse,
        incident_indication: Option<CauseCode>,
        emergency_priority: Option<EmergencyPriority>,
    }
    /// Of a safety car.
    SafetyCarContainer {
        light_bar_siren_in_use: LightBarSirenInUse,
        incident_indication: Option<CauseCode>,
        traffic_rule: Option<TrafficRule>,
        speed_limit: Option<SpeedLimit>,
    }
}

extensible_sequences! {
    /// The containers.
    CamParameters {
        basic_container: BasicContainer,
        high_frequency_container: HighFrequencyContainer,
        low_frequency_container: Option<LowFrequencyContainer>,
        special_vehicle_container: Option<SpecialVehicleContainer>,
    }
    /// Who is where.
    #[derive(Copy)]
    BasicContainer { station_type: StationType, reference_position: ReferencePosition }
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

impl Default for HighFrequencyContainer {
    fn default() -> Self {
        HighFrequencyContainer::BasicVehicleContainerHighFrequency(
            BasicVehicleContainerHighFrequency::default(),
        )
    }
}
