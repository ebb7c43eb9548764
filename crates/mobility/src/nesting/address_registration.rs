//! States of an address: test on the visited link or registration with the parent, renewal and end (RFC 8505
//! 5). Also handles the parent's answers.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{LinkMessage, Rng, Time};
use carnet_wire::nd::address_registration::{next_transaction_id, registration_status};
use carnet_wire::nd::{self, AddressRegistration};

use super::offered_networks::OfferedNetwork;
use super::visited_address::{
    FIRST_RETRY_PAUSE, MAX_REGISTRATION_TRIES, RENEWAL_INTERVAL, REQUESTED_MINUTES, VisitedAddress,
    VisitedAddressState,
};
use super::{Nesting, NestingDrop, Output};
use crate::OLD_PATH_GRACE;

/// Duration of duplicate address detection (RFC 4862 5.4, RFC 4861 10).
const DAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before the router asks a parent again that did not answer or that refused.
const REFUSED_RETRY_TIME: Duration = Duration::from_secs(60);

impl Nesting {
    /// Requests own addresses in the networks that parents offer, the preferred ones first.
    pub(super) fn request_own_addresses(&mut self, now: Time) {
        if now < self.next_request_at {
            return;
        }
        let missing: Vec<OfferedNetwork> =
            self.networks_of_parents().filter(|way| !self.has_own_address(way)).cloned().collect();
        for way in missing {
            let address = Ipv6Addr::from(
                u128::from(way.network) | u128::from(random_interface_identifier(&mut self.rng)),
            );
            let entry = VisitedAddress {
                ownership_verifier: self.ownership_verifier,
                last_transaction_id: self.last_transaction_id,
                child: None,
                uplink_and_parent: way.uplink_and_parent(),
                state: VisitedAddressState::Testing(now),
                has_been_valid: false,
            };
            self.addresses.insert(address, Box::new(entry));
            self.begin_visited_address(now, address, &way);
        }
    }

    /// Starts to make an address usable: by a test on the visited link, or by a registration with the parent.
    pub(super) fn begin_visited_address(&mut self, now: Time, address: Ipv6Addr, way: &OfferedNetwork) {
        let Some(entry) = self.addresses.get_mut(&address) else { return };
        entry.uplink_and_parent = way.uplink_and_parent();
        if way.parent.is_some() {
            if entry.child.is_none() {
                self.last_transaction_id = next_transaction_id(self.last_transaction_id);
                entry.last_transaction_id = self.last_transaction_id;
            }
            entry.state = VisitedAddressState::Registering { next: now, tries: 0 };
            self.handle_address_timer(now, address);
            return;
        }
        let link = self.links.get(&way.interface);
        match link.and_then(|link| link.link_address.and(link.build_dad_probe(address))) {
            Some(probe) => {
                entry.state = VisitedAddressState::Testing(now + DAD_TIMEOUT);
                self.outputs.push_back(Output::Link(probe));
            }
            // On a point-to-point link no other node can have the address, so it needs no test.
            None => self.mark_address_valid(now, address),
        }
    }

    /// Handles the timer of an address.
    pub(super) fn handle_address_timer(&mut self, now: Time, address: Ipv6Addr) {
        let Some(entry) = self.addresses.get_mut(&address) else { return };
        if entry.child.as_ref().is_some_and(|child| child.expires_at <= now) {
            return self.end_visited_address(now, address);
        }
        match &mut entry.state {
            VisitedAddressState::Testing(until) if *until <= now => self.mark_address_valid(now, address),
            VisitedAddressState::Registering { next, tries } if *next <= now => {
                if *tries >= MAX_REGISTRATION_TRIES {
                    self.next_request_at = now + REFUSED_RETRY_TIME;
                    return self.end_visited_address(now, address);
                }
                *next = now + FIRST_RETRY_PAUSE * 2_u32.pow(*tries);
                *tries += 1;
                self.request_registration(address, REQUESTED_MINUTES);
            }
            VisitedAddressState::Valid { renew: Some(renew), tries } if *renew <= now => {
                if *tries >= MAX_REGISTRATION_TRIES {
                    self.next_request_at = now + REFUSED_RETRY_TIME;
                    return self.end_visited_address(now, address);
                }
                *renew = now + FIRST_RETRY_PAUSE * 2_u32.pow(*tries);
                *tries += 1;
                if entry.child.is_none() {
                    self.last_transaction_id = next_transaction_id(self.last_transaction_id);
                    entry.last_transaction_id = self.last_transaction_id;
                }
                self.request_registration(address, REQUESTED_MINUTES);
            }
            _ => {}
        }
    }

