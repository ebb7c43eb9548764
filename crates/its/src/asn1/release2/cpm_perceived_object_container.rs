//! `CPM-PerceivedObjectContainer` (ETSI TS 103 324 V2.1.1).
//!
//! Generated from `asn1/release2/CPM-PerceivedObjectContainer.asn` by `cargo xtask gen-asn1`.
//! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.

use super::etsi_its_cdd::*;
use crate::uper::macros::*;

lists! {
    /// `PerceivedObjects` of `CPM-PerceivedObjectContainer`.
    PerceivedObjects[PerceivedObject] 0..=255 [extensible];
}

extensible_sequences! {
    /// This DF represents the Perceived Object Container
    PerceivedObjectContainer {
        number_of_perceived_objects: CardinalNumber1B,
        perceived_objects: PerceivedObjects,
    }
}
