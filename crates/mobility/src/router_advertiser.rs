//! Router Advertisements for the mobile network, and of a home agent on its home link (RFC 4861 6.2).
//!
//! The mobile router advertises its prefixes with the A and L flags, and itself as default router. It
//! advertises an MTU with which packets fit into the tunnel, so that hosts need no Packet Too Big. It answers
//! solicitations. If the home agent has refused the prefixes, it withdraws them from the hosts (RFC 3963
//! 5.4.2).
//!
//! From these advertisements a mobile router behind this one learns through which other routers its packets
//! go ([`NestingInformation`]). Until it knows of a change, its packets are lost or loop. So
//! this router advertises a change at once, and repeats it. RFC 6275 7.5 permits such short intervals to
//! routers that serve mobile nodes.
//!
//! A home agent advertises itself to other home agents ([`HomeAgentAdvertisement`]). Its advertisements have
//! the H flag and its own address in the home prefix (R flag). They also have the Home Agent Information
//! option (RFC 6275 7, 10.5.1, RFC 3963 7.3). The home agent is no default router and gives hosts no
//! addresses. The operator decides which router serves the home link.
//!
//! The config may add values for hosts ([`HostConfiguration`]): DNS servers and search list (RFC 8106), the
//! prefix of a NAT64 (RFC 8781), a captive portal (RFC 8910). If a new config omits a value, the next
//! advertisements withdraw it with lifetime 0. If the options do not fit into one packet, the router sends
//! several (RFC 4861 6.2.3).
//!
//! Left out: the variables of RFC 4861 6.2.1 that this use does not need.

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Interface, LinkMessage, RateLimiter, Rng, Time};
use carnet_wire::nd::host_configuration::{MAX_PREF64_LIFETIME, encode_domain_name};
use carnet_wire::nd::nd_option::option_type;
use carnet_wire::nd::{CaptivePortal, DnsSearchList, NestingInformation, Pref64, RecursiveDnsServers};
use carnet_wire::{icmpv6, ipv6, nd};
use ipnet::Ipv6Net;

use crate::MobilityDrop;

/// Longest interval between advertisements, `MaxRtrAdvInterval`. [`MIN_ADVERTISEMENT_INTERVAL`] is
/// `MinRtrAdvInterval`. Both are far below RFC 4861's default of 600 s, because a vehicle's hosts come and
/// go.
const MAX_ADVERTISEMENT_INTERVAL: Duration = Duration::from_secs(60);
const MIN_ADVERTISEMENT_INTERVAL: Duration = Duration::from_secs(20);
/// Number of first advertisements that leave at a shorter interval: `MAX_INITIAL_RTR_ADVERTISEMENTS` and
/// `MAX_INITIAL_RTR_ADVERT_INTERVAL` (RFC 4861 10).
const INITIAL_ADVERTISEMENTS: u32 = 3;
const INITIAL_INTERVAL: Duration = Duration::from_secs(16);
/// Number of advertisements that withdraw prefixes: `MAX_FINAL_RTR_ADVERTISEMENTS` (RFC 4861 10).
const MAX_FINAL_ADVERTISEMENTS: u32 = 3;
/// Minimum time between advertisements, and maximum delay of an answer: `MIN_DELAY_BETWEEN_RAS` and
/// `MAX_RA_DELAY_TIME` (RFC 4861 10).
const MIN_DELAY_BETWEEN_RAS: Duration = Duration::from_secs(3);
const MAX_RA_DELAY_TIME: Duration = Duration::from_millis(500);
/// Minimum time between advertisements of changes for mobile routers: the minimum of `MinDelayBetweenRAs`
/// (RFC 6275 12).
const MIN_DELAY_AFTER_CHANGE: Duration = Duration::from_millis(30);
/// Number of advertisements of a change for mobile routers, [`ADVERTISEMENT_INTERVAL_AFTER_CHANGE`] apart.
const ADVERTISEMENTS_AFTER_CHANGE: u32 = 3;
const ADVERTISEMENT_INTERVAL_AFTER_CHANGE: Duration = Duration::from_secs(1);
/// Router lifetime in seconds (`AdvDefaultLifetime`): 30 times the longest interval, so that lost
/// advertisements do not matter.
const ROUTER_LIFETIME: u16 = 1800;
/// Lifetimes of prefixes in seconds: `AdvValidLifetime` and `AdvPreferredLifetime` (RFC 4861 6.2.1).
pub(crate) const VALID_LIFETIME: u32 = 2_592_000;
pub(crate) const PREFERRED_LIFETIME: u32 = 604_800;
/// Lifetime of [`HostConfiguration`]: three times the interval (RFC 8106 5.1, RFC 8781 4.1).
const HOST_VALUES_LIFETIME: u32 = 3 * MAX_ADVERTISEMENT_INTERVAL.as_secs() as u32;
/// Time between two reports of other routers on the link.
const OTHER_ROUTER_REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Length of a Router Advertisement without options, in octets. [`LINK_ADDRESS_OPTION_LEN`] is the length of
/// a Source Link-Layer Address option.
const FIXED_PART_LEN: usize = 16;
const LINK_ADDRESS_OPTION_LEN: usize = 8;
/// Maximum length of one option, in octets: the room for options in an advertisement of the minimum MTU.
const MAX_OPTION_LEN: usize = ipv6::MIN_MTU - ipv6::HEADER_LEN - FIXED_PART_LEN - LINK_ADDRESS_OPTION_LEN;
/// Length of a DNS option without servers and names, in octets.
const DNS_OPTION_HEAD_LEN: usize = 8;

