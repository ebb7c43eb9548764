//! Multicast Listener Discovery: queries and reports of version 2 (RFC 3810 5) and of version 1 (RFC 2710 3).
//!
//! [`MldMessage::parse_packet`] makes the checks of RFC 3810 6.2, 7.4 and 7.6 that a packet allows. They
//! cover hop limit 1, the Router Alert option (RFC 2711) with the value of MLD, a link-local source, and the
//! checksum. The parser ignores auxiliary data and octets behind the last record or source (5.1.12, 5.2.11).
//!
//! Left out: emitting reports. On a router that is itself a listener, the kernel's IPv6 stack sends them.

use std::net::Ipv6Addr;

use crate::Error;
use crate::icmpv6;
use crate::ipv6::{HEADER_LEN, Header, protocol};
use crate::octets::{address_at, array_at, slice_at, u8_at, u16_at};

/// All MLDv2-capable routers, ff02::16 (RFC 3810 5.2.14).
pub const ALL_ROUTERS_V2: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Number of source addresses that fit into a query of 1280 octets, headers included.
pub const MAX_QUERIED_SOURCES: usize = (1280 - HEADER_LEN - ROUTER_ALERT.len() - V2_QUERY_LEN) / 16;

const QUERY_TYPE: u8 = 130;
const REPORT_V1_TYPE: u8 = 131;
const DONE_V1_TYPE: u8 = 132;
const REPORT_V2_TYPE: u8 = 143;
/// Octets of a version 1 message, and of a version 2 query without sources.
const V1_MESSAGE_LEN: usize = 24;
const V2_QUERY_LEN: usize = 28;
/// The Hop-by-Hop Options header of MLD: next header ICMPv6, Router Alert with value 0, two octets of
/// padding.
const ROUTER_ALERT: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
const NAME_IN_ERRORS: &str = "MLD message";

/// A list of IPv6 addresses in their octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MulticastSourceList<'a>(&'a [u8]);

impl MulticastSourceList<'_> {
    /// Returns the number of addresses.
    pub fn len(&self) -> usize {
        self.0.len() / 16
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the addresses in order.
    pub fn iter(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.0.chunks_exact(16).filter_map(|octets| Some(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?)))
    }
}

/// Fields of a query that only version 2 has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryVersion2Fields<'a> {
    /// S: routers that receive the query do not lower their timers.
    pub suppress_router_timers: bool,
    /// QRV, the querier's Robustness Variable; 0 if the Robustness Variable is above 7.
    pub robustness_variable: u8,
    /// QQI, the querier's Query Interval, seconds.
    pub query_interval: u32,
    /// Sources that the query asks about; empty in a General Query and in a Multicast Address Specific Query.
    pub sources: MulticastSourceList<'a>,
}

/// A query (RFC 3810 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MldQuery<'a> {
    /// Longest time that a listener may take to answer, milliseconds.
    pub maximum_response_delay: u32,
    /// Group that the query asks about; `None` in a General Query.
    pub group: Option<Ipv6Addr>,
    /// Fields that only version 2 has; `None` in a version 1 query.
    pub version_2: Option<QueryVersion2Fields<'a>>,
}

/// Type of a multicast address record (RFC 3810 5.2.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupRecordType {
    /// MODE_IS_INCLUDE: the present filter includes only these sources.
    IsInclude,
    /// MODE_IS_EXCLUDE: the present filter excludes these sources.
    IsExclude,
    /// CHANGE_TO_INCLUDE_MODE: the filter now includes only these sources.
    ToInclude,
    /// CHANGE_TO_EXCLUDE_MODE: the filter now excludes these sources.
    ToExclude,
    /// ALLOW_NEW_SOURCES: the filter now allows these sources, too.
    Allow,
    /// BLOCK_OLD_SOURCES: the filter no longer allows these sources.
    Block,
}

