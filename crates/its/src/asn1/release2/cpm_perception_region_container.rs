//! `CPM-PerceptionRegionContainer` (ETSI TS 103 324 V2.1.1).
//!
//! Generated from `asn1/release2/CPM-PerceptionRegionContainer.asn` by `cargo xtask gen-asn1`.
//! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.

use super::etsi_its_cdd::*;
use crate::uper::macros::*;

lists! {
    /// This DF represents a list of identifiers of perceived objects.
    PerceivedObjectIds[Identifier2B] 0..=255 [extensible];
    /// This DF represents the Perception Region Container as a list of perception region information objects.
    PerceptionRegionContainer[PerceptionRegion] 1..=256 [extensible];
}

extensible_sequences! {
    /// This DF represents the actual perception capabilities available to the transmitting ITS-S, offering
    /// additional (often dynamic) details to the information provided in the sensor information container.
    PerceptionRegion {
        measurement_delta_time: DeltaTimeMilliSecondSigned,
        perception_region_confidence: ConfidenceLevel,
        perception_region_shape: Shape,
        shadowing_applies: bool,
        sensor_id_list: Option<SequenceOfIdentifier1B>,
        number_of_perceived_objects: Option<CardinalNumber1B>,
        perceived_object_ids: Option<PerceivedObjectIds>,
    }
}
