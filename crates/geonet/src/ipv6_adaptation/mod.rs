//! IPv6 over GeoNetworking: the adaptation sublayer GN6ASL of EN 302 636-6-1, without I/O.
//!
//! Hosts see Ethernet interfaces; behind each is a *virtual link*. A packet that a host puts into one becomes
//! a request to the GeoNetworking router. A packet that the router delivers comes out of the right one:
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
//! (`itsGn6aslVIResolAddr`); here that happens one step earlier. The host sends a Neighbor Solicitation. If
//! the interface identifier contains a MAC address, this module answers it (`discovery`) and sends nothing on
//! the air. Other addresses (static, privacy, stable) use real Neighbor Discovery, as broadcasts on their
//! link.
//!
//! The module accepts from the air only what GeoNetworking can confirm. Three addresses must be those of the
//! sending station. They are a link-local source that names a station, a link-layer address in Neighbor
//! Discovery, and the link-layer address given for an address that names a station.
//!
//! **Where the standard is silent.** A packet to an area without a link is delivered on the dynamic link. If
//! the station has none, the topological link delivers it. A packet to a mapped group is always delivered on
//! the topological link, on which it would also be sent. All interfaces have the same MAC address, so a
//! link-local unicast address belongs to every link; packets to it are delivered on the topological link.
//!
//! [`Adaptation::handle_groups`] takes the areas that the management plane sets at run time
//! ([`crate::geo_destinations`]).
//!
//! A packet that is too large for the radio causes Packet Too Big, or is fragmented ([`fragments`]), an
//! extension.
//! an extension.
//!
//! **Congestion marking** precedes loss, another extension. If more octets than `congestion_mark` wait at the
//! radio, packets of the host with ECT leave with Congestion Experienced (RFC 3168 5, RFC 8311). The module
//! never changes packets of other stations.
//!
//! Left out: interfaces made at run time by means other than Router Advertisements; compression.

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
pub use incoming::Placed;
use links::Link;
pub use links::{LinkId, LinkKind, VirtualLink};
pub use outgoing::HostFrame;

use crate::MacAddress;

/// `itsGnMaxGeoNetworkingHeaderSize`: what may stand before a payload, octets.
pub const MAX_GN_HEADER_SIZE: u32 = 88;
/// The smallest MTU of a link that carries IPv6 (RFC 8200 5).
pub const IPV6_MINIMUM_MTU: u32 = 1280;
/// Routers that are remembered as such.
const ROUTERS: usize = 64;
/// Largest number of links learnt at once, and the interval of each further one. A router that advertises and
/// withdraws a prefix repeatedly must not keep the host busy with interfaces.
const LEARNT_AT_ONCE: u32 = 64;
const LEARNING: Duration = Duration::from_secs(2);
/// The ECN field in the second octet of an IPv6 packet; all of it set is CE.
const ECN: u8 = 0x30;
/// Octets of an interface name.
const NAME_LENGTH: usize = 15;

/// MTU_GN6 of EN 302 636-6-1: the longest IPv6 packet, octets. Never less than IPv6 wants.
///
/// `max_sdu_size` is `itsGnMaxSduSize`; `link_mtu` what a frame of the radio carries, if that is known.
pub fn mtu(max_sdu_size: usize, link_mtu: Option<u32>) -> u32 {
    let sdu = u32::try_from(max_sdu_size).unwrap_or(u32::MAX);
    let link = link_mtu.map_or(u32::MAX, |mtu| mtu.saturating_sub(MAX_GN_HEADER_SIZE));
    sdu.min(link).max(IPV6_MINIMUM_MTU)
}

/// Returns the largest payload in octets on the link, which may be less than the minimum MTU of IPv6.
pub fn room(max_sdu_size: usize, link_mtu: u32) -> usize {
    max_sdu_size.min(link_mtu.saturating_sub(MAX_GN_HEADER_SIZE) as usize)
}

/// An area that IPv6 knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv6Area {
    /// Where it is.
    pub area: GeoArea,
    /// The multicast group of everybody inside.
    pub group: Option<Ipv6Addr>,
    /// The subnet of the area: groups and the geographic anycast address that are made of it lead there.
    pub prefix: Option<Prefix>,
    /// The interface on the area's own link (static GVL).
    pub interface: Option<String>,
}

