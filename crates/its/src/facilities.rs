//! The services of one station together: payloads of BTP ports go to their services, and the services'
//! messages to the network.
//!
//! After each `handle_*` input, the caller calls [`Facilities::poll_output`] until it returns `None`. It
//! calls [`Facilities::handle_timeout`] at the time that [`Facilities::poll_timeout`] returns.

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

/// Largest number of CAMs that wait for the application; the facilities drop the oldest ones.
const MAX_WAITING_CAMS: usize = 64;

/// Parameters of the services.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Parameters {
    /// Parameters of the CA basic service.
    pub ca: ca::Parameters,
    /// Parameters of the DEN basic service.
    pub den: den::Parameters,
    /// Parameters of the map.
    pub ldm: ldm::Parameters,
    /// Parameters of the service announcement service.
    pub sa: sa::Parameters,
    /// Whether applications get each received CAM in full. The Local Dynamic Map always stores its main
    /// fields.
    pub deliver_cams: bool,
}

/// Action for the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Send a message to the network.
    Transmit(Transmission),
    /// A received CAM of another station.
    Cam(Box<Cam>),
    /// An event of another station, for applications.
    Event(den::Event),
}

/// The facilities of a station.
#[derive(Debug)]
pub struct Facilities {
    /// The CA basic service.
    pub ca: CaService,
    /// The DEN basic service.
    pub den: DenService,
    /// The Local Dynamic Map.
    pub ldm: LocalDynamicMap,
    /// The service announcement service.
    pub sa: SaService,
    station_id: StationId,
    deliver_cams: bool,
    cams: VecDeque<Box<Cam>>,
}

impl Facilities {
    /// Creates the facilities of a station that sends nothing yet. All random numbers follow from `seed`,
    /// which must stay secret.
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

    /// Returns the station ID.
    pub fn station_id(&self) -> StationId {
        self.station_id
    }

    /// Sets a new station ID after a change of pseudonym.
    pub fn set_station_id(&mut self, station_id: StationId) {
        self.station_id = station_id;
        self.ca.set_station_id(station_id);
        self.den.set_station_id(station_id);
        self.sa.set_station_id(station_id);
    }

    /// Handles new data about the station.
    pub fn handle_station_data(&mut self, now: Now, provided: ca::StationData) {
        if let Some(position) = provided.reference_position.position() {
            self.handle_position(position);
        }
        self.ca.handle_station_data(now, provided);
    }

    /// Handles the position of the station, for keep-alive forwarding.
    pub fn handle_position(&mut self, position: Position) {
        self.den.handle_position(position);
    }

    /// Handles the payload of a BTP packet (without BTP header) from the station with GN address `source`.
    /// `area` is the destination area of the packet, if it has one.
    ///
    /// # Errors
    ///
    /// The reason why the services ignored the payload: [`ItsDrop`].
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
                // The message is an echo of an own CAM. The station ID follows after protocol version and
                // message ID.
                if octets.get(2..6) == Some(&self.station_id.0.to_be_bytes()[..]) {
                    return Err(ItsDrop::OwnMessage);
                }
                self.ldm.handle_cam(now.time, octets)?;
                if self.deliver_cams {
                    let cam = Box::new(ca::receive(octets)?);
                    if self.cams.len() >= MAX_WAITING_CAMS {
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

    /// Returns the time at which the caller must call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        [self.ca.poll_timeout(), self.den.poll_timeout(), self.sa.poll_timeout()].into_iter().flatten().min()
    }

    /// Handles the timers of all services.
    pub fn handle_timeout(&mut self, now: Now) {
        self.ca.handle_timeout(now);
        self.den.handle_timeout(now);
        self.sa.handle_timeout(now);
    }

    /// Returns the next action for the caller. A received event is in the Local Dynamic Map before the
    /// application gets it.
    pub fn poll_output(&mut self, now: Now) -> Option<Output> {
        if let Some(transmission) =
            self.ca.poll_transmit().or_else(|| self.den.poll_transmit()).or_else(|| self.sa.poll_transmit())
        {
            return Some(Output::Transmit(transmission));
        }
        if let Some(event) = self.den.poll_event() {
            if let den::Event::Received { denm, expires } = &event {
                // The DEN service accepted the message, so the event has a position.
                let _ = self.ldm.handle_denm(now.time, denm, *expires);
            }
            return Some(Output::Event(event));
        }
        self.cams.pop_front().map(Output::Cam)
    }
}
