//! Inputs and outputs of a station.
//!
//! Inputs and control outputs are serde types, so that carnet can record a run as JSON lines and replay it.
//! Packets of the tunnel device use [`crate::Station::handle_packet`] instead, which does not allocate; a
//! recording contains them as [`Input::Packet`].
//!
//! **Drain rule.** After every `handle_*` call, the caller calls [`crate::Station::poll_output`] until it
//! returns `None`, and executes the outputs in that order. So a forwarding change that precedes a packet is
//! in place before the packet leaves. Debug builds assert that the caller keeps this rule.

use std::net::Ipv6Addr;

use carnet_base::hex;
pub use carnet_base::{Address, Endpoint, Interface, Ipv4Router, Ipv6Router, LinkMessage, NeighbourState};
pub use carnet_cits::facilities::command::{DenmAction, DenmCommand};
pub use carnet_cits::facilities::output::{ActionId, Message, MessageKind};
pub use carnet_cits::geonetworking::acceleration::{Accelerate, FastPathReport};
pub use carnet_cits::geonetworking::command::{AreaCentreCommand, AreaCommand};
pub use carnet_cits::geonetworking::input::{Frame, GeonetRequest, GeonetTransport, VirtualFrame};
pub use carnet_cits::geonetworking::output::{Delivered, GnPacketType, Output as GeonetOutput, VirtualLink};
pub use carnet_cits::position::{Area, AreaShape, Position, PositionQuality};
use carnet_geonet::MacAddress;
pub use carnet_mobility::Event;
use carnet_mobility::SessionPeer;
pub use carnet_mobility::mobile_router::{InterfaceOctets, PortalProbe};
use serde::{Deserialize, Serialize};

pub use carnet_nemo::input::{DelegatedPrefix, PortalAccessRequest, TunnelTraffic};
pub use carnet_nemo::{Output as NemoOutput, StoredStatePart};

