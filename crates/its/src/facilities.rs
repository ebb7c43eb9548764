//! The services of one station as one: what comes from a BTP port goes to its service, what services want
//! goes out.
//!
//! `handle_*` takes an input; then [`Facilities::poll_output`] is called until it has nothing, and
//! [`Facilities::handle_timeout`] at [`Facilities::poll_timeout`].

use std::collections::VecDeque;

use carnet_base::Time;
use carnet_geonet::geodesy::Position;
use carnet_wire::btp::port;
use carnet_wire::geonet::{GeoArea, GnAddress};

use crate::ca::{self, CaService};
use crate::cam::Cam;
use crate::cdd::{StationId, StationType};
use crate::den::{self, DenService};
use crate::ldm::{self, LocalDynamicMap};
use crate::sa::{self, SaService};
use crate::{ItsDrop, Now, Transmission};

/// How many CAMs wait for an application at most: what it did not fetch by then is gone, the oldest first.
const CAMS: usize = 64;

/// The services' parameters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Parameters {
    /// Of the CA basic service.
    pub ca: ca::Parameters,
    /// Of the DEN basic service.
    pub den: den::Parameters,
    /// Of the map.
    pub ldm: ldm::Parameters,
    /// Of the service announcement service.
    pub sa: sa::Parameters,
    /// Whether applications are handed every CAM in full; the map has what is important of them anyway.
    pub deliver_cams: bool,
}

/// Action for the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// A message goes to the network.
    Transmit(Transmission),
    /// A CAM of another station.
    Cam(Box<Cam>),
    /// An event of another station.
    Event(den::Event),
}

/// The facilities of a station.
#[derive(Debug)]
pub struct Facilities {
    /// The CA basic service.
    pub ca: CaService,
    /// The DEN basic service.
    pub den: DenService,
    /// The map.
    pub ldm: LocalDynamicMap,
    /// The service announcement service.
    pub sa: SaService,
    station_id: StationId,
    deliver_cams: bool,
    cams: VecDeque<Box<Cam>>,
}

impl Facilities {
    /// The facilities of a station that sends nothing yet. `seed` is secret and decides every random choice.
    pub fn new(
        parameters: Parameters,
        station_id: StationId,
        station_type: StationType,
        seed: u64,
    ) -> Facilities {
        Facilities {
            ca: CaService::new(parameters.ca, station_id, station_type),
            den: DenService::new(parameters.den, station_id, station_type, seed),
            ldm: LocalDynamicMap::new(parameters.ldm, seed),
            sa: SaService::new(parameters.sa, station_id),
            station_id,
            deliver_cams: parameters.deliver_cams,
            cams: VecDeque::new(),
        }
    }

    /// The number under which the station speaks.
    pub fn station_id(&self) -> StationId {
        self.station_id
    }

    /// Speaks under another number from now on, with a pseudonym that changed.
    pub fn set_station_id(&mut self, station_id: StationId) {
        self.station_id = station_id;
        self.ca.set_station_id(station_id);
        self.den.set_station_id(station_id);
        self.sa.set_station_id(station_id);
    }

    /// Takes new data of the station about itself.
    pub fn handle_provided(&mut self, now: Now, provided: ca::Provided) {
        if let Some(position) = provided.reference_position.position() {
            self.handle_position(position);
        }
        self.ca.handle_provided(now, provided);
    }

    /// Where the station is, for what is kept alive.
    pub fn handle_position(&mut self, position: Position) {
        self.den.handle_position(position);
    }

    /// Takes the payload of a BTP port, without the BTP header, from the station with the GN address
    /// `source`. `area` is the area to which the network delivered it, if any.
    ///
    /// # Errors
    /// Why it had no effect: [`ItsDrop`].
    pub fn handle_message(
        &mut self,
        now: Now,
        port: u16,
        octets: &[u8],
        source: GnAddress,
        area: Option<GeoArea>,
    ) -> Result<(), ItsDrop> {
        match port {
            port::CAM => {
                // An own CAM that came back says nothing new; the station ID stands behind version and
                // message.
                if octets.get(2..6) == Some(&self.station_id.0.to_be_bytes()[..]) {
                    return Err(ItsDrop::OwnMessage);
                }
                self.ldm.handle_cam(now.time, octets)?;
                if self.deliver_cams {
                    let cam = Box::new(ca::receive(octets)?);
                    if self.cams.len() >= CAMS {
                        self.cams.pop_front();
                    }
                    self.cams.push_back(cam);
                }
                Ok(())
            }
            port::DENM => self.den.handle_message(now, octets, area),
            port::SAEM => self.sa.handle_message(now, source, octets),
            _ => Err(ItsDrop::UnknownPort),
        }
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        [self.ca.poll_timeout(), self.den.poll_timeout(), self.sa.poll_timeout()].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Now) {
        self.ca.handle_timeout(now);
        self.den.handle_timeout(now);
        self.sa.handle_timeout(now);
    }

    /// Returns the next action. A received event enters the map before the application gets it.
    pub fn poll_output(&mut self, now: Now) -> Option<Output> {
        if let Some(transmission) =
            self.ca.poll_transmit().or_else(|| self.den.poll_transmit()).or_else(|| self.sa.poll_transmit())
        {
            return Some(Output::Transmit(transmission));
        }
        if let Some(event) = self.den.poll_event() {
            if let den::Event::Received { denm, expires } = &event {
                // The service took it, so it has a position.
                let _ = self.ldm.handle_denm(now.time, denm, *expires);
            }
            return Some(Output::Event(event));
        }
        self.cams.pop_front().map(Output::Cam)
    }
}