/// Configuration of the sublayer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv6Config {
    /// The interface on the topological link.
    pub interface: String,
    /// The interface on the dynamic geographic link, if there shall be one.
    pub dynamic_interface: Option<String>,
    /// The areas that IPv6 knows.
    pub areas: Vec<Ipv6Area>,
    /// How many geographic links may be made because of Router Advertisements. Nothing authenticates these.
    pub learnt_links: usize,
    /// How many hops a packet goes; `itsGnDefaultHopLimit` if `None`.
    pub hop_limit: Option<u8>,
    /// The longest IPv6 packet, see [`mtu`].
    pub mtu: u32,
    /// How long a packet that has overtaken others may wait for them, see [`in_order`]; zero for not at all.
    pub reorder_wait: Duration,
    /// Which packets have, by their hops.
    pub reorder_rule: in_order::Rule,
    /// Packets that wait in the reordering buffer.
    pub reorder_hold: Hold,
    /// Octets that wait at the radio from which on packets of the hosts are marked; `None` marks none.
    pub congestion_mark: Option<u32>,
    /// Whether packets that are too large for the radio are fragmented for stations that can reassemble them,
    /// see [`fragments`]. Interfaces then have an MTU of at least 1500 octets.
    pub fragments: bool,
}

impl Ipv6Config {
    /// The names of all interfaces that there may ever be.
    pub fn interfaces(&self) -> Vec<String> {
        let of_areas = self.areas.iter().filter_map(|area| area.interface.clone());
        let mut names: Vec<String> = [self.interface.clone()]
            .into_iter()
            .chain(self.dynamic_interface.clone())
            .chain(of_areas)
            .collect();
        if self.learnt_links > 0 {
            // A number may be taken by a name of the configuration.
            let numbers = 1..=names.len() + self.learnt_links;
            names.extend(numbers.map(|number| numbered(&self.interface, number)));
        }
        names
    }
}

/// Packets that wait when packets have overtaken others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Hold {
    /// They do themselves: [`in_order`].
    #[default]
    Packets,
    /// Duplicate acknowledgements of the host's TCP: [`patience`].
    Acknowledgements,
}

/// The name of an interface with a number behind, cut to the length of such names.
fn numbered(base: &str, number: usize) -> String {
    let suffix = format!("-{number}");
    let room = NAME_LENGTH.saturating_sub(suffix.len());
    base.chars().take(room).collect::<String>() + &suffix
}

/// Action that the caller shall perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// There shall be this interface, or it shall be like this from now on.
    Link(VirtualLink),
    /// There shall no longer be this interface.
    LinkGone(LinkId),
    /// A frame for the host.
    Frame {
        /// Out of which interface.
        link: LinkId,
        /// Destination MAC address.
        destination: MacAddress,
        /// Source MAC address.
        source: MacAddress,
        /// The IPv6 packet.
        packet: Vec<u8>,
    },
}

/// An area that was learnt from a Router Advertisement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearntArea<'a> {
    /// The interface that was made for it.
    pub interface: &'a str,
    /// Where it is.
    pub area: GeoArea,
    /// Its subnets.
    pub prefixes: Vec<Prefix>,
    /// When the last of them runs out.
    pub expires: Time,
}

/// How often what happened.
#[derive(Debug, Clone)]
pub struct Counters {
    /// Packets of the host that became requests.
    pub sent: u64,
    /// Packets for the host.
    pub received: u64,
    /// Packets of the host that needed no transmission: solicitations answered here, and reports without a
    /// receiver.
    pub settled: u64,
    /// Packets of the host that left with Congestion Experienced.
    pub marked: u64,
    /// Packets of the host that were fragmented.
    pub cut: u64,
    /// Packets of other stations that were reassembled.
    pub joined: u64,
    /// Packets that were not reassembled: fragments were missing or contradicted each other.
    pub incomplete: u64,
    dropped: [u64; Ipv6Drop::ALL.len()],
}

impl Counters {
    /// How often packets died of `reason`.
    pub fn dropped(&self, reason: Ipv6Drop) -> u64 {
        self.dropped[reason as usize]
    }
}

