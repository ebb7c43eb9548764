//! The slow path: IPv6-in-IPv6 tunnelling (RFC 2473) between care-of addresses and home agents.
//!
//! Packets come from the tunnel device and go back into it; the kernel routes them to and from the wire. A
//! packet that is addressed to a tunnel's end is decapsulated after the checks of RFC 6275 10.4.5 and RFC
//! 3963 9 (outer source is the care-of address, inner source belongs to it); a packet from (mobile router)
//! or to (home agent) a mobile network is encapsulated. ECN follows RFC 6040, the outer flow label RFC 6438.
//!
//! Path MTU (RFC 2473 7): an inner packet that is larger than the tunnel's MTU is answered with Packet Too Big, but
//! one of up to 1280 octets always passes, in outer fragments if need be. Packet Too Big about an outer packet is
//! passed on to the inner source at once; what it says about the path is [`super::path_mtu`]'s to learn, which
//! sets the tunnel's MTU. The Maximum Segment Size of TCP connections is lowered to it on the way ([`super::mss`]).
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
use super::mss;
use super::packet::PacketBuffer;
use super::path_mtu::Ends;
use super::prefix_table::PrefixTable;

/// Tunnel Hop Limit (RFC 2473 6.3, RFC 3963 5.5): 64 on the wire. The kernel, which forwards what comes out of the
/// tunnel device, takes one off.
const TUNNEL_HOP_LIMIT: u8 = 64 + 1;
/// No more IPv6 headers than this inside each other: a routing loop would add them without end.
const MAX_NESTING: usize = 6;
/// Packet Too Big about one of the last so many packets that were cut is believed.
const RECENT_IDENTIFICATIONS: u32 = 4096;
/// Messages about packets that were not ours: after so many at once, and one more per interval, somebody is
/// guessing, and no Packet Too Big is believed for that interval (probing finds the path MTU without them).
const FORGERIES: u32 = 64;
const FORGERY_INTERVAL: Duration = Duration::from_secs(10);

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

/// What became of an ICMPv6 error message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorOutcome {
    /// It is about no tunnel.
    Foreign,
    /// It is about a tunnel; nothing more is to be done.
    Handled,
    /// Packet Too Big, provably about one of our packets: the path carries inner packets of so many octets.
    PathMtu(Ends, u32),
}

/// What two ends carry: the bindings of all home addresses that share the care-of address.
#[derive(Debug)]
struct Path {
    bindings: Vec<Tunnel>,
    /// The least of their MTUs.
    mtu: usize,
    /// Whether the next packet that goes in is to be reported.
    watched: bool,
    /// The identification of the last packet that was cut on this path.
    cut: Option<u32>,
}

impl Path {
    fn push(&mut self, tunnel: Tunnel) {
        self.bindings.push(tunnel);
        self.set_mtu();
    }

    /// The home agent's address.
    fn home_agent(&self, ends: Ends) -> Option<Ipv6Addr> {
        self.bindings.first().map(|tunnel| match tunnel.end {
            TunnelEnd::HomeAgent => ends.0,
            TunnelEnd::MobileRouter => ends.1,
        })
    }

    fn set_mtu(&mut self) {
        let mtu = self.bindings.iter().map(|tunnel| tunnel.mtu).min();
        self.mtu = mtu.and_then(|mtu| usize::try_from(mtu).ok()).unwrap_or(MIN_MTU);
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
    /// Of the next packet of our own that is cut inside the tunnel: others see these, and learn nothing of the ones
    /// outside.
    inner_identification: u32,
    too_big: RateLimiter,
    errors: RateLimiter,
    forgeries: RateLimiter,
    /// Until when no Packet Too Big is believed.
    doubtful_until: Time,
    /// Watched paths into which a packet went.
    used: Vec<Ends>,
    outputs: VecDeque<Vec<u8>>,
    counters: ForwarderCounters,
}

impl Forwarder {
    /// A forwarder without tunnels. `rng` is drawn from twice.
    pub fn new(rng: &mut Rng) -> Self {
        let secret = rng.u64();
        let identifications = rng.u64();
        Forwarder {
            paths: HashMap::new(),
            towards: PrefixTable::new(),
            from: PrefixTable::new(),
            served: PrefixTable::new(),
            secret,
            // RFC 7739: not from the same number at each start.
            identification: (identifications >> 32) as u32,
            inner_identification: identifications as u32,
            // Path MTU discovery of a whole fleet shall not wait behind answers to strangers.
            too_big: RateLimiter::new(200, Duration::from_millis(1)),
            forgeries: RateLimiter::new(FORGERIES, FORGERY_INTERVAL),
            doubtful_until: Time::ZERO,
            used: Vec::new(),
            errors: RateLimiter::new(50, Duration::from_millis(10)),
            outputs: VecDeque::new(),
            counters: ForwarderCounters::default(),
        }
    }

    /// Counts so far.
    pub fn counters(&self) -> &ForwarderCounters {
        &self.counters
    }

