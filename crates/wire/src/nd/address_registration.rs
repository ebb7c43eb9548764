//! The Extended Address Registration option (RFC 8505 4.1). A node registers an address with a router. The
//! router then has a route to the address and may act as proxy on another link (RFC 8929).
//!
//! A Neighbor Solicitation carries the request, a Neighbor Advertisement the answer; the target of both
//! messages is the registered address. The Registration Ownership Verifier identifies the owner; this module
//! uses its shortest form of 64 bits.
//!
//! Left out: longer verifiers, the cryptographic proof of RFC 8928, the I field and the opaque octet (sent as
//! 0).

use super::nd_option::{NdOption, option_type};
use super::{NAME_IN_ERRORS, NdOptions};
use crate::octets::{array_at, octets_from, u8_at, u16_at};

/// Octets of a Neighbor Solicitation or Advertisement before the options.
const OPTIONS_OFFSET: usize = 24;
/// R: the node asks the router to make the address reachable.
const ROUTED_FLAG: u8 = 0x02;
/// T: the option has a transaction number.
const TRANSACTION_FLAG: u8 = 0x01;

/// Status of a registration (RFC 8505 table 1).
pub mod registration_status {
    /// The registration succeeded; a request carries this value, too.
    pub const SUCCESS: u8 = 0;
    /// Another owner has registered the address.
    pub const DUPLICATE: u8 = 1;
    /// The router has no room for the registration.
    pub const ROUTER_FULL: u8 = 2;
    /// The node has since registered the address with another router.
    pub const MOVED: u8 = 3;
    /// The router has removed the registration.
    pub const REMOVED: u8 = 4;
    /// The address does not belong to a prefix of the link.
    pub const TOPOLOGICALLY_INCORRECT: u8 = 8;
}

/// An Extended Address Registration option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRegistration {
    /// Status in an answer, one of [`registration_status`]; 0 in a request.
    pub status: u8,
    /// Transaction ID, which says which of two registrations is the later one (RFC 8505 5.2).
    pub transaction_id: u8,
    /// Lifetime of the registration, minutes; 0 ends the registration.
    pub lifetime: u16,
    /// Registration Ownership Verifier.
    pub ownership_verifier: u64,
}

impl AddressRegistration {
    /// Returns the first registration option of a Neighbor Solicitation or Advertisement that has a
    /// transaction number and an owner of 64 bits; `None` if the message has no such option.
    pub fn from_message(message: &[u8]) -> Option<Self> {
        NdOptions::parse(octets_from(message, OPTIONS_OFFSET, NAME_IN_ERRORS).ok()?).ok()?.find_map(
            |option| match option {
                NdOption::Unknown { option_type: option_type::ADDRESS_REGISTRATION, data } => {
                    Self::read(data)
                }
                _ => None,
            },
        )
    }

    fn read(data: &[u8]) -> Option<Self> {
        if data.len() != 14 || u8_at(data, 2, NAME_IN_ERRORS).ok()? & TRANSACTION_FLAG == 0 {
            return None;
        }
        Some(AddressRegistration {
            status: u8_at(data, 0, NAME_IN_ERRORS).ok()?,
            transaction_id: u8_at(data, 3, NAME_IN_ERRORS).ok()?,
            lifetime: u16_at(data, 4, NAME_IN_ERRORS).ok()?,
            ownership_verifier: u64::from_be_bytes(array_at(data, 6, NAME_IN_ERRORS).ok()?),
        })
    }

    /// Appends the option to a message.
    pub fn emit_into(&self, message: &mut Vec<u8>) {
        let mut data = vec![self.status, 0, ROUTED_FLAG | TRANSACTION_FLAG, self.transaction_id];
        data.extend_from_slice(&self.lifetime.to_be_bytes());
        data.extend_from_slice(&self.ownership_verifier.to_be_bytes());
        NdOption::Unknown { option_type: option_type::ADDRESS_REGISTRATION, data: &data }.emit_into(message);
    }
}

/// Returns whether transaction `new` is later than `old` by the lollipop counter of RFC 6550 7.2 and RFC 8505
/// 5.2. The counter starts in 128 to 255 and then wraps in 0 to 127.
pub fn is_later_transaction(new: u8, old: u8) -> bool {
    const SEQUENCE_WINDOW: i32 = 16;
    let (a, b) = (i32::from(new), i32::from(old));
    match (new > 127, old > 127) {
        // One number is in the start sequence (128 to 255), the other in the circular sequence (0 to 127).
        // The circular number is later if the counter reaches it from the start number within 16 steps.
        // Otherwise the node has restarted, and the number of the start sequence is later.
        (true, false) => 256 + b - a > SEQUENCE_WINDOW,
        (false, true) => 256 + a - b <= SEQUENCE_WINDOW,
        // Both numbers are in the same sequence. In the circular sequence 0 to 127, a number is later if it
        // is at most 16 ahead.
        (true, true) => a > b,
        (false, false) => (1..=SEQUENCE_WINDOW).contains(&(a - b).rem_euclid(128)),
    }
}

/// Returns the transaction number after this one.
pub fn next_transaction_id(transaction: u8) -> u8 {
    match transaction {
        255 | 127 => 0,
        other => other + 1,
    }
}
