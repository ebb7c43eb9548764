//! Binding revocation (RFC 5846): the operator ends the bindings of a node.
//!
//! The home agent sends the node a Binding Revocation Indication, and repeats it after one and after two more
//! seconds. The bindings end when the node acknowledges, or when it has not answered the last indication.
//! Until then they carry traffic, and the home agent refuses Binding Updates of the node with status 129. By
//! RFC 5846 7 the reason of the revocation decides whether the node may register meanwhile. The home agent
//! always refuses, because a new registration would undo the operator's command.
//!
//! Left out: the G and P flags, which are for mobility anchors and gateways (Proxy Mobile IPv6). The V flag
//! is left out because the home agent assigns no IPv4 home addresses. The RFC defines no indications from
//! mobile nodes.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_wire::mobility::revocation::{revocation_status, revocation_trigger};
use carnet_wire::mobility::{
    BindingRevocation, MobilityHeaderBuilder, MobilityOption, RevocationFlags, RevocationKind,
};

use super::{HomeAgent, HomeAgentTimer};
use crate::{Event, MobilityDrop, MobilityMessage, Output};

/// Pause before the home agent repeats an indication for the first time: `InitMINDelayBRIs` (RFC 5846 11). It
/// doubles up to `MAX_BRACK_TIMEOUT`, 2 s.
const REVOCATION_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of indications: the first and two repetitions. The default of RFC 5846 11 is one repetition
/// (`BRIMaxRetriesNumber`).
const MAX_REVOCATION_INDICATIONS: u32 = 3;

/// A running revocation.
#[derive(Debug)]
pub(super) struct RunningRevocation {
    sequence: u16,
    /// Binding Identifiers to be revoked; empty for all bindings.
    revoked_bids: Vec<u16>,
    sent_indications: u32,
    /// Time of the first indication, by the monotonic clock and by the time of day.
    began_at: (Time, WallTime),
}

impl HomeAgent {
    /// Begins a revocation that the operator requested: of the bindings with these identifiers, or of all
    /// bindings if `bids` is empty.
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
        // If a revocation of this node is running, the new one also covers the bindings of the running one.
        let bids = match self.running_revocations.get(&home_address) {
            Some(before) if before.revoked_bids.is_empty() || bids.is_empty() => Vec::new(),
            Some(before) => {
                let all: BTreeSet<u16> = before.revoked_bids.iter().chain(bids).copied().collect();
                all.into_iter().collect()
            }
            None => bids.to_vec(),
        };
        let sequence = self.rng.random_u16();
        let revocation =
            RunningRevocation { sequence, revoked_bids: bids, sent_indications: 0, began_at: (now, wall) };
        self.running_revocations.insert(home_address, Box::new(revocation));
        self.send_next_indication(now, home_address);
        Ok(())
    }

    /// Returns whether the home agent is revoking bindings of this node.
    pub(super) fn is_revoking(&self, home_address: Ipv6Addr) -> bool {
        self.running_revocations.contains_key(&home_address)
    }

    /// Sends the next indication. After the last one, ends the bindings without an acknowledgement.
    pub(super) fn send_next_indication(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(revocation) = self.running_revocations.get_mut(&home_address) else { return };
        revocation.sent_indications += 1;
        // Each indication uses another binding of the node, because the path of one may have failed.
        let bindings: Vec<_> = self.cache.bindings_of(home_address).collect();
        let turn = (revocation.sent_indications as usize - 1) % bindings.len().max(1);
        let binding = bindings.get(turn).cloned();
        let Some(binding) = binding.filter(|_| revocation.sent_indications <= MAX_REVOCATION_INDICATIONS)
        else {
            return self.end_revoked_bindings(
                now,
                home_address,
                "the operator revoked it; the node did not acknowledge",
            );
        };
        let delay = (REVOCATION_ANSWER_TIMEOUT * 2_u32.pow(revocation.sent_indications - 1))
            .min(REVOCATION_ANSWER_TIMEOUT * 2);
        let (began, wall) = revocation.began_at;
        let kind = RevocationKind::Indication { trigger: revocation_trigger::ADMINISTRATIVE };
        let flags = RevocationFlags::default();
        let mut builder = MobilityHeaderBuilder::binding_revocation(kind, revocation.sequence, flags);
        for &bid in &revocation.revoked_bids {
            builder = builder.option(&MobilityOption::BindingIdentifier {
                bid,
                status: 0,
                home: false,
                priority: 0,
                care_of_address: None,
            });
        }
        self.timers.set_deadline(HomeAgentTimer::Revoke(home_address), now + delay);
        self.send_notice(wall + now.saturating_since(began), &binding, builder);
    }

    /// Handles a Binding Revocation message.
    pub(super) fn handle_revocation_message(
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
        // RFC 5846 6.2.2: an acknowledgement without an outstanding revocation is "silently discard"ed.
        // The home agent does so before it verifies the MAC.
        let asked = self.running_revocations.get(&home_address).ok_or(MobilityDrop::Unexpected)?;
        if asked.sequence != revocation.sequence {
            return Err(MobilityDrop::Unexpected);
        }
        if let Some(node) = self.config.node(home_address) {
            node.authentication.check_ipsec_protection(message.is_ipsec_protected, message.session)?;
            node.authentication.verify(octets, message.source, home_address)?;
        }
        let reason = match status {
            revocation_status::SUCCESS | revocation_status::PARTIAL_SUCCESS => "revoked".to_string(),
            // The home agent ends the bindings even if the node objects.
            other => format!("the operator revoked it; the node answered with status {other}"),
        };
        self.end_revoked_bindings(now, home_address, &reason);
        Ok(())
    }

    /// Ends the revoked bindings.
    fn end_revoked_bindings(&mut self, now: Time, home_address: Ipv6Addr, reason: &str) {
        self.timers.stop_timer(HomeAgentTimer::Revoke(home_address));
        let Some(revocation) = self.running_revocations.remove(&home_address) else { return };
        let bids = revocation.revoked_bids;
        let ending: Vec<Option<u16>> = self
            .cache
            .bids(home_address)
            .filter(|bid| bids.is_empty() || bid.is_some_and(|bid| bids.contains(&bid)))
            .collect();
        for bid in &ending {
            self.end_binding(now, home_address, *bid);
        }
        if self.remove_state_if_unbound(now, home_address)
            && let Some(node) = self.cache.node_mut(home_address)
        {
            // After a revocation, unlike after a de-registration, the home agent drops packets that are
            // still on their way.
            node.retain_former_paths(|_| false);
            self.timers.stop_timer(HomeAgentTimer::Grace(home_address));
        }
        self.outputs.push_back(Output::Forwarding(home_address));
        self.outputs.push_back(Output::Persist(home_address));
        for bid in ending {
            let reason = reason.to_string();
            self.outputs.push_back(Output::Event(Event::BindingRemoved { home_address, bid, reason }));
        }
    }
}
