//! IPv6 over GeoNetworking: the adaptation sublayer GN6ASL of EN 302 636-6-1, without I/O.
//!
//! Hosts see Ethernet interfaces; each interface is on a *virtual link*. A packet that a host sends on an
//! interface becomes a request to the GeoNetworking router. The host receives a packet that the router
//! delivers on the interface of its link:
//!
//! ```text
//!   host: gn0 (TVL)   gn1 (GVL of an area)   gn2 (dynamic GVL)
//!             \              |               /
//!              handle_host_frame   handle_delivery
//!                        |             ^
//!                        v             |
//!              Router::handle_request  Output::Deliver        next header 3, no Ethernet header
//! ```
//!
//! | IPv6 destination | GeoNetworking |
//! |---|---|
//! | unicast | GUC to the station of the destination MAC address |
//! | a group that is mapped to an area | GBC to that area, on whatever interface |
//! | a group made of a subnet's prefix (RFC 3306) | GBC to that subnet's area |
//! | any other group | GBC to the area of a geographic link, TSB on the topological one |
//! | geographic anycast: a subnet's prefix and the reserved identifier | GAC to that subnet's area |
//!
//! The host's own neighbour cache selects the next hop, so the MAC address alone maps a unicast packet. The
//! IPv6 destination of a routed packet does not name the next hop. The standard resolves the IPv6 address
//! (`itsGn6aslVIResolAddr`); the sublayer resolves it one step earlier. The host sends a Neighbor
//! Solicitation. If the interface identifier contains a MAC address, the sublayer answers the solicitation
//! (`discovery`) and sends nothing on the air. Other addresses (static, privacy, stable) use real Neighbor
//! Discovery, as broadcasts on their link.
//!
//! The sublayer accepts only addresses that GeoNetworking can confirm. Three addresses in a received packet
//! must not name another station than the sender. They are a link-local source address, the target of a
//! Neighbor Advertisement, and a link-layer address in Neighbor Discovery.
//!
//! **Where the standard is silent.** The sublayer delivers a packet to an area without a link on the dynamic
//! link. If the station has no dynamic link, the packet arrives on the topological link. The sublayer
//! delivers a packet to a mapped group always on the topological link, on which the host would also send to
//! this group. All interfaces have the same MAC address, so a link-local unicast address belongs to every
//! link. The sublayer delivers packets to such an address on the topological link.
//!
//! [`Ipv6Adaptation::handle_groups`] takes the areas that the management plane sets at run time
//! ([`crate::geo_destinations`]).
//!
//! A packet that is too large for the radio causes Packet Too Big, or the sublayer fragments it
//! ([`fragments`]), an extension.
//!
//! **Congestion marking** precedes loss, another extension. If more octets than `congestion_mark` wait at the
//! radio, the sublayer sets Congestion Experienced in host packets with ECT (RFC 3168 5, RFC 8311). The
//! sublayer never changes packets of other stations.
//!
//! Left out: compression. At run time only Router Advertisements create interfaces.

pub mod addresses;
mod discovery;
mod drop_reason;
pub mod fragments;
pub mod in_order;
mod incoming;
mod links;
mod outgoing;
pub mod patience;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};
use carnet_wire::geonet::{GeoArea, GnAddress};

pub use addresses::Prefix;
pub use drop_reason::Ipv6Drop;
use fragments::Fragments;
pub use incoming::HostDelivery;
use links::Ipv6Link;
pub use links::{LinkId, LinkKind, VirtualLink};
pub use outgoing::HostFrame;

use crate::MacAddress;

/// `itsGnMaxGeoNetworkingHeaderSize`: largest length of the headers before a payload, octets.
pub const MAX_GN_HEADER_SIZE: u32 = 88;
/// The smallest MTU of a link that carries IPv6 (RFC 8200 5).
pub const IPV6_MINIMUM_MTU: u32 = 1280;
/// Largest number of stored routers.
const MAX_ROUTERS: usize = 64;
/// Largest number of links that the sublayer creates at once. A router that advertises and withdraws a prefix
/// repeatedly must not keep the host busy with interfaces.
const LINK_CREATION_BURST: u32 = 64;
/// Interval after which the sublayer may create one more link.
const LINK_CREATION_INTERVAL: Duration = Duration::from_secs(2);
/// ECN field in the second octet of an IPv6 packet; both bits set mean CE.
const ECN_MASK: u8 = 0x30;
/// Largest length of an interface name, octets.
const MAX_INTERFACE_NAME_LENGTH: usize = 15;

