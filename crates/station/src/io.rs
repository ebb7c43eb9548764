//! Inputs and outputs of a station.
//!
//! Inputs and control outputs are serde types, so that a run can be recorded as JSON lines and replayed.
//! Packets of the tunnel device take the allocation-free door [`crate::Station::handle_packet`] instead;
//! when a run is recorded they are written as [`Input::Packet`].
//!
//! **Drain rule.** After every `handle_*` call, call [`crate::Station::poll_output`] until it returns `None`,
//! and execute the outputs in that order. A forwarding change that precedes a packet is then in place before
//! the packet leaves. Debug builds assert it.

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

/// Packets of one tunnel, which a fast path has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelTraffic {
    /// Our end.
    pub local: Endpoint,
    /// The other end.
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
    /// How strong the signal of an uplink is, measured anew.
    Signal {
        /// Its interface.
        interface: String,
        /// In dBm.
        dbm: i32,
    },
    /// Whether the modem of an uplink is in a network that is not its own operator's.
    Roaming {
        /// Its interface.
        interface: String,
        /// `None` if it is unknown.
        roaming: Option<bool>,
    },
    /// Result of the request of [`Output::ProbePortal`].
    PortalProbe {
        /// The uplink's interface.
        interface: String,
        /// Result.
        probe: PortalProbe,
    },
    /// Counters of an uplink's interface, read from time to time.
    Octets {
        /// The interface.
        interface: String,
        /// Counters.
        octets: Octets,
    },
    /// A fast path has sent packets into a tunnel since it last said so; those of the slow path need no
    /// saying.
    TunnelUsed {
        /// Our end.
        local: Endpoint,
        /// The other end.
        remote: Endpoint,
    },
    /// Packets of each tunnel that a fast path has forwarded since its start, if they have changed.
    TunnelTraffic(Vec<TunnelTraffic>),
    /// Where packets went that a fast path has sent into the tunnel to the home agent since it last said so,
    /// some of them.
    Destinations(Vec<Ipv6Addr>),
    /// An IPv6 packet that came inside IPv4 or UDP; see [`crate::Station::handle_datagram`].
    Datagram {
        /// Our end.
        local: Endpoint,
        /// The other end, as we see it.
        remote: Endpoint,
        /// The outer header's octet with DSCP and ECN.
        traffic_class: u8,
        /// The IPv6 packet.
        #[serde(with = "hex")]
        packet: Vec<u8>,
    },
    /// A Mobility Header message that IPsec has brought, from and to the addresses that its security
    /// association is for.
    Protected {
        /// Sender: a home address, or a home agent's.
        source: Ipv6Addr,
        /// Own address: the home agent's, or the home address.
        destination: Ipv6Addr,
        /// The flow label of the packet with which the station gave it to the kernel.
        label: u32,
        /// The Mobility Header.
        #[serde(with = "hex")]
        message: Vec<u8>,
    },
    /// A message on the path says that outer packets between two ends may have this many octets (RFC 1191).
    /// It proves nothing.
    DatagramTooBig {
        /// Our end.
        local: Endpoint,
        /// The other end.
        remote: Endpoint,
        /// Octets with the outer header.
        mtu: u32,
    },
    /// A frame of EtherType 0x8947 from the GeoNetworking link.
    Frame(Frame),
    /// A frame of this station to one other that was not acknowledged.
    Unacknowledged(Frame),
    /// The GN address of this station, from now on: because it became known, or changed.
    GeonetAddress(u64),
    /// Octets that a frame of the GeoNetworking link carries, from now on.
    GeonetMtu(u32),
    /// Octets that wait at the GeoNetworking link to be sent, from now on.
    GeonetBacklog(u32),
    /// Thousandths of the time in which the GeoNetworking channel was busy, measured now.
    ChannelBusy(u16),
    /// Where the station is now.
    Position(Position),
    /// How good the positions are that follow; the facilities want to know.
    PositionQuality(PositionQuality),
    /// An application's report about the vehicle: a CAM, UPER, without the BTP header. Fields that do not
    /// describe the vehicle do not count.
    Vehicle(#[serde(with = "hex")] Vec<u8>),
    /// A frame that the host has put into a virtual interface.
    VirtualFrame(VirtualFrame),
    /// The IPv6 addresses that the host has on a virtual interface, with their prefix lengths: what is not in
    /// it is gone.
    VirtualAddresses {
        /// The interface.
        link: u32,
        /// Its addresses.
        addresses: Vec<(Ipv6Addr, u8)>,
    },
    /// A fast path for GeoNetworking exists from now on, or no longer.
    GeonetFastPath(bool),
    /// Work of that fast path since its last report.
    GeonetReport(Report),
    /// An IPv6 packet to a group that came from an interface of the mobile network.
    LanPacket {
        /// The interface.
        interface: String,
        /// Source link-layer address.
        source: MacAddress,
        /// The packet.
        #[serde(with = "hex")]
        packet: Vec<u8>,
    },
    /// The IPv6 addresses of an interface of the mobile network whose multicast goes over GeoNetworking, with
    /// their prefix lengths. Absent ones are gone.
    LanAddresses {
        /// The interface.
        interface: String,
        /// Its addresses.
        addresses: Vec<(Ipv6Addr, u8)>,
    },
    /// A payload to be sent over GeoNetworking.
    Geonet(GeonetRequest),
    /// An operator's wish.
    Command(Command),
}

