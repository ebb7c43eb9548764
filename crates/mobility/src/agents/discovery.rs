//! The mobile router's part of Dynamic Home Agent Address Discovery (RFC 6275 11.4.1, RFC 3963 7).
//!
//! The mobile router sends a request from a care-of address to the home agents' anycast address of the home
//! prefix. It sends up to four requests. After each it waits for an answer twice as long as before, and after
//! the last it pauses. Nothing protects the answer. So the router uses it only as a list of addresses to try;
//! a home agent authenticates itself by its acknowledgement.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{LinkMessage, Rng, Time};
use carnet_wire::discovery::{HomeAgentDiscoveryReply, HomeAgentDiscoveryRequest, home_agents_anycast};
use carnet_wire::icmpv6;

use crate::mobile_router::{MobileRouter, MobileRouterConfig};
use crate::{HOP_LIMIT, MobilityDrop, is_unicast_routable};

/// Time to wait for the first answer, and number of requests: `INITIAL_DHAAD_TIMEOUT` and `DHAAD_RETRIES`
/// (RFC 6275 12).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_RETRANSMISSIONS: u32 = 4;
/// Pause after the last request, until the discovery starts again.
const PAUSE_AFTER_DISCOVERY: Duration = Duration::from_secs(60);
/// Maximum number of home agents that the router reads from one answer.
const MAX_DISCOVERED_AGENTS: usize = 16;

/// State of the discovery: the outstanding requests, or the pause after them.
#[derive(Debug, Default)]
pub(super) struct HomeAgentDiscovery {
    /// Identifier of the requests that wait for an answer; `None` while the discovery does not run.
    request_identifier: Option<u16>,
    sent_requests: u32,
    next_request_at: Option<Time>,
}

impl HomeAgentDiscovery {
    /// Starts the discovery, unless it is running or pausing.
    pub fn start_discovery(&mut self, now: Time, rng: &mut Rng) {
        if self.next_request_at.is_none() {
            *self = HomeAgentDiscovery {
                request_identifier: Some(rng.random_u16()),
                sent_requests: 0,
                next_request_at: Some(now),
            };
        }
    }

    /// Stops the discovery, because the router has an answer or needs none.
    pub fn stop_discovery(&mut self) {
        *self = HomeAgentDiscovery::default();
    }

    /// Returns when the next discovery request is due, or the pause ends; `None` while the discovery does not
    /// run.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_request_at
    }

    /// Returns the packet of the request that is due; `None` if none is due or no uplink has an address.
    /// Successive requests use different uplinks.
    pub fn next_request(&mut self, now: Time, router: &MobileRouter) -> Option<Vec<u8>> {
        self.next_request_at.filter(|next| *next <= now)?;
        if self.sent_requests >= MAX_RETRANSMISSIONS {
            // A new identifier for each run of the discovery: the router ignores late answers to requests
            // of an earlier run.
            self.request_identifier = self.request_identifier.map(|identifier| identifier.wrapping_add(1));
            self.sent_requests = 0;
        }
        let mut uplinks: Vec<_> = router
            .uplinks()
            .iter()
            .filter_map(|uplink| Some((uplink.config.priority, uplink.care_of_address()?)))
            .collect();
        uplinks.sort();
        let turn = self.sent_requests as usize % uplinks.len().max(1);
        let Some((_, source)) = uplinks.get(turn) else {
            // Without an uplink the discovery stops; the router starts it again when it has an uplink.
            self.stop_discovery();
            return None;
        };
        let wait = INITIAL_TIMEOUT * 2_u32.pow(self.sent_requests);
        self.sent_requests += 1;
        self.next_request_at = Some(
            now + if self.sent_requests < MAX_RETRANSMISSIONS { wait } else { wait + PAUSE_AFTER_DISCOVERY },
        );
        let mobile_router = router.config().is_router();
        let request = HomeAgentDiscoveryRequest { identifier: self.request_identifier?, mobile_router };
        // The home prefix may also contain the mobile networks (RFC 4887 6). Then only the network of the
        // home address is the home link, so the router asks the anycast address of that network.
        let MobileRouterConfig { home_address, home_prefix, prefixes, .. } = router.config();
        let aboard = prefixes.iter().any(|prefix| prefix.contains(home_address));
        let of =
            if home_prefix.contains(home_address) && !aboard { *home_address } else { home_prefix.network() };
        let anycast = home_agents_anycast(of);
        Some(icmpv6::emit_packet(*source, anycast, HOP_LIMIT, request.emit()))
    }

    /// Returns the home agents of an answer.
    ///
    /// # Errors
    /// Returns a reason if the answer does not belong to the router's request, or if it lists no home agents
    /// for mobile routers.
    pub fn handle_discovery_reply(
        &mut self,
        message: &LinkMessage,
        config: &MobileRouterConfig,
    ) -> Result<Vec<Ipv6Addr>, MobilityDrop> {
        icmpv6::verify_checksum(message.source, message.destination, &message.message)
            .map_err(|_| MobilityDrop::BadChecksum)?;
        let reply = HomeAgentDiscoveryReply::parse(&message.message).map_err(|_| MobilityDrop::Malformed)?;
        if self.request_identifier != Some(reply.identifier) {
            return Err(MobilityDrop::Unexpected);
        }
        // RFC 3963 7: "Mobile Routers only attempt registration with Home Agents that support them". A mobile
        // node accepts any home agent.
        if config.is_router() && !reply.mobile_router {
            return Err(MobilityDrop::Refused);
        }
        let mut found = Vec::new();
        for address in reply.addresses() {
            let own = address == config.home_address
                || config.prefixes.iter().any(|prefix| prefix.contains(&address));
            if is_unicast_routable(address)
                && !own
                && !found.contains(&address)
                && found.len() < MAX_DISCOVERED_AGENTS
            {
                found.push(address);
            }
        }
        if found.is_empty() {
            return Err(MobilityDrop::Unexpected);
        }
        self.stop_discovery();
        Ok(found)
    }
}