/// Returns MTU_GN6 of EN 302 636-6-1: the largest IPv6 packet in octets, at least the minimum MTU of IPv6.
///
/// `max_sdu_size` is `itsGnMaxSduSize`; `link_mtu` is the largest frame payload of the radio, if known.
pub fn mtu(max_sdu_size: usize, link_mtu: Option<u32>) -> u32 {
    let sdu = u32::try_from(max_sdu_size).unwrap_or(u32::MAX);
    let link = link_mtu.map_or(u32::MAX, |mtu| mtu.saturating_sub(MAX_GN_HEADER_SIZE));
    sdu.min(link).max(IPV6_MINIMUM_MTU)
}

/// Returns the largest GeoNetworking payload on the link in octets, which may be less than the minimum MTU of
/// IPv6.
pub fn max_payload(max_sdu_size: usize, link_mtu: u32) -> usize {
    max_sdu_size.min(link_mtu.saturating_sub(MAX_GN_HEADER_SIZE) as usize)
}

/// An area to or from which IPv6 packets go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv6Area {
    /// Geometry of the area.
    pub area: GeoArea,
    /// Multicast group of all stations inside the area.
    pub group: Option<Ipv6Addr>,
    /// Subnet of the area. Packets to groups based on this prefix and to its geographic anycast address go to
    /// the area.
    pub prefix: Option<Prefix>,
    /// Interface on the link of this area (static GVL).
    pub interface: Option<String>,
}

/// Configuration of the sublayer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv6Config {
    /// The interface on the topological link.
    pub interface: String,
    /// Name of the interface on the dynamic geographic link; `None` for no such link.
    pub dynamic_interface: Option<String>,
    /// The areas for IPv6.
    pub areas: Vec<Ipv6Area>,
    /// Largest number of geographic links that Router Advertisements may create. The limit is needed, because
    /// advertisements have no authentication.
    pub learnt_links: usize,
    /// Hop limit of packets; `itsGnDefaultHopLimit` if `None`.
    pub hop_limit: Option<u8>,
    /// Largest IPv6 packet in octets, see [`mtu`].
    pub mtu: u32,
    /// Longest time for which a packet that has overtaken earlier packets waits for them, see [`in_order`].
    /// With zero, packets do not wait.
    pub reorder_wait: Duration,
    /// Rule that decides, by the hops of two packets, whether the later one has overtaken missing packets.
    pub reorder_rule: in_order::ReorderRule,
    /// Kind of packets that wait in the reordering buffer.
    pub reorder_hold: ReorderHold,
    /// Octets waiting at the radio above which the sublayer marks packets of the hosts; `None` for no marks.
    pub congestion_mark: Option<u32>,
    /// Whether the sublayer fragments packets that are too large for the radio, if the receiving station can
    /// reassemble them; see [`fragments`]. The interfaces then have an MTU of at least 1500 octets.
    pub fragments_large_packets: bool,
}

impl Ipv6Config {
    /// Returns the names of all interfaces that the sublayer may ever create.
    pub fn interfaces(&self) -> Vec<String> {
        let of_areas = self.areas.iter().filter_map(|area| area.interface.clone());
        let mut names: Vec<String> = [self.interface.clone()]
            .into_iter()
            .chain(self.dynamic_interface.clone())
            .chain(of_areas)
            .collect();
        if self.learnt_links > 0 {
            // A configured interface may already have a numbered name, so try one more number for each
            // configured name.
            let numbers = 1..=names.len() + self.learnt_links;
            names.extend(numbers.map(|number| numbered_interface_name(&self.interface, number)));
        }
        names
    }
}

/// Kind of packets that wait in the reordering buffer when packets of a source overtake each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReorderHold {
    /// Packets that have overtaken other packets wait: [`in_order`].
    #[default]
    Packets,
    /// Duplicate acknowledgements of the host's TCP wait: [`patience`].
    Acknowledgements,
}

