//! Nested mobile routers: connects [`carnet_mobility::nesting`] to the mobile router, the links of both sides
//! and the desired state.

use std::net::Ipv6Addr;

use carnet_base::{Time, WallTime};
use carnet_mobility::Nesting;
use carnet_mobility::nesting::Output as Wish;

use super::Nemo;
use crate::output::Output;

impl Nemo {
    /// Returns the state of nesting: the routers behind this router, and the addresses from its parent
    /// router.
    pub fn nesting(&self) -> Option<&Nesting> {
        self.router.as_ref().map(|router| &router.nesting)
    }

    /// Passes the state of the mobile router to nesting, and the resulting addresses back to the mobile
    /// router.
    pub(super) fn follow_nesting(&mut self, now: Time, wall: WallTime) {
        let Some(router) = &mut self.router else { return };
        router.nesting.handle_attachments(now, &router.machine, &self.virtual_interfaces);
        let addresses = router.nesting.addresses();
        for index in 0..router.machine.uplinks().len() {
            let interface = router.machine.uplinks().get(index).map(|uplink| &uplink.config.interface);
            let own: Vec<(Ipv6Addr, bool)> = addresses
                .iter()
                .filter(|(name, ..)| Some(name) == interface)
                .map(|(_, address, usable)| (*address, *usable))
                .collect();
            router.machine.handle_direct_addresses(now, wall, index, own);
        }
        // The new addresses may have changed the mobile router's preferred uplink, and with it the addresses
        // that nesting offers.
        router.nesting.handle_attachments(now, &router.machine, &self.virtual_interfaces);
        let wishes: Vec<Wish> = std::iter::from_fn(|| router.nesting.poll_output()).collect();
        for wish in wishes {
            match wish {
                Wish::Forwarding => self.forward_router(now),
                Wish::Link(message) => self.outputs.push_back(Output::Icmpv6(message)),
            }
        }
        for (output, from_router) in self.take_mobility_outputs(now, wall) {
            self.translate(now, output, from_router);
        }
        if let Some(router) = &mut self.router {
            let offer = router.nesting.offer(&router.machine);
            for advertiser in &mut router.advertisers {
                advertiser.set_nesting(now, offer.clone());
            }
        }
    }
}
