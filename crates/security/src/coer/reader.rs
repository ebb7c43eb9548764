//! Reading.

use super::Error;

/// A place in octets. Every method goes on, or says why not; after an error the place means nothing.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    octets: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// At the first of `octets`.
    pub const fn new(octets: &'a [u8]) -> Reader<'a> {
        Reader { octets, at: 0 }
    }

    /// Octets read so far.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Octets left.
    pub const fn remaining(&self) -> usize {
        self.octets.len() - self.at
    }

    /// Returns the octets read since `start`.
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.octets.get(start..self.at).unwrap_or_default()
    }

    /// The next `count` octets.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Error> {
        let found = self.remaining();
        let taken = self.at.checked_add(count).and_then(|end| self.octets.get(self.at..end));
        let taken = taken.ok_or(Error::Truncated { what, at: self.at, expected: count, found })?;
        self.at += count;
        Ok(taken)
    }

    /// The next `N` octets, OCTET STRING (SIZE (N)).
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Error> {
        let mut octets = [0; N];
        octets.copy_from_slice(self.take(N, what)?);
        Ok(octets)
    }

    /// INTEGER (0..255), and whatever else is one octet.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn u8(&mut self, what: &'static str) -> Result<u8, Error> {
        self.array::<1>(what).map(|[octet]| octet)
    }

    /// INTEGER (0..65535).
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn u16(&mut self, what: &'static str) -> Result<u16, Error> {
        self.array(what).map(u16::from_be_bytes)
    }

    /// INTEGER (0..4294967295).
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn u32(&mut self, what: &'static str) -> Result<u32, Error> {
        self.array(what).map(u32::from_be_bytes)
    }

    /// INTEGER (0..18446744073709551615).
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn u64(&mut self, what: &'static str) -> Result<u64, Error> {
        self.array(what).map(u64::from_be_bytes)
    }

    /// INTEGER with bounds that fit four octets, one of them negative.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn i32(&mut self, what: &'static str) -> Result<i32, Error> {
        self.array(what).map(i32::from_be_bytes)
    }

    /// A length determinant (X.696 8.6).
    ///
    /// # Errors
    /// [`Error::Truncated`]; [`Error::NotCanonical`] for one that could be shorter; [`Error::OutOfRange`] for
    /// more than there can be in a frame.
    pub fn length(&mut self, what: &'static str) -> Result<usize, Error> {
        let at = self.at;
        let first = self.u8(what)?;
        if first < 0x80 {
            return Ok(usize::from(first));
        }
        let (length, least) = match first {
            0x81 => (usize::from(self.u8(what)?), 0x80),
            0x82 => (usize::from(self.u16(what)?), 0x100),
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

    /// OCTET STRING of `least` to `most` octets, and whatever else begins with its length.
    ///
    /// # Errors
    /// As for lengths, and [`Error::OutOfRange`].
    pub fn octets(&mut self, least: usize, most: usize, what: &'static str) -> Result<&'a [u8], Error> {
        let at = self.at;
        let length = self.length(what)?;
        if !(least..=most).contains(&length) {
            let [least, most, found] = [least, most, length].map(|number| number as u64);
            return Err(Error::OutOfRange { what, at, least, most, found });
        }
        self.take(length, what)
    }

    /// INTEGER (0..MAX), here of 64 bits at most (X.696 10.3).
    ///
    /// # Errors
    /// As for octet strings; [`Error::NotCanonical`] for leading zeros.
    pub fn unsigned(&mut self, what: &'static str) -> Result<u64, Error> {
        let at = self.at;
        let octets = self.octets(1, 8, what)?;
        if octets.len() > 1 && octets.first() == Some(&0) {
            return Err(Error::NotCanonical { what, at });
        }
        Ok(octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet)))
    }

    /// INTEGER without bounds (X.696 10.4), here within `least..=most`, both from 0 to 127.
    ///
    /// # Errors
    /// As for octet strings.
    pub fn small_integer(&mut self, least: u8, most: u8, what: &'static str) -> Result<u8, Error> {
        let at = self.at;
        let octets = self.octets(1, 8, what)?;
        match *octets {
            [number] if (least..=most).contains(&number) && number < 0x80 => Ok(number),
            _ => {
                let found = octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet));
                Err(Error::OutOfRange { what, at, least: u64::from(least), most: u64::from(most), found })
            }
        }
    }

    /// The quantity of a SEQUENCE OF (X.696 17), from `least` to `most`.
    ///
    /// # Errors
    /// As for integers, and [`Error::OutOfRange`].
    pub fn quantity(&mut self, least: usize, most: usize, what: &'static str) -> Result<usize, Error> {
        let at = self.at;
        let found = self.unsigned(what)?;
        match usize::try_from(found) {
            Ok(count) if (least..=most).contains(&count) => Ok(count),
            _ => Err(Error::OutOfRange { what, at, least: least as u64, most: most as u64, found }),
        }
    }

    /// Reads a SEQUENCE OF with a bounded number of elements, each by `element`.
    ///
    /// # Errors
    /// Those of the quantity and of the elements.
    pub fn list<T>(
        &mut self,
        least: usize,
        most: usize,
        what: &'static str,
        mut element: impl FnMut(&mut Reader<'a>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let count = self.quantity(least, most, what)?;
        let mut list = Vec::with_capacity(count.min(self.remaining()));
        for _ in 0..count {
            list.push(element(self)?);
        }
        Ok(list)
    }

    /// The preamble of a SEQUENCE with `width` bits (X.696 16.2), at most eight: the first is the highest.
    /// Bits behind them are zero.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::NotCanonical`].
    pub fn preamble(&mut self, width: u32, what: &'static str) -> Result<u8, Error> {
        let at = self.at;
        let bits = self.u8(what)?;
        if bits.checked_shl(width).unwrap_or(0) != 0 {
            return Err(Error::NotCanonical { what, at });
        }
        Ok(bits)
    }

    /// ENUMERATED of less than 128 values (X.696 11), or the tag of a CHOICE (X.696 20) as it is.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn tag(&mut self, what: &'static str) -> Result<u8, Error> {
        self.u8(what)
    }

    /// An open type (X.696 30): a reader for its octets.
    ///
    /// # Errors
    /// As for octet strings.
    pub fn open_type(&mut self, what: &'static str) -> Result<Reader<'a>, Error> {
        self.octets(0, usize::from(u16::MAX), what).map(Reader::new)
    }

    /// The extension additions of a SEQUENCE (X.696 16.4): `addition` is called for each that is there with
    /// its number and its octets. Those that it does not know it ignores.
    ///
    /// # Errors
    /// The errors of octet strings and of `addition`, and [`Error::NotCanonical`] for a bitmap without a set
    /// bit.
    pub fn additions(
        &mut self,
        what: &'static str,
        mut addition: impl FnMut(usize, Reader<'a>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let at = self.at;
        // One octet says how many bits of the last octet are unused. The limit of 32 additions is above that
        // of any known type.
        let bitmap = self.octets(2, 5, what)?;
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
                    let content = self.open_type(what)?;
                    addition(number * 8 + bit, content)?;
                }
            }
        }
        Ok(())
    }

    /// A tag that the profile or this release does not know.
    pub const fn unknown(&self, what: &'static str, expected: &'static str) -> Error {
        Error::Profile { what, at: self.at.saturating_sub(1), expected }
    }

    /// Nothing may follow.
    ///
    /// # Errors
    /// [`Error::Trailing`].
    pub const fn end(&self) -> Result<(), Error> {
        match self.remaining() {
            0 => Ok(()),
            found => Err(Error::Trailing { at: self.at, found }),
        }
    }
}
