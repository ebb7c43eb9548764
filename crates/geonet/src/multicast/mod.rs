//! Multicast between the mobile network and GeoNetworking: an MLD proxy by the model of RFC 4605, without
//! I/O.
//!
//! ```text
//!   host -- lan -- [querier, listeners]  proxy  [subscriptions] -- gn0 -- GeoNetworking
//!           downstream                                            upstream
//! ```
//!
//! * **Downstream**, on each interface of the mobile network, the proxy is an MLDv2 router (RFC 3810): it
//!   queries listeners ([`querier`]) and stores their memberships ([`listeners`]).
//! * **Upstream** the proxy is one listener with the union of all memberships. It outputs this union
//!   ([`Output::Subscription`]). The host's own IPv6 stack reports it on the virtual link and answers the
//!   queries there.
//! * **A packet from GeoNetworking** goes to every downstream interface with a listener. GeoNetworking
//!   selects the stations: those inside the area.
//! * **A packet from the mobile network** goes to GeoNetworking if its group leads to an area, and to the
//!   other downstream interfaces with a listener. Packets to groups without an area stay, unless the
//!   configuration sends them to all stations within some hops.
//!
//! The proxy does not forward packets with a scope up to link scope (RFC 4291 2.7, RFC 4007 9). For groups
//! without an area it does not forward packets up to site scope, because another vehicle is another site. It
//! drops link-local and unspecified sources. To prevent loops, it drops a source that does not belong to the
//! interface of arrival. It also drops packets from the air with a source of the mobile network. It
//! decrements hop limits.
//!
//! Left out: PIM routers; MLDv1 routers on the mobile network (the proxy treats a querier of version 1 like
//! one of version 2 without timer values). Also left out are several upstream links: all subscriptions are on
//! the topological link.

mod drop_reason;
pub mod listeners;
pub mod querier;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};
use carnet_wire::icmpv6::{self, Icmpv6ErrorMessage};
use carnet_wire::ipv6::{Header, is_unicast_routable};
use carnet_wire::mld::{MldMessage, MldQuery, MldQueryRepr};

pub use drop_reason::MulticastDrop;
use listeners::{Listeners, PendingQuery};
pub use listeners::{MldTiming, SourceFilter};
use querier::Querier;

use crate::MacAddress;
use crate::ipv6_adaptation::{Prefix, addresses};

/// Offset of the hop limit in an IPv6 packet.
const HOP_LIMIT_OFFSET: usize = 7;
/// Number of ICMPv6 errors that the proxy may send to hosts at once.
const ICMP_ERROR_BURST: u32 = 10;
/// Interval after which the proxy may send one more ICMPv6 error.
const ICMP_ERROR_INTERVAL: Duration = Duration::from_millis(100);

/// Configuration of the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MulticastConfig {
    /// The interfaces of the mobile network.
    pub downstream: Vec<String>,
    /// MLD timers and counts on these interfaces.
    pub timing: MldTiming,
    /// Whether the proxy forwards packets to groups without an area from the mobile network to GeoNetworking.
    pub forwards_unmapped_groups: bool,
}

/// Action that the caller must perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send a packet on an interface of the mobile network.
    Packet {
        /// Name of the interface.
        interface: String,
        /// Link-layer destination address.
        destination: MacAddress,
        /// The IPv6 packet.
        packet: Vec<u8>,
    },
    /// The host must report this filter for the group on the upstream link. [`SourceFilter::Include`] without
    /// sources ends the membership.
    Subscription {
        /// The group.
        group: Ipv6Addr,
        /// Filter of the sources.
        filter: SourceFilter,
    },
}

/// Counters of the proxy.
#[derive(Debug, Clone)]
pub struct Counters {
    /// Number of packets from the mobile network to GeoNetworking.
    pub sent_upstream: u64,
    /// Number of packets sent on interfaces of the mobile network; a packet on two interfaces counts twice.
    pub sent_downstream: u64,
    /// Number of queries sent.
    pub sent_queries: u64,
    /// Number of reports and Done messages received.
    pub received_reports: u64,
    dropped: [u64; MulticastDrop::ALL.len()],
}