    /// Requests the parent to register an address (RFC 8505 5). A lifetime of 0 ends its registration.
    pub(super) fn request_registration(&mut self, address: Ipv6Addr, lifetime: u16) {
        let Some(entry) = self.addresses.get(&address) else { return };
        let Some(link) = self.links.get(&entry.uplink_and_parent.0) else { return };
        let Some((source, parent)) = link.link_local.zip(entry.uplink_and_parent.1) else { return };
        let solicitation =
            nd::NeighborSolicitation { target: address, source_link_address: link.link_address };
        let mut message = solicitation.emit();
        let registration = AddressRegistration {
            status: registration_status::SUCCESS,
            transaction_id: entry.last_transaction_id,
            lifetime,
            ownership_verifier: entry.ownership_verifier,
        };
        registration.emit_into(&mut message);
        let known =
            self.offered_networks.iter().find_map(|way| way.parent.filter(|(router, _)| *router == parent));
        let peer = known.and_then(|(_, peer)| peer);
        self.outputs.extend(link.build_message(source, parent, peer, message).map(Output::Link));
    }

    /// Marks an address as valid, and announces it.
    pub(super) fn mark_address_valid(&mut self, now: Time, address: Ipv6Addr) {
        let Some(entry) = self.addresses.get_mut(&address) else { return };
        let was = entry.has_been_valid && entry.is_valid();
        let renew = entry.uplink_and_parent.1.is_some().then_some(now + RENEWAL_INTERVAL);
        entry.state = VisitedAddressState::Valid { renew, tries: 0 };
        entry.has_been_valid = true;
        if was {
            return;
        }
        self.registered_address_count += u64::from(entry.child.is_some());
        // The child may send packets as soon as it has the answer, so the route comes first.
        self.outputs.push_back(Output::Forwarding);
        if entry.uplink_and_parent.1.is_none()
            && let Some(link) = self.links.get(&entry.uplink_and_parent.0)
        {
            self.outputs.extend(link.build_unsolicited_advertisement(address, false).map(Output::Link));
        }
        self.send_child_answer(now, address, registration_status::SUCCESS);
    }

    /// Ends an address, and its registration with the parent.
    pub(super) fn end_visited_address(&mut self, now: Time, address: Ipv6Addr) {
        if self
            .addresses
            .get(&address)
            .is_some_and(|entry| entry.has_been_valid && entry.uplink_and_parent.1.is_some())
        {
            self.request_registration(address, 0);
        }
        self.remove_address(now, address);
    }

    pub(super) fn remove_address(&mut self, now: Time, address: Ipv6Addr) {
        let Some(entry) = self.addresses.remove(&address) else { return };
        if !entry.has_been_valid {
            return;
        }
        if entry.child.is_none() {
            self.leaving_addresses.retain(|(_, leaving, _)| *leaving != address);
            self.leaving_addresses.push((entry.uplink_and_parent.0, address, now + OLD_PATH_GRACE));
        }
        self.outputs.push_back(Output::Forwarding);
    }

    /// Handles an answer of the parent.
    pub(super) fn handle_parent_answer(
        &mut self,
        now: Time,
        message: &LinkMessage,
        address: Ipv6Addr,
        registration: AddressRegistration,
    ) -> Result<(), NestingDrop> {
        let from = (message.interface.as_str(), Some(message.source));
        let known = self.addresses.get(&address).filter(|entry| {
            (entry.uplink_and_parent.0.as_str(), entry.uplink_and_parent.1) == from
                && entry.ownership_verifier == registration.ownership_verifier
        });
        let Some(entry) = known else { return Err(NestingDrop::Unexpected) };
        if registration.status == registration_status::SUCCESS {
            // The answer must have the transaction ID of the last request. An answer with lifetime 0 only
            // confirms that an older registration has ended.
            if registration.lifetime == 0 || entry.last_transaction_id != registration.transaction_id {
                return Err(NestingDrop::Unexpected);
            }
            self.mark_address_valid(now, address);
            return Ok(());
        }
        if entry.last_transaction_id != registration.transaction_id
            && registration.status != registration_status::REMOVED
        {
            return Err(NestingDrop::Unexpected);
        }
        let own = entry.child.is_none();
        self.send_child_answer(now, address, registration.status);
        self.remove_address(now, address);
        if own && matches!(registration.status, registration_status::DUPLICATE | registration_status::MOVED) {
            // Select another address: another node has this address, or a registration over another path is
            // later.
            self.next_request_at = now + FIRST_RETRY_PAUSE;
        } else if own {
            self.next_request_at = now + REFUSED_RETRY_TIME;
        }
        Ok(())
    }
}

/// Returns a random interface identifier (RFC 7136) that is not reserved (RFC 5453).
fn random_interface_identifier(rng: &mut Rng) -> u64 {
    loop {
        let identifier = rng.random_u64();
        let reserved =
            identifier == 0 || identifier >> 8 == 0x00fd_ffff_ffff_ffff || identifier >> 32 == 0x0200_5eff;
        if !reserved {
            return identifier;
        }
    }
}
