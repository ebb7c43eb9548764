//! Requests of operators to a running station.

use carnet_api::model::{
    DrainRequest, GnPingEvent, GnPingRequest, HandoverRequest, Location, PortalRequest, RevokeRequest,
};
use carnet_base::Time;
use carnet_cits::geonetworking::Geonet as Plane;
use carnet_linux::signal_strength::PLAUSIBLE_DBM;
use carnet_linux::{Platform, TunnelWriter, clock};
use carnet_station::io::{Command, Input, PortalAccessRequest};
use carnet_wire::address::{MacAddress, ParseError};
use tokio::sync::mpsc;

use super::StationRunner;
use crate::answers::{self, TrafficCounts};
use crate::facilities::ERROR_NO_FACILITIES;
use crate::geonet::{Geonet, dcc};
use crate::lan::LanLink;
use crate::request::{Answer, StationRequest};
use crate::sessions::Sessions;

impl StationRunner {
    pub(super) fn answer_request(&mut self, request: StationRequest) {
        let now = clock::now();
        // If the client has disconnected, sending the answer fails, which does no harm.
        match request {
            StationRequest::Status(reply) => {
                let uptime = now.saturating_since(self.started_at);
                let traffic = self.counted_traffic();
                let geonet = self.geonet.get().map(|geonet| geonet.geonet_status(&self.station));
                let _ = reply.send(answers::station_status(
                    &self.config,
                    self.platform.as_ref(),
                    &self.station,
                    geonet,
                    self.enforced_limits.as_ref(),
                    &traffic,
                    uptime,
                ));
            }
            StationRequest::Bindings(reply) => {
                let _ = reply.send(self.station.nemo().binding_status(now));
            }
            StationRequest::Uplinks(reply) => {
                let traffic = self.counted_traffic();
                let _ = reply.send(answers::uplink_status(
                    &self.station,
                    &self.obstacle_messages(),
                    &traffic,
                    now,
                ));
            }
            StationRequest::Tunnels(reply) => {
                let _ = reply.send(answers::tunnel_status(self.platform.as_ref(), &self.station));
            }
            StationRequest::Routes(reply) => {
                let _ = reply.send(self.station.nemo().route_status(now));
            }
            StationRequest::Policies(reply) => {
                let traffic = self.counted_traffic();
                let _ = reply.send(answers::policy_status(&self.station, &traffic));
            }
            StationRequest::Lan(reply) => {
                let _ = reply.send(answers::lan_status(&self.config, &self.station, &self.lan_services, now));
            }
            StationRequest::Keys(reply) => {
                let _ = reply.send(self.key_status());
            }
            StationRequest::ReadKeys(reply) => {
                let _ = reply.send(self.read_key_files());
            }
            StationRequest::Counters(reply) => {
                let mut counters = answers::counters(&self.station, self.platform.as_ref());
                counters.extend(self.encrypted_sessions.get().into_iter().flat_map(Sessions::counters));
                let errors = self.tunnel_writer.as_ref().map(TunnelWriter::write_error_count);
                counters.extend(errors.map(|errors| ("tunnel.write_errors".into(), errors)));
                counters.extend(self.lan_services.counters());
                counters.extend(self.geonet.get_mut().into_iter().flat_map(Geonet::counters));
                let _ = reply.send(counters);
            }
            StationRequest::Handover { handover, reply } => {
                let HandoverRequest { uplink, policy } = handover;
                let result = self.try_handle_input(Input::Command(Command::Handover { uplink, policy }));
                let _ = reply.send(result);
            }
            StationRequest::Portal { portal, reply } => {
                let _ = reply.send(self.set_portal_access(portal));
            }
            StationRequest::Drain(reply) => {
                let _ = reply.send(self.station.home_agent().and_then(|agent| agent.drain()));
            }
            StationRequest::BeginDrain { drain, reply } => {
                let DrainRequest { to, within_s } = drain;
                let _ = reply.send(self.try_handle_input(Input::Command(Command::Drain { to, within_s })));
            }
            StationRequest::EndDrain(reply) => {
                let _ = reply.send(self.try_handle_input(Input::Command(Command::EndDrain)));
            }
            StationRequest::Revoke { revoke, reply } => {
                let RevokeRequest { home_address, bids } = revoke;
                let order = Command::Revoke { home_address, bids };
                let _ = reply.send(self.try_handle_input(Input::Command(order)));
            }
            StationRequest::Signal { signal, reply } => {
                let result = if PLAUSIBLE_DBM.contains(&signal.dbm) {
                    self.try_handle_input(Input::Signal { interface: signal.uplink, dbm: signal.dbm })
                } else {
                    Err(format!("{} dBm is no signal, expected {PLAUSIBLE_DBM:?}", signal.dbm))
                };
                let _ = reply.send(result);
            }
            other => self.request_of_geonet(now, other),
        }
    }

