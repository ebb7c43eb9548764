//! Writing. Values come from this program: their bounds are those of their types, and nothing can fail.

/// Octets that grow.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    octets: Vec<u8>,
}

impl Writer {
    /// Appends to `octets`.
    pub const fn new(octets: Vec<u8>) -> Writer {
        Writer { octets }
    }

    /// Octets so far.
    pub const fn len(&self) -> usize {
        self.octets.len()
    }

    /// Whether the writer has written no octets.
    pub const fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// The octets so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets
    }

    /// The octets.
    pub fn finish(self) -> Vec<u8> {
        self.octets
    }

    /// Octets as they are.
    pub fn raw(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// One octet: INTEGER (0..255), ENUMERATED, a tag, a preamble.
    pub fn u8(&mut self, octet: u8) {
        self.octets.push(octet);
    }

    /// INTEGER (0..65535).
    pub fn u16(&mut self, number: u16) {
        self.raw(&number.to_be_bytes());
    }

    /// INTEGER (0..4294967295).
    pub fn u32(&mut self, number: u32) {
        self.raw(&number.to_be_bytes());
    }

    /// INTEGER (0..18446744073709551615).
    pub fn u64(&mut self, number: u64) {
        self.raw(&number.to_be_bytes());
    }

    /// INTEGER with bounds that fit four octets, one of them negative.
    pub fn i32(&mut self, number: i32) {
        self.raw(&number.to_be_bytes());
    }

    /// A length determinant (X.696 8.6); what is beyond 65,535 no frame carries, and is written as that.
    pub fn length(&mut self, length: usize) {
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        match length {
            0..=0x7f => self.u8(length as u8),
            0x80..=0xff => self.raw(&[0x81, length as u8]),
            _ => {
                self.u8(0x82);
                self.u16(length);
            }
        }
    }

    /// OCTET STRING with its length.
    pub fn octets(&mut self, octets: &[u8]) {
        self.length(octets.len());
        self.raw(octets);
    }

    /// INTEGER (0..MAX), in as few octets as it takes.
    pub fn unsigned(&mut self, number: u64) {
        let octets = number.to_be_bytes();
        let zeros = (number.leading_zeros() / 8).min(7) as usize;
        self.octets(octets.get(zeros..).unwrap_or_default());
    }

    /// SEQUENCE OF.
    pub fn list<T>(&mut self, list: &[T], mut element: impl FnMut(&mut Writer, &T)) {
        self.unsigned(list.len() as u64);
        for item in list {
            element(self, item);
        }
    }

    /// An open type: what `content` writes, with its length in front.
    pub fn open_type(&mut self, content: impl FnOnce(&mut Writer)) {
        let mut inside = Writer::default();
        content(&mut inside);
        self.octets(&inside.octets);
    }
}
