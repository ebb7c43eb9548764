//! Inputs and outputs of a station.
//!
//! Inputs and control outputs are serde types, so that a run can be recorded as JSON lines and replayed.
//! Packets of the tunnel device use [`crate::Station::handle_packet`] instead, which does not allocate; a
//! recording contains them as [`Input::Packet`].
//!
//! **Drain rule.** After every `handle_*` call, the caller calls [`crate::Station::poll_output`] until it
//! returns `None`, and executes the outputs in that order. So a forwarding change that precedes a packet is
//! in place before the packet leaves. Debug builds assert it.

use std::net::{IpAddr, Ipv6Addr};

use carnet_base::hex;
pub use carnet_base::{Address, Endpoint, Interface, Ipv4Router, Ipv6Router, LinkMessage, NeighbourState};
use carnet_geonet::MacAddress;
pub use carnet_mobility::Event;
pub use carnet_mobility::home_agent::DrainPhase;
pub use carnet_mobility::mobile_router::{Octets, PortalProbe};
use serde::{Deserialize, Serialize};

use crate::forwarding::desired::Change;
pub use crate::geonet::fast_path::{Accelerate, Report};
pub use crate::geonet::io::{
    Action, Area, AreaOrder, AreaShape, Around, Delivered, DeliveredKind, DenmOrder, DenmWish, Frame,
    GeonetRequest, GeonetTransport, Message, MessageKind, Position, PositionQuality, VirtualFrame,
    VirtualLink,
};

/// Packets of one tunnel that a fast path has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelTraffic {
    /// Local end of the tunnel.
    pub local: Endpoint,
    /// Remote end of the tunnel.
    pub remote: Endpoint,
    /// Packets sent.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
}