    fn counted_traffic(&mut self) -> TrafficCounts {
        self.platform.as_mut().map(Platform::counted_traffic).unwrap_or_default()
    }

    /// Gives a host access to the captive portal of an uplink, or ends the access.
    fn set_portal_access(&mut self, portal: PortalRequest) -> Answer<()> {
        let PortalRequest { uplink, host, for_s, dns } = portal;
        let Some(host) = host else {
            return self.try_handle_input(Input::Command(Command::EndPortal { uplink }));
        };
        let host: MacAddress =
            host.parse().map_err(|error: ParseError| format!("cannot read the host: {error}"))?;
        let lan = self.interface_of_host(host)?;
        let order = PortalAccessRequest { uplink, lan, host, for_s, dns };
        self.try_handle_input(Input::Command(Command::Portal(order)))
    }

    /// Returns the interface on board on which a host is, found in the kernel's neighbour table or in the
    /// host's lease.
    fn interface_of_host(&mut self, host: MacAddress) -> Answer<String> {
        let lan: Vec<String> =
            self.station.nemo().lan_status().into_iter().map(|lan| lan.interface).collect();
        let neighbours = self.platform.as_mut().map(|platform| platform.interfaces_with_neighbour(host.0));
        let neighbours = neighbours.transpose().map_err(|error| error.to_string())?.unwrap_or_default();
        if let Some(interface) = neighbours.into_iter().find(|interface| lan.contains(interface)) {
            return Ok(interface);
        }
        let now = clock::now();
        let has_lease =
            |link: &&LanLink| link.dhcp_server.active_leases(now).any(|it| it.link_address == host.0);
        let link =
            self.lan_services.service_links().iter().filter(|link| lan.contains(&link.name)).find(has_lease);
        link.map(|link| link.name.clone()).ok_or_else(|| {
            format!(
                "cannot find the host {host}: found no neighbour and no lease with this MAC address, \
                 expected one on {}",
                if lan.is_empty() { "an interface of mobile_router.lan".to_owned() } else { lan.join(", ") }
            )
        })
    }