/// Config of the advertiser of one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvertiserConfig {
    /// Interface name.
    pub interface: String,
    /// Advertised prefixes; those of length 64 are for stateless autoconfiguration.
    pub prefixes: Vec<Ipv6Net>,
    /// MTU of the link for hosts; `None` for the MTU that fits into the tunnel.
    pub mtu: Option<u32>,
    /// Values for hosts that are neither addresses nor routes.
    pub host_values: HostConfiguration,
    /// The home agent's advertisement of itself on its home link; `None` on other links.
    pub home_agent: Option<HomeAgentAdvertisement>,
}

/// Values for hosts on a link that are neither addresses nor routes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostConfiguration {
    /// DNS servers (RFC 8106 5.1).
    pub dns: Vec<Ipv6Addr>,
    /// Domain names that hosts append to short names (RFC 8106 5.2).
    pub search: Vec<String>,
    /// Prefixes of NAT64 (RFC 8781).
    pub pref64: Vec<Ipv6Net>,
    /// URI of the captive portal's API (RFC 8910). `None` without a captive portal.
    pub captive_portal: Option<String>,
    /// Whether the router advertises itself as the first DNS server, by its own address in a prefix of the
    /// interface.
    pub is_dns_server: bool,
    /// Whether hosts get the same values by DHCPv6: the O flag (RFC 4861 4.2).
    pub has_dhcpv6: bool,
}

impl HostConfiguration {
    fn is_empty(&self) -> bool {
        *self == HostConfiguration::default()
    }

    /// Returns the values that are not in `other`. Omits the captive portal if `other` has one, because that
    /// one replaces it.
    fn values_not_in(mut self, other: &HostConfiguration) -> HostConfiguration {
        self.dns.retain(|server| !other.dns.contains(server));
        self.search.retain(|domain| !other.search.contains(domain));
        self.pref64.retain(|prefix| !other.pref64.contains(prefix));
        self.captive_portal = self.captive_portal.filter(|_| other.captive_portal.is_none());
        self
    }

    /// Adds the values of `other`.
    fn add_values(&mut self, other: HostConfiguration) {
        let other = other.values_not_in(self);
        self.dns.extend(other.dns);
        self.search.extend(other.search);
        self.pref64.extend(other.pref64);
        self.captive_portal = self.captive_portal.take().or(other.captive_portal);
    }

    /// Returns the options, each with its type. `lifetime` is in seconds; 0 withdraws the values.
    fn options(&self, lifetime: u32) -> Vec<(u8, Vec<u8>)> {
        let mut options = Vec::new();
        if let Some(uri) = &self.captive_portal {
            // The option has no lifetime. This URI withdraws the portal, because it means that the network
            // has no portal (RFC 8910 2).
            let uri = if lifetime == 0 { CaptivePortal::UNRESTRICTED } else { uri }.to_owned();
            options.push((option_type::CAPTIVE_PORTAL, CaptivePortal { uri }.emit_data()));
        }
        for servers in self.dns.chunks((MAX_OPTION_LEN - DNS_OPTION_HEAD_LEN) / 16) {
            let option = RecursiveDnsServers { lifetime, servers: servers.to_vec() };
            options.push((option_type::RECURSIVE_DNS_SERVER, option.emit_data()));
        }
        for domains in split_search_list(&self.search) {
            options.push((option_type::DNS_SEARCH_LIST, DnsSearchList { lifetime, domains }.emit_data()));
        }
        let of_prefix = u16::try_from(lifetime).unwrap_or(MAX_PREF64_LIFETIME);
        let pref64 = self.pref64.iter().filter_map(|prefix| Pref64::new(*prefix, of_prefix));
        options.extend(pref64.map(|option| (option_type::PREF64, option.emit_data())));
        options
    }
}

