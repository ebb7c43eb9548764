//! The Mobility Header, its messages and its options (RFC 6275 6.1 and 6.2, RFC 3963 4, RFC 4283, RFC 4285).
//! Further options are those of RFC 5094, RFC 5648 4 and RFC 6088.
//!
//! To read a message, call [`MobilityHeader::parse_verified`] (or `parse` and `verify_checksum`) and
//! [`MobilityHeader::message`], then read the message's [`MobilityOptions`]. To write a message, use a
//! [`MobilityHeaderBuilder`], write the MAC to the field that [`authentication_field`] finds if the message
//! has one, then use a [`ControlPacket`]. The control packet adds the headers and the checksum.
//!
//! The module reads the messages of home agent and mobile router in full: Binding Refresh Request, Binding
//! Update, Binding Acknowledgement, Binding Error, Heartbeat (RFC 5847), Home Agent Switch (RFC 5142) and
//! Binding Revocation (RFC 5846). It reads the options of multiple care-of addresses (RFC 5648), flow
//! bindings (RFC 6089, [`flow_identification`] and [`traffic_selector`]) and dual stack (RFC 5555).
//! [`prefix_test`] and [`direct_route`] hold the messages between mobile routers. The module knows the
//! lengths of return routability messages, and only the types of all other messages.

pub mod authentication;
pub mod binding_status;
pub mod builder;
pub mod direct_route;
pub mod flow_identification;
pub mod header;
pub mod home_agent_switch;
pub mod message;
pub mod options;
pub mod packet;
pub mod prefix_test;
pub mod revocation;
pub mod traffic_selector;

pub use authentication::{AuthenticationField, authentication_field};
pub use binding_status::BindingStatus;
pub use builder::{MobilityHeaderBuilder, set_checksum};
pub use direct_route::{DirectRoute, DirectRouteKind};
pub use header::MobilityHeader;
pub use home_agent_switch::HomeAgentSwitch;
pub use message::{
    BindingAcknowledgement, BindingError, BindingRefreshRequest, BindingUpdate, BindingUpdateFlags,
    Heartbeat, ParsedMobilityMessage,
};
pub use options::{MobilityOption, MobilityOptions};
pub use packet::ControlPacket;
pub use prefix_test::{PrefixTest, PrefixTestKind};
pub use revocation::{BindingRevocation, RevocationFlags, RevocationKind};

/// Values of the MH Type field (IANA "Mobility Header Types").
pub mod message_type {
    /// Binding Refresh Request (RFC 6275 6.1.2).
    pub const BINDING_REFRESH_REQUEST: u8 = 0;
    /// Home Test Init (RFC 6275 6.1.3).
    pub const HOME_TEST_INIT: u8 = 1;
    /// Care-of Test Init (RFC 6275 6.1.4).
    pub const CARE_OF_TEST_INIT: u8 = 2;
    /// Home Test (RFC 6275 6.1.5).
    pub const HOME_TEST: u8 = 3;
    /// Care-of Test (RFC 6275 6.1.6).
    pub const CARE_OF_TEST: u8 = 4;
    /// Binding Update (RFC 6275 6.1.7).
    pub const BINDING_UPDATE: u8 = 5;
    /// Binding Acknowledgement (RFC 6275 6.1.8).
    pub const BINDING_ACKNOWLEDGEMENT: u8 = 6;
    /// Binding Error (RFC 6275 6.1.9).
    pub const BINDING_ERROR: u8 = 7;
    /// Experimental (RFC 5096), see [`super::prefix_test`].
    pub const EXPERIMENTAL: u8 = super::prefix_test::EXPERIMENTAL;
    /// Home Agent Switch (RFC 5142).
    pub const HOME_AGENT_SWITCH: u8 = 12;
    /// Heartbeat (RFC 5847).
    pub const HEARTBEAT: u8 = 13;
    /// Binding Revocation (RFC 5846).
    pub const BINDING_REVOCATION: u8 = 16;
}

/// Returns the length of a message's fixed part in octets from the start of the Mobility Header; `None` if
/// unknown.
pub const fn fixed_part_length(message_type: u8) -> Option<usize> {
    match message_type {
        message_type::BINDING_REFRESH_REQUEST => Some(8),
        message_type::HOME_TEST_INIT | message_type::CARE_OF_TEST_INIT => Some(16),
        message_type::HOME_TEST | message_type::CARE_OF_TEST => Some(24),
        message_type::BINDING_UPDATE | message_type::BINDING_ACKNOWLEDGEMENT => Some(12),
        message_type::BINDING_ERROR => Some(24),
        message_type::HEARTBEAT | message_type::BINDING_REVOCATION => Some(12),
        message_type::HOME_AGENT_SWITCH => Some(8),
        _ => None,
    }
}

/// Values of the Status field of the IPv4 Address Acknowledgement option (RFC 5555 3.2.1).
pub mod ipv4_status {
    /// Success.
    pub const SUCCESS: u8 = 0;
    /// Failure, reason unspecified.
    pub const UNSPECIFIED: u8 = 128;
    /// Administratively prohibited.
    pub const PROHIBITED: u8 = 129;
    /// Incorrect IPv4 home address.
    pub const INCORRECT_ADDRESS: u8 = 130;
    /// Invalid IPv4 address.
    pub const INVALID_ADDRESS: u8 = 131;
    /// Dynamic IPv4 home address assignment not available.
    pub const NO_DYNAMIC_ADDRESS: u8 = 132;
    /// Prefix allocation unauthorized.
    pub const PREFIX_UNAUTHORIZED: u8 = 133;
}
