//! Nested mobile routers: connects [`carnet_mobility::nesting`] to the mobile router, and to the links of the
//! uplinks and of the mobile network.

use std::net::Ipv6Addr;

use carnet_base::{Time, WallTime};
use carnet_mobility::nesting::Output as Wish;

use super::RouterRole;

impl RouterRole {
    /// Passes the state of the mobile router to nesting, and the resulting addresses back to the mobile
    /// router. Returns the outputs of nesting.
    pub(super) fn update_nesting(
        &mut self,
        now: Time,
        wall: WallTime,
        virtual_interfaces: &[String],
    ) -> Vec<Wish> {
        self.nesting.handle_attachments(now, &self.state_machine, virtual_interfaces);
        let addresses = self.nesting.addresses();
        for index in 0..self.state_machine.uplinks().len() {
            let interface = self.state_machine.uplinks().get(index).map(|uplink| &uplink.config.interface);
            let own: Vec<(Ipv6Addr, bool)> = addresses
                .iter()
                .filter(|(name, ..)| Some(name) == interface)
                .map(|(_, address, usable)| (*address, *usable))
                .collect();
            self.state_machine.handle_direct_addresses(now, wall, index, own);
        }
        // Pass the attachments again: the new addresses may have changed the mobile router's preferred
        // uplink, and with it the addresses that nesting offers.
        self.nesting.handle_attachments(now, &self.state_machine, virtual_interfaces);
        std::iter::from_fn(|| self.nesting.poll_output()).collect()
    }

    /// Passes to the advertisers the addresses that nesting offers to mobile routers behind this router.
    pub(super) fn update_nesting_offer(&mut self, now: Time) {
        let offer = self.nesting.offered_information(&self.state_machine);
        for advertiser in &mut self.advertisers_by_lan {
            advertiser.set_nesting(now, offer.clone());
        }
    }
}
