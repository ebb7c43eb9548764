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
use crate::{ItsDrop, ItsTime, MessageTransmission};

/// Largest number of CAMs that wait for the application; the facilities drop the oldest ones.
const MAX_UNREAD_CAMS: usize = 64;

/// Parameters of the services.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FacilitiesParameters {
    /// Parameters of the CA basic service.
    pub ca_parameters: ca::CaParameters,
    /// Parameters of the DEN basic service.
    pub den_parameters: den::DenParameters,
    /// Parameters of the map.
    pub ldm_parameters: ldm::LdmParameters,
    /// Parameters of the service announcement service.
    pub sa_parameters: sa::SaParameters,
    /// Whether applications get each received CAM in full. The Local Dynamic Map always stores its main
    /// fields.
    pub delivers_cams: bool,
}

/// Action for the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Send a message to the network.
    Transmit(MessageTransmission),
    /// A received CAM of another station.
    Cam(Box<Cam>),
    /// An event of another station, for applications.
    Event(den::DenEvent),
}

/// The facilities of a station.
#[derive(Debug)]
pub struct Facilities {
    /// The CA basic service.
    pub ca_service: CaService,
    /// The DEN basic service.
    pub den_service: DenService,
    /// The Local Dynamic Map.
    pub ldm: LocalDynamicMap,
    /// The service announcement service.
    pub sa_service: SaService,
    station_id: StationId,
    delivers_cams: bool,
    received_cams: VecDeque<Box<Cam>>,
}

impl Facilities {
    /// Creates the facilities of a station that sends nothing yet. All random numbers follow from `seed`,
    /// which must stay secret.
    pub fn new(
        parameters: FacilitiesParameters,
        station_id: StationId,
        station_type: StationType,
        seed: u64,
    ) -> Facilities {
        Facilities {
            ca_service: CaService::new(parameters.ca_parameters, station_id, station_type),
            den_service: DenService::new(parameters.den_parameters, station_id, station_type, seed),
            ldm: LocalDynamicMap::new(parameters.ldm_parameters, seed),
            sa_service: SaService::new(parameters.sa_parameters, station_id),
            station_id,
            delivers_cams: parameters.delivers_cams,
            received_cams: VecDeque::new(),
        }
    }

    /// Returns the station ID.
    pub fn station_id(&self) -> StationId {
        self.station_id
    }

    /// Sets a new station ID after a change of pseudonym.
    pub fn set_station_id(&mut self, station_id: StationId) {
        self.station_id = station_id;
        self.ca_service.set_station_id(station_id);
        self.den_service.set_station_id(station_id);
        self.sa_service.set_station_id(station_id);
    }

    /// Handles new data about the station.
    pub fn handle_station_data(&mut self, now: ItsTime, provided: ca::StationData) {
        if let Some(position) = provided.reference_position.position() {
            self.handle_position(position);
        }
        self.ca_service.handle_station_data(now, provided);
    }

    /// Handles the position of the station, for keep-alive forwarding.
    pub fn handle_position(&mut self, position: Position) {
        self.den_service.handle_position(position);
    }

    /// Handles the payload of a BTP packet (without BTP header) from the station with GN address `source`.
    /// `area` is the destination area of the packet, if it has one.
    ///
    /// # Errors
    ///
    /// The reason why the services ignored the payload: [`ItsDrop`].
    pub fn handle_message(
        &mut self,
        now: ItsTime,
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
                if self.delivers_cams {
                    let cam = Box::new(ca::parse_cam(octets)?);
                    if self.received_cams.len() >= MAX_UNREAD_CAMS {
                        self.received_cams.pop_front();
                    }
                    self.received_cams.push_back(cam);
                }
                Ok(())
            }
            port::DENM => self.den_service.handle_message(now, octets, area),
            port::SAEM => self.sa_service.handle_message(now, source, octets),
            _ => Err(ItsDrop::UnknownPort),
        }
    }

    /// Returns the time at which the caller must call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        [self.ca_service.poll_timeout(), self.den_service.poll_timeout(), self.sa_service.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles the timers of all services.
    pub fn handle_timeout(&mut self, now: ItsTime) {
        self.ca_service.handle_timeout(now);
        self.den_service.handle_timeout(now);
        self.sa_service.handle_timeout(now);
    }

    /// Returns the next action for the caller. A received event is in the Local Dynamic Map before the
    /// application gets it.
    pub fn poll_output(&mut self, now: ItsTime) -> Option<Output> {
        if let Some(transmission) = self
            .ca_service
            .poll_transmit()
            .or_else(|| self.den_service.poll_transmit())
            .or_else(|| self.sa_service.poll_transmit())
        {
            return Some(Output::Transmit(transmission));
        }
        if let Some(event) = self.den_service.poll_event() {
            if let den::DenEvent::Received { denm, expires } = &event {
                // The DEN service accepted the message, so the event has a position.
                let _ = self.ldm.handle_denm(now.time, denm, *expires);
            }
            return Some(Output::Event(event));
        }
        self.received_cams.pop_front().map(Output::Cam)
    }
}
