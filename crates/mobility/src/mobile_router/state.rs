//! State of the mobile router as its callers see it, the part of the state that survives a restart, and the
//! timers.

use std::net::Ipv6Addr;

use carnet_wire::mobility::binding_status::BindingStatus;
use serde::{Deserialize, Serialize};

/// State that must survive a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSequence {
    /// Last sequence number sent, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u16>,
    /// Home agent of this sequence number, if the config has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_agent: Option<Ipv6Addr>,
    /// NTP timestamp of the last authenticated request of a home agent; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_notice: Option<u64>,
    /// NTP timestamp of the first request of the last sequence in which each timestamp is at most an hour
    /// after the one before. `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_notice: Option<u64>,
    /// First and last NTP timestamp of requests that came while a home agent's clock was ahead; `None`
    /// without such a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_notices: Option<(u64, u64)>,
}

/// State of the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No uplink can be used.
    Disconnected,
    /// No registration exists yet; a Binding Update is outstanding.
    Registering,
    /// At least one registration is valid.
    Registered,
    /// The router is on the home link.
    Home,
    /// The home agent refused. The router asks it again after a pause of at most
    /// [`REFUSED_INTERVAL`](super::REFUSED_INTERVAL).
    Refused(BindingStatus),
    /// The router has de-registered because the station stops.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MobileRouterTimer {
    /// The outstanding Binding Update is due for retransmission.
    Retransmit,
    /// The registration is due for renewal.
    Refresh,
    /// The lifetime of the registration ends.
    Expire,
    /// A preferred uplink has been up for long enough to take over the traffic.
    Settle,
    /// The router asks a home agent again that has refused.
    AskAgain,
    /// The grace period of a former care-of address ends.
    Grace,
    /// The router may select an uplink again that had no answers.
    Demotion(usize),
    /// The next solicitation of routers on an uplink is due.
    Solicit(usize),
    /// A router or a candidate of an uplink is due for a check.
    Candidates(usize),
    /// A Binding Update for bindings with identifiers is due.
    Bindings,
    /// The path over an uplink is due for a check.
    Heartbeat(usize),
    /// The signal strength of an uplink was not reported again in time.
    Signal(usize),
    /// An uplink that is registered over IPv4 is due for another attempt over IPv6.
    Ipv6(usize),
    /// The packet counts of the paths are due for a check.
    Traffic,
    /// Uplinks without answers are due for a check for captive portals.
    Portal,
}
