//! The counters of a station: those of its planes, in a fixed order.

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