/// An input to the station.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Time has passed: run the timers that are due.
    Timeout,
    /// A packet that the kernel routed into the tunnel device.
    Packet(#[serde(with = "hex")] Vec<u8>),
    /// An ICMPv6 message received on a link: Neighbor Discovery, or an error about a tunnel packet.
    Icmpv6(LinkMessage),
    /// The complete state of an interface; addresses and routers that are not in it no longer exist. Sent at
    /// the start for every interface, and again after each change.
    Interface(Interface),
    /// An interface has vanished.
    InterfaceGone {
        /// Name of the interface.
        name: String,
    },
    /// Signal strength of an uplink, measured now.
    Signal {
        /// Name of the interface.
        interface: String,
        /// Signal strength in dBm.
        dbm: i32,
    },
    /// Whether the modem of an uplink is in a network that is not its own operator's.
    Roaming {
        /// Name of the interface.
        interface: String,
        /// `None` if this is no longer known.
        roaming: Option<bool>,
    },
    /// Result of the request of [`Output::ProbePortal`].
    PortalProbe {
        /// Name of the uplink's interface.
        interface: String,
        /// Result of the probe.
        probe: PortalProbe,
    },
    /// Counters of an uplink's interface, read from time to time.
    Octets {
        /// Name of the interface.
        interface: String,
        /// Values of the counters.
        octets: Octets,
    },
    /// A fast path has sent packets into a tunnel since its last report. The station itself knows about
    /// packets of the slow path.
    TunnelUsed {
        /// Local end of the tunnel.
        local: Endpoint,
        /// Remote end of the tunnel.
        remote: Endpoint,
    },
    /// Packets of a fast path since its start, for each tunnel whose counts have changed.
    TunnelTraffic(Vec<TunnelTraffic>),
    /// Some destinations of packets that a fast path has sent into the tunnel to the home agent since its
    /// last report.
    Destinations(Vec<Ipv6Addr>),
    /// An IPv6 packet that arrived inside IPv4 or UDP; see [`crate::Station::handle_datagram`].
    Datagram {
        /// Local end of the tunnel.
        local: Endpoint,
        /// Remote end of the tunnel, as this station sees it.
        remote: Endpoint,
        /// DSCP and ECN of the outer header.
        traffic_class: u8,
        /// The IPv6 packet.
        #[serde(with = "hex")]
        packet: Vec<u8>,
    },
    /// A Mobility Header message that IPsec has verified, with the addresses of its security association.
    Protected {
        /// Address of the sender: a home address, or a home agent's.
        source: Ipv6Addr,
        /// Address of this station: a home agent's, or a home address.
        destination: Ipv6Addr,
        /// Flow label of the packet with which the station gave it to the kernel.
        label: u32,
        /// The Mobility Header.
        #[serde(with = "hex")]
        message: Vec<u8>,
    },
    /// A message from the path (RFC 1191): outer packets between two ends must not exceed this size. It
    /// proves nothing.
    DatagramTooBig {
        /// Local end of the tunnel.
        local: Endpoint,
        /// Remote end of the tunnel.
        remote: Endpoint,
        /// Octets with the outer header.
        mtu: u32,
    },
    /// A frame of EtherType 0x8947 from the GeoNetworking link.
    Frame(Frame),
    /// A frame that this station sent to one other station, and that was not acknowledged.
    Unacknowledged(Frame),
    /// The GN address of this station: it became known, or it has changed.
    GeonetAddress(u64),
    /// Largest payload of a frame on the GeoNetworking link, in octets.
    GeonetMtu(u32),
    /// Octets that wait to be sent on the GeoNetworking link.
    GeonetBacklog(u32),
    /// Load of the GeoNetworking channel, in thousandths of the time, measured now.
    ChannelBusy(u16),
    /// The present position of the station.
    Position(Position),
    /// Quality of the next positions, for the facilities.
    PositionQuality(PositionQuality),
    /// Vehicle data of an application: a CAM, UPER, without the BTP header. Fields that do not describe the
    /// vehicle are ignored.
    Vehicle(#[serde(with = "hex")] Vec<u8>),
    /// A frame that the host has sent on a virtual interface.
    VirtualFrame(VirtualFrame),
    /// The complete list of the host's IPv6 addresses on a virtual interface, with their prefix lengths.
    VirtualAddresses {
        /// The interface.
        link: u32,
        /// Addresses of the interface.
        addresses: Vec<(Ipv6Addr, u8)>,
    },
    /// Whether a fast path for GeoNetworking exists beside the router.
    GeonetFastPath(bool),
    /// Report of that fast path about the time since its last report.
    GeonetReport(Report),
    /// An IPv6 packet to a group, received on an interface of the mobile network.
    LanPacket {
        /// The interface.
        interface: String,
        /// Source link-layer address.
        source: MacAddress,
        /// The packet.
        #[serde(with = "hex")]
        packet: Vec<u8>,
    },
    /// The complete list of IPv6 addresses of an interface of the mobile network, with their prefix lengths.
    /// Its multicast is forwarded over GeoNetworking.
    LanAddresses {
        /// The interface.
        interface: String,
        /// Addresses of the interface.
        addresses: Vec<(Ipv6Addr, u8)>,
    },
    /// A payload to send over GeoNetworking.
    Geonet(GeonetRequest),
    /// An operator's command.
    Command(Command),
}

/// A part of the state that survives a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// State of the home agent for the node with this home address: [`crate::Station::stored_node`].
    Node(Ipv6Addr),
    /// All other state: [`crate::Station::own_state`].
    Own,
}

