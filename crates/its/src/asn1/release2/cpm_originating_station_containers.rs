//! `CPM-OriginatingStationContainers` (ETSI TS 103 324 V2.1.1).
//!
//! Generated from `asn1/release2/CPM-OriginatingStationContainers.asn` by `cargo xtask gen-asn1`.
//! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.

use super::etsi_its_cdd::*;
use crate::uper::macros::*;

lists! {
    /// This DF represents a list of trailer data.
    TrailerDataSet[TrailerData] 1..=8 [extensible];
}

extensible_sequences! {
    /// This DF represents the Originating RSU Container.
    #[derive(Copy, Hash)]
    OriginatingRsuContainer { map_reference: Option<MapReference> }
    /// This DF represents the Originating Vehicle Container
    OriginatingVehicleContainer {
        orientation_angle: Wgs84Angle,
        pitch_angle: Option<CartesianAngle>,
        roll_angle: Option<CartesianAngle>,
        trailer_data_set: Option<TrailerDataSet>,
    }
}
