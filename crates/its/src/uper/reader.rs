//! Bits out of octets.

use super::Error;

/// Reads bits from the most significant one of the first octet on.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    octets: &'a [u8],
    /// The next bit.
    bit: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the first bit.
    pub const fn new(octets: &'a [u8]) -> Reader<'a> {
        Reader { octets, bit: 0 }
    }

    /// How many bits have been read.
    pub const fn position(&self) -> usize {
        self.bit
    }

    /// How many are left.
    pub const fn remaining(&self) -> usize {
        self.octets.len() * 8 - self.bit
    }

    #[cold]
    fn truncated(&self, what: &'static str, expected: usize) -> Error {
        Error::Truncated { what, bit: self.bit, expected, found: self.remaining() }
    }

    /// Reads a number of `width` bits, at most 56.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there are fewer.
    #[inline]
    pub fn bits(&mut self, width: u32, what: &'static str) -> Result<u64, Error> {
        debug_assert!(width <= 56, "one load has 64 bits, up to 7 of which are gone");
        if width as usize > self.remaining() {
            return Err(self.truncated(what, width as usize));
        }
        if width == 0 {
            return Ok(0);
        }
        let rest = self.octets.get(self.bit / 8..).unwrap_or_default();
        let word = match rest.first_chunk::<8>() {
            Some(chunk) => u64::from_be_bytes(*chunk),
            None => {
                let mut chunk = [0; 8];
                for (to, from) in chunk.iter_mut().zip(rest) {
                    *to = *from;
                }
                u64::from_be_bytes(chunk)
            }
        };
        let value = (word << (self.bit % 8)) >> (u64::BITS - width);
        self.bit += width as usize;
        Ok(value)
    }

    /// Reads one bit.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there is none.
    #[inline]
    pub fn bit(&mut self, what: &'static str) -> Result<bool, Error> {
        Ok(self.bits(1, what)? != 0)
    }

    /// Reads a normally small non-negative whole number (X.691 10.6), below 64; nothing has more additions.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::OutOfRange`].
    pub fn small_number(&mut self, what: &'static str) -> Result<u8, Error> {
        if self.bit(what)? {
            return Err(super::out_of_range(what, 0, 63, 64));
        }
        Ok(self.bits(6, what)? as u8)
    }

    /// Reads an unconstrained length (X.691 10.9.3.6 and 10.9.3.7).
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Fragmented`].
    pub fn length(&mut self, what: &'static str) -> Result<usize, Error> {
        let bit = self.bit;
        if !self.bit(what)? {
            return Ok(self.bits(7, what)? as usize);
        }
        if self.bit(what)? {
            return Err(Error::Fragmented { what, bit });
        }
        Ok(self.bits(14, what)? as usize)
    }

    /// Reads octets; room is made only for those that are there.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn octets(&mut self, count: usize, what: &'static str) -> Result<Vec<u8>, Error> {
        if count > self.remaining() / 8 {
            return Err(self.truncated(what, count.saturating_mul(8)));
        }
        (0..count).map(|_| Ok(self.bits(8, what)? as u8)).collect()
    }

    /// Passes over the additions to a SEQUENCE that has some (X.691 19.7 to 19.9): how many there may be, which of
    /// them are there, and each of those with its length.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::OutOfRange`], [`Error::Fragmented`].
    pub fn skip_additions(&mut self, what: &'static str) -> Result<(), Error> {
        let count = u32::from(self.small_number(what)?) + 1;
        let mut present = self.bits(count.min(32), what)?.count_ones();
        present += self.bits(count.saturating_sub(32), what)?.count_ones();
        for _ in 0..present {
            let bits = self.length(what)? * 8;
            if bits > self.remaining() {
                return Err(self.truncated(what, bits));
            }
            self.bit += bits;
        }
        Ok(())
    }
}
