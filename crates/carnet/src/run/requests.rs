//! Requests of operators to a running station.

use carnet_api::model::{
    DrainRequest, GnPingEvent, GnPingRequest, HandoverRequest, Location, PortalRequest, RevokeRequest,
};
use carnet_base::Time;
use carnet_cits::geonetworking::Geonet as Plane;
use carnet_linux::signal::PLAUSIBLE_DBM;
use carnet_linux::{Platform, TunnelWriter, clock};
use carnet_station::io::{Command, Input, PortalOrder};
use carnet_wire::address::{MacAddress, ParseError};
use tokio::sync::mpsc;

use super::Runner;
use crate::answers::{self, Counted};
use crate::facilities::NO_FACILITIES;
use crate::geonet::{Geonet, dcc};
use crate::lan::LanLink;
use crate::request::{Answer, Request};
use crate::sessions::Sessions;

impl Runner {
    pub(super) fn request(&mut self, request: Request) {
        let now = clock::now();
        // If the client has gone away, sending the answer fails, which does no harm.
        match request {
            Request::Status(reply) => {
                let uptime = now.saturating_since(self.started);
                let traffic = self.counted_traffic();
                let geonet = self.geonet.get().map(|geonet| geonet.status(&self.station));
                let _ = reply.send(answers::status(
                    &self.config,
                    self.platform.as_ref(),
                    &self.station,
                    geonet,
                    self.sandbox.as_ref(),
                    &traffic,
                    uptime,
                ));
            }
            Request::Bindings(reply) => {
                let _ = reply.send(self.station.nemo().binding_status(now));
            }
            Request::Uplinks(reply) => {
                let traffic = self.counted_traffic();
                let _ = reply.send(answers::uplinks(&self.station, &self.obstacles(), &traffic, now));
            }
            Request::Tunnels(reply) => {
                let _ = reply.send(answers::tunnels(self.platform.as_ref(), &self.station));
            }
            Request::Routes(reply) => {
                let _ = reply.send(self.station.nemo().route_status(now));
            }
            Request::Policies(reply) => {
                let traffic = self.counted_traffic();
                let _ = reply.send(answers::policies(&self.station, &traffic));
            }
            Request::Lan(reply) => {
                let _ = reply.send(answers::lan(&self.config, &self.station, &self.lan, now));
            }
            Request::Keys(reply) => {
                let _ = reply.send(self.keys());
            }
            Request::ReadKeys(reply) => {
                let _ = reply.send(self.read_keys());
            }
            Request::Counters(reply) => {
                let mut counters = answers::counters(&self.station, self.platform.as_ref());
                counters.extend(self.sessions.get().into_iter().flat_map(Sessions::counters));
                let errors = self.writer.as_ref().map(TunnelWriter::errors);
                counters.extend(errors.map(|errors| ("tunnel.write_errors".into(), errors)));
                counters.extend(self.lan.counters());
                counters.extend(self.geonet.get_mut().into_iter().flat_map(Geonet::counters));
                let _ = reply.send(counters);
            }
            Request::Handover { handover, reply } => {
                let HandoverRequest { uplink, policy } = handover;
                let result = self.try_input(Input::Command(Command::Handover { uplink, policy }));
                let _ = reply.send(result);
            }
            Request::Portal { portal, reply } => {
                let _ = reply.send(self.portal(portal));
            }
            Request::Drain(reply) => {
                let _ = reply.send(self.station.home_agent().and_then(|agent| agent.drain()));
            }
            Request::BeginDrain { drain, reply } => {
                let DrainRequest { to, within_s } = drain;
                let _ = reply.send(self.try_input(Input::Command(Command::Drain { to, within_s })));
            }
            Request::EndDrain(reply) => {
                let _ = reply.send(self.try_input(Input::Command(Command::EndDrain)));
            }
            Request::Revoke { revoke, reply } => {
                let RevokeRequest { home_address, bids } = revoke;
                let order = Command::Revoke { home_address, bids };
                let _ = reply.send(self.try_input(Input::Command(order)));
            }
            Request::Signal { signal, reply } => {
                let result = if PLAUSIBLE_DBM.contains(&signal.dbm) {
                    self.try_input(Input::Signal { interface: signal.uplink, dbm: signal.dbm })
                } else {
                    Err(format!("{} dBm is no signal, expected {PLAUSIBLE_DBM:?}", signal.dbm))
                };
                let _ = reply.send(result);
            }
            other => self.request_of_geonet(now, other),
        }
    }

    fn counted_traffic(&mut self) -> Counted {
        self.platform.as_mut().map(Platform::counted_traffic).unwrap_or_default()
    }

    /// Gives a host access to the captive portal of an uplink, or ends the access.
    fn portal(&mut self, portal: PortalRequest) -> Answer<()> {
        let PortalRequest { uplink, host, for_s, dns } = portal;
        let Some(host) = host else {
            return self.try_input(Input::Command(Command::EndPortal { uplink }));
        };
        let host: MacAddress =
            host.parse().map_err(|error: ParseError| format!("cannot read the host: {error}"))?;
        let lan = self.interface_of(host)?;
        let order = PortalOrder { uplink, lan, host, for_s, dns };
        self.try_input(Input::Command(Command::Portal(order)))
    }

