//! Reads values from octets.

use super::Error;

/// A position in octets. Every method advances the position or returns an error; after an error the position
/// has no meaning.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    octets: &'a [u8],
    read_octets: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the first octet.
    pub const fn new(octets: &'a [u8]) -> Reader<'a> {
        Reader { octets, read_octets: 0 }
    }

    /// Returns the number of octets read.
    pub const fn octets_read(&self) -> usize {
        self.read_octets
    }

    /// Returns the number of remaining octets.
    pub const fn remaining_octets(&self) -> usize {
        self.octets.len() - self.read_octets
    }

    /// Returns the octets from the offset `start` up to the present position.
    pub fn octets_since(&self, start: usize) -> &'a [u8] {
        self.octets.get(start..self.read_octets).unwrap_or_default()
    }

    /// Reads the next `count` octets.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the octets end early.
    pub fn take_octets(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Error> {
        let found = self.remaining_octets();
        let taken =
            self.read_octets.checked_add(count).and_then(|end| self.octets.get(self.read_octets..end));
        let taken = taken.ok_or(Error::Truncated { what, at: self.read_octets, expected: count, found })?;
        self.read_octets += count;
        Ok(taken)
    }

    /// Reads the next `N` octets: OCTET STRING (SIZE (N)).
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] if the octets end early.
    pub fn take_array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Error> {
        let mut octets = [0; N];
        octets.copy_from_slice(self.take_octets(N, what)?);
        Ok(octets)
    }

    /// Reads INTEGER (0..255), or another value of one octet.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the octets end early.
    pub fn read_u8(&mut self, what: &'static str) -> Result<u8, Error> {
        self.take_array::<1>(what).map(|[octet]| octet)
    }

    /// Reads INTEGER (0..65535).
    ///
    /// # Errors
    /// [`Error::Truncated`] if the octets end early.
    pub fn read_u16(&mut self, what: &'static str) -> Result<u16, Error> {
        self.take_array(what).map(u16::from_be_bytes)
    }

    /// Reads INTEGER (0..4294967295).
    ///
    /// # Errors
    /// [`Error::Truncated`] if the octets end early.
    pub fn read_u32(&mut self, what: &'static str) -> Result<u32, Error> {
        self.take_array(what).map(u32::from_be_bytes)
    }

    /// Reads INTEGER (0..18446744073709551615).
    ///
    /// # Errors
    /// [`Error::Truncated`] if the octets end early.
    pub fn read_u64(&mut self, what: &'static str) -> Result<u64, Error> {
        self.take_array(what).map(u64::from_be_bytes)
    }

    /// Reads INTEGER with bounds that fit four octets and of which one is negative.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the octets end early.
    pub fn read_i32(&mut self, what: &'static str) -> Result<i32, Error> {
        self.take_array(what).map(i32::from_be_bytes)
    }

    /// Reads a length determinant (X.696 8.6).
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] if the octets end early; [`Error::NotCanonical`] if a shorter encoding of the
    /// length exists; [`Error::OutOfRange`] for a length that no frame can have.
    pub fn read_length(&mut self, what: &'static str) -> Result<usize, Error> {
        let at = self.read_octets;
        let first = self.read_u8(what)?;
        if first < 0x80 {
            return Ok(usize::from(first));
        }
        let (length, least) = match first {
            0x81 => (usize::from(self.read_u8(what)?), 0x80),
            0x82 => (usize::from(self.read_u16(what)?), 0x100),
            _ => {
                let found = u64::from(first & 0x7f);
                return Err(Error::OutOfRange { what, at, least: 1, most: 2, found });
            }
        };
        if length < least {
            return Err(Error::NotCanonical { what, at });
        }
        Ok(length)
    }

    /// Reads OCTET STRING of `least` to `most` octets, or another value that begins with its length.
    ///
    /// # Errors
    /// The errors of [`Self::read_length`], and [`Error::OutOfRange`].
    pub fn read_octets_with_length(
        &mut self,
        least: usize,
        most: usize,
        what: &'static str,
    ) -> Result<&'a [u8], Error> {
        let at = self.read_octets;
        let length = self.read_length(what)?;
        if !(least..=most).contains(&length) {
            let [least, most, found] = [least, most, length].map(|number| number as u64);
            return Err(Error::OutOfRange { what, at, least, most, found });
        }
        self.take_octets(length, what)
    }

    /// Reads INTEGER (0..MAX) of at most 64 bits (X.696 10.3).
    ///
    /// # Errors
    /// The errors of [`Self::read_octets_with_length`]; [`Error::NotCanonical`] for leading zeros.
    pub fn read_unsigned(&mut self, what: &'static str) -> Result<u64, Error> {
        let at = self.read_octets;
        let octets = self.read_octets_with_length(1, 8, what)?;
        if octets.len() > 1 && octets.first() == Some(&0) {
            return Err(Error::NotCanonical { what, at });
        }
        Ok(octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet)))
    }

    /// Reads INTEGER without bounds (X.696 10.4); accepts only `least..=most`, both from 0 to 127.
    ///
    /// # Errors
    /// The errors of [`Self::read_octets_with_length`].
    pub fn read_small_integer(&mut self, least: u8, most: u8, what: &'static str) -> Result<u8, Error> {
        let at = self.read_octets;
        let octets = self.read_octets_with_length(1, 8, what)?;
        match *octets {
            [number] if (least..=most).contains(&number) && number < 0x80 => Ok(number),
            _ => {
                let found = octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet));
                Err(Error::OutOfRange { what, at, least: u64::from(least), most: u64::from(most), found })
            }
        }
    }

    /// Reads the quantity of a SEQUENCE OF (X.696 17), from `least` to `most`.
    ///
    /// # Errors
    /// The errors of [`Self::read_unsigned`], and [`Error::OutOfRange`].
    pub fn read_quantity(&mut self, least: usize, most: usize, what: &'static str) -> Result<usize, Error> {
        let at = self.read_octets;
        let found = self.read_unsigned(what)?;
        match usize::try_from(found) {
            Ok(count) if (least..=most).contains(&count) => Ok(count),
            _ => Err(Error::OutOfRange { what, at, least: least as u64, most: most as u64, found }),
        }
    }

    /// Reads a SEQUENCE OF with a bounded number of elements; `element` reads each.
    ///
    /// # Errors
    /// The errors of [`Self::read_quantity`] and of the elements.
    pub fn read_list<T>(
        &mut self,
        least: usize,
        most: usize,
        what: &'static str,
        mut element: impl FnMut(&mut Reader<'a>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let count = self.read_quantity(least, most, what)?;
        let mut list = Vec::with_capacity(count.min(self.remaining_octets()));
        for _ in 0..count {
            list.push(element(self)?);
        }
        Ok(list)
    }

    /// Reads the preamble of a SEQUENCE: `width` bits, at most eight (X.696 16.2). The first bit is the
    /// highest; unused bits must be zero.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] or [`Error::NotCanonical`].
    pub fn read_preamble(&mut self, width: u32, what: &'static str) -> Result<u8, Error> {
        let at = self.read_octets;
        let bits = self.read_u8(what)?;
        if bits.checked_shl(width).unwrap_or(0) != 0 {
            return Err(Error::NotCanonical { what, at });
        }
        Ok(bits)
    }

    /// Reads ENUMERATED of less than 128 values (X.696 11), or the tag octet of a CHOICE (X.696 20).
    ///
    /// # Errors
    /// [`Error::Truncated`] if the octets end early.
    pub fn read_tag(&mut self, what: &'static str) -> Result<u8, Error> {
        self.read_u8(what)
    }

    /// Reads an open type (X.696 30); returns a reader for its octets.
    ///
    /// # Errors
    /// The errors of [`Self::read_octets_with_length`].
    pub fn read_open_type(&mut self, what: &'static str) -> Result<Reader<'a>, Error> {
        self.read_octets_with_length(0, usize::from(u16::MAX), what).map(Reader::new)
    }

    /// Reads the extension additions of a SEQUENCE (X.696 16.4). Calls `addition` with the number and the
    /// octets of each present addition; `addition` ignores numbers that it does not know.
    ///
    /// # Errors
    ///
    /// The errors of octet strings and of `addition`, and [`Error::NotCanonical`] if the bitmap announces no
    /// addition.
    pub fn skip_additions(
        &mut self,
        what: &'static str,
        mut addition: impl FnMut(usize, Reader<'a>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let at = self.read_octets;
        // The bitmap's first octet is the number of unused bits in the last octet. Accept at most 32
        // additions; no known type has more.
        let bitmap = self.read_octets_with_length(2, 5, what)?;
        let Some((&unused, bits)) = bitmap.split_first() else {
            return Err(Error::NotCanonical { what, at });
        };
        let padding = bits.last().copied().unwrap_or_default();
        if unused > 7 || padding & ((1 << unused) - 1) != 0 || bits.iter().all(|octet| *octet == 0) {
            return Err(Error::NotCanonical { what, at });
        }
        for (number, octet) in bits.iter().enumerate() {
            for bit in 0..8 {
                if octet & (0x80 >> bit) != 0 {
                    let content = self.read_open_type(what)?;
                    addition(number * 8 + bit, content)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the error for a tag that the profile or this release does not know.
    pub const fn unknown_tag_error(&self, what: &'static str, expected: &'static str) -> Error {
        Error::Profile { what, at: self.read_octets.saturating_sub(1), expected }
    }

    /// Checks that no octets follow.
    ///
    /// # Errors
    /// [`Error::Trailing`] if octets follow.
    pub const fn expect_end(&self) -> Result<(), Error> {
        match self.remaining_octets() {
            0 => Ok(()),
            found => Err(Error::Trailing { at: self.read_octets, found }),
        }
    }
}
