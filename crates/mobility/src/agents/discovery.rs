//! The mobile router's side of Dynamic Home Agent Address Discovery (RFC 6275 11.4.1, RFC 3963 7).
//!
//! A request goes from a care-of address to the home agents' anycast address of the home prefix, up to four
//! times, each wait twice the last; then there is a rest. Nothing protects the answer, so it is no more than
//! a list of addresses to be tried; whoever is tried has to prove himself by his acknowledgement.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{LinkMessage, Rng, Time};
use carnet_wire::discovery::{DiscoveryReply, DiscoveryRequest, home_agents_anycast};
use carnet_wire::icmpv6;

use crate::mobile_router::{MobileRouter, MobileRouterConfig};
use crate::{HOP_LIMIT, MobilityDrop, is_unicast_routable};

/// `INITIAL_DHAAD_TIMEOUT` and `DHAAD_RETRIES` (RFC 6275 12).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(3);
const RETRIES: u32 = 4;
/// After these, until it begins anew.
const REST: Duration = Duration::from_secs(60);
/// Home agents of one answer that are looked at.
const MAX_FOUND: usize = 16;

/// Requests under way, or the rest after them.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    /// Of the requests that wait for an answer.
    identifier: Option<u16>,
    sent: u32,
    next: Option<Time>,
}

impl Discovery {
    /// Begins, unless it is under way or rests.
    pub fn start(&mut self, now: Time, rng: &mut Rng) {
        if self.next.is_none() {
            *self = Discovery { identifier: Some(rng.u16()), sent: 0, next: Some(now) };
        }
    }

    /// Ends it: there is an answer, or none is needed.
    pub fn stop(&mut self) {
        *self = Discovery::default();
    }

    /// When there is something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next
    }

    /// The request that is due, as a packet, by one uplink after the other.
    pub fn request(&mut self, now: Time, router: &MobileRouter) -> Option<Vec<u8>> {
        self.next.filter(|next| *next <= now)?;
        if self.sent >= RETRIES {
            // It begins anew; who answers now has heard none of the questions before.
            self.identifier = self.identifier.map(|identifier| identifier.wrapping_add(1));
            self.sent = 0;
        }
        let mut uplinks: Vec<_> = router
            .uplinks()
            .iter()
            .filter_map(|uplink| Some((uplink.config.priority, uplink.care_of_address()?)))
            .collect();
        uplinks.sort();
        let turn = self.sent as usize % uplinks.len().max(1);
        let Some((_, source)) = uplinks.get(turn) else {
            // As soon as there is an uplink.
            self.stop();
            return None;
        };
        let wait = INITIAL_TIMEOUT * 2_u32.pow(self.sent);
        self.sent += 1;
        self.next = Some(now + if self.sent < RETRIES { wait } else { wait + REST });
        let mobile_router = router.config().is_router();
        let request = DiscoveryRequest { identifier: self.identifier?, mobile_router };
        // Of a home network with mobile networks in it (RFC 4887 6) the home link is the part that we come
        // from.
        let MobileRouterConfig { home_address, home_prefix, prefixes, .. } = router.config();
        let aboard = prefixes.iter().any(|prefix| prefix.contains(home_address));
        let of =
            if home_prefix.contains(home_address) && !aboard { *home_address } else { home_prefix.network() };
        let anycast = home_agents_anycast(of);
        Some(icmpv6::packet(*source, anycast, HOP_LIMIT, request.emit()))
    }

    /// The home agents of an answer.
    ///
    /// # Errors
    /// When it is none to our request, or none for a mobile router.
    pub fn answer(
        &mut self,
        message: &LinkMessage,
        config: &MobileRouterConfig,
    ) -> Result<Vec<Ipv6Addr>, MobilityDrop> {
        icmpv6::verify(message.source, message.destination, &message.message)
            .map_err(|_| MobilityDrop::BadChecksum)?;
        let reply = DiscoveryReply::parse(&message.message).map_err(|_| MobilityDrop::Malformed)?;
        if self.identifier != Some(reply.identifier) {
            return Err(MobilityDrop::Unexpected);
        }
        // RFC 3963 7: "Mobile Routers only attempt registration with Home Agents that support them". A mobile
        // node takes any.
        if config.is_router() && !reply.mobile_router {
            return Err(MobilityDrop::Refused);
        }
        let mut found = Vec::new();
        for address in reply.addresses() {
            let own = address == config.home_address
                || config.prefixes.iter().any(|prefix| prefix.contains(&address));
            if is_unicast_routable(address) && !own && !found.contains(&address) && found.len() < MAX_FOUND {
                found.push(address);
            }
        }
        if found.is_empty() {
            return Err(MobilityDrop::Unexpected);
        }
        self.stop();
        Ok(found)
    }
}
