//! One uplink: what can be used of it, and the solicitation of routers on it.
//!
//! An uplink is *attached* when its link runs, it has a usable address and knows a default router. Movement
//! detection (RFC 6275 11.5.1) rests on the kernel's own: carrier, addresses that stateless
//! autoconfiguration adds and lets expire, default routers that it learns and loses. On top of that, a
//! Router Solicitation goes out the moment a link comes up, and an address whose prefix the present default
//! router advertises outranks all others, so that a router that has changed access networks, with or without
//! loss of carrier, does not cling to the old prefix until it times out (see `heard`).
//!
//! On the home link it is when a router there advertises the home prefix, or when it has an address in it.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Interface, LinkMessage, Time};
use carnet_wire::{icmpv6, nd};
use ipnet::Ipv6Net;

use super::MobileRouterConfig;
use super::heard::{Heard, Standing};
use crate::home_agent::ND_HOP_LIMIT;
use crate::is_unicast_routable;

/// `RTR_SOLICITATION_INTERVAL` (RFC 4861 10).
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
/// While no router answers, the interval doubles up to this (in the manner of RFC 7559).
const MAX_SOLICITATION_INTERVAL: Duration = Duration::from_secs(64);

/// An uplink as the operator names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UplinkConfig {
    /// Interface name.
    pub interface: String,
    /// Lower wins.
    pub priority: u32,
}

/// How an uplink is attached to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// Not usable, and why.
    Down(&'static str),
    /// On a foreign link.
    Foreign {
        /// The care-of address.
        care_of_address: Ipv6Addr,
        /// The default router.
        router: Ipv6Addr,
    },
    /// On the home link.
    Home {
        /// The default router there, if any.
        router: Option<Ipv6Addr>,
    },
}

/// An uplink's state.
#[derive(Debug)]
pub struct Uplink {
    /// What the operator says about it.
    pub config: UplinkConfig,
    /// How it is attached now.
    pub attachment: Attachment,
    /// A working uplink is not given up for this one before then: it has only just come back.
    pub settles_at: Time,
    /// Until when others are chosen before this one: the home agent did not answer over it.
    pub demoted_until: Option<Time>,
    /// The interface as last seen.
    interface: Option<Interface>,
    /// Prefixes advertised since the link came up.
    heard: Heard,
    /// How often has been solicited since the link came up.
    solicitations: u32,
}

impl Uplink {
    pub(super) fn new(config: UplinkConfig) -> Self {
        Uplink {
            config,
            attachment: Attachment::Down("no such interface"),
            settles_at: Time::ZERO,
            demoted_until: None,
            interface: None,
            heard: Heard::default(),
            solicitations: 0,
        }
    }

    /// The care-of address, when there is one.
    pub fn care_of_address(&self) -> Option<Ipv6Addr> {
        match self.attachment {
            Attachment::Foreign { care_of_address, .. } => Some(care_of_address),
            _ => None,
        }
    }

    /// The default router, when there is one.
    pub fn router(&self) -> Option<Ipv6Addr> {
        match self.attachment {
            Attachment::Foreign { router, .. } => Some(router),
            Attachment::Home { router } => router,
            Attachment::Down(_) => None,
        }
    }

    /// Link MTU in octets; 1280 while nothing is known.
    pub fn mtu(&self) -> u32 {
        self.interface.as_ref().map_or(1280, |i| i.mtu.max(1280))
    }

    /// The 48-bit link-layer address, where there is one.
    pub fn link_address(&self) -> Option<[u8; 6]> {
        self.interface.as_ref().and_then(|i| i.link_address)
    }

    /// The addresses that the interface has, for telling whether an old care-of address is still there.
    pub fn has_address(&self, address: Ipv6Addr) -> bool {
        self.interface
            .as_ref()
            .is_some_and(|i| i.running && i.addresses.iter().any(|a| a.address == address && !a.duplicate))
    }

    /// Takes over what was known of the same interface under an earlier configuration.
    pub(super) fn adopt(&mut self, old: &Uplink, config: &MobileRouterConfig) {
        self.attachment = old.attachment;
        self.settles_at = old.settles_at;
        self.interface.clone_from(&old.interface);
        self.heard.clone_from(&old.heard);
        self.solicitations = old.solicitations;
        self.attach(config);
    }

