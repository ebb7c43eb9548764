//! The life of an address: test on the visited link or registration with the parent, renewal and end (RFC
//! 8505 5); and the parent's answers.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{LinkMessage, Rng, Time};
use carnet_wire::nd::registration::{next_transaction, status};
use carnet_wire::nd::{self, AddressRegistration};

use super::entry::{Entry, FIRST_RETRY, LIFETIME, MAX_TRIES, RENEWAL, State};
use super::ways::Way;
use super::{Nesting, NestingDrop, Output};
use crate::OLD_PATH_GRACE;

/// Duration of duplicate address detection (RFC 4862 5.4, RFC 4861 10).
const DAD_WAIT: Duration = Duration::from_secs(1);
/// Pause before the router asks a parent again that did not answer, or refused.
const ASK_AGAIN: Duration = Duration::from_secs(60);

impl Nesting {
    /// Asks for addresses of the networks that others offer, the preferred ones first.
    pub(super) fn want_own(&mut self, now: Time) {
        if now < self.asks_again {
            return;
        }
        let missing: Vec<Way> = self.offered().filter(|way| !self.has_own(way)).cloned().collect();
        for way in missing {
            let address = Ipv6Addr::from(u128::from(way.network) | u128::from(identifier(&mut self.rng)));
            let entry = Entry {
                owner: self.owner,
                transaction: self.transaction,
                child: None,
                over: way.over(),
                state: State::Testing(now),
                held: false,
            };
            self.entries.insert(address, Box::new(entry));
            self.begin(now, address, &way);
        }
    }

