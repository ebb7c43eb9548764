//! `VAM-PDU-Descriptions` (ETSI TS 103 300-3 V2.3.1).
//!
//! Generated from `asn1/release2/VAM-PDU-Descriptions.asn` by `cargo xtask gen-asn1`.
//! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.

use super::etsi_its_cdd::*;
use crate::uper::macros::*;

/// `ItsPduHeaderVam` of `VAM-PDU-Descriptions`.
pub type ItsPduHeaderVam = ItsPduHeader;

sequences! {
    /// `VAM` of `VAM-PDU-Descriptions`.
    Vam { header: ItsPduHeaderVam, vam: VruAwareness }
    /// `VruAwareness` of `VAM-PDU-Descriptions`.
    VruAwareness { generation_delta_time: GenerationDeltaTime, vam_parameters: VamParameters }
}

extensible_sequences! {
    /// `VamParameters` of `VAM-PDU-Descriptions`.
    VamParameters {
        basic_container: BasicContainer,
        vru_high_frequency_container: VruHighFrequencyContainer,
        vru_low_frequency_container: Option<VruLowFrequencyContainer>,
        vru_cluster_information_container: Option<VruClusterInformationContainer>,
        vru_cluster_operation_container: Option<VruClusterOperationContainer>,
        vru_motion_prediction_container: Option<VruMotionPredictionContainer>,
    }
    /// `VruClusterInformationContainer` of `VAM-PDU-Descriptions`.
    VruClusterInformationContainer { vru_cluster_information: VruClusterInformation }
    /// `VruClusterOperationContainer` of `VAM-PDU-Descriptions`.
    #[derive(Copy, Hash)]
    VruClusterOperationContainer {
        cluster_join_info: Option<ClusterJoinInfo>,
        cluster_leave_info: Option<ClusterLeaveInfo>,
        cluster_breakup_info: Option<ClusterBreakupInfo>,
        cluster_id_change_time_info: Option<DeltaTimeQuarterSecond>,
    }
    /// `VruHighFrequencyContainer` of `VAM-PDU-Descriptions`.
    VruHighFrequencyContainer {
        heading: Wgs84Angle,
        speed: Speed,
        longitudinal_acceleration: LongitudinalAcceleration,
        curvature: Option<Curvature>,
        curvature_calculation_mode: Option<CurvatureCalculationMode>,
        yaw_rate: Option<YawRate>,
        lateral_acceleration: Option<LateralAcceleration>,
        vertical_acceleration: Option<VerticalAcceleration>,
        vru_lane_position: Option<GeneralizedLanePosition>,
        environment: Option<VruEnvironment>,
        movement_control: Option<VruMovementControl>,
        orientation: Option<Wgs84Angle>,
        roll_angle: Option<CartesianAngle>,
        device_usage: Option<VruDeviceUsage>,
    }
    /// `VruLowFrequencyContainer` of `VAM-PDU-Descriptions`.
    VruLowFrequencyContainer {
        profile_and_subprofile: VruProfileAndSubprofile,
        size_class: Option<VruSizeClass>,
        exterior_lights: Option<VruExteriorLights>,
    }
    /// `VruMotionPredictionContainer` of `VAM-PDU-Descriptions`.
    VruMotionPredictionContainer {
        path_history: Option<PathHistory>,
        path_prediction: Option<PathPredicted>,
        safe_distance: Option<SequenceOfSafeDistanceIndication>,
        trajectory_interception_indication: Option<SequenceOfTrajectoryInterceptionIndication>,
        acceleration_change_indication: Option<AccelerationChangeIndication>,
        heading_change_indication: Option<HeadingChangeIndication>,
        stability_change_indication: Option<StabilityChangeIndication>,
    }
}
