//! The slow path: tunnelling of IPv6 and IPv4 in IPv6 (RFC 2473), in IPv4 and in UDP (RFC 5555) between
//! care-of addresses and home agents.
//!
//! Packets come from the tunnel device and go back into it; the kernel routes them to and from the wire. The
//! forwarder decapsulates a packet for the local address of a tunnel after the checks of RFC 6275 10.4.5 and
//! RFC 3963 9. The outer source must be the care-of address, and the inner source must belong to it. A mobile
//! router encapsulates packets from its mobile network, a home agent packets to a mobile network. ECN follows
//! RFC 6040, the outer flow label RFC 6438. Sockets carry the tunnels inside IPv4 and UDP: the forwarder
//! checks the inner packets and names the tunnel.
//!
//! [`super::distribution`] chooses among several tunnels. If a packet takes several tunnels at once, its
//! number is in a Destination Option of the outer header. IPv4 has no such option. So inside IPv4 a further
//! IPv6 header, between home address and home agent, carries the option. The receiver accepts the first copy
//! ([`super::duplicates`]).
//!
//! Path MTU (RFC 2473 7): the forwarder answers an inner packet above the tunnel's MTU with Packet Too Big. A
//! packet of up to 1280 octets always passes, in outer fragments if necessary. If a Packet Too Big about an
//! outer packet arrives, the forwarder passes it on to the inner source at once. [`super::path_mtu`] learns
//! the path MTU from this message, and sets the tunnel's MTU. The forwarder lowers the Maximum Segment Size
//! of TCP connections to that MTU ([`super::mss`]).
//!
//! An IPv4 packet of up to 576 octets always passes. The forwarder cuts a larger one to the tunnel's MTU if
//! it has no DF, so that the other end need not reassemble it. With DF it answers "fragmentation needed" (RFC
//! 1191 4).
//!
//! The module `encapsulation_limit` bounds the nesting of tunnels. Left out: if a packet takes several
//! tunnels, its copies carry no Tunnel Encapsulation Limit option.

use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{DropReason, Endpoint, RateLimiter, Rng, Time};
use carnet_mobility::SessionPeer;
use carnet_wire::extension::{
    ExtensionHeaders, SEQUENCE_OPTIONS_HEADER_LEN, emit_encapsulation_limit_options_header,
    emit_sequence_options_header,
};
use carnet_wire::icmpv6::{self, Icmpv6ErrorMessage};
use carnet_wire::ipv4;
use carnet_wire::ipv6::{HEADER_LEN, Header, MIN_MTU, protocol};
use foldhash::quality::FixedState;
use foldhash::{HashMap, HashMapExt};
use ipnet::Ipv6Net;

use super::desired::{Tunnel, TunnelEnd};
use super::distribution::{FlowDistributor, TunnelChoice};
use super::duplicates::{DuplicateCheck as Arrival, ReceiveWindow, packet_mark};
use super::fragments::cut_into_fragments;
use super::packet::PacketBuffer;
use super::path_mtu::TunnelEnds;
use super::prefix_table::{PrefixTable, SortedPrefixes};
use super::{first_host_address, inner_packet, mss};
use crate::drop_reason::TunnelDropReason;
use encapsulation_limit::is_nested_too_deep;
pub use tunnel_table::TunnelTraffic;
use tunnel_table::{BindingKey, BindingTunnels, PrefixTunnel, TunnelPath};

mod encapsulation_limit;
mod icmp_errors;
mod inner_addresses;
mod outer_header;
mod packet_relay;
mod tunnel_table;

/// Tunnel Hop Limit (RFC 2473 6.3, RFC 3963 5.5): 64 on the wire. The kernel decrements it when it forwards
/// the packet from the tunnel device.
const TUNNEL_HOP_LIMIT: u8 = 64 + 1;
/// Number of ICMPv6 errors without proof that the forwarder inspects at once: errors about packets that this
/// station has not sent. `FORGERY_INTERVAL` is the interval for each further one. Above this rate, an
/// attacker is probably guessing, so the forwarder ignores Packet Too Big for one interval. Probing finds the
/// path MTU without these messages.
const FORGERY_ERROR_BURST: u32 = 64;
const FORGERY_ERROR_INTERVAL: Duration = Duration::from_secs(10);
/// Number of bindings that may have a window for numbered packets (32 kB each) on request. Beyond it, only
/// home addresses with a duplicate rule get one. Otherwise a node that sends numbered packets from many home
/// addresses could fill the memory.
const MAX_RECEIVE_WINDOWS: usize = 1024;

/// Number of additional copies of the packets of one home address that one end may send at once. After that,
/// one copy is allowed for each interval.
const EXTRA_COPIES_BURST: u32 = 2_000;
const EXTRA_COPY_INTERVAL: Duration = Duration::from_micros(100);

/// State of a home address whose packets are duplicated.
#[derive(Debug)]
struct DuplicationState {
    /// Sequence number for the next packet that the forwarder duplicates.
    sequence: u32,
    copy_limit: RateLimiter,
}

impl Default for DuplicationState {
    fn default() -> DuplicationState {
        DuplicationState {
            sequence: 0,
            copy_limit: RateLimiter::new(EXTRA_COPIES_BURST, EXTRA_COPY_INTERVAL),
        }
    }
}

impl DuplicationState {
    fn next_sequence_number(&mut self) -> u32 {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        sequence
    }
}

