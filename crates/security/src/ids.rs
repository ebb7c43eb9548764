//! Names of certificates (IEEE 1609.2 6.3.24 to 6.3.29): the last octets of a certificate's hash.

use std::fmt;

use crate::coer::{Error, Reader};

/// Name of a certificate's holder: the last eight octets of the certificate's hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct HashedId8(pub [u8; 8]);

/// Name of a certificate in requests: the last three octets of its hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct HashedId3(pub [u8; 3]);

impl HashedId8 {
    /// Returns the last eight octets of a hash.
    pub fn from_hash(hash: &[u8]) -> HashedId8 {
        HashedId8(hash.last_chunk().copied().unwrap_or_default())
    }

    /// Returns the last three octets of this name, which requests for certificates use.
    pub const fn last_three_octets(self) -> HashedId3 {
        let [.., a, b, c] = self.0;
        HashedId3([a, b, c])
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<HashedId8, Error> {
        reader.take_array("HashedId8").map(HashedId8)
    }
}

macro_rules! hexadecimal {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    )*};
}

hexadecimal! { HashedId8 HashedId3 }