impl Counters {
    /// Returns the number of packets dropped for `reason`.
    pub fn dropped(&self, reason: MulticastDrop) -> u64 {
        self.dropped[reason as usize]
    }
}

/// An interface of the mobile network.
#[derive(Debug, Default)]
struct DownstreamInterface {
    /// Link-local address of the interface; `None` while the interface has none.
    link_local: Option<Ipv6Addr>,
    prefixes: Vec<Prefix>,
    querier: Option<Querier>,
    listeners: Listeners,
}

/// Membership of a group on an interface, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership<'a> {
    /// The interface.
    pub interface: &'a str,
    /// Querier of this link; `None` if it is this router.
    pub querier: Option<Ipv6Addr>,
    /// The group.
    pub group: Ipv6Addr,
    /// Filter of the sources.
    pub filter: SourceFilter,
    /// Time at which the membership ends if no listener reports it again.
    pub expires_at: Option<Time>,
}

/// The proxy. After each `handle_*` call, the caller calls [`MulticastProxy::poll_output`] until it returns
/// `None`.
#[derive(Debug)]
pub struct MulticastProxy {
    mld_timing: MldTiming,
    forwards_unmapped_groups: bool,
    downstream_interfaces: BTreeMap<String, DownstreamInterface>,
    subscribed_groups: BTreeMap<Ipv6Addr, SourceFilter>,
    icmp_error_limiter: RateLimiter,
    outputs: VecDeque<Output>,
    counters: Counters,
}

/// A packet from the mobile network.
#[derive(Debug, Clone, Copy)]
pub struct LanPacket<'a> {
    /// Interface of arrival.
    pub interface: &'a str,
    /// Link-layer address of the sender.
    pub source: MacAddress,
    /// The IPv6 packet.
    pub packet: &'a [u8],
}

impl MulticastProxy {
    /// Creates a proxy whose interfaces have no addresses yet.
    pub fn new(config: MulticastConfig) -> MulticastProxy {
        MulticastProxy {
            mld_timing: config.timing,
            forwards_unmapped_groups: config.forwards_unmapped_groups,
            downstream_interfaces: config
                .downstream
                .into_iter()
                .map(|name| (name, DownstreamInterface::default()))
                .collect(),
            subscribed_groups: BTreeMap::new(),
            icmp_error_limiter: RateLimiter::new(ICMP_ERROR_BURST, ICMP_ERROR_INTERVAL),
            outputs: VecDeque::new(),
            counters: Counters {
                sent_upstream: 0,
                sent_downstream: 0,
                sent_queries: 0,
                received_reports: 0,
                dropped: [0; MulticastDrop::ALL.len()],
            },
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the memberships in the mobile network.
    pub fn memberships(&self) -> impl Iterator<Item = Membership<'_>> {
        self.downstream_interfaces.iter().flat_map(|(interface, link)| {
            let querier = link.querier.as_ref().and_then(Querier::other_querier);
            let groups = link.listeners.groups();
            groups.map(move |(group, filter, until)| Membership {
                interface,
                querier,
                group,
                filter,
                expires_at: until,
            })
        })
    }

    /// Returns the next action for the caller.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let links = self.downstream_interfaces.values();
        links
            .filter_map(|link| {
                Some(link.querier.as_ref()?.poll_timeout())
                    .into_iter()
                    .chain(link.listeners.poll_timeout())
                    .min()
            })
            .min()
    }

    /// Handles the usable addresses of an interface of the mobile network, with prefix lengths; an empty list
    /// if the interface is gone.
    pub fn handle_addresses(&mut self, now: Time, interface: &str, addresses: &[(Ipv6Addr, u8)]) {
        let Some(link) = self.downstream_interfaces.get_mut(interface) else { return };
        let others = addresses.iter().filter(|(address, _)| !address.is_unicast_link_local());
        link.prefixes =
            others.map(|(address, length)| Prefix { address: *address, prefix_length: *length }).collect();
        let link_local = addresses.iter().map(|(address, _)| *address).find(Ipv6Addr::is_unicast_link_local);
        if link.link_local == link_local {
            return;
        }
        link.link_local = link_local;
        // The new address makes this router another candidate in the querier election, so the election
        // restarts.
        link.querier = link_local.map(|_| Querier::new(now, self.mld_timing));
        if link_local.is_none() {
            link.listeners.clear();
        }
        self.handle_timeout(now);
    }

