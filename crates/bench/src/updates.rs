//! Encodes Binding Updates and decodes Binding Acknowledgements, separately from carnet's code, so that the
//! home agent is not tested with its own code.
//!
//! A frame contains an IPv6 header, Destination Options with the home address (RFC 6275 6.3), and a Binding
//! Update. The Binding Update has one Mobile Network Prefix (RFC 3963 4.3) and the MN-HA authentication
//! option (RFC 4285 5). Between them there may be one IPv4 prefix (RFC 5555 3.1.1). Each part has a fixed
//! place.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, ensure};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::packet::{IPV6, LINK};

/// Length in octets of the Destination Options header of a Binding Update, and also of the routing header of
/// an acknowledgement.
const HOME: usize = 24;
/// Length in octets of the Mobility Header of a Binding Update without an IPv4 prefix.
const HEADER: usize = 56;
/// Length in octets of the IPv4 Home Address option.
const IPV4: usize = 8;
/// Offset of the Mobility Header in the frame of a Binding Update.
const AT: usize = LINK + IPV6 + HOME;
/// Number of octets of the Mobility Header before the IPv4 prefix, or before the authentication option.
const PARTS: usize = 32;
/// Number of octets from there to the end of the SPI, which the MAC covers, without an IPv4 prefix.
const TO_SPI: usize = 8;
const MAC: usize = 12;
const PROTOCOL_MOBILITY: u8 = 135;
const PROTOCOL_ROUTING: u8 = 43;
const PROTOCOL_OPTIONS: u8 = 60;
const NO_NEXT_HEADER: u8 = 59;
const BINDING_UPDATE: u8 = 5;
const BINDING_ACKNOWLEDGEMENT: u8 = 6;
/// Flags of a Binding Update: A, H and R (RFC 6275 6.1.7, RFC 3963 4.1).
const FLAGS: [u8; 2] = [0xc4, 0];
const PREFIX_OPTION: u8 = 6;
const AUTHENTICATION_OPTION: u8 = 9;
const IPV4_HOME_ADDRESS_OPTION: u8 = 29;
const IPV4_ACKNOWLEDGEMENT_OPTION: u8 = 30;
/// Length in bits of the IPv4 prefixes of the benchmark.
pub const IPV4_LENGTH: u8 = 26;
/// P flag of the IPv4 Home Address option: the router requests a prefix.
const WANTS_PREFIX: u8 = 2;
/// Key of all routers of the benchmark, as in the configs.
pub const KEY: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// SPI of the key.
pub const SPI: u32 = 300;

/// Computes the MAC of a security association.
#[derive(Clone)]
pub struct Signer(Hmac<Sha1>);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

impl Signer {
    /// Creates a security association with this key.
    pub fn new(key: &[u8; 16]) -> anyhow::Result<Signer> {
        Ok(Signer(<Hmac<Sha1> as KeyInit>::new_from_slice(key).context("a key of 16 octets")?))
    }

    /// Returns the MAC of RFC 4285 5.1: over care-of address, home address and the covered part of the
    /// Mobility Header, with a checksum of zero.
    fn code(&self, ends: (Ipv6Addr, Ipv6Addr), covered: &[u8]) -> [u8; MAC] {
        let mut mac = self.0.clone();
        for part in [&ends.0.octets()[..], &ends.1.octets(), &covered[..4], &[0, 0], &covered[6..]] {
            mac.update(part);
        }
        let code = mac.finalize().into_bytes();
        std::array::from_fn(|at| code[at])
    }
}

/// Addresses and prefix of a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Home address of the router.
    pub home_address: Ipv6Addr,
    /// Care-of address of the router.
    pub care_of_address: Ipv6Addr,
    /// First 64 bits of the router's mobile network prefix.
    pub prefix: u64,
    /// The router's IPv4 prefix, of [`IPV4_LENGTH`] bits.
    pub ipv4_prefix: Option<Ipv4Addr>,
}

