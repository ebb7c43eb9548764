//! Outputs of the services for hosts of the mobile network.

use std::time::Duration;

use carnet_api::model;
use carnet_base::{RateLimiter, Time};
use carnet_lan::dhcpv4::{DhcpEvent, Output};
use carnet_lan::dhcpv6::delegation::{DelegationEvent, DelegationOutput, PrefixDelegation};
use carnet_linux::clock;
use carnet_station::io::{Command, Input};
use carnet_wire::address::MacAddress;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::{error, info, warn};

use super::StationRunner;
use crate::lan::{LanEvent, LinkIndex};
use crate::state::RecordKey;

/// Number of events about leases that may follow each other without a pause. Later, one event is possible for
/// each `LEASE_EVENT_INTERVAL`, so that hosts that come and go do not fill the log. The counters count all
/// events.
const LEASE_EVENT_BURST: u32 = 64;
const LEASE_EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Rate limits of events: about leases, and about conflicts.
pub(super) struct LanEventLimits {
    lease_limiter: RateLimiter,
    conflict_limiter: RateLimiter,
}

impl LanEventLimits {
    pub(super) fn new() -> LanEventLimits {
        let limiter = || RateLimiter::new(LEASE_EVENT_BURST, LEASE_EVENT_INTERVAL);
        LanEventLimits { lease_limiter: limiter(), conflict_limiter: limiter() }
    }
}

impl StationRunner {
    /// Passes packets and the time to the services.
    pub(super) fn handle_lan_event(&mut self, event: Option<LanEvent>) {
        self.lan_services.set_uplink_addresses(self.station.nemo().addresses_reached_outside_tunnel());
        match event {
            Some(LanEvent::Dns(message)) => {
                let now = clock::now();
                if self.lan_services.needs_neighbours(now, &message) {
                    self.verify_neighbours(now);
                }
                self.lan_services.handle_dns_message(now, message);
            }
            Some(LanEvent::Packets) | None => {
                let mtu = self.station.nemo().lan_mtu();
                self.lan_services.process_received(clock::now(), clock::wall_time(), mtu);
                self.carry_out_lan();
            }
        }
    }

    /// Reads from the kernel the IPv6 addresses of hosts that have a name.
    pub(super) fn verify_neighbours(&mut self, now: Time) {
        let Some(platform) = &mut self.platform else { return };
        let mut found = Vec::new();
        for (interface, hosts) in self.lan_services.hosts_with_names() {
            match platform.verified_neighbours(&interface, &hosts) {
                Ok(known) => found.extend(known.into_iter().map(|(at, of)| (interface.clone(), at, of))),
                Err(error) => tracing::debug!("{error}"),
            }
        }
        self.lan_services.set_neighbours(now, found);
    }

    /// Executes the outputs of the services. A DHCP acknowledgement waits until its lease is on the disk.
    pub(super) fn carry_out_lan(&mut self) {
        let (mut has_stored, mut has_new_lease) = (false, false);
        while let Some((place, output)) = self.lan_services.poll_output() {
            match output {
                Output::Probe(address) => self.lan_services.send_arp_probe(place, address),
                Output::Store(address, lease) => {
                    self.store_lan_record(RecordKey::Lease(address), lease);
                    has_stored = true;
                }
                Output::Send(datagram) => match self.state.next_commit().filter(|_| datagram.waits_for_store)
                {
                    Some(commit) => self.lan_services.hold_message(clock::now(), commit, place, datagram),
                    None => self.lan_services.send_message(place, &datagram),
                },
                Output::Event(event) => {
                    has_new_lease |= matches!(event, DhcpEvent::Leased { .. });
                    self.report_dhcp_event(place, &event);
                }
            }
        }
        has_stored |= self.carry_out_delegations();
        if has_stored {
            self.lan_services.publish_host_names();
            self.state.commit_changes(true);
        }
        if has_new_lease {
            // The new lease identifies a host. Read the addresses at which this host has answered before.
            self.verify_neighbours(clock::now());
        }
    }