/// The sublayer. After each `handle_*` call [`Adaptation::poll_output`] is called until it returns `None`.
#[derive(Debug)]
pub struct Adaptation {
    address: GnAddress,
    mtu: u32,
    hop_limit: Option<u8>,
    learnt_links: usize,
    learning: RateLimiter,
    groups: BTreeMap<Ipv6Addr, GeoArea>,
    /// Groups of areas that were set at run time; `None` while the position of the area is unknown.
    moving: BTreeMap<Ipv6Addr, Option<GeoArea>>,
    subnets: Vec<(Prefix, GeoArea)>,
    /// The topological link first.
    links: Vec<Link>,
    next_link: u32,
    /// Senders of Router Advertisements, the latest last.
    routers: VecDeque<MacAddress>,
    outputs: VecDeque<Output>,
    counters: Counters,
    congestion_mark: Option<u32>,
    /// Octets that wait at the radio, as last told.
    backlog: u32,
    /// Octets that a payload may have, even where that is less than IPv6 wants.
    room: usize,
    /// With the number of the interface, so that a host can be told that its packet was too large after all.
    fragments: Option<Fragments<LinkId>>,
}

impl Adaptation {
    /// The sublayer of the station with this address. The interfaces that it wants wait in
    /// [`Adaptation::poll_output`].
    pub fn new(config: Ipv6Config, address: GnAddress) -> Adaptation {
        let mut adaptation = Adaptation {
            address,
            mtu: config.mtu,
            hop_limit: config.hop_limit,
            learnt_links: config.learnt_links,
            learning: RateLimiter::new(LEARNT_AT_ONCE, LEARNING),
            groups: BTreeMap::new(),
            moving: BTreeMap::new(),
            subnets: Vec::new(),
            links: Vec::new(),
            next_link: 0,
            routers: VecDeque::new(),
            outputs: VecDeque::new(),
            counters: Counters {
                sent: 0,
                received: 0,
                settled: 0,
                marked: 0,
                cut: 0,
                joined: 0,
                incomplete: 0,
                dropped: [0; Ipv6Drop::ALL.len()],
            },
            congestion_mark: config.congestion_mark,
            backlog: 0,
            room: config.mtu as usize,
            fragments: config.fragments.then(Fragments::default),
        };
        adaptation.add_link(config.interface, LinkKind::Topological);
        if let Some(name) = config.dynamic_interface {
            adaptation.add_link(name, LinkKind::Dynamic);
        }
        for area in config.areas {
            if let Some(group) = area.group {
                adaptation.groups.insert(group, area.area);
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
            adaptation.announce(at);
        }
        adaptation
    }

    /// The longest IPv6 packet that goes as it is.
    pub fn mtu(&self) -> u32 {
        let whole =
            if self.fragments.is_some() { self.room.min(self.mtu as usize) } else { self.mtu as usize };
        u32::try_from(whole).unwrap_or(self.mtu)
    }

    /// How many hops a packet goes; `None` for the default.
    pub fn hop_limit(&self) -> Option<u8> {
        self.hop_limit
    }

    /// So many octets wait at the radio.
    pub fn handle_backlog(&mut self, octets: u32) {
        self.backlog = octets;
    }

    /// Whether packets may be marked.
    pub fn marks(&self) -> bool {
        self.congestion_mark.is_some()
    }

    /// The packet of a host with Congestion Experienced, where it is time for that and its transport can hear
    /// of it.
    ///
    /// RFC 3168 5: ECT(0) and ECT(1) may become CE, Not-ECT may not.
    pub fn mark(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        if self.backlog < self.congestion_mark? {
            return None;
        }
        let &[_, second, ..] = packet else { return None };
        if second & ECN == 0 || second & ECN == ECN {
            return None;
        }
        self.counters.marked += 1;
        let mut marked = packet.to_vec();
        marked[1] |= ECN;
        Some(marked)
    }

    /// A fast path has sent packets of the host, and has given packets to it.
    pub fn count_accelerated(&mut self, sent: u64, received: u64) {
        self.counters.sent += sent;
        self.counters.received += received;
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The virtual links: which, the name of the interface, what kind.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, &str, &LinkKind)> {
        self.links.iter().map(|link| (link.id, link.name.as_str(), &link.kind))
    }

    /// The areas that were learnt from Router Advertisements, with their links.
    pub fn learnt_areas(&self) -> impl Iterator<Item = LearntArea<'_>> {
        self.links.iter().filter(|link| link.learnt).filter_map(|link| {
            let (interface, expires) = (link.name.as_str(), link.lifetime());
            Some(LearntArea { interface, area: *link.area()?, prefixes: link.prefixes().collect(), expires })
        })
    }

