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

use super::packet::{ETHERNET_HEADER_LENGTH, IPV6_HEADER_LENGTH};

/// Length in octets of the Destination Options header of a Binding Update, and also of the routing header of
/// an acknowledgement.
const HOME_ADDRESS_OPTION_LENGTH: usize = 24;
/// Length in octets of the Mobility Header of a Binding Update without an IPv4 prefix.
const MOBILITY_HEADER_LENGTH: usize = 56;
/// Length in octets of the IPv4 Home Address option.
const IPV4_HOME_ADDRESS_OPTION_LENGTH: usize = 8;
/// Offset of the Mobility Header in the frame of a Binding Update.
const MOBILITY_HEADER_OFFSET: usize =
    ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + HOME_ADDRESS_OPTION_LENGTH;
/// Number of octets of the Mobility Header before the IPv4 prefix, or before the authentication option.
const LENGTH_BEFORE_IPV4_PREFIX: usize = 32;
/// Number of octets of the authentication option up to the end of its SPI. The MAC covers these octets.
const AUTHENTICATION_OPTION_LENGTH_UP_TO_SPI: usize = 8;
const AUTHENTICATOR_LENGTH: usize = 12;
const PROTOCOL_MOBILITY: u8 = 135;
const PROTOCOL_ROUTING: u8 = 43;
const PROTOCOL_DESTINATION_OPTIONS: u8 = 60;
const PROTOCOL_ICMPV6: u8 = 58;
const NO_NEXT_HEADER: u8 = 59;
/// ICMPv6 types (RFC 4443 4).
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const BINDING_UPDATE: u8 = 5;
const BINDING_ACKNOWLEDGEMENT: u8 = 6;
/// Flags of a Binding Update: A, H and R (RFC 6275 6.1.7, RFC 3963 4.1).
const BINDING_UPDATE_FLAGS: [u8; 2] = [0xc4, 0];
const MOBILE_NETWORK_PREFIX_OPTION: u8 = 6;
const AUTHENTICATION_OPTION: u8 = 9;
const IPV4_HOME_ADDRESS_OPTION: u8 = 29;
const IPV4_ACKNOWLEDGEMENT_OPTION: u8 = 30;
/// Length in bits of the IPv4 prefixes of the benchmark.
pub const IPV4_PREFIX_LENGTH: u8 = 26;
/// P flag of the IPv4 Home Address option: the router requests a prefix.
const FLAG_REQUESTS_PREFIX: u8 = 2;
/// Key of all routers of the benchmark, as in the configs.
pub const AUTHENTICATION_KEY: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// SPI of the key.
pub const SPI: u32 = 300;

/// Computes the MAC of a security association.
#[derive(Clone)]
pub struct MessageAuthenticator(Hmac<Sha1>);

impl std::fmt::Debug for MessageAuthenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

impl MessageAuthenticator {
    /// Creates a security association with this key.
    pub fn new(key: &[u8; 16]) -> anyhow::Result<MessageAuthenticator> {
        Ok(MessageAuthenticator(<Hmac<Sha1> as KeyInit>::new_from_slice(key).context("a key of 16 octets")?))
    }

