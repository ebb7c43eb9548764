//! `CPM-PerceivedObjectContainer` (ETSI TS 103 324 V2.1.1).
//!
//! Made of `asn1/release2/CPM-PerceivedObjectContainer.asn` by `cargo xtask gen-asn1`: whoever changes something here loses it.
//! What ETSI publishes its modules under stands in `asn1/LICENSE`.

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