/// A Multicast Address Record (RFC 3810 5.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRecord<'a> {
    /// Type of the record; `None` for an unknown type, which a receiver ignores.
    pub record_type: Option<GroupRecordType>,
    /// Multicast address that the record is about.
    pub group: Ipv6Addr,
    /// Sources of the record.
    pub sources: MulticastSourceList<'a>,
}

/// The records of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRecords<'a> {
    record_count: u16,
    octets: &'a [u8],
}

impl<'a> GroupRecords<'a> {
    /// Returns the records in order and stops before a record that exceeds the message.
    pub fn iter(&self) -> impl Iterator<Item = GroupRecord<'a>> {
        let mut rest = self.octets;
        (0..self.record_count).map_while(move |_| {
            let (record, behind) = split_record(rest)?;
            rest = behind;
            Some(record)
        })
    }
}

fn split_record(octets: &[u8]) -> Option<(GroupRecord<'_>, &[u8])> {
    let [kind, auxiliary, n0, n1] = *octets.first_chunk()?;
    let group = address_at(octets, 4, NAME_IN_ERRORS).ok()?;
    let sources = usize::from(u16::from_be_bytes([n0, n1])) * 16;
    let behind = octets.get(20 + sources + usize::from(auxiliary) * 4..)?;
    let record_type = match kind {
        1 => Some(GroupRecordType::IsInclude),
        2 => Some(GroupRecordType::IsExclude),
        3 => Some(GroupRecordType::ToInclude),
        4 => Some(GroupRecordType::ToExclude),
        5 => Some(GroupRecordType::Allow),
        6 => Some(GroupRecordType::Block),
        _ => None,
    };
    Some((
        GroupRecord { record_type, group, sources: MulticastSourceList(octets.get(20..20 + sources)?) },
        behind,
    ))
}

