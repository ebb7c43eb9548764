//! Binding Revocation (RFC 5846 5): the home agent ends a binding.
//!
//! ```text
//!   6: B.R. Type (1 indication, 2 acknowledgement), R. Trigger or Status
//!   8: Sequence #, P V G and reserved bits
//!  12: mobility options
//! ```

use super::options::MobilityOptions;
use crate::Error;
use crate::octets::{octets_from, u8_at, u16_at};

/// Binding Revocation Indication or Acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingRevocation<'a> {
    /// Indication or Acknowledgement.
    pub kind: RevocationKind,
    /// Sequence number, which matches the acknowledgement to the indication.
    pub sequence: u16,
    /// The flags; an acknowledgement copies those of the indication.
    pub flags: RevocationFlags,
    /// The mobility options: Binding Identifiers of the revoked bindings.
    pub options: MobilityOptions<'a>,
}

/// Type of a Binding Revocation message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevocationKind {
    /// A Binding Revocation Indication.
    Indication {
        /// Reason of the revocation: see [`revocation_trigger`].
        trigger: u8,
    },
    /// A Binding Revocation Acknowledgement.
    Acknowledgement {
        /// Status of the revocation; values under 128 mean success: see [`revocation_status`].
        status: u8,
    },
}

/// The flags of a Binding Revocation message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RevocationFlags {
    /// P: the revoked binding is one of Proxy Mobile IPv6.
    pub proxy: bool,
    /// V: the home agent revokes only the binding of the IPv4 home address.
    pub ipv4_only: bool,
    /// G: the home agent revokes all bindings that the two nodes share.
    pub global: bool,
}

/// Values of the Revocation Trigger field; values of 128 and above require the G flag.
pub mod revocation_trigger {
    /// Unspecified.
    pub const UNSPECIFIED: u8 = 0;
    /// Administrative reason.
    pub const ADMINISTRATIVE: u8 = 1;
    /// The user has ended the session.
    pub const USER_INITIATED: u8 = 5;
    /// The binding cache entry may be out of sync.
    pub const OUT_OF_SYNC: u8 = 7;
    /// Per-peer policy.
    pub const PER_PEER_POLICY: u8 = 128;
    /// Revoking mobility node local policy.
    pub const LOCAL_POLICY: u8 = 129;
}

/// Values of the Status field of a Binding Revocation Acknowledgement.
pub mod revocation_status {
    /// Success.
    pub const SUCCESS: u8 = 0;
    /// Partial success.
    pub const PARTIAL_SUCCESS: u8 = 1;
    /// Binding does not exist.
    pub const NO_BINDING: u8 = 128;
    /// IPv4 Home Address option required.
    pub const IPV4_HOME_ADDRESS_REQUIRED: u8 = 129;
    /// Global revocation not authorized.
    pub const GLOBAL_NOT_AUTHORIZED: u8 = 130;
    /// Revocation trigger not supported.
    pub const TRIGGER_NOT_SUPPORTED: u8 = 133;
    /// Revocation function not supported.
    pub const FUNCTION_NOT_SUPPORTED: u8 = 134;
    /// Proxy binding revocation not supported.
    pub const PROXY_NOT_SUPPORTED: u8 = 135;
}

/// Values of the B.R. Type field.
const INDICATION_TYPE: u8 = 1;
const ACKNOWLEDGEMENT_TYPE: u8 = 2;
/// Offset of the options in the Mobility Header, octets.
pub(crate) const OPTIONS_OFFSET: usize = 12;

impl RevocationKind {
    /// Returns the two octets after the checksum: B.R. Type, and the trigger or the status.
    pub(crate) fn type_and_code_octets(self) -> [u8; 2] {
        match self {
            RevocationKind::Indication { trigger } => [INDICATION_TYPE, trigger],
            RevocationKind::Acknowledgement { status } => [ACKNOWLEDGEMENT_TYPE, status],
        }
    }
}

impl RevocationFlags {
    /// Returns the 16-bit field with the flags.
    pub fn bits(self) -> u16 {
        u16::from(self.proxy) << 15 | u16::from(self.ipv4_only) << 14 | u16::from(self.global) << 13
    }

    fn from_bits(bits: u16) -> Self {
        RevocationFlags {
            proxy: bits & 0x8000 != 0,
            ipv4_only: bits & 0x4000 != 0,
            global: bits & 0x2000 != 0,
        }
    }
}

impl<'a> BindingRevocation<'a> {
    /// Reads the message from a whole Mobility Header.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the octets end early, [`Error::Value`] for another B.R. Type.
    pub(crate) fn parse(octets: &'a [u8]) -> Result<Self, Error> {
        const NAME_IN_ERRORS: &str = "binding revocation";
        let second = u8_at(octets, 7, NAME_IN_ERRORS)?;
        let kind = match u8_at(octets, 6, NAME_IN_ERRORS)? {
            INDICATION_TYPE => RevocationKind::Indication { trigger: second },
            ACKNOWLEDGEMENT_TYPE => RevocationKind::Acknowledgement { status: second },
            other => {
                let found = u32::from(other);
                return Err(Error::Value { what: "binding revocation type", expected: "1 or 2", found });
            }
        };
        Ok(BindingRevocation {
            kind,
            sequence: u16_at(octets, 8, NAME_IN_ERRORS)?,
            flags: RevocationFlags::from_bits(u16_at(octets, 10, NAME_IN_ERRORS)?),
            options: MobilityOptions::parse(octets_from(octets, OPTIONS_OFFSET, NAME_IN_ERRORS)?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mobility::{MobilityHeader, MobilityHeaderBuilder, ParsedMobilityMessage};

    #[test]
    fn binding_revocation_is_encoded_and_decoded() {
        for (kind, flags) in [
            (
                RevocationKind::Indication { trigger: revocation_trigger::ADMINISTRATIVE },
                RevocationFlags::default(),
            ),
            (
                RevocationKind::Acknowledgement { status: revocation_status::NO_BINDING },
                RevocationFlags { proxy: true, ipv4_only: true, global: true },
            ),
            (
                RevocationKind::Indication { trigger: 129 },
                RevocationFlags { global: true, ..Default::default() },
            ),
        ] {
            let octets = MobilityHeaderBuilder::binding_revocation(kind, 0x1234, flags).finish();
            // RFC 5846 5.1: without options "4 octets of padding are necessary and the Header Len field ...
            // 1".
            assert_eq!((octets.len(), octets[1]), (16, 1));
            let header = MobilityHeader::parse(&octets).expect("a header");
            let Ok(ParsedMobilityMessage::BindingRevocation(read)) = header.message() else {
                panic!("another message")
            };
            assert_eq!((read.kind, read.sequence, read.flags), (kind, 0x1234, flags));
        }
    }

    #[test]
    fn unknown_binding_revocation_type_is_refused() {
        let kind = RevocationKind::Indication { trigger: 0 };
        let mut octets =
            MobilityHeaderBuilder::binding_revocation(kind, 1, RevocationFlags::default()).finish();
        octets[6] = 3;
        assert!(MobilityHeader::parse(&octets).expect("a header").message().is_err());
    }
}
