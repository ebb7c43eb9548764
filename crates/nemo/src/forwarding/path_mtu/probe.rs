//! The probe packet: an ICMPv6 Echo Request (RFC 4443 4.1) of exactly the size to try, sent as an inner
//! packet.
//!
//! The data begin with a token that only a node inside the tunnel can see, followed by the size. The answer
//! contains token and size, so it proves itself, even if it comes in fragments because the way back is
//! narrower. The first fragment of the answer is enough: it shows that the whole request arrived.

use std::net::Ipv6Addr;

use carnet_wire::fragment::{FRAGMENT_HEADER_LEN, FragmentHeader};
use carnet_wire::icmpv6::{self, message_type};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};

/// Octets of Type, Code, Checksum, Identifier and Sequence Number.
const ECHO_LEN: usize = 8;

/// Content of the answer to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProbeAnswer {
    /// Token of the search to which the probe belongs.
    pub token: u64,
    /// Round of the search in which the probe was sent.
    pub round: u16,
    /// Size of the probe in octets, with its IPv6 header.
    pub size: u32,
}

/// Returns the probe packet, `size` octets long (RFC 8899 4.1: padding fills a probe to the size that the
/// search tries).
pub(super) fn emit_probe(source: Ipv6Addr, destination: Ipv6Addr, probe: ProbeAnswer) -> Vec<u8> {
    let ProbeAnswer { token, round, size } = probe;
    let mut message = vec![message_type::ECHO_REQUEST, 0, 0, 0];
    // The Identifier has no meaning, because the token identifies the probe.
    message.extend_from_slice(&((token >> 48) as u16).to_be_bytes());
    message.extend_from_slice(&round.to_be_bytes());
    message.extend_from_slice(&token.to_be_bytes());
    message.extend_from_slice(&size.to_be_bytes());
    let length = usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(HEADER_LEN);
    message.resize(length.clamp(message.len(), usize::from(u16::MAX)), 0);
    icmpv6::emit_packet(source, destination, icmpv6::DEFAULT_HOP_LIMIT, message)
}

/// Reads an Echo Reply, or its first fragment, as the answer to a probe; `None` for another packet. The
/// caller compares the token.
pub(super) fn parse_answer(packet: &[u8]) -> Option<ProbeAnswer> {
    let header = Header::parse(packet).ok()?;
    let mut message = packet.get(HEADER_LEN..)?;
    let mut next_header = header.next_header;
    if next_header == protocol::FRAGMENT {
        let fragment = FragmentHeader::parse(message).ok()?;
        if fragment.is_later_fragment() {
            return None;
        }
        next_header = fragment.next_header;
        message = message.get(FRAGMENT_HEADER_LEN..)?;
    }
    if next_header != protocol::ICMPV6 || message.first() != Some(&message_type::ECHO_REPLY) {
        return None;
    }
    let round = u16::from_be_bytes(message.get(6..ECHO_LEN)?.try_into().ok()?);
    let token = u64::from_be_bytes(message.get(ECHO_LEN..ECHO_LEN + 8)?.try_into().ok()?);
    let size = u32::from_be_bytes(message.get(ECHO_LEN + 8..ECHO_LEN + 12)?.try_into().ok()?);
    Some(ProbeAnswer { token, round, size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarding::fragments::cut_into_fragments;

    #[test]
    fn an_echo_reply_is_read_back_whole_or_from_its_first_fragment() {
        let (here, there) =
            ("2001:db8::1".parse().expect("address"), "2001:db8::2".parse().expect("address"));
        let probe = ProbeAnswer { token: 0x0123_4567_89ab_cdef, round: 3, size: 1460 };
        let request = emit_probe(here, there, probe);
        assert_eq!(request.len(), 1460);
        assert_eq!(parse_answer(&request), None, "a request is no answer");
        let reply = icmpv6::answer_echo_request(&request).expect("a valid request");
        assert_eq!(parse_answer(&reply), Some(probe));
        let pieces = cut_into_fragments(&reply, 1280, 9);
        assert_eq!(pieces.iter().map(|p| parse_answer(p)).collect::<Vec<_>>(), [Some(probe), None]);
        let mut later = pieces[1].clone();
        later[48..68].copy_from_slice(&reply[40..60]);
        assert_eq!(parse_answer(&later), None, "what a later fragment holds is no header");
        for length in 0..70 {
            assert_eq!(parse_answer(&reply[..length]).is_some(), length >= HEADER_LEN + ECHO_LEN + 12);
        }
    }
}