/// Divides domain names into lists that each fit into an option.
fn split_search_list(domains: &[String]) -> Vec<Vec<String>> {
    let mut lists: Vec<Vec<String>> = Vec::new();
    let mut room = 0;
    for domain in domains {
        let length = encode_domain_name(domain).map_or(0, |name| name.len());
        match lists.last_mut().filter(|_| length <= room) {
            Some(list) => list.push(domain.clone()),
            None => {
                lists.push(vec![domain.clone()]);
                room = MAX_OPTION_LEN - DNS_OPTION_HEAD_LEN;
            }
        }
        room = room.saturating_sub(length);
    }
    lists
}

/// A home agent's advertisement of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeAgentAdvertisement {
    /// Address of the home agent.
    pub address: Ipv6Addr,
    /// Home prefix. Hosts do not configure addresses from this advertisement.
    pub home_prefix: Ipv6Net,
    /// Preference of the home agent; the higher value wins.
    pub preference: u16,
    /// R flag: the home agent serves mobile routers.
    pub mobile_routers: bool,
}

/// The advertiser of one interface.
#[derive(Debug)]
pub struct RouterAdvertiser {
    config: AdvertiserConfig,
    /// Whether the advertiser is on a home link, where another router is the default router.
    is_home_agent: bool,
    mtu: Option<u32>,
    /// MTU of the interface in octets.
    link_mtu: usize,
    /// Values that the next advertisements withdraw. `value_withdrawals_left` is the number of these
    /// advertisements.
    withdrawn_values: HostConfiguration,
    value_withdrawals_left: u32,
    nesting: Option<NestingInformation>,
    /// Number of advertisements still to send for a change of `nesting`.
    change_advertisements_left: u32,
    /// Whether the prefixes are valid; otherwise the advertiser withdraws them.
    are_prefixes_valid: bool,
    /// Number of withdrawals still to send; then the advertiser sends nothing more.
    prefix_withdrawals_left: u32,
    link_local: Option<Ipv6Addr>,
    /// Address of the interface in one of the prefixes; `None` if it has none.
    own_address: Option<Ipv6Addr>,
    link_address: Option<[u8; 6]>,
    /// Another default router on the link; `None` if no other router has advertised. `new_other_router` has
    /// the same address until the caller takes it for a report, and `other_router_limiter` limits the
    /// reports.
    other_router: Option<Ipv6Addr>,
    new_other_router: Option<Ipv6Addr>,
    other_router_limiter: RateLimiter,
    next_advertisement_at: Option<Time>,
    last_sent_at: Option<Time>,
    sent_advertisement_count: u32,
    rng: Rng,
    outputs: VecDeque<LinkMessage>,
}

impl RouterAdvertiser {
    /// Creates an advertiser that waits for its interface to come up.
    pub fn new(config: AdvertiserConfig, rng: Rng) -> Self {
        RouterAdvertiser {
            is_home_agent: config.home_agent.is_some(),
            mtu: config.mtu,
            config,
            link_mtu: ipv6::MIN_MTU,
            withdrawn_values: HostConfiguration::default(),
            value_withdrawals_left: 0,
            nesting: None,
            change_advertisements_left: 0,
            are_prefixes_valid: true,
            prefix_withdrawals_left: 0,
            link_local: None,
            own_address: None,
            link_address: None,
            other_router: None,
            new_other_router: None,
            other_router_limiter: RateLimiter::new(1, OTHER_ROUTER_REPORT_INTERVAL),
            next_advertisement_at: None,
            last_sent_at: None,
            sent_advertisement_count: 0,
            rng,
            outputs: VecDeque::new(),
        }
    }

    /// Returns the interface's name.
    pub fn interface(&self) -> &str {
        &self.config.interface
    }

    /// Returns the advertised prefixes.
    pub fn prefixes(&self) -> &[Ipv6Net] {
        &self.config.prefixes
    }

    /// Returns the MTU that the advertisements tell hosts; `None` if they contain no MTU.
    pub fn mtu(&self) -> Option<u32> {
        self.mtu
    }

    /// Returns the values for hosts that are neither addresses nor routes, with the router's own address if
    /// it is a DNS server.
    pub fn host_configuration(&self) -> HostConfiguration {
        let mut hosts = self.config.host_values.clone();
        if let Some(own) = self.own_address.filter(|own| hosts.is_dns_server && !hosts.dns.contains(own)) {
            hosts.dns.insert(0, own);
        }
        hosts
    }

