//! Times of IEEE 802.11 OFDM on a channel of 10 MHz (IEEE 802.11-2020 17.3.2.4 and 17.4.4, 10.3).

/// Microseconds in nanoseconds.
const MICROSECOND: u64 = 1000;
/// A slot of the back-off.
pub const SLOT: u64 = 13 * MICROSECOND;
/// From the end of a frame to its acknowledgement.
pub const SIFS: u64 = 32 * MICROSECOND;
/// How long the medium must be idle before a frame or before the back-off runs.
pub const DIFS: u64 = SIFS + 2 * SLOT;
/// Until a receiver notices that a frame has begun.
pub const CCA: u64 = 8 * MICROSECOND;
/// The back-off is drawn from 0 to this many slots at first,
pub const CW_MIN: u32 = 15;
/// and at most from this many.
pub const CW_MAX: u32 = 1023;
/// How often a frame to one station is sent until it is given up.
pub const TRIES: u32 = 7;

/// Preamble and SIGNAL field.
const PREAMBLE: u64 = 40 * MICROSECOND;
/// An OFDM symbol.
const SYMBOL: u64 = 8 * MICROSECOND;
/// SERVICE field and tail bits.
const SERVICE_AND_TAIL: u64 = 16 + 6;
/// MAC header of a QoS data frame, LLC and SNAP header, frame check sequence, in octets.
const OVERHEAD: u64 = 26 + 8 + 4;
/// The Ethernet header that the interface has in their place.
const ETHERNET_HEADER: u64 = 14;
/// An acknowledgement.
const ACK: u64 = 14;

/// How long frames are on the air at a bit rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Airtime {
    bits_per_symbol: u64,
}

impl Airtime {
    /// At this bit rate in bit/s; ITS-G5 has 3 to 27 Mbit/s.
    pub fn new(bit_rate: u64) -> Airtime {
        Airtime { bits_per_symbol: (bit_rate * SYMBOL / 1_000_000_000).max(1) }
    }

    /// Of a frame as the interface has it, with its Ethernet header.
    pub fn of_frame(self, octets: usize) -> u64 {
        self.of_octets((octets as u64).saturating_sub(ETHERNET_HEADER) + OVERHEAD)
    }

    /// Of an acknowledgement.
    pub fn of_acknowledgement(self) -> u64 {
        self.of_octets(ACK)
    }

    /// After a frame to one station: how long until it is clear that no acknowledgement comes.
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
    fn airtime_as_the_standard_has_it() {
        let airtime = Airtime::new(6_000_000);
        // 100 octets of payload: 1126 bits are 24 symbols of 48 bits.
        assert_eq!(airtime.of_frame(114), 40_000 + 24 * 8_000);
        // 14 octets: 134 bits, 3 symbols.
        assert_eq!(airtime.of_acknowledgement(), 40_000 + 3 * 8_000);
        assert_eq!(Airtime::new(3_000_000).of_acknowledgement(), 40_000 + 6 * 8_000);
        assert_eq!(DIFS, 58_000);
    }
}
