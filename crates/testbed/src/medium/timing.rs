//! Durations of IEEE 802.11 OFDM on a channel of 10 MHz (IEEE 802.11-2020 17.3.2.4 and 17.4.4, 10.3).

/// Nanoseconds in a microsecond.
const MICROSECOND: u64 = 1000;
/// Duration of a slot of the back-off in nanoseconds.
pub const SLOT_TIME: u64 = 13 * MICROSECOND;
/// Time in nanoseconds from the end of a frame to its acknowledgement.
pub const SHORT_INTERFRAME_SPACE: u64 = 32 * MICROSECOND;
/// Time in nanoseconds for which the medium must be idle before a frame, or before the slots of a back-off
/// count.
pub const DISTRIBUTED_INTERFRAME_SPACE: u64 = SHORT_INTERFRAME_SPACE + 2 * SLOT_TIME;
/// Time in nanoseconds until a receiver senses that a frame has begun.
pub const CLEAR_CHANNEL_ASSESSMENT_TIME: u64 = 8 * MICROSECOND;
/// Largest number of slots of the first back-off; the actual number is random.
pub const CONTENTION_WINDOW_MIN: u32 = 15;
/// Maximum number of slots of any back-off.
pub const CONTENTION_WINDOW_MAX: u32 = 1023;
/// Maximum number of tries for a unicast frame.
pub const MAX_TRANSMISSION_ATTEMPTS: u32 = 7;

/// Duration of preamble and SIGNAL field.
const PREAMBLE_TIME: u64 = 40 * MICROSECOND;
/// Duration of an OFDM symbol.
const SYMBOL_TIME: u64 = 8 * MICROSECOND;
/// Number of bits of the SERVICE field and the tail.
const SERVICE_AND_TAIL_BITS: u64 = 16 + 6;
/// Number of octets that a frame has on the air besides its payload: MAC header of a QoS data frame, LLC and
/// SNAP header, frame check sequence.
const FRAME_OVERHEAD_OCTETS: u64 = 26 + 8 + 4;
/// Length of an Ethernet header in octets. The headers of 802.11 take its place.
const ETHERNET_HEADER_OCTETS: u64 = 14;
/// Length of an acknowledgement in octets.
const ACKNOWLEDGEMENT_OCTETS: u64 = 14;

/// Durations of frames on the air at a bit rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Airtime {
    bits_per_symbol: u64,
}

impl Airtime {
    /// Creates the durations for a bit rate in bit/s; ITS-G5 has 3 to 27 Mbit/s.
    pub fn new(bit_rate: u64) -> Airtime {
        Airtime { bits_per_symbol: (bit_rate * SYMBOL_TIME / 1_000_000_000).max(1) }
    }

    /// Returns the duration of a frame. `octets` includes the interface's Ethernet header.
    pub fn frame_airtime(self, octets: usize) -> u64 {
        self.octets_airtime((octets as u64).saturating_sub(ETHERNET_HEADER_OCTETS) + FRAME_OVERHEAD_OCTETS)
    }

    /// Returns the duration of an acknowledgement.
    pub fn acknowledgement_airtime(self) -> u64 {
        self.octets_airtime(ACKNOWLEDGEMENT_OCTETS)
    }

    /// Returns how long a sender waits for the acknowledgement of a unicast frame.
    pub fn acknowledgement_timeout(self) -> u64 {
        SHORT_INTERFRAME_SPACE + SLOT_TIME + CLEAR_CHANNEL_ASSESSMENT_TIME + self.acknowledgement_airtime()
    }

    fn octets_airtime(self, octets: u64) -> u64 {
        PREAMBLE_TIME + (SERVICE_AND_TAIL_BITS + 8 * octets).div_ceil(self.bits_per_symbol) * SYMBOL_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn airtime_follows_ieee_802_11() {
        let airtime = Airtime::new(6_000_000);
        // A frame of 114 octets with its Ethernet header has 1126 bits on the air, in 24 symbols of 48 bits.
        assert_eq!(airtime.frame_airtime(114), 40_000 + 24 * 8_000);
        // An acknowledgement of 14 octets has 134 bits, in 3 symbols.
        assert_eq!(airtime.acknowledgement_airtime(), 40_000 + 3 * 8_000);
        assert_eq!(Airtime::new(3_000_000).acknowledgement_airtime(), 40_000 + 6 * 8_000);
        assert_eq!(DISTRIBUTED_INTERFRAME_SPACE, 58_000);
    }
}