/// An operator's command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Use this uplink and no other; `None` ends an earlier command.
    Handover {
        /// Interface name of the uplink.
        uplink: Option<String>,
        /// Only for the packets of this policy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<String>,
    },
    /// Reset GeoNetworking to its state after a start: no neighbours, no waiting packets, and the first
    /// address. For conformance tests.
    ResetGeonet,
    /// Set or replace an area.
    SetArea(AreaOrder),
    /// Remove an area that was set.
    RemoveArea {
        /// Name of the area.
        name: String,
    },
    /// Change the pseudonym now.
    ChangePseudonym,
    /// Lock the pseudonym.
    LockPseudonym {
        /// Duration of the lock in seconds; 0 ends an earlier lock.
        for_s: u32,
    },
    /// Trigger, update or terminate an event on the road.
    Denm(DenmOrder),
    /// Ask all nodes to leave the home agent: planned maintenance.
    Drain {
        /// Home agents to go to; any known one if empty.
        to: Vec<Ipv6Addr>,
        /// Time in seconds during which the home agent asks.
        within_s: u32,
    },
    /// Accept registrations at the home agent again.
    EndDrain,
    /// End bindings of a node.
    Revoke {
        /// Home address of the node.
        home_address: Ipv6Addr,
        /// Binding Identifiers; all bindings of the node if empty.
        bids: Vec<u16>,
    },
    /// The station is about to stop: de-register, and end all peers' state about it.
    Shutdown,
}

/// An output of the station.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// A change of the desired forwarding state, to be in place before the next output.
    Forwarding(Change),
    /// An IPv6 packet to be written into the tunnel device; the kernel routes it from there.
    Packet(#[serde(with = "hex")] Vec<u8>),
    /// A Mobility Header message that the kernel's IPsec must protect. It comes back out of the tunnel
    /// device, and the station then sends it.
    Protect {
        /// Address of this station in the security association: a home address, or the home agent's.
        source: Ipv6Addr,
        /// Address of the other end in the security association.
        destination: Ipv6Addr,
        /// Flow label by which the station recognises the packet.
        label: u32,
        /// The Mobility Header.
        #[serde(with = "hex")]
        message: Vec<u8>,
    },
    /// An IPv6 packet to be sent inside IPv4 or UDP (RFC 5555). The outer header has its traffic class.
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
    },
    /// An ICMPv6 message to be sent on a link, from exactly this source.
    Icmpv6(LinkMessage),
    /// Request the configured URL over an uplink, to detect a captive portal. The platform drops a request
    /// that it cannot make now.
    ProbePortal {
        /// The uplink's interface.
        uplink: String,
        /// Care-of addresses of the uplink.
        sources: Vec<IpAddr>,
    },
    /// State that survives a restart has changed: write it before the next packet leaves.
    Persist(Kept),
    /// A frame of EtherType 0x8947 for the GeoNetworking link.
    Frame(Frame),
    /// New state for the fast path for GeoNetworking.
    Accelerate(Accelerate),
    /// A payload received over GeoNetworking, for its receiver.
    Delivered(Delivered),
    /// A message that a service has accepted, for applications.
    Message(Message),
    /// An event of another station has expired.
    EventOver(Action),
    /// The event of [`DenmWish::Trigger`] has this action ID.
    Triggered(Action),
    /// Create this virtual interface, or change it.
    VirtualLink(VirtualLink),
    /// Remove this virtual interface.
    VirtualLinkGone(u32),
    /// A frame for the host that the station itself has made.
    VirtualFrame(VirtualFrame),
    /// A frame for the host: an IPv6 packet received over GeoNetworking. Other receivers may get it as well.
    Ipv6 {
        /// The virtual interface.
        link: u32,
        /// Destination link-layer address.
        destination: MacAddress,
        /// Source link-layer address.
        source: MacAddress,
        /// The packet and its GeoNetworking values.
        delivered: Delivered,
    },
    /// An IPv6 packet to be sent on an interface of the mobile network.
    LanPacket {
        /// The interface.
        interface: String,
        /// Destination link-layer address.
        destination: MacAddress,
        /// The packet.
        #[serde(with = "hex")]
        packet: Vec<u8>,
    },
    /// The host must listen to this on the topological link of IPv6 over GeoNetworking.
    Subscription {
        /// The group.
        group: Ipv6Addr,
        /// Filter mode EXCLUDE: all sources but the listed ones. Otherwise only the listed sources; with an
        /// empty list the host leaves the group.
        exclude: bool,
        /// Sources of the filter.
        sources: Vec<Ipv6Addr>,
    },
    /// An event for operators.
    Event(Event),
}