/// Returns `base` with a number appended, shortened to the maximum length of an interface name.
fn numbered_interface_name(base: &str, number: usize) -> String {
    let suffix = format!("-{number}");
    let room = MAX_INTERFACE_NAME_LENGTH.saturating_sub(suffix.len());
    base.chars().take(room).collect::<String>() + &suffix
}

/// Action that the caller must perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Create this interface, or change it to these properties.
    Link(VirtualLink),
    /// Remove this interface.
    LinkGone(LinkId),
    /// Send a frame to the host.
    Frame {
        /// Interface of the frame.
        link: LinkId,
        /// Destination MAC address.
        destination: MacAddress,
        /// Source MAC address.
        source: MacAddress,
        /// The IPv6 packet.
        packet: Vec<u8>,
    },
}

/// Area whose link the sublayer created because of a Router Advertisement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedArea<'a> {
    /// Interface of the area.
    pub interface: &'a str,
    /// Geometry of the area.
    pub area: GeoArea,
    /// Subnets of the area.
    pub prefixes: Vec<Prefix>,
    /// Time at which the last advertised subnet of the area expires.
    pub expires: Time,
}

/// Counters of the sublayer.
#[derive(Debug, Clone)]
pub struct Counters {
    /// Number of packets of the host that the sublayer passed to GeoNetworking.
    pub sent_packets: u64,
    /// Number of received packets that the sublayer passed to the host.
    pub received_packets: u64,
    /// Number of host packets that did not need the radio: solicitations that the sublayer answered, and
    /// listener reports that no station needs.
    pub locally_answered_packets: u64,
    /// Number of host packets marked as Congestion Experienced.
    pub congestion_marked_packets: u64,
    /// Number of host packets that the sublayer fragmented.
    pub fragmented_packets: u64,
    /// Number of packets of other stations that the sublayer reassembled.
    pub reassembled_packets: u64,
    /// Number of packets that the sublayer could not reassemble: fragments were missing or contradicted each
    /// other.
    pub abandoned_packets: u64,
    dropped: [u64; Ipv6Drop::ALL.len()],
}

impl Counters {
    /// Returns the number of packets dropped for `reason`.
    pub fn dropped(&self, reason: Ipv6Drop) -> u64 {
        self.dropped[reason as usize]
    }
}

/// The sublayer. After each `handle_*` call, the caller calls [`Ipv6Adaptation::poll_output`] until it
/// returns `None`.
#[derive(Debug)]
pub struct Ipv6Adaptation {
    address: GnAddress,
    mtu: u32,
    hop_limit: Option<u8>,
    learnt_links: usize,
    link_creation_limiter: RateLimiter,
    configured_groups: BTreeMap<Ipv6Addr, GeoArea>,
    /// Areas of the groups that operators set at run time; `None` while the position of the area is unknown.
    operator_groups: BTreeMap<Ipv6Addr, Option<GeoArea>>,
    subnets: Vec<(Prefix, GeoArea)>,
    /// Virtual links; the first one is the topological link.
    links: Vec<Ipv6Link>,
    next_link_id: u32,
    /// Stations that sent Router Advertisements; the most recent one is the last.
    routers: VecDeque<MacAddress>,
    outputs: VecDeque<Output>,
    counters: Counters,
    congestion_mark: Option<u32>,
    /// Octets in the radio's queue, by the last report of the caller.
    radio_queue_octets: u32,
    /// Largest GeoNetworking payload in octets. It may be less than the minimum MTU of IPv6.
    max_payload_octets: usize,
    /// Fragments and reassembles packets. The sublayer stores the interface of each waiting packet, for a
    /// later Packet Too Big.
    fragments: Option<Fragments<LinkId>>,
}

