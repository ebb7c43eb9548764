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

use super::Router;
use crate::forwarding::{PortalTarget, is_usable};
use crate::input::{PortalOrder, may_be_dns_server};

/// Possible duration of the access, in seconds.
const DURATION_S: RangeInclusive<u32> = 1..=3600;
/// Maximum number of DNS servers in a command.
const MAX_DNS: usize = 4;

/// The host that has access to a captive portal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortalAccess {
    /// Interface name of the uplink whose access network has the portal.
    pub(crate) uplink: String,
    /// Interface on board at which the host is.
    pub(crate) lan: String,
    /// Link-layer address of the host.
    pub(crate) host: MacAddress,
    /// DNS servers of the uplink.
    pub(crate) dns: Vec<IpAddr>,
    /// Time at which the access ends.
    pub(crate) until: Time,
}

impl PortalAccess {
    /// Returns the access that an order begins. `holder` is the present access, `filter_error` why the kernel
    /// has not installed the rules of the packet filter. A repeated order for the same host replaces the
    /// present access.
    ///
    /// # Errors
    /// Returns the reason of a refusal, in words for the operator.
    pub(super) fn new(
        now: Time,
        order: PortalOrder,
        router: &Router,
        holder: Option<&PortalAccess>,
        filter_error: Option<&str>,
    ) -> Result<PortalAccess, String> {
        let PortalOrder { uplink, lan, host, for_s, mut dns } = order;
        let index = router.machine.uplink_by_name(&uplink)?;
        let refusal = |reason: &str| {
            Err(format!("cannot give {host} access to the captive portal of {uplink}: {reason}"))
        };
        if !DURATION_S.contains(&for_s) {
            return refusal(&format!("found a duration of {for_s} s, expected 1 s to 3600 s"));
        }
        if host.0[0] & 1 != 0 || host.0 == [0; 6] {
            return refusal("found no address of a single host, expected its own MAC address");
        }
        if !router.lan.contains(&lan) {
            let names = router.lan.join(", ");
            return refusal(&format!("found the host at {lan}, expected one of mobile_router.lan: {names}"));
        }
        if dns.len() > MAX_DNS {
            return refusal(&format!("found {} DNS servers, expected at most {MAX_DNS}", dns.len()));
        }
        if let Some(address) = dns.iter().find(|address| !may_be_dns_server(**address)) {
            return refusal(&format!("found the DNS server {address}, expected an address of one server"));
        }
        if let Some(reason) = obstacle(router, index).or(filter_error) {
            return refusal(reason);
        }
        if let Some(other) = holder.filter(|old| (&old.uplink, old.host) != (&uplink, host)) {
            let left = other.until.saturating_since(now).as_secs();
            return refusal(&format!(
                "{} has access to that of {} for {left} s more; `carnet portal {} --end` ends it",
                other.host, other.uplink, other.uplink
            ));
        }
        if !dns.iter().any(IpAddr::is_ipv6) {
            let announced = router.machine.uplinks().get(index).map(|uplink| uplink.dns_servers(now));
            let announced = announced.into_iter().flatten().copied().map(IpAddr::V6);
            dns.extend(announced.take(MAX_DNS));
        }
        let until = now + Duration::from_secs(for_s.into());
        Ok(PortalAccess { uplink, lan, host, dns, until })
    }

    /// Returns why the access ends now; `None` if it continues.
    pub(super) fn end(
        &self,
        now: Time,
        router: Option<&Router>,
        filter_error: Option<&str>,
    ) -> Option<String> {
        if now >= self.until {
            return Some("its time is over".into());
        }
        let Some(router) = router else { return Some("the station is no mobile router any more".into()) };
        let reason = match router.machine.uplink_by_name(&self.uplink) {
            Err(_) => Some("the new config does not have the uplink"),
            Ok(_) if !router.lan.contains(&self.lan) => {
                Some("the new config does not have the interface of the host")
            }
            Ok(index) => obstacle(router, index).or(filter_error),
        };
        reason.map(str::to_owned)
    }

    /// Returns the event of the beginning.
    pub(super) fn begin_event(&self, now: Time) -> Event {
        let left = self.until.saturating_since(now).as_secs();
        Event::PortalAccess {
            uplink: self.uplink.clone(),
            interface: self.lan.clone(),
            host: self.host.to_string(),
            for_s: u32::try_from(left).unwrap_or(u32::MAX),
            dns: self.dns.clone(),
        }
    }

    /// Returns the event of the end.
    pub(super) fn end_event(self, reason: String) -> Event {
        Event::PortalAccessEnded { uplink: self.uplink, host: self.host.to_string(), reason }
    }

    pub(super) fn target(&self) -> PortalTarget<'_> {
        PortalTarget { uplink: &self.uplink, lan: &self.lan, host: self.host.0, dns: &self.dns }
    }
}

/// Returns why the packets of a host cannot leave by this uplink; `None` if they can.
fn obstacle(router: &Router, uplink: usize) -> Option<&'static str> {
    if router.machine.is_home() {
        Some("the router is on its home link")
    } else if !is_usable(&router.machine, uplink) {
        Some("the uplink has no address with a default router")
    } else {
        None
    }
}
