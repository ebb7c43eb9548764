//! Writes values to octets. The values are carnet's own and within the bounds of their types, so writing
//! cannot fail.

/// A growing buffer of octets.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    octets: Vec<u8>,
}

impl Writer {
    /// Creates a writer that appends to `octets`.
    pub const fn new(octets: Vec<u8>) -> Writer {
        Writer { octets }
    }

    /// Returns the number of octets written so far.
    pub const fn len(&self) -> usize {
        self.octets.len()
    }

    /// Returns whether the writer has written no octets.
    pub const fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Returns the octets written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets
    }

    /// Returns the octets.
    pub fn into_octets(self) -> Vec<u8> {
        self.octets
    }

    /// Writes octets unchanged.
    pub fn write_octets(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// Writes one octet: INTEGER (0..255), ENUMERATED, a tag or a preamble.
    pub fn write_u8(&mut self, octet: u8) {
        self.octets.push(octet);
    }

    /// Writes INTEGER (0..65535).
    pub fn write_u16(&mut self, number: u16) {
        self.write_octets(&number.to_be_bytes());
    }

    /// Writes INTEGER (0..4294967295).
    pub fn write_u32(&mut self, number: u32) {
        self.write_octets(&number.to_be_bytes());
    }

    /// Writes INTEGER (0..18446744073709551615).
    pub fn write_u64(&mut self, number: u64) {
        self.write_octets(&number.to_be_bytes());
    }

    /// Writes INTEGER with bounds that fit four octets and of which one is negative.
    pub fn write_i32(&mut self, number: i32) {
        self.write_octets(&number.to_be_bytes());
    }

    /// Writes a length determinant (X.696 8.6). No frame carries a length above 65,535; the function writes
    /// it as 65,535.
    pub fn write_length(&mut self, length: usize) {
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        match length {
            0..=0x7f => self.write_u8(length as u8),
            0x80..=0xff => self.write_octets(&[0x81, length as u8]),
            _ => {
                self.write_u8(0x82);
                self.write_u16(length);
            }
        }
    }

    /// Writes OCTET STRING with its length.
    pub fn write_octets_with_length(&mut self, octets: &[u8]) {
        self.write_length(octets.len());
        self.write_octets(octets);
    }

    /// Writes INTEGER (0..MAX) in as few octets as possible.
    pub fn write_unsigned(&mut self, number: u64) {
        let octets = number.to_be_bytes();
        let zeros = (number.leading_zeros() / 8).min(7) as usize;
        self.write_octets_with_length(octets.get(zeros..).unwrap_or_default());
    }

    /// Writes SEQUENCE OF; `element` writes each element.
    pub fn write_list<T>(&mut self, list: &[T], mut element: impl FnMut(&mut Writer, &T)) {
        self.write_unsigned(list.len() as u64);
        for item in list {
            element(self, item);
        }
    }

    /// Writes an open type: the octets that `content` writes, preceded by their length.
    pub fn write_open_type(&mut self, content: impl FnOnce(&mut Writer)) {
        let mut inside = Writer::default();
        content(&mut inside);
        self.write_octets_with_length(&inside.octets);
    }
}
