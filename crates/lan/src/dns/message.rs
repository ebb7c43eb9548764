//! DNS messages (RFC 1035 4, RFC 6891) as far as a forwarder reads and writes them.
//!
//! A forwarder passes records on as they are. So this module finds where the records and their times to live
//! are, and does not read their values. It never follows a compression pointer, so no message can make it
//! loop.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Length in octets of the header.
pub const HEADER_LENGTH: usize = 12;
/// Maximum length in octets of a message over UDP, unless the receiver announces more (RFC 1035 4.2.1).
pub const UDP_SIZE_WITHOUT_EDNS: usize = 512;
/// Maximum length in octets of a message over UDP with EDNS. IPv6 never fragments a message of this length.
pub const EDNS_UDP_SIZE: u16 = 1232;
/// Maximum length in octets of a message over TCP (RFC 1035 4.2.2).
const MAX_MESSAGE_LENGTH: usize = 65_535;
/// Maximum length of a name in octets.
const MAX_NAME_LENGTH: usize = 255;
/// Maximum number of records in a message; a message with more records is invalid.
const MAX_RECORDS_PER_MESSAGE: usize = 4096;

/// Types of DNS records.
pub mod record_type {
    /// IPv4 address.
    pub const A: u16 = 1;
    /// Name server of a zone.
    pub const NS: u16 = 2;
    /// Start of a zone of authority.
    pub const SOA: u16 = 6;
    /// Name of an address.
    pub const PTR: u16 = 12;
    /// IPv6 address.
    pub const AAAA: u16 = 28;
    /// Pseudo-record of the extension EDNS (RFC 6891).
    pub const OPT: u16 = 41;
    /// Fingerprint of a zone's key (RFC 4034).
    pub const DS: u16 = 43;
    /// Key of a zone (RFC 4034).
    pub const DNSKEY: u16 = 48;
    /// All types, in a question.
    pub const ANY: u16 = 255;
}

/// The class of the Internet.
pub const CLASS_IN: u16 = 1;

/// Flags of the header.
mod header_flag {
    pub const RESPONSE: u16 = 0x8000;
    pub const OPCODE: u16 = 0x7800;
    pub const AUTHORITATIVE: u16 = 0x0400;
    pub const TRUNCATED: u16 = 0x0200;
    pub const RECURSION_DESIRED: u16 = 0x0100;
    pub const RECURSION_AVAILABLE: u16 = 0x0080;
    pub const AUTHENTIC_DATA: u16 = 0x0020;
    pub const CHECKING_DISABLED: u16 = 0x0010;
    pub const RESPONSE_CODE: u16 = 0x000f;
}

/// Response codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsResponseCode {
    /// NOERROR.
    Success,
    /// FORMERR: the query is invalid.
    Malformed,
    /// SERVFAIL: no server has answered.
    Failure,
    /// NXDOMAIN: the name does not exist.
    NoName,
    /// NOTIMP: the kind of query is not supported.
    NotSupported,
    /// REFUSED: too many queries wait.
    Refused,
}

impl DnsResponseCode {
    fn code_number(self) -> u16 {
        match self {
            DnsResponseCode::Success => 0,
            DnsResponseCode::Malformed => 1,
            DnsResponseCode::Failure => 2,
            DnsResponseCode::NoName => 3,
            DnsResponseCode::NotSupported => 4,
            DnsResponseCode::Refused => 5,
        }
    }
}

/// A question: name, type and class.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DnsQuestion {
    /// Name in DNS wire format, in lower case.
    pub name: Vec<u8>,
    /// Type of the records.
    pub record_type: u16,
    /// Class of the records.
    pub record_class: u16,
}

impl DnsQuestion {
    /// Returns the labels of the name, in lower case.
    pub fn name_labels(&self) -> Vec<&[u8]> {
        let mut labels = Vec::new();
        let mut rest = self.name.as_slice();
        while let Some((length, more)) = rest.split_first().filter(|(length, _)| **length > 0) {
            let Some((label, more)) = more.split_at_checked(usize::from(*length)) else { break };
            labels.push(label);
            rest = more;
        }
        labels
    }
}

