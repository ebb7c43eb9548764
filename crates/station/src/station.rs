//! The station, which contains the NEMO plane and the GeoNetworking plane.

use std::collections::BTreeMap;

use carnet_base::{OptionalPart, Rng, Time, WallTime};
use carnet_cits::facilities::Facilities;
use carnet_cits::geonetworking::acceleration::SequenceNumbers;
use carnet_cits::geonetworking::{GeoDestination, Geonet, GeonetSettings, HeldPacket};
use carnet_cits::security::{SecurityEntity, SecurityPlane, status};
use carnet_geonet::dcc::DccGate;
use carnet_geonet::ipv6_adaptation::{Ipv6Adaptation, Ipv6Config};
use carnet_geonet::multicast::MulticastProxy;
use carnet_mobility::{HomeAgent, MobileRouter};
use carnet_nemo::{Nemo, PersistentState};
use carnet_wire::geonet::GnAddress;
use std::net::Ipv6Addr;

use crate::config::StationConfig;
use crate::io::Output;

/// Whether this program was built with GeoNetworking.
const HAS_GEONET_FEATURE: bool = cfg!(feature = "geonet");
/// Error for an input about GeoNetworking if the station has no GeoNetworking role.
pub(crate) const NO_GEONET_ERROR: &str = "this station does no GeoNetworking";

/// An ITS station without I/O; see the crate's documentation.
#[derive(Debug)]
pub struct Station {
    pub(crate) nemo: Nemo,
    pub(crate) geonet: OptionalPart<Geonet, HAS_GEONET_FEATURE>,
    /// Settings of the GeoNetworking router while the station waits for its GN address; `None` once the
    /// router exists.
    pending_geonet_settings: OptionalPart<(GeonetSettings, Rng), HAS_GEONET_FEATURE>,
    /// Security entity of the GeoNetworking router while the station waits for its GN address.
    pending_security_plane: Option<SecurityPlane>,
    /// Addresses of the mobile network's interfaces, by interface. A multicast proxy that starts later needs
    /// them.
    pub(crate) addresses_by_lan: BTreeMap<String, Vec<(Ipv6Addr, u8)>>,
}

impl Station {
    /// Creates a station that has received no input. `persistent` is the stored state of an earlier run.
    /// `rng` is the source of all random numbers and secrets of the station. [`Self::poll_output`] returns
    /// the outputs that result from the start.
    pub fn new(
        config: StationConfig,
        persistent: PersistentState,
        rng: Rng,
        now: Time,
        wall: WallTime,
    ) -> Station {
        let settings = config.geonet.clone().filter(|_| HAS_GEONET_FEATURE);
        let ipv6 = settings.as_ref().and_then(|settings| settings.ipv6_config.as_ref());
        let interfaces = ipv6.map(Ipv6Config::interfaces).unwrap_or_default();
        let mut station = Station {
            nemo: Nemo::new(rng, interfaces),
            geonet: OptionalPart::new(None),
            pending_geonet_settings: OptionalPart::new(None),
            pending_security_plane: None,
            addresses_by_lan: BTreeMap::new(),
        };
        if let Some(settings) = settings {
            let rng = station.nemo.next_rng();
            match settings.address {
                Some(address) => {
                    station.geonet = OptionalPart::new(Some(Geonet::new(settings, address, rng)))
                }
                None => station.pending_geonet_settings = OptionalPart::new(Some((settings, rng))),
            }
        }
        station.nemo.start(now, wall, config.into_nemo_config(), persistent);
        station.start_station_messages();
        station.execute_all_outputs(now, wall);
        station
    }

    /// Applies `config` to the running station. Bindings, the registration and all unchanged entries of the
    /// forwarding state stay. The outputs contain only the changes. The GeoNetworking router keeps its
    /// settings.
    pub fn reconfigure(&mut self, now: Time, wall: WallTime, config: StationConfig) {
        self.assert_drained();
        let (nemo, in_range) = self.nemo_and_stations_in_range();
        nemo.reconfigure(now, wall, config.into_nemo_config(), in_range.as_optional_stations());
        self.start_station_messages();
        self.handle_timeout(now, wall);
        self.execute_all_outputs(now, wall);
    }

    /// Creates the GeoNetworking router when its address becomes known, or changes the address.
    ///
    /// # Errors
    /// Returns an error if the station does no GeoNetworking.
    pub(crate) fn handle_geonet_address(&mut self, now: Time, address: GnAddress) -> Result<(), String> {
        if let Some(geonet) = self.geonet.get_mut() {
            geonet.handle_address(now, address);
        } else if let Some((settings, rng)) = self.pending_geonet_settings.take() {
            let mut geonet = Geonet::new(settings, address, rng);
            for (interface, addresses) in std::mem::take(&mut self.addresses_by_lan) {
                geonet.handle_lan_addresses(now, &interface, &addresses);
            }
            if let Some(secured) = self.pending_security_plane.take() {
                geonet.start_security(now, secured);
            }
            self.geonet = OptionalPart::new(Some(geonet));
            self.start_station_messages();
        } else {
            return Err(NO_GEONET_ERROR.into());
        }
        Ok(())
    }