    /// The next thing to be done.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let expiries = self.links.iter().filter_map(Link::next_expiry).filter(|due| *due < Time::MAX);
        expiries.chain(self.fragments.as_ref().and_then(Fragments::poll_timeout)).min()
    }

    /// Prefixes run out, and links that were learnt end with their last one (VM_EVI_BV_01).
    pub fn handle_timeout(&mut self, now: Time) {
        let mut gone = Vec::new();
        self.links.retain_mut(|link| {
            let lives = link.expire(now) || !link.learnt;
            if !lives {
                gone.push(Output::LinkGone(link.id));
            }
            lives
        });
        self.outputs.extend(gone);
        if let Some(fragments) = &mut self.fragments {
            fragments.handle_timeout(now);
            self.counters.incomplete = fragments.incomplete;
            self.refuse();
        }
    }

    /// The initial state, as after a start: what was learnt is forgotten. Counters stay, and so do the
    /// addresses that the host has.
    pub fn reset(&mut self) {
        let learnt = self.links.iter().filter(|link| link.learnt);
        self.outputs.extend(learnt.map(|link| Output::LinkGone(link.id)));
        self.links.retain_mut(|link| {
            link.forget();
            !link.learnt
        });
        self.routers.clear();
        self.fragments.iter_mut().for_each(Fragments::clear);
    }

    /// The station has another address from now on; so have its interfaces.
    pub fn handle_address(&mut self, address: GnAddress) {
        if std::mem::replace(&mut self.address, address).mid() != address.mid() {
            (0..self.links.len()).for_each(|at| self.announce(at));
        }
    }

    /// IPv6 packets may be this long from now on.
    pub fn handle_mtu(&mut self, mtu: u32) {
        if std::mem::replace(&mut self.mtu, mtu) != mtu {
            (0..self.links.len()).for_each(|at| self.announce(at));
        }
    }

    /// Handles a new largest payload, in octets, which may be less than the minimum MTU of IPv6.
    pub fn handle_room(&mut self, room: usize) {
        self.room = room;
    }

    /// The host has these addresses on an interface, each with its prefix length.
    pub fn handle_addresses(&mut self, link: LinkId, addresses: Vec<(Ipv6Addr, u8)>) {
        if let Some(link) = self.links.iter_mut().find(|known| known.id == link) {
            link.set_addresses(addresses);
        }
    }

    /// Handles the full list of groups of areas that were set at run time, with their areas; `None` while the
    /// position is unknown. The configuration of a group takes precedence.
    pub fn handle_groups(&mut self, groups: impl Iterator<Item = (Ipv6Addr, Option<GeoArea>)>) {
        self.moving.clear();
        self.moving.extend(groups);
    }

    /// Whether the configuration has an area for a group.
    pub fn is_configured(&self, group: Ipv6Addr) -> bool {
        self.groups.contains_key(&group)
    }

    /// Whether a group leads to an area, named or by the prefix that it is made of.
    pub fn is_mapped(&self, group: Ipv6Addr) -> bool {
        self.has_group(group) || self.area_of_group(group).is_some()
    }

    /// Whether a group has an area of its own.
    fn has_group(&self, group: Ipv6Addr) -> bool {
        self.groups.contains_key(&group) || self.moving.contains_key(&group)
    }

    /// Adds a link and returns its place in the list.
    fn add_link(&mut self, name: String, kind: LinkKind) -> usize {
        let id = LinkId(self.next_link);
        self.next_link = self.next_link.wrapping_add(1);
        self.links.push(Link::new(id, name, kind));
        self.links.len() - 1
    }

    /// Says what an interface shall be like.
    fn announce(&mut self, at: usize) {
        let Some(link) = self.links.get(at) else { return };
        self.outputs.push_back(Output::Link(VirtualLink {
            id: link.id,
            name: link.name.clone(),
            address: self.address.mid(),
            mtu: if self.fragments.is_some() { self.mtu.max(fragments::INTERFACE_MTU) } else { self.mtu },
            learnt: link.learnt,
        }));
    }

    fn position_of(&self, link: LinkId) -> Option<usize> {
        self.links.iter().position(|known| known.id == link)
    }

    fn count_drop(&mut self, reason: Ipv6Drop) {
        self.counters.dropped[reason as usize] += 1;
    }
}
