//! ICMPv6 errors about outer packets (RFC 2473 8).

use std::net::Ipv6Addr;

use carnet_base::{Endpoint, Time};
use carnet_wire::extension::SEQUENCE_DESTINATION_LEN;
use carnet_wire::fragment::{FRAGMENT_HEADER_LEN, FragmentHeader};
use carnet_wire::icmpv6::ErrorMessage;
use carnet_wire::ipv6::{HEADER_LEN, Header, MIN_MTU, protocol, tunnel_flow_label};

use super::{ErrorOutcome, FORGERY_INTERVAL, Forwarder};
use crate::forwarding::desired::TunnelEnd;
use crate::forwarding::path_mtu::Ends;

/// Number of last fragmented packets about which Packet Too Big is accepted.
const RECENT_IDENTIFICATIONS: u32 = 4096;

impl Forwarder {
    /// Handles an ICMPv6 error about an outer packet that `local` sent (RFC 2473 8). Unreachability and too
    /// large packets are passed on to the inner source as far as the message quotes the inner packet. The
    /// caller learns the path's size from Packet Too Big.
    ///
    /// Any host can send such a message, so it counts only if it quotes an own packet. The outer flow label
    /// is a keyed hash of the inner header, and the identification of a fragment is one that was used lately.
    /// A sender of many others is guessing.
    pub fn handle_error(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        local: Ipv6Addr,
        error: ErrorMessage,
        invoking: &[u8],
    ) -> ErrorOutcome {
        let Ok(outer) = Header::parse(invoking) else { return ErrorOutcome::Foreign };
        let ends = (Endpoint::Ipv6(local), Endpoint::Ipv6(outer.destination));
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
        // Messages between the two ends themselves, such as probes, concern no other node.
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
            // While an attacker guesses, heartbeats test the path.
            _ if self.end_of(ends) == Some(TunnelEnd::Direct) => {
                let is_doubtful = now < self.doubtful_until;
                return if is_doubtful { ErrorOutcome::Handled } else { ErrorOutcome::Broken(ends) };
            }
            // RFC 2473 8.3: whatever went wrong in the tunnel, the inner destination is out of reach.
            ErrorMessage::DestinationUnreachable { .. } | ErrorMessage::TimeExceeded { .. } => {
                (self.refusal(now, source, ends, error), ErrorMessage::DestinationUnreachable { code: 3 })
            }
            ErrorMessage::ParameterProblem { .. } => return self.refusal(now, source, ends, error),
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

    /// Whether an error that is provably about one of our packets says that the home agent has no binding for
    /// it. It comes from there, and is the answer of a machine without a tunnel (RFC 4443 3.1 code 4, 3.4
    /// code 1).
    fn refusal(&self, now: Time, source: Ipv6Addr, ends: Ends, error: ErrorMessage) -> ErrorOutcome {
        let says_so = matches!(
            error,
            ErrorMessage::DestinationUnreachable { code: 4 } | ErrorMessage::ParameterProblem { code: 1, .. }
        );
        let by_home_agent =
            self.end_of(ends) == Some(TunnelEnd::MobileRouter) && ends.1 == Endpoint::Ipv6(source);
        match says_so && by_home_agent && now >= self.doubtful_until {
            true => ErrorOutcome::Refused(ends),
            false => ErrorOutcome::Handled,
        }
    }

    /// The inner packet in a quoted outer one, as far as it is quoted: `Some(None)` for a later fragment.
    /// `None` when the quotation does not prove that the packet was ours.
    fn quoted<'a>(&self, outer: &Header, invoking: &'a [u8]) -> Option<Option<&'a [u8]>> {
        let rest = invoking.get(HEADER_LEN..)?;
        let (next_header, rest) = match outer.next_header {
            protocol::FRAGMENT => {
                let fragment = FragmentHeader::parse(rest).ok()?;
                // Only where packets were cut, and about one of these.
                let last = self.paths.get(&(outer.source.into(), outer.destination.into()))?.cut?;
                let age = last.wrapping_sub(fragment.identification);
                let ours = matches!(fragment.next_header, protocol::IPV6 | protocol::DESTINATION_OPTIONS);
                if !ours || age > RECENT_IDENTIFICATIONS {
                    return None;
                }
                if fragment.is_later() {
                    return Some(None);
                }
                (fragment.next_header, rest.get(FRAGMENT_HEADER_LEN..)?)
            }
            other => (other, rest),
        };
        let inner = match next_header {
            protocol::IPV6 => rest,
            // One copy of several.
            protocol::DESTINATION_OPTIONS if rest.first() == Some(&protocol::IPV6) => {
                rest.get(SEQUENCE_DESTINATION_LEN..)?
            }
            _ => return None,
        };
        let header = Header::parse(inner).ok()?;
        (tunnel_flow_label(self.secret, &header) == outer.flow_label).then_some(Some(inner))
    }
}