    /// Begins to make an address usable over a path: by a test on the link, or by a registration with the
    /// parent.
    pub(super) fn begin(&mut self, now: Time, address: Ipv6Addr, way: &Way) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        entry.over = way.over();
        if way.parent.is_some() {
            if entry.child.is_none() {
                self.transaction = next_transaction(self.transaction);
                entry.transaction = self.transaction;
            }
            entry.state = State::Asking { next: now, tries: 0 };
            self.serve(now, address);
            return;
        }
        let link = self.links.get(&way.interface);
        match link.and_then(|link| link.link_address.and(link.probe(address))) {
            Some(probe) => {
                entry.state = State::Testing(now + DAD_WAIT);
                self.outputs.push_back(Output::Link(probe));
            }
            // A point-to-point link: no other node can have the address.
            None => self.is_valid_now(now, address),
        }
    }

    /// Serves the timer of an address.
    pub(super) fn serve(&mut self, now: Time, address: Ipv6Addr) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        if entry.child.as_ref().is_some_and(|child| child.expires <= now) {
            return self.end(now, address);
        }
        match &mut entry.state {
            State::Testing(until) if *until <= now => self.is_valid_now(now, address),
            State::Asking { next, tries } if *next <= now => {
                if *tries >= MAX_TRIES {
                    self.asks_again = now + ASK_AGAIN;
                    return self.end(now, address);
                }
                *next = now + FIRST_RETRY * 2_u32.pow(*tries);
                *tries += 1;
                self.ask(address, LIFETIME);
            }
            State::Valid { renew: Some(renew), tries } if *renew <= now => {
                if *tries >= MAX_TRIES {
                    self.asks_again = now + ASK_AGAIN;
                    return self.end(now, address);
                }
                *renew = now + FIRST_RETRY * 2_u32.pow(*tries);
                *tries += 1;
                if entry.child.is_none() {
                    self.transaction = next_transaction(self.transaction);
                    entry.transaction = self.transaction;
                }
                self.ask(address, LIFETIME);
            }
            _ => {}
        }
    }

    /// Asks the parent to register an address, or to remove it (RFC 8505 5).
    pub(super) fn ask(&mut self, address: Ipv6Addr, lifetime: u16) {
        let Some(entry) = self.entries.get(&address) else { return };
        let Some(link) = self.links.get(&entry.over.0) else { return };
        let Some((source, parent)) = link.link_local.zip(entry.over.1) else { return };
        let solicitation =
            nd::NeighborSolicitation { target: address, source_link_address: link.link_address };
        let mut message = solicitation.emit();
        let registration = AddressRegistration {
            status: status::SUCCESS,
            transaction: entry.transaction,
            lifetime,
            owner: entry.owner,
        };
        registration.emit_into(&mut message);
        let known = self.ways.iter().find_map(|way| way.parent.filter(|(router, _)| *router == parent));
        let peer = known.and_then(|(_, peer)| peer);
        self.outputs.extend(link.message(source, parent, peer, message).map(Output::Link));
    }

    /// Makes an address usable from now on.
    pub(super) fn is_valid_now(&mut self, now: Time, address: Ipv6Addr) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        let was = entry.held && entry.is_valid();
        let renew = entry.over.1.is_some().then_some(now + RENEWAL);
        entry.state = State::Valid { renew, tries: 0 };
        entry.held = true;
        if was {
            return;
        }
        self.registered += u64::from(entry.child.is_some());
        // The route must exist before the child gets the answer.
        self.outputs.push_back(Output::Forwarding);
        if entry.over.1.is_none()
            && let Some(link) = self.links.get(&entry.over.0)
        {
            self.outputs.extend(link.announcement(address, false).map(Output::Link));
        }
        self.tell_child(now, address, status::SUCCESS);
    }

    /// Ends an address; the parent removes its registration.
    pub(super) fn end(&mut self, now: Time, address: Ipv6Addr) {
        if self.entries.get(&address).is_some_and(|entry| entry.held && entry.over.1.is_some()) {
            self.ask(address, 0);
        }
        self.forget(now, address);
    }

    pub(super) fn forget(&mut self, now: Time, address: Ipv6Addr) {
        let Some(entry) = self.entries.remove(&address) else { return };
        if !entry.held {
            return;
        }
        if entry.child.is_none() {
            self.leaving.retain(|(_, leaving, _)| *leaving != address);
            self.leaving.push((entry.over.0, address, now + OLD_PATH_GRACE));
        }
        self.outputs.push_back(Output::Forwarding);
    }

    /// Handles an answer of the parent.
    pub(super) fn answered(
        &mut self,
        now: Time,
        message: &LinkMessage,
        address: Ipv6Addr,
        registration: AddressRegistration,
    ) -> Result<(), NestingDrop> {
        let from = (message.interface.as_str(), Some(message.source));
        let known = self.entries.get(&address).filter(|entry| {
            (entry.over.0.as_str(), entry.over.1) == from && entry.owner == registration.owner
        });
        let Some(entry) = known else { return Err(NestingDrop::Unexpected) };
        if registration.status == status::SUCCESS {
            // An answer must have the transaction of the question; an answer with 0 minutes answers the end
            // of an older registration.
            if registration.lifetime == 0 || entry.transaction != registration.transaction {
                return Err(NestingDrop::Unexpected);
            }
            self.is_valid_now(now, address);
            return Ok(());
        }
        if entry.transaction != registration.transaction && registration.status != status::REMOVED {
            return Err(NestingDrop::Unexpected);
        }
        let own = entry.child.is_none();
        self.tell_child(now, address, registration.status);
        self.forget(now, address);
        if own && matches!(registration.status, status::DUPLICATE | status::MOVED) {
            // The router asks for another address: another node has this one, or a registration elsewhere is
            // later.
            self.asks_again = now + FIRST_RETRY;
        } else if own {
            self.asks_again = now + ASK_AGAIN;
        }
        Ok(())
    }
}

/// Returns a random interface identifier (RFC 7136) that is not reserved (RFC 5453).
fn identifier(rng: &mut Rng) -> u64 {
    loop {
        let identifier = rng.u64();
        let reserved =
            identifier == 0 || identifier >> 8 == 0x00fd_ffff_ffff_ffff || identifier >> 32 == 0x0200_5eff;
        if !reserved {
            return identifier;
        }
    }
}
