//! ICMPv6 errors about outer packets (RFC 2473 8).

use std::net::Ipv6Addr;

use carnet_base::{Endpoint, Time};
use carnet_wire::extension::SEQUENCE_OPTIONS_HEADER_LEN;
use carnet_wire::fragment::{FRAGMENT_HEADER_LEN, FragmentHeader};
use carnet_wire::icmpv6::Icmpv6ErrorMessage;
use carnet_wire::ipv6::{HEADER_LEN, Header, MIN_MTU, protocol, tunnel_flow_label};

use super::{FORGERY_ERROR_INTERVAL, Forwarder, IcmpErrorOutcome};
use crate::forwarding::desired::TunnelEnd;
use crate::forwarding::inner_packet;
use crate::forwarding::path_mtu::TunnelEnds;

/// Number of most recent identifications of fragmented packets about which the forwarder accepts Packet Too
/// Big.
const RECENT_FRAGMENT_IDENTIFICATION_COUNT: u32 = 4096;

impl Forwarder {
    /// Handles an ICMPv6 error about an outer packet that `local` sent (RFC 2473 8). If the error quotes the
    /// inner packet, passes Destination Unreachable and Packet Too Big on to the inner source. The result
    /// tells the caller the path MTU.
    ///
    /// Every host can send such an error, so the quoted packet must be one of this station's. The proof is
    /// its outer flow label, a keyed hash of the inner header, or a recent identification of a fragment. Many
    /// errors without this proof come from an attacker who guesses.
    pub fn handle_icmp_error(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        local: Ipv6Addr,
        error: Icmpv6ErrorMessage,
        invoking: &[u8],
    ) -> IcmpErrorOutcome {
        let Ok(outer) = Header::parse(invoking) else { return IcmpErrorOutcome::Foreign };
        let ends = (Endpoint::Ipv6(local), Endpoint::Ipv6(outer.destination));
        let Some(path) = self.paths_by_ends.get(&ends).filter(|_| outer.source == local) else {
            return IcmpErrorOutcome::Foreign;
        };
        let Some(quoted) = self.quoted_inner_packet(&outer, invoking) else {
            if !self.forgery_limiter.try_take_token(now) {
                self.ignore_too_big_until = now + FORGERY_ERROR_INTERVAL;
            }
            return IcmpErrorOutcome::Handled;
        };
        let inner = quoted.and_then(|octets| Some(inner_packet::read_truncated_header(octets).ok()?.0));
        let min_mtu = quoted.map_or(MIN_MTU, inner_packet::min_mtu);
        // Inner packets between the two tunnel ends, such as probes, have no inner source that needs the
        // error.
        let own = inner.is_some_and(|inner| {
            let between = |end| inner.source == end || inner.destination == end;
            inner.next_header == protocol::ICMPV6 && path.home_agent(ends).is_some_and(between)
        });
        let (outcome, relayed) = match error {
            // RFC 8201 4: ignore an MTU below 1280, because it is invalid.
            Icmpv6ErrorMessage::PacketTooBig { mtu }
                if mtu < MIN_MTU as u32 || now < self.ignore_too_big_until =>
            {
                return IcmpErrorOutcome::Handled;
            }
            Icmpv6ErrorMessage::PacketTooBig { mtu } => {
                let room = mtu - HEADER_LEN as u32;
                let relayed = Icmpv6ErrorMessage::PacketTooBig { mtu: room.max(min_mtu as u32) };
                (IcmpErrorOutcome::PathMtu(ends, room), relayed)
            }
            // While an attacker guesses flow labels, the forwarder ignores the error. If the direct route is
            // broken, heartbeats detect it.
            _ if self.tunnel_end_of(ends) == Some(TunnelEnd::Direct) => {
                let is_doubtful = now < self.ignore_too_big_until;
                return if is_doubtful { IcmpErrorOutcome::Handled } else { IcmpErrorOutcome::Broken(ends) };
            }
            // RFC 2473 8.3: after any error inside the tunnel the inner destination is unreachable.
            Icmpv6ErrorMessage::DestinationUnreachable { .. } | Icmpv6ErrorMessage::TimeExceeded { .. } => (
                self.check_icmp_error(now, source, ends, error),
                Icmpv6ErrorMessage::DestinationUnreachable { code: 3 },
            ),
            Icmpv6ErrorMessage::ParameterProblem { .. } => {
                return self.check_icmp_error(now, source, ends, error);
            }
        };
        if let (Some(inner), Some(quoted), false) = (inner, quoted, own) {
            let fits = inner_packet::read_truncated_header(quoted).is_ok_and(|(_, length)| length <= min_mtu);
            if !(fits && matches!(relayed, Icmpv6ErrorMessage::PacketTooBig { .. })) {
                let speaker = self.error_source_address(&inner, local);
                self.send_error(now, speaker, relayed, quoted);
            }
        }
        outcome
    }

