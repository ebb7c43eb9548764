//! Durations of IEEE 802.11 OFDM on a channel of 10 MHz (IEEE 802.11-2020 17.3.2.4 and 17.4.4, 10.3).

/// Nanoseconds in a microsecond.
const MICROSECOND: u64 = 1000;
/// Duration of a slot of the back-off in nanoseconds.
pub const SLOT: u64 = 13 * MICROSECOND;
/// Time in nanoseconds from the end of a frame to its acknowledgement.
pub const SIFS: u64 = 32 * MICROSECOND;
/// Time in nanoseconds for which the medium must be idle before a frame, or before the slots of a back-off
/// count.
pub const DIFS: u64 = SIFS + 2 * SLOT;
/// Time in nanoseconds until a receiver senses that a frame has begun.
pub const CCA: u64 = 8 * MICROSECOND;
/// Largest number of slots of the first back-off; the actual number is random.
pub const CW_MIN: u32 = 15;
/// Maximum number of slots of any back-off.
pub const CW_MAX: u32 = 1023;
/// Maximum number of tries for a unicast frame.
pub const TRIES: u32 = 7;

/// Duration of preamble and SIGNAL field.
const PREAMBLE: u64 = 40 * MICROSECOND;
/// Duration of an OFDM symbol.
const SYMBOL: u64 = 8 * MICROSECOND;
/// Number of bits of the SERVICE field and the tail.
const SERVICE_AND_TAIL: u64 = 16 + 6;
/// Number of octets that a frame has on the air besides its payload: MAC header of a QoS data frame, LLC and
/// SNAP header, frame check sequence.
const OVERHEAD: u64 = 26 + 8 + 4;
/// Length of an Ethernet header in octets. The headers of 802.11 take its place.
const ETHERNET_HEADER: u64 = 14;
/// Length of an acknowledgement in octets.
const ACK: u64 = 14;

/// Durations of frames on the air at a bit rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Airtime {
    bits_per_symbol: u64,
}

impl Airtime {
    /// Creates the durations for a bit rate in bit/s; ITS-G5 has 3 to 27 Mbit/s.
    pub fn new(bit_rate: u64) -> Airtime {
        Airtime { bits_per_symbol: (bit_rate * SYMBOL / 1_000_000_000).max(1) }
    }

    /// Returns the duration of a frame. `octets` includes the interface's Ethernet header.
    pub fn of_frame(self, octets: usize) -> u64 {
        self.of_octets((octets as u64).saturating_sub(ETHERNET_HEADER) + OVERHEAD)
    }

    /// Returns the duration of an acknowledgement.
    pub fn of_acknowledgement(self) -> u64 {
        self.of_octets(ACK)
    }

    /// Returns how long a sender waits for the acknowledgement of a unicast frame.
    pub fn acknowledgement_timeout(self) -> u64 {
        SIFS + SLOT + CCA + self.of_acknowledgement()
    }

    fn of_octets(self, octets: u64) -> u64 {
        PREAMBLE + (SERVICE_AND_TAIL + 8 * octets).div_ceil(self.bits_per_symbol) * SYMBOL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn airtime_follows_ieee_802_11() {
        let airtime = Airtime::new(6_000_000);
        // A frame of 114 octets with its Ethernet header has 1126 bits on the air, in 24 symbols of 48 bits.
        assert_eq!(airtime.of_frame(114), 40_000 + 24 * 8_000);
        // An acknowledgement of 14 octets has 134 bits, in 3 symbols.
        assert_eq!(airtime.of_acknowledgement(), 40_000 + 3 * 8_000);
        assert_eq!(Airtime::new(3_000_000).of_acknowledgement(), 40_000 + 6 * 8_000);
        assert_eq!(DIFS, 58_000);
    }
}