    /// Returns the MAC of RFC 4285 5.1: over care-of address, home address and the covered part of the
    /// Mobility Header, with a checksum of zero.
    fn compute_authenticator(
        &self,
        ends: (Ipv6Addr, Ipv6Addr),
        covered: &[u8],
    ) -> [u8; AUTHENTICATOR_LENGTH] {
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
pub struct RouterIdentity {
    /// Home address of the router.
    pub home_address: Ipv6Addr,
    /// Care-of address of the router.
    pub care_of_address: Ipv6Addr,
    /// First 64 bits of the router's mobile network prefix.
    pub mobile_network_prefix: u64,
    /// The router's IPv4 prefix, of [`IPV4_PREFIX_LENGTH`] bits; `None` without IPv4.
    pub ipv4_prefix: Option<Ipv4Addr>,
}

/// Returns the checksum of RFC 1071 over a pseudo-header and the data that follows.
pub fn pseudo_header_checksum(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, header: &[u8]) -> u16 {
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
pub fn binding_update_frame(
    link: ([u8; 6], [u8; 6]),
    agent: Ipv6Addr,
    who: RouterIdentity,
    sequence: u16,
    lifetime: u16,
    signer: &MessageAuthenticator,
) -> Vec<u8> {
    let ipv4 = if who.ipv4_prefix.is_some() { IPV4_HOME_ADDRESS_OPTION_LENGTH } else { 0 };
    let (length, covered) = (
        MOBILITY_HEADER_LENGTH + ipv4,
        LENGTH_BEFORE_IPV4_PREFIX + ipv4 + AUTHENTICATION_OPTION_LENGTH_UP_TO_SPI,
    );
    let mut frame = vec![0; MOBILITY_HEADER_OFFSET + length];
    let mut put = |at: usize, octets: &[u8]| frame[at..at + octets.len()].copy_from_slice(octets);
    put(0, &link.1);
    put(6, &link.0);
    put(12, &[0x86, 0xdd, 0x60]);
    put(ETHERNET_HEADER_LENGTH + 4, &((HOME_ADDRESS_OPTION_LENGTH + length) as u16).to_be_bytes());
    put(ETHERNET_HEADER_LENGTH + 6, &[PROTOCOL_DESTINATION_OPTIONS, 64]);
    put(ETHERNET_HEADER_LENGTH + 8, &who.care_of_address.octets());
    put(ETHERNET_HEADER_LENGTH + 24, &agent.octets());
    // A PadN option of four octets comes first, because the Home Address option must begin at 8n+6.
    put(
        ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH,
        &[PROTOCOL_MOBILITY, (HOME_ADDRESS_OPTION_LENGTH / 8 - 1) as u8, 1, 2, 0, 0, 0xc9, 16],
    );
    put(ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + 8, &who.home_address.octets());
    put(MOBILITY_HEADER_OFFSET, &[NO_NEXT_HEADER, (length / 8 - 1) as u8, BINDING_UPDATE, 0, 0, 0]);
    put(MOBILITY_HEADER_OFFSET + 6, &sequence.to_be_bytes());
    put(MOBILITY_HEADER_OFFSET + 8, &BINDING_UPDATE_FLAGS);
    put(MOBILITY_HEADER_OFFSET + 10, &lifetime.to_be_bytes());
    put(MOBILITY_HEADER_OFFSET + 12, &[MOBILE_NETWORK_PREFIX_OPTION, 18, 0, 64]);
    put(MOBILITY_HEADER_OFFSET + 16, &who.mobile_network_prefix.to_be_bytes());
    if let Some(prefix) = who.ipv4_prefix {
        put(
            MOBILITY_HEADER_OFFSET + LENGTH_BEFORE_IPV4_PREFIX,
            &[IPV4_HOME_ADDRESS_OPTION, 6, IPV4_PREFIX_LENGTH << 2 | FLAG_REQUESTS_PREFIX, 0],
        );
        put(MOBILITY_HEADER_OFFSET + LENGTH_BEFORE_IPV4_PREFIX + 4, &prefix.octets());
    }
    // A Pad1 option comes first, because the authentication option must begin at 4n+1.
    put(MOBILITY_HEADER_OFFSET + covered - 7, &[AUTHENTICATION_OPTION, 17, 1]);
    put(MOBILITY_HEADER_OFFSET + covered - 4, &SPI.to_be_bytes());
    put(MOBILITY_HEADER_OFFSET + covered + AUTHENTICATOR_LENGTH, &[1, 2]);
    let code = signer.compute_authenticator(
        (who.care_of_address, who.home_address),
        &frame[MOBILITY_HEADER_OFFSET..MOBILITY_HEADER_OFFSET + covered],
    );
    frame[MOBILITY_HEADER_OFFSET + covered..MOBILITY_HEADER_OFFSET + covered + AUTHENTICATOR_LENGTH]
        .copy_from_slice(&code);
    let sum =
        pseudo_header_checksum(who.home_address, agent, PROTOCOL_MOBILITY, &frame[MOBILITY_HEADER_OFFSET..]);
    frame[MOBILITY_HEADER_OFFSET + 4..MOBILITY_HEADER_OFFSET + 6].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Returns a Binding Update for an encrypted session, from its IPv6 header on. It has no authentication
/// option. `lifetime` is in units of four seconds.
pub fn update_in_session(agent: Ipv6Addr, who: RouterIdentity, sequence: u16, lifetime: u16) -> Vec<u8> {
    let length = LENGTH_BEFORE_IPV4_PREFIX;
    let mut mobility = vec![0; length];
    mobility[..3].copy_from_slice(&[NO_NEXT_HEADER, (length / 8 - 1) as u8, BINDING_UPDATE]);
    mobility[6..8].copy_from_slice(&sequence.to_be_bytes());
    mobility[8..10].copy_from_slice(&BINDING_UPDATE_FLAGS);
    mobility[10..12].copy_from_slice(&lifetime.to_be_bytes());
    mobility[12..16].copy_from_slice(&[MOBILE_NETWORK_PREFIX_OPTION, 18, 0, 64]);
    mobility[16..24].copy_from_slice(&who.mobile_network_prefix.to_be_bytes());
    let sum = pseudo_header_checksum(who.home_address, agent, PROTOCOL_MOBILITY, &mobility);
    mobility[4..6].copy_from_slice(&sum.to_be_bytes());
    let payload = (HOME_ADDRESS_OPTION_LENGTH + length) as u16;
    // A PadN option of four octets comes first, because the Home Address option must begin at 8n+6.
    let options = [PROTOCOL_MOBILITY, (HOME_ADDRESS_OPTION_LENGTH / 8 - 1) as u8, 1, 2, 0, 0, 0xc9, 16];
    let [high, low] = payload.to_be_bytes();
    let header = [0x60, 0, 0, 0, high, low, PROTOCOL_DESTINATION_OPTIONS, 64];
    [
        &header[..],
        &who.care_of_address.octets(),
        &agent.octets(),
        &options,
        &who.home_address.octets(),
        &mobility,
    ]
    .concat()
}

/// Decodes a Binding Acknowledgement that came out of an encrypted session, from its IPv6 header on. `None`
/// if the packet is no Binding Acknowledgement.
///
/// # Errors
/// Fails if the acknowledgement has no routing header, a wrong checksum, or ends too early.
pub fn parse_acknowledgement_in_session(
    packet: &[u8],
    agent: Ipv6Addr,
) -> anyhow::Result<Option<BindingAcknowledgement>> {
    const MOBILITY: usize = MOBILITY_HEADER_OFFSET - ETHERNET_HEADER_LENGTH;
    let is_one = packet.get(6) == Some(&PROTOCOL_ROUTING)
        && packet.get(IPV6_HEADER_LENGTH) == Some(&PROTOCOL_MOBILITY)
        && packet.get(MOBILITY + 2) == Some(&BINDING_ACKNOWLEDGEMENT);
    if !is_one {
        return Ok(None);
    }
    let address = |at: usize| -> anyhow::Result<Ipv6Addr> {
        let octets = packet.get(at..at + 16).context("the Binding Acknowledgement ends too early")?;
        Ok(Ipv6Addr::from(<[u8; 16]>::try_from(octets)?))
    };
    let (source, care_of_address, home_address) =
        (address(8)?, address(24)?, address(IPV6_HEADER_LENGTH + 8)?);
    ensure!(source == agent, "the Binding Acknowledgement comes from {source}, expected {agent}");
    let length = (usize::from(packet[MOBILITY + 1]) + 1) * 8;
    let header =
        packet.get(MOBILITY..MOBILITY + length).context("the Binding Acknowledgement ends too early")?;
    ensure!(
        pseudo_header_checksum(agent, home_address, PROTOCOL_MOBILITY, header) == 0,
        "the Binding Acknowledgement has a wrong checksum"
    );
    ensure!(length >= 16, "the Binding Acknowledgement is too short for mobility options");
    let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    Ok(Some(BindingAcknowledgement {
        home_address,
        care_of_address,
        status: header[6],
        sequence: short(8),
        lifetime: short(10),
        ipv4_status: None,
    }))
}

/// Returns the Echo Reply to an Echo Request, from its IPv6 header on; `None` for other packets.
pub fn echo_reply(packet: &[u8]) -> Option<Vec<u8>> {
    let (header, message) = packet.split_at_checked(IPV6_HEADER_LENGTH)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let message = message.get(..length)?;
    if header[6] != PROTOCOL_ICMPV6 || message.first() != Some(&ECHO_REQUEST) {
        return None;
    }
    let address = |at: usize| <[u8; 16]>::try_from(&header[at..at + 16]).map(Ipv6Addr::from).ok();
    let (source, destination) = (address(24)?, address(8)?);
    let mut message = message.to_vec();
    message[0] = ECHO_REPLY;
    message.get_mut(2..4)?.fill(0);
    let sum = pseudo_header_checksum(source, destination, PROTOCOL_ICMPV6, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    Some([&header[..8], &source.octets(), &destination.octets(), &message].concat())
}

/// Content of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingAcknowledgement {
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
pub fn parse_binding_acknowledgement(
    frame: &[u8],
    agent: Ipv6Addr,
    signer: &MessageAuthenticator,
) -> anyhow::Result<Option<BindingAcknowledgement>> {
    let is_one = frame.get(ETHERNET_HEADER_LENGTH + 6) == Some(&PROTOCOL_ROUTING)
        && frame.get(ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH) == Some(&PROTOCOL_MOBILITY)
        && frame.get(MOBILITY_HEADER_OFFSET + 2) == Some(&BINDING_ACKNOWLEDGEMENT);
    if !is_one {
        return Ok(None);
    }
    let address = |at: usize| -> anyhow::Result<Ipv6Addr> {
        let octets = frame.get(at..at + 16).context("the Binding Acknowledgement ends too early")?;
        Ok(Ipv6Addr::from(<[u8; 16]>::try_from(octets)?))
    };
    let (source, care_of_address) =
        (address(ETHERNET_HEADER_LENGTH + 8)?, address(ETHERNET_HEADER_LENGTH + 24)?);
    let home_address = address(ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + 8)?;
    ensure!(
        source == agent,
        "the Binding Acknowledgement comes from {source}, expected the home agent's address {agent}"
    );
    ensure!(
        frame[ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + 2
            ..ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + 4]
            == [2, 1],
        "the Binding Acknowledgement has no type 2 routing header"
    );
    let length = (usize::from(frame[MOBILITY_HEADER_OFFSET + 1]) + 1) * 8;
    let header = frame
        .get(MOBILITY_HEADER_OFFSET..MOBILITY_HEADER_OFFSET + length)
        .context("the Binding Acknowledgement ends too early")?;
    ensure!(
        pseudo_header_checksum(agent, home_address, PROTOCOL_MOBILITY, header) == 0,
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
    let expected = signer.compute_authenticator((care_of_address, home_address), &header[..code]);
    ensure!(
        header[code..code + AUTHENTICATOR_LENGTH] == expected,
        "the Binding Acknowledgement has a wrong MAC"
    );
    let (status, sequence, lifetime) = (header[6], short(8), short(10));
    Ok(Some(BindingAcknowledgement {
        home_address,
        care_of_address,
        status,
        sequence,
        lifetime,
        ipv4_status,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_hex(octets: &[u8]) -> String {
        octets.iter().map(|octet| format!("{octet:02x}")).collect()
    }

    fn address(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    /// The expected octets are a Binding Update whose MAC another implementation of RFC 4285 has computed.
    #[test]
    fn binding_update_equals_recorded_packet() {
        let who = RouterIdentity {
            home_address: address("2001:db8:1::1234"),
            care_of_address: address("2001:db8:f1::10"),
            mobile_network_prefix: 0x2001_0db8_0002_0000,
            ipv4_prefix: None,
        };
        let signer = MessageAuthenticator::new(&AUTHENTICATION_KEY).expect("a key");
        let frame = binding_update_frame(([1; 6], [2; 6]), address("2001:db8:1::1"), who, 3, 60, &signer);
        assert_eq!(
            to_hex(&frame[MOBILITY_HEADER_OFFSET..]),
            "3b0605000f810003c400003c0612004020010db80002000000000000000000000009110100\
             00012c99119f05ec6abd2b938bc15101020000"
        );
        // The IPv4 prefix comes before the authentication option.
        let who = RouterIdentity { ipv4_prefix: Some(Ipv4Addr::new(10, 0, 0, 64)), ..who };
        let frame = binding_update_frame(([1; 6], [2; 6]), address("2001:db8:1::1"), who, 3, 60, &signer);
        assert_eq!(frame.len(), MOBILITY_HEADER_OFFSET + 64);
        assert_eq!(
            to_hex(&frame[MOBILITY_HEADER_OFFSET + 32..MOBILITY_HEADER_OFFSET + 48]),
            "1d066a000a0000400009110100000 12c".replace(' ', "")
        );
        assert_eq!(
            pseudo_header_checksum(
                who.home_address,
                address("2001:db8:1::1"),
                PROTOCOL_MOBILITY,
                &frame[MOBILITY_HEADER_OFFSET..]
            ),
            0
        );
    }

    #[test]
    fn invalid_binding_acknowledgements_are_rejected_with_reason() {
        let signer = MessageAuthenticator::new(&AUTHENTICATION_KEY).expect("a key");
        let agent = address("2001:db8:1::1");
        let (home, care_of) = (address("2001:db8:1::1234"), address("2001:db8:f1::10"));
        let mut frame = vec![0; MOBILITY_HEADER_OFFSET + 32];
        frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        frame[ETHERNET_HEADER_LENGTH + 6] = PROTOCOL_ROUTING;
        frame[ETHERNET_HEADER_LENGTH + 8..ETHERNET_HEADER_LENGTH + 24].copy_from_slice(&agent.octets());
        frame[ETHERNET_HEADER_LENGTH + 24..ETHERNET_HEADER_LENGTH + 40].copy_from_slice(&care_of.octets());
        frame[ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH..ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + 4]
            .copy_from_slice(&[PROTOCOL_MOBILITY, 2, 2, 1]);
        frame[ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + 8
            ..ETHERNET_HEADER_LENGTH + IPV6_HEADER_LENGTH + 24]
            .copy_from_slice(&home.octets());
        let header = [NO_NEXT_HEADER, 3, BINDING_ACKNOWLEDGEMENT, 0, 0, 0, 0, 0, 0, 7, 0, 15];
        frame[MOBILITY_HEADER_OFFSET..MOBILITY_HEADER_OFFSET + 12].copy_from_slice(&header);
        frame[MOBILITY_HEADER_OFFSET + 13..MOBILITY_HEADER_OFFSET + 16].copy_from_slice(&[
            AUTHENTICATION_OPTION,
            17,
            1,
        ]);
        frame[MOBILITY_HEADER_OFFSET + 16..MOBILITY_HEADER_OFFSET + 20].copy_from_slice(&SPI.to_be_bytes());
        let code = signer.compute_authenticator(
            (care_of, home),
            &frame[MOBILITY_HEADER_OFFSET..MOBILITY_HEADER_OFFSET + 20],
        );
        frame[MOBILITY_HEADER_OFFSET + 20..].copy_from_slice(&code);
        let sum = pseudo_header_checksum(agent, home, PROTOCOL_MOBILITY, &frame[MOBILITY_HEADER_OFFSET..]);
        frame[MOBILITY_HEADER_OFFSET + 4..MOBILITY_HEADER_OFFSET + 6].copy_from_slice(&sum.to_be_bytes());
        let read = |frame: &[u8]| {
            parse_binding_acknowledgement(frame, agent, &signer).map_err(|error| error.to_string())
        };
        let right = BindingAcknowledgement {
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
        assert_eq!(
            with(MOBILITY_HEADER_OFFSET + 9, 8),
            Err("the Binding Acknowledgement has a wrong checksum".into())
        );
        assert_eq!(with(MOBILITY_HEADER_OFFSET + 2, BINDING_UPDATE), Ok(None));
        for length in 0..frame.len() {
            let cut = read(&frame[..length]);
            assert!(cut != Ok(Some(right)), "{length}");
        }
        frame[MOBILITY_HEADER_OFFSET + 31] ^= 1;
        frame[MOBILITY_HEADER_OFFSET + 4..MOBILITY_HEADER_OFFSET + 6].copy_from_slice(&[0, 0]);
        let sum = pseudo_header_checksum(agent, home, PROTOCOL_MOBILITY, &frame[MOBILITY_HEADER_OFFSET..]);
        frame[MOBILITY_HEADER_OFFSET + 4..MOBILITY_HEADER_OFFSET + 6].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(read(&frame), Err("the Binding Acknowledgement has a wrong MAC".into()));
    }
}
