//! The counters of a station: those of its wings, in one order.

use crate::station::Station;

impl Station {
    /// Returns all counters, each by its dotted name.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let mut counters = self.nemo.counters();
        if let Some(geonet) = self.geonet.get() {
            geonet.add_counters(&mut counters);
        }
        counters
    }
}