    /// Sends the queries that are due, and removes listeners whose timers have expired.
    pub fn handle_timeout(&mut self, now: Time) {
        for (interface, link) in self.downstream_interfaces.iter_mut() {
            let (Some(querier), Some(source)) = (&mut link.querier, link.link_local) else { continue };
            let general = querier.handle_timeout(now);
            let timing = *querier.timing_in_use();
            let questions = link.listeners.handle_timeout(now, &timing);
            let general = general.then(|| PendingQuery {
                group: Ipv6Addr::UNSPECIFIED,
                sources: Vec::new(),
                suppress_router_timers: false,
            });
            for question in general.into_iter().chain(questions) {
                self.counters.sent_queries += 1;
                self.outputs.push_back(build_query(interface, source, &timing, &question));
            }
        }
        self.update_subscriptions();
    }

    /// Outputs the union of all memberships if it has changed.
    fn update_subscriptions(&mut self) {
        let mut changed = BTreeSet::new();
        for (_, link) in self.downstream_interfaces.iter_mut() {
            changed.append(&mut link.listeners.take_changed_groups());
        }
        let mut new = Vec::new();
        for group in changed {
            let filters =
                self.downstream_interfaces.values().filter_map(|link| link.listeners.filter_of(group));
            match filters.reduce(SourceFilter::union_with) {
                Some(filter) if self.subscribed_groups.get(&group) != Some(&filter) => {
                    self.subscribed_groups.insert(group, filter.clone());
                    new.push(Output::Subscription { group, filter });
                }
                Some(_) => {}
                None if self.subscribed_groups.remove(&group).is_some() => {
                    let filter = SourceFilter::Include(BTreeSet::new());
                    self.outputs.push_back(Output::Subscription { group, filter });
                }
                None => {}
            }
        }
        self.outputs.extend(new);
    }

    /// Handles a multicast packet of the mobile network. Returns the packet that goes out over GeoNetworking,
    /// with decremented hop limit. `mtu` is the largest packet that GeoNetworking carries; `is_mapped` says
    /// whether a group has an area.
    ///
    /// # Errors
    ///
    /// The reason why the packet does not go out. If the packet is too large, the proxy has answered with
    /// Packet Too Big.
    pub fn handle_lan_packet(
        &mut self,
        now: Time,
        lan: LanPacket<'_>,
        mtu: u32,
        is_mapped: impl Fn(Ipv6Addr) -> bool,
    ) -> Result<Option<Vec<u8>>, MulticastDrop> {
        let result = self.forward_upstream(now, lan, mtu, is_mapped);
        match &result {
            Ok(Some(_)) => self.counters.sent_upstream += 1,
            Ok(None) => {}
            Err(reason) => self.counters.dropped[*reason as usize] += 1,
        }
        result
    }

    fn forward_upstream(
        &mut self,
        now: Time,
        lan: LanPacket<'_>,
        mtu: u32,
        is_mapped: impl Fn(Ipv6Addr) -> bool,
    ) -> Result<Option<Vec<u8>>, MulticastDrop> {
        let link = self.downstream_interfaces.get(lan.interface).filter(|link| link.link_local.is_some());
        let link = link.ok_or(MulticastDrop::UnknownInterface)?;
        let (header, packet) = parse_multicast_packet(lan.packet)?;
        match MldMessage::parse_packet(packet) {
            Some(Ok((header, message))) => {
                return self.handle_mld_message(now, lan.interface, &header, &message).map(|()| None);
            }
            Some(Err(_)) => return Err(MulticastDrop::BadMld),
            None => {}
        }
        let group = header.destination;
        if !is_forwardable_group(group) {
            // Routers do not forward Neighbor Discovery and similar messages of a link.
            return Ok(None);
        }
        if !is_unicast_routable(header.source)
            || !link.prefixes.iter().any(|prefix| prefix.contains_address(header.source))
        {
            return Err(MulticastDrop::BadSource);
        }
        if header.hop_limit <= 1 {
            return Err(MulticastDrop::HopLimit);
        }
        let mut onward = packet.to_vec();
        lower_hop_limit(&mut onward);
        self.deliver_to_listeners(now, &header, &onward, Some(lan.interface));
        match (is_mapped(group), self.forwards_unmapped_groups) {
            (true, _) => {}
            (false, true) if scope_of_group(group) > SITE_SCOPE => {}
            (false, true) => return Err(MulticastDrop::Scope),
            (false, false) => return Err(MulticastDrop::NoArea),
        }
        if packet.len() > mtu as usize {
            self.answer_too_big(now, &lan, &header, packet, mtu);
            return Err(MulticastDrop::TooBig);
        }
        Ok(Some(onward))
    }

