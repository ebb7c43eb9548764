//! The slow path: IPv6-in-IPv6 tunnelling (RFC 2473) between care-of addresses and home agents.
//!
//! Packets come from the tunnel device and go back into it; the kernel routes them to and from the wire. A
//! packet that is addressed to a tunnel's end is decapsulated after the checks of RFC 6275 10.4.5 and RFC
//! 3963 9 (outer source is the care-of address, inner source belongs to it); a packet from (mobile router)
//! or to (home agent) a mobile network is encapsulated. ECN follows RFC 6040, the outer flow label RFC 6438.
//!
//! Path MTU (RFC 2473 7): too large an inner packet is answered with Packet Too Big, but one of up to 1280
//! octets always passes, in outer fragments if need be. Packet Too Big about outer packets lowers the
//! tunnel's MTU for ten minutes and is passed on to the inner source at once.
//!
//! Left out: the Tunnel Encapsulation Limit option is understood but not sent (it would cost 8 octets);
//! nesting is bounded by counting headers instead.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{DropReason, RateLimiter, Rng, Time};
use carnet_wire::fragment::{FRAGMENT_HEADER_LEN, FragmentHeader};
use carnet_wire::icmpv6::{self, ErrorMessage};
use carnet_wire::ipv6::{HEADER_LEN, Header, MIN_MTU, protocol};
use ipnet::Ipv6Net;

use super::desired::{Tunnel, TunnelEnd};
use super::fragments::fragment;
use super::packet::PacketBuffer;
use super::prefix_table::PrefixTable;

/// Tunnel Hop Limit (RFC 2473 6.3, RFC 3963 5.5).
const TUNNEL_HOP_LIMIT: u8 = 64;
/// No more IPv6 headers than this inside each other: a routing loop would add them without end.
const MAX_NESTING: usize = 6;
/// Packet Too Big about one of the last so many packets that were cut is believed.
const RECENT_IDENTIFICATIONS: u32 = 4096;
/// How long a path MTU that was learnt is believed (RFC 8201 4).
const PATH_MTU_LIFETIME: Duration = Duration::from_secs(600);

