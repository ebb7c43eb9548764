//! Octets out of bits.

use super::Error;

/// Writes bits, the first into the most significant one of the first octet.
#[derive(Debug, Default)]
pub struct Writer {
    octets: Vec<u8>,
    /// Bits that are not in `octets` yet, right-aligned.
    pending: u64,
    /// How many; below 8 between calls.
    filled: u32,
}

impl Writer {
    /// A writer into `room`, whose content is forgotten.
    pub fn new(mut room: Vec<u8>) -> Writer {
        room.clear();
        Writer { octets: room, pending: 0, filled: 0 }
    }

    /// Writes the lowest `width` bits of `value`, at most 56.
    #[inline]
    pub fn bits(&mut self, value: u64, width: u32) {
        debug_assert!(width <= 56 && value >> width == 0, "{value} in {width} bits");
        self.pending = self.pending << width | value;
        self.filled += width;
        let whole = self.filled / 8;
        self.filled %= 8;
        let chunk = (self.pending >> self.filled << (u64::BITS - 8 * whole.max(1))).to_be_bytes();
        self.octets.extend_from_slice(chunk.get(..whole as usize).unwrap_or_default());
    }

    /// Writes a normally small non-negative whole number below 64 (X.691 10.6).
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn small_number(&mut self, value: u8, what: &'static str) -> Result<(), Error> {
        if value > 63 {
            return Err(super::out_of_range(what, 0, 63, i64::from(value)));
        }
        self.bits(u64::from(value), 7);
        Ok(())
    }

    /// Writes an unconstrained length (X.691 10.9.3.6 and 10.9.3.7).
    ///
    /// # Errors
    /// [`Error::OutOfRange`] from 16,384 on.
    pub fn length(&mut self, length: usize, what: &'static str) -> Result<(), Error> {
        match length {
            0..=127 => self.bits(length as u64, 8),
            128..=16_383 => self.bits(0x8000 | length as u64, 16),
            _ => return Err(super::out_of_range(what, 0, 16_383, i64::try_from(length).unwrap_or(i64::MAX))),
        }
        Ok(())
    }

    /// Writes octets.
    pub fn octets(&mut self, octets: &[u8]) {
        for octet in octets {
            self.bits(u64::from(*octet), 8);
        }
    }

    /// The octets, the last one filled with zero bits.
    pub fn finish(mut self) -> Vec<u8> {
        if self.filled > 0 {
            self.bits(0, 8 - self.filled);
        }
        self.octets
    }
}
