//! The Status field of the Binding Acknowledgement (IANA "Status Codes (Binding Acknowledgement)").
//!
//! Values under 128 accept the Binding Update, other values reject it (RFC 6275 6.1.8). Several documents
//! assign 144; this module uses the meaning of RFC 4285.

use std::fmt;

/// A value of the Status field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingStatus(pub u8);

/// Defines the status constants, their documents and their meanings from one list.
macro_rules! statuses {
    ($($name:ident = $value:literal, $meaning:literal, $document:literal;)*) => {
        impl BindingStatus {
            $(#[doc = concat!($meaning, " (", $document, ").")]
            pub const $name: BindingStatus = BindingStatus($value);)*

            /// Returns the meaning of the value in the words of its document, or "unassigned" for an unknown
            /// value.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(BindingStatus::$name => $meaning,)*
                    _ => "unassigned",
                }
            }
        }
    };
}

statuses! {
    ACCEPTED = 0, "Binding Update accepted", "RFC 6275 6.1.8";
    ACCEPTED_PREFIX_DISCOVERY = 1, "Accepted but prefix discovery necessary", "RFC 6275 6.1.8";
    MCOA_NOTCOMPLETE = 4, "Accepted, but not every binding identifier", "RFC 5648 6.2";
    MCOA_RETURNHOME_WO_NDP = 5, "Accepted, return home without neighbor discovery", "RFC 5648 6.2";
    UNSPECIFIED = 128, "Reason unspecified", "RFC 6275 6.1.8";
    PROHIBITED = 129, "Administratively prohibited", "RFC 6275 6.1.8";
    INSUFFICIENT_RESOURCES = 130, "Insufficient resources", "RFC 6275 6.1.8";
    HOME_REGISTRATION_NOT_SUPPORTED = 131, "Home registration not supported", "RFC 6275 6.1.8";
    NOT_HOME_SUBNET = 132, "Not home subnet", "RFC 6275 6.1.8";
    NOT_HOME_AGENT = 133, "Not home agent for this mobile node", "RFC 6275 6.1.8";
    DUPLICATE_ADDRESS = 134, "Duplicate Address Detection failed", "RFC 6275 6.1.8";
    SEQUENCE_OUT_OF_WINDOW = 135, "Sequence number out of window", "RFC 6275 6.1.8";
    EXPIRED_HOME_NONCE = 136, "Expired home nonce index", "RFC 6275 6.1.8";
    EXPIRED_CARE_OF_NONCE = 137, "Expired care-of nonce index", "RFC 6275 6.1.8";
    EXPIRED_NONCES = 138, "Expired nonces", "RFC 6275 6.1.8";
    TYPE_CHANGE_DISALLOWED = 139, "Registration type change disallowed", "RFC 6275 6.1.8";
    MOBILE_ROUTER_NOT_PERMITTED = 140, "Mobile Router Operation not permitted", "RFC 3963 4.2";
    INVALID_PREFIX = 141, "Invalid Prefix", "RFC 3963 4.2";
    NOT_AUTHORIZED_FOR_PREFIX = 142, "Not Authorized for Prefix", "RFC 3963 4.2";
    FORWARDING_SETUP_FAILED = 143, "Forwarding Setup failed (prefixes missing)", "RFC 3963 4.2";
    ID_MISMATCH = 144, "Time stamp not valid (MIPV6-ID-MISMATCH)", "RFC 4285 8";
    MESSAGE_ID_REQUIRED = 145, "Time stamp missing (MIPV6-MESG-ID-REQD)", "RFC 4285 8";
    AUTHENTICATION_FAILED = 146, "Authentication failed (MIPV6-AUTH-FAIL)", "RFC 4285 8";
    MCOA_MALFORMED = 164, "Binding identifier malformed", "RFC 5648 6.2";
    MCOA_NON_MCOA_BINDING_EXISTS = 165, "A binding without identifier exists", "RFC 5648 6.2";
    MCOA_PROHIBITED = 166, "Multiple care-of addresses prohibited", "RFC 5648 6.2";
    MCOA_UNKNOWN_CARE_OF_ADDRESS = 167, "Unknown care-of address", "RFC 5648 6.2";
    MCOA_BULK_PROHIBITED = 168, "Bulk registration prohibited", "RFC 5648 6.2";
    MCOA_SIMULTANEOUS_PROHIBITED = 169, "Simultaneous home and foreign binding prohibited", "RFC 5648 6.2";
    INVALID_CARE_OF_ADDRESS = 174, "Invalid Care-of Address", "RFC 6275 6.1.8";
}

impl BindingStatus {
    /// Returns whether the home agent rejected the Binding Update: the value is 128 or above.
    pub fn is_rejection(self) -> bool {
        self.0 >= 128
    }
}

impl From<u8> for BindingStatus {
    fn from(value: u8) -> BindingStatus {
        BindingStatus(value)
    }
}

impl From<BindingStatus> for u8 {
    fn from(status: BindingStatus) -> u8 {
        status.0
    }
}

impl fmt::Display for BindingStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.meaning())
    }
}