    /// Returns whether the prefixes are valid.
    pub fn has_valid_prefixes(&self) -> bool {
        self.are_prefixes_valid
    }

    /// Returns the next message to send; `None` if no message is left.
    pub fn poll_output(&mut self) -> Option<LinkMessage> {
        self.outputs.pop_front()
    }

    /// Returns when [`Self::handle_timeout`] is due next; `None` if no advertisement is planned.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_advertisement_at
    }

    /// Takes over the interface's state.
    pub fn handle_interface(&mut self, now: Time, interface: &Interface) {
        if interface.name != self.config.interface {
            return;
        }
        let was_up = self.link_local.is_some();
        self.link_address = interface.link_address;
        self.link_mtu = usize::try_from(interface.mtu).unwrap_or(ipv6::MIN_MTU).max(ipv6::MIN_MTU);
        self.link_local = interface
            .addresses
            .iter()
            .find(|a| interface.running && a.address.is_unicast_link_local() && !a.tentative && !a.duplicate)
            .map(|a| a.address);
        let prefixes = &self.config.prefixes;
        let own = interface.addresses.iter().find(|own| {
            !own.tentative && !own.duplicate && prefixes.iter().any(|prefix| prefix.contains(&own.address))
        });
        let own = own.map(|own| own.address);
        let is_new = std::mem::replace(&mut self.own_address, own) != own;
        if self.link_local.is_none() {
            self.next_advertisement_at = None;
        } else if !was_up {
            self.sent_advertisement_count = 0;
            self.next_advertisement_at = Some(now);
        } else if is_new && self.config.host_values.is_dns_server {
            self.schedule_advertisement(now);
        }
    }

    /// Handles the removal of an interface.
    pub fn handle_interface_gone(&mut self, name: &str) {
        if name == self.config.interface {
            self.link_local = None;
            self.next_advertisement_at = None;
        }
    }

    /// Records another default router on the link. A mobile network should have only one. Any host can send
    /// such an advertisement, so the number of reports has a limit.
    fn record_other_router(&mut self, now: Time, message: &LinkMessage) {
        let is_valid = message.hop_limit == nd::HOP_LIMIT
            && message.source.is_unicast_link_local()
            && icmpv6::verify_checksum(message.source, message.destination, &message.message).is_ok();
        if self.is_home_agent || !is_valid || Some(message.source) == self.link_local {
            return;
        }
        let Ok(advertisement) = nd::RouterAdvertisement::parse(&message.message) else { return };
        if advertisement.router_lifetime == 0 {
            return;
        }
        let is_new = self.other_router.replace(message.source) != Some(message.source);
        if is_new && self.other_router_limiter.try_take_token(now) {
            self.new_other_router = Some(message.source);
        }
    }

    /// Returns the link-local address of the other default router that advertised last on the link; `None` if
    /// none has advertised.
    pub fn other_router(&self) -> Option<Ipv6Addr> {
        self.other_router
    }

    /// Returns another default router on the link once, after its first advertisement; otherwise `None`.
    pub fn take_new_other_router(&mut self) -> Option<Ipv6Addr> {
        self.new_other_router.take()
    }

    /// Sets the contents of the advertisement: the MTU for hosts (RFC 4861 4.6.4), which the config
    /// overrides, and whether the prefixes are valid. The router advertises a change soon.
    pub fn set_mtu_and_validity(&mut self, now: Time, mtu: Option<u32>, valid: bool) {
        let mtu = self.config.mtu.or(mtu);
        if (self.mtu, self.are_prefixes_valid) != (mtu, valid) {
            if self.are_prefixes_valid && !valid {
                self.prefix_withdrawals_left = MAX_FINAL_ADVERTISEMENTS;
            }
            self.mtu = mtu;
            self.are_prefixes_valid = valid;
            self.schedule_advertisement(now);
        }
    }

    /// Sets the information for mobile routers behind this one; `None` for no information. The router
    /// advertises a change at once.
    pub fn set_nesting(&mut self, now: Time, nesting: Option<NestingInformation>) {
        if self.nesting == nesting {
            return;
        }
        self.nesting = nesting;
        self.change_advertisements_left = ADVERTISEMENTS_AFTER_CHANGE;
        if self.link_local.is_some() && !self.has_withdrawn_prefixes() {
            let due = self.last_sent_at.map_or(now, |last| last + MIN_DELAY_AFTER_CHANGE).max(now);
            self.next_advertisement_at = Some(self.next_advertisement_at.map_or(due, |next| next.min(due)));
        }
    }

    /// Handles an ICMPv6 message from the interface: answers Router Solicitations.
    ///
    /// # Errors
    /// Returns why the message had no effect (RFC 4861 6.1.1).
    pub fn handle_link_message(&mut self, now: Time, message: &LinkMessage) -> Result<(), MobilityDrop> {
        if message.interface != self.config.interface {
            return Ok(());
        }
        match message.message.first() {
            Some(&icmpv6::message_type::ROUTER_SOLICITATION) => {}
            Some(&icmpv6::message_type::ROUTER_ADVERTISEMENT) => {
                self.record_other_router(now, message);
                return Ok(());
            }
            _ => return Ok(()),
        }
        if message.hop_limit != nd::HOP_LIMIT {
            return Err(MobilityDrop::NeighborDiscovery);
        }
        icmpv6::verify_checksum(message.source, message.destination, &message.message)
            .map_err(|_| MobilityDrop::BadChecksum)?;
        let solicitation =
            nd::RouterSolicitation::parse(&message.message).map_err(|_| MobilityDrop::NeighborDiscovery)?;
        if message.source.is_unspecified() && solicitation.source_link_address.is_some() {
            return Err(MobilityDrop::NeighborDiscovery);
        }
        self.schedule_advertisement(now);
        Ok(())
    }

    /// Sends the advertisement that is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.next_advertisement_at.is_some_and(|next| next <= now) {
            self.next_advertisement_at = None;
            self.send_advertisements(now, ROUTER_LIFETIME);
        }
    }

    /// Advertises that this router ceases to route (RFC 4861 6.2.5). The hosts keep the prefixes.
    pub fn handle_shutdown(&mut self, now: Time) {
        self.send_advertisements(now, 0);
        self.next_advertisement_at = None;
    }

    /// Withdraws the prefixes and values that `successor`, the advertiser of the new config, does not
    /// advertise on this link. This advertiser withdraws the prefixes at once; the successor withdraws the
    /// other values.
    pub fn handle_withdrawal(&mut self, now: Time, successor: Option<&mut RouterAdvertiser>) {
        let hosts =
            HostConfiguration { is_dns_server: false, has_dhcpv6: false, ..self.host_configuration() };
        self.config.host_values = HostConfiguration::default();
        self.withdrawn_values.add_values(hosts);
        if let Some(successor) = successor {
            let mut stays = successor.config.host_values.clone();
            stays.dns.extend(self.own_address.filter(|_| stays.is_dns_server));
            self.config.prefixes.retain(|prefix| !successor.config.prefixes.contains(prefix));
            successor.withdrawn_values = std::mem::take(&mut self.withdrawn_values).values_not_in(&stays);
            successor.value_withdrawals_left =
                if successor.withdrawn_values.is_empty() { 0 } else { MAX_FINAL_ADVERTISEMENTS };
        }
        if !self.config.prefixes.is_empty() || !self.withdrawn_values.is_empty() {
            self.are_prefixes_valid = false;
            self.send_advertisements(now, 0);
        }
        self.next_advertisement_at = None;
    }

    /// Schedules a multicast answer after a random delay, at most one per [`MIN_DELAY_BETWEEN_RAS`] (RFC 4861
    /// 6.2.6).
    fn schedule_advertisement(&mut self, now: Time) {
        if self.link_local.is_none() || self.has_withdrawn_prefixes() {
            return;
        }
        let earliest = self.last_sent_at.map_or(now, |last| last + MIN_DELAY_BETWEEN_RAS).max(now);
        let due = earliest + self.rng.duration_between(Duration::ZERO, MAX_RA_DELAY_TIME);
        self.next_advertisement_at = Some(self.next_advertisement_at.map_or(due, |next| next.min(due)));
    }

    /// Returns whether the router has withdrawn the prefixes. RFC 3963 5.4.2 then forbids further
    /// advertisements.
    fn has_withdrawn_prefixes(&self) -> bool {
        !self.are_prefixes_valid && self.prefix_withdrawals_left == 0
    }

    /// Sets the home agent's advertisement of itself; `None` if the station is no longer a home agent. The
    /// router advertises a change soon.
    pub fn set_home_agent(&mut self, now: Time, offer: Option<HomeAgentAdvertisement>) {
        if self.config.home_agent != offer {
            self.config.home_agent = offer;
            self.schedule_advertisement(now);
        }
    }

    /// Returns the options by which a home agent advertises itself.
    fn build_home_agent_options(offer: &HomeAgentAdvertisement) -> [nd::NdOption<'static>; 2] {
        let home_prefix = nd::NdOption::PrefixInformation(nd::PrefixInformation {
            prefix: offer.address,
            prefix_length: offer.home_prefix.prefix_len(),
            on_link: true,
            autonomous: false,
            router_address: true,
            valid_lifetime: VALID_LIFETIME,
            preferred_lifetime: PREFERRED_LIFETIME,
        });
        let information = nd::NdOption::HomeAgentInformation(nd::HomeAgentInformation {
            mobile_router_support: offer.mobile_routers,
            preference: offer.preference,
            lifetime: ROUTER_LIFETIME,
        });
        [home_prefix, information]
    }

    fn send_advertisements(&mut self, now: Time, router_lifetime: u16) {
        let Some(source) = self.link_local else { return };
        let (valid_lifetime, preferred_lifetime) =
            if self.are_prefixes_valid { (VALID_LIFETIME, PREFERRED_LIFETIME) } else { (VALID_LIFETIME, 0) };
        // RFC 6275 10.5.1: an advertisement without the H flag tells other home agents that this router is no
        // longer a home agent.
        let offer = self.config.home_agent.filter(|_| router_lifetime > 0);
        let router_lifetime =
            if self.are_prefixes_valid && !self.is_home_agent { router_lifetime } else { 0 };
        let nesting =
            self.nesting.as_ref().filter(|_| self.are_prefixes_valid).map(NestingInformation::emit_data);
        let mut options: Vec<nd::NdOption<'_>> = Vec::new();
        options.extend(self.mtu.map(nd::NdOption::Mtu));
        for prefix in &self.config.prefixes {
            options.push(nd::NdOption::PrefixInformation(nd::PrefixInformation {
                prefix: prefix.network(),
                prefix_length: prefix.prefix_len(),
                on_link: true,
                autonomous: prefix.prefix_len() == 64,
                router_address: false,
                valid_lifetime,
                preferred_lifetime,
            }));
        }
        if let Some(data) = &nesting {
            options.push(nd::NdOption::Unknown { option_type: option_type::EXPERIMENT_1, data });
        }
        for option in offer.iter().flat_map(Self::build_home_agent_options) {
            options.push(option);
        }
        // If the router ceases to route, or its prefixes end, hosts no longer reach the advertised servers
        // through it.
        let host_lifetime = if router_lifetime > 0 { HOST_VALUES_LIFETIME } else { 0 };
        let hosts = self.host_configuration().options(host_lifetime);
        let forgotten = self.withdrawn_values.options(0);
        for (option_type, data) in forgotten.iter().chain(&hosts) {
            options.push(nd::NdOption::Unknown { option_type: *option_type, data });
        }
        let source_link_address = self.link_address.map(nd::NdOption::SourceLinkAddress);
        let link_mtu = self.mtu.and_then(|mtu| usize::try_from(mtu).ok()).unwrap_or(self.link_mtu);
        let room = link_mtu.clamp(ipv6::MIN_MTU, self.link_mtu) - ipv6::HEADER_LEN - FIXED_PART_LEN;
        for options in divide_options_among_advertisements(source_link_address, &options, room) {
            let mut message = nd::emit_router_advertisement(&nd::RouterAdvertisementRepr {
                // RFC 4861 4.2: 0 means unspecified.
                hop_limit: if self.is_home_agent { 0 } else { 64 },
                managed: false,
                other_configuration: self.config.host_values.has_dhcpv6 && router_lifetime > 0,
                home_agent: offer.is_some(),
                preference: nd::RoutePreference::Medium,
                router_lifetime,
                reachable_time: 0,
                retrans_timer: 0,
                options: &options,
            });
            icmpv6::set_checksum(&mut message, source, nd::ALL_NODES);
            self.outputs.push_back(LinkMessage {
                interface: self.config.interface.clone(),
                source,
                destination: nd::ALL_NODES,
                hop_limit: nd::HOP_LIMIT,
                peer: None,
                message,
            });
        }
        self.last_sent_at = Some(now);
        self.sent_advertisement_count = self.sent_advertisement_count.saturating_add(1);
        let mut interval = self.rng.duration_between(MIN_ADVERTISEMENT_INTERVAL, MAX_ADVERTISEMENT_INTERVAL);
        self.value_withdrawals_left = self.value_withdrawals_left.saturating_sub(1);
        if self.value_withdrawals_left == 0 {
            self.withdrawn_values = HostConfiguration::default();
        }
        if self.sent_advertisement_count < INITIAL_ADVERTISEMENTS
            || !self.are_prefixes_valid
            || self.value_withdrawals_left > 0
        {
            interval = interval.min(INITIAL_INTERVAL);
        }
        self.change_advertisements_left = self.change_advertisements_left.saturating_sub(1);
        if self.change_advertisements_left > 0 {
            interval = interval.min(ADVERTISEMENT_INTERVAL_AFTER_CHANGE);
        }
        self.prefix_withdrawals_left = self.prefix_withdrawals_left.saturating_sub(1);
        self.next_advertisement_at = (!self.has_withdrawn_prefixes()).then_some(now + interval);
    }
}

