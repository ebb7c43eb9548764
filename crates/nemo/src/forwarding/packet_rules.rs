//! Rules of packet filter and NAT, as data.
//!
//! The platform installs all [`PacketRule`]s of the desired state together, as one table of the kernel's
//! packet filter, in one transaction. Without a rule the table does not exist. A rule sees the packets that
//! the kernel forwards, sends or receives; it does not see the packets of a BPF program.
//!
//! Left out: sets other than those of rate limits, and rules for other layers than IP.

use std::net::IpAddr;

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

/// Point of the kernel's path at which a rule sees packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleChain {
    /// All arriving packets, before connection tracking sees them: for marks and zones that depend on the
    /// packet alone.
    Early,
    /// All arriving packets, before the kernel looks up a route: for marks.
    Prerouting,
    /// Packets of this machine's own programs: for marks. If a rule changes the mark, the kernel looks up
    /// the route again.
    Output,
    /// Packets to this machine's own programs.
    Input,
    /// Packets that the kernel forwards.
    Forward,
    /// First packet of each connection that leaves the machine: for changes of the source address.
    SourceNat,
    /// First packet of each arriving connection, before the kernel looks up a route: for changes of the
    /// destination address.
    DestinationNat,
}

impl RuleChain {
    /// All chains.
    pub const ALL_CHAINS: [RuleChain; 7] = [
        RuleChain::Early,
        RuleChain::Prerouting,
        RuleChain::Output,
        RuleChain::Input,
        RuleChain::Forward,
        RuleChain::SourceNat,
        RuleChain::DestinationNat,
    ];
}

/// State that the kernel's connection tracking gives a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// The packet belongs to no known connection, and violates its protocol.
    Invalid,
    /// The packet belongs to a connection with packets in both directions.
    Established,
    /// The packet begins a connection that belongs to a known one, or is an ICMP error about it.
    Related,
    /// The packet begins a connection.
    New,
    /// Connection tracking leaves the packet out, so NAT does not change it. These are messages of Neighbor
    /// Discovery and Multicast Listener Discovery, and packets that the operator exempts (`notrack`).
    Untracked,
}

/// A mark of a packet (`fwmark`), or a condition on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mark {
    /// Bits of the mark that the rule compares or writes.
    pub mask: u32,
    /// Value of these bits; all other bits are zero.
    pub value: u32,
}

/// Inclusive range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PortRange {
    /// First port.
    pub first: u16,
    /// Last port, not below the first one.
    pub last: u16,
}

/// Rate of packets of a host, or of several hosts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostRate {
    /// Octets of IP packets per second. A host that was idle may send as many octets at once.
    pub octets_per_s: u64,
    /// Hosts to which the rate applies.
    pub hosts: LimitedHosts,
    /// Property by which the kernel recognises a host.
    pub by: HostIdentity,
}

/// Property by which the kernel recognises a host that has a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostIdentity {
    /// Link-layer address of the sender: all addresses of a host share its rate. The rule must select an
    /// input interface, and holds only if this is an Ethernet interface.
    LinkAddress,
    /// IP address: the source if the rule selects an input interface, and otherwise the destination. The rule
    /// must select one address family by that address. With an input interface, it holds only if this is not
    /// an Ethernet interface.
    Address,
}

/// Hosts to which a rate applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedHosts {
    /// Each host has the rate, as far as the kernel's table of hosts has room for it.
    Each,
    /// All hosts for which the table has no room share the rate. The kernel must have evaluated a rule with
    /// [`LimitedHosts::Each`] and otherwise equal conditions before.
    Others,
}

