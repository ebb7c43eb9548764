//! Reads bits from octets.
//!
//! The reader stores the first error, and after it reads only zeros. A decoder checks for an error once, at
//! its end, and not after each of some hundred fields. This halves the code and is faster.

use super::Error;

/// Reads bits, beginning with the most significant bit of the first octet.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    octets: &'a [u8],
    /// Offset of the next bit to read.
    next_bit: usize,
    /// Offset after the last bit of the input.
    end_bit: usize,
    /// First error that occurred; `None` before an error.
    first_error: Option<Error>,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the first bit.
    pub const fn new(octets: &'a [u8]) -> Reader<'a> {
        Reader { octets, next_bit: 0, end_bit: octets.len() * 8, first_error: None }
    }

    /// Returns the number of bits read.
    pub const fn position(&self) -> usize {
        self.next_bit
    }

    /// Returns the number of remaining bits.
    pub const fn remaining(&self) -> usize {
        self.end_bit - self.next_bit
    }

    /// Returns the first error that occurred.
    pub const fn error(&self) -> Option<Error> {
        self.first_error
    }

    /// Stores an error; after it the reader has no more bits.
    #[cold]
    pub(crate) fn store_error(&mut self, error: Error) {
        self.first_error.get_or_insert(error);
        self.next_bit = self.end_bit;
    }

    #[cold]
    #[inline(never)]
    fn store_truncation(&mut self, what: &'static str, expected: usize) {
        self.store_error(Error::Truncated { what, bit: self.next_bit, expected, found: self.remaining() });
    }

    #[cold]
    #[inline(never)]
    fn store_range_error(&mut self, what: &'static str, least: i64, most: i64, found: i64) {
        self.store_error(Error::OutOfRange { what, least, most, found });
    }

    /// Reads a number of `width` bits, at most 56. Stores [`Error::Truncated`] if fewer bits are left.
    #[inline]
    pub fn read_bits(&mut self, width: u32, what: &'static str) -> u64 {
        debug_assert!(width <= 56, "one load has 64 bits, up to 7 of which are gone");
        if width as usize > self.remaining() {
            self.store_truncation(what, width as usize);
            return 0;
        }
        let rest = self.octets.get(self.next_bit / 8..).unwrap_or_default();
        let word = match rest.first_chunk::<8>() {
            Some(chunk) => u64::from_be_bytes(*chunk),
            None => zero_padded_word(rest),
        };
        // Shift twice, because Rust does not define a shift by 64 bits, which a width of 0 would need.
        let value = (word << (self.next_bit % 8)) >> 1 >> (u64::BITS - 1 - width);
        self.next_bit += width as usize;
        value
    }

    /// Reads one bit.
    #[inline]
    pub fn read_bit(&mut self, what: &'static str) -> bool {
        self.read_bits(1, what) != 0
    }

    /// Reads a number of `least..=most` (X.691 10.5.7.1). Stores [`Error::OutOfRange`] for a number that fits
    /// the bits but exceeds `most`.
    #[inline(never)]
    pub fn read_constrained_integer(&mut self, least: i64, most: i64, what: &'static str) -> i64 {
        let span = (most - least) as u64;
        let value = self.read_bits(super::width(span), what);
        if value > span {
            self.store_range_error(what, least, most, value as i64 + least);
            return least;
        }
        value as i64 + least
    }

    /// Reads a normally small non-negative whole number (X.691 10.6) below 64. No known type has more
    /// additions.
    pub fn read_small_number(&mut self, what: &'static str) -> u8 {
        if self.read_bit(what) {
            self.store_range_error(what, 0, 63, 64);
            return 0;
        }
        self.read_bits(6, what) as u8
    }

    /// Reads an unconstrained length (X.691 10.9.3.6 and 10.9.3.7). Stores [`Error::Fragmented`] for a length
    /// from 16,384 on.
    pub fn read_length(&mut self, what: &'static str) -> usize {
        let bit = self.next_bit;
        if !self.read_bit(what) {
            return self.read_bits(7, what) as usize;
        }
        if self.read_bit(what) {
            self.store_error(Error::Fragmented { what, bit });
            return 0;
        }
        self.read_bits(14, what) as usize
    }

    /// Reads octets; allocates memory only for octets that exist.
    pub fn read_octets(&mut self, count: usize, what: &'static str) -> Vec<u8> {
        if count > self.remaining() / 8 {
            self.store_truncation(what, count.saturating_mul(8));
            return Vec::new();
        }
        (0..count).map(|_| self.read_bits(8, what) as u8).collect()
    }

    /// Reads an open type (X.691 11.2): its length and content. `inside` reads the value; the reader skips
    /// the octets that `inside` has not read.
    #[inline(never)]
    pub fn read_open_type(&mut self, what: &'static str, inside: &mut dyn FnMut(&mut Reader<'_>)) {
        let bits = self.read_length(what) * 8;
        if bits > self.remaining() {
            return self.store_truncation(what, bits);
        }
        let end = self.next_bit + bits;
        let mut reader =
            Reader { octets: self.octets, next_bit: self.next_bit, end_bit: end, first_error: None };
        inside(&mut reader);
        match reader.first_error {
            Some(error) => self.store_error(error),
            None => self.next_bit = end,
        }
    }

    /// Reads the additions of a SEQUENCE whose extension bit is set (X.691 19.7 to 19.9). A bitmap says which
    /// additions are present; each is an open type. Calls `known` with the number of each addition, counted
    /// from 0, and skips the octets that `known` does not read.
    #[inline(never)]
    pub fn read_extension_additions(
        &mut self,
        what: &'static str,
        known: &mut dyn FnMut(u32, &mut Reader<'_>),
    ) {
        let count = u32::from(self.read_small_number(what)) + 1;
        let first = self.read_bits(count.min(32), what);
        let present = first << count.saturating_sub(32) | self.read_bits(count.saturating_sub(32), what);
        for number in 0..count {
            if present >> (count - 1 - number) & 1 == 1 {
                self.read_open_type(what, &mut |reader| known(number, reader));
            }
        }
    }
}

/// Returns the last octets of the input, fewer than eight, filled up with zeros.
#[inline(never)]
fn zero_padded_word(rest: &[u8]) -> u64 {
    rest.iter().fold((0, 56), |(word, shift), octet| (word | u64::from(*octet) << shift, shift - 8)).0
}
