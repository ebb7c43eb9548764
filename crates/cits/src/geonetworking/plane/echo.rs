//! The ping of the GeoNetworking layer.
//!
//! ETSI defines no ping. carnet's ping is an upper-layer protocol over BTP-B, port 51966 (0xCAFE). A message
//! begins with the octet 1 (request) or 2 (reply), and the number of hops that the request took. A 16-bit
//! identifier and a 16-bit sequence number follow, both big endian, and then the request's data. A station
//! answers a request with a GeoUnicast to its source, at most a hundred times a second. Stations that do not
//! know the protocol ignore the port.

/// BTP destination port of echo messages.
pub const ECHO_PORT: u16 = 51_966;
/// NH value of BTP-B in the Common Header.
pub const BTP_B_NEXT_HEADER: u8 = 2;
const REQUEST_KIND: u8 = 1;
const REPLY_KIND: u8 = 2;
/// Octets of the BTP-B header and the echo header.
const MESSAGE_LENGTH: usize = 4 + 6;

/// A parsed echo message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoMessage {
    /// Whether the message is a reply.
    pub is_reply: bool,
    /// Number of hops that the request took; 0 in a request.
    pub hop_count: u8,
    /// Identifier of the program that pings.
    pub identifier: u16,
    /// Sequence number of the request.
    pub sequence: u16,
}

impl EchoMessage {
    /// Parses a BTP-B payload; `None` if the payload is not an echo message.
    pub fn parse(payload: &[u8]) -> Option<EchoMessage> {
        let octets: &[u8; MESSAGE_LENGTH] = payload.get(..MESSAGE_LENGTH)?.try_into().ok()?;
        let [p0, p1, _, _, kind, hops, i0, i1, s0, s1] = *octets;
        if u16::from_be_bytes([p0, p1]) != ECHO_PORT || !(kind == REQUEST_KIND || kind == REPLY_KIND) {
            return None;
        }
        Some(EchoMessage {
            is_reply: kind == REPLY_KIND,
            hop_count: hops,
            identifier: u16::from_be_bytes([i0, i1]),
            sequence: u16::from_be_bytes([s0, s1]),
        })
    }

    /// Returns the message as a BTP-B payload.
    pub fn emit(&self) -> Vec<u8> {
        let [p0, p1] = ECHO_PORT.to_be_bytes();
        let [i0, i1] = self.identifier.to_be_bytes();
        let [s0, s1] = self.sequence.to_be_bytes();
        vec![
            p0,
            p1,
            0,
            0,
            if self.is_reply { REPLY_KIND } else { REQUEST_KIND },
            self.hop_count,
            i0,
            i1,
            s0,
            s1,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_parser_accepts_only_emitted_messages() {
        let echo = EchoMessage { is_reply: true, hop_count: 3, identifier: 0x1234, sequence: 7 };
        assert_eq!(EchoMessage::parse(&echo.emit()), Some(echo));
        for length in 0..MESSAGE_LENGTH {
            assert_eq!(EchoMessage::parse(&echo.emit()[..length]), None);
        }
        let mut other_port = echo.emit();
        other_port[0] = 0;
        assert_eq!(EchoMessage::parse(&other_port), None);
        let mut other_kind = echo.emit();
        other_kind[4] = 3;
        assert_eq!(EchoMessage::parse(&other_kind), None);
    }
}
