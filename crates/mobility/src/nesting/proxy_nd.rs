//! Proxy Neighbor Discovery on the visited link for the addresses of routers in the tree (RFC 8929).

use std::net::Ipv6Addr;

use carnet_base::Time;
use carnet_wire::nd::address_registration::registration_status;

use super::{Nesting, Output};

impl Nesting {
    /// Handles a solicitation for an address on a visited link, also one of duplicate address detection.
    pub(super) fn answer_solicitation(
        &mut self,
        now: Time,
        interface: &str,
        target: Ipv6Addr,
        source: Ipv6Addr,
        peer: Option<[u8; 6]>,
    ) {
        let Some(entry) = self.addresses.get(&target) else { return };
        if entry.uplink_and_parent != (interface.to_owned(), None) {
            return;
        }
        if entry.is_valid() {
            let link = self.links.get(interface);
            let answer =
                link.and_then(|link| link.build_solicited_advertisement(target, false, true, source, peer));
            self.outputs.extend(answer.map(Output::Link));
        } else if source.is_unspecified() {
            self.end_conflicting_address(now, target);
        }
    }

    /// Handles an advertisement by which another node on a visited link claims an address.
    pub(super) fn handle_address_claim(&mut self, now: Time, interface: &str, target: Ipv6Addr) {
        let Some(entry) = self.addresses.get(&target) else { return };
        if !entry.is_valid() && entry.uplink_and_parent == (interface.to_owned(), None) {
            self.end_conflicting_address(now, target);
        }
    }

    /// Ends an address, because duplicate address detection found another node with this address.
    pub(super) fn end_conflicting_address(&mut self, now: Time, address: Ipv6Addr) {
        self.send_child_answer(now, address, registration_status::DUPLICATE);
        self.remove_address(now, address);
    }
}
