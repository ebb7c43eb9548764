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
const BURST: u32 = 512;
const INTERVAL: Duration = Duration::from_millis(2);

/// The link on which the home agent answers.
#[derive(Debug)]
pub(super) struct ProxiedLink {
    link: HomeLink,
    answers: RateLimiter,
}

impl ProxiedLink {
    pub(super) fn new(interface: String, config: &HomeAgentConfig) -> ProxiedLink {
        ProxiedLink {
            link: HomeLink::new(interface, Some(config.address)),
            answers: RateLimiter::new(BURST, INTERVAL),
        }
    }

    /// Returns whether the link is on this interface.
    pub(super) fn is_on(&self, interface: &str) -> bool {
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
        has_come_up.then(|| self.link.announcement(config.address, true)).flatten()
    }

    pub(super) fn handle_gone(&mut self) {
        self.link.handle_gone();
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
        let NeighborMessage::Solicitation { target, source, peer } = HomeLink::read(message)? else {
            return Ok(None);
        };
        let Some(router) = proxy_nd.proxied(config, cache, target) else { return Ok(None) };
        if message.destination.is_multicast() && !self.answers.allow(now) {
            return Err(MobilityDrop::RateLimited);
        }
        // RFC 4861 7.2.8: an answer of a proxy has no Override flag, so a node that really has the address
        // wins. A random delay is necessary only with several proxies on the link.
        let override_ = target == config.address;
        Ok(self.link.answer(target, router, override_, source, peer))
    }
}