    /// Takes over the interface's state; true when the link has just come up and routers are to be asked.
    pub(super) fn handle_interface(&mut self, interface: Interface, config: &MobileRouterConfig) -> bool {
        let was_running = self.interface.as_ref().is_some_and(|i| i.running);
        let came_up = interface.running && !was_running;
        if came_up {
            self.heard.clear();
            self.solicitations = 0;
        }
        self.interface = Some(interface);
        self.attach(config);
        came_up
    }

    pub(super) fn handle_gone(&mut self) {
        self.interface = None;
        self.heard.clear();
        self.attachment = Attachment::Down("no such interface");
    }

    /// Takes in a Router Advertisement.
    pub(super) fn handle_router_advertisement(
        &mut self,
        now: Time,
        message: &LinkMessage,
        config: &MobileRouterConfig,
    ) {
        let Ok(advertisement) = nd::RouterAdvertisement::parse(&message.message) else { return };
        for option in advertisement.options() {
            if let nd::NdOption::PrefixInformation(information) = option
                && let Ok(prefix) = Ipv6Net::new(information.prefix, information.prefix_length)
            {
                self.heard.note(now, message.source, prefix.trunc(), information.valid_lifetime > 0);
            }
        }
        self.attach(config);
    }

    /// A Router Solicitation and when the next is due, while no router has been heard.
    pub(super) fn solicit(&mut self) -> Option<(LinkMessage, Duration)> {
        let interface = self.interface.as_ref().filter(|i| i.running)?;
        let confirmed = !self.heard.is_empty() && !interface.routers.is_empty();
        if confirmed {
            return None;
        }
        let source = interface
            .addresses
            .iter()
            .find(|a| a.address.is_unicast_link_local() && !a.tentative && !a.duplicate)
            .map_or(Ipv6Addr::UNSPECIFIED, |a| a.address);
        let source_link_address = if source.is_unspecified() { None } else { interface.link_address };
        let mut message = nd::RouterSolicitation { source_link_address }.emit();
        icmpv6::set_checksum(&mut message, source, nd::ALL_ROUTERS);
        let doublings = self.solicitations.saturating_sub(2).min(4);
        self.solicitations = self.solicitations.saturating_add(1);
        let interval = (SOLICITATION_INTERVAL * 2_u32.pow(doublings)).min(MAX_SOLICITATION_INTERVAL);
        let message = LinkMessage {
            interface: interface.name.clone(),
            source,
            destination: nd::ALL_ROUTERS,
            hop_limit: ND_HOP_LIMIT,
            peer: None,
            message,
        };
        Some((message, interval))
    }

    fn attach(&mut self, config: &MobileRouterConfig) {
        self.attachment = self.attached(config);
    }

    fn attached(&self, config: &MobileRouterConfig) -> Attachment {
        let Some(interface) = &self.interface else { return Attachment::Down("no such interface") };
        if !interface.running {
            return Attachment::Down("no carrier");
        }
        let router = interface.routers.first().copied();
        let usable = interface.addresses.iter().filter(|a| {
            is_unicast_routable(a.address)
                && !a.tentative
                && !a.duplicate
                && a.address != config.home_address
                // A care-of address out of the own mobile network would be a loop (RFC 3963 1, RFC 4888).
                && !config.prefixes.iter().any(|prefix| prefix.contains(&a.address))
        });
        let current = self.care_of_address();
        let standing = |address| self.heard.standing(address, &interface.routers);
        let home = |address| config.home_prefix.contains(&address) && standing(address) != Standing::Gone;
        if self.heard.is_present(config.home_prefix, &interface.routers)
            || usable.clone().any(|a| home(a.address))
        {
            return Attachment::Home { router };
        }
        // Best first: advertised by the present router, preferred, stable, the one in use.
        let best = usable.min_by_key(|a| {
            (standing(a.address), a.deprecated, a.temporary, Some(a.address) != current, a.address)
        });
        match (best, router) {
            (None, _) => Attachment::Down("no usable address"),
            (Some(_), None) => Attachment::Down("no default router"),
            (Some(address), Some(router)) => Attachment::Foreign { care_of_address: address.address, router },
        }
    }
}