    fn request_of_geonet(&mut self, now: Time, request: StationRequest) {
        match request {
            StationRequest::Neighbours(reply) => {
                let _ = reply.send(self.known_locations(true));
            }
            StationRequest::Locations(reply) => {
                let _ = reply.send(self.known_locations(false));
            }
            StationRequest::Areas(reply) => {
                let _ = reply.send(self.query_geonet(|geonet, _| geonet.list_areas(now, &self.station)));
            }
            StationRequest::Groups(reply) => {
                let _ = reply.send(self.query_geonet(|_, plane| plane.group_status(now)));
            }
            StationRequest::Dcc(reply) => {
                let _ = reply.send(dcc::dcc_status(now, &self.station));
            }
            StationRequest::Channel { channel, reply } => {
                let busy = dcc::channel_busy_input(&channel);
                let _ = reply.send(busy.and_then(|input| self.try_handle_input(input)));
            }
            StationRequest::Security(reply) => {
                let _ =
                    reply.send(self.station.security_status(now).ok_or(answers::ERROR_NO_SECURITY.into()));
            }
            StationRequest::Pseudonym { pseudonym, reply } => {
                let order = match pseudonym.lock_s {
                    None => Command::ChangePseudonym,
                    Some(for_s) => Command::LockPseudonym { for_s },
                };
                let _ = reply.send(self.try_handle_input(Input::Command(order)));
            }
            StationRequest::SetArea { area, reply } => {
                let order = self.query_geonet(|geonet, _| geonet.area_command(area)).flatten();
                let _ = reply.send(order.and_then(|order| self.try_handle_input(Input::Command(order))));
            }
            StationRequest::RemoveArea { name, reply } => {
                let order = self.query_geonet(|geonet, _| geonet.area_removal_command(name)).flatten();
                let _ = reply.send(order.and_then(|order| self.try_handle_input(Input::Command(order))));
            }
            StationRequest::GnSend { packet, reply } => {
                let request = self
                    .query_geonet(|geonet, _| geonet.geonet_request(now, packet, &self.station))
                    .flatten();
                let _ = reply.send(request.and_then(|request| self.try_handle_input(Input::Geonet(request))));
            }
            StationRequest::GnPing { ping, reply } => {
                let _ = reply.send(self.start_ping(&ping));
            }
            StationRequest::Vehicle(reply) => {
                let vehicle = self.applications.get().map(|applications| applications.vehicle_report.clone());
                let _ = reply.send(vehicle.ok_or_else(|| ERROR_NO_FACILITIES.into()));
            }
            StationRequest::SetVehicle { vehicle, reply } => {
                let _ = reply.send(self.set_vehicle(*vehicle));
            }
            StationRequest::Denm { wish, message, denm, reply } => {
                let _ = reply.send(self.trigger_denm(wish, message, &denm));
            }
            StationRequest::Ldm { filter, reply } => {
                let _ = reply.send(self.ldm_objects(&filter));
            }
            StationRequest::Services(reply) => {
                let _ = reply.send(self.announced_services());
            }
            StationRequest::Messages { filter, reply } => {
                let subscription = self.present_area(filter.area.as_ref()).and_then(|area| {
                    let applications = self.applications.get().ok_or(ERROR_NO_FACILITIES)?;
                    Ok(applications.subscribe_messages(filter, area.map(Into::into)))
                });
                let _ = reply.send(subscription);
            }
            StationRequest::GnReceive(reply) => {
                let _ = reply.send(self.query_geonet(|geonet, _| geonet.subscribe_payloads()));
                self.geonet.get_mut().into_iter().for_each(Geonet::update_listeners);
            }
            _ => tracing::error!("bug: no handler exists for this API request"),
        }
    }

    fn known_locations(&self, only_neighbours: bool) -> Answer<Vec<Location>> {
        self.query_geonet(|geonet, plane| {
            plane.location_status(geonet.timestamp(clock::wall_time()), only_neighbours)
        })
    }

    pub(super) fn query_geonet<T>(&self, question: impl FnOnce(&Geonet, &Plane) -> T) -> Answer<T> {
        let geonet = self.geonet.get().ok_or(answers::ERROR_NO_GEONET)?;
        match self.station.geonet_plane() {
            Some(plane) => Ok(question(geonet, plane)),
            None => Err(format!("this station waits for {}", geonet.awaited_interface())),
        }
    }

    fn start_ping(&mut self, ping: &GnPingRequest) -> Answer<mpsc::Receiver<GnPingEvent>> {
        let geonet = self.geonet.get_mut().ok_or(answers::ERROR_NO_GEONET)?;
        let (identifier, request, events) = geonet.start_ping(clock::now(), ping, &self.station)?;
        if let Err(refusal) = self.try_handle_input(Input::Geonet(request)) {
            self.geonet.get_mut().into_iter().for_each(|geonet| geonet.abandon_ping(identifier));
            return Err(refusal);
        }
        Ok(events)
    }
}