/// An MLD message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MldMessage<'a> {
    /// Multicast Listener Query, of version 1 or 2.
    Query(MldQuery<'a>),
    /// Version 2 Multicast Listener Report.
    Report(GroupRecords<'a>),
    /// Version 1 Multicast Listener Report, with its group.
    ReportV1(Ipv6Addr),
    /// Version 1 Multicast Listener Done, with its group.
    DoneV1(Ipv6Addr),
}

impl<'a> MldMessage<'a> {
    /// Reads a packet; `None` if the packet carries no MLD message. The returned header is the IPv6 header.
    pub fn parse_packet(packet: &'a [u8]) -> Option<Result<(Header, MldMessage<'a>), Error>> {
        let (header, payload) = Header::parse_packet(packet).ok()?;
        let (message, alert) = match header.next_header {
            protocol::ICMPV6 => (payload, false),
            protocol::HOP_BY_HOP => {
                let [next, length] = *payload.first_chunk()?;
                let end = (usize::from(length) + 1) * 8;
                if next != protocol::ICMPV6 {
                    return None;
                }
                (payload.get(end..)?, has_router_alert(payload.get(2..end)?))
            }
            _ => return None,
        };
        if !matches!(message.first(), Some(&(QUERY_TYPE | REPORT_V1_TYPE | DONE_V1_TYPE | REPORT_V2_TYPE))) {
            return None;
        }
        Some(
            check_header(&header, message, alert)
                .and_then(|()| MldMessage::parse(message))
                .map(|it| (header, it)),
        )
    }

    fn parse(message: &'a [u8]) -> Result<MldMessage<'a>, Error> {
        match u8_at(message, 0, NAME_IN_ERRORS)? {
            QUERY_TYPE => MldQuery::parse(message).map(MldMessage::Query),
            REPORT_V1_TYPE => parse_group(message, 8).map(MldMessage::ReportV1),
            DONE_V1_TYPE => parse_group(message, 8).map(MldMessage::DoneV1),
            _ => {
                let octets = slice_at(message, 8, message.len().saturating_sub(8), NAME_IN_ERRORS)?;
                Ok(MldMessage::Report(GroupRecords {
                    record_count: u16_at(message, 6, NAME_IN_ERRORS)?,
                    octets,
                }))
            }
        }
    }
}

impl<'a> MldQuery<'a> {
    fn parse(message: &'a [u8]) -> Result<MldQuery<'a>, Error> {
        let code = u16_at(message, 4, NAME_IN_ERRORS)?;
        let group = Some(address_at(message, 8, NAME_IN_ERRORS)?).filter(|group| !group.is_unspecified());
        if let Some(found) = group.filter(|group| !group.is_multicast()) {
            let found = u32::from(found.octets()[0]);
            return Err(Error::Value { what: "queried address", expected: "a multicast address", found });
        }
        // RFC 3810 8.1: 24 octets are version 1, 28 or more are version 2; a length between 24 and 28 is
        // invalid.
        if message.len() == V1_MESSAGE_LEN {
            return Ok(MldQuery { maximum_response_delay: code.into(), group, version_2: None });
        }
        let [flags, interval, n0, n1] = array_at::<4>(message, V1_MESSAGE_LEN, NAME_IN_ERRORS)?;
        let count = usize::from(u16::from_be_bytes([n0, n1]));
        let v2 = QueryVersion2Fields {
            suppress_router_timers: flags & 0x08 != 0,
            robustness_variable: flags & 0x07,
            query_interval: decode_exponential(interval.into(), 7, 4),
            sources: MulticastSourceList(slice_at(message, V2_QUERY_LEN, count * 16, NAME_IN_ERRORS)?),
        };
        Ok(MldQuery {
            maximum_response_delay: decode_exponential(code.into(), 15, 12),
            group,
            version_2: Some(v2),
        })
    }
}

/// A version 2 query for sending. The emitter sends a General Query to all nodes, any other query to its
/// group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MldQueryRepr<'a> {
    /// Maximum Response Delay, milliseconds; the emitter rounds it down to a value that the code can express.
    pub maximum_response_delay: u32,
    /// Group that the query asks about; `None` for a General Query.
    pub group: Option<Ipv6Addr>,
    /// S: routers that receive the query do not lower their timers.
    pub suppress_router_timers: bool,
    /// Robustness Variable, written as QRV.
    pub robustness_variable: u8,
    /// Query Interval, seconds; the emitter rounds it down to a value that the code can express.
    pub query_interval: u32,
    /// Sources that the query asks about. The emitter writes at most [`MAX_QUERIED_SOURCES`].
    pub sources: &'a [Ipv6Addr],
}

impl MldQueryRepr<'_> {
    /// Returns the whole packet with the link-local `source`.
    pub fn emit_packet(&self, source: Ipv6Addr) -> Vec<u8> {
        const ALL_NODES: Ipv6Addr = crate::nd::ALL_NODES;
        let destination = self.group.unwrap_or(ALL_NODES);
        let sources = self.sources.get(..MAX_QUERIED_SOURCES).unwrap_or(self.sources);
        let mut message = vec![QUERY_TYPE, 0, 0, 0];
        message.extend_from_slice(
            &(encode_exponential(self.maximum_response_delay, 15, 12) as u16).to_be_bytes(),
        );
        message.extend_from_slice(&[0, 0]);
        message.extend_from_slice(&self.group.unwrap_or(Ipv6Addr::UNSPECIFIED).octets());
        let robustness = if self.robustness_variable > 7 { 0 } else { self.robustness_variable };
        message.push(u8::from(self.suppress_router_timers) << 3 | robustness);
        message.push(encode_exponential(self.query_interval, 7, 4) as u8);
        message.extend_from_slice(&(sources.len() as u16).to_be_bytes());
        sources.iter().for_each(|source| message.extend_from_slice(&source.octets()));
        icmpv6::set_checksum(&mut message, source, destination);
        let header = Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: (ROUTER_ALERT.len() + message.len()) as u16,
            next_header: protocol::HOP_BY_HOP,
            hop_limit: 1,
            source,
            destination,
        };
        [&header.emit()[..], &ROUTER_ALERT, &message].concat()
    }
}

