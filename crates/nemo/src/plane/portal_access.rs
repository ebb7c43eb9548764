//! Access of one host on board to the captive portal of an uplink, for a limited time.
//!
//! An operator orders the access, so that a user can accept the terms of the portal. Meanwhile all packets of
//! the host leave by this uplink without the tunnel, by NAT, and no other host has access. The packet filter
//! knows the host by its link-layer address ([`crate::forwarding::PortalTarget`]).
//!
//! The access ends when its time is over, by a command, and if the uplink can no longer carry the packets. It
//! does not survive a restart, because it is not stored.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use carnet_base::Time;
use carnet_mobility::Event;
use carnet_wire::address::MacAddress;

use super::RouterRole;
use crate::forwarding::{PortalTarget, is_usable_for_breakout};
use crate::input::{PortalAccessRequest, is_possible_dns_server};

/// Possible duration of the access, in seconds.
const ACCESS_DURATION_S: RangeInclusive<u32> = 1..=3600;
/// Maximum number of DNS servers in a command.
const MAX_DNS_SERVERS: usize = 4;

/// The host that has access to a captive portal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortalAccess {
    /// Interface name of the uplink whose access network has the portal.
    pub(crate) uplink: String,
    /// Interface on board at which the host is.
    pub(crate) lan_interface: String,
    /// Link-layer address of the host.
    pub(crate) host_mac: MacAddress,
    /// DNS servers of the uplink.
    pub(crate) dns_servers: Vec<IpAddr>,
    /// Time at which the access ends.
    pub(crate) access_ends_at: Time,
}

impl PortalAccess {
    /// Returns the access that an order begins. `holder` is the present access; `filter_error` is the reason
    /// for which the kernel has not installed the rules of the packet filter. A repeated order for the same
    /// host replaces the present access.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub(super) fn new(
        now: Time,
        order: PortalAccessRequest,
        router: &RouterRole,
        holder: Option<&PortalAccess>,
        filter_error: Option<&str>,
    ) -> Result<PortalAccess, String> {
        let PortalAccessRequest { uplink, lan, host, for_s, mut dns } = order;
        let index = router.state_machine.uplink_by_name(&uplink)?;
        let refusal = |reason: &str| {
            Err(format!("cannot give {host} access to the captive portal of {uplink}: {reason}"))
        };
        if !ACCESS_DURATION_S.contains(&for_s) {
            return refusal(&format!("found a duration of {for_s} s, expected 1 s to 3600 s"));
        }
        if host.0[0] & 1 != 0 || host.0 == [0; 6] {
            return refusal("found no address of a single host, expected its own MAC address");
        }
        if !router.lan_interfaces.contains(&lan) {
            let names = router.lan_interfaces.join(", ");
            return refusal(&format!("found the host at {lan}, expected one of mobile_router.lan: {names}"));
        }
        if dns.len() > MAX_DNS_SERVERS {
            return refusal(&format!("found {} DNS servers, expected at most {MAX_DNS_SERVERS}", dns.len()));
        }
        if let Some(address) = dns.iter().find(|address| !is_possible_dns_server(**address)) {
            return refusal(&format!("found the DNS server {address}, expected an address of one server"));
        }
        if let Some(reason) = reason_against_access(router, index).or(filter_error) {
            return refusal(reason);
        }
        if let Some(other) = holder.filter(|old| (&old.uplink, old.host_mac) != (&uplink, host)) {
            let left = other.access_ends_at.saturating_since(now).as_secs();
            return refusal(&format!(
                "{} has access to that of {} for {left} s more; `carnet portal {} --end` ends it",
                other.host_mac, other.uplink, other.uplink
            ));
        }
        if !dns.iter().any(IpAddr::is_ipv6) {
            let announced = router.state_machine.uplinks().get(index).map(|uplink| uplink.dns_servers(now));
            let announced = announced.into_iter().flatten().copied().map(IpAddr::V6);
            dns.extend(announced.take(MAX_DNS_SERVERS));
        }
        let until = now + Duration::from_secs(for_s.into());
        Ok(PortalAccess {
            uplink,
            lan_interface: lan,
            host_mac: host,
            dns_servers: dns,
            access_ends_at: until,
        })
    }

    /// Returns why the access ends now; `None` if it continues.
    pub(super) fn reason_to_end(
        &self,
        now: Time,
        router: Option<&RouterRole>,
        filter_error: Option<&str>,
    ) -> Option<String> {
        if now >= self.access_ends_at {
            return Some("its time is over".into());
        }
        let Some(router) = router else { return Some("the station is no mobile router any more".into()) };
        let reason = match router.state_machine.uplink_by_name(&self.uplink) {
            Err(_) => Some("the new config does not have the uplink"),
            Ok(_) if !router.lan_interfaces.contains(&self.lan_interface) => {
                Some("the new config does not have the interface of the host")
            }
            Ok(index) => reason_against_access(router, index).or(filter_error),
        };
        reason.map(str::to_owned)
    }

    /// Returns the event of the beginning.
    pub(super) fn begin_event(&self, now: Time) -> Event {
        let left = self.access_ends_at.saturating_since(now).as_secs();
        Event::PortalAccess {
            uplink: self.uplink.clone(),
            interface: self.lan_interface.clone(),
            host: self.host_mac.to_string(),
            for_s: u32::try_from(left).unwrap_or(u32::MAX),
            dns: self.dns_servers.clone(),
        }
    }

    /// Returns the event of the end.
    pub(super) fn end_event(self, reason: String) -> Event {
        Event::PortalAccessEnded { uplink: self.uplink, host: self.host_mac.to_string(), reason }
    }

    pub(super) fn portal_target(&self) -> PortalTarget<'_> {
        PortalTarget {
            uplink: &self.uplink,
            lan_interface: &self.lan_interface,
            host_mac: self.host_mac.0,
            dns_servers: &self.dns_servers,
        }
    }
}

/// Returns why the packets of a host cannot leave by this uplink; `None` if they can.
fn reason_against_access(router: &RouterRole, uplink: usize) -> Option<&'static str> {
    if router.state_machine.is_at_home() {
        Some("the router is on its home link")
    } else if !is_usable_for_breakout(&router.state_machine, uplink) {
        Some("the uplink has no address with a default router")
    } else {
        None
    }
}