    /// Returns the NEMO plane: its roles, its data path and its status.
    pub fn nemo(&self) -> &Nemo {
        &self.nemo
    }

    /// Returns the home agent, if the station has this role.
    pub fn home_agent(&self) -> Option<&HomeAgent> {
        self.nemo.home_agent()
    }

    /// Returns the mobile router, if the station has this role.
    pub fn mobile_router(&self) -> Option<&MobileRouter> {
        self.nemo.mobile_router()
    }

    /// Returns the GeoNetworking plane, if the station has one.
    pub fn geonet_plane(&self) -> Option<&Geonet> {
        self.geonet.get()
    }

    /// Returns the GeoNetworking router, if the station has one.
    pub fn geonet(&self) -> Option<&carnet_geonet::Router> {
        self.geonet.get().map(Geonet::router)
    }

    /// Returns the facilities, if the station has any.
    pub fn facilities(&self) -> Option<&Facilities> {
        self.geonet.get().and_then(Geonet::facilities)
    }

    /// Returns the multicast proxy, if the station has one.
    pub fn multicast_proxy(&self) -> Option<&MulticastProxy> {
        self.geonet.get().and_then(Geonet::multicast_proxy)
    }

    /// Returns the IPv6 adaptation of GeoNetworking, if the station has it.
    pub fn ipv6_adaptation(&self) -> Option<&Ipv6Adaptation> {
        self.geonet.get().and_then(Geonet::ipv6)
    }

    /// Sets the source from which the GeoNetworking router and its fast path both draw sequence numbers. In
    /// the replay of a recording the router counts by itself, and corrects its number by the fast path's
    /// recorded reports.
    pub fn share_sequence_numbers(&mut self, numbers: Box<dyn SequenceNumbers>) {
        if let Some(geonet) = self.geonet.get_mut() {
            geonet.share_sequence_numbers(numbers);
        }
    }

    /// Starts to sign and verify GeoNetworking packets. The caller calls this at the start, before any input.
    pub fn start_security(&mut self, now: Time, wall: WallTime, entity: Box<dyn SecurityEntity>) {
        let secured = SecurityPlane::new(entity, now, wall);
        match self.geonet.get_mut() {
            Some(geonet) => geonet.start_security(now, secured),
            None => self.pending_security_plane = Some(secured),
        }
    }

    /// Returns the security entity, if the station has one.
    pub fn security_entity(&self) -> Option<&dyn SecurityEntity> {
        self.security_plane().map(SecurityPlane::entity)
    }

    /// Returns the state of the security entity, for operators.
    pub fn security_status(&self, now: Time) -> Option<status::Security> {
        self.security_plane().map(|secured| secured.status(now))
    }

    fn security_plane(&self) -> Option<&SecurityPlane> {
        self.geonet.get().and_then(Geonet::security_plane).or(self.pending_security_plane.as_ref())
    }

    /// Returns the areas that operators have set at run time.
    pub fn geo_destinations(&self, now: Time) -> impl Iterator<Item = GeoDestination<'_>> {
        self.geonet.get().into_iter().flat_map(move |geonet| geonet.geo_destinations(now))
    }

    /// Returns the congestion gate in front of the radio, if the station has one.
    pub fn congestion_gate(&self) -> Option<&DccGate<HeldPacket>> {
        self.geonet.get().and_then(Geonet::congestion_gate)
    }

    /// Takes back the buffer of an executed `Frame` or `Ipv6` output of the GeoNetworking plane, so that a
    /// later output can use its memory.
    pub fn recycle_buffer(&mut self, octets: Vec<u8>) {
        if let Some(geonet) = self.geonet.get_mut() {
            geonet.recycle_buffer(octets);
        }
    }

    /// Returns whether the station has finished its work after [`crate::io::Command::Shutdown`].
    pub fn is_quiescent(&self) -> bool {
        self.nemo.is_quiescent()
    }

    /// Returns the next output; see the drain rule in [`crate::io`]. The outputs of the NEMO plane come
    /// first, so that a route exists before a frame needs it.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.nemo.poll_output().map(Output::from);
        output.or_else(|| self.geonet.get_mut().and_then(Geonet::poll_output).map(Output::from))
    }

    /// Returns when [`crate::io::Input::Timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let geonet = self.geonet.get().and_then(Geonet::poll_timeout);
        let neighbours = self.nemo.poll_neighbour_timeout();
        self.nemo.poll_timeout().into_iter().chain(geonet).chain(neighbours).min()
    }

    pub(crate) fn assert_drained(&self) {
        self.nemo.assert_no_pending_output();
    }
}