    /// Handles a multicast packet from GeoNetworking.
    ///
    /// # Errors
    ///
    /// The reason why the proxy delivers the packet to no interface. A lack of listeners is not an error.
    pub fn handle_upstream_packet(&mut self, now: Time, packet: &[u8]) -> Result<(), MulticastDrop> {
        let result = self.forward_downstream(now, packet);
        if let Err(reason) = result {
            self.counters.dropped[reason as usize] += 1;
        }
        result
    }

    fn forward_downstream(&mut self, now: Time, packet: &[u8]) -> Result<(), MulticastDrop> {
        let (header, packet) = parse_multicast_packet(packet)?;
        if !is_forwardable_group(header.destination) {
            return Ok(());
        }
        if !is_unicast_routable(header.source) {
            return Err(MulticastDrop::BadSource);
        }
        let is_own = |link: &DownstreamInterface| {
            link.prefixes.iter().any(|prefix| prefix.contains_address(header.source))
        };
        if self.downstream_interfaces.values().any(is_own) {
            return Err(MulticastDrop::OwnSource);
        }
        if header.hop_limit <= 1 {
            return Err(MulticastDrop::HopLimit);
        }
        let mut onward = packet.to_vec();
        lower_hop_limit(&mut onward);
        self.deliver_to_listeners(now, &header, &onward, None);
        Ok(())
    }

    /// Delivers a packet to every interface with a listener, except the one of arrival.
    fn deliver_to_listeners(&mut self, now: Time, header: &Header, packet: &[u8], from: Option<&str>) {
        for (interface, link) in self.downstream_interfaces.iter() {
            if Some(interface.as_str()) == from
                || !link.listeners.has_listener(now, header.destination, header.source)
            {
                continue;
            }
            self.counters.sent_downstream += 1;
            self.outputs.push_back(Output::Packet {
                interface: interface.clone(),
                destination: addresses::group_mac(header.destination),
                packet: packet.to_vec(),
            });
        }
    }

    fn handle_mld_message(
        &mut self,
        now: Time,
        interface: &str,
        header: &Header,
        message: &MldMessage<'_>,
    ) -> Result<(), MulticastDrop> {
        let Some(DownstreamInterface { link_local: Some(own), querier: Some(querier), listeners, .. }) =
            self.downstream_interfaces.get_mut(interface)
        else {
            return Err(MulticastDrop::UnknownInterface);
        };
        if header.source == *own {
            return Err(MulticastDrop::BadMld);
        }
        let (timing, ask) = (*querier.timing_in_use(), querier.is_querier());
        let mut full = false;
        match message {
            MldMessage::Query(query) => {
                if querier.handle_query(now, *own, header.source, query) {
                    listeners.cancel_queries();
                    lower_listener_timers(now, listeners, querier.timing_in_use(), query);
                }
            }
            MldMessage::Report(records) => {
                for record in records.iter().filter(|record| is_forwardable_group(record.group)) {
                    full |= listeners.handle_record(now, &timing, &record, ask).is_err();
                }
            }
            MldMessage::ReportV1(group) if is_forwardable_group(*group) => {
                full = listeners.handle_report_v1(now, &timing, *group).is_err();
            }
            MldMessage::DoneV1(group) => listeners.handle_done_v1(now, &timing, *group, ask),
            MldMessage::ReportV1(_) => {}
        }
        self.counters.received_reports += u64::from(!matches!(message, MldMessage::Query(_)));
        // Send at once the queries that the report requires.
        self.handle_timeout(now);
        if full { Err(MulticastDrop::TooManyGroups) } else { Ok(()) }
    }