/// A query of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsQuery {
    /// ID, which the answer repeats.
    pub message_id: u16,
    /// Flags of the header.
    pub flags: u16,
    /// The question as the client wrote it, with the case of its letters.
    pub question_octets: Vec<u8>,
    /// The question.
    pub question: DnsQuestion,
    /// EDNS extension in the client's query; `None` if the query has none.
    pub edns_extension: Option<EdnsExtension>,
}

/// The EDNS extension of a message (RFC 6891).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdnsExtension {
    /// Maximum length of an answer over UDP, in octets.
    pub max_udp_size: u16,
    /// Whether the sender wants signatures (DO bit).
    pub wants_signatures: bool,
}

/// The fields of a record that the forwarder needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DnsRecordFields {
    record_start: usize,
    kind: u16,
    record_class: u16,
    time_to_live: u32,
    /// Offset of the time to live.
    ttl_offset: usize,
    data_offset: usize,
    record_end: usize,
}

/// Reads a 16-bit field.
fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|octets| u16::from_be_bytes(*octets))
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|octets| u32::from_be_bytes(*octets))
}

/// Returns the offset behind a name, which may end with a compression pointer; `None` if the name is invalid.
fn skip_name(octets: &[u8], mut at: usize) -> Option<usize> {
    let start = at;
    loop {
        let length = *octets.get(at)?;
        match length {
            0 => return Some(at + 1),
            1..=63 => at += 1 + usize::from(length),
            192.. => return octets.get(at + 1).map(|_| at + 2),
            _ => return None,
        }
        if at - start > MAX_NAME_LENGTH {
            return None;
        }
    }
}

/// Reads the question of a message that has one. Returns the question and the offset behind it. Returns
/// `None` if it is invalid, for example by a compression pointer.
fn read_question(octets: &[u8]) -> Option<(DnsQuestion, usize)> {
    if u16_at(octets, 4)? != 1 {
        return None;
    }
    let end = skip_name(octets, HEADER_LENGTH)?;
    let name = octets.get(HEADER_LENGTH..end)?;
    if name.last() != Some(&0) || name.len() > MAX_NAME_LENGTH {
        return None;
    }
    // Octets with the length of a label are below 64, so none of them looks like an upper-case letter.
    let name = name.to_ascii_lowercase();
    let question =
        DnsQuestion { name, record_type: u16_at(octets, end)?, record_class: u16_at(octets, end + 2)? };
    Some((question, end + 4))
}

/// Reads the records from an offset on; `None` if one is invalid, or if there are too many.
fn read_records(octets: &[u8], mut at: usize, count: usize) -> Option<Vec<DnsRecordFields>> {
    if count > MAX_RECORDS_PER_MESSAGE {
        return None;
    }
    let mut records = Vec::new();
    for _ in 0..count {
        let start = at;
        let fields = skip_name(octets, at)?;
        let length = usize::from(u16_at(octets, fields + 8)?);
        let (ttl_at, data_at) = (fields + 4, fields + 10);
        let end = data_at + length;
        octets.get(data_at..end)?;
        let (kind, class, ttl) =
            (u16_at(octets, fields)?, u16_at(octets, fields + 2)?, u32_at(octets, ttl_at)?);
        records.push(DnsRecordFields {
            record_start: start,
            kind,
            record_class: class,
            time_to_live: ttl,
            ttl_offset: ttl_at,
            data_offset: data_at,
            record_end: end,
        });
        at = end;
    }
    Some(records)
}

impl DnsQuery {
    /// Parses a client's query. A message that is no query at all gives `None`, and gets no answer.
    ///
    /// # Errors
    /// Returns the code of the answer to an invalid query.
    pub fn parse(octets: &[u8]) -> Option<Result<DnsQuery, DnsResponseCode>> {
        let (id, flags) = (u16_at(octets, 0)?, u16_at(octets, 2)?);
        if octets.len() < HEADER_LENGTH || flags & header_flag::RESPONSE != 0 {
            return None;
        }
        if flags & header_flag::OPCODE != 0 {
            return Some(Err(DnsResponseCode::NotSupported));
        }
        Some(DnsQuery::read_query(octets, id, flags).ok_or(DnsResponseCode::Malformed))
    }