carnet_base::drop_reasons! {
    /// Why the forwarder dropped a packet.
    pub enum TunnelDrop {
        /// Not IPv6, or shorter than its header says.
        Malformed = "malformed",
        /// From or to a mobile network that is not registered now.
        NotRegistered = "not_registered",
        /// Neither from nor to any mobile network, nor to a tunnel's end.
        NoTunnel = "no_tunnel",
        /// The outer source is not the care-of address of any binding (RFC 6275 10.4.5).
        OuterSource = "outer_source",
        /// The inner source does not belong to the binding (RFC 3963 9).
        InnerSource = "inner_source",
        /// The inner destination does not belong to the binding.
        InnerDestination = "inner_destination",
        /// Link-local or multicast: such packets stay on their link.
        Scope = "scope",
        /// Too large for the path; the sender was told.
        TooBig = "too_big",
        /// Too many IPv6 headers inside each other, or the tunnel's own packet come back.
        Nesting = "nesting",
        /// Congestion was marked on the outer header of a packet that cannot carry the mark (RFC 6040 4.2).
        Congestion = "congestion",
        /// A fragment that overlaps another, breaks the rules or exceeds the bounds.
        Fragment = "fragment",
        /// A protocol that nobody listens to at the tunnel's end.
        UpperLayer = "upper_layer",
    }
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The buffer holds what is to be written into the tunnel device.
    Forward,
    /// Nothing is left of it; whatever it caused comes out of the station's `poll_output`.
    Consumed,
    /// It was dropped, for a reason that a counter names.
    Dropped(&'static str),
}

impl From<TunnelDrop> for Verdict {
    fn from(reason: TunnelDrop) -> Verdict {
        Verdict::Dropped(reason.name())
    }
}

/// Local and remote end.
type Ends = (Ipv6Addr, Ipv6Addr);

/// What two ends carry: the bindings of all home addresses that share the care-of address.
#[derive(Debug, Default)]
struct Path {
    bindings: Vec<Tunnel>,
    /// Learnt from Packet Too Big, and until when it is believed.
    learnt_mtu: Option<(u32, Time)>,
}

impl Path {
    fn mtu(&self, now: Time) -> usize {
        let learnt = self.learnt_mtu.filter(|(_, until)| *until > now).map(|(mtu, _)| mtu);
        let configured = self.bindings.iter().map(|tunnel| tunnel.mtu).min();
        let mtu = learnt.into_iter().chain(configured).min();
        mtu.and_then(|mtu| usize::try_from(mtu).ok()).unwrap_or(MIN_MTU)
    }

    /// The binding that `address` belongs to.
    fn binding_of(&self, address: Ipv6Addr) -> Option<&Tunnel> {
        self.bindings.iter().find(|tunnel| tunnel.inner.iter().any(|prefix| prefix.contains(&address)))
    }
}

/// Counts of what the forwarder did.
#[derive(Debug, Default, Clone)]
pub struct ForwarderCounters {
    /// Inner packets that went into a tunnel.
    pub encapsulated: u64,
    /// Inner packets that came out of one.
    pub decapsulated: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<TunnelDrop, u64>,
}

/// The tunnels and what they did.
#[derive(Debug)]
pub struct Forwarder {
    paths: HashMap<Ends, Path>,
    /// Home agent: inner destination to tunnel.
    towards: PrefixTable<Ends>,
    /// Mobile router: inner source to tunnel.
    from: PrefixTable<Ends>,
    /// Mobile networks that this station serves, registered or not, and the address that speaks for it in
    /// error messages.
    served: PrefixTable<Ipv6Addr>,
    /// Makes outer flow labels unguessable, so that a quoted one proves that the packet was ours.
    secret: u64,
    /// Of the next packet that is cut.
    identification: u32,
    too_big: RateLimiter,
    errors: RateLimiter,
    outputs: VecDeque<Vec<u8>>,
    counters: ForwarderCounters,
}

impl Forwarder {
    /// A forwarder without tunnels. `rng` is drawn from once.
    pub fn new(rng: &mut Rng) -> Self {
        Forwarder {
            paths: HashMap::new(),
            towards: PrefixTable::new(),
            from: PrefixTable::new(),
            served: PrefixTable::new(),
            secret: rng.u64(),
            // RFC 7739: not from the same number at each start.
            identification: (rng.u64() >> 32) as u32,
            // Path MTU discovery of a whole fleet shall not wait behind answers to strangers.
            too_big: RateLimiter::new(200, Duration::from_millis(1)),
            errors: RateLimiter::new(50, Duration::from_millis(10)),
            outputs: VecDeque::new(),
            counters: ForwarderCounters::default(),
        }
    }

    /// Counts so far.
    pub fn counters(&self) -> &ForwarderCounters {
        &self.counters
    }

    /// A packet that the last one caused: an error message, or a fragment.
    pub fn poll_output(&mut self) -> Option<Vec<u8>> {
        self.outputs.pop_front()
    }

    /// Notes that `prefix` is a mobile network of this station; while it is not registered its packets are
    /// answered with Destination Unreachable from `speaker`.
    pub fn serve(&mut self, prefix: Ipv6Net, speaker: Ipv6Addr) {
        self.served.insert(prefix, speaker);
    }

    /// Forgets all that [`Self::serve`] noted.
    pub fn serve_nobody(&mut self) {
        self.served = PrefixTable::new();
    }

    /// Creates a tunnel, or replaces the one with the same ends and home address.
    pub fn set_tunnel(&mut self, tunnel: Tunnel) {
        let ends = (tunnel.local, tunnel.remote);
        let path = self.paths.entry(ends).or_default();
        let at = path.bindings.iter().position(|known| known.home_address == tunnel.home_address);
        let old = at.map(|at| path.bindings.swap_remove(at));
        let table = match tunnel.end {
            TunnelEnd::HomeAgent => &mut self.towards,
            TunnelEnd::MobileRouter => &mut self.from,
        };
        let used: &[Ipv6Net] = if tunnel.transmit { &tunnel.inner } else { &[] };
        for prefix in used {
            table.insert(*prefix, ends);
        }
        for prefix in old.iter().flat_map(|old| &old.inner).filter(|prefix| !used.contains(prefix)) {
            if table.get(*prefix) == Some(&ends) {
                table.remove(*prefix);
            }
        }
        path.bindings.push(tunnel);
    }

    /// Removes a tunnel.
    pub fn remove_tunnel(&mut self, tunnel: &Tunnel) {
        let ends = (tunnel.local, tunnel.remote);
        let Some(path) = self.paths.get_mut(&ends) else { return };
        let at = path.bindings.iter().position(|known| known.home_address == tunnel.home_address);
        let Some(old) = at.map(|at| path.bindings.swap_remove(at)) else { return };
        if path.bindings.is_empty() {
            self.paths.remove(&ends);
        }
        let table = match old.end {
            TunnelEnd::HomeAgent => &mut self.towards,
            TunnelEnd::MobileRouter => &mut self.from,
        };
        for prefix in &old.inner {
            // Another tunnel may have taken the prefix over already.
            if table.get(*prefix) == Some(&ends) {
                table.remove(*prefix);
            }
        }
    }

    /// All tunnels, with the MTU that applies now.
    pub fn tunnels(&self, now: Time) -> impl Iterator<Item = (&Tunnel, usize)> {
        self.paths.values().flat_map(move |path| {
            let mtu = path.mtu(now);
            path.bindings.iter().map(move |tunnel| (tunnel, mtu))
        })
    }

    /// Whether packets from `remote` to `local` come out of a tunnel.
    pub fn has_tunnel(&self, local: Ipv6Addr, remote: Ipv6Addr) -> bool {
        self.paths.contains_key(&(local, remote))
    }

    /// Encapsulates the packet in `buffer`, which is addressed to none of the station's own addresses.
    pub fn encapsulate(&mut self, now: Time, header: &Header, buffer: &mut PacketBuffer) -> Verdict {
        if header.destination.is_multicast()
            || header.destination.is_unicast_link_local()
            || header.source.is_unicast_link_local()
            || header.source.is_unspecified()
            || header.source.is_multicast()
        {
            return self.drop(TunnelDrop::Scope);
        }
        let ends = self.towards.lookup(header.destination).or_else(|| self.from.lookup(header.source));
        let Some(&ends) = ends else {
            return self.not_registered(now, header, buffer);
        };
        let Some(path) = self.paths.get(&ends) else {
            return self.drop(TunnelDrop::NoTunnel);
        };
        let (local, remote) = ends;
        // RFC 2473 4.1. A fragment of a packet of our own does not show how deep it is, and each round would cut it
        // again: two bindings with care-of addresses in each other's network must not become a fire.
        let own_fragment = header.source == local && header.next_header == protocol::FRAGMENT;
        let own = (header.source, header.destination) == ends;
        if own || own_fragment || nesting(buffer.as_slice()) >= MAX_NESTING {
            return self.drop(TunnelDrop::Nesting);
        }
        let mtu = path.mtu(now);
        let length = buffer.as_slice().len();
        if length > mtu.max(MIN_MTU) {
            let mtu = u32::try_from(mtu.max(MIN_MTU)).unwrap_or(u32::MAX);
            let speaker = self.speaker(header, local);
            self.error(now, speaker, ErrorMessage::PacketTooBig { mtu }, buffer.as_slice());
            return self.drop(TunnelDrop::TooBig);
        }
        let Ok(payload_length) = u16::try_from(length) else {
            return self.drop(TunnelDrop::TooBig);
        };
        let outer = Header {
            // RFC 6040 4.1, normal mode: the ECN field is copied; so is the DSCP (RFC 2983 uniform model).
            traffic_class: header.traffic_class,
            flow_label: self.flow_label(header),
            payload_length,
            next_header: protocol::IPV6,
            hop_limit: TUNNEL_HOP_LIMIT,
            source: local,
            destination: remote,
        };
        if !buffer.prepend(&outer.emit()) {
            return self.drop(TunnelDrop::TooBig);
        }
        self.counters.encapsulated += 1;
        if length > mtu {
            // RFC 2473 7.1 (b): at most 1280 octets inside, so the outer packet is cut.
            self.identification = self.identification.wrapping_add(1);
            self.outputs.extend(fragment(buffer.as_slice(), mtu + HEADER_LEN, self.identification));
            return Verdict::Consumed;
        }
        Verdict::Forward
    }

    /// Decapsulates the packet in `buffer`: IPv6 in IPv6, the inner packet at `offset`, addressed to a
    /// tunnel's end.
    ///
    /// # Errors
    /// [`TunnelDrop::OuterSource`] and its like, not yet counted, with the inner header where it was
    /// readable, so that the caller can tell the sender.
    pub fn decapsulate(
        &mut self,
        outer: &Header,
        offset: usize,
        buffer: &mut PacketBuffer,
    ) -> Result<(), (TunnelDrop, Option<Header>)> {
        let (inner, payload) = buffer
            .as_slice()
            .get(offset..)
            .and_then(|octets| Header::parse_packet(octets).ok())
            .ok_or((TunnelDrop::Malformed, None))?;
        let length = HEADER_LEN + payload.len();
        let refuse = |reason| Err((reason, Some(inner)));
        let Some(path) = self.paths.get(&(outer.destination, outer.source)) else {
            return refuse(TunnelDrop::OuterSource);
        };
        if inner.source.is_unspecified()
            || inner.source.is_multicast()
            || inner.source.is_unicast_link_local()
            || inner.source.is_loopback()
            || inner.destination.is_unicast_link_local()
            || inner.destination.is_multicast()
            || inner.destination.is_loopback()
        {
            return refuse(TunnelDrop::Scope);
        }
        let sender = path.binding_of(inner.source);
        match path.bindings.first().map(|tunnel| tunnel.end) {
            Some(TunnelEnd::HomeAgent) if sender.is_none() => return refuse(TunnelDrop::InnerSource),
            // Nobody outside sends from an address inside.
            Some(TunnelEnd::MobileRouter) if sender.is_some() => return refuse(TunnelDrop::InnerSource),
            Some(TunnelEnd::MobileRouter) if path.binding_of(inner.destination).is_none() => {
                return refuse(TunnelDrop::InnerDestination);
            }
            _ => {}
        }
        let Some(traffic_class) = decapsulated_traffic_class(outer.traffic_class, inner.traffic_class) else {
            return refuse(TunnelDrop::Congestion);
        };
        buffer.strip(offset, length);
        if traffic_class != inner.traffic_class
            && let Some(first) = buffer.as_mut_slice().get_mut(..HEADER_LEN)
        {
            first.copy_from_slice(&Header { traffic_class, ..inner }.emit());
        }
        self.counters.decapsulated += 1;
        Ok(())
    }

    /// An ICMPv6 error about an outer packet that `local` sent (RFC 2473 8). Packet Too Big lowers the MTU;
    /// unreachability and too large packets are passed on to the inner source as far as the message quotes
    /// the inner packet. True when it was about a tunnel.
    ///
    /// Anybody can send such a message; it is believed when what it quotes is ours: the outer flow label is a
    /// keyed hash of the inner header, and the identification of a fragment is one that was used lately.
    pub fn handle_error(&mut self, now: Time, local: Ipv6Addr, error: ErrorMessage, invoking: &[u8]) -> bool {
        let Ok(outer) = Header::parse(invoking) else { return false };
        if outer.source != local || !self.paths.contains_key(&(local, outer.destination)) {
            return false;
        }
        let Some(quoted) = self.quoted(&outer, invoking) else { return true };
        let inner = quoted.and_then(|octets| Header::parse(octets).ok());
        let relayed = match error {
            // RFC 8201 4: less than 1280 is no MTU, and must not be believed.
            ErrorMessage::PacketTooBig { mtu } if mtu < MIN_MTU as u32 => return true,
            ErrorMessage::PacketTooBig { mtu } => {
                let room = mtu - HEADER_LEN as u32;
                if let Some(path) = self.paths.get_mut(&(local, outer.destination))
                    && usize::try_from(room).is_ok_and(|room| room < path.mtu(now))
                {
                    path.learnt_mtu = Some((room, now + PATH_MTU_LIFETIME));
                }
                ErrorMessage::PacketTooBig { mtu: room.max(MIN_MTU as u32) }
            }
            // RFC 2473 8.3: whatever went wrong in the tunnel, the inner destination is out of reach.
            ErrorMessage::DestinationUnreachable { .. } | ErrorMessage::TimeExceeded { .. } => {
                ErrorMessage::DestinationUnreachable { code: 3 }
            }
            ErrorMessage::ParameterProblem { .. } => return true,
        };
        if let (Some(inner), Some(quoted)) = (inner, quoted) {
            let fits = usize::from(inner.payload_length) + HEADER_LEN <= MIN_MTU;
            if !(fits && matches!(relayed, ErrorMessage::PacketTooBig { .. })) {
                let speaker = self.speaker(&inner, local);
                self.error(now, speaker, relayed, quoted);
            }
        }
        true
    }

    /// The inner packet in a quoted outer one, as far as it is quoted: `Some(None)` for a later fragment. `None`
    /// when the quotation does not prove that the packet was ours.
    fn quoted<'a>(&self, outer: &Header, invoking: &'a [u8]) -> Option<Option<&'a [u8]>> {
        let rest = invoking.get(HEADER_LEN..)?;
        let inner = match outer.next_header {
            protocol::IPV6 => rest,
            protocol::FRAGMENT => {
                let fragment = FragmentHeader::parse(rest).ok()?;
                let age = self.identification.wrapping_sub(fragment.identification);
                if fragment.next_header != protocol::IPV6 || age > RECENT_IDENTIFICATIONS {
                    return None;
                }
                if fragment.is_later() {
                    return Some(None);
                }
                rest.get(FRAGMENT_HEADER_LEN..)?
            }
            _ => return None,
        };
        let header = Header::parse(inner).ok()?;
        (self.flow_label(&header) == outer.flow_label).then_some(Some(inner))
    }

    /// A flow label that spreads inner flows over equal paths (RFC 6438 3): a keyed hash of addresses and label.
    fn flow_label(&self, inner: &Header) -> u32 {
        let mut hash = self.secret;
        let label = u128::from(inner.flow_label);
        for word in [u128::from(inner.source), u128::from(inner.destination), label] {
            for half in [word as u64, (word >> 64) as u64] {
                hash = (hash ^ half).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                hash ^= hash >> 29;
            }
        }
        hash = hash.wrapping_add(self.secret.rotate_left(32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        // Zero would mean "not labelled".
        ((hash >> 44) as u32).max(1)
    }

    /// Counts a drop.
    pub fn drop(&mut self, reason: TunnelDrop) -> Verdict {
        *self.counters.dropped.entry(reason).or_default() += 1;
        Verdict::from(reason)
    }

    /// Sends an error message about `invoking`, if one may be sent and not too many were.
    pub fn error(&mut self, now: Time, source: Ipv6Addr, error: ErrorMessage, invoking: &[u8]) {
        let Ok(header) = Header::parse(invoking) else { return };
        let limiter = match error {
            ErrorMessage::PacketTooBig { .. } => &mut self.too_big,
            _ => &mut self.errors,
        };
        if icmpv6::may_answer_with(error, invoking) && limiter.allow(now) {
            self.outputs.push_back(icmpv6::error_packet(source, header.source, error, invoking));
        }
    }

    fn not_registered(&mut self, now: Time, header: &Header, buffer: &PacketBuffer) -> Verdict {
        let speaker = self.served.lookup(header.destination).or_else(|| self.served.lookup(header.source));
        let Some(&speaker) = speaker else {
            return self.drop(TunnelDrop::NoTunnel);
        };
        let unreachable = ErrorMessage::DestinationUnreachable { code: 3 };
        self.error(now, speaker, unreachable, buffer.as_slice());
        self.drop(TunnelDrop::NotRegistered)
    }

    /// The address from which this station speaks about a packet.
    fn speaker(&self, header: &Header, otherwise: Ipv6Addr) -> Ipv6Addr {
        self.served
            .lookup(header.destination)
            .or_else(|| self.served.lookup(header.source))
            .copied()
            .unwrap_or(otherwise)
    }
}

/// How many IPv6 headers stand at the front of a packet, one inside the other.
fn nesting(packet: &[u8]) -> usize {
    let mut rest = packet;
    let mut depth = 0;
    while let Ok(header) = Header::parse(rest) {
        depth += 1;
        if header.next_header != protocol::IPV6 || depth >= MAX_NESTING {
            break;
        }
        rest = rest.get(HEADER_LEN..).unwrap_or_default();
    }
    depth
}

/// The traffic class of the inner packet after decapsulation (RFC 6040 figure 4); `None` when the packet has
/// to be dropped.
fn decapsulated_traffic_class(outer: u8, inner: u8) -> Option<u8> {
    const NOT_ECT: u8 = 0b00;
    const ECT_1: u8 = 0b01;
    const CE: u8 = 0b11;
    let ecn = match (inner & CE, outer & CE) {
        (NOT_ECT, CE) => return None,
        (NOT_ECT, _) => NOT_ECT,
        (_, CE) => CE,
        (0b10, ECT_1) => ECT_1,
        (inner, _) => inner,
    };
    Some((inner & !CE) | ecn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Ipv6Addr {
        text.parse().expect("address")
    }

    fn tunnel(end: TunnelEnd, local: &str, remote: &str, transmit: bool) -> Tunnel {
        Tunnel {
            end,
            home_address: address("2001:db8:1::1234"),
            local: address(local),
            remote: address(remote),
            inner: vec!["2001:db8:a::/64".parse().expect("prefix")],
            transmit,
            mtu: 1460,
        }
    }

    fn packet(source: &str, destination: &str, length: usize) -> PacketBuffer {
        let header = Header {
            traffic_class: 0,
            flow_label: 5,
            payload_length: u16::try_from(length - HEADER_LEN).expect("fits"),
            next_header: protocol::NO_NEXT_HEADER,
            hop_limit: 63,
            source: address(source),
            destination: address(destination),
        };
        let mut buffer = PacketBuffer::new();
        let mut octets = header.emit().to_vec();
        octets.resize(length, 0xaa);
        buffer.copy_from(&octets);
        buffer
    }

    fn encapsulate(forwarder: &mut Forwarder, buffer: &mut PacketBuffer) -> Verdict {
        let header = Header::parse(buffer.as_slice()).expect("header");
        forwarder.encapsulate(Time::ZERO, &header, buffer)
    }

    fn decapsulate(forwarder: &mut Forwarder, buffer: &mut PacketBuffer) -> Result<(), TunnelDrop> {
        let header = Header::parse(buffer.as_slice()).expect("header");
        forwarder.decapsulate(&header, HEADER_LEN, buffer).map_err(|(reason, _)| reason)
    }

    fn pair() -> (Forwarder, Forwarder) {
        let (mut router, mut agent) = (Forwarder::new(&mut Rng::new(1)), Forwarder::new(&mut Rng::new(1)));
        router.set_tunnel(tunnel(TunnelEnd::MobileRouter, "2001:db8:f1::10", "2001:db8:1::1", true));
        agent.set_tunnel(tunnel(TunnelEnd::HomeAgent, "2001:db8:1::1", "2001:db8:f1::10", true));
        (router, agent)
    }

    #[test]
    fn what_goes_in_comes_out_in_both_directions() {
        let (mut router, mut agent) = pair();
        for (from, to, source, destination) in
            [(0, 1, "2001:db8:a::5", "2001:db8:99::1"), (1, 0, "2001:db8:99::1", "2001:db8:a::5")]
        {
            let ends = [&mut router, &mut agent];
            let mut buffer = packet(source, destination, 100);
            let before = buffer.as_slice().to_vec();
            assert_eq!(encapsulate(ends[from], &mut buffer), Verdict::Forward);
            let outer = Header::parse(buffer.as_slice()).expect("outer");
            assert_eq!((outer.next_header, outer.hop_limit), (protocol::IPV6, 64));
            assert_ne!(outer.flow_label, 0);
            assert_eq!(decapsulate(ends[to], &mut buffer), Ok(()));
            assert_eq!(buffer.as_slice(), before);
        }
        assert_eq!((router.counters.encapsulated, router.counters.decapsulated), (1, 1));
    }

    #[test]
    fn reverse_tunnel_checks() {
        let (_, mut agent) = pair();
        let mut forge = |outer_source: &str, inner_source: &str| {
            let mut other = Forwarder::new(&mut Rng::new(1));
            let mut forged = tunnel(TunnelEnd::MobileRouter, outer_source, "2001:db8:1::1", true);
            forged.inner = vec!["::/0".parse().expect("prefix")];
            other.set_tunnel(forged);
            let mut buffer = packet(inner_source, "2001:db8:99::1", 100);
            assert_eq!(encapsulate(&mut other, &mut buffer), Verdict::Forward);
            decapsulate(&mut agent, &mut buffer)
        };
        assert_eq!(forge("2001:db8:f1::10", "2001:db8:a::5"), Ok(()));
        assert_eq!(forge("2001:db8:f1::11", "2001:db8:a::5"), Err(TunnelDrop::OuterSource));
        assert_eq!(forge("2001:db8:f1::10", "2001:db8:b::5"), Err(TunnelDrop::InnerSource));
    }

    #[test]
    fn a_handover_is_one_replacement_and_the_old_path_is_still_heard() {
        let (_, mut agent) = pair();
        agent.set_tunnel(tunnel(TunnelEnd::HomeAgent, "2001:db8:1::1", "2001:db8:f2::10", true));
        agent.set_tunnel(tunnel(TunnelEnd::HomeAgent, "2001:db8:1::1", "2001:db8:f1::10", false));
        let mut buffer = packet("2001:db8:99::1", "2001:db8:a::5", 100);
        assert_eq!(encapsulate(&mut agent, &mut buffer), Verdict::Forward);
        let outer = Header::parse(buffer.as_slice()).expect("outer");
        assert_eq!(outer.destination, address("2001:db8:f2::10"));

        let mut late = Forwarder::new(&mut Rng::new(1));
        late.set_tunnel(tunnel(TunnelEnd::MobileRouter, "2001:db8:f1::10", "2001:db8:1::1", true));
        let mut buffer = packet("2001:db8:a::5", "2001:db8:99::1", 100);
        encapsulate(&mut late, &mut buffer);
        assert_eq!(decapsulate(&mut agent, &mut buffer), Ok(()));

        agent.remove_tunnel(&tunnel(TunnelEnd::HomeAgent, "2001:db8:1::1", "2001:db8:f1::10", false));
        let mut buffer = packet("2001:db8:99::1", "2001:db8:a::5", 100);
        assert_eq!(encapsulate(&mut agent, &mut buffer), Verdict::Forward, "the new path stays");
    }

    #[test]
    fn without_registration_the_sender_is_told() {
        let (mut router, _) = pair();
        router.remove_tunnel(&tunnel(TunnelEnd::MobileRouter, "2001:db8:f1::10", "2001:db8:1::1", true));
        router.serve("2001:db8:a::/64".parse().expect("prefix"), address("2001:db8:1::1234"));
        let mut buffer = packet("2001:db8:a::5", "2001:db8:99::1", 100);
        assert_eq!(encapsulate(&mut router, &mut buffer), Verdict::from(TunnelDrop::NotRegistered));
        let answer = router.poll_output().expect("an answer");
        let (header, message) = Header::parse_packet(&answer).expect("packet");
        assert_eq!(header.destination, address("2001:db8:a::5"));
        let (error, _) = icmpv6::parse_error(message).expect("error");
        assert_eq!(error, ErrorMessage::DestinationUnreachable { code: 3 });
        let mut stranger = packet("2001:db8:77::5", "2001:db8:99::1", 100);
        assert_eq!(encapsulate(&mut router, &mut stranger), Verdict::from(TunnelDrop::NoTunnel));
        assert_eq!(router.poll_output(), None);
    }

    #[test]
    fn path_mtu() {
        let (mut router, _) = pair();
        let too_big = |forwarder: &mut Forwarder| {
            let answer = forwarder.poll_output()?;
            let (_, message) = Header::parse_packet(&answer).ok()?;
            match icmpv6::parse_error(message).ok()?.0 {
                ErrorMessage::PacketTooBig { mtu } => Some(mtu),
                _ => None,
            }
        };
        let mut buffer = packet("2001:db8:a::5", "2001:db8:99::1", 1460);
        assert_eq!(encapsulate(&mut router, &mut buffer), Verdict::Forward);
        let outer = buffer.as_slice().to_vec();
        let mut buffer = packet("2001:db8:a::5", "2001:db8:99::1", 1461);
        assert_eq!(encapsulate(&mut router, &mut buffer), Verdict::from(TunnelDrop::TooBig));
        assert_eq!(too_big(&mut router), Some(1460));

        // A router on the way can only do 1300: the inner source hears 1280 (1260 would be below the
        // minimum) and packets up to 1280 pass in fragments.
        let local = address("2001:db8:f1::10");
        assert!(router.handle_error(Time::ZERO, local, ErrorMessage::PacketTooBig { mtu: 1300 }, &outer));
        assert_eq!(too_big(&mut router), Some(1280));
        let mut buffer = packet("2001:db8:a::5", "2001:db8:99::1", 1280);
        assert_eq!(encapsulate(&mut router, &mut buffer), Verdict::Consumed);
        let pieces: Vec<Vec<u8>> = std::iter::from_fn(|| router.poll_output()).collect();
        assert_eq!(pieces.len(), 2);
        assert!(pieces.iter().all(|p| p.len() <= 1300));
        let mut buffer = packet("2001:db8:a::5", "2001:db8:99::1", 1281);
        assert_eq!(encapsulate(&mut router, &mut buffer), Verdict::from(TunnelDrop::TooBig));

        // What was not ours teaches nothing.
        let mut forged = outer.clone();
        forged[48..64].copy_from_slice(&address("2001:db8:bad::1").octets());
        let (mut fresh, _) = pair();
        fresh.handle_error(Time::ZERO, local, ErrorMessage::PacketTooBig { mtu: 1280 }, &forged);
        let mut buffer = packet("2001:db8:a::5", "2001:db8:99::1", 1460);
        assert_eq!(encapsulate(&mut fresh, &mut buffer), Verdict::Forward);
    }

    #[test]
    fn a_shared_care_of_address_serves_every_binding_and_outlives_one() {
        let (_, mut agent) = pair();
        let mut second = tunnel(TunnelEnd::HomeAgent, "2001:db8:1::1", "2001:db8:f1::10", true);
        second.home_address = address("2001:db8:1::5678");
        second.inner = vec!["2001:db8:b::/64".parse().expect("prefix")];
        agent.set_tunnel(second.clone());
        let passes = |agent: &mut Forwarder, destination: &str| {
            let mut buffer = packet("2001:db8:99::1", destination, 100);
            encapsulate(agent, &mut buffer) == Verdict::Forward
        };
        assert!(passes(&mut agent, "2001:db8:a::5") && passes(&mut agent, "2001:db8:b::5"));
        agent.remove_tunnel(&second);
        assert!(passes(&mut agent, "2001:db8:a::5") && !passes(&mut agent, "2001:db8:b::5"));
    }

    #[test]
    fn packet_too_big_is_believed_only_about_our_own_packets() {
        let (mut router, _) = pair();
        let local = address("2001:db8:f1::10");
        let mut buffer = packet("2001:db8:a::5", "2001:db8:99::1", 1460);
        encapsulate(&mut router, &mut buffer);
        let outer = buffer.as_slice().to_vec();
        let mtu = |router: &Forwarder| router.tunnels(Time::ZERO).next().map(|(_, mtu)| mtu);
        let mut tell = |invoking: &[u8], mtu| {
            router.handle_error(Time::ZERO, local, ErrorMessage::PacketTooBig { mtu }, invoking);
        };
        tell(&outer, 1279); // less than the minimum is no MTU (RFC 8201 4)
        let mut label = outer.clone();
        label[3] ^= 1;
        tell(&label, 1300);
        let fragment_header =
            FragmentHeader { next_header: protocol::IPV6, offset: 1232, more: false, identification: 77 };
        let mut fragment = outer[..HEADER_LEN].to_vec();
        fragment[6] = protocol::FRAGMENT;
        fragment.extend_from_slice(&fragment_header.emit());
        tell(&fragment, 1300); // nothing was cut under this number
        assert_eq!(mtu(&router), Some(1460));
        router.handle_error(Time::ZERO, local, ErrorMessage::PacketTooBig { mtu: 1300 }, &outer);
        assert_eq!(mtu(&router), Some(1260));
    }

    #[test]
    fn a_fragment_of_our_own_is_not_wrapped_again() {
        let (mut router, _) = pair();
        router.from.insert(
            "2001:db8:f1::/64".parse().expect("prefix"),
            (address("2001:db8:f1::10"), address("2001:db8:1::1")),
        );
        let mut buffer = packet("2001:db8:f1::10", "2001:db8:99::1", 1280);
        buffer.as_mut_slice()[6] = protocol::FRAGMENT;
        assert_eq!(encapsulate(&mut router, &mut buffer), Verdict::from(TunnelDrop::Nesting));
    }

    #[test]
    fn loops_end() {
        let (mut router, _) = pair();
        let mut nested = tunnel(TunnelEnd::MobileRouter, "2001:db8:a::9", "2001:db8:1::1", true);
        nested.inner = vec!["2001:db8:b::/64".parse().expect("prefix")];
        router.set_tunnel(nested);
        let mut buffer = packet("2001:db8:a::5", "2001:db8:99::1", 100);
        let mut rounds = 0;
        loop {
            let header = Header::parse(buffer.as_slice()).expect("header");
            // The kernel routes the outer packet into the tunnel device again and again.
            let header = Header { source: address("2001:db8:a::5"), ..header };
            if router.encapsulate(Time::ZERO, &header, &mut buffer) != Verdict::Forward {
                break;
            }
            rounds += 1;
            let copy = buffer.as_slice().to_vec();
            buffer.copy_from(&copy);
        }
        assert!(rounds <= MAX_NESTING, "{rounds}");
    }

    #[test]
    fn explicit_congestion_notification() {
        let class = |outer, inner| decapsulated_traffic_class(outer, inner);
        assert_eq!(class(0b11, 0b1010_1010), Some(0b1010_1011));
        assert_eq!(class(0b11, 0b00), None);
        assert_eq!(class(0b00, 0b10), Some(0b10));
        assert_eq!(class(0b01, 0b10), Some(0b01));
        assert_eq!(class(0b10, 0b00), Some(0b00));
    }
}
