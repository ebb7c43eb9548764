//! Outputs of the NEMO plane as serde types, so that a recording can contain them.

use std::net::{IpAddr, Ipv6Addr};

use carnet_base::{Endpoint, LinkMessage, hex};
use carnet_mobility::{Event, SessionPeer};
use serde::{Deserialize, Serialize};

use crate::forwarding::desired::EntryChange;
use crate::persistent_state::StoredStatePart;

/// An output to the platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Change of the desired forwarding state. The caller must apply it before it carries out the next
    /// output.
    Forwarding(EntryChange),
    /// IPv6 packet that the caller writes into the TUN device; the kernel routes it.
    Packet(#[serde(with = "hex")] Vec<u8>),
    /// A Mobility Header message that the kernel's IPsec must protect. The protected packet comes back from
    /// the tunnel device, and the plane then sends it.
    Protect {
        /// Address of this station in the security association: a home address, or the home agent's.
        source: Ipv6Addr,
        /// Address of the other end in the security association.
        destination: Ipv6Addr,
        /// Flow label by which the plane recognises the packet.
        label: u32,
        /// The Mobility Header.
        #[serde(with = "hex")]
        message: Vec<u8>,
    },
    /// An IPv6 packet to be sent inside IPv4 or UDP (RFC 5555), or through an encrypted session. The outer
    /// header has its traffic class.
    Encapsulated {
        /// Local end of the tunnel.
        local: Endpoint,
        /// Remote end of the tunnel.
        remote: Endpoint,
        /// The IPv6 packet.
        #[serde(with = "hex")]
        packet: Vec<u8>,
        /// Whether routers may fragment the outer packet: its DF bit is clear.
        may_fragment: bool,
        /// Remote key of the encrypted session that carries the packet; `None` in the clear, or if the caller
        /// finds the session of a message by its addresses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionPeer>,
    },
    /// Accept and begin encrypted sessions with the router that has this public key. It is not in the config:
    /// the other router has named it in messages about a direct route.
    AcceptSession {
        /// Number of the key in other outputs and inputs.
        session: SessionPeer,
        /// The public key, 32 octets.
        #[serde(with = "hex")]
        public_key: Vec<u8>,
    },
    /// End the sessions of a key of [`Output::AcceptSession`].
    EndSession(SessionPeer),
    /// An ICMPv6 message to be sent on a link, from exactly this source.
    Icmpv6(LinkMessage),
    /// Request for the configured URL over an uplink, to detect a captive portal. The platform drops a
    /// request that it cannot send now.
    ProbePortal {
        /// Name of the uplink's interface.
        uplink: String,
        /// Care-of addresses of the uplink, as sources of the request.
        sources: Vec<IpAddr>,
    },
    /// State that survives a restart has changed. The platform must write it before the next packet leaves.
    Persist(StoredStatePart),
    /// An event for operators.
    Event(Event),
}
