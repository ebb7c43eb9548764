//! Common parts of this crate's tests: octets from hex, packets of other implementations, and one function
//! that puts octets through every parser. The fuzz targets call that function, too.
#![allow(dead_code)]

pub mod everything;
pub mod fixtures;
pub mod tools;

use std::net::Ipv6Addr;

/// Returns the octets of hex digits; ignores white space.
pub fn parse_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| u8::try_from(c.to_digit(16).expect("a hex digit")).expect("under 16"))
        .collect();
    assert!(digits.len().is_multiple_of(2), "an even number of hex digits");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Returns the hex digits of octets.
pub fn to_hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Parses an IPv6 address.
pub fn parse_address(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

/// Parses octets as a packet and as the parts of a packet. For any octets, the function returns without a
/// panic, and its assertions hold.
pub fn parse_everything(octets: &[u8]) {
    everything::parse_packet(octets);
    everything::parse_icmpv6(octets);
    everything::parse_mobility_header(octets);
}

/// Small random number generator (xorshift64*), which returns the same numbers on every run.
pub struct RandomNumbers(u64);

impl RandomNumbers {
    /// Creates a generator from a seed other than 0.
    pub fn new(seed: u64) -> RandomNumbers {
        RandomNumbers(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns the next number below a limit other than 0.
    pub fn number_below(&mut self, limit: usize) -> usize {
        (self.next_u64() >> 33) as usize % limit
    }
}