    /// Sends Packet Too Big to the sending host (RFC 8200 5), as for a unicast packet. The source of the
    /// error is this router's address on the link of the host.
    fn answer_too_big(&mut self, now: Time, lan: &LanPacket<'_>, header: &Header, packet: &[u8], mtu: u32) {
        let error = Icmpv6ErrorMessage::PacketTooBig { mtu };
        let own = self.downstream_interfaces.get(lan.interface).and_then(|link| link.link_local);
        let (Some(own), true) = (own, icmpv6::may_send_error(error, packet)) else { return };
        if self.icmp_error_limiter.try_take_token(now) {
            self.outputs.push_back(Output::Packet {
                interface: lan.interface.to_owned(),
                destination: lan.source,
                packet: icmpv6::error_packet(own, header.source, error, packet),
            });
        }
    }
}

/// RFC 3810 7.6.1: a query lowers the membership timers. A response delay below the Last Listener Query
/// Interval counts as this interval. Otherwise a forged query with a delay of 0 would end the memberships
/// before the listeners can answer.
fn lower_listener_timers(now: Time, listeners: &mut Listeners, timing: &MldTiming, query: &MldQuery<'_>) {
    let Some(group) = query.group else { return };
    if query.version_2.is_some_and(|v2| v2.suppress_router_timers) {
        return;
    }
    let delay = Duration::from_millis(query.maximum_response_delay.into());
    let time = delay.max(timing.last_listener_query_interval) * timing.robustness_variable.max(1).into();
    let sources = query.version_2.map(|v2| v2.sources).unwrap_or_default();
    listeners.handle_query(now, time, group, sources.iter());
}

fn build_query(interface: &str, source: Ipv6Addr, timing: &MldTiming, question: &PendingQuery) -> Output {
    let group = Some(question.group).filter(|group| !group.is_unspecified());
    let delay = match group {
        None => timing.query_response_interval,
        Some(_) => timing.last_listener_query_interval,
    };
    let repr = MldQueryRepr {
        maximum_response_delay: u32::try_from(delay.as_millis()).unwrap_or(u32::MAX),
        group,
        suppress_router_timers: question.suppress_router_timers,
        robustness_variable: timing.robustness_variable,
        query_interval: u32::try_from(timing.query_interval.as_secs()).unwrap_or(u32::MAX),
        sources: &question.sources,
    };
    let destination = addresses::group_mac(group.unwrap_or(carnet_wire::nd::ALL_NODES));
    Output::Packet { interface: interface.to_owned(), destination, packet: repr.emit_packet(source) }
}

/// Scope values of multicast addresses (RFC 4291 2.7).
const LINK_SCOPE: u8 = 2;
const SITE_SCOPE: u8 = 5;

/// Returns the scope of a group. Reserved values follow RFC 4291 2.7: the proxy never forwards 0, and 15
/// means global.
fn scope_of_group(group: Ipv6Addr) -> u8 {
    group.octets()[1] & 0x0f
}

/// Returns whether a router may forward packets to a group from their link. The proxy stores listeners only
/// of such groups.
fn is_forwardable_group(group: Ipv6Addr) -> bool {
    group.is_multicast() && scope_of_group(group) > LINK_SCOPE
}

/// Parses a multicast packet; removes octets behind the length in its header.
fn parse_multicast_packet(packet: &[u8]) -> Result<(Header, &[u8]), MulticastDrop> {
    let (header, payload) = Header::parse_packet(packet).map_err(|_| MulticastDrop::Malformed)?;
    let whole = packet.get(..carnet_wire::ipv6::HEADER_LEN + payload.len());
    match (whole, header.destination.is_multicast()) {
        (Some(packet), true) => Ok((header, packet)),
        _ => Err(MulticastDrop::Malformed),
    }
}

fn lower_hop_limit(packet: &mut [u8]) {
    if let Some(hop_limit) = packet.get_mut(HOP_LIMIT_OFFSET) {
        *hop_limit = hop_limit.saturating_sub(1);
    }
}
