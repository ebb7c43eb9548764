//! Canonical Octet Encoding Rules (X.696), as far as secured messages and certificates need them.
//!
//! This codec is written by hand. A station reads one profile of a large module, before it knows whether it
//! may trust the sender. So the code that reads shall be small, bounded and easy to check. A general codec
//! with the generated types of IEEE 1609.2 is several times as large as the program may grow, and allocates
//! for each list. It also cannot return the octets of a part as they arrived, over which signatures are
//! computed. The tests compare this codec with general ones in both directions.
//!
//! The parser trusts no length. It reads only octets that exist, and a list grows with the elements that were
//! read, up to a bound. It refuses lengths, quantities and integers that could be shorter, and values that
//! are the default of their type (X.696 14: the canonical rules). So a value has one encoding.
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
        /// The value that was found.
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
    /// A value that IEEE 1609.2 defines and the profile of TS 103 097 does not permit.
    #[error("{what} at octet {at}: expected {expected}")]
    Profile {
        /// The type.
        what: &'static str,
        /// Where it stands.
        at: usize,
        /// The value that the profile expects.
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