    /// The key of the hash that makes outer flow labels. A fast path computes the same ones, so that an ICMPv6 error
    /// about one of its packets is believed here.
    pub fn flow_label_key(&self) -> u64 {
        self.secret
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
        let path = self.paths.entry(ends).or_insert_with(|| Path {
            bindings: Vec::new(),
            mtu: MIN_MTU,
            watched: false,
            cut: None,
        });
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
        // Another home address with the same care-of address may have taken a prefix over.
        let elsewhere =
            |prefix: &Ipv6Net| path.bindings.iter().any(|b| b.transmit && b.inner.contains(prefix));
        for prefix in old.iter().flat_map(|old| &old.inner).filter(|prefix| !used.contains(prefix)) {
            if table.get(*prefix) == Some(&ends) && !elsewhere(prefix) {
                table.remove(*prefix);
            }
        }
        path.push(tunnel);
    }

    /// Removes a tunnel.
    pub fn remove_tunnel(&mut self, tunnel: &Tunnel) {
        let ends = (tunnel.local, tunnel.remote);
        let Some(path) = self.paths.get_mut(&ends) else { return };
        let at = path.bindings.iter().position(|known| known.home_address == tunnel.home_address);
        let Some(old) = at.map(|at| path.bindings.swap_remove(at)) else { return };
        path.set_mtu();
        let left: Vec<Ipv6Net> =
            path.bindings.iter().filter(|b| b.transmit).flat_map(|b| b.inner.iter().copied()).collect();
        if path.bindings.is_empty() {
            self.paths.remove(&ends);
        }
        let table = match old.end {
            TunnelEnd::HomeAgent => &mut self.towards,
            TunnelEnd::MobileRouter => &mut self.from,
        };
        for prefix in &old.inner {
            // Another tunnel may have taken the prefix over already.
            if table.get(*prefix) == Some(&ends) && !left.contains(prefix) {
                table.remove(*prefix);
            }
        }
    }

    /// All tunnels, with the MTU that applies.
    pub fn tunnels(&self) -> impl Iterator<Item = (&Tunnel, usize)> {
        self.paths.values().flat_map(|path| path.bindings.iter().map(|tunnel| (tunnel, path.mtu)))
    }

    /// Reports the next packet that goes into this tunnel through [`Self::poll_used`].
    pub fn watch(&mut self, ends: Ends) {
        if let Some(path) = self.paths.get_mut(&ends) {
            path.watched = true;
        }
    }

    /// A watched tunnel into which a packet went; it is no longer watched.
    pub fn poll_used(&mut self) -> Option<Ends> {
        self.used.pop()
    }

    /// Whether [`Self::poll_used`] has something.
    pub fn has_used(&self) -> bool {
        !self.used.is_empty()
    }

    /// The tunnel that takes packets for `destination`, at the home agent's end, and its MTU.
    pub fn tunnel_towards(&self, destination: Ipv6Addr) -> Option<(Ends, usize)> {
        let ends = *self.towards.lookup(destination)?;
        self.paths.get(&ends).map(|path| (ends, path.mtu))
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
        let Some(path) = self.paths.get_mut(&ends) else {
            return self.drop(TunnelDrop::NoTunnel);
        };
        let mtu = path.mtu;
        if path.watched {
            path.watched = false;
            self.used.push(ends);
        }
        let local = ends.0;
        // RFC 2473 4.1. A fragment of a packet of our own does not show how deep it is, and each round would cut it
        // again: two bindings with care-of addresses in each other's network must not become a fire.
        let own_fragment = header.source == local && header.next_header == protocol::FRAGMENT;
        let own = (header.source, header.destination) == ends;
        if own || own_fragment || nesting(buffer.as_slice()) >= MAX_NESTING {
            return self.drop(TunnelDrop::Nesting);
        }
        let length = buffer.as_slice().len();
        if length > mtu.max(MIN_MTU) {
            let mtu = u32::try_from(mtu.max(MIN_MTU)).unwrap_or(u32::MAX);
            let speaker = self.speaker(header, local);
            self.error(now, speaker, ErrorMessage::PacketTooBig { mtu }, buffer.as_slice());
            return self.drop(TunnelDrop::TooBig);
        }
        let Some(outer) = self.outer(ends, header, length) else {
            return self.drop(TunnelDrop::TooBig);
        };
        mss::clamp(buffer.as_mut_slice(), mtu);
        if !buffer.prepend(&outer.emit()) {
            return self.drop(TunnelDrop::TooBig);
        }
        self.counters.encapsulated += 1;
        if length > mtu {
            // RFC 2473 7.1 (b): at most 1280 octets inside, so the outer packet is cut.
            self.identification = self.identification.wrapping_add(1);
            self.outputs.extend(fragment(buffer.as_slice(), mtu + HEADER_LEN, self.identification));
            if let Some(path) = self.paths.get_mut(&ends) {
                path.cut = Some(self.identification);
            }
            return Verdict::Consumed;
        }
        Verdict::Forward
    }