/// An input to the station.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Time has passed: the station runs the timers that are due.
    Timeout,
    /// A packet that the kernel routed into the tunnel device.
    Packet(#[serde(with = "hex")] Vec<u8>),
    /// An ICMPv6 message received on a link: Neighbor Discovery, or an error about a tunnel packet.
    Icmpv6(LinkMessage),
    /// Complete state of an interface: addresses and routers that this input does not list no longer exist.
    /// The platform sends the input for each interface at the start, and after each change.
    Interface(Interface),
    /// An interface no longer exists.
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
    /// Whether the modem of an uplink roams: it is in the network of another operator than its own.
    Roaming {
        /// Name of the interface.
        interface: String,
        /// Whether the modem is roaming; `None` if that is no longer known.
        roaming: Option<bool>,
    },
    /// Result of a request that tests for a captive portal, which the output [`NemoOutput::ProbePortal`]
    /// demanded.
    PortalProbe {
        /// Name of the uplink's interface.
        interface: String,
        /// Result of the probe.
        probe: PortalProbe,
    },
    /// Octet counters of an uplink's interface. The platform reads them every few seconds.
    Octets {
        /// Name of the interface.
        interface: String,
        /// Values of the counters.
        octets: InterfaceOctets,
    },
    /// The fast path has sent packets into a tunnel since the previous input of this kind. The platform does
    /// not report packets of the slow path, because the station handles those itself.
    TunnelUsed {
        /// Local end of the tunnel.
        local: Endpoint,
        /// Remote end of the tunnel.
        remote: Endpoint,
    },
    /// Packets that a fast path has counted since its start, for each tunnel whose counts have changed.
    TunnelTraffic(Vec<TunnelTraffic>),
    /// Destinations to which the fast path has sent packets through the tunnel to the home agent since the
    /// previous input of this kind. The list may be incomplete.
    Destinations(Vec<Ipv6Addr>),
    /// Result of installing the packet filter and NAT rules: `None` if they are in force, otherwise the
    /// reason why they are not.
    PacketRules(Option<String>),
    /// An IPv6 packet that arrived inside IPv4 or UDP; see [`crate::Station::handle_datagram`].
    Datagram {
        /// Local end of the tunnel.
        local: Endpoint,
        /// Remote end of the tunnel, with the address from which the packet came.
        remote: Endpoint,
        /// DSCP and ECN of the outer header.
        traffic_class: u8,
        /// The IPv6 packet.
        #[serde(with = "hex")]
        packet: Vec<u8>,
    },
    /// A packet that came out of an encrypted session; see [`crate::Station::handle_session_packet`].
    SessionPacket {
        /// Remote key of the session.
        session: SessionPeer,
        /// Local end of the tunnel, by the header of the datagram.
        local: Endpoint,
        /// Remote end of the tunnel, by the header of the datagram.
        remote: Endpoint,
        /// DSCP and ECN of the outer header.
        traffic_class: u8,
        /// The packet.
        #[serde(with = "hex")]
        packet: Vec<u8>,
    },
    /// The newest public key of this station, for its encrypted sessions with other mobile routers.
    OwnKey {
        /// The public key, 32 octets.
        #[serde(with = "hex")]
        public_key: Vec<u8>,
    },
    /// A Mobility Header message that IPsec has verified, with the addresses of its security association.
    Protected {
        /// Address of the sender: a home address, or the address of a home agent.
        source: Ipv6Addr,
        /// Address of this station: the address of its home agent, or a home address.
        destination: Ipv6Addr,
        /// IPv6 flow label that the station put into the packet when it gave it to the kernel.
        label: u32,
        /// The Mobility Header.
        #[serde(with = "hex")]
        message: Vec<u8>,
    },
    /// ICMP "fragmentation needed" of a router on the path (RFC 1191): outer packets between two tunnel ends
    /// are too large. The station probes the path before it believes the message.
    DatagramTooBig {
        /// Local end of the tunnel.
        local: Endpoint,
        /// Remote end of the tunnel.
        remote: Endpoint,
        /// Largest size of the outer packet in octets, with the outer header.
        mtu: u32,
    },
    /// A frame of EtherType 0x8947 from the GeoNetworking link.
    Frame(Frame),
    /// A unicast frame of this station that the receiver has not acknowledged.
    Unacknowledged(Frame),
    /// GN address of this station, when it becomes known or changes.
    GeonetAddress(u64),
    /// Largest payload of a frame on the GeoNetworking link, in octets.
    GeonetMtu(u32),
    /// Octets that wait to be sent on the GeoNetworking link.
    GeonetBacklog(u32),
    /// Load of the GeoNetworking channel: the busy share of the time in thousandths, measured now.
    ChannelBusy(u16),
    /// The present position of the station.
    Position(Position),
    /// Quality of the positions that arrive after this input, for the facilities.
    PositionQuality(PositionQuality),
    /// Vehicle data from an application, in a CAM as UPER octets without the BTP header. The station ignores
    /// fields of the CAM that do not describe the vehicle.
    Vehicle(#[serde(with = "hex")] Vec<u8>),
    /// A frame that the host has sent on a virtual interface.
    VirtualFrame(VirtualFrame),
    /// The complete list of the host's IPv6 addresses on a virtual interface, with their prefix lengths.
    VirtualAddresses {
        /// Identifier of the virtual interface.
        link: u32,
        /// Addresses of the interface.
        addresses: Vec<(Ipv6Addr, u8)>,
    },
    /// Whether a fast path for GeoNetworking exists beside the router.
    GeonetFastPath(bool),
    /// Report of the GeoNetworking fast path about its work since the previous report.
    GeonetReport(FastPathReport),
    /// An IPv6 packet to a multicast group, received on an interface of the mobile network.
    LanPacket {
        /// Name of the interface.
        interface: String,
        /// Source link-layer address.
        source: MacAddress,
        /// The IPv6 packet.
        #[serde(with = "hex")]
        packet: Vec<u8>,
    },
    /// The complete list of IPv6 addresses of an interface of the mobile network, with their prefix lengths.
    /// The station forwards multicast of this interface over GeoNetworking.
    LanAddresses {
        /// Name of the interface.
        interface: String,
        /// Addresses of the interface.
        addresses: Vec<(Ipv6Addr, u8)>,
    },
    /// A payload that the station sends over GeoNetworking.
    Geonet(GeonetRequest),
    /// An operator's command.
    Command(Command),
}

/// An operator's command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Send traffic over this uplink and no other; `None` ends an earlier `Handover` command.
    Handover {
        /// Interface name of the uplink.
        uplink: Option<String>,
        /// Name of the policy whose packets use the uplink; `None`: all packets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        policy: Option<String>,
    },
    /// Reset GeoNetworking to its state after a start: no neighbours, no waiting packets, and the first
    /// address. Conformance tests use this command.
    ResetGeonet,
    /// Sets an area at run time; replaces an area with the same name.
    SetArea(AreaCommand),
    /// Remove an area that an operator has set at run time.
    RemoveArea {
        /// Name of the area.
        name: String,
    },
    /// Change the pseudonym now.
    ChangePseudonym,
    /// Locks the pseudonym: it does not change while the lock lasts.
    LockPseudonym {
        /// Duration of the lock in seconds; 0 ends an earlier lock.
        for_s: u32,
    },
    /// Trigger, update or terminate an event on the road.
    Denm(DenmCommand),
    /// Moves all mobile nodes away from the home agent, before planned maintenance.
    Drain {
        /// Addresses of the home agents to which the nodes shall go; if empty, any known home agent.
        to: Vec<Ipv6Addr>,
        /// Time in seconds within which the home agent sends its requests to all nodes.
        within_s: u32,
    },
    /// Ends a drain: the home agent accepts registrations again.
    EndDrain,
    /// End bindings of a mobile node.
    Revoke {
        /// Home address of the node.
        home_address: Ipv6Addr,
        /// Binding Identifiers of the bindings to end; all bindings of the node if empty.
        bids: Vec<u16>,
    },
    /// Gives a host on board access to the captive portal of an uplink.
    Portal(PortalAccessRequest),
    /// Ends the access to a captive portal.
    EndPortal {
        /// Interface name of the uplink.
        uplink: String,
    },
    /// Sets the prefixes that routers on board have got, all together.
    Delegations(Vec<DelegatedPrefix>),
    /// The program is about to end: the station de-registers, and ends its direct routes and other state at
    /// its peers.
    Shutdown,
}

