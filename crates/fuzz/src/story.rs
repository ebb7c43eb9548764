//! Inputs of stations with their times, as octets. A fuzzer that changes octets changes the story, and the
//! result is again a valid story.
//!
//! The first octet selects a config. Each event has its kind (the top bit selects the second station) and its
//! time after the previous event. Two octets with the length of the content follow, and then the content. A
//! length beyond the end means all remaining octets. The stations ignore invalid content.

use std::time::Duration;

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// Time passes.
    Wait = 0,
    /// A packet comes out of the tunnel device.
    Packet,
    /// A packet comes out of the tunnel device. Its Mobility Header gets a correct checksum and
    /// authenticator.
    Signed,
    /// The station receives an ICMPv6 message: interface, hop limit, source, destination, message. The
    /// message gets a correct checksum.
    Icmpv6,
    /// A packet arrives inside IPv4 or UDP: traffic class, address and port (0: no UDP), packet. If the
    /// packet has a Mobility Header, this header gets a correct checksum and authenticator.
    Datagram,
    /// The station receives a GeoNetworking frame: source, destination, packet.
    Frame,
    /// Any input, as JSON.
    Input,
    /// A packet under way between the stations arrives. The content is its fate, the place of an octet to
    /// change, and the bits of that octet to flip.
    Deliver,
}

/// Bits of the first octet of an [`EventKind::Deliver`]: they say what happens to a packet on its way.
pub mod packet_fate {
    /// The packet arrives, and a copy of it arrives later.
    pub const DUPLICATED: u8 = 1;
    /// An octet of the packet is changed.
    pub const CHANGED: u8 = 2;
    /// The changed packet gets correct checksums.
    pub const CHECKSUM_CORRECTED: u8 = 4;
    /// The packet is lost.
    pub const LOST: u8 = 8;
    /// The packet that was sent last arrives first.
    pub const OVERTAKES_EARLIER: u8 = 16;
}

/// All kinds, in the order of their numbers.
const EVENT_KINDS: [EventKind; 8] = [
    EventKind::Wait,
    EventKind::Packet,
    EventKind::Signed,
    EventKind::Icmpv6,
    EventKind::Datagram,
    EventKind::Frame,
    EventKind::Input,
    EventKind::Deliver,
];
const SECOND_STATION_FLAG: u8 = 0x80;
/// Maximum number of events of a story. More events take long and test nothing new.
const MAX_EVENTS: usize = 200;

/// One event.
#[derive(Debug, Clone, Copy)]
pub struct StoryEvent<'a> {
    /// Kind of the event.
    pub kind: EventKind,
    /// Index of the station that gets the event.
    pub station_index: usize,
    /// Time since the previous event.
    pub time_since_previous: Duration,
    /// Content of the event.
    pub content: &'a [u8],
}

/// Returns the octet that selects a config, and the events.
pub fn parse_story(octets: &[u8]) -> (u8, impl Iterator<Item = StoryEvent<'_>>) {
    let (choice, mut rest) = octets.split_first().map_or((0, octets), |(choice, rest)| (*choice, rest));
    let events = std::iter::from_fn(move || {
        let ([kind, delay, high, low], behind) = rest.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(behind.len());
        let (content, behind) = behind.split_at(length);
        rest = behind;
        let station = usize::from(kind & SECOND_STATION_FLAG != 0);
        let kind = EVENT_KINDS[usize::from(kind & !SECOND_STATION_FLAG) % EVENT_KINDS.len()];
        Some(StoryEvent { kind, station_index: station, time_since_previous: decode_delay(*delay), content })
    });
    (choice, events.take(MAX_EVENTS))
}

/// Converts a delay octet to a duration between zero and nine hours. The octet is a floating point number:
/// three bits of mantissa, five bits of exponent.
fn decode_delay(delay: u8) -> Duration {
    let number = u64::from(delay & 7) << u32::from(delay >> 3).min(22);
    Duration::from_millis(number)
}

/// Returns the delay octet for the longest duration that does not exceed `span_ms`.
pub fn encode_delay(span_ms: u64) -> u8 {
    (0..=u8::MAX)
        .filter(|delay| decode_delay(*delay) <= Duration::from_millis(span_ms))
        .max_by_key(|delay| decode_delay(*delay))
        .unwrap_or(0)
}

/// Appends an event to a story.
pub fn append_event(story: &mut Vec<u8>, kind: EventKind, station: usize, delay: u8, content: &[u8]) {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
    story.extend([kind as u8 | if station == 0 { 0 } else { SECOND_STATION_FLAG }, delay]);
    story.extend(length.to_be_bytes());
    story.extend(&content[..usize::from(length)]);
}
