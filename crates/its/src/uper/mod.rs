//! Unaligned Packed Encoding Rules (X.691), as far as the ITS messages need them.
//!
//! A type implements [`Uper`] to define its encoding. `macros` turns a notation close to the ASN.1 into types
//! with that implementation, and `cargo xtask gen-asn1` writes ETSI's modules in that notation. The codec is
//! carnet's own because the messages use a small part of ASN.1 and the program has to stay small. A codec
//! that knows the widths at compile time is also several times as fast as a general codec.
//!
//! Extensions (X.691 clause 19.7 and following): the decoder skips an unknown addition to a SEQUENCE. It
//! keeps an unknown alternative of a CHOICE as octets, and an unknown value of an ENUMERATED as its number.
//! So it reads a message of a later release; if the message is encoded again, a SEQUENCE loses its additions.
//!
//! The decoder trusts no length: a list grows with the decoded elements, never with the announced number.
//! Every element costs at least a bit of the message.
//!
//! Left out: notations that the messages do not use, such as REAL, OBJECT IDENTIFIER, SET, semi-constrained
//! integers and the aligned variant. The decoder rejects fragmented lengths (from 16,384 on).

pub(crate) mod macros;
mod reader;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

/// Reason for which octets are not a message, or for which the encoder cannot write a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The octets end within a value.
    #[error("{what} at bit {bit}: expected {expected} more bits, found {found}")]
    Truncated {
        /// The type in which the octets end.
        what: &'static str,
        /// Offset of the value in bits.
        bit: usize,
        /// Number of bits that the decoder needs for the value.
        expected: usize,
        /// Number of bits that the message has.
        found: usize,
    },
    /// A number, a count or an index outside the range of its type.
    #[error("{what}: expected a value from {least} to {most}, found {found}")]
    OutOfRange {
        /// Name of the type.
        what: &'static str,
        /// Least value of the type.
        least: i64,
        /// Greatest value of the type.
        most: i64,
        /// Value in the message, or the value to encode.
        found: i64,
    },
    /// A length in fragments.
    #[error("{what} at bit {bit}: expected a length below 16384, found a fragmented encoding")]
    Fragmented {
        /// Name of the type.
        what: &'static str,
        /// Offset of the length in bits.
        bit: usize,
    },
    /// A character outside the alphabet of the string.
    #[error("{what}: expected characters of the permitted alphabet, found octet {found:#04x}")]
    Character {
        /// Name of the type.
        what: &'static str,
        /// Octet of the character.
        found: u8,
    },
}

/// A type that has an unaligned packed encoding.
pub trait Uper: Sized {
    /// The type's name in the ASN.1 module, for errors.
    const NAME: &'static str;

    /// Whether the preamble of a SEQUENCE has a bit for the presence of the component: OPTIONAL or DEFAULT.
    const OPTIONAL: bool = false;

    /// Decodes a value. In case of an error the reader stores the error, and the returned value is
    /// meaningless.
    fn decode(reader: &mut Reader<'_>) -> Self;

    /// Encodes the value. If the value is not in the range of its type, the writer stores an error.
    fn encode(&self, writer: &mut Writer);

    /// Reads a component; `_present` is its bit in the preamble of the SEQUENCE.
    fn decode_component(reader: &mut Reader<'_>, _present: bool) -> Self {
        Self::decode(reader)
    }

    /// Returns whether the encoder writes the component; used if [`Self::OPTIONAL`].
    fn is_present(&self) -> bool {
        true
    }
}

impl<T: Uper> Uper for Option<T> {
    const NAME: &'static str = T::NAME;
    const OPTIONAL: bool = true;

    fn decode(reader: &mut Reader<'_>) -> Self {
        Some(T::decode(reader))
    }

    fn encode(&self, writer: &mut Writer) {
        if let Some(value) = self {
            value.encode(writer);
        }
    }

    fn decode_component(reader: &mut Reader<'_>, present: bool) -> Self {
        present.then(|| T::decode(reader))
    }

    fn is_present(&self) -> bool {
        self.is_some()
    }
}

impl Uper for bool {
    const NAME: &'static str = "BOOLEAN";

    fn decode(reader: &mut Reader<'_>) -> Self {
        reader.read_bit(Self::NAME)
    }

    fn encode(&self, writer: &mut Writer) {
        writer.write_bits(u64::from(*self), 1);
    }
}

/// `INTEGER` without bounds; the decoder rejects a number that exceeds 64 bits.
impl Uper for i64 {
    const NAME: &'static str = "INTEGER";

    fn decode(reader: &mut Reader<'_>) -> Self {
        macros::decode_unconstrained(reader, i64::MIN, i64::MAX, Self::NAME)
    }

    fn encode(&self, writer: &mut Writer) {
        macros::encode_unconstrained(*self, writer);
    }
}

/// The ASN.1 type `NULL`, whose encoding has no bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Null;

impl Uper for Null {
    const NAME: &'static str = "NULL";

    fn decode(_: &mut Reader<'_>) -> Null {
        Null
    }

    fn encode(&self, _: &mut Writer) {}
}

/// An alternative of a CHOICE from a later release: its number among the additions, and its received octets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenType {
    /// Number of the addition, from 0; at most 63.
    pub index: u8,
    /// Octets of its encoding.
    pub octets: Vec<u8>,
}

impl OpenType {
    /// Reads the octets that follow the extension bit and the index.
    pub(crate) fn decode(reader: &mut Reader<'_>, index: u8, what: &'static str) -> OpenType {
        let length = reader.read_length(what);
        OpenType { index, octets: reader.read_octets(length, what) }
    }

    /// Writes index and octets.
    pub(crate) fn encode(&self, writer: &mut Writer, what: &'static str) {
        writer.write_small_number(self.index, what);
        writer.write_length(self.octets.len(), what);
        writer.write_octets(&self.octets);
    }
}

/// Decodes a complete message: the outermost type, and up to seven padding bits in the last octet.
///
/// Ignores octets after the message, because a message of a later release may be longer.
///
/// # Errors
///
/// [`Error`] if the octets end early or contain a value outside its type.
pub fn decode<T: Uper>(octets: &[u8]) -> Result<T, Error> {
    let mut reader = Reader::new(octets);
    let message = T::decode(&mut reader);
    reader.error().map_or(Ok(message), Err)
}

/// Encodes a complete message, padded with zero bits to whole octets.
///
/// # Errors
///
/// [`Error::OutOfRange`] or [`Error::Character`] if a value is outside its type.
pub fn encode<T: Uper>(message: &T) -> Result<Vec<u8>, Error> {
    let mut octets = Vec::new();
    encode_into(message, &mut octets)?;
    Ok(octets)
}

/// Encodes a complete message and replaces the content of `octets` by it. After an error, `octets` is empty.
///
/// # Errors
///
/// The errors of [`encode`].
pub fn encode_into<T: Uper>(message: &T, octets: &mut Vec<u8>) -> Result<(), Error> {
    let mut writer = Writer::new(std::mem::take(octets));
    message.encode(&mut writer);
    *octets = writer.finish()?;
    Ok(())
}

/// Returns the number of bits of a number in `0..=largest` (X.691 10.5.7.1).
pub const fn width(largest: u64) -> u32 {
    u64::BITS - largest.leading_zeros()
}

#[cfg(test)]
#[allow(dead_code, reason = "types made for a test need not use all that they get")]
mod tests;
