//! Events for the log and for `carnet watch`.

use std::net::{IpAddr, Ipv6Addr};

use carnet_base::Endpoint;
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// An event for the log and `carnet watch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Mobile router: the home agent has accepted a registration, or a renewal.
    Registered {
        /// Home agent that accepted the registration.
        home_agent: Ipv6Addr,
        /// The router's end of the tunnel, with the care-of address that the home agent acknowledged.
        care_of_address: Endpoint,
        /// Binding Identifier, if the router registered with one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bid: Option<u16>,
        /// Interface of the uplink.
        uplink: String,
        /// Time from the first Binding Update of this registration to its acknowledgement, in microseconds.
        latency_us: u64,
        /// Granted lifetime in seconds.
        lifetime_s: u32,
        /// Whether the registration only renewed the lifetime.
        refresh: bool,
    },
    /// Mobile router: it is no longer registered.
    Deregistered {
        /// Reason of the de-registration, in plain words.
        reason: String,
    },
    /// Mobile router: the home agent has refused a Binding Update.
    Rejected {
        /// Binding Acknowledgement status (128 and above).
        status: u8,
        /// Meaning of the status, and the router's reaction.
        reason: String,
    },
    /// Mobile router: the answer of the home agent about an IPv4 mobile network prefix has changed.
    Ipv4Prefix {
        /// IPv4 mobile network prefix in the config of the router.
        prefix: Ipv4Net,
        /// Home agent.
        home_agent: Ipv6Addr,
        /// Status of the IPv4 Address Acknowledgement (RFC 5555 3.2.1); `None` if the home agent sent none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u8>,
        /// Whether the tunnel carries packets of the prefix from now on.
        accepted: bool,
        /// Meaning of the home agent's answer.
        reason: String,
    },
    /// Mobile router: it is registered with another home agent, or tries the first home agent that it has
    /// discovered.
    HomeAgent {
        /// Former home agent.
        from: Option<Ipv6Addr>,
        /// New home agent.
        to: Ipv6Addr,
        /// Reason for the change of the home agent.
        reason: String,
    },
    /// Mobile router: the traffic moves to another uplink, or no uplink can carry it any more.
    Handover {
        /// Interface that carried the traffic until now.
        from: Option<String>,
        /// Interface that carries the traffic from now on.
        to: Option<String>,
        /// Reason of the handover.
        reason: String,
    },
    /// Mobile router: the access network of an uplink announces a captive portal (RFC 8910), or redirects
    /// HTTP to one.
    CaptivePortal {
        /// Uplink interface.
        uplink: String,
        /// URI of the captive portal.
        uri: String,
        /// Whether the network redirected a probe, which shows that it forwards nothing now. An announcement
        /// alone does not show that.
        redirects: bool,
    },
    /// Mobile router: a host on board may reach the captive portal of an uplink, by order of an operator.
    PortalAccess {
        /// Uplink interface.
        uplink: String,
        /// Interface on board at which the host is.
        interface: String,
        /// MAC address of the host.
        host: String,
        /// Duration of the access in seconds.
        for_s: u32,
        /// DNS servers that get the queries of the host.
        dns: Vec<IpAddr>,
    },
    /// Mobile router: the access of a host to a captive portal has ended.
    PortalAccessEnded {
        /// Uplink interface.
        uplink: String,
        /// MAC address of the host.
        host: String,
        /// Reason for the end of the access.
        reason: String,
    },
    /// Mobile router: an uplink has used this percentage of its volume.
    VolumeReached {
        /// Uplink interface.
        uplink: String,
        /// Used share in percent: 75, 95 or 100.
        percent: u8,
        /// Octets that the uplink has carried in this period.
        used: u64,
        /// Octets that the uplink may carry in a period.
        volume: u64,
        /// Period: `day`, `week` or `month`.
        period: String,
    },
    /// Mobile router: an uplink has become usable or unusable, whether or not it carries traffic.
    Uplink {
        /// Interface of the uplink.
        uplink: String,
        /// Whether the uplink has carrier, an address and a default router.
        usable: bool,
        /// Requirement that the uplink lacks; `None` if the uplink is usable.
        reason: Option<String>,
    },
    /// Mobile router: packets to another vehicle's mobile network take another path from now on.
    Path {
        /// Prefixes of that mobile network.
        prefixes: Vec<Ipv6Net>,
        /// Link-layer address of the vehicle if it is in radio range, otherwise its home address.
        station: String,
        /// Whether the packets go directly to the vehicle from now on; otherwise they go by the home agents.
        direct: bool,
        /// Reason of the change.
        reason: String,
    },
    /// Mobile router: it is on its home link, and the home agent has acknowledged the de-registration. It
    /// routes without a tunnel.
    AtHome {
        /// Interface that is on the home link.
        interface: String,
    },
    /// Home agent: a binding was created, moved or refreshed.
    Binding {
        /// Home address that the Binding Update named.
        home_address: Ipv6Addr,
        /// Care-of address, as the home agent sees it.
        care_of_address: Endpoint,
        /// Binding Identifier of the binding; `None` without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bid: Option<u16>,
        /// Prefixes whose packets the home agent forwards to the node.
        prefixes: Vec<Ipv6Net>,
        /// IPv4 prefixes whose packets the home agent forwards to the node.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ipv4_prefixes: Vec<Ipv4Net>,
        /// Granted lifetime in seconds.
        lifetime_s: u32,
        /// `created`, `moved` or `refreshed`.
        change: String,
    },
    /// Home agent: a binding ended.
    BindingRemoved {
        /// Home address.
        home_address: Ipv6Addr,
        /// Binding Identifier.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bid: Option<u16>,
        /// Reason for the end of the binding, such as `deregistered` or `expired`.
        reason: String,
    },
    /// Home agent: it refused a Binding Update.
    BindingRefused {
        /// Home address.
        home_address: Ipv6Addr,
        /// Source of the Binding Update.
        care_of_address: Endpoint,
        /// Status of the Binding Acknowledgement that refused the update.
        status: u8,
        /// Meaning of the status.
        reason: String,
    },
    /// The station has read the config again. Each entry is a table and its home address or name, such as
    /// `home_agent.mobile_router 2001:db8:1::9`. If a list has more than 64 entries, its last entry says how
    /// many are left out.
    Reloaded {
        /// Tables that the config did not have before.
        added: Vec<String>,
        /// Tables that the config no longer has.
        removed: Vec<String>,
        /// Tables with other values.
        changed: Vec<String>,
    },
    /// A warning for the operator.
    Warning {
        /// Text of the warning, in plain words.
        message: String,
    },
}
