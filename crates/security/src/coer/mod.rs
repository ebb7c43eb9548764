//! Canonical Octet Encoding Rules (X.696), as far as secured messages and certificates need them.
//!
//! Why by hand and not generated: a station reads one profile of a large module and has to read it before it
//! knows whether anybody may be believed, so that what is read shall be little, bounded and easy to check. A
//! general codec with the generated types of IEEE 1609.2 is several times as large as the program may grow,
//! allocates for each list, and cannot hand out the octets of a part as they came, which is what a signature
//! is about. The tests hold this codec against the general ones both ways.
//!
//! Nothing here believes a length: what is announced is there, or reading ends; a list grows with the
//! elements that were read, and there is a bound for each. Lengths, quantities and integers that could have
//! been shorter are refused, as are values that are their type's default (X.696 14: the canonical rules), so
//! that a value has one encoding.
//!
//! Left out: what IEEE 1609.2 does not use, among it REAL, OBJECT IDENTIFIER, tags from 63 on, and numbers of
//! more than 64 bits.

mod reader;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

/// Why octets are no such value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The octets end within a value.
    #[error("{what} at octet {at}: expected {expected} more octets, found {found}")]
    Truncated {
        /// The type in which the octets end.
        what: &'static str,
        /// Where it begins or goes on.
        at: usize,
        /// How many octets it needs.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A number, a count, a length or an index outside what the type or the profile allows.
    #[error("{what} at octet {at}: expected {least} to {most}, found {found}")]
    OutOfRange {
        /// The type.
        what: &'static str,
        /// Where it stands.
        at: usize,
        /// The least that is taken.
        least: u64,
        /// The greatest that is taken.
        most: u64,
        /// What was found.
        found: u64,
    },
    /// An encoding that could have been shorter, a default that is written out, or a bit that has to be zero.
    #[error("{what} at octet {at}: expected its canonical encoding")]
    NotCanonical {
        /// The type.
        what: &'static str,
        /// Where it stands.
        at: usize,
    },
    /// What IEEE 1609.2 knows and the profile of TS 103 097 does not let in.
    #[error("{what} at octet {at}: expected {expected}")]
    Profile {
        /// The type.
        what: &'static str,
        /// Where it stands.
        at: usize,
        /// What the profile has in its place.
        expected: &'static str,
    },
    /// Octets behind the value.
    #[error("expected the end at octet {at}, found {found} more octets")]
    Trailing {
        /// Where the value ends.
        at: usize,
        /// How many octets follow.
        found: usize,
    },
}