    fn read_query(octets: &[u8], id: u16, flags: u16) -> Option<DnsQuery> {
        let (question, end) = read_question(octets)?;
        let count = |at| u16_at(octets, at).map(usize::from);
        let (answers, authorities, additional) = (count(6)?, count(8)?, count(10)?);
        if answers + authorities > 0 || additional > 4 {
            return None;
        }
        let records = read_records(octets, end, additional)?;
        let edns =
            records.iter().find(|record| record.kind == record_type::OPT).map(|record| EdnsExtension {
                max_udp_size: record.record_class,
                wants_signatures: record.time_to_live & 0x8000 != 0,
            });
        let question_octets = octets.get(HEADER_LENGTH..end)?.to_vec();
        Some(DnsQuery { message_id: id, flags, question_octets, question, edns_extension: edns })
    }

    /// Returns the query to a server, with another ID and with carnet's own EDNS extension. EDNS options of
    /// the client, such as its network, do not leave the vehicle.
    pub fn to_server_query(&self, id: u16) -> Vec<u8> {
        let flags = self.flags & (header_flag::CHECKING_DISABLED | header_flag::AUTHENTIC_DATA)
            | header_flag::RECURSION_DESIRED;
        let edns = EdnsExtension { max_udp_size: EDNS_UDP_SIZE, wants_signatures: self.wants_signatures() };
        let mut octets = encode_header(id, flags, [1, 0, 0, 1]);
        octets.extend(&self.question_octets);
        octets.extend(encode_opt_record(edns));
        octets
    }

    /// Returns whether the client wants signatures.
    pub fn wants_signatures(&self) -> bool {
        self.edns_extension.is_some_and(|edns| edns.wants_signatures)
    }

    /// Returns whether the client validates signatures itself.
    pub fn disables_checks(&self) -> bool {
        self.flags & header_flag::CHECKING_DISABLED != 0
    }

    /// Returns the maximum length of an answer over UDP, in octets.
    pub fn max_answer_size(&self) -> usize {
        self.edns_extension.map_or(UDP_SIZE_WITHOUT_EDNS, |edns| {
            usize::from(edns.max_udp_size.min(EDNS_UDP_SIZE)).max(UDP_SIZE_WITHOUT_EDNS)
        })
    }

    /// Returns an answer without records.
    pub fn empty_answer(&self, code: DnsResponseCode) -> Vec<u8> {
        self.answer_with_records(code, 0, &[], 0)
    }

    /// Returns an answer that the vehicle itself knows. `records` are the octets of `count` records.
    pub fn local_answer(&self, code: DnsResponseCode, records: &[u8], count: u16) -> Vec<u8> {
        self.answer_with_records(code, header_flag::AUTHORITATIVE, records, count)
    }

    /// Returns an answer that tells the client to ask again over TCP.
    pub fn truncated_answer(&self) -> Vec<u8> {
        self.answer_with_records(DnsResponseCode::Success, header_flag::TRUNCATED, &[], 0)
    }

    fn answer_with_records(&self, code: DnsResponseCode, flags: u16, records: &[u8], count: u16) -> Vec<u8> {
        let extension = self.edns_extension.is_some();
        let flags = self.answer_flags() | flags | code.code_number();
        let mut octets = encode_header(self.message_id, flags, [1, count, 0, extension.into()]);
        octets.extend(&self.question_octets);
        octets.extend(records);
        if extension {
            octets.extend(encode_opt_record(EdnsExtension {
                max_udp_size: EDNS_UDP_SIZE,
                wants_signatures: self.wants_signatures(),
            }));
        }
        octets
    }

    fn answer_flags(&self) -> u16 {
        let copied = self.flags & (header_flag::RECURSION_DESIRED | header_flag::CHECKING_DISABLED);
        copied | header_flag::RESPONSE | header_flag::RECURSION_AVAILABLE
    }