/// Decodes a Maximum Response Code or QQIC (RFC 3810 5.1.3, 5.1.9). A code below 2^`bits` is the number
/// itself. A higher code consists of a mantissa of `mantissa` bits and an exponent of three bits.
fn decode_exponential(code: u32, bits: u32, mantissa: u32) -> u32 {
    if code < 1 << bits {
        return code;
    }
    let exponent = code >> mantissa & 7;
    (code & ((1 << mantissa) - 1) | 1 << mantissa) << (exponent + 3)
}

/// Returns the code of the largest encodable number that does not exceed `value`.
fn encode_exponential(value: u32, bits: u32, mantissa: u32) -> u32 {
    if value < 1 << bits {
        return value;
    }
    let largest = ((1 << (mantissa + 1)) - 1) << 10;
    let value = value.min(largest);
    // The mantissa omits its highest bit, which is the highest bit of the number.
    let shift = (31 - value.leading_zeros()) - mantissa;
    1 << bits | (shift - 3) << mantissa | (value >> shift) & ((1 << mantissa) - 1)
}

/// Returns whether the options contain a Router Alert option with the value of MLD (RFC 2711 2.1).
fn has_router_alert(options: &[u8]) -> bool {
    let mut rest = options;
    while let Some((kind, behind)) = rest.split_first() {
        if *kind == 0 {
            rest = behind;
            continue;
        }
        let Some((length, data)) = behind.split_first() else { return false };
        let Some((data, behind)) = data.split_at_checked((*length).into()) else { return false };
        if *kind == 5 && data == [0, 0] {
            return true;
        }
        rest = behind;
    }
    false
}

fn check_header(header: &Header, message: &[u8], alert: bool) -> Result<(), Error> {
    let wrong = |what, expected, found: u32| Err(Error::Value { what, expected, found });
    if header.hop_limit != 1 {
        return wrong("MLD hop limit", "1", header.hop_limit.into());
    }
    if !alert {
        return wrong("MLD router alert", "a Hop-by-Hop option with value 0", header.next_header.into());
    }
    if !header.source.is_unicast_link_local() {
        return wrong("MLD source", "a link-local address", header.source.octets()[0].into());
    }
    icmpv6::verify_checksum(header.source, header.destination, message)
}

fn parse_group(message: &[u8], offset: usize) -> Result<Ipv6Addr, Error> {
    let group = address_at(message, offset, NAME_IN_ERRORS)?;
    match group.is_multicast() {
        true => Ok(group),
        false => {
            let found = u32::from(group.octets()[0]);
            Err(Error::Value { what: "reported address", expected: "a multicast address", found })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mld_codes_are_linear_or_exponential() {
        for (code, value) in
            [(0, 0), (125, 125), (127, 127), (0x80, 128), (0x81, 136), (0x90, 256), (0xff, 31_744)]
        {
            assert_eq!(
                (decode_exponential(code, 7, 4), encode_exponential(value, 7, 4)),
                (value, code),
                "{code}"
            );
        }
        for (code, value) in [(32_767, 32_767), (0x8000, 32_768), (0x8001, 32_776), (0xffff, 8_387_584)] {
            assert_eq!(
                (decode_exponential(code, 15, 12), encode_exponential(value, 15, 12)),
                (value, code),
                "{code}"
            );
        }
        // Each number is encoded as the next lower value that has a code.
        assert_eq!(
            (
                encode_exponential(135, 7, 4),
                encode_exponential(u32::MAX, 7, 4),
                encode_exponential(u32::MAX, 15, 12)
            ),
            (0x80, 0xff, 0xffff)
        );
    }

    #[test]
    fn every_mld_code_survives_decoding_and_encoding() {
        (0..=0xff)
            .for_each(|code| assert_eq!(encode_exponential(decode_exponential(code, 7, 4), 7, 4), code));
        (0..=0xffff)
            .for_each(|code| assert_eq!(encode_exponential(decode_exponential(code, 15, 12), 15, 12), code));
    }
}