/// Conditions that a packet must meet; a default value selects every packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PacketMatch {
    /// Interface on which the packet arrived; `None` for any interface.
    pub input_interface: Option<String>,
    /// Interface by which the packet leaves; `None` for any interface.
    pub output_interface: Option<String>,
    /// Prefix of the source address; `None` for any address. In IPv4-mapped form it selects packets of IPv4,
    /// and [`carnet_base::mapped::ALL_IPV4_PREFIX`] all of them.
    pub source: Option<Ipv6Net>,
    /// Prefix of the destination address; `None` for any address. In IPv4-mapped form it selects packets of
    /// IPv4.
    pub destination: Option<Ipv6Net>,
    /// Link-layer address of the sender; `None` for any sender. Only for [`RuleChain::Early`],
    /// [`RuleChain::Prerouting`], [`RuleChain::Input`] and [`RuleChain::Forward`] on an Ethernet interface.
    pub link_source: Option<[u8; 6]>,
    /// Upper-layer protocol; `None` for any protocol.
    pub protocol: Option<u8>,
    /// Destination ports; `None` for all. With ports, the rule must also select a protocol that has ports.
    pub ports: Option<PortRange>,
    /// Source ports; `None` for all. With ports, the rule must also select a protocol that has ports.
    pub source_ports: Option<PortRange>,
    /// Type of an ICMP or ICMPv6 message; `None` for any type. With a type, the rule must also select one of
    /// these two protocols.
    pub icmp_type: Option<u8>,
    /// Value of the DSCP field; `None` for any value. With a value, the rule must also select one address
    /// family by source or destination.
    pub dscp: Option<u8>,
    /// Firewall mark of the packet (`fwmark`); `None` for any mark.
    pub mark: Option<Mark>,
    /// Mark that connection tracking keeps for the packet's connection; `None` for any mark.
    pub connection_mark: Option<Mark>,
    /// Rate that the packet must exceed; `None` for any rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_rate: Option<HostRate>,
    /// States of connection tracking, of which the packet has one; empty for any state.
    pub states: Vec<ConnectionState>,
    /// Whether the packet must go in the direction of answers: against the first packet of its connection.
    pub is_answer: bool,
}

/// Action of a rule on the packets that it selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleVerdict {
    /// Continues with the next rule. This verdict is for rules that only count packets.
    Continue,
    /// Ends the evaluation of this chain. Rules of other programs may still drop the packet.
    Accept,
    /// Drops the packet.
    Drop,
    /// Gives the packet's connection the address of the outgoing interface as its source.
    Masquerade,
    /// Replaces the source prefix by this one, of the same length, and keeps the other bits of the address.
    /// Connection tracking reverts it for answers, so the checksum-neutral change of RFC 6296 is not needed.
    SourcePrefix(Ipv6Net),
    /// Replaces the destination prefix by this one, of the same length, and keeps the other bits of the
    /// address. Only in [`RuleChain::DestinationNat`].
    DestinationPrefix(Ipv6Net),
    /// Gives the packet's connection this destination address. The rule must select packets of the address's
    /// family. Only in [`RuleChain::DestinationNat`].
    DestinationAddress(IpAddr),
    /// Writes bits of the packet's mark, and continues with the next rule.
    SetMark(Mark),
    /// Writes bits of the mark of the packet's connection, and continues with the next rule.
    SetConnectionMark(Mark),
    /// Puts the packet's connection into a zone of connection tracking, and continues with the next rule.
    /// Only in [`RuleChain::Early`]. Answers need no zone: their addresses are unique after a change of the
    /// source address. Two connections inside and outside of the zone are different ones, even with equal
    /// addresses and ports.
    Zone(u16),
}

/// Kind of traffic that rules count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrafficKind {
    /// Packets that the policy of this name sends out without the tunnel.
    Policy(String),
    /// Packets of hosts with access to a captive portal.
    Portal,
    /// IPv4 packets of mobile networks whose addresses NAT at the home agent changes.
    Ipv4Nat,
    /// IPv6 packets of mobile networks whose addresses NAT at the home agent changes.
    Ipv6Nat,
}

impl TrafficKind {
    /// Returns whether the packets come out of tunnels, and NAT at the home agent changes their addresses.
    pub fn is_nat_of_tunnels(&self) -> bool {
        matches!(self, TrafficKind::Ipv4Nat | TrafficKind::Ipv6Nat)
    }
}

/// Traffic that rules count: the traffic of one kind that passes one interface in one direction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CountedTraffic {
    /// Kind of the traffic.
    pub kind: TrafficKind,
    /// Name of the interface: an uplink, or at a home agent the interface to the Internet.
    pub interface: String,
    /// Whether the packets leave by the interface. Otherwise they are answers.
    pub is_outgoing: bool,
}

/// Number of packets, and of their octets with the IP header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketCount {
    /// Number of packets.
    pub packets: u64,
    /// Number of octets.
    pub octets: u64,
}

/// A rule of the packet filter. All its fields together are its key in the desired state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PacketRule {
    /// Chain to which the rule belongs.
    pub chain: RuleChain,
    /// Order among the rules of the chain: the kernel evaluates the lowest first. Rules with equal order are
    /// in the order of their other fields.
    pub order: u32,
    /// Packets that the rule selects.
    pub packets: PacketMatch,
    /// Whether the kernel counts these packets.
    pub counts: bool,
    /// Traffic to whose total the packets count; `None` for no total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Box<CountedTraffic>>,
    /// Action on these packets.
    pub verdict: RuleVerdict,
}
