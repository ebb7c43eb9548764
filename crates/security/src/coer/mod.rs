//! Canonical Octet Encoding Rules (X.696), as far as secured messages and certificates need them.
//!
//! This codec is written by hand. A station reads one profile of a large module before it knows whether it
//! may trust the sender. So the parser must be small, bounded and easy to check. A general codec with the
//! generated types of IEEE 1609.2 is several times too large for the program, and allocates for each list. It
//! also cannot return the received octets of a part, over which signatures are computed. The tests compare
//! this codec with general codecs in both directions.
//!
//! The parser trusts no length. It reads only octets that exist, and a list grows with the parsed elements,
//! up to a bound. The parser rejects lengths, quantities and integers that could be shorter, and explicit
//! default values (X.696 14: the canonical rules). So each value has exactly one accepted encoding.
//!
//! Left out: notations that IEEE 1609.2 does not use, such as REAL, OBJECT IDENTIFIER, tags from 63 on, and
//! numbers of more than 64 bits.

mod reader;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

/// Reason for which octets are not a valid value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The octets end within a value.
    #[error("{what} at octet {at}: expected {expected} more octets, found {found}")]
    Truncated {
        /// The type in which the octets end.
        what: &'static str,
        /// Offset at which the value begins.
        at: usize,
        /// Number of octets that the value needs.
        expected: usize,
        /// Number of octets that are left in the input.
        found: usize,
    },
    /// A number, a count, a length or an index outside the range of the type or the profile.
    #[error("{what} at octet {at}: expected a value from {least} to {most}, found {found}")]
    OutOfRange {
        /// Name of the type.
        what: &'static str,
        /// Offset at which the value begins.
        at: usize,
        /// Least accepted value.
        least: u64,
        /// Greatest accepted value.
        most: u64,
        /// Received value.
        found: u64,
    },
    /// An encoding that could be shorter, an explicit default value, or a bit that must be zero.
    #[error("{what} at octet {at}: expected the canonical encoding (COER), found another")]
    NotCanonical {
        /// Name of the type.
        what: &'static str,
        /// Offset at which the value begins.
        at: usize,
    },
    /// A value that IEEE 1609.2 defines but the profile of TS 103 097 does not permit.
    #[error("{what} at octet {at}: expected {expected}")]
    Profile {
        /// Name of the type.
        what: &'static str,
        /// Offset at which the value begins.
        at: usize,
        /// The value that the profile expects.
        expected: &'static str,
    },
    /// Octets follow after the end of the value.
    #[error("expected the end of the structure at octet {at}, found {found} more octets")]
    Trailing {
        /// Offset at which the value ends.
        at: usize,
        /// Number of octets that follow the value.
        found: usize,
    },
}
