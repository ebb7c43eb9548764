//! Builds octets from bits. Like the reader, the writer stores the first error, and the caller checks for it
//! once at the end.

use super::Error;

/// Writes bits, beginning with the most significant bit of the first octet.
#[derive(Debug, Default)]
pub struct Writer {
    octets: Vec<u8>,
    /// Bits that are not yet in `octets`, right-aligned.
    pending_bits: u64,
    /// Number of pending bits; below 8 between calls.
    pending_bit_count: u32,
    /// First error that occurred; `None` before an error.
    first_error: Option<Error>,
}

impl Writer {
    /// Creates a writer that reuses the memory of `room` and drops its content.
    pub fn new(mut room: Vec<u8>) -> Writer {
        room.clear();
        Writer { octets: room, pending_bits: 0, pending_bit_count: 0, first_error: None }
    }

    /// Writes the lowest `width` bits of `value`, at most 56.
    #[inline]
    pub fn write_bits(&mut self, value: u64, width: u32) {
        debug_assert!(width <= 56 && value >> width == 0, "{value} in {width} bits");
        self.pending_bits = self.pending_bits << width | value;
        self.pending_bit_count += width;
        let whole = self.pending_bit_count / 8;
        self.pending_bit_count %= 8;
        let chunk =
            (self.pending_bits >> self.pending_bit_count << (u64::BITS - 8 * whole.max(1))).to_be_bytes();
        self.octets.extend_from_slice(chunk.get(..whole as usize).unwrap_or_default());
    }

    /// Stores an error.
    #[cold]
    #[inline(never)]
    pub(crate) fn store_error(&mut self, error: Error) {
        self.first_error.get_or_insert(error);
    }

    /// Writes a number of `least..=most` (X.691 10.5.7.1). Stores [`Error::OutOfRange`] for a number outside
    /// this range.
    #[inline(never)]
    pub fn write_constrained_integer(&mut self, value: i64, least: i64, most: i64, what: &'static str) {
        if !(least..=most).contains(&value) {
            return self.store_error(Error::OutOfRange { what, least, most, found: value });
        }
        self.write_bits((value - least) as u64, super::width((most - least) as u64));
    }

    /// Writes a normally small non-negative whole number below 64 (X.691 10.6).
    pub fn write_small_number(&mut self, value: u8, what: &'static str) {
        self.write_bits(0, 1);
        self.write_constrained_integer(i64::from(value), 0, 63, what);
    }

    /// Writes an unconstrained length (X.691 10.9.3.6 and 10.9.3.7). Stores [`Error::OutOfRange`] for a
    /// length from 16,384 on.
    pub fn write_length(&mut self, length: usize, what: &'static str) {
        if length < 128 {
            return self.write_bits(length as u64, 8);
        }
        self.write_bits(0b10, 2);
        self.write_constrained_integer(i64::try_from(length).unwrap_or(i64::MAX), 0, 16_383, what);
    }

    /// Writes octets.
    pub fn write_octets(&mut self, octets: &[u8]) {
        for octet in octets {
            self.write_bits(u64::from(*octet), 8);
        }
    }

    /// Writes an open type (X.691 11.2): the length, then the output of `inside` padded to whole octets, at
    /// least one.
    #[inline(never)]
    pub fn write_open_type(&mut self, what: &'static str, inside: &dyn Fn(&mut Writer)) {
        let mut writer = Writer::default();
        inside(&mut writer);
        match writer.finish() {
            Ok(octets) => {
                let octets = if octets.is_empty() { vec![0] } else { octets };
                self.write_length(octets.len(), what);
                self.write_octets(&octets);
            }
            Err(error) => self.store_error(error),
        }
    }

    /// Writes the bitmap of the additions to a SEQUENCE (X.691 19.7 and 19.8).
    #[inline(never)]
    pub fn write_extension_additions(&mut self, present: &[bool], what: &'static str) {
        self.write_small_number(u8::try_from(present.len() - 1).unwrap_or(u8::MAX), what);
        present.iter().for_each(|present| self.write_bits(u64::from(*present), 1));
    }

    /// Returns the octets; zero bits pad the last octet.
    ///
    /// # Errors
    ///
    /// The first error that occurred.
    pub fn finish(mut self) -> Result<Vec<u8>, Error> {
        if self.pending_bit_count > 0 {
            self.write_bits(0, 8 - self.pending_bit_count);
        }
        self.first_error.map_or(Ok(self.octets), Err)
    }
}