    /// The outer header of an inner packet of `length` octets; `None` when that is too much for any.
    #[inline]
    fn outer(&self, ends: Ends, inner: &Header, length: usize) -> Option<Header> {
        Some(Header {
            // RFC 6040 4.1, normal mode: the ECN field is copied; so is the DSCP (RFC 2983 uniform model).
            traffic_class: inner.traffic_class,
            flow_label: self.flow_label(inner),
            payload_length: u16::try_from(length).ok()?,
            next_header: protocol::IPV6,
            hop_limit: TUNNEL_HOP_LIMIT,
            source: ends.0,
            destination: ends.1,
        })
    }

    /// Sends an inner packet of this station's own through a tunnel, uncut, whatever the MTU.
    pub fn send(&mut self, ends: Ends, inner: &[u8]) {
        let outer = Header::parse(inner).ok().and_then(|header| self.outer(ends, &header, inner.len()));
        if let Some(outer) = outer.filter(|_| self.paths.contains_key(&ends)) {
            self.outputs.push_back([&outer.emit(), inner].concat());
        }
    }

    /// As [`Self::send`], but in inner fragments where it does not fit; it is this station's own, so it may
    /// be cut at its source.
    pub fn send_in_fragments(&mut self, ends: Ends, mtu: usize, inner: &[u8]) {
        self.inner_identification = self.inner_identification.wrapping_add(1);
        for piece in fragment(inner, mtu, self.inner_identification) {
            self.send(ends, &piece);
        }
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
        let mtu = path.mtu;
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
        mss::clamp(buffer.as_mut_slice(), mtu);
        self.counters.decapsulated += 1;
        Ok(())
    }

    /// An ICMPv6 error about an outer packet that `local` sent (RFC 2473 8). Unreachability and too large packets are
    /// passed on to the inner source as far as the message quotes the inner packet; what Packet Too Big says about
    /// the path is the caller's to learn.
    ///
    /// Anybody can send such a message; it is believed when what it quotes is ours: the outer flow label is a
    /// keyed hash of the inner header, and the identification of a fragment is one that was used lately. Who sends
    /// many that are not is guessing.
    pub fn handle_error(
        &mut self,
        now: Time,
        local: Ipv6Addr,
        error: ErrorMessage,
        invoking: &[u8],
    ) -> ErrorOutcome {
        let Ok(outer) = Header::parse(invoking) else { return ErrorOutcome::Foreign };
        let ends = (local, outer.destination);
        let Some(path) = self.paths.get(&ends).filter(|_| outer.source == local) else {
            return ErrorOutcome::Foreign;
        };
        let Some(quoted) = self.quoted(&outer, invoking) else {
            if !self.forgeries.allow(now) {
                self.doubtful_until = now + FORGERY_INTERVAL;
            }
            return ErrorOutcome::Handled;
        };
        let inner = quoted.and_then(|octets| Header::parse(octets).ok());
        // What the two ends say to each other, such as probes, is nobody else's business.
        let own = inner.is_some_and(|inner| {
            let between = |end| inner.source == end || inner.destination == end;
            inner.next_header == protocol::ICMPV6 && path.home_agent(ends).is_some_and(between)
        });
        let (outcome, relayed) = match error {
            // RFC 8201 4: less than 1280 is no MTU, and must not be believed.
            ErrorMessage::PacketTooBig { mtu } if mtu < MIN_MTU as u32 || now < self.doubtful_until => {
                return ErrorOutcome::Handled;
            }
            ErrorMessage::PacketTooBig { mtu } => {
                let room = mtu - HEADER_LEN as u32;
                let relayed = ErrorMessage::PacketTooBig { mtu: room.max(MIN_MTU as u32) };
                (ErrorOutcome::PathMtu(ends, room), relayed)
            }
            // RFC 2473 8.3: whatever went wrong in the tunnel, the inner destination is out of reach.
            ErrorMessage::DestinationUnreachable { .. } | ErrorMessage::TimeExceeded { .. } => {
                (ErrorOutcome::Handled, ErrorMessage::DestinationUnreachable { code: 3 })
            }
            ErrorMessage::ParameterProblem { .. } => return ErrorOutcome::Handled,
        };
        if let (Some(inner), Some(quoted), false) = (inner, quoted, own) {
            let fits = usize::from(inner.payload_length) + HEADER_LEN <= MIN_MTU;
            if !(fits && matches!(relayed, ErrorMessage::PacketTooBig { .. })) {
                let speaker = self.speaker(&inner, local);
                self.error(now, speaker, relayed, quoted);
            }
        }
        outcome
    }

    /// The inner packet in a quoted outer one, as far as it is quoted: `Some(None)` for a later fragment. `None`
    /// when the quotation does not prove that the packet was ours.
    fn quoted<'a>(&self, outer: &Header, invoking: &'a [u8]) -> Option<Option<&'a [u8]>> {
        let rest = invoking.get(HEADER_LEN..)?;
        let inner = match outer.next_header {
            protocol::IPV6 => rest,
            protocol::FRAGMENT => {
                let fragment = FragmentHeader::parse(rest).ok()?;
                // Only where packets were cut, and about one of these.
                let last = self.paths.get(&(outer.source, outer.destination))?.cut?;
                let age = last.wrapping_sub(fragment.identification);
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
mod tests;
