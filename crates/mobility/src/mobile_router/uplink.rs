//! One uplink: what can be used of it, and the solicitation of routers on it.
//!
//! An uplink is *attached* when its link runs, it has a usable address and knows a default router of the same
//! family; IPv4 counts where the home agent has an IPv4 address (RFC 5555). Movement
//! detection (RFC 6275 11.5.1) rests on the kernel's own: carrier, addresses that stateless
//! autoconfiguration adds and lets expire, default routers that it learns and loses. On top of that, a
//! Router Solicitation goes out the moment a link comes up, and an address whose prefix the present default
//! router advertises outranks all others, so that a router that has changed access networks, with or without
//! loss of carrier, does not cling to the old prefix until it times out (see `heard`).
//!
//! On the home link it is when a router there advertises the home prefix, or when it has an address in it; see
//! `home_network` for home prefixes of which mobile networks are a part.
//!
//! Where the default router is a mobile router, `parent` says whether it can be one for this router, and [`crate::nesting`]
//! which addresses of the visited link before it this router may use. Such a *direct* care-of address is preferred.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Address, Interface, LinkMessage, Time, sort_by_key};
use carnet_wire::{icmpv6, nd};
use ipnet::Ipv6Net;

use super::MobileRouterConfig;
use super::capacity::Gauge;
use super::captive_portal::CaptivePortal;
use super::heard::{Heard, Standing};
use super::parent::{Parent, Parents};
use super::quality::SignalThresholds;
use super::volume::{Meter, VolumeAction, VolumePeriod};
use crate::home_agent::ND_HOP_LIMIT;
use crate::{UDP_PORT, is_unicast_routable};

/// `RTR_SOLICITATION_INTERVAL` (RFC 4861 10).
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
/// While no router answers, the interval doubles up to this (in the manner of RFC 7559).
const MAX_SOLICITATION_INTERVAL: Duration = Duration::from_secs(64);

/// Why an uplink is down, or traffic moves.
pub(super) const VOLUME_USED_UP: &str = "the volume is used up";

/// An uplink as the operator names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UplinkConfig {
    /// Interface name.
    pub interface: String,
    /// Lower wins.
    pub priority: u32,
    /// Its Binding Identifier (RFC 5648), not 0. Without one it shares the plain binding with all such uplinks.
    pub bid: Option<u16>,
    /// When it is taken and left by signal strength.
    pub signal: Option<SignalThresholds>,
    /// How long a signal counts that is not renewed; for ever when absent.
    pub signal_timeout: Option<Duration>,
    /// Octets that may go over it.
    pub volume: Option<u64>,
    /// What that is for, and what is counted by.
    pub volume_period: VolumePeriod,
    /// What becomes of it once they are used up.
    pub volume_action: VolumeAction,
    /// It is not used while its modem is in a network that is not its own operator's.
    pub never_roams: bool,
    /// Of two uplinks of one priority the cheaper is better.
    pub cost: u32,
    /// What it can carry in kbit/s: until that is measured, and at most.
    pub capacity: Option<u32>,
}

