//! Binding revocation (RFC 5846): the operator ends the bindings of a node.
//!
//! The home agent sends the node a Binding Revocation Indication, and repeats it after one and two seconds.
//! The bindings end when the node has acknowledged, or has not answered the last one. Until then they carry
//! traffic, and the home agent refuses Binding Updates of the node with 129. RFC 5846 7 leaves that to the
//! reason; an operator who revokes does not mean "unless it registers again".
//!
//! Left out: the G and P flags, which are for mobility anchors and gateways (Proxy Mobile IPv6), and V,
//! because carnet gives no IPv4 home addresses. The RFC has no indications from nodes.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_wire::mobility::revocation::{revocation_status, trigger};
use carnet_wire::mobility::{BindingRevocation, Builder, MobilityOption, RevocationFlags, RevocationKind};

use super::{HomeAgent, Timer};
use crate::{Event, MobilityDrop, MobilityMessage, Output};

/// First pause before an indication is repeated: `InitMINDelayBRIs` (RFC 5846 11); doubled up to
/// `MAX_BRACK_TIMEOUT`, 2 s.
const INITIAL_DELAY: Duration = Duration::from_secs(1);
/// Indications that are sent: the first and two repeats, one more than `BRIMaxRetriesNumber`, which is 1 by
/// default.
const ATTEMPTS: u32 = 3;

/// A running revocation.
#[derive(Debug)]
pub(super) struct Revocation {
    sequence: u16,
    /// Binding Identifiers to be revoked; empty for all bindings.
    bids: Vec<u16>,
    sent: u32,
    /// Time of the first indication, by both clocks.
    began: (Time, WallTime),
}

impl HomeAgent {
    /// Begins a revocation by the operator: of the bindings with these identifiers, or of all if `bids` is
    /// empty.
    ///
    /// # Errors
    /// Returns a message for the operator if the node has no such binding.
    pub fn handle_revocation(
        &mut self,
        now: Time,
        wall: WallTime,
        home_address: Ipv6Addr,
        bids: &[u16],
    ) -> Result<(), String> {
        self.assert_drained();
        if !self.cache.is_bound(home_address) {
            return Err(format!("{home_address} has no binding"));
        }
        if let Some(bid) = bids.iter().find(|bid| self.cache.get(home_address, Some(**bid)).is_none()) {
            return Err(format!("{home_address} has no binding with the identifier {bid}"));
        }
        // A running revocation becomes a part of the new one, so that no binding of it stays.
        let bids = match self.revocations.get(&home_address) {
            Some(before) if before.bids.is_empty() || bids.is_empty() => Vec::new(),
            Some(before) => {
                let all: BTreeSet<u16> = before.bids.iter().chain(bids).copied().collect();
                all.into_iter().collect()
            }
            None => bids.to_vec(),
        };
        let sequence = self.rng.u16();
        let revocation = Revocation { sequence, bids, sent: 0, began: (now, wall) };
        self.revocations.insert(home_address, Box::new(revocation));
        self.revoke(now, home_address);
        Ok(())
    }

    /// Whether the home agent is revoking bindings of this node.
    pub(super) fn is_revoking(&self, home_address: Ipv6Addr) -> bool {
        self.revocations.contains_key(&home_address)
    }

    /// Sends the next indication; after the last one the bindings end without an acknowledgement.
    pub(super) fn revoke(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(revocation) = self.revocations.get_mut(&home_address) else { return };
        revocation.sent += 1;
        // Each indication goes over another binding of the node: one of them may lead nowhere.
        let bindings: Vec<_> = self.cache.of(home_address).collect();
        let turn = (revocation.sent as usize - 1) % bindings.len().max(1);
        let binding = bindings.get(turn).cloned();
        let Some(binding) = binding.filter(|_| revocation.sent <= ATTEMPTS) else {
            return self.revoked(now, home_address, "revoked; the node has not answered");
        };
        let delay = (INITIAL_DELAY * 2_u32.pow(revocation.sent - 1)).min(INITIAL_DELAY * 2);
        let (began, wall) = revocation.began;
        let kind = RevocationKind::Indication { trigger: trigger::ADMINISTRATIVE };
        let flags = RevocationFlags::default();
        let mut builder = Builder::binding_revocation(kind, revocation.sequence, flags);
        for &bid in &revocation.bids {
            builder = builder.option(&MobilityOption::BindingIdentifier {
                bid,
                status: 0,
                home: false,
                priority: 0,
                care_of_address: None,
            });
        }
        self.timers.set(Timer::Revoke(home_address), now + delay);
        self.notify(wall + now.saturating_since(began), &binding, builder);
    }

    /// Handles a Binding Revocation message.
    pub(super) fn revocation_message(
        &mut self,
        now: Time,
        message: &MobilityMessage<'_>,
        revocation: &BindingRevocation<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        let RevocationKind::Acknowledgement { status } = revocation.kind else {
            return Err(MobilityDrop::UnknownType);
        };
        let home_address = message.pseudo_source();
        // RFC 5846 6.2.2: an acknowledgement without an outstanding revocation is "silently discard"ed,
        // before its MAC is verified.
        let asked = self.revocations.get(&home_address).ok_or(MobilityDrop::Unexpected)?;
        if asked.sequence != revocation.sequence {
            return Err(MobilityDrop::Unexpected);
        }
        if let Some(node) = self.config.node(home_address) {
            node.authentication.admit(message.protected)?;
            node.authentication.verify(octets, message.source, home_address)?;
        }
        let reason = match status {
            revocation_status::SUCCESS | revocation_status::PARTIAL_SUCCESS => "revoked".to_string(),
            // The operator's command counts all the same.
            other => format!("revoked; the node objects with status {other}"),
        };
        self.revoked(now, home_address, &reason);
        Ok(())
    }

    /// Ends the revoked bindings.
    fn revoked(&mut self, now: Time, home_address: Ipv6Addr, reason: &str) {
        self.timers.stop(Timer::Revoke(home_address));
        let Some(revocation) = self.revocations.remove(&home_address) else { return };
        let bids = revocation.bids;
        let ending: Vec<Option<u16>> = self
            .cache
            .bids(home_address)
            .filter(|bid| bids.is_empty() || bid.is_some_and(|bid| bids.contains(&bid)))
            .collect();
        for bid in &ending {
            self.end(now, home_address, *bid);
        }
        if self.left_without_bindings(now, home_address)
            && let Some(node) = self.cache.node(home_address)
        {
            // After a revocation, unlike a de-registration, packets on their way must not arrive.
            node.keep_former(|_| false);
            self.timers.stop(Timer::Grace(home_address));
        }
        self.outputs.push_back(Output::Forwarding(home_address));
        self.outputs.push_back(Output::Persist(home_address));
        for bid in ending {
            let reason = reason.to_string();
            self.outputs.push_back(Output::Event(Event::BindingRemoved { home_address, bid, reason }));
        }
    }
}