/// Divides options among advertisements with `room` octets for options each. Each advertisement has the
/// router's link-layer address; the other options keep their order.
fn divide_options_among_advertisements<'a>(
    source_link_address: Option<nd::NdOption<'a>>,
    options: &[nd::NdOption<'a>],
    room: usize,
) -> Vec<Vec<nd::NdOption<'a>>> {
    let length = |option: &nd::NdOption<'_>| {
        let mut octets = Vec::new();
        option.emit_into(&mut octets);
        octets.len()
    };
    let head: Vec<nd::NdOption<'a>> = source_link_address.into_iter().collect();
    let room = room - head.iter().map(length).sum::<usize>();
    let mut divided = Vec::new();
    let (mut current, mut used) = (head.clone(), 0);
    for option in options {
        let length = length(option);
        if used > 0 && used + length > room {
            divided.push(std::mem::replace(&mut current, head.clone()));
            used = 0;
        }
        used += length;
        current.push(*option);
    }
    divided.push(current);
    divided
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_base::Address;

    fn interface(running: bool) -> Interface {
        Interface {
            name: "i0".into(),
            running,
            mtu: 1500,
            link_address: Some([2, 0, 0, 0, 0, 1]),
            addresses: vec![Address {
                address: "fe80::1".parse().expect("address"),
                prefix_length: 64,
                tentative: false,
                duplicate: false,
                deprecated: false,
                temporary: false,
                permanent: true,
            }],
            routers: vec![],
            ..Interface::default()
        }
    }

    fn advertiser() -> RouterAdvertiser {
        let config = AdvertiserConfig {
            interface: "i0".into(),
            prefixes: vec!["2001:db8:a::/64".parse().expect("prefix")],
            mtu: None,
            host_values: HostConfiguration::default(),
            home_agent: None,
        };
        RouterAdvertiser::new(config, Rng::new(1))
    }

    fn solicitation() -> LinkMessage {
        let (source, destination) =
            ("fe80::2".parse().expect("address"), "ff02::2".parse().expect("address"));
        let mut message = nd::RouterSolicitation { source_link_address: None }.emit();
        icmpv6::set_checksum(&mut message, source, destination);
        LinkMessage { interface: "i0".into(), source, destination, hop_limit: 255, peer: None, message }
    }

    #[test]
    fn advertiser_sends_when_interface_comes_up_and_delays_answers() {
        let mut advertiser = advertiser();
        assert_eq!(advertiser.handle_link_message(Time::ZERO, &solicitation()), Ok(()));
        assert_eq!(advertiser.poll_timeout(), None);
        advertiser.handle_interface(Time::ZERO, &interface(true));
        advertiser.handle_timeout(Time::ZERO);
        let first = advertiser.poll_output().expect("an advertisement");
        let parsed = nd::RouterAdvertisement::parse(&first.message).expect("parses");
        assert_eq!(parsed.router_lifetime, ROUTER_LIFETIME);
        assert_eq!(icmpv6::verify_checksum(first.source, first.destination, &first.message), Ok(()));

        let now = Time::from_millis(100);
        for _ in 0..1000 {
            advertiser.handle_link_message(now, &solicitation()).expect("valid");
        }
        let due = advertiser.poll_timeout().expect("due");
        assert!(due >= Time::ZERO + MIN_DELAY_BETWEEN_RAS, "{due}");
        assert!(due <= Time::ZERO + MIN_DELAY_BETWEEN_RAS + MAX_RA_DELAY_TIME, "{due}");
        advertiser.handle_timeout(due);
        assert!(advertiser.poll_output().is_some());
        assert!(advertiser.poll_output().is_none());
    }

    #[test]
    fn advertiser_sends_changed_prefixes_at_once_and_repeats_them() {
        let mut advertiser = advertiser();
        advertiser.handle_interface(Time::ZERO, &interface(true));
        advertiser.handle_timeout(Time::ZERO);
        let first = advertiser.poll_output().expect("an advertisement");
        let told = |message: &LinkMessage| {
            let parsed = nd::RouterAdvertisement::parse(&message.message).expect("parses");
            parsed.options().find_map(|option| NestingInformation::read(&option))
        };
        assert_eq!(told(&first), None);
        let path = vec!["2001:db8:1::1234".parse().expect("address")];
        let information = NestingInformation { grounded: true, prefixes: vec![], path_home_addresses: path };
        let mut now = Time::from_millis(10);
        advertiser.set_nesting(now, Some(information.clone()));
        for delay in [20, 1000, 1000] {
            let due = advertiser.poll_timeout().expect("due");
            assert!(due <= now + Duration::from_millis(delay), "{due}");
            now = due;
            advertiser.handle_timeout(now);
            assert_eq!(advertiser.poll_output().as_ref().and_then(told), Some(information.clone()));
        }
        let due = advertiser.poll_timeout().expect("due");
        assert!(due >= now + INITIAL_INTERVAL, "and then as seldom as ever: {due}");
        // Setting equal information causes no advertisement.
        advertiser.set_nesting(now, Some(information));
        assert_eq!(advertiser.poll_timeout(), Some(due));
    }

    #[test]
    fn advertiser_announces_home_agent_until_it_stops() {
        let offer = HomeAgentAdvertisement {
            address: "2001:db8:1::1".parse().expect("address"),
            home_prefix: "2001:db8:1::/64".parse().expect("prefix"),
            preference: 10,
            mobile_routers: true,
        };
        let config = AdvertiserConfig {
            interface: "i0".into(),
            prefixes: vec![],
            mtu: None,
            host_values: HostConfiguration::default(),
            home_agent: Some(offer),
        };
        let mut advertiser = RouterAdvertiser::new(config, Rng::new(1));
        advertiser.handle_interface(Time::ZERO, &interface(true));
        advertiser.handle_timeout(Time::ZERO);
        let message = advertiser.poll_output().expect("an advertisement");
        let parsed = nd::RouterAdvertisement::parse(&message.message).expect("parses");
        assert!(parsed.home_agent);
        assert_eq!((parsed.router_lifetime, parsed.hop_limit), (0, 0), "no default router");
        let options: Vec<_> = parsed.options().collect();
        assert!(options.contains(&nd::NdOption::HomeAgentInformation(nd::HomeAgentInformation {
            mobile_router_support: true,
            preference: 10,
            lifetime: ROUTER_LIFETIME,
        })));
        assert!(options.iter().any(|option| matches!(option,
nd::NdOption::PrefixInformation(it)
if it.prefix == offer.address && it.router_address && !it.autonomous)));

        advertiser.handle_shutdown(Time::from_secs(9));
        let message = advertiser.poll_output().expect("a farewell");
        let parsed = nd::RouterAdvertisement::parse(&message.message).expect("parses");
        assert!(!parsed.home_agent);
        // RFC 6275 7.4: a Home Agent Information option comes only with the H flag.
        assert!(!parsed.options().any(|option| matches!(option, nd::NdOption::HomeAgentInformation(_))));
    }

    #[test]
    fn advertiser_withdraws_refused_prefixes() {
        let mut advertiser = advertiser();
        advertiser.handle_interface(Time::ZERO, &interface(true));
        advertiser.set_mtu_and_validity(Time::ZERO, Some(1460), false);
        let due = advertiser.poll_timeout().expect("due");
        advertiser.handle_timeout(due);
        let message = advertiser.poll_output().expect("an advertisement");
        let parsed = nd::RouterAdvertisement::parse(&message.message).expect("parses");
        assert_eq!(parsed.router_lifetime, 0);
        let mut sent = 1;
        while let Some(due) = advertiser.poll_timeout() {
            advertiser.handle_timeout(due);
            sent += std::iter::from_fn(|| advertiser.poll_output()).count();
        }
        assert_eq!(sent, 3, "and then no longer mentioned");
        advertiser.handle_link_message(Time::from_secs(100), &solicitation()).expect("valid");
        assert_eq!(advertiser.poll_timeout(), None);
        advertiser.set_mtu_and_validity(Time::from_secs(101), Some(1460), true);
        assert!(advertiser.poll_timeout().is_some());
        let preferred: Vec<u32> = parsed
            .options()
            .filter_map(|o| match o {
                nd::NdOption::PrefixInformation(p) => Some(p.preferred_lifetime),
                _ => None,
            })
            .collect();
        assert_eq!(preferred, [0]);
    }

    #[test]
    fn router_solicitation_with_hop_limit_64_is_refused() {
        let mut advertiser = advertiser();
        advertiser.handle_interface(Time::ZERO, &interface(true));
        advertiser.handle_timeout(Time::ZERO);
        let before = advertiser.poll_timeout();
        let forged = LinkMessage { hop_limit: 64, ..solicitation() };
        assert_eq!(advertiser.handle_link_message(Time::ZERO, &forged), Err(MobilityDrop::NeighborDiscovery));
        assert_eq!(advertiser.poll_timeout(), before);
    }
}