    /// Returns a stored answer of a server in the form for this client, with the client's ID, question and
    /// EDNS extension. Subtracts `age` seconds from the time to live of each record. Returns `None` if the
    /// stored answer is too short.
    pub fn answer_from_server(&self, answer: &DnsServerAnswer, age: u32) -> Option<Vec<u8>> {
        let mut octets = answer.octets.clone();
        let flags = u16_at(&octets, 2)? & (header_flag::RESPONSE_CODE | header_flag::AUTHENTIC_DATA)
            | self.answer_flags();
        octets.get_mut(..2)?.copy_from_slice(&self.message_id.to_be_bytes());
        octets.get_mut(2..4)?.copy_from_slice(&flags.to_be_bytes());
        octets
            .get_mut(HEADER_LENGTH..HEADER_LENGTH + self.question_octets.len())?
            .copy_from_slice(&self.question_octets);
        for (at, ttl) in &answer.ttl_positions {
            octets.get_mut(*at..*at + 4)?.copy_from_slice(&ttl.saturating_sub(age).to_be_bytes());
        }
        if self.edns_extension.is_some() {
            let additional = u16_at(&octets, 10)?.checked_add(1)?;
            let extension = encode_opt_record(EdnsExtension {
                max_udp_size: EDNS_UDP_SIZE,
                wants_signatures: self.wants_signatures(),
            });
            // Add the extension only if the message still fits on a TCP connection.
            if octets.len() + extension.len() <= MAX_MESSAGE_LENGTH {
                octets.get_mut(10..12)?.copy_from_slice(&additional.to_be_bytes());
                octets.extend(extension);
            }
        }
        Some(octets)
    }
}

/// An answer of a server, without the server's EDNS extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsServerAnswer {
    octets: Vec<u8>,
    /// Offsets and values of the times to live.
    ttl_positions: Vec<(usize, u32)>,
    /// The question, as the server repeats it.
    pub question: DnsQuestion,
    /// Whether the server had to leave out records.
    pub is_truncated: bool,
    /// Whether the server could not find the answer (SERVFAIL, REFUSED and others).
    pub is_failure: bool,
    /// Seconds for which the answer is valid; `None` if it may not be stored.
    pub lifetime: Option<u32>,
}

impl DnsServerAnswer {
    /// Parses an answer to a query with this ID; `None` if it is invalid.
    pub fn parse(octets: &[u8], id: u16) -> Option<DnsServerAnswer> {
        let flags = u16_at(octets, 2)?;
        if u16_at(octets, 0)? != id || flags & header_flag::RESPONSE == 0 || flags & header_flag::OPCODE != 0
        {
            return None;
        }
        let (question, start) = read_question(octets)?;
        let count = |at| u16_at(octets, at).map(usize::from);
        let (answers, authorities, additional) = (count(6)?, count(8)?, count(10)?);
        let is_truncated = flags & header_flag::TRUNCATED != 0;
        let records = match read_records(octets, start, answers + authorities + additional) {
            Some(records) => records,
            // If the answer is truncated, the server may have cut it inside a record.
            None if is_truncated => Vec::new(),
            None => return None,
        };
        // RFC 6891 6.1.1: the EDNS extension may only be an additional record. An answer with the extension
        // in another section is invalid.
        if records.iter().take(answers + authorities).any(|record| record.kind == record_type::OPT) {
            return None;
        }
        // Leave out the server's EDNS extension, which is only for this program, and all records behind it,
        // which are optional.
        let kept = records.iter().position(|record| record.kind == record_type::OPT).unwrap_or(records.len());
        let kept = &records[..kept.max((answers + authorities).min(records.len()))];
        let end = kept.last().map_or(start, |record| record.record_end);
        let mut own = octets.get(..end)?.to_vec();
        let additional = u16::try_from(kept.len().saturating_sub(answers + authorities)).ok()?;
        own.get_mut(10..12)?.copy_from_slice(&additional.to_be_bytes());
        let code = flags & header_flag::RESPONSE_CODE;
        Some(DnsServerAnswer {
            lifetime: answer_lifetime(octets, code, (answers, authorities), &records)
                .filter(|_| !is_truncated),
            ttl_positions: kept.iter().map(|record| (record.ttl_offset, record.time_to_live)).collect(),
            octets: own,
            question,
            is_truncated,
            is_failure: code != 0 && code != 3,
        })
    }

    /// Returns whether the answer has records that answer the question.
    pub fn has_answers(&self) -> bool {
        u16_at(&self.octets, 6).is_some_and(|answers| answers > 0)
    }

    /// Returns the memory that the answer takes, in octets.
    pub fn memory_octets(&self) -> usize {
        self.octets.len() + self.ttl_positions.len() * size_of::<(usize, u32)>() + self.question.name.len()
    }
}