/// Result of the forwarder's work on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardingVerdict {
    /// The buffer holds a packet to be written into the tunnel device.
    Forward,
    /// The buffer holds an inner packet to be sent inside IPv4 or UDP, or through an encrypted session. The
    /// outer header has its traffic class.
    Encapsulate {
        /// Local end of the tunnel.
        local: Endpoint,
        /// Remote end of the tunnel.
        remote: Endpoint,
        /// Whether routers may fragment the outer packet.
        may_fragment: bool,
        /// Remote key of the encrypted session that carries the packet; `None` in the clear.
        session: Option<SessionPeer>,
    },
    /// The forwarder has consumed the packet, and the buffer is empty. `poll_output` of the station returns
    /// the packets that result from it.
    Consumed,
    /// The forwarder has dropped the packet, and counted the drop by this reason.
    Dropped(&'static str),
}

impl From<TunnelDropReason> for ForwardingVerdict {
    fn from(reason: TunnelDropReason) -> ForwardingVerdict {
        ForwardingVerdict::Dropped(reason.name())
    }
}

/// Result of [`Forwarder::handle_icmp_error`] for an ICMPv6 error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpErrorOutcome {
    /// The error has no relation to a tunnel.
    Foreign,
    /// The error concerns a tunnel, and the forwarder has handled it. The caller need not do anything.
    Handled,
    /// The error is a Packet Too Big, provably about one of our packets: the path carries inner packets of
    /// this number of octets.
    PathMtu(TunnelEnds, u32),
    /// The error quotes a packet that this station has provably sent: the direct route is broken. The inner
    /// source gets no error, because the next packet takes the tunnel to the home agent.
    Broken(TunnelEnds),
    /// The error quotes a packet that this station has provably sent, and comes from the home agent at the
    /// other end of the tunnel. So the home agent refuses such packets.
    Refused(TunnelEnds),
}

/// Packet counters of the forwarder.
#[derive(Debug, Default, Clone)]
pub struct ForwarderCounters {
    /// Inner packets that went into a tunnel.
    pub encapsulated_packets: u64,
    /// Number of inner packets that the forwarder has taken out of tunnels.
    pub decapsulated_packets: u64,
    /// Inner packets that another home agent has relayed.
    pub relayed_packets: u64,
    /// Additional copies of duplicated packets that were sent.
    pub duplicated_packets: u64,
    /// Number of packets that matched a duplicate rule but were sent once. They are tunnel packets
    /// themselves, or the home address has reached its limit of copies.
    pub not_duplicated_packets: u64,
    /// Number of numbered packets that are older than the window, so that the forwarder cannot tell whether
    /// they are first copies.
    pub late_packets: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<TunnelDropReason, u64>,
}

/// A packet that the forwarder sends as a consequence of another packet: an error message, a fragment, or a
/// copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CausedPacket {
    /// Packet to be written into the tunnel device.
    Packet(Vec<u8>),
    /// Packet to be sent inside IPv4 or UDP, like a [`ForwardingVerdict::Encapsulate`].
    Encapsulated {
        /// Local and remote end of the tunnel.
        ends: TunnelEnds,
        /// The inner packet.
        packet: Vec<u8>,
        /// Whether routers may fragment the outer packet.
        may_fragment: bool,
        /// Remote key of the encrypted session that carries the packet; `None` in the clear.
        session: Option<SessionPeer>,
    },
}

/// Source of error messages about the packets of a mobile network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorSource {
    /// Router on board: the first host address of the prefix.
    RouterOnBoard,
    /// The address of this station with this number in [`Forwarder::station_addresses`].
    Station(u16),
}

/// The tunnels of a station and their counters.
#[derive(Debug)]
pub struct Forwarder {
    paths_by_ends: HashMap<TunnelEnds, TunnelPath>,
    bindings: HashMap<BindingKey, BindingTunnels>,
    /// Number of bindings that have a window of received numbers.
    receive_window_count: usize,
    /// State of duplication of each binding.
    duplication_states: HashMap<BindingKey, DuplicationState>,
    /// Tunnel of each inner destination prefix, for a home agent and direct routes.
    tunnel_by_prefix: PrefixTable<PrefixTunnel>,
    /// Tunnel of each inner source prefix, for a mobile router.
    tunnel_by_source_prefix: PrefixTable<PrefixTunnel>,
    /// Mobile networks of this station, registered or not. The value names the source of error messages about
    /// their packets.
    own_mobile_networks: SortedPrefixes<ErrorSource>,
    /// Addresses that [`ErrorSource::Station`] names.
    station_addresses: Vec<Ipv6Addr>,
    /// Mobile networks whose care-of addresses are untested, each with its home address.
    networks_under_care_of_test: PrefixTable<Ipv6Addr>,
    /// Prefixes in `networks_under_care_of_test`, by home address.
    prefixes_under_care_of_test: BTreeMap<Ipv6Addr, Vec<Ipv6Net>>,
    /// Secret key of the outer flow labels. A label cannot be guessed, so an ICMPv6 error that quotes the
    /// right one quotes a packet of this station.
    flow_label_key: u64,
    rng: Rng,
    /// Fragment identification of the next outer packet that the forwarder fragments.
    outer_fragment_identification: u32,
    /// Fragment identification of the next inner packet of this station itself. Hosts see these numbers and
    /// must not learn the outer ones, so they have a sequence of their own.
    inner_fragment_identification: u32,
    too_big_limiter: RateLimiter,
    error_limiter: RateLimiter,
    forgery_limiter: RateLimiter,
    /// Time until which the forwarder ignores Packet Too Big.
    ignore_too_big_until: Time,
    /// Watched tunnels that a packet has entered since the caller began to watch them.
    used_watched_tunnels: Vec<TunnelEnds>,
    caused_packets: VecDeque<CausedPacket>,
    counters: ForwarderCounters,
}

