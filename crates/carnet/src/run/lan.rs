//! Outputs of the services for hosts of the mobile network.

use std::time::Duration;

use carnet_api::model;
use carnet_base::{RateLimiter, Time};
use carnet_lan::dhcpv4::{DhcpEvent, Output};
use carnet_linux::clock;
use carnet_wire::address::MacAddress;
use serde_json::{Value, json};
use tracing::{error, info, warn};

use super::Runner;
use crate::lan::{LanEvent, Place};
use crate::state::Key;

/// Number of events about leases at once, and the time until one more, so that hosts that come and go fill
/// no log. Counters count all.
const EVENTS: u32 = 64;
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Rate limits of events: about leases, and about conflicts.
pub(super) struct LanEventLimits {
    leases: RateLimiter,
    conflicts: RateLimiter,
}

impl LanEventLimits {
    pub(super) fn new() -> LanEventLimits {
        let limiter = || RateLimiter::new(EVENTS, EVENT_INTERVAL);
        LanEventLimits { leases: limiter(), conflicts: limiter() }
    }
}

impl Runner {
    /// Passes packets and the time to the services.
    pub(super) fn lan_event(&mut self, event: Option<LanEvent>) {
        self.lan.set_uplink_addresses(self.station.nemo().addresses_past_tunnel());
        match event {
            Some(LanEvent::Dns(message)) => {
                let now = clock::now();
                if self.lan.needs_neighbours(now, &message) {
                    self.find_neighbours(now);
                }
                self.lan.handle_dns(now, message);
            }
            Some(LanEvent::Packets) | None => {
                let mtu = self.station.nemo().lan_mtu();
                self.lan.process(clock::now(), clock::wall(), mtu);
                self.carry_out_lan();
            }
        }
    }

    /// Asks the kernel for the IPv6 addresses of hosts with names.
    fn find_neighbours(&mut self, now: Time) {
        let Some(platform) = &mut self.platform else { return };
        let mut found = Vec::new();
        for (interface, hosts) in self.lan.named_hosts() {
            match platform.verified_neighbours(&interface, &hosts) {
                Ok(known) => found.extend(known.into_iter().map(|(at, of)| (interface.clone(), at, of))),
                Err(error) => tracing::debug!("{error}"),
            }
        }
        self.lan.set_neighbours(now, found);
    }

    /// Executes the outputs of the services. An acknowledgement waits until its lease is on the disk.
    pub(super) fn carry_out_lan(&mut self) {
        let mut has_stored = false;
        while let Some((place, output)) = self.lan.poll_output() {
            match output {
                Output::Probe(address) => self.lan.probe(place, address),
                Output::Store(address, lease) => {
                    match lease.map(|lease| serde_json::to_string(&lease)).transpose() {
                        Ok(record) => self.state.set((Key::Lease(address), record)),
                        Err(error) => error!("bug: a lease cannot be encoded: {error}"),
                    }
                    has_stored = true;
                }
                Output::Send(datagram) => match self.state.next_commit().filter(|_| datagram.waits_for_store)
                {
                    Some(commit) => self.lan.hold(clock::now(), commit, place, datagram),
                    None => self.lan.send(place, &datagram),
                },
                Output::Event(event) => self.report_lan(place, &event),
            }
        }
        if has_stored {
            self.lan.publish_names();
            self.state.commit(true);
        }
    }

    /// Logs an event, and sends it to the readers of events.
    fn report_lan(&mut self, place: Place, event: &DhcpEvent) {
        let Some(interface) = self.lan.links().get(place).map(|link| link.name.clone()) else { return };
        let limiter = match event {
            DhcpEvent::Leased { .. } | DhcpEvent::Released { .. } => &mut self.lan_limits.leases,
            DhcpEvent::InUse { .. } | DhcpEvent::PoolExhausted { .. } | DhcpEvent::OtherServer { .. } => {
                &mut self.lan_limits.conflicts
            }
        };
        if !limiter.allow(clock::now()) {
            return;
        }
        let text = text(&interface, event);
        match event {
            DhcpEvent::Leased { .. } | DhcpEvent::Released { .. } => info!("{text}"),
            _ => warn!("{text}"),
        }
        if self.events.receiver_count() > 0 {
            let time = Duration::from_nanos(clock::wall().as_unix_nanos()).as_secs_f64();
            let _ = self.events.send(model::event(time, fields(&interface, event)));
        }
    }
}

/// Returns an event as a line of the log.
fn text(interface: &str, event: &DhcpEvent) -> String {
    match event {
        DhcpEvent::Leased { address, link_address, host_name } => {
            let name = host_name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
            format!("lease of {address} on {interface} given to {}{name}", MacAddress(*link_address))
        }
        DhcpEvent::Released { address, link_address } => {
            format!("lease of {address} on {interface} given back by {}", MacAddress(*link_address))
        }
        DhcpEvent::InUse { address, link_address, declined: true } => format!(
            "{address} on {interface} declined by {}: another host uses this address",
            MacAddress(*link_address)
        ),
        DhcpEvent::InUse { address, link_address, declined: false } => {
            format!("{address} on {interface} is in use by {} without a lease", MacAddress(*link_address))
        }
        DhcpEvent::PoolExhausted { addresses } => {
            format!("no address is free on {interface}: all {addresses} of the range are in use")
        }
        DhcpEvent::OtherServer { server } => {
            format!("another DHCP server answers hosts on {interface}: {server}")
        }
    }
}

/// Returns an event as fields of the API.
fn fields(interface: &str, event: &DhcpEvent) -> Value {
    match event {
        DhcpEvent::Leased { address, link_address, host_name } => json!({
            "event": "lease", "interface": interface, "address": address,
            "mac": MacAddress(*link_address), "name": host_name, "given": true,
        }),
        DhcpEvent::Released { address, link_address } => json!({
            "event": "lease", "interface": interface, "address": address,
            "mac": MacAddress(*link_address), "name": null, "given": false,
        }),
        DhcpEvent::InUse { address, link_address, declined } => json!({
            "event": "address_in_use", "interface": interface, "address": address,
            "mac": MacAddress(*link_address), "declined": declined,
        }),
        DhcpEvent::PoolExhausted { addresses } => json!({
            "event": "no_free_address", "interface": interface, "addresses": addresses,
        }),
        DhcpEvent::OtherServer { server } => json!({
            "event": "other_dhcp_server", "interface": interface, "server": server,
        }),
    }
}
