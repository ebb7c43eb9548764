//! Limits the nesting of tunnels (RFC 2473 4.1, 4.1.1).
//!
//! A loop of routes or of mobile routers would encapsulate a packet again and again, each time with a fresh
//! hop limit. Two limits stop such a loop. First, the forwarder counts the nested headers, also behind
//! options and in the first fragment of a packet. This limit is enough against loops among carnet's stations.
//! Second, a sender that wants a limit for the whole path adds a Tunnel Encapsulation Limit option to its
//! packets. Each further header copies the option, with the limit decremented by one. At 0 the sender
//! receives a Parameter Problem.
//!
//! This station does not add the option itself: it would cost 8 octets of every packet, and the count of
//! nested headers is enough.

use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::fragment::{FRAGMENT_HEADER_LEN, FragmentHeader};
use carnet_wire::ipv4;
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};

use crate::forwarding::inner_packet;

/// Largest number of nested IP headers.
pub(super) const MAX_NESTED_TUNNELS: usize = 6;

/// Returns whether a packet has reached the largest number of nested IP headers.
#[inline(always)]
pub(super) fn is_nested_too_deep(packet: &[u8]) -> bool {
    // The first Next Header (or Protocol) field is enough for most packets: if it has none of these values,
    // there is no inner IP header.
    const ENCAPSULATION_LIMIT_OPTION: [u8; 4] =
        [protocol::IPV6, protocol::IPV4, protocol::DESTINATION_OPTIONS, protocol::FRAGMENT];
    let at = if inner_packet::is_ipv4(packet) { 9 } else { 6 };
    packet.get(at).is_some_and(|next_header| ENCAPSULATION_LIMIT_OPTION.contains(next_header))
        && tunnel_depth(packet) >= MAX_NESTED_TUNNELS
}

fn tunnel_depth(packet: &[u8]) -> usize {
    let mut rest = packet;
    let mut depth = 0;
    while let Some((protocol, behind)) = split_first_header(rest) {
        depth += 1;
        let inside = inner_packet(protocol, behind);
        match inside {
            Some(inside) if depth < MAX_NESTED_TUNNELS => rest = inside,
            _ => break,
        }
    }
    depth
}

/// Returns the protocol behind the first header of a packet, and the octets behind that header. `None` for a
/// later fragment of IPv4, whose payload has no header.
fn split_first_header(packet: &[u8]) -> Option<(u8, &[u8])> {
    if inner_packet::is_ipv4(packet) {
        let header = ipv4::Header::parse(packet).ok().filter(|header| !header.is_later_fragment())?;
        return Some((header.protocol, packet.get(header.header_length..)?));
    }
    Some((Header::parse(packet).ok()?.next_header, packet.get(HEADER_LEN..)?))
}

/// Returns the IP packet that follows a header with this Next Header; `None` if another protocol follows.
fn inner_packet(next_header: u8, rest: &[u8]) -> Option<&[u8]> {
    match next_header {
        protocol::IPV6 | protocol::IPV4 => Some(rest),
        protocol::DESTINATION_OPTIONS => match rest {
            [protocol::IPV6 | protocol::IPV4, length, ..] => rest.get(8 * (usize::from(*length) + 1)..),
            _ => None,
        },
        protocol::FRAGMENT => {
            let fragment = FragmentHeader::parse(rest).ok()?;
            match fragment.is_later_fragment() {
                false => inner_packet(fragment.next_header, rest.get(FRAGMENT_HEADER_LEN..)?),
                true => None,
            }
        }
        _ => None,
    }
}

/// Returns the value of a packet's Tunnel Encapsulation Limit option, and the option's offset in the packet;
/// `None` without the option.
#[inline]
pub(super) fn encapsulation_limit_of(header: &Header, packet: &[u8]) -> Option<(u8, usize)> {
    // RFC 2473 4.1.1: only an option in the packet's own Destination Options header counts.
    if header.next_header != protocol::DESTINATION_OPTIONS || inner_packet::is_ipv4(packet) {
        return None;
    }
    let extensions = ExtensionHeaders::parse(packet).ok()?;
    extensions.tunnel_encapsulation_limit.zip(extensions.tunnel_encapsulation_limit_offset)
}

#[cfg(test)]
mod tests {
    use carnet_wire::extension::emit_encapsulation_limit_options_header;

    use super::*;

    fn extension_header(next_header: u8) -> Vec<u8> {
        let mut octets = vec![0x60, 0, 0, 0, 0, 0, next_header, 64];
        octets.resize(HEADER_LEN, 1);
        octets
    }

    fn first_fragment_header(later: bool) -> Vec<u8> {
        vec![protocol::IPV6, 0, 0, if later { 8 } else { 1 }, 0, 0, 0, 1]
    }

    #[test]
    fn nesting_counter_counts_headers_after_options_and_in_fragments() {
        let deep = [
            extension_header(protocol::DESTINATION_OPTIONS),
            emit_encapsulation_limit_options_header(protocol::IPV6, 3).to_vec(),
            extension_header(protocol::FRAGMENT),
            first_fragment_header(false),
            extension_header(protocol::IPV6),
            extension_header(protocol::FRAGMENT),
        ];
        assert_eq!(tunnel_depth(&deep.concat()), 4);
        let hidden = [
            extension_header(protocol::FRAGMENT),
            first_fragment_header(true),
            extension_header(protocol::IPV6),
        ];
        assert_eq!(tunnel_depth(&hidden.concat()), 1);
        let endless = extension_header(protocol::IPV6).repeat(20);
        assert_eq!(tunnel_depth(&endless), MAX_NESTED_TUNNELS);
        assert!(is_nested_too_deep(&endless) && !is_nested_too_deep(&deep.concat()));
        let whole = deep.concat();
        assert!((0..whole.len()).all(|length| tunnel_depth(&whole[..length]) <= 4));
    }
}
