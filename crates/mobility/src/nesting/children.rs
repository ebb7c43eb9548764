//! Registrations of routers behind this one, and the answers to them (RFC 8505 5.1).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::nd::registration::{is_later_transaction, status};
use carnet_wire::nd::{self, AddressRegistration};

use super::allowance::Sender;
use super::entry::{Child, Entry, MAX_LIFETIME, State};
use super::{MAX_OF_ONE, MAX_OF_UNKNOWN, MAX_REGISTRATIONS, Nesting, NestingDrop, Output};
use crate::mobile_router::MobileRouter;

impl Nesting {
    /// Returns the number of addresses that a sender has registered.
    pub(super) fn places_of(&self, sender: &Sender) -> usize {
        let children = self.entries.values().filter_map(|entry| entry.child.as_ref());
        children.filter(|child| child.sender == *sender).count()
    }

    /// Whether another address exceeds the limit of this sender, of all unknown senders, or of all senders.
    fn is_full(&self, sender: &Sender) -> bool {
        let is_known = |sender: &Sender| self.config.known.iter().any(|known| sender.has(*known));
        let children = || self.entries.values().filter_map(|entry| entry.child.as_ref());
        let of_unknown = || children().filter(|child| !is_known(&child.sender)).count();
        children().count() >= MAX_REGISTRATIONS
            || self.places_of(sender) >= MAX_OF_ONE
            || (!is_known(sender) && of_unknown() >= MAX_OF_UNKNOWN)
    }

    /// Answers a registration of a child (RFC 8505 5.1).
    pub(super) fn answer(&mut self, address: Ipv6Addr, child: &Child, registration: AddressRegistration) {
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
        self.outputs.extend(link.message(source, child.gateway, child.peer, message).map(Output::Link));
    }

    pub(super) fn tell_child(&mut self, now: Time, address: Ipv6Addr, status: u8) {
        let Some(entry) = self.entries.get(&address) else { return };
        let Some(child) = entry.child.clone() else { return };
        let left = child.expires.saturating_since(now).as_secs().div_ceil(60);
        let registration = AddressRegistration {
            status,
            transaction: entry.transaction,
            lifetime: u16::try_from(left).unwrap_or(MAX_LIFETIME),
            owner: entry.owner,
        };
        self.answer(address, &child, registration);
    }

    /// Handles the registration of an address by a router behind this one.
    pub(super) fn asked(
        &mut self,
        now: Time,
        address: Ipv6Addr,
        registration: AddressRegistration,
        child: Child,
        router: &MobileRouter,
    ) -> Result<(), NestingDrop> {
        let refuse = |nesting: &mut Nesting, status, reason| {
            nesting.answer(address, &child, AddressRegistration { status, ..registration });
            Err(reason)
        };
        let Some(way) = self.way_of(address).cloned() else {
            return refuse(self, status::TOPOLOGICALLY_INCORRECT, NestingDrop::NotOffered);
        };
        // The address of the link's router (RFC 4291 2.6.1), or of this router.
        let is_ours = router.uplinks().iter().any(|uplink| uplink.has_address(address.into()));
        if is_ours || address == way.network {
            return refuse(self, status::DUPLICATE, NestingDrop::Duplicate);
        }
        let known = self.entries.get(&address);
        if known.is_some_and(|entry| entry.owner != registration.owner || entry.child.is_none()) {
            return refuse(self, status::DUPLICATE, NestingDrop::Duplicate);
        }
        let repeats = known.is_some_and(|entry| {
            entry.transaction == registration.transaction
                && entry.child.as_ref().is_some_and(|it| (&it.lan, it.gateway) == (&child.lan, child.gateway))
        });
        let later =
            known.is_none_or(|entry| is_later_transaction(registration.transaction, entry.transaction));
        if !repeats && !later {
            return refuse(self, status::MOVED, NestingDrop::Stale);
        }
        if registration.lifetime == 0 {
            if known.is_some() {
                self.end(now, address);
            }
            self.answer(address, &child, AddressRegistration { status: status::SUCCESS, ..registration });
            return Ok(());
        }
        if known.is_none() && self.is_full(&child.sender) {
            return refuse(self, status::FULL, NestingDrop::TooMany);
        }
        let minutes = u64::from(registration.lifetime.min(MAX_LIFETIME));
        let child = Child { expires: now + Duration::from_secs(60 * minutes), ..child };
        match self.entries.get_mut(&address) {
            Some(entry) => {
                let before = entry.child.replace(child);
                entry.transaction = registration.transaction;
                let moved = before.zip(entry.child.as_ref()).is_some_and(|(before, after)| {
                    (&before.lan, before.gateway) != (&after.lan, after.gateway)
                });
                if let State::Valid { renew, .. } = &mut entry.state {
                    // A renewal informs the outer routers that their former registration is older.
                    *renew = renew.map(|at| if moved { now } else { at });
                    if moved {
                        self.outputs.push_back(Output::Forwarding);
                    }
                    self.tell_child(now, address, status::SUCCESS);
                }
                self.serve(now, address);
            }
            None => {
                let entry = Entry {
                    owner: registration.owner,
                    transaction: registration.transaction,
                    child: Some(child),
                    over: way.over(),
                    state: State::Testing(now),
                    held: false,
                };
                self.entries.insert(address, Box::new(entry));
                self.begin(now, address, &way);
            }
        }
        Ok(())
    }
}