impl Ipv6Adaptation {
    /// Creates the sublayer of the station with this address. The interfaces to create wait in
    /// [`Ipv6Adaptation::poll_output`].
    pub fn new(config: Ipv6Config, address: GnAddress) -> Ipv6Adaptation {
        let mut adaptation = Ipv6Adaptation {
            address,
            mtu: config.mtu,
            hop_limit: config.hop_limit,
            learnt_links: config.learnt_links,
            link_creation_limiter: RateLimiter::new(LINK_CREATION_BURST, LINK_CREATION_INTERVAL),
            configured_groups: BTreeMap::new(),
            operator_groups: BTreeMap::new(),
            subnets: Vec::new(),
            links: Vec::new(),
            next_link_id: 0,
            routers: VecDeque::new(),
            outputs: VecDeque::new(),
            counters: Counters {
                sent_packets: 0,
                received_packets: 0,
                locally_answered_packets: 0,
                congestion_marked_packets: 0,
                fragmented_packets: 0,
                reassembled_packets: 0,
                abandoned_packets: 0,
                dropped: [0; Ipv6Drop::ALL.len()],
            },
            congestion_mark: config.congestion_mark,
            radio_queue_octets: 0,
            max_payload_octets: config.mtu as usize,
            fragments: config.fragments_large_packets.then(Fragments::default),
        };
        adaptation.add_link(config.interface, LinkKind::Topological);
        if let Some(name) = config.dynamic_interface {
            adaptation.add_link(name, LinkKind::Dynamic);
        }
        for area in config.areas {
            if let Some(group) = area.group {
                adaptation.configured_groups.insert(group, area.area);
            }
            adaptation.subnets.extend(area.prefix.map(|prefix| (prefix, area.area)));
            if let Some(name) = area.interface {
                let at = adaptation.add_link(name, LinkKind::Geographic(area.area));
                if let (Some(link), Some(prefix)) = (adaptation.links.get_mut(at), area.prefix) {
                    link.add_prefix(prefix);
                }
            }
        }
        for at in 0..adaptation.links.len() {
            adaptation.announce_link(at);
        }
        adaptation
    }

    /// Returns the largest IPv6 packet that needs no fragmentation, octets.
    pub fn mtu(&self) -> u32 {
        let whole = if self.fragments.is_some() {
            self.max_payload_octets.min(self.mtu as usize)
        } else {
            self.mtu as usize
        };
        u32::try_from(whole).unwrap_or(self.mtu)
    }

    /// Returns the hop limit of packets; `None` for the default.
    pub fn hop_limit(&self) -> Option<u8> {
        self.hop_limit
    }

    /// Handles the number of octets waiting at the radio.
    pub fn handle_backlog(&mut self, octets: u32) {
        self.radio_queue_octets = octets;
    }

    /// Returns whether the sublayer may mark packets.
    pub fn may_mark_congestion(&self) -> bool {
        self.congestion_mark.is_some()
    }

    /// Returns the host's packet with the ECN mark Congestion Experienced. Returns `None` if the radio is not
    /// congested or the transport does not support ECN.
    ///
    /// RFC 3168 5: ECT(0) and ECT(1) may become CE; Not-ECT must not.
    pub fn mark_congestion(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        if self.radio_queue_octets < self.congestion_mark? {
            return None;
        }
        let &[_, second, ..] = packet else { return None };
        if second & ECN_MASK == 0 || second & ECN_MASK == ECN_MASK {
            return None;
        }
        self.counters.congestion_marked_packets += 1;
        let mut marked = packet.to_vec();
        marked[1] |= ECN_MASK;
        Some(marked)
    }

    /// Counts host packets that a fast path has sent and received.
    pub fn count_fast_path_packets(&mut self, sent: u64, received: u64) {
        self.counters.sent_packets += sent;
        self.counters.received_packets += received;
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the virtual links: identifier, interface name and kind.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, &str, &LinkKind)> {
        self.links.iter().map(|link| (link.id, link.name.as_str(), &link.kind))
    }