/// Returns the checksum of RFC 1071 over a pseudo-header and the data that follows.
pub fn checksum(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, header: &[u8]) -> u16 {
    let ends = [source.octets(), destination.octets()].concat();
    let words = ends.chunks(2).chain(header.chunks(2));
    let words = words.map(|two| u32::from(two[0]) << 8 | two.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum = words.sum::<u32>() + header.len() as u32 + u32::from(protocol);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// Returns a Binding Update, from its Ethernet header on. `lifetime` is in units of four seconds. `link` has
/// the hardware addresses of the sending interface and of its peer.
pub fn update(
    link: ([u8; 6], [u8; 6]),
    agent: Ipv6Addr,
    who: Identity,
    sequence: u16,
    lifetime: u16,
    signer: &Signer,
) -> Vec<u8> {
    let ipv4 = if who.ipv4_prefix.is_some() { IPV4 } else { 0 };
    let (length, covered) = (HEADER + ipv4, PARTS + ipv4 + TO_SPI);
    let mut frame = vec![0; AT + length];
    let mut put = |at: usize, octets: &[u8]| frame[at..at + octets.len()].copy_from_slice(octets);
    put(0, &link.1);
    put(6, &link.0);
    put(12, &[0x86, 0xdd, 0x60]);
    put(LINK + 4, &((HOME + length) as u16).to_be_bytes());
    put(LINK + 6, &[PROTOCOL_OPTIONS, 64]);
    put(LINK + 8, &who.care_of_address.octets());
    put(LINK + 24, &agent.octets());
    // A PadN option of four octets comes first, because the Home Address option must begin at 8n+6.
    put(LINK + IPV6, &[PROTOCOL_MOBILITY, (HOME / 8 - 1) as u8, 1, 2, 0, 0, 0xc9, 16]);
    put(LINK + IPV6 + 8, &who.home_address.octets());
    put(AT, &[NO_NEXT_HEADER, (length / 8 - 1) as u8, BINDING_UPDATE, 0, 0, 0]);
    put(AT + 6, &sequence.to_be_bytes());
    put(AT + 8, &FLAGS);
    put(AT + 10, &lifetime.to_be_bytes());
    put(AT + 12, &[PREFIX_OPTION, 18, 0, 64]);
    put(AT + 16, &who.prefix.to_be_bytes());
    if let Some(prefix) = who.ipv4_prefix {
        put(AT + PARTS, &[IPV4_HOME_ADDRESS_OPTION, 6, IPV4_LENGTH << 2 | WANTS_PREFIX, 0]);
        put(AT + PARTS + 4, &prefix.octets());
    }
    // A Pad1 option comes first, because the authentication option must begin at 4n+1.
    put(AT + covered - 7, &[AUTHENTICATION_OPTION, 17, 1]);
    put(AT + covered - 4, &SPI.to_be_bytes());
    put(AT + covered + MAC, &[1, 2]);
    let code = signer.code((who.care_of_address, who.home_address), &frame[AT..AT + covered]);
    frame[AT + covered..AT + covered + MAC].copy_from_slice(&code);
    let sum = checksum(who.home_address, agent, PROTOCOL_MOBILITY, &frame[AT..]);
    frame[AT + 4..AT + 6].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Content of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Home address in the routing header.
    pub home_address: Ipv6Addr,
    /// Care-of address to which the acknowledgement was sent.
    pub care_of_address: Ipv6Addr,
    /// Status; a value below 128 means accepted.
    pub status: u8,
    /// Sequence number of the acknowledged Binding Update.
    pub sequence: u16,
    /// Lifetime in units of four seconds.
    pub lifetime: u16,
    /// Status of the IPv4 prefix; `None` without an answer about it.
    pub ipv4_status: Option<u8>,
}

/// Decodes a Binding Acknowledgement, from its Ethernet header on. `None` if the frame is no Binding
/// Acknowledgement.
///
/// # Errors
/// Fails for an invalid acknowledgement: its checksum or its MAC is wrong, or a part is missing.
pub fn acknowledgement(
    frame: &[u8],
    agent: Ipv6Addr,
    signer: &Signer,
) -> anyhow::Result<Option<Acknowledgement>> {
    let is_one = frame.get(LINK + 6) == Some(&PROTOCOL_ROUTING)
        && frame.get(LINK + IPV6) == Some(&PROTOCOL_MOBILITY)
        && frame.get(AT + 2) == Some(&BINDING_ACKNOWLEDGEMENT);
    if !is_one {
        return Ok(None);
    }
    let address = |at: usize| -> anyhow::Result<Ipv6Addr> {
        let octets = frame.get(at..at + 16).context("the Binding Acknowledgement ends too early")?;
        Ok(Ipv6Addr::from(<[u8; 16]>::try_from(octets)?))
    };
    let (source, care_of_address) = (address(LINK + 8)?, address(LINK + 24)?);
    let home_address = address(LINK + IPV6 + 8)?;
    ensure!(
        source == agent,
        "the Binding Acknowledgement comes from {source}, expected the home agent's address {agent}"
    );
    ensure!(
        frame[LINK + IPV6 + 2..LINK + IPV6 + 4] == [2, 1],
        "the Binding Acknowledgement has no type 2 routing header"
    );
    let length = (usize::from(frame[AT + 1]) + 1) * 8;
    let header = frame.get(AT..AT + length).context("the Binding Acknowledgement ends too early")?;
    ensure!(
        checksum(agent, home_address, PROTOCOL_MOBILITY, header) == 0,
        "the Binding Acknowledgement has a wrong checksum"
    );
    let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    ensure!(length >= 16, "the Binding Acknowledgement is too short for mobility options");
    let mut at = 12;
    let mut ipv4_status = None;
    let code = loop {
        let kind = *header.get(at).context("the Binding Acknowledgement has no authentication option")?;
        let size = *header.get(at + 1).filter(|_| kind != 0).unwrap_or(&0);
        if kind == AUTHENTICATION_OPTION {
            ensure!(
                size == 17 && header.len() >= at + 19,
                "the authentication option of the Binding Acknowledgement has {size} octets, expected 17"
            );
            ensure!(
                header[at + 2] == 1 && header[at + 3..at + 7] == SPI.to_be_bytes(),
                "the Binding Acknowledgement has another SPI than the Binding Update"
            );
            break at + 7;
        }
        if kind == IPV4_ACKNOWLEDGEMENT_OPTION && size == 6 {
            ipv4_status = header.get(at + 2).copied();
        }
        at += if kind == 0 { 1 } else { 2 + usize::from(size) };
    };
    let expected = signer.code((care_of_address, home_address), &header[..code]);
    ensure!(header[code..code + MAC] == expected, "the Binding Acknowledgement has a wrong MAC");
    let (status, sequence, lifetime) = (header[6], short(8), short(10));
    Ok(Some(Acknowledgement { home_address, care_of_address, status, sequence, lifetime, ipv4_status }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(octets: &[u8]) -> String {
        octets.iter().map(|octet| format!("{octet:02x}")).collect()
    }

    fn address(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    /// The expected octets are a Binding Update whose MAC another implementation of RFC 4285 has computed.
    #[test]
    fn binding_update_equals_recorded_packet() {
        let who = Identity {
            home_address: address("2001:db8:1::1234"),
            care_of_address: address("2001:db8:f1::10"),
            prefix: 0x2001_0db8_0002_0000,
            ipv4_prefix: None,
        };
        let signer = Signer::new(&KEY).expect("a key");
        let frame = update(([1; 6], [2; 6]), address("2001:db8:1::1"), who, 3, 60, &signer);
        assert_eq!(
            hex(&frame[AT..]),
            "3b0605000f810003c400003c0612004020010db80002000000000000000000000009110100\
             00012c99119f05ec6abd2b938bc15101020000"
        );
        // The IPv4 prefix comes before the authentication option.
        let who = Identity { ipv4_prefix: Some(Ipv4Addr::new(10, 0, 0, 64)), ..who };
        let frame = update(([1; 6], [2; 6]), address("2001:db8:1::1"), who, 3, 60, &signer);
        assert_eq!(frame.len(), AT + 64);
        assert_eq!(hex(&frame[AT + 32..AT + 48]), "1d066a000a0000400009110100000 12c".replace(' ', ""));
        assert_eq!(checksum(who.home_address, address("2001:db8:1::1"), PROTOCOL_MOBILITY, &frame[AT..]), 0);
    }

    #[test]
    fn invalid_binding_acknowledgements_are_rejected_with_reason() {
        let signer = Signer::new(&KEY).expect("a key");
        let agent = address("2001:db8:1::1");
        let (home, care_of) = (address("2001:db8:1::1234"), address("2001:db8:f1::10"));
        let mut frame = vec![0; AT + 32];
        frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        frame[LINK + 6] = PROTOCOL_ROUTING;
        frame[LINK + 8..LINK + 24].copy_from_slice(&agent.octets());
        frame[LINK + 24..LINK + 40].copy_from_slice(&care_of.octets());
        frame[LINK + IPV6..LINK + IPV6 + 4].copy_from_slice(&[PROTOCOL_MOBILITY, 2, 2, 1]);
        frame[LINK + IPV6 + 8..LINK + IPV6 + 24].copy_from_slice(&home.octets());
        let header = [NO_NEXT_HEADER, 3, BINDING_ACKNOWLEDGEMENT, 0, 0, 0, 0, 0, 0, 7, 0, 15];
        frame[AT..AT + 12].copy_from_slice(&header);
        frame[AT + 13..AT + 16].copy_from_slice(&[AUTHENTICATION_OPTION, 17, 1]);
        frame[AT + 16..AT + 20].copy_from_slice(&SPI.to_be_bytes());
        let code = signer.code((care_of, home), &frame[AT..AT + 20]);
        frame[AT + 20..].copy_from_slice(&code);
        let sum = checksum(agent, home, PROTOCOL_MOBILITY, &frame[AT..]);
        frame[AT + 4..AT + 6].copy_from_slice(&sum.to_be_bytes());
        let read = |frame: &[u8]| acknowledgement(frame, agent, &signer).map_err(|error| error.to_string());
        let right = Acknowledgement {
            home_address: home,
            care_of_address: care_of,
            status: 0,
            sequence: 7,
            lifetime: 15,
            ipv4_status: None,
        };
        assert_eq!(read(&frame), Ok(Some(right)));
        let with = |at: usize, value: u8| {
            let mut frame = frame.clone();
            frame[at] = value;
            read(&frame)
        };
        assert_eq!(with(AT + 9, 8), Err("the Binding Acknowledgement has a wrong checksum".into()));
        assert_eq!(with(AT + 2, BINDING_UPDATE), Ok(None));
        for length in 0..frame.len() {
            let cut = read(&frame[..length]);
            assert!(cut != Ok(Some(right)), "{length}");
        }
        frame[AT + 31] ^= 1;
        frame[AT + 4..AT + 6].copy_from_slice(&[0, 0]);
        let sum = checksum(agent, home, PROTOCOL_MOBILITY, &frame[AT..]);
        frame[AT + 4..AT + 6].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(read(&frame), Err("the Binding Acknowledgement has a wrong MAC".into()));
    }
}