    /// Decides whether an error about a packet that this station has provably sent shows that the home agent
    /// has no binding for it. The error must come from the home agent. Its code must be one of a machine
    /// without this tunnel (RFC 4443 3.1 code 4, 3.4 code 1).
    fn check_icmp_error(
        &self,
        now: Time,
        source: Ipv6Addr,
        ends: TunnelEnds,
        error: Icmpv6ErrorMessage,
    ) -> IcmpErrorOutcome {
        let says_so = matches!(
            error,
            Icmpv6ErrorMessage::DestinationUnreachable { code: 4 }
                | Icmpv6ErrorMessage::ParameterProblem { code: 1, .. }
        );
        let by_home_agent =
            self.tunnel_end_of(ends) == Some(TunnelEnd::MobileRouter) && ends.1 == Endpoint::Ipv6(source);
        match says_so && by_home_agent && now >= self.ignore_too_big_until {
            true => IcmpErrorOutcome::Refused(ends),
            false => IcmpErrorOutcome::Handled,
        }
    }

    /// Returns the quoted part of the inner packet: `Some(None)` for a later fragment. Returns `None` if the
    /// quotation does not prove that the packet was ours.
    fn quoted_inner_packet<'a>(&self, outer: &Header, invoking: &'a [u8]) -> Option<Option<&'a [u8]>> {
        let rest = invoking.get(HEADER_LEN..)?;
        let (next_header, rest) = match outer.next_header {
            protocol::FRAGMENT => {
                let fragment = FragmentHeader::parse(rest).ok()?;
                // A quoted fragment counts only if this path has fragmented packets, and the quoted
                // identification is a recent one.
                let last = self
                    .paths_by_ends
                    .get(&(outer.source.into(), outer.destination.into()))?
                    .last_fragment_identification?;
                let age = last.wrapping_sub(fragment.identification);
                let ours = matches!(
                    fragment.next_header,
                    protocol::IPV6 | protocol::IPV4 | protocol::DESTINATION_OPTIONS
                );
                if !ours || age > RECENT_FRAGMENT_IDENTIFICATION_COUNT {
                    return None;
                }
                if fragment.is_later_fragment() {
                    return Some(None);
                }
                (fragment.next_header, rest.get(FRAGMENT_HEADER_LEN..)?)
            }
            other => (other, rest),
        };
        let inner = match next_header {
            protocol::IPV6 | protocol::IPV4 => rest,
            // The quoted packet is one of several copies, which have a Destination Options header.
            protocol::DESTINATION_OPTIONS
                if matches!(rest.first(), Some(&(protocol::IPV6 | protocol::IPV4))) =>
            {
                rest.get(SEQUENCE_OPTIONS_HEADER_LEN..)?
            }
            _ => return None,
        };
        let (header, _) = inner_packet::read_truncated_header(inner).ok()?;
        (tunnel_flow_label(self.flow_label_key, &header) == outer.flow_label).then_some(Some(inner))
    }
}