    /// Executes the outputs of prefix delegation: records, events and routes. Returns whether any output was
    /// a record.
    fn carry_out_delegations(&mut self) -> bool {
        let mut has_stored = false;
        while let Some(output) = self.lan_services.dhcpv6_service_mut().poll_output() {
            match output {
                DelegationOutput::Store(prefix, record) => {
                    self.store_lan_record(RecordKey::Delegation(prefix), record);
                    has_stored = true;
                }
                DelegationOutput::Event(event) => self.report_delegation(&event),
            }
        }
        if let Some(delegated) = self.lan_services.dhcpv6_service_mut().take_delegated_prefixes()
            && let Err(error) = self.try_handle_input(Input::Command(Command::Delegations(delegated)))
        {
            warn!("cannot set the routes to delegated prefixes: {error}");
        }
        let commit = self.state.next_commit();
        self.lan_services.dhcpv6_service_mut().hold_replies(clock::now(), commit);
        has_stored
    }

    /// Stores the record of a lease or a delegated prefix; `None` removes it.
    fn store_lan_record(&mut self, key: RecordKey, record: Option<impl Serialize>) {
        match record.map(|record| serde_json::to_string(&record)).transpose() {
            Ok(record) => self.state.set_record((key, record)),
            Err(error) => error!("bug: the record {key:?} cannot be encoded: {error}"),
        }
    }

    fn report_delegation(&mut self, event: &DelegationEvent) {
        let is_warning = matches!(event, DelegationEvent::PrefixesExhausted { .. });
        self.report_lan_event(is_warning, || delegation_text(event), || delegation_fields(event));
    }

    fn report_dhcp_event(&mut self, link: LinkIndex, event: &DhcpEvent) {
        let Some(interface) = self.lan_services.service_links().get(link).map(|link| link.name.clone())
        else {
            return;
        };
        let is_warning = !matches!(event, DhcpEvent::Leased { .. } | DhcpEvent::Released { .. });
        self.report_lan_event(
            is_warning,
            || dhcp_event_text(&interface, event),
            || dhcp_event_fields(&interface, event),
        );
    }

    /// Logs an event of a service, and sends it to the clients that read events. Warnings have a rate limit
    /// of their own.
    fn report_lan_event(
        &mut self,
        is_warning: bool,
        text: impl FnOnce() -> String,
        fields: impl FnOnce() -> Value,
    ) {
        let limiter = if is_warning {
            &mut self.lan_event_limits.conflict_limiter
        } else {
            &mut self.lan_event_limits.lease_limiter
        };
        if !limiter.try_take_token(clock::now()) {
            return;
        }
        let text = text();
        if is_warning {
            warn!("{text}");
        } else {
            info!("{text}");
        }
        if self.events.receiver_count() > 0 {
            let time = Duration::from_nanos(clock::wall_time().as_unix_nanos()).as_secs_f64();
            let _ = self.events.send(model::event(time, fields()));
        }
    }
}

/// Returns the log text of a DHCP event.
fn dhcp_event_text(interface: &str, event: &DhcpEvent) -> String {
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

/// Returns the log text of an event of prefix delegation.
fn delegation_text(event: &DelegationEvent) -> String {
    match event {
        DelegationEvent::Delegated(PrefixDelegation { prefix, client, router_address: router, .. }) => {
            format!("prefix {prefix} delegated to the router {router} on {}", client.interface)
        }
        DelegationEvent::Ended {
            delegation: PrefixDelegation { prefix, client, router_address: router, .. },
            was_released,
        } => {
            let how = if *was_released { "given back by" } else { "has ended, which was delegated to" };
            format!("prefix {prefix} {how} the router {router} on {}", client.interface)
        }
        DelegationEvent::PrefixesExhausted { interface, length } => {
            format!("no /{length} is free for a router on {interface}: all are delegated or in use")
        }
    }
}

/// Returns an event of prefix delegation as fields of the API.
fn delegation_fields(event: &DelegationEvent) -> Value {
    let of = |delegation: &PrefixDelegation, is_given: bool| {
        json!({
            "event": "delegation", "interface": delegation.client.interface, "prefix": delegation.prefix,
            "router": delegation.router_address, "given": is_given,
        })
    };
    match event {
        DelegationEvent::Delegated(delegation) => of(delegation, true),
        DelegationEvent::Ended { delegation, .. } => of(delegation, false),
        DelegationEvent::PrefixesExhausted { interface, length } => json!({
            "event": "no_free_prefix", "interface": interface, "length": length,
        }),
    }
}

/// Returns a DHCP event as fields of the API.
fn dhcp_event_fields(interface: &str, event: &DhcpEvent) -> Value {
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
