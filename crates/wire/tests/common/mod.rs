//! What the tests of this crate share: octets from hex, packets that other implementations made, and one
//! function that puts octets through every parser.
#![allow(dead_code)]

pub mod fixtures;
pub mod tools;

use carnet_wire::discovery::{DiscoveryReply, DiscoveryRequest};
use carnet_wire::extension::{self, Extensions};
use carnet_wire::fragment::FragmentHeader;
use carnet_wire::icmpv6::{self, ErrorMessage};
use carnet_wire::ipv6::Header;
use carnet_wire::mobility::flow::{FlowActionOption, SubOptions};
use carnet_wire::mobility::{Message, MobilityHeader, Options, authentication_field};
use carnet_wire::nd::{
    NeighborAdvertisement, NeighborSolicitation, RouterAdvertisement, RouterSolicitation, check_header,
};
use std::hint::black_box;
use std::net::Ipv6Addr;

/// Octets from hex digits; white space is ignored.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| u8::try_from(c.to_digit(16).expect("a hex digit")).expect("under 16"))
        .collect();
    assert!(digits.len().is_multiple_of(2), "an even number of hex digits");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Hex digits of octets.
pub fn to_hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// An address from its text.
pub fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

/// Puts octets through every parser, and what is read through every accessor. Whatever the octets are, this
/// must come back, and what it asserts must hold.
pub fn everything(octets: &[u8]) {
    packet(octets);
    upper_layer(octets);
}

fn packet(octets: &[u8]) {
    let _ = black_box(Header::parse(octets));
    if let Ok((header, payload)) = Header::parse_packet(octets) {
        assert_eq!(payload.len(), usize::from(header.payload_length));
        let _ = black_box(check_header(&header, payload));
    }
    let _ = black_box(icmpv6::echo_reply(octets));
    let _ = black_box(icmpv6::may_answer(octets));
    if let Some((_, offset, _)) = extension::upper_layer(octets) {
        assert!(offset <= octets.len());
    }
    match Extensions::parse(octets) {
        Ok(extensions) => {
            assert!(extensions.offset <= octets.len());
            if let Some(at) = extensions.home_address_offset {
                assert_eq!(octets[at], extension::HOME_ADDRESS_OPTION);
                assert_eq!(octets[at + 2..at + 18], extensions.home_address.expect("both").octets());
            }
            upper_layer(&octets[extensions.offset..]);
        }
        Err(error) => {
            let _ = black_box(error.to_string());
            if let Some(problem) = error.parameter_problem(40) {
                let ErrorMessage::ParameterProblem { pointer, .. } = problem else {
                    panic!("not a parameter problem: {problem:?}")
                };
                assert!((pointer as usize) < octets.len());
                let _ = black_box(icmpv6::may_answer_with(problem, octets));
                let a = Ipv6Addr::LOCALHOST;
                assert!(icmpv6::error_packet(a, a, problem, octets).len() <= 1280);
            }
        }
    }
}

fn upper_layer(octets: &[u8]) {
    let _ = black_box(FragmentHeader::parse(octets));
    let _ = black_box(icmpv6::parse_error(octets));
    let _ = black_box(RouterSolicitation::parse(octets));
    let _ = black_box(NeighborSolicitation::parse(octets));
    let _ = black_box(NeighborAdvertisement::parse(octets));
    let _ = black_box(DiscoveryRequest::parse(octets));
    if let Ok(advertisement) = RouterAdvertisement::parse(octets) {
        assert!(advertisement.options().count() * 8 <= octets.len());
    }
    if let Ok(reply) = DiscoveryReply::parse(octets) {
        assert_eq!(reply.addresses().count() * 16 + 8, octets.len());
    }
    let local = Ipv6Addr::LOCALHOST;
    let _ = black_box(MobilityHeader::parse_verified(octets, local, local));
    let _ = black_box(Options::parse(octets).map(|options| options.iter().count()));
    let _ = black_box(SubOptions::parse(octets));
    let _ = black_box(FlowActionOption::read(&FlowActionOption::option(octets)));
    if let Ok(header) = MobilityHeader::parse(octets) {
        assert!(header.octets().len().is_multiple_of(8));
        let _ = black_box(header.verify_checksum(local, local));
        match header.message() {
            Ok(Message::BindingUpdate(update)) => {
                let _ = black_box(update.options.iter().count());
            }
            Ok(Message::BindingAcknowledgement(acknowledgement)) => {
                let _ = black_box(acknowledgement.options.iter().count());
            }
            Ok(Message::Heartbeat(heartbeat)) => {
                let _ = black_box(heartbeat.options.iter().count());
            }
            Ok(Message::BindingRefreshRequest(request)) => {
                let _ = black_box(request.options.iter().count());
            }
            other => {
                let _ = black_box(other);
            }
        }
    }
    if let Ok(Some(field)) = authentication_field(octets) {
        assert_eq!(field.covered.end, field.data.start);
        assert!(field.data.end <= octets.len());
        let pieces = field.covered_octets(octets).expect("the same octets");
        assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<usize>(), field.covered.len());
    }
}

/// A small generator of numbers (xorshift64*), the same on every run.
pub struct Numbers(u64);

impl Numbers {
    /// Starts from a seed that is not 0.
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// The next number under a limit that is not 0.
    pub fn under(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }
}