impl Forwarder {
    /// Creates a forwarder without tunnels. Takes two random numbers from `rng`.
    pub fn new(rng: &mut Rng) -> Self {
        let secret = rng.random_u64();
        let identifications = rng.random_u64();
        Forwarder {
            paths_by_ends: HashMap::new(),
            bindings: HashMap::new(),
            receive_window_count: 0,
            duplication_states: HashMap::new(),
            tunnel_by_prefix: PrefixTable::new(),
            tunnel_by_source_prefix: PrefixTable::new(),
            own_mobile_networks: SortedPrefixes::default(),
            station_addresses: Vec::new(),
            networks_under_care_of_test: PrefixTable::new(),
            prefixes_under_care_of_test: BTreeMap::new(),
            flow_label_key: secret,
            rng: Rng::new(!secret),
            // RFC 7739: identifications begin at a random number.
            outer_fragment_identification: (identifications >> 32) as u32,
            inner_fragment_identification: identifications as u32,
            // Path MTU discovery of a whole fleet causes more ICMPv6 errors per second than the limit for
            // other errors permits.
            too_big_limiter: RateLimiter::new(200, Duration::from_millis(1)),
            forgery_limiter: RateLimiter::new(FORGERY_ERROR_BURST, FORGERY_ERROR_INTERVAL),
            ignore_too_big_until: Time::ZERO,
            used_watched_tunnels: Vec::new(),
            error_limiter: RateLimiter::new(50, Duration::from_millis(10)),
            caused_packets: VecDeque::new(),
            counters: ForwarderCounters::default(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &ForwarderCounters {
        &self.counters
    }

    /// Returns the secret key of the outer flow labels. A fast path computes the same labels, so that the
    /// forwarder accepts errors about the fast path's packets.
    pub fn flow_label_key(&self) -> u64 {
        self.flow_label_key
    }

    /// Returns the next packet that resulted from the last handled one: an error message, a fragment or a
    /// copy. `None` if no packet is left.
    pub fn poll_output(&mut self) -> Option<CausedPacket> {
        self.caused_packets.pop_front()
    }

    /// Adds mobile networks of this station, each with the source address of error messages. While a prefix
    /// is not registered, the forwarder answers its packets with Destination Unreachable from this address.
    pub fn add_own_mobile_networks(&mut self, networks: impl IntoIterator<Item = (Ipv6Net, Ipv6Addr)>) {
        let addresses = &mut self.station_addresses;
        let with_source = networks.into_iter().map(|(prefix, source)| {
            if source == first_host_address(prefix) {
                return (prefix, ErrorSource::RouterOnBoard);
            }
            let known = addresses.iter().position(|known| *known == source);
            let number = known.unwrap_or_else(|| {
                addresses.push(source);
                addresses.len() - 1
            });
            (prefix, ErrorSource::Station(number as u16))
        });
        self.own_mobile_networks.add(with_source);
    }

    /// Removes all mobile networks added by [`Self::add_own_mobile_networks`].
    pub fn clear_own_mobile_networks(&mut self) {
        self.own_mobile_networks = SortedPrefixes::default();
        self.station_addresses.clear();
        self.networks_under_care_of_test = PrefixTable::new();
        self.prefixes_under_care_of_test.clear();
    }

    /// Makes the forwarder drop packets to these prefixes without an ICMPv6 error while no tunnel exists for
    /// them. The home agent uses this while it tests a care-of address. Replaces the prefixes of an earlier
    /// call for this home address.
    pub fn set_networks_under_care_of_test(
        &mut self,
        home_address: Ipv6Addr,
        prefixes: impl IntoIterator<Item = Ipv6Net>,
    ) {
        for prefix in self.prefixes_under_care_of_test.remove(&home_address).into_iter().flatten() {
            if self.networks_under_care_of_test.get(prefix) == Some(&home_address) {
                self.networks_under_care_of_test.remove(prefix);
            }
        }
        let prefixes: Vec<Ipv6Net> = prefixes.into_iter().collect();
        for prefix in &prefixes {
            self.networks_under_care_of_test.insert(*prefix, home_address);
        }
        if !prefixes.is_empty() {
            self.prefixes_under_care_of_test.insert(home_address, prefixes);
        }
    }

    /// Returns all tunnels, each with the MTU of its path.
    pub fn tunnels(&self) -> impl Iterator<Item = (&Tunnel, usize)> {
        self.paths_by_ends
            .values()
            .flat_map(|path| path.tunnels_of_bindings.as_slice().iter().map(|tunnel| (&**tunnel, path.mtu)))
    }

    /// Returns the traffic counters of this tunnel on the slow path. A fast path counts its own packets.
    pub fn traffic_of_tunnel(&self, ends: TunnelEnds) -> TunnelTraffic {
        self.paths_by_ends.get(&ends).map(|path| path.traffic).unwrap_or_default()
    }

    /// Makes [`Self::poll_used_tunnel`] report the next packet that enters this tunnel.
    pub fn watch_for_next_packet(&mut self, ends: TunnelEnds) {
        if let Some(path) = self.paths_by_ends.get_mut(&ends) {
            path.is_watched = true;
        }
    }

    /// Returns a watched tunnel that a packet has entered, and stops watching this tunnel; `None` if no
    /// packet has entered one.
    pub fn poll_used_tunnel(&mut self) -> Option<TunnelEnds> {
        self.used_watched_tunnels.pop()
    }

    /// Returns whether [`Self::poll_used_tunnel`] has a tunnel to report.
    pub fn has_used_watched_tunnel(&self) -> bool {
        !self.used_watched_tunnels.is_empty()
    }

    /// Returns the tunnel for packets to `destination`, at a home agent's end, and the tunnel's MTU; `None`
    /// without such a tunnel.
    pub fn tunnel_towards(&self, destination: Ipv6Addr) -> Option<(TunnelEnds, usize)> {
        let ends = self.tunnel_by_prefix.lookup(destination)?.to_packet_sender().ends;
        self.paths_by_ends.get(&ends).map(|path| (ends, path.mtu))
    }

    /// Returns this station's role at the end of a tunnel; `None` for an unknown tunnel.
    pub fn tunnel_end_of(&self, ends: TunnelEnds) -> Option<TunnelEnd> {
        self.paths_by_ends.get(&ends)?.tunnels_of_bindings.as_slice().first().map(|tunnel| tunnel.end)
    }

    /// Returns whether a tunnel in IPv6 accepts packets from `remote` to `local`.
    pub fn has_tunnel(&self, local: Ipv6Addr, remote: Ipv6Addr) -> bool {
        self.paths_by_ends.contains_key(&(local.into(), remote.into()))
    }

    /// Encapsulates the packet in `buffer`, which is not addressed to this station. The header of an IPv4
    /// packet has IPv4-mapped addresses.
    pub fn encapsulate(
        &mut self,
        now: Time,
        header: &Header,
        buffer: &mut PacketBuffer,
    ) -> ForwardingVerdict {
        let packet = buffer.as_slice();
        if !inner_packet::is_routable(header, packet) {
            return self.count_drop(TunnelDropReason::Scope);
        }
        let (sender, end) = match self.tunnel_by_prefix.lookup(header.destination) {
            Some(leading) => (leading.to_packet_sender(), TunnelEnd::HomeAgent),
            None => match self.tunnel_by_source_prefix.lookup(header.source) {
                Some(leading) => (leading.to_packet_sender(), TunnelEnd::MobileRouter),
                None => return self.handle_packet_without_binding(now, header, buffer),
            },
        };
        let limit = encapsulation_limit::encapsulation_limit_of(header, packet);
        let min_mtu = inner_packet::min_mtu(packet);
        if let Some((0, offset)) = limit {
            // RFC 2473 4.1.1 (b): the Parameter Problem points at the option.
            let pointer = u32::try_from(offset).unwrap_or(u32::MAX);
            let speaker = self.error_source_address(header, sender.home_address);
            self.send_error(now, speaker, Icmpv6ErrorMessage::ParameterProblem { code: 0, pointer }, packet);
            return self.count_drop(TunnelDropReason::Nesting);
        }
        let mut ends = sender.ends;
        if sender.has_flow_distribution {
            match self.choose_tunnels(now, (end, sender.home_address), header, packet) {
                TunnelChoice::One(chosen) => ends = chosen,
                TunnelChoice::All(all) => {
                    let name = (end, sender.home_address);
                    if self.may_duplicate(now, name, all.len(), header, packet) {
                        return self.send_duplicates(now, name, &all, header, buffer);
                    }
                    self.counters.not_duplicated_packets += 1;
                    ends = all.first().copied().unwrap_or(ends);
                }
                TunnelChoice::None => {}
            }
        }
        let Some(path) = self.paths_by_ends.get_mut(&ends) else {
            return self.count_drop(TunnelDropReason::NoTunnel);
        };
        let mtu = path.mtu;
        if path.is_watched {
            path.is_watched = false;
            self.used_watched_tunnels.push(ends);
        }
        if is_loop(ends, header, packet) || is_nested_too_deep(packet) {
            return self.count_drop(TunnelDropReason::Nesting);
        }
        let length = packet.len();
        // The Tunnel Encapsulation Limit option needs an outer IPv6 header. IPv4 tunnels and encrypted
        // sessions cannot carry it.
        let session = path.session_of(sender.home_address);
        let limit = limit.filter(|_| ends.0.ipv6().is_some() && session.is_none());
        let option =
            limit.map(|(limit, _)| emit_encapsulation_limit_options_header(protocol::IPV6, limit - 1));
        let (whole, mtu) = (mtu, mtu.saturating_sub(option.map_or(0, |option| option.len())));
        if length > mtu.max(min_mtu) {
            if inner_packet::may_fragment(packet) {
                return self.send_inner_fragments((ends, session), mtu, header, packet);
            }
            return self.reply_packet_too_big(now, mtu, sender.home_address, header, buffer);
        }
        let (Endpoint::Ipv6(local), Endpoint::Ipv6(remote), None) = (ends.0, ends.1, session) else {
            path.traffic.count_sent(length);
            mss::clamp_mss(buffer.as_mut_slice(), mtu);
            self.counters.encapsulated_packets += 1;
            // RFC 4213 3.2.2: an inner packet of the minimum size must pass even if it exceeds the MTU.
            // Routers may then fragment the outer packet.
            let may_fragment = length > mtu;
            return ForwardingVerdict::Encapsulate { local: ends.0, remote: ends.1, may_fragment, session };
        };
        let outer_length = length + option.map_or(0, |option| option.len());
        let Some(mut outer) =
            outer_header::outer_header(self.flow_label_key, (local, remote), header, outer_length)
        else {
            return self.count_drop(TunnelDropReason::TooBig);
        };
        outer.next_header = inner_packet::protocol_of(packet);
        mss::clamp_mss(buffer.as_mut_slice(), mtu);
        if let Some(option) = option {
            outer.next_header = protocol::DESTINATION_OPTIONS;
            if !buffer.prepend(&option) {
                return self.count_drop(TunnelDropReason::TooBig);
            }
        }
        if !buffer.prepend(&outer.emit()) {
            return self.count_drop(TunnelDropReason::TooBig);
        }
        path.traffic.count_sent(length);
        self.counters.encapsulated_packets += 1;
        if length > mtu {
            self.send_outer_fragments(ends, whole, buffer.as_slice());
            return ForwardingVerdict::Consumed;
        }
        ForwardingVerdict::Forward
    }

    /// Sends an IPv4 packet without DF in fragments that fit the tunnel. Every router may cut such a packet.
    fn send_inner_fragments(
        &mut self,
        (ends, session): (TunnelEnds, Option<SessionPeer>),
        mtu: usize,
        header: &Header,
        packet: &[u8],
    ) -> ForwardingVerdict {
        let pieces = ipv4::split_into_fragments(packet, mtu.max(inner_packet::min_mtu(packet)));
        if pieces.is_empty() {
            return self.count_drop(TunnelDropReason::TooBig);
        }
        if let Some(path) = self.paths_by_ends.get_mut(&ends) {
            path.traffic.count_sent(packet.len());
        }
        for piece in pieces {
            self.send_own_ipv4_packet((ends, session), header, &piece, piece.len() > mtu);
        }
        self.counters.encapsulated_packets += 1;
        ForwardingVerdict::Consumed
    }

    /// Sends an outer packet in fragments: RFC 2473 7.1 (b), for inner packets of at most 1280 octets.
    fn send_outer_fragments(&mut self, ends: TunnelEnds, mtu: usize, outer: &[u8]) {
        self.outer_fragment_identification = self.outer_fragment_identification.wrapping_add(1);
        let pieces = cut_into_fragments(outer, mtu + HEADER_LEN, self.outer_fragment_identification);
        self.caused_packets.extend(pieces.into_iter().map(CausedPacket::Packet));
        if let Some(path) = self.paths_by_ends.get_mut(&ends) {
            path.last_fragment_identification = Some(self.outer_fragment_identification);
        }
    }

    fn choose_tunnels(
        &mut self,
        now: Time,
        name: BindingKey,
        header: &Header,
        packet: &[u8],
    ) -> TunnelChoice {
        let paths = &self.paths_by_ends;
        let distributor = self.bindings.get_mut(&name).and_then(BindingTunnels::distributor_mut);
        distributor.map_or(TunnelChoice::None, |distributor| {
            distributor.choose_tunnels(now, header, packet, |ends| paths.contains_key(ends))
        })
    }

    /// Returns whether a packet may be copied into `tunnels` tunnels. A node chooses by its registrations
    /// where copies go, and every sender to its mobile network causes them. If copies were copied again, they
    /// would multiply at each level. So packets of a tunnel that ends here, and numbered packets, are not
    /// copied. The rate of copies is limited as well.
    fn may_duplicate(
        &mut self,
        now: Time,
        name: BindingKey,
        tunnels: usize,
        header: &Header,
        packet: &[u8],
    ) -> bool {
        let end = |address| Endpoint::from(inner_packet::address_in_packet_family(address, packet));
        let ends: TunnelEnds = (end(header.source), end(header.destination));
        if self.paths_by_ends.contains_key(&ends) || has_sequence_number(header, packet) {
            return false;
        }
        let further = u32::try_from(tunnels.saturating_sub(1)).unwrap_or(u32::MAX);
        self.duplication_states.entry(name).or_default().copy_limit.try_take_tokens(now, further)
    }

    /// Sends a packet into several tunnels at once.
    fn send_duplicates(
        &mut self,
        now: Time,
        name: BindingKey,
        all: &[TunnelEnds],
        header: &Header,
        buffer: &mut PacketBuffer,
    ) -> ForwardingVerdict {
        // A copy also contains the number of the packet. Each copy must fit the smallest MTU of all tunnels.
        let room = |ends: &TunnelEnds| {
            self.paths_by_ends
                .get(ends)
                .map(|path| path.mtu.saturating_sub(extra_header_octets(*ends, path.session_of(name.1))))
        };
        let Some(mtu) = all.iter().filter_map(room).min() else {
            return self.count_drop(TunnelDropReason::NoTunnel);
        };
        if all.iter().any(|ends| is_loop(*ends, header, buffer.as_slice()))
            || is_nested_too_deep(buffer.as_slice())
        {
            return self.count_drop(TunnelDropReason::Nesting);
        }
        let min_mtu = inner_packet::min_mtu(buffer.as_slice());
        let is_too_long = buffer.as_slice().len() > mtu.max(min_mtu);
        if is_too_long && !inner_packet::may_fragment(buffer.as_slice()) {
            return self.reply_packet_too_big(now, mtu, name.1, header, buffer);
        }
        mss::clamp_mss(buffer.as_mut_slice(), mtu);
        let Some(binding) = self.bindings.get(&name) else {
            return self.count_drop(TunnelDropReason::NoTunnel);
        };
        let home_agent = binding.home_agent();
        let between = match name {
            (TunnelEnd::MobileRouter, home_address) => (home_address, home_agent),
            (TunnelEnd::HomeAgent | TunnelEnd::Direct, home_address) => (home_agent, home_address),
        };
        let pieces = match is_too_long {
            true => ipv4::split_into_fragments(buffer.as_slice(), mtu.max(min_mtu)),
            false => Vec::new(),
        };
        let whole = [buffer.as_slice()].into_iter().filter(|_| !is_too_long);
        for packet in whole.chain(pieces.iter().map(Vec::as_slice)) {
            let sequence = self.duplication_states.entry(name).or_default().next_sequence_number();
            for ends in all {
                self.send_with_sequence_number((*ends, name.1), between, sequence, header, packet);
            }
        }
        self.counters.encapsulated_packets += 1;
        self.counters.duplicated_packets += all.len().saturating_sub(1) as u64;
        ForwardingVerdict::Consumed
    }

    /// Sends one copy of a numbered packet into a tunnel. Inside IPv4 the copy gets an IPv6 header with the
    /// addresses `between`.
    fn send_with_sequence_number(
        &mut self,
        (ends, home_address): (TunnelEnds, Ipv6Addr),
        between: (Ipv6Addr, Ipv6Addr),
        sequence: u32,
        header: &Header,
        inner: &[u8],
    ) {
        let Some(path) = self.paths_by_ends.get_mut(&ends) else { return };
        if std::mem::take(&mut path.is_watched) {
            self.used_watched_tunnels.push(ends);
        }
        path.traffic.count_sent(inner.len());
        let mtu = path.mtu;
        let session = path.session_of(home_address);
        let length = inner.len() + SEQUENCE_OPTIONS_HEADER_LEN;
        let between = match ends {
            (Endpoint::Ipv6(local), Endpoint::Ipv6(remote)) => (local, remote),
            _ => between,
        };
        let Some(outer) = outer_header::outer_header(self.flow_label_key, between, header, length) else {
            return;
        };
        let outer = Header { next_header: protocol::DESTINATION_OPTIONS, ..outer };
        let option = emit_sequence_options_header(inner_packet::protocol_of(inner), sequence);
        let packet = [&outer.emit()[..], &option, inner].concat();
        let fits = inner.len() + extra_header_octets(ends, session) <= mtu;
        if ends.0.ipv6().is_none() || session.is_some() {
            self.caused_packets.push_back(CausedPacket::Encapsulated {
                ends,
                packet,
                may_fragment: !fits,
                session,
            });
        } else if fits {
            self.caused_packets.push_back(CausedPacket::Packet(packet));
        } else {
            self.send_outer_fragments(ends, mtu, &packet);
        }
    }

    fn reply_packet_too_big(
        &mut self,
        now: Time,
        mtu: usize,
        otherwise: Ipv6Addr,
        header: &Header,
        buffer: &PacketBuffer,
    ) -> ForwardingVerdict {
        let mtu = u32::try_from(mtu.max(inner_packet::min_mtu(buffer.as_slice()))).unwrap_or(u32::MAX);
        let speaker = self.error_source_address(header, otherwise);
        self.send_error(now, speaker, Icmpv6ErrorMessage::PacketTooBig { mtu }, buffer.as_slice());
        self.count_drop(TunnelDropReason::TooBig)
    }

    /// Sends, through a tunnel, an inner packet whose source is this station. The packet is not fragmented,
    /// regardless of the MTU.
    pub fn send_own_packet(&mut self, ends: TunnelEnds, inner: &[u8]) {
        let Some(path) = self.paths_by_ends.get(&ends) else { return };
        let header = Header::parse(inner).ok();
        let session = path.session_towards(header.as_ref().map(|header| header.destination));
        let (Endpoint::Ipv6(local), Endpoint::Ipv6(remote), None) = (ends.0, ends.1, session) else {
            let packet = inner.to_vec();
            // A packet of up to 1280 octets must pass in any case. If it exceeds the MTU of this session's
            // path, routers may fragment the outer datagram.
            let may_fragment = session.is_some() && inner.len() <= MIN_MTU && inner.len() > path.mtu;
            self.caused_packets.push_back(CausedPacket::Encapsulated { ends, packet, may_fragment, session });
            return;
        };
        if let Some(outer) = header.and_then(|header| {
            outer_header::outer_header(self.flow_label_key, (local, remote), &header, inner.len())
        }) {
            self.caused_packets.push_back(CausedPacket::Packet([&outer.emit(), inner].concat()));
        }
    }

    /// Sends an IPv4 packet through a tunnel. `header` is the header of the packet of which it is a fragment.
    fn send_own_ipv4_packet(
        &mut self,
        (ends, session): (TunnelEnds, Option<SessionPeer>),
        header: &Header,
        inner: &[u8],
        may_fragment: bool,
    ) {
        let (Endpoint::Ipv6(local), Endpoint::Ipv6(remote), None) = (ends.0, ends.1, session) else {
            let packet = inner.to_vec();
            self.caused_packets.push_back(CausedPacket::Encapsulated { ends, packet, may_fragment, session });
            return;
        };
        let Some(outer) =
            outer_header::outer_header(self.flow_label_key, (local, remote), header, inner.len())
        else {
            return;
        };
        let outer = Header { next_header: protocol::IPV4, ..outer };
        let packet = [&outer.emit(), inner].concat();
        match (may_fragment, self.paths_by_ends.get(&ends).map(|path| path.mtu)) {
            (true, Some(mtu)) => self.send_outer_fragments(ends, mtu, &packet),
            _ => self.caused_packets.push_back(CausedPacket::Packet(packet)),
        }
    }

    /// Sends through a tunnel an inner packet of this station itself. If the packet exceeds `mtu`, fragments
    /// it, which only the source of a packet may do.
    pub fn send_in_fragments(&mut self, ends: TunnelEnds, mtu: usize, inner: &[u8]) {
        self.inner_fragment_identification = self.inner_fragment_identification.wrapping_add(1);
        for piece in cut_into_fragments(inner, mtu, self.inner_fragment_identification) {
            self.send_own_packet(ends, &piece);
        }
    }

    /// Takes the inner packet, at `offset`, out of the packet in `buffer` that arrived in the clear between
    /// `ends`. `traffic_class` is that of the outer header, `sequence` the packet's number.
    ///
    /// # Errors
    ///
    /// Returns the reason of the drop, such as [`TunnelDropReason::OuterSource`]; the caller counts it. If
    /// the inner header is readable, the error contains it, so that the caller can answer the sender.
    pub fn decapsulate(
        &mut self,
        ends: TunnelEnds,
        traffic_class: u8,
        sequence: Option<u32>,
        offset: usize,
        buffer: &mut PacketBuffer,
    ) -> Result<(), (TunnelDropReason, Option<Header>)> {
        self.decapsulate_from(None, ends, traffic_class, sequence, offset, buffer)
    }

    /// Takes the inner packet out of a packet that came out of the encrypted session of this remote key, or
    /// in the clear; see [`Self::decapsulate`].
    ///
    /// # Errors
    ///
    /// As [`Self::decapsulate`], and [`TunnelDropReason::NotInSession`] if the binding's session is another
    /// one.
    pub fn decapsulate_from(
        &mut self,
        session: Option<SessionPeer>,
        ends: TunnelEnds,
        traffic_class: u8,
        sequence: Option<u32>,
        offset: usize,
        buffer: &mut PacketBuffer,
    ) -> Result<(), (TunnelDropReason, Option<Header>)> {
        let packet = buffer.as_slice().get(offset..).unwrap_or_default();
        let (inner, length) = inner_packet::parse(packet).map_err(|_| (TunnelDropReason::Malformed, None))?;
        let refuse = |reason| Err((reason, Some(inner)));
        let Some(path) = self.paths_by_ends.get(&ends) else {
            return refuse(TunnelDropReason::OuterSource);
        };
        if !inner_packet::is_routable(&inner, packet) {
            return refuse(TunnelDropReason::Scope);
        }
        let mtu = path.mtu;
        let name = match inner_addresses::binding_of(path, &self.own_mobile_networks, &inner) {
            Ok(name) => name,
            Err(reason) => return refuse(reason),
        };
        if path.session_of(name.1) != session {
            return Err((TunnelDropReason::NotInSession, None));
        }
        let Some(traffic_class) = decapsulated_traffic_class(traffic_class, inner.traffic_class) else {
            return refuse(TunnelDropReason::Congestion);
        };
        if let Some(sequence) = sequence {
            let packet = buffer.as_slice().get(offset..offset + length).unwrap_or_default();
            match self.record_arrival(name, sequence, packet) {
                Arrival::First => {}
                Arrival::Further => {
                    // Count the copy as a packet of the tunnel that carried it.
                    if let Some(path) = self.paths_by_ends.get_mut(&ends) {
                        path.traffic.count_received(length);
                    }
                    return refuse(TunnelDropReason::Duplicate);
                }
                Arrival::Late => self.counters.late_packets += 1,
            }
        }
        strip_outer_headers(buffer, offset, length, &inner, traffic_class);
        mss::clamp_mss(buffer.as_mut_slice(), mtu);
        self.counters.decapsulated_packets += 1;
        if let Some(path) = self.paths_by_ends.get_mut(&ends) {
            path.traffic.count_received(length);
        }
        Ok(())
    }

    /// Records the number of a packet of which several copies may arrive.
    fn record_arrival(&mut self, name: BindingKey, sequence: u32, packet: &[u8]) -> Arrival {
        let mark = packet_mark(FixedState::with_seed(self.flow_label_key).hash_one(packet));
        let Some(binding) = self.bindings.get_mut(&name) else { return Arrival::First };
        if let Some(window) = binding.receive_window_mut() {
            return window.record_packet(sequence, mark);
        }
        if binding.distributor().is_some_and(FlowDistributor::has_duplicating_rule)
            || self.receive_window_count < MAX_RECEIVE_WINDOWS
        {
            binding.start_receive_window(ReceiveWindow::new_with_first(sequence, mark));
            self.receive_window_count += 1;
        }
        Arrival::First
    }

    /// Counts a dropped packet by its reason, and returns the verdict.
    pub fn count_drop(&mut self, reason: TunnelDropReason) -> ForwardingVerdict {
        *self.counters.dropped.entry(reason).or_default() += 1;
        ForwardingVerdict::from(reason)
    }

    /// Sends an ICMPv6 error about the packet `invoking`, or the corresponding ICMP error about an IPv4
    /// packet. Sends none if RFC 4443 or RFC 1122 forbids it, or if the rate limit is reached.
    pub fn send_error(&mut self, now: Time, source: Ipv6Addr, error: Icmpv6ErrorMessage, invoking: &[u8]) {
        let limiter = match error {
            Icmpv6ErrorMessage::PacketTooBig { .. } => &mut self.too_big_limiter,
            _ => &mut self.error_limiter,
        };
        if inner_packet::is_ipv4(invoking) {
            let message =
                inner_packet::icmp_error(source, error, invoking).filter(|_| limiter.try_take_token(now));
            self.caused_packets.extend(message.map(CausedPacket::Packet));
            return;
        }
        let Ok(header) = Header::parse(invoking) else { return };
        if icmpv6::may_send_error(error, invoking) && limiter.try_take_token(now) {
            let message = icmpv6::error_packet(source, header.source, error, invoking);
            self.caused_packets.push_back(CausedPacket::Packet(message));
        }
    }

    fn handle_packet_without_binding(
        &mut self,
        now: Time,
        header: &Header,
        buffer: &PacketBuffer,
    ) -> ForwardingVerdict {
        if self.networks_under_care_of_test.lookup(header.destination).is_some() {
            return self.count_drop(TunnelDropReason::Untested);
        }
        let Some(source) = self.own_error_source(header) else {
            return self.count_drop(TunnelDropReason::NoTunnel);
        };
        let unreachable = Icmpv6ErrorMessage::DestinationUnreachable { code: 3 };
        self.send_error(now, source, unreachable, buffer.as_slice());
        self.count_drop(TunnelDropReason::NotRegistered)
    }

    /// Returns the source address of error messages about a packet; `otherwise` if the packet is neither from
    /// nor to a mobile network of this station.
    fn error_source_address(&self, header: &Header, otherwise: Ipv6Addr) -> Ipv6Addr {
        self.own_error_source(header).unwrap_or(otherwise)
    }

    /// Returns the source address of error messages about a packet to or from a mobile network of this
    /// station; `None` for another packet.
    fn own_error_source(&self, header: &Header) -> Option<Ipv6Addr> {
        let networks = &self.own_mobile_networks;
        let (prefix, source) =
            networks.lookup(header.destination).or_else(|| networks.lookup(header.source))?;
        match source {
            ErrorSource::RouterOnBoard => Some(first_host_address(prefix)),
            ErrorSource::Station(number) => self.station_addresses.get(usize::from(*number)).copied(),
        }
    }
}

/// Cuts the buffer to the inner packet of `length` octets at `offset`, and gives it this traffic class.
fn strip_outer_headers(
    buffer: &mut PacketBuffer,
    offset: usize,
    length: usize,
    inner: &Header,
    traffic_class: u8,
) {
    buffer.strip_front(offset, length);
    if traffic_class != inner.traffic_class {
        inner_packet::set_traffic_class(buffer.as_mut_slice(), inner, traffic_class);
    }
}

/// Returns whether encapsulation would be a loop (RFC 2473 4.1). The packet is then an outer packet of this
/// tunnel, or a fragment of one, that has come back. A fragment does not show how deep its packet is nested,
/// and each round would fragment it again. So two bindings whose care-of addresses are in each other's
/// network do not multiply packets.
#[inline]
fn is_loop(ends: TunnelEnds, header: &Header, packet: &[u8]) -> bool {
    if inner_packet::is_ipv4(packet) {
        return inner_packet::is_between(ends, header, packet);
    }
    let own_fragment = ends.0 == header.source && header.next_header == protocol::FRAGMENT;
    own_fragment || (ends.0 == header.source && ends.1 == header.destination)
}

/// Returns whether a packet has a number, so that it is one of several copies, of any tunnel. A fragment
/// shows only that a Destination Options header follows.
fn has_sequence_number(header: &Header, packet: &[u8]) -> bool {
    match header.next_header {
        _ if inner_packet::is_ipv4(packet) => false,
        protocol::DESTINATION_OPTIONS => {
            ExtensionHeaders::parse(packet).is_ok_and(|extensions| extensions.sequence.is_some())
        }
        protocol::FRAGMENT => packet.get(HEADER_LEN) == Some(&protocol::DESTINATION_OPTIONS),
        _ => false,
    }
}

/// Returns the octets that the sequence number of a duplicated packet adds to the encapsulation. Inside IPv4
/// or in a session the number also needs an IPv6 header.
fn extra_header_octets(ends: TunnelEnds, session: Option<SessionPeer>) -> usize {
    match ends.0 {
        Endpoint::Ipv6(_) if session.is_none() => SEQUENCE_OPTIONS_HEADER_LEN,
        Endpoint::Ipv6(_) | Endpoint::Ipv4(_) | Endpoint::Udp(_) => HEADER_LEN + SEQUENCE_OPTIONS_HEADER_LEN,
    }
}

/// Returns the traffic class of the inner packet after decapsulation (RFC 6040 figure 4); `None` if the
/// packet must be dropped.
fn decapsulated_traffic_class(outer: u8, inner: u8) -> Option<u8> {
    const NOT_ECT: u8 = 0b00;
    const ECT_1: u8 = 0b01;
    const ECN_CE: u8 = 0b11;
    let ecn = match (inner & ECN_CE, outer & ECN_CE) {
        (NOT_ECT, ECN_CE) => return None,
        (NOT_ECT, _) => NOT_ECT,
        (_, ECN_CE) => ECN_CE,
        (0b10, ECT_1) => ECT_1,
        (inner, _) => inner,
    };
    Some((inner & !ECN_CE) | ecn)
}

#[cfg(test)]
mod tests;
