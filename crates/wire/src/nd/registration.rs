//! The Extended Address Registration option (RFC 8505 4.1). A node registers an address with a router, which
//! then has a route to it and may act as proxy on another link (RFC 8929).
//!
//! A Neighbor Solicitation carries the request, a Neighbor Advertisement the answer; the target is the
//! address. The Registration Ownership Verifier identifies the owner, in its shortest form of 64 bits.
//!
//! Left out: longer owners, the cryptographic proof of RFC 8928, the I field and the opaque octet (sent as
//! 0).

use super::option::{NdOption, option_type};
use super::{NdOptions, WHAT};
use crate::octets::{array, rest, u8_at, u16_at};

/// Octets of a Neighbor Solicitation or Advertisement before the options.
const FIXED: usize = 24;
/// R: the router shall see to it that the address is reached.
const ROUTED: u8 = 0x02;
/// T: there is a transaction number.
const NUMBERED: u8 = 0x01;

/// Status of a registration (RFC 8505 table 1).
pub mod status {
    /// Registered, or registering.
    pub const SUCCESS: u8 = 0;
    /// Another owner has registered the address.
    pub const DUPLICATE: u8 = 1;
    /// No room.
    pub const FULL: u8 = 2;
    /// It has been registered elsewhere since.
    pub const MOVED: u8 = 3;
    /// It is no longer registered.
    pub const REMOVED: u8 = 4;
    /// The address does not belong here.
    pub const TOPOLOGICALLY_INCORRECT: u8 = 8;
}

/// An Extended Address Registration option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRegistration {
    /// Of an answer, one of [`status`]; 0 in a question.
    pub status: u8,
    /// Transaction ID: which of two registrations is the later one (RFC 8505 5.2).
    pub transaction: u8,
    /// Minutes; 0 ends the registration.
    pub lifetime: u16,
    /// Registration Ownership Verifier.
    pub owner: u64,
}

impl AddressRegistration {
    /// Returns the first such option with a transaction number and an owner of 64 bits in a Neighbor
    /// Solicitation or Advertisement. Skips all others.
    pub fn of(message: &[u8]) -> Option<Self> {
        NdOptions::parse(rest(message, FIXED, WHAT).ok()?).ok()?.find_map(|option| match option {
            NdOption::Unknown { option_type: option_type::ADDRESS_REGISTRATION, data } => Self::read(data),
            _ => None,
        })
    }

    fn read(data: &[u8]) -> Option<Self> {
        if data.len() != 14 || u8_at(data, 2, WHAT).ok()? & NUMBERED == 0 {
            return None;
        }
        Some(AddressRegistration {
            status: u8_at(data, 0, WHAT).ok()?,
            transaction: u8_at(data, 3, WHAT).ok()?,
            lifetime: u16_at(data, 4, WHAT).ok()?,
            owner: u64::from_be_bytes(array(data, 6, WHAT).ok()?),
        })
    }

    /// Appends the option to a message.
    pub fn emit_into(&self, message: &mut Vec<u8>) {
        let mut data = vec![self.status, 0, ROUTED | NUMBERED, self.transaction];
        data.extend_from_slice(&self.lifetime.to_be_bytes());
        data.extend_from_slice(&self.owner.to_be_bytes());
        NdOption::Unknown { option_type: option_type::ADDRESS_REGISTRATION, data: &data }.emit_into(message);
    }
}

/// Returns whether transaction `new` is later than `old` by the lollipop counter of RFC 6550 7.2 and RFC 8505
/// 5.2. The counter starts in 128 to 255 and then wraps in 0 to 127.
pub fn is_later_transaction(new: u8, old: u8) -> bool {
    const WINDOW: i32 = 16;
    let (a, b) = (i32::from(new), i32::from(old));
    match (new > 127, old > 127) {
        // One has started anew: the number of the start is the later one unless it is about to go over into
        // the ring.
        (true, false) => 256 + b - a > WINDOW,
        (false, true) => 256 + a - b <= WINDOW,
        // Both in one part; in the ring, so far as they are close to each other.
        (true, true) => a > b,
        (false, false) => (1..=WINDOW).contains(&(a - b).rem_euclid(128)),
    }
}

/// The transaction number after this one.
pub fn next_transaction(transaction: u8) -> u8 {
    match transaction {
        255 | 127 => 0,
        other => other + 1,
    }
}
