//! `CPM-SensorInformationContainer` (ETSI TS 103 324 V2.1.1).
//!
//! Generated from `asn1/release2/CPM-SensorInformationContainer.asn` by `cargo xtask gen-asn1`.
//! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.

use super::etsi_its_cdd::*;
use crate::uper::macros::*;

lists! {
    /// This DF represents the Sensor Information Container as a list of information objects about the sensors
    /// or data fusion systems from which the station provides information about detected objects.
    SensorInformationContainer[SensorInformation] 1..=128 [extensible];
}

extensible_sequences! {
    /// This DF represents the characteristics of a single sensor or data fusion system.
    SensorInformation {
        sensor_id: Identifier1B,
        sensor_type: SensorType,
        perception_region_shape: Option<Shape>,
        perception_region_confidence: Option<ConfidenceLevel>,
        shadowing_applies: bool,
    }
}