/// How an uplink is attached to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// Not usable, and why.
    Down(&'static str),
    /// On a foreign link; at least one of the families can be used.
    Foreign {
        /// The IPv6 care-of address and the default router for it.
        ipv6: Option<(Ipv6Addr, Ipv6Addr)>,
        /// The same in IPv4; `0.0.0.0` where the default route has no gateway.
        ipv4: Option<(Ipv4Addr, Ipv4Addr)>,
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
    /// What routers have said of being mobile routers since the link came up.
    parents: Parents,
    /// Addresses of a link before the parent's that this router has on this interface, the preferred one first, and
    /// whether each may be used.
    direct: Vec<(Ipv6Addr, bool)>,
    /// The best address of the link itself.
    plain_address: Option<Ipv6Addr>,
    /// What the default router said of the link's MTU, octets.
    advertised_mtu: Option<u32>,
    /// The captive portal that a router of the link has announced since it came up.
    pub(super) portal: Option<CaptivePortal>,
    /// How often has been solicited since the link came up.
    solicitations: u32,
    /// A care-of address over which the home agent did not answer while it did over the other.
    pub(super) lost: Option<IpAddr>,
    /// Packets in protocol 41 do not get through here: UDP is asked for (RFC 5555 4.4.1).
    pub(super) needs_udp: bool,
    /// Our port of UDP here: `UDP_PORT`, but where another uplink has the same IPv4 address, as behind NATs of one make,
    /// one that it has not, so that the ends of their tunnels are different ones. The home agent takes any (RFC 5555
    /// 4.1).
    pub udp_port: u16,
    /// Signal strength in dBm, as last heard; none once that is too long ago.
    pub signal: Option<i32>,
    /// When it was heard last.
    pub(super) signal_at: Time,
    /// It was under its threshold and has not been good since.
    pub poor: bool,
    /// There has been a reading.
    pub(super) judged: bool,
    /// Octets that went over it.
    pub used: u64,
    pub(super) meter: Meter,
    pub(super) gauge: Gauge,
    /// What it can carry, in kbit/s, as configured or measured.
    pub capacity: Option<u32>,
    /// It has only just come up, and another works.
    pub(super) settling: bool,
    /// Whether its modem is in a network that is not its own operator's; `None` where nobody knows.
    pub roaming: Option<bool>,
}

impl Uplink {
    pub(super) fn new(config: UplinkConfig) -> Self {
        Uplink {
            capacity: config.capacity,
            config,
            attachment: Attachment::Down("no such interface"),
            settles_at: Time::ZERO,
            demoted_until: None,
            interface: None,
            heard: Heard::default(),
            parents: Parents::default(),
            direct: Vec::new(),
            plain_address: None,
            advertised_mtu: None,
            portal: None,
            solicitations: 0,
            lost: None,
            needs_udp: false,
            udp_port: UDP_PORT,
            signal: None,
            signal_at: Time::ZERO,
            poor: false,
            judged: false,
            used: 0,
            meter: Meter::default(),
            gauge: Gauge::default(),
            settling: false,
            roaming: None,
        }
    }

    /// Octets that have gone over it in this period; none before counting has begun.
    pub fn volume_used(&self) -> Option<u64> {
        self.meter.volume.as_ref().map(|_| self.used)
    }

    /// URI of the captive portal that a router of the link announces.
    pub fn captive_portal(&self) -> Option<&str> {
        self.portal.as_ref().map(|portal| portal.uri.as_str())
    }

    /// The IPv6 care-of address, when there is one.
    pub fn care_of_address(&self) -> Option<Ipv6Addr> {
        match self.attachment {
            Attachment::Foreign { ipv6, .. } => ipv6.map(|(address, _)| address),
            _ => None,
        }
    }

    /// The IPv4 care-of address, when there is one.
    pub fn ipv4_care_of_address(&self) -> Option<Ipv4Addr> {
        match self.attachment {
            Attachment::Foreign { ipv4, .. } => ipv4.map(|(address, _)| address),
            _ => None,
        }
    }

    /// Every care-of address, the one to be registered first: IPv6 before IPv4 (RFC 5555 4.4.1), a direct one before
    /// that of the link itself, and one that has lost the race last.
    pub fn care_of_addresses(&self) -> Vec<IpAddr> {
        let ipv6 = self.care_of_address().into_iter().chain(self.alternates()).map(IpAddr::V6);
        let ipv4 = self.ipv4_care_of_address().map(IpAddr::V4);
        let mut all: Vec<IpAddr> = ipv6.chain(ipv4).collect();
        sort_by_key(&mut all, |address| self.lost == Some(*address));
        all
    }

    /// Addresses beside [`Self::care_of_address`] that do as one as well: what is registered there goes on working until
    /// the other is, and is what remains where the home agent does not answer over the other.
    fn alternates(&self) -> Vec<Ipv6Addr> {
        let (Some(in_use), Some(interface)) = (self.care_of_address(), &self.interface) else {
            return Vec::new();
        };
        let is_direct = |address: &Ipv6Addr| self.direct.iter().any(|(direct, _)| direct == address);
        let direct = self.direct.iter().filter(|(_, usable)| *usable).map(|(address, _)| *address);
        let there = |address: &Ipv6Addr| interface.addresses.iter().any(|a| a.address == *address);
        let direct: Vec<Ipv6Addr> = direct.filter(|address| *address != in_use && there(address)).collect();
        let plain = self.plain_address.filter(|plain| is_direct(&in_use) && *plain != in_use);
        direct.into_iter().chain(plain).collect()
    }

    /// Whether this is one of its care-of addresses.
    pub fn has_care_of_address(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V6(address) => {
                self.care_of_address() == Some(address) || self.alternates().contains(&address)
            }
            IpAddr::V4(address) => self.ipv4_care_of_address() == Some(address),
        }
    }

    /// The IPv6 default router, when there is one.
    pub fn router(&self) -> Option<Ipv6Addr> {
        match self.attachment {
            Attachment::Foreign { ipv6, .. } => ipv6.map(|(_, router)| router),
            Attachment::Home { router } => router,
            Attachment::Down(_) => None,
        }
    }

    /// The mobile router that is the default router here, if it is one.
    pub fn parent(&self) -> Option<&Parent> {
        self.parents.of(&self.interface.as_ref()?.routers)
    }

    /// The network of the link that the plain care-of address is on, where it has 64 bits.
    pub fn link_network(&self) -> Option<Ipv6Addr> {
        let plain = self.plain_address?;
        let known = self.interface.as_ref()?.addresses.iter().find(|a| a.address == plain)?;
        (known.prefix_length == 64).then(|| Ipv6Net::new(plain, 64).ok().map(|net| net.network())).flatten()
    }

    /// Whether the care-of address is one of a link before the parent's.
    pub fn is_direct(&self) -> bool {
        self.care_of_address().is_some_and(|in_use| self.direct.iter().any(|(it, _)| *it == in_use))
    }

    /// The direct addresses are these from now on; true when that changes anything.
    pub(super) fn set_direct(&mut self, direct: Vec<(Ipv6Addr, bool)>, config: &MobileRouterConfig) -> bool {
        if self.direct == direct {
            return false;
        }
        self.direct = direct;
        self.attach(config);
        true
    }

    /// Link MTU in octets; 1280 while nothing is known.
    pub fn mtu(&self) -> u32 {
        let link = self.interface.as_ref().map_or(1280, |i| i.mtu.max(1280));
        // RFC 4861 6.3.4. Behind a mobile router it is what fits into that one's tunnel.
        self.advertised_mtu.filter(|told| (1280..link).contains(told)).unwrap_or(link)
    }

    /// The 48-bit link-layer address, where there is one.
    pub fn link_address(&self) -> Option<[u8; 6]> {
        self.interface.as_ref().and_then(|i| i.link_address)
    }

    /// The addresses that the interface has, for telling whether an old care-of address is still there.
    pub fn has_address(&self, address: IpAddr) -> bool {
        let Some(interface) = self.interface.as_ref().filter(|i| i.running) else { return false };
        match address {
            IpAddr::V6(address) => interface.addresses.iter().any(|a| a.address == address && !a.duplicate),
            IpAddr::V4(address) => interface.ipv4_addresses.contains(&address),
        }
    }

    /// Takes over what was known of the same interface under an earlier configuration.
    pub(super) fn adopt(&mut self, old: &Uplink, config: &MobileRouterConfig) {
        self.attachment = old.attachment;
        self.settles_at = old.settles_at;
        self.interface.clone_from(&old.interface);
        self.heard.clone_from(&old.heard);
        self.parents.clone_from(&old.parents);
        self.direct.clone_from(&old.direct);
        self.advertised_mtu = old.advertised_mtu;
        self.portal.clone_from(&old.portal);
        self.solicitations = old.solicitations;
        self.lost = old.lost;
        self.needs_udp = old.needs_udp;
        self.signal = old.signal;
        self.signal_at = old.signal_at;
        self.poor = old.poor && self.config.signal.is_some();
        self.judged = old.judged;
        self.used = old.used;
        self.meter = old.meter.clone();
        self.udp_port = old.udp_port;
        self.gauge = old.gauge;
        self.capacity =
            old.capacity.filter(|_| self.config.capacity == old.config.capacity).or(self.capacity);
        self.settling = old.settling;
        self.roaming = old.roaming;
        self.attach(config);
    }

    /// Takes over the interface's state; true when the link has just come up and routers are to be asked.
    pub(super) fn handle_interface(&mut self, interface: Interface, config: &MobileRouterConfig) -> bool {
        let was_running = self.interface.as_ref().is_some_and(|i| i.running);
        let came_up = interface.running && !was_running;
        if came_up {
            self.heard.clear();
            self.parents.clear();
            self.advertised_mtu = None;
            self.portal = None;
            self.solicitations = 0;
        }
        self.interface = Some(interface);
        self.attach(config);
        came_up
    }

    pub(super) fn handle_gone(&mut self) {
        self.interface = None;
        self.heard.clear();
        self.parents.clear();
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
        self.portal = CaptivePortal::after(self.portal.take(), message.source, advertisement.options());
        for option in advertisement.options() {
            if let nd::NdOption::PrefixInformation(information) = option
                && let Ok(prefix) = Ipv6Net::new(information.prefix, information.prefix_length)
            {
                let routers = self.interface.as_ref().map_or(&[][..], |interface| &interface.routers);
                let valid = information.valid_lifetime > 0;
                self.heard.note(now, message.source, prefix.trunc(), valid, routers);
            }
            if let nd::NdOption::Mtu(mtu) = option {
                self.advertised_mtu = Some(mtu);
            }
        }
        let routers = self.interface.as_ref().map_or(&[][..], |interface| &interface.routers);
        self.parents.note(message, &advertisement, routers);
        self.attach(config);
    }

    /// A Router Solicitation and when the next is due, while no router has been heard.
    pub(super) fn solicit(&mut self) -> Option<(LinkMessage, Duration)> {
        let interface = self.interface.as_ref().filter(|i| i.running)?;
        let confirmed = !self.heard.is_empty() && !interface.routers.is_empty();
        if confirmed {
            return None;
        }
        let source = self.link_local().unwrap_or(Ipv6Addr::UNSPECIFIED);
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

    /// Its link-local address.
    pub(super) fn link_local(&self) -> Option<Ipv6Addr> {
        let addresses = &self.interface.as_ref()?.addresses;
        let usable =
            |a: &&carnet_base::Address| a.address.is_unicast_link_local() && !a.tentative && !a.duplicate;
        addresses.iter().find(usable).map(|a| a.address)
    }

    pub(super) fn attach(&mut self, config: &MobileRouterConfig) {
        let (attachment, plain) = self.attached(config);
        self.plain_address = plain;
        let before = std::mem::replace(&mut self.attachment, attachment);
        let moved = match (before, self.attachment) {
            (Attachment::Foreign { ipv6: old, .. }, Attachment::Foreign { ipv6: new, .. }) => old != new,
            _ => before != self.attachment,
        };
        if moved || self.lost.is_some_and(|lost| !self.has_care_of_address(lost)) {
            // Another network, perhaps: both families have their chance again.
            self.lost = None;
        }
        if self.ipv4_care_of_address() != ipv4_of(before) {
            self.needs_udp = false;
        }
    }

    /// How it is attached, and the IPv6 address of the link itself.
    fn attached(&self, config: &MobileRouterConfig) -> (Attachment, Option<Ipv6Addr>) {
        let down = |reason| (Attachment::Down(reason), None);
        let Some(interface) = &self.interface else { return down("no such interface") };
        if !interface.running {
            return down("no carrier");
        }
        if self.config.never_roams && self.roaming == Some(true) {
            return down("roaming");
        }
        if self.is_stopped() {
            return down(VOLUME_USED_UP);
        }
        let router = interface.routers.first().copied();
        let own = |a: &&Address| config.prefixes.iter().any(|prefix| prefix.contains(&a.address));
        let good = |a: &&Address| !a.tentative && !a.duplicate && is_unicast_routable(a.address);
        let is_direct = |a: &&Address| self.direct.iter().any(|(direct, _)| *direct == a.address);
        let usable = interface.addresses.iter().filter(|a| {
            // A care-of address out of the own mobile network would be a loop (RFC 3963 1, RFC 4888).
            good(a) && a.address != config.home_address && !own(a) && !is_direct(a)
        });
        let current = self.plain_address;
        let standing = |address| self.heard.standing(address, &interface.routers);
        let is_home = |prefix: &Ipv6Net| config.is_home_link(*prefix);
        let advertised_elsewhere = |address| {
            self.heard.is_present(&interface.routers, |prefix| prefix.contains(&address) && !is_home(prefix))
        };
        let at_home = |own: &Address| {
            config.is_home_address(own)
                && standing(own.address) != Standing::Gone
                && !advertised_elsewhere(own.address)
        };
        if self.heard.is_present(&interface.routers, is_home) || usable.clone().any(at_home) {
            return (Attachment::Home { router }, None);
        }
        // Best first: advertised by the present router, preferred, stable, the one in use.
        let best = usable.min_by_key(|a| {
            (standing(a.address), a.deprecated, a.temporary, Some(a.address) != current, a.address)
        });
        let best = best.map(|best| best.address);
        let refusal = self.parent().and_then(|parent| parent.refusal(config.home_address));
        let there = |address: &Ipv6Addr| {
            interface.addresses.iter().any(|a| good(&a) && a.address == *address && !own(&a))
        };
        let mut direct = self.direct.iter().filter(|(_, usable)| *usable).map(|(address, _)| *address);
        let preferred = direct.find(there).or(best);
        let ipv6 = preferred.zip(router).filter(|_| refusal.is_none());
        let ipv4 = config.home_agent_ipv4.and_then(|_| self.attached_ipv4(interface));
        let attachment = match (best, refusal) {
            _ if ipv6.is_some() || ipv4.is_some() => Attachment::Foreign { ipv6, ipv4 },
            (_, Some(reason)) => Attachment::Down(reason),
            (None, _) if config.home_agent_ipv4.is_none() && self.attached_ipv4(interface).is_some() => {
                Attachment::Down("IPv4 only, and mobile_router.home_agent_ipv4 is not set")
            }
            (None, _) if interface.addresses.iter().any(|a| own(&a)) => {
                Attachment::Down("loop: the address there is out of the own mobile network")
            }
            (None, _) => Attachment::Down("no usable address"),
            (Some(_), _) => Attachment::Down("no default router"),
        };
        (attachment, best)
    }

    /// The IPv4 address, the one in use first, and the first default router.
    fn attached_ipv4(&self, interface: &Interface) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let router = interface.ipv4_routers.first().copied()?;
        let usable = interface.ipv4_addresses.iter().copied().filter(|address| is_usable_ipv4(*address));
        let current = self.ipv4_care_of_address();
        let address = usable.min_by_key(|address| (Some(*address) != current, *address))?;
        Some((address, router))
    }
}

pub(super) fn ipv4_of(attachment: Attachment) -> Option<Ipv4Addr> {
    match attachment {
        Attachment::Foreign { ipv4, .. } => ipv4.map(|(address, _)| address),
        _ => None,
    }
}

/// Whether packets to and from an IPv4 address may cross a router; private addresses may, behind a NAT.
fn is_usable_ipv4(address: Ipv4Addr) -> bool {
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast())
}
