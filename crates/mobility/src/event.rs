//! What happened, for the log and whoever watches.

use std::net::Ipv6Addr;

use carnet_base::Endpoint;
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

/// Something that happened, for the log and `carnet watch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Mobile router: registered with the home agent (or registration renewed after a change).
    Registered {
        /// Home agent.
        home_agent: Ipv6Addr,
        /// Our end of the tunnel, with the care-of address that the home agent acknowledged.
        care_of_address: Endpoint,
        /// Binding Identifier, where it was registered with one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bid: Option<u16>,
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
    /// Mobile router: it is registered with another home agent, or will be with the first that it has found.
    HomeAgent {
        /// The one before.
        from: Option<Ipv6Addr>,
        /// The one from now on.
        to: Ipv6Addr,
        /// Why.
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
    /// Mobile router: the access network of an uplink announces a captive portal (RFC 8910), or redirects
    /// HTTP to one.
    CaptivePortal {
        /// The uplink.
        uplink: String,
        /// URI of the portal.
        uri: String,
        /// A probe was redirected: the network does not forward now. An announcement alone says nothing of
        /// that.
        redirects: bool,
    },
    /// Mobile router: this share of an uplink's volume is used.
    VolumeReached {
        /// The uplink.
        uplink: String,
        /// 75, 95 or 100.
        percent: u8,
        /// Octets that have gone over it in this period.
        used: u64,
        /// Octets that may.
        volume: u64,
        /// The period: `day`, `week` or `month`.
        period: String,
    },
    /// Mobile router: an uplink can be used now, whether or not traffic takes it, or cannot any more.
    Uplink {
        /// Its interface.
        uplink: String,
        /// It has carrier, an address and a default router.
        usable: bool,
        /// What it lacks.
        reason: Option<String>,
    },
    /// Mobile router: the packets for another vehicle's mobile network take another way.
    Path {
        /// Its prefixes.
        prefixes: Vec<Ipv6Net>,
        /// Its link-layer address if it is in radio range, else its home address.
        station: String,
        /// They go straight to it from now on; else by way of the home agents.
        direct: bool,
        /// Why.
        reason: String,
    },
    /// Mobile router: it is on its home link, the home agent knows it, and it routes without tunnel now.
    AtHome {
        /// Interface on the home link.
        interface: String,
    },
    /// Home agent: a binding was created, moved or refreshed.
    Binding {
        /// Home address.
        home_address: Ipv6Addr,
        /// Care-of address, as the home agent sees it.
        care_of_address: Endpoint,
        /// Binding Identifier.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bid: Option<u16>,
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
        /// Binding Identifier.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bid: Option<u16>,
        /// `deregistered`, `expired` or the like.
        reason: String,
    },
    /// Home agent: a Binding Update was refused.
    BindingRefused {
        /// Home address.
        home_address: Ipv6Addr,
        /// Where the Binding Update came from.
        care_of_address: Endpoint,
        /// Binding Acknowledgement status.
        status: u8,
        /// Its meaning.
        reason: String,
    },
    /// The config was read again. Each entry is a table and its home address or name, such as
    /// `home_agent.mobile_router 2001:db8:1::9`; of more than 64 the last one says how many more there are.
    Reloaded {
        /// Tables that it had not before.
        added: Vec<String>,
        /// Tables that it has no more.
        removed: Vec<String>,
        /// Tables with other values.
        changed: Vec<String>,
    },
    /// Something to look at.
    Warning {
        /// In plain words.
        message: String,
    },
}
