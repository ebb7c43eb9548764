//! Registrations of routers behind this one, and the answers to them (RFC 8505 5.1).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::nd::address_registration::{is_later_transaction, registration_status};
use carnet_wire::nd::{self, AddressRegistration};

use super::registration_limits::MessageSender;
use super::visited_address::{ChildRouter, MAX_GRANTED_MINUTES, VisitedAddress, VisitedAddressState};
use super::{
    MAX_REGISTRATIONS, MAX_REGISTRATIONS_OF_UNKNOWN_SENDERS, MAX_REGISTRATIONS_PER_SENDER, Nesting,
    NestingDrop, Output,
};
use crate::mobile_router::MobileRouter;

impl Nesting {
    /// Returns the number of addresses that this sender has registered.
    pub(super) fn registration_count_of(&self, sender: &MessageSender) -> usize {
        let children = self.addresses.values().filter_map(|entry| entry.child.as_ref());
        children.filter(|child| child.sender == *sender).count()
    }

    /// Returns whether one more address would exceed the limit of this sender, of all unknown senders, or of
    /// all senders.
    fn is_registration_limit_reached(&self, sender: &MessageSender) -> bool {
        let is_known = |sender: &MessageSender| {
            self.config.known_routers.iter().any(|known| sender.has_link_address(*known))
        };
        let children = || self.addresses.values().filter_map(|entry| entry.child.as_ref());
        let of_unknown = || children().filter(|child| !is_known(&child.sender)).count();
        children().count() >= MAX_REGISTRATIONS
            || self.registration_count_of(sender) >= MAX_REGISTRATIONS_PER_SENDER
            || (!is_known(sender) && of_unknown() >= MAX_REGISTRATIONS_OF_UNKNOWN_SENDERS)
    }

    /// Answers the registration of a child, a router behind this one (RFC 8505 5.1).
    pub(super) fn answer_child(
        &mut self,
        address: Ipv6Addr,
        child: &ChildRouter,
        registration: AddressRegistration,
    ) {
        let Some(link) = self.links.get(&child.lan) else { return };
        let Some(source) = link.link_local else { return };
        let advertisement = nd::NeighborAdvertisement {
            target: address,
            router: true,
            solicited: true,
            override_: false,
            target_link_address: link.link_address,
        };
        let mut message = advertisement.emit();
        registration.emit_into(&mut message);
        self.outputs.extend(link.build_message(source, child.gateway, child.peer, message).map(Output::Link));
    }

    pub(super) fn send_child_answer(&mut self, now: Time, address: Ipv6Addr, status: u8) {
        let Some(entry) = self.addresses.get(&address) else { return };
        let Some(child) = entry.child.clone() else { return };
        let left = child.expires_at.saturating_since(now).as_secs().div_ceil(60);
        let registration = AddressRegistration {
            status,
            transaction_id: entry.last_transaction_id,
            lifetime: u16::try_from(left).unwrap_or(MAX_GRANTED_MINUTES),
            ownership_verifier: entry.ownership_verifier,
        };
        self.answer_child(address, &child, registration);
    }

    /// Handles the registration of an address by a router behind this one.
    pub(super) fn handle_registration(
        &mut self,
        now: Time,
        address: Ipv6Addr,
        registration: AddressRegistration,
        child: ChildRouter,
        router: &MobileRouter,
    ) -> Result<(), NestingDrop> {
        let refuse = |nesting: &mut Nesting, status, reason| {
            nesting.answer_child(address, &child, AddressRegistration { status, ..registration });
            Err(reason)
        };
        let Some(way) = self.network_of_address(address).cloned() else {
            return refuse(self, registration_status::TOPOLOGICALLY_INCORRECT, NestingDrop::NotOffered);
        };
        // Refuse an address of this router, and the subnet-router anycast address (RFC 4291 2.6.1).
        let is_ours = router.uplinks().iter().any(|uplink| uplink.has_address(address.into()));
        if is_ours || address == way.network {
            return refuse(self, registration_status::DUPLICATE, NestingDrop::Duplicate);
        }
        let known = self.addresses.get(&address);
        if known.is_some_and(|entry| {
            entry.ownership_verifier != registration.ownership_verifier || entry.child.is_none()
        }) {
            return refuse(self, registration_status::DUPLICATE, NestingDrop::Duplicate);
        }
        let repeats = known.is_some_and(|entry| {
            entry.last_transaction_id == registration.transaction_id
                && entry.child.as_ref().is_some_and(|it| (&it.lan, it.gateway) == (&child.lan, child.gateway))
        });
        let later = known
            .is_none_or(|entry| is_later_transaction(registration.transaction_id, entry.last_transaction_id));
        if !repeats && !later {
            return refuse(self, registration_status::MOVED, NestingDrop::Stale);
        }
        if registration.lifetime == 0 {
            if known.is_some() {
                self.end_visited_address(now, address);
            }
            self.answer_child(
                address,
                &child,
                AddressRegistration { status: registration_status::SUCCESS, ..registration },
            );
            return Ok(());
        }
        if known.is_none() && self.is_registration_limit_reached(&child.sender) {
            return refuse(self, registration_status::ROUTER_FULL, NestingDrop::TooMany);
        }
        let minutes = u64::from(registration.lifetime.min(MAX_GRANTED_MINUTES));
        let child = ChildRouter { expires_at: now + Duration::from_secs(60 * minutes), ..child };
        match self.addresses.get_mut(&address) {
            Some(entry) => {
                let before = entry.child.replace(child);
                entry.last_transaction_id = registration.transaction_id;
                let moved = before.zip(entry.child.as_ref()).is_some_and(|(before, after)| {
                    (&before.lan, before.gateway) != (&after.lan, after.gateway)
                });
                if let VisitedAddressState::Valid { renew, .. } = &mut entry.state {
                    // Renew at once if the child has moved inside the tree, so that the outer routers get the
                    // new registration.
                    *renew = renew.map(|at| if moved { now } else { at });
                    if moved {
                        self.outputs.push_back(Output::Forwarding);
                    }
                    self.send_child_answer(now, address, registration_status::SUCCESS);
                }
                self.handle_address_timer(now, address);
            }
            None => {
                let entry = VisitedAddress {
                    ownership_verifier: registration.ownership_verifier,
                    last_transaction_id: registration.transaction_id,
                    child: Some(child),
                    uplink_and_parent: way.uplink_and_parent(),
                    state: VisitedAddressState::Testing(now),
                    has_been_valid: false,
                };
                self.addresses.insert(address, Box::new(entry));
                self.begin_visited_address(now, address, &way);
            }
        }
        Ok(())
    }
}