/// An output of the station. A recording does not say from which plane an output comes, so the names of
/// outputs must differ between the planes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Output {
    /// Output of the NEMO plane.
    Nemo(NemoOutput),
    /// Output of the GeoNetworking plane, the facilities or security.
    Geonet(GeonetOutput),
}

impl From<NemoOutput> for Output {
    fn from(output: NemoOutput) -> Output {
        Output::Nemo(output)
    }
}

impl From<GeonetOutput> for Output {
    /// Converts a warning of the GeoNetworking plane into an event. So operators get messages of one form
    /// from all planes.
    fn from(output: GeonetOutput) -> Output {
        match output {
            GeonetOutput::Warning(message) => NemoOutput::Event(Event::Warning { message }).into(),
            output => Output::Geonet(output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded_text(output: impl Into<Output>) -> String {
        serde_json::to_string(&output.into()).expect("JSON")
    }

    #[test]
    fn recorded_output_json_omits_the_protocol_that_sent_it() {
        assert_eq!(recorded_text(NemoOutput::Packet(vec![0, 255])), r#"{"packet":"00ff"}"#);
        assert_eq!(recorded_text(GeonetOutput::VirtualLinkGone(7)), r#"{"virtual_link_gone":7}"#);
        let event = r#"{"event":{"event":"warning","message":"no ticket"}}"#;
        assert_eq!(recorded_text(GeonetOutput::Warning("no ticket".into())), event);
        let outputs: [Output; 2] =
            [GeonetOutput::VirtualLinkGone(7).into(), NemoOutput::Persist(StoredStatePart::Own).into()];
        for output in outputs {
            let read: Output = serde_json::from_str(&recorded_text(output.clone())).expect("an output");
            assert_eq!(read, output);
        }
    }
}