/// Returns the seconds for which an answer is valid: the lowest time to live of its records. A negative
/// answer has the zone's SOA record among its authority records. It is valid at most for the time in this
/// record (RFC 2308 5). A negative answer about an alias also has the records of the alias. `answers` and
/// `authorities` are the numbers of records in these sections.
fn answer_lifetime(
    octets: &[u8],
    code: u16,
    (answers, authorities): (usize, usize),
    records: &[DnsRecordFields],
) -> Option<u32> {
    if code != 0 && code != 3 {
        return None;
    }
    let valid = |ttl: u32| if ttl > i32::MAX as u32 { 0 } else { ttl };
    let all = records.iter().filter(|it| it.kind != record_type::OPT).map(|it| valid(it.time_to_live)).min();
    let zone = records.iter().skip(answers).take(authorities).find(|record| record.kind == record_type::SOA);
    let Some(soa) = zone else { return all.filter(|_| answers > 0 && code == 0) };
    let minimum = u32_at(octets, soa.record_end.checked_sub(4).filter(|at| *at >= soa.data_offset)?)?;
    Some(all?.min(valid(minimum)))
}

/// Returns the answer to an invalid query: its header alone. Returns `None` if the query is too short for a
/// header.
pub fn refusal_of_query(query: &[u8], code: DnsResponseCode) -> Option<Vec<u8>> {
    let (id, flags) = (u16_at(query, 0)?, u16_at(query, 2)?);
    let copied = flags & (header_flag::OPCODE | header_flag::RECURSION_DESIRED);
    Some(encode_header(id, copied | header_flag::RESPONSE | code.code_number(), [0; 4]))
}

fn encode_header(id: u16, flags: u16, counts: [u16; 4]) -> Vec<u8> {
    let fields = [id, flags].into_iter().chain(counts);
    fields.flat_map(u16::to_be_bytes).collect()
}

/// Returns the octets of the extension: a record of the root with type OPT.
fn encode_opt_record(edns: EdnsExtension) -> Vec<u8> {
    let mut octets = vec![0];
    octets.extend(record_type::OPT.to_be_bytes());
    octets.extend(edns.max_udp_size.to_be_bytes());
    octets.extend([0, 0, if edns.wants_signatures { 0x80 } else { 0 }, 0, 0, 0]);
    octets
}

/// Returns the octets of a record whose name is that of the question.
pub fn encode_own_record(kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    // The name is a compression pointer to the question.
    let mut octets = vec![0xc0, HEADER_LENGTH as u8];
    octets.extend(kind.to_be_bytes());
    octets.extend(CLASS_IN.to_be_bytes());
    octets.extend(ttl.to_be_bytes());
    octets.extend(u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
    octets.extend(data);
    octets
}

/// Returns the network of a name for reverse look-ups (RFC 1035 3.5, RFC 3596 2.5); `None` for other names.
/// The second value says whether the name has no further labels below the network.
pub fn reverse_network(labels: &[&[u8]]) -> Option<(IpNet, bool)> {
    match labels {
        [octets @ .., b"in-addr", b"arpa"] => {
            let parts: Vec<u8> =
                octets.iter().rev().take(4).map_while(|label| decimal_octet(label)).collect();
            let address: [u8; 4] = std::array::from_fn(|at| parts.get(at).copied().unwrap_or_default());
            let network = Ipv4Net::new(address.into(), 8 * u8::try_from(parts.len()).ok()?).ok()?;
            Some((IpNet::V4(network), parts.len() == octets.len()))
        }
        [digits @ .., b"ip6", b"arpa"] => {
            let parts: Vec<u8> =
                digits.iter().rev().take(32).map_while(|label| hexadecimal_digit(label)).collect();
            let place = |at: usize| parts.get(at).copied().unwrap_or_default();
            let address: [u8; 16] = std::array::from_fn(|at| place(2 * at) << 4 | place(2 * at + 1));
            let network = Ipv6Net::new(address.into(), 4 * u8::try_from(parts.len()).ok()?).ok()?;
            Some((IpNet::V6(network), parts.len() == digits.len()))
        }
        _ => None,
    }
}

/// Returns the value of a label that is a decimal octet without leading zeros; `None` for any other label.
fn decimal_octet(label: &[u8]) -> Option<u8> {
    let value = std::str::from_utf8(label).ok()?.parse::<u8>().ok()?;
    (value.to_string().as_bytes() == label).then_some(value)
}

/// Returns the value of a label that is a hexadecimal digit; `None` for any other label.
fn hexadecimal_digit(label: &[u8]) -> Option<u8> {
    let [digit] = label else { return None };
    char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
