//! Operators' commands to the NEMO plane, and their bodies in the API.

use std::net::{IpAddr, Ipv6Addr};
use std::slice;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use serde::{Deserialize, Deserializer, Serialize};

use crate::plane::StationRoles;

/// Body of `POST /v1/handover`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandoverRequest {
    /// Interface name of the uplink to use; `null` ends an earlier request. The key must be present.
    #[serde(deserialize_with = "deserialize_present_option")]
    pub uplink: Option<String>,
    /// Name of the policy whose packets use the uplink; `null` for all packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// Reads a value that may be `null`, but whose key must be present.
fn deserialize_present_option<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Option::deserialize(deserializer)
}

/// Body of `POST /v1/portal`: one host on board may reach the captive portal of an uplink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortalRequest {
    /// Interface name of the uplink whose access network has the portal.
    pub uplink: String,
    /// MAC address of the host, `xx:xx:xx:xx:xx:xx`; `null` ends an earlier access. The key must be present.
    #[serde(deserialize_with = "deserialize_present_option")]
    pub host: Option<String>,
    /// Duration of the access in seconds, 1 to 3600.
    #[serde(default = "default_access_duration_s")]
    pub for_s: u32,
    /// DNS servers of the uplink, at most 4. The first one of each address family gets the host's queries.
    /// Without a server of IPv6, those that Router Advertisements on the uplink name are servers as well.
    #[serde(default)]
    pub dns: Vec<IpAddr>,
}

fn default_access_duration_s() -> u32 {
    300
}

/// Body of `POST /v1/signal`: a program has measured the signal of an uplink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Interface name of the uplink.
    pub uplink: String,
    /// Signal strength in dBm.
    pub dbm: i32,
}

/// Body of `POST /v1/drain`: the home agent asks all mobile routers to go to another home agent (RFC 5142).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// The home agents to go to; any known home agent if empty.
    #[serde(default)]
    pub to: Vec<Ipv6Addr>,
    /// Seconds within which the home agent asks all mobile routers.
    pub within_s: u32,
}

/// Body of `POST /v1/revoke`: bindings of a mobile router end (RFC 5846).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// Home address of the mobile router.
    pub home_address: Ipv6Addr,
    /// Binding Identifiers; all bindings of the mobile router if empty.
    #[serde(default)]
    pub bids: Vec<u16>,
}

const NO_HOME_AGENT_ERROR: &str = "this station is no home agent";

impl StationRoles {
    /// Uses this uplink and no other uplink, for all packets or for those of a policy; `None` ends an earlier
    /// command of this kind.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub(crate) fn handle_handover(
        &mut self,
        now: Time,
        wall: WallTime,
        uplink: Option<String>,
        policy: Option<String>,
    ) -> Result<(), String> {
        match (&mut self.router_role, policy) {
            (Some(router), None) => {
                router.state_machine.handle_handover(now, wall, uplink.as_deref())?;
                router.home_agent_selection.handle_handover(now, wall, uplink.as_deref());
                Ok(())
            }
            (Some(router), Some(policy)) => router.state_machine.handle_policy_uplinks(
                now,
                wall,
                &policy,
                uplink.as_ref().map(slice::from_ref),
            ),
            (None, _) => Err("this station is no mobile router".into()),
        }
    }

    /// Asks all mobile nodes to leave the home agent, for `within_s` seconds.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub(crate) fn handle_drain(
        &mut self,
        now: Time,
        wall: WallTime,
        to: &[Ipv6Addr],
        within_s: u32,
    ) -> Result<(), String> {
        let agent = self.agent_role.as_mut().ok_or(NO_HOME_AGENT_ERROR)?;
        agent.state_machine.handle_drain(now, wall, to, Duration::from_secs(within_s.into()))
    }

    /// Accepts registrations at the home agent again.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub(crate) fn handle_drain_end(&mut self) -> Result<(), String> {
        self.agent_role.as_mut().ok_or(NO_HOME_AGENT_ERROR)?.state_machine.handle_drain_end()
    }

    /// Ends bindings of a mobile node; all bindings of the node if `bids` is empty.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub(crate) fn handle_revocation(
        &mut self,
        now: Time,
        wall: WallTime,
        home_address: Ipv6Addr,
        bids: &[u16],
    ) -> Result<(), String> {
        let agent = self.agent_role.as_mut().ok_or(NO_HOME_AGENT_ERROR)?;
        agent.state_machine.handle_revocation(now, wall, home_address, bids)
    }

    /// De-registers, and ends the advertisements of the roles.
    pub(crate) fn handle_shutdown(&mut self, now: Time, wall: WallTime) {
        if let Some(advertiser) =
            self.agent_role.as_mut().and_then(|agent| agent.home_link_advertiser.as_mut())
        {
            advertiser.handle_shutdown(now);
        }
        if let Some(router) = &mut self.router_role {
            for advertiser in &mut router.advertisers_by_lan {
                advertiser.handle_shutdown(now);
            }
            router.state_machine.handle_shutdown(now, wall);
            router.home_agent_selection.handle_shutdown(now, wall);
        }
    }
}
