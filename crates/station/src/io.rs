//! What goes into a station and what comes out.
//!
//! Inputs and control outputs are serde types, so that a run can be recorded as JSON lines and replayed.
//! Packets of the tunnel device take the allocation-free door [`crate::Station::handle_packet`] instead;
//! when a run is recorded they are written as [`Input::Packet`].
//!
//! **Drain rule.** After every `handle_*` call, [`crate::Station::poll_output`] is called until it returns
//! `None`, and the outputs are carried out in that order: a forwarding change that precedes a packet is in
//! place before the packet leaves. Debug builds assert it.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use crate::forwarding::desired::Change;

/// An input to the station.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Time has passed; timers that have run out are served.
    Timeout,
    /// A packet that the kernel routed into the tunnel device.
    Packet(#[serde(with = "hex")] Vec<u8>),
    /// An ICMPv6 message heard on a link: Neighbor Discovery, or an error about a tunnel packet.
    Icmpv6(LinkMessage),
    /// The state of an interface, whole: what is not in it is gone. Sent at the start for every interface
    /// and again whenever something in it changes.
    Interface(Interface),
    /// An interface has vanished.
    InterfaceGone {
        /// Its name.
        name: String,
    },
    /// An operator's wish.
    Command(Command),
}

/// An ICMPv6 message on a link, without its IPv6 header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkMessage {
    /// Name of the interface.
    pub interface: String,
    /// IPv6 source.
    pub source: Ipv6Addr,
    /// IPv6 destination.
    pub destination: Ipv6Addr,
    /// Hop limit of the IPv6 header: Neighbor Discovery is only believed at 255 (RFC 4861 6.1, 7.1).
    pub hop_limit: u8,
    /// Link-layer address of the other side: the sender's of a message that came in, the receiver's of one
    /// that goes out. `None` where the link has none, or for a multicast destination.
    pub peer: Option<[u8; 6]>,
    /// The ICMPv6 message with its checksum; whoever takes it in checks it.
    #[serde(with = "hex")]
    pub message: Vec<u8>,
}

/// The state of an interface as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Administratively up and with carrier (`IFF_UP` and `IFF_LOWER_UP`).
    pub running: bool,
    /// Link MTU in octets.
    pub mtu: u32,
    /// The 48-bit link-layer address, where there is one.
    pub link_address: Option<[u8; 6]>,
    /// The IPv6 addresses that the kernel has on it.
    pub addresses: Vec<Address>,
    /// The default routers that the kernel knows on it (main table), the preferred one first.
    pub routers: Vec<Ipv6Addr>,
}

/// An address on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub address: Ipv6Addr,
    /// Its prefix length.
    pub prefix_length: u8,
    /// Duplicate address detection is still under way (RFC 4862 5.4), and the address is not optimistic.
    pub tentative: bool,
    /// Duplicate address detection found that another node has it.
    pub duplicate: bool,
    /// Past its preferred lifetime.
    pub deprecated: bool,
    /// A temporary address (RFC 8981): never a care-of address while a stable one is there.
    pub temporary: bool,
}

/// An operator's wish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Use this uplink and no other; `None` ends an earlier wish.
    Handover {
        /// Interface name of the uplink.
        uplink: Option<String>,
    },
    /// The station is about to stop: de-register and say farewell.
    Shutdown,
}

/// An output of the station.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// A change of the desired forwarding state, to be in place before the next output.
    Forwarding(Change),
    /// An IPv6 packet to be written into the tunnel device, whence the kernel routes it.
    Packet(#[serde(with = "hex")] Vec<u8>),
    /// An ICMPv6 message to be sent on a link, from exactly this source.
    Icmpv6(LinkMessage),
    /// Something that an operator may want to know.
    Event(Event),
}

/// Something that happened, for the log and `carnet watch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Mobile router: registered with the home agent (or registration renewed after a change).
    Registered {
        /// Home agent.
        home_agent: Ipv6Addr,
        /// Care-of address that the home agent acknowledged.
        care_of_address: Ipv6Addr,
        /// Uplink interface.
        uplink: String,
        /// From the first Binding Update of this registration to its acknowledgement, in microseconds.
        latency_us: u64,
        /// Granted lifetime in seconds.
        lifetime_s: u32,
        /// True when nothing but the lifetime changed.
        refresh: bool,
    },
    /// Mobile router: no longer registered.
    Deregistered {
        /// Why, in plain words.
        reason: String,
    },
    /// Mobile router: the home agent said no.
    Rejected {
        /// Binding Acknowledgement status (128 and above).
        status: u8,
        /// Its meaning, and what the router does about it.
        reason: String,
    },
    /// Mobile router: traffic moves to another uplink, or to none.
    Handover {
        /// Interface that carried the traffic until now.
        from: Option<String>,
        /// Interface that carries it from now on.
        to: Option<String>,
        /// Why.
        reason: String,
    },
    /// Mobile router: it is on its home link now and routes without tunnel.
    AtHome {
        /// Interface on the home link.
        interface: String,
    },
    /// Home agent: a binding was created, moved or refreshed.
    Binding {
        /// Home address.
        home_address: Ipv6Addr,
        /// Care-of address.
        care_of_address: Ipv6Addr,
        /// Prefixes that are forwarded.
        prefixes: Vec<Ipv6Net>,
        /// Granted lifetime in seconds.
        lifetime_s: u32,
        /// `created`, `moved` or `refreshed`.
        change: String,
    },
    /// Home agent: a binding ended.
    BindingRemoved {
        /// Home address.
        home_address: Ipv6Addr,
        /// `deregistered`, `expired` or the like.
        reason: String,
    },
    /// Home agent: a Binding Update was refused.
    BindingRefused {
        /// Home address.
        home_address: Ipv6Addr,
        /// Care-of address.
        care_of_address: Ipv6Addr,
        /// Binding Acknowledgement status.
        status: u8,
        /// Its meaning.
        reason: String,
    },
    /// Something to look at.
    Warning {
        /// In plain words.
        message: String,
    },
}

/// Octets as a string of hexadecimal digits.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::fmt::Write;

    pub fn serialize<S: Serializer>(octets: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(octets.len() * 2);
        for octet in octets {
            let _ = write!(text, "{octet:02x}");
        }
        serializer.serialize_str(&text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(D::Error::custom("expected an even number of hexadecimal digits"));
        }
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(D::Error::custom))
            .collect()
    }
}