    /// Returns the interface on board at which a host is, by the kernel's neighbours or by its lease.
    fn interface_of(&mut self, host: MacAddress) -> Answer<String> {
        let lan: Vec<String> =
            self.station.nemo().lan_status().into_iter().map(|lan| lan.interface).collect();
        let neighbours = self.platform.as_mut().map(|platform| platform.interfaces_of(host.0));
        let neighbours = neighbours.transpose().map_err(|error| error.to_string())?.unwrap_or_default();
        if let Some(interface) = neighbours.into_iter().find(|interface| lan.contains(interface)) {
            return Ok(interface);
        }
        let now = clock::now();
        let has_lease = |link: &&LanLink| link.server.active_leases(now).any(|it| it.link_address == host.0);
        let link = self.lan.links().iter().filter(|link| lan.contains(&link.name)).find(has_lease);
        link.map(|link| link.name.clone()).ok_or_else(|| {
            format!(
                "cannot find the host {host}: found no neighbour and no lease with this MAC address, \
                 expected one on {}",
                if lan.is_empty() { "an interface of mobile_router.lan".to_owned() } else { lan.join(", ") }
            )
        })
    }

    fn request_of_geonet(&mut self, now: Time, request: Request) {
        match request {
            Request::Neighbours(reply) => {
                let _ = reply.send(self.locations(true));
            }
            Request::Locations(reply) => {
                let _ = reply.send(self.locations(false));
            }
            Request::Areas(reply) => {
                let _ = reply.send(self.ask_geonet(|geonet, _| geonet.areas(now, &self.station)));
            }
            Request::Groups(reply) => {
                let _ = reply.send(self.ask_geonet(|_, plane| plane.group_status(now)));
            }
            Request::Dcc(reply) => {
                let _ = reply.send(dcc::dcc(now, &self.station));
            }
            Request::Channel { channel, reply } => {
                let busy = dcc::channel_busy(&channel);
                let _ = reply.send(busy.and_then(|input| self.try_input(input)));
            }
            Request::Security(reply) => {
                let _ = reply.send(self.station.security_status(now).ok_or(answers::NO_SECURITY.into()));
            }
            Request::Pseudonym { pseudonym, reply } => {
                let order = match pseudonym.lock_s {
                    None => Command::ChangePseudonym,
                    Some(for_s) => Command::LockPseudonym { for_s },
                };
                let _ = reply.send(self.try_input(Input::Command(order)));
            }
            Request::SetArea { area, reply } => {
                let order = self.ask_geonet(|geonet, _| geonet.area_order(area)).flatten();
                let _ = reply.send(order.and_then(|order| self.try_input(Input::Command(order))));
            }
            Request::RemoveArea { name, reply } => {
                let order = self.ask_geonet(|geonet, _| geonet.area_removal(name)).flatten();
                let _ = reply.send(order.and_then(|order| self.try_input(Input::Command(order))));
            }
            Request::GnSend { packet, reply } => {
                let request =
                    self.ask_geonet(|geonet, _| geonet.request(now, packet, &self.station)).flatten();
                let _ = reply.send(request.and_then(|request| self.try_input(Input::Geonet(request))));
            }
            Request::GnPing { ping, reply } => {
                let _ = reply.send(self.ping(&ping));
            }
            Request::Vehicle(reply) => {
                let vehicle = self.applications.get().map(|applications| applications.vehicle.clone());
                let _ = reply.send(vehicle.ok_or_else(|| NO_FACILITIES.into()));
            }
            Request::SetVehicle { vehicle, reply } => {
                let _ = reply.send(self.set_vehicle(*vehicle));
            }
            Request::Denm { wish, message, denm, reply } => {
                let _ = reply.send(self.denm(wish, message, &denm));
            }
            Request::Ldm { filter, reply } => {
                let _ = reply.send(self.ldm(&filter));
            }
            Request::Services(reply) => {
                let _ = reply.send(self.services());
            }
            Request::Messages { filter, reply } => {
                let subscription = self.area(filter.area.as_ref()).and_then(|area| {
                    let applications = self.applications.get().ok_or(NO_FACILITIES)?;
                    Ok(applications.subscribe(filter, area.map(Into::into)))
                });
                let _ = reply.send(subscription);
            }
            Request::GnReceive(reply) => {
                let _ = reply.send(self.ask_geonet(|geonet, _| geonet.subscribe()));
                self.geonet.get_mut().into_iter().for_each(Geonet::tell_listeners);
            }
            _ => tracing::error!("bug: no handler exists for this API request"),
        }
    }

    fn locations(&self, only_neighbours: bool) -> Answer<Vec<Location>> {
        self.ask_geonet(|geonet, plane| {
            plane.location_status(geonet.timestamp(clock::wall_time()), only_neighbours)
        })
    }

    pub(super) fn ask_geonet<T>(&self, question: impl FnOnce(&Geonet, &Plane) -> T) -> Answer<T> {
        let geonet = self.geonet.get().ok_or(answers::NO_GEONET)?;
        match self.station.geonet_plane() {
            Some(plane) => Ok(question(geonet, plane)),
            None => Err(format!("this station waits for {}", geonet.awaited())),
        }
    }

    fn ping(&mut self, ping: &GnPingRequest) -> Answer<mpsc::Receiver<GnPingEvent>> {
        let geonet = self.geonet.get_mut().ok_or(answers::NO_GEONET)?;
        let (identifier, request, events) = geonet.ping(clock::now(), ping, &self.station)?;
        if let Err(refusal) = self.try_input(Input::Geonet(request)) {
            self.geonet.get_mut().into_iter().for_each(|geonet| geonet.abandon(identifier));
            return Err(refusal);
        }
        Ok(events)
    }
}
