//! Inputs of stations with their times, as octets. So a fuzzer that changes octets changes the story, and not
//! whether it is one.
//!
//! The first octet chooses a config. Each event has its kind (the top bit: at the second station) and its
//! time after the one before. The length of its content follows in two octets, and then that content. A
//! length beyond the end means all of the rest. The stations ignore content that makes no sense.

use std::time::Duration;

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Time passes.
    Wait = 0,
    /// A packet comes out of the tunnel device.
    Packet,
    /// A packet whose Mobility Header gets the checksum and the authenticator of a sender with the key.
    Signed,
    /// An ICMPv6 message is heard: interface, hop limit, source, destination, message. It gets a right
    /// checksum.
    Icmpv6,
    /// A packet comes inside IPv4 or UDP: traffic class, address and port (0: no UDP), packet. Signed
    /// likewise.
    Datagram,
    /// A frame of GeoNetworking is heard: source, destination, packet.
    Frame,
    /// Any input, as JSON.
    Input,
    /// A packet under way between the stations arrives: its fate, the place, and the value.
    Deliver,
}

/// Fates of a packet under way, bits of the first octet of a [`Kind::Deliver`].
pub mod fate {
    /// It comes again later.
    pub const TWICE: u8 = 1;
    /// An octet of it is changed.
    pub const CHANGED: u8 = 2;
    /// It has right checksums after that.
    pub const SUMMED: u8 = 4;
    /// It is lost.
    pub const LOST: u8 = 8;
    /// The last one goes first.
    pub const OVERTAKES: u8 = 16;
}

/// Every kind, by its number.
const KINDS: [Kind; 8] = [
    Kind::Wait,
    Kind::Packet,
    Kind::Signed,
    Kind::Icmpv6,
    Kind::Datagram,
    Kind::Frame,
    Kind::Input,
    Kind::Deliver,
];
const AT_SECOND: u8 = 0x80;
/// More than that many events say nothing new, and take long.
const MOST: usize = 200;

/// One event.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Kind of the event.
    pub kind: Kind,
    /// At which station.
    pub station: usize,
    /// How long after the event before.
    pub after: Duration,
    /// Its content.
    pub content: &'a [u8],
}

/// The choice of a config, and the events.
pub fn read(octets: &[u8]) -> (u8, impl Iterator<Item = Event<'_>>) {
    let (choice, mut rest) = octets.split_first().map_or((0, octets), |(choice, rest)| (*choice, rest));
    let events = std::iter::from_fn(move || {
        let ([kind, delay, high, low], behind) = rest.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(behind.len());
        let (content, behind) = behind.split_at(length);
        rest = behind;
        let station = usize::from(kind & AT_SECOND != 0);
        let kind = KINDS[usize::from(kind & !AT_SECOND) % KINDS.len()];
        Some(Event { kind, station, after: span(*delay), content })
    });
    (choice, events.take(MOST))
}

/// From nothing to nine hours: three bits of number, five of its power of two.
fn span(delay: u8) -> Duration {
    let number = u64::from(delay & 7) << u32::from(delay >> 3).min(22);
    Duration::from_millis(number)
}

/// The delay that is closest below a span.
pub fn delay(span_ms: u64) -> u8 {
    (0..=u8::MAX)
        .filter(|delay| span(*delay) <= Duration::from_millis(span_ms))
        .max_by_key(|delay| span(*delay))
        .unwrap_or(0)
}

/// Writes an event behind a story.
pub fn write(story: &mut Vec<u8>, kind: Kind, station: usize, delay: u8, content: &[u8]) {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
    story.extend([kind as u8 | if station == 0 { 0 } else { AT_SECOND }, delay]);
    story.extend(length.to_be_bytes());
    story.extend(&content[..usize::from(length)]);
}
