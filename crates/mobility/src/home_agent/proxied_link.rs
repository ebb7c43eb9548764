//! Proxy Neighbor Discovery on a link that is not the home link (RFC 4861 7.2.8).
//!
//! Many rented servers have one prefix that is only on their link: the provider's router resolves each
//! address by Neighbor Discovery. The home agent answers there for its own address, for bound home addresses,
//! and for every address in the mobile networks of bindings. The kernel then routes the packets to the tunnel
//! device.
//!
//! The home agent stores nothing about targets. It limits its answers to multicast solicitations. A scan of a
//! large mobile network would otherwise fill the neighbor cache of the provider's router. Unicast
//! solicitations have no limit: by these the provider's router checks neighbors that its cache already has.
//!
//! Left out: duplicate address detection for addresses of mobile networks. Left out: advertisements to all
//! nodes after a take-over, because the home agent does not know which hosts exist.

use std::time::Duration;

use carnet_base::{Interface, LinkMessage, RateLimiter, Time};

use super::{BindingCache, HomeAgentConfig, HomeLink, NeighborMessage, ProxyNd};
use crate::MobilityDrop;

/// Limit of answers to multicast solicitations: 512 at once, then one each 2 ms.
const ANSWER_BURST: u32 = 512;
const ANSWER_INTERVAL: Duration = Duration::from_millis(2);

/// The link on which the home agent answers.
#[derive(Debug)]
pub(super) struct ProxiedLink {
    link: HomeLink,
    answer_limit: RateLimiter,
    /// Number of solicitations that the home agent has answered.
    answered_solicitations: u64,
    /// Number of solicitations without an answer because of the limit.
    refused_solicitations: u64,
}

/// Status of proxy Neighbor Discovery on a link that is not the home link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxiedLinkStatus {
    /// Name of the interface.
    pub interface: String,
    /// Whether the link has carrier, and an address that the home agent can send from.
    pub is_up: bool,
    /// Number of solicitations that the home agent has answered since the start.
    pub answered_solicitations: u64,
    /// Number of solicitations since the start that got no answer because of the limit.
    pub refused_solicitations: u64,
    /// Number of single addresses for which the home agent answers: its own and bound home addresses.
    pub address_count: u64,
    /// Number of mobile networks for whose addresses the home agent answers.
    pub prefixes: u64,
}

impl ProxiedLink {
    pub(super) fn new(interface: String, config: &HomeAgentConfig) -> ProxiedLink {
        ProxiedLink {
            link: HomeLink::new(interface, Some(config.address)),
            answer_limit: RateLimiter::new(ANSWER_BURST, ANSWER_INTERVAL),
            answered_solicitations: 0,
            refused_solicitations: 0,
        }
    }

    /// Returns the status of the link.
    pub(super) fn status(&self, cache: &BindingCache, proxy_nd: &ProxyNd) -> ProxiedLinkStatus {
        let (addresses, prefixes) = proxy_nd.count_proxied_targets(cache);
        ProxiedLinkStatus {
            interface: self.link.interface.clone(),
            is_up: self.link.is_up(),
            answered_solicitations: self.answered_solicitations,
            refused_solicitations: self.refused_solicitations,
            address_count: addresses,
            prefixes,
        }
    }

    /// Returns whether the link is on this interface.
    pub(super) fn is_on_interface(&self, interface: &str) -> bool {
        self.link.interface == interface
    }

    /// Takes over the state of the interface. Returns an advertisement of the home agent's own address if the
    /// link has just come up.
    pub(super) fn handle_interface(
        &mut self,
        config: &HomeAgentConfig,
        interface: &Interface,
    ) -> Option<LinkMessage> {
        let has_come_up = self.link.handle_interface(interface);
        has_come_up.then(|| self.link.build_unsolicited_advertisement(config.address, true)).flatten()
    }

    pub(super) fn handle_interface_gone(&mut self) {
        self.link.handle_interface_gone();
    }

    /// Handles a message from the link. Returns the answer to a solicitation for an address that is reached
    /// through this home agent.
    ///
    /// # Errors
    /// Returns why the message gets no answer. A message that does not concern the home agent is no error.
    pub(super) fn handle_message(
        &mut self,
        now: Time,
        (config, cache, proxy_nd): (&HomeAgentConfig, &BindingCache, &ProxyNd),
        message: &LinkMessage,
    ) -> Result<Option<LinkMessage>, MobilityDrop> {
        let NeighborMessage::Solicitation { target, source, peer } =
            HomeLink::read_neighbor_message(message)?
        else {
            return Ok(None);
        };
        let Some(router) = proxy_nd.proxied_router_flag(config, cache, target) else { return Ok(None) };
        if message.destination.is_multicast() && !self.answer_limit.try_take_token(now) {
            self.refused_solicitations = self.refused_solicitations.saturating_add(1);
            return Err(MobilityDrop::RateLimited);
        }
        // RFC 4861 7.2.8: an answer of a proxy has no Override flag, so a node that really has the address
        // wins. A random delay is necessary only with several proxies on the link.
        let override_ = target == config.address;
        let answer = self.link.build_solicited_advertisement(target, router, override_, source, peer);
        self.answered_solicitations = self.answered_solicitations.saturating_add(u64::from(answer.is_some()));
        Ok(answer)
    }
}
