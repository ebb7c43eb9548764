//! `CPM-PDU-Descriptions` (ETSI TS 103 324 V2.1.1).
//!
//! Generated from `asn1/release2/CPM-PDU-Descriptions.asn` by `cargo xtask gen-asn1`.
//! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.

use super::cpm_originating_station_containers::*;
use super::cpm_perceived_object_container::*;
use super::cpm_perception_region_container::*;
use super::cpm_sensor_information_container::*;
use super::etsi_its_cdd::*;
use crate::uper::macros::*;

/// This DF represents a list of CPM containers, each with their type identifier with an additional
/// constraint.
pub type ConstraintWrappedCpmContainers = WrappedCpmContainers;

integers! {
    /// This DE represents the identifier of the container type.
    CpmContainerId(u8) 1..=16, default 1;
}

lists! {
    /// This DF represents a list of CPM containers, each with their type identifier.
    WrappedCpmContainers[WrappedCpmContainer] 1..=8 [extensible];
}

sequences! {
    /// This DF represents the Collective Perception Message (CPM) and is the top level Protocol Data Unit.
    CollectivePerceptionMessage { header: ItsPduHeader, payload: CpmPayload }
    /// This DF represents the planned or expected range of the message generation rate.
    #[derive(Copy, Hash)]
    MessageRateRange { message_rate_min: MessageRateHz, message_rate_max: MessageRateHz }
}

extensible_sequences! {
    /// This DF represents the payload of the CPM.
    CpmPayload { management_container: ManagementContainer, cpm_containers: ConstraintWrappedCpmContainers }
    /// This DF represents the management container of the CPM. The management container provides basic
    /// information about the originating ITS-S, which are not specific to a specific type of station.
    #[derive(Copy, Hash)]
    ManagementContainer {
        reference_time: TimestampIts,
        reference_position: ReferencePosition,
        segmentation_info: Option<MessageSegmentationInfo>,
        message_rate_range: Option<MessageRateRange>,
    }
}

numbered! {
    /// This DF represents a CPM container preceded by its type identifier and a lenght indicator.
    WrappedCpmContainer(CpmContainerId) {
        OriginatingVehicleContainer(OriginatingVehicleContainer) = 1,
        OriginatingRsuContainer(OriginatingRsuContainer) = 2,
        SensorInformationContainer(SensorInformationContainer) = 3,
        PerceptionRegionContainer(PerceptionRegionContainer) = 4,
        PerceivedObjectContainer(PerceivedObjectContainer) = 5,
    }
}