    /// Returns the areas from Router Advertisements, with their links.
    pub fn learned_areas(&self) -> impl Iterator<Item = LearnedArea<'_>> {
        self.links.iter().filter(|link| link.is_learnt).filter_map(|link| {
            let (interface, expires) = (link.name.as_str(), link.ends_at());
            Some(LearnedArea { interface, area: *link.area()?, prefixes: link.prefixes().collect(), expires })
        })
    }

    /// Returns the next action for the caller.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let expiries = self.links.iter().filter_map(Ipv6Link::next_expiry).filter(|due| *due < Time::MAX);
        expiries.chain(self.fragments.as_ref().and_then(Fragments::poll_timeout)).min()
    }

    /// Removes expired prefixes, and removes learned links whose last prefix has expired (VM_EVI_BV_01).
    pub fn handle_timeout(&mut self, now: Time) {
        let mut gone = Vec::new();
        self.links.retain_mut(|link| {
            let lives = link.expire_prefixes(now) || !link.is_learnt;
            if !lives {
                gone.push(Output::LinkGone(link.id));
            }
            lives
        });
        self.outputs.extend(gone);
        if let Some(fragments) = &mut self.fragments {
            fragments.handle_timeout(now);
            self.counters.abandoned_packets = fragments.abandoned_packets;
            self.answer_refused_packets();
        }
    }

    /// Restores the initial state and forgets Router Advertisements. Keeps counters and the addresses of the
    /// host.
    pub fn reset_to_initial(&mut self) {
        let learnt = self.links.iter().filter(|link| link.is_learnt);
        self.outputs.extend(learnt.map(|link| Output::LinkGone(link.id)));
        self.links.retain_mut(|link| {
            link.forget_learnt_prefixes();
            !link.is_learnt
        });
        self.routers.clear();
        self.fragments.iter_mut().for_each(Fragments::clear);
    }

    /// Handles a new GN address of the station. All virtual interfaces get the MAC address in it.
    pub fn handle_address(&mut self, address: GnAddress) {
        if std::mem::replace(&mut self.address, address).mid() != address.mid() {
            (0..self.links.len()).for_each(|at| self.announce_link(at));
        }
    }

    /// Handles a new limit for the length of IPv6 packets, in octets.
    pub fn handle_mtu(&mut self, mtu: u32) {
        if std::mem::replace(&mut self.mtu, mtu) != mtu {
            (0..self.links.len()).for_each(|at| self.announce_link(at));
        }
    }

    /// Handles a new limit for the length of a payload, in octets. It may be less than the minimum MTU of
    /// IPv6.
    pub fn handle_max_payload(&mut self, room: usize) {
        self.max_payload_octets = room;
    }

    /// Handles the addresses of the host on an interface, each with its prefix length.
    pub fn handle_addresses(&mut self, link: LinkId, addresses: Vec<(Ipv6Addr, u8)>) {
        if let Some(link) = self.links.iter_mut().find(|known| known.id == link) {
            link.set_addresses(addresses);
        }
    }

    /// Replaces the groups that operators set at run time, each with its area. The area is `None` while its
    /// position is unknown. For the same group, an area of the configuration takes precedence.
    pub fn handle_groups(&mut self, groups: impl Iterator<Item = (Ipv6Addr, Option<GeoArea>)>) {
        self.operator_groups.clear();
        self.operator_groups.extend(groups);
    }

    /// Returns whether the configuration has an area for a group.
    pub fn is_configured_group(&self, group: Ipv6Addr) -> bool {
        self.configured_groups.contains_key(&group)
    }

    /// Returns whether a group has an area: one of its own, or the area of its prefix.
    pub fn has_area_mapping(&self, group: Ipv6Addr) -> bool {
        self.has_group(group) || self.area_of_group(group).is_some()
    }

    /// Returns whether the configuration or an operator has set an area for a group.
    fn has_group(&self, group: Ipv6Addr) -> bool {
        self.configured_groups.contains_key(&group) || self.operator_groups.contains_key(&group)
    }

    /// Adds a link and returns its index in the list.
    fn add_link(&mut self, name: String, kind: LinkKind) -> usize {
        let id = LinkId(self.next_link_id);
        self.next_link_id = self.next_link_id.wrapping_add(1);
        self.links.push(Ipv6Link::new(id, name, kind));
        self.links.len() - 1
    }

    /// Outputs the properties of an interface.
    fn announce_link(&mut self, at: usize) {
        let Some(link) = self.links.get(at) else { return };
        self.outputs.push_back(Output::Link(VirtualLink {
            id: link.id,
            name: link.name.clone(),
            address: self.address.mid(),
            mtu: if self.fragments.is_some() { self.mtu.max(fragments::INTERFACE_MTU) } else { self.mtu },
            learned_from_advertisement: link.is_learnt,
        }));
    }

    fn index_of_link(&self, link: LinkId) -> Option<usize> {
        self.links.iter().position(|known| known.id == link)
    }

    fn count_drop(&mut self, reason: Ipv6Drop) {
        self.counters.dropped[reason as usize] += 1;
    }
}