/// A part of what has to survive a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Record of the home agent about the node with this home address: [`crate::Station::stored_node`].
    Node(Ipv6Addr),
    /// Everything else: [`crate::Station::own_state`].
    Own,
}

/// An operator's wish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Use this uplink and no other; `None` ends an earlier wish.
    Handover {
        /// Interface name of the uplink.
        uplink: Option<String>,
        /// For the packets of this policy alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<String>,
    },
    /// GeoNetworking starts anew, with an empty location table, empty queues, and its first address. For
    /// conformance tests.
    ResetGeonet,
    /// There shall be this area.
    SetArea(AreaOrder),
    /// There shall no longer be an area that was set.
    RemoveArea {
        /// Its name.
        name: String,
    },
    /// The station is to be another one now, in the GeoNetworking network.
    ChangePseudonym,
    /// It is to stay who it is there.
    LockPseudonym {
        /// Duration in seconds; 0 ends an earlier one.
        for_s: u32,
    },
    /// An event on the road is to be spoken of, or no more.
    Denm(DenmOrder),
    /// The home agent is to be left by all: planned maintenance.
    Drain {
        /// The home agents to go to; any that is known when empty.
        to: Vec<Ipv6Addr>,
        /// How long nodes are asked, in seconds.
        within_s: u32,
    },
    /// Nodes may register with the home agent again.
    EndDrain,
    /// The home agent is to end bindings of a node.
    Revoke {
        /// Its home address.
        home_address: Ipv6Addr,
        /// Binding Identifiers; all of its bindings when empty.
        bids: Vec<u16>,
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
    /// A Mobility Header message that the kernel's IPsec shall protect. It comes back out of the tunnel
    /// device, and the station sends it on.
    Protect {
        /// Our address that the security association is for: a home address, or the home agent's.
        source: Ipv6Addr,
        /// The other end's.
        destination: Ipv6Addr,
        /// The flow label by which the station knows it again.
        label: u32,
        /// The Mobility Header.
        #[serde(with = "hex")]
        message: Vec<u8>,
    },
    /// An IPv6 packet to be sent inside IPv4 or UDP (RFC 5555), with its own traffic class outside.
    Encapsulated {
        /// Our end.
        local: Endpoint,
        /// The other end.
        remote: Endpoint,
        /// The IPv6 packet.
        #[serde(with = "hex")]
        packet: Vec<u8>,
        /// Whether it may be cut on the way: the outer header has DF cleared.
        may_fragment: bool,
    },
    /// An ICMPv6 message to be sent on a link, from exactly this source.
    Icmpv6(LinkMessage),
    /// To request the configured URL over an uplink, which tells of captive portals. One that cannot be
    /// requested now is left.
    ProbePortal {
        /// The uplink's interface.
        uplink: String,
        /// Its care-of addresses.
        sources: Vec<IpAddr>,
    },
    /// Stored state has changed: write it before the next packet leaves.
    Persist(Kept),
    /// A frame of EtherType 0x8947 for the GeoNetworking link.
    Frame(Frame),
    /// Instruction to the fast path for GeoNetworking.
    Accelerate(Accelerate),
    /// A payload that came over GeoNetworking, for listeners.
    Delivered(Delivered),
    /// A message that a service has taken, for applications.
    Message(Message),
    /// An event of another station that was spoken of is over, because its time is.
    EventOver(Action),
    /// The event of which [`DenmWish::Trigger`] wanted to be spoken has got this name.
    Triggered(Action),
    /// There shall be this virtual interface, or it shall be like this from now on.
    VirtualLink(VirtualLink),
    /// There shall no longer be this virtual interface.
    VirtualLinkGone(u32),
    /// A frame for the host: an answer of the station itself.
    VirtualFrame(VirtualFrame),
    /// A frame for the host: an IPv6 packet that came over GeoNetworking. Listeners may get it as well.
    Ipv6 {
        /// The virtual interface.
        link: u32,
        /// Destination link-layer address.
        destination: MacAddress,
        /// Source link-layer address.
        source: MacAddress,
        /// The packet, and how it came.
        delivered: Delivered,
    },
    /// An IPv6 packet to be sent by an interface of the mobile network.
    LanPacket {
        /// The interface.
        interface: String,
        /// Destination link-layer address.
        destination: MacAddress,
        /// The packet.
        #[serde(with = "hex")]
        packet: Vec<u8>,
    },
    /// The host shall listen to this on the topological link of IPv6 over GeoNetworking from now on.
    Subscription {
        /// The group.
        group: Ipv6Addr,
        /// All sources but these; else these alone, and without any to nothing of the group.
        exclude: bool,
        /// The sources.
        sources: Vec<Ipv6Addr>,
    },
    /// Something that an operator may want to know.
    Event(Event),
}
