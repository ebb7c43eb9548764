//! The Cooperative Awareness basic service (EN 302 637-2 V1.4.1 clause 6): generation times and content of
//! CAMs.
//!
//! The caller passes new data of the vehicle to the service whenever they change. The service sends a CAM
//! under these conditions (6.1.3):
//!
//! 1. `T_GenCam_DCC` after the last CAM, if heading, position or speed has changed by more than a limit since
//!    then. The limits are 4 degrees, 4 m and 0.5 m/s. `T_GenCam` becomes the time since the last CAM;
//! 2. `T_GenCam` after the last CAM, but not before `T_GenCam_DCC`. After `N_GenCam` CAMs in a row for this
//!    reason, `T_GenCam` becomes a second again.
//!
//! The standard checks the conditions every `T_CheckCamGen`. This service checks them when it gets new data
//! and when one of the two intervals ends, which is never later than in the standard. A roadside unit sends
//! at most once a second.
//!
//! Two rules are not obvious from the standard. The service sends nothing without a position, or with a
//! position older than [`CaParameters::maximum_data_age`]. A receiver could not distinguish a standing
//! vehicle from a vehicle without a fix. The service sends the special vehicle container of the vehicle's
//! role even if it has no data for it.
//!
//! Left out: the extension containers of release 2.

mod cam_conditions;
mod path_history;

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::Transport;
use carnet_wire::btp::port;
use carnet_wire::geonet::TrafficClass;

pub use cam_conditions::CaParameters;
pub use path_history::PathRecorder;

use crate::cam::{
    BasicContainer, BasicVehicleContainerHighFrequency, BasicVehicleContainerLowFrequency, Cam,
    CamParameters, CoopAwareness, DangerousGoodsContainer, EmergencyContainer, GenerationDeltaTime,
    HighFrequencyContainer, LowFrequencyContainer, PublicTransportContainer, RescueContainer,
    RoadWorksContainerBasic, RsuContainerHighFrequency, SafetyCarContainer, SpecialTransportContainer,
    SpecialVehicleContainer,
};
use crate::cdd::{
    ItsPduHeader, MessageId, ProtocolVersion, ReferencePosition, StationId, StationType, TimestampIts,
    VehicleRole,
};
use crate::io::encode_btp_payload;
use crate::{ItsDrop, ItsTime, MessageTransmission};
use cam_conditions::{CamConditions, MovementValues};

/// Maximum packet lifetime of a CAM in the GeoNetworking request. Clause 5.3.4.1 allows 1,000 ms; the ETSI
/// test purposes require a lower value.
const MAX_PACKET_LIFETIME: Duration = Duration::from_millis(950);
/// TC ID of CAMs: DCC profile DP2.
const CAM_TRAFFIC_CLASS: u8 = 2;
/// Protocol version of a CAM of V1.4.1.
const CAM_PROTOCOL_VERSION: ProtocolVersion = ProtocolVersion(2);

/// Content of a CAM after the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CamContent {
    /// Content of a vehicle's CAM.
    Vehicle {
        /// Position and movement of the vehicle.
        high_frequency: BasicVehicleContainerHighFrequency,
        /// Slowly changing data, which include the role.
        low_frequency: BasicVehicleContainerLowFrequency,
        /// Data of a vehicle with a special role, such as public transport. The service sends only the data
        /// of the role that the vehicle has.
        special: Option<SpecialVehicleContainer>,
    },
    /// Content of a roadside unit's CAM.
    RoadSideUnit(RsuContainerHighFrequency),
}

/// Data of this station: position, movement and vehicle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StationData {
    /// Position of the station.
    pub reference_position: ReferencePosition,
    /// Time of the position.
    pub position_time: TimestampIts,
    /// Content of the CAM besides the position.
    pub content: CamContent,
}

/// The Cooperative Awareness basic service of one station.
#[derive(Debug)]
pub struct CaService {
    parameters: CaParameters,
    station_id: StationId,
    station_type: StationType,
    is_active: bool,
    provided_data: Option<(Time, StationData)>,
    conditions: CamConditions,
    /// Time of the last CAM with a low-frequency container.
    last_low_frequency_container_at: Option<Time>,
    /// Time of the last CAM with a special vehicle container.
    last_special_container_at: Option<Time>,
    next_cam: Option<MessageTransmission>,
    /// Reason of the last failure, until the caller reads it.
    last_generation_error: Option<ItsDrop>,
    /// Time of the next attempt after a failure.
    next_attempt_at: Time,
}

impl CaService {
    /// Creates a service that has no station data yet, so it sends nothing.
    pub fn new(parameters: CaParameters, station_id: StationId, station_type: StationType) -> CaService {
        CaService {
            conditions: CamConditions::new(parameters),
            parameters,
            station_id,
            station_type,
            is_active: false,
            provided_data: None,
            last_low_frequency_container_at: None,
            last_special_container_at: None,
            next_cam: None,
            last_generation_error: None,
            next_attempt_at: Time::ZERO,
        }
    }

    /// Starts or stops sending CAMs (6.1.2). After a start, the first CAM has all containers.
    pub fn set_active(&mut self, now: ItsTime, active: bool) {
        if active && !self.is_active {
            self.conditions = CamConditions::new(self.parameters);
            self.last_low_frequency_container_at = None;
            self.last_special_container_at = None;
        }
        self.is_active = active;
        self.next_cam = None;
        self.build_due_cam(now);
    }

    /// Sets the station ID of the following CAMs.
    pub fn set_station_id(&mut self, station_id: StationId) {
        self.station_id = station_id;
        self.next_cam = None;
    }

    /// Sets the least interval of CAMs that DCC permits. The service limits the value to `T_GenCamMin` to
    /// `T_GenCamMax`.
    pub fn set_interval_of_dcc(&mut self, now: ItsTime, interval: Duration) {
        self.conditions.set_interval_of_dcc(interval);
        self.build_due_cam(now);
    }

    /// Handles new data about the station.
    pub fn handle_station_data(&mut self, now: ItsTime, provided: StationData) {
        self.provided_data = Some((now.time, provided));
        self.next_attempt_at = now.time;
        self.build_due_cam(now);
    }

    /// Returns the time at which the caller must call [`Self::handle_timeout`]; `None` before the first
    /// station data.
    pub fn poll_timeout(&self) -> Option<Time> {
        let (received, provided) = self.provided_data.as_ref().filter(|_| self.is_active)?;
        let due = match provided.content {
            CamContent::Vehicle { .. } => self.conditions.next_cam_at(movement_values_of(provided))?,
            CamContent::RoadSideUnit(_) => self.conditions.next_road_side_unit_cam_at()?,
        };
        let due = due.max(self.next_attempt_at);
        // If the data are too old when the CAM is due, the service sends nothing, so it needs no timer.
        (due <= *received + self.parameters.maximum_data_age).then_some(due)
    }

    /// Sends a CAM if its time has come.
    pub fn handle_timeout(&mut self, now: ItsTime) {
        self.build_due_cam(now);
    }

    /// Returns the CAM to send now, if one is due.
    pub fn poll_transmit(&mut self) -> Option<MessageTransmission> {
        self.next_cam.take()
    }

    /// Returns the reason why the service could not make the last CAM, once.
    pub fn poll_generation_error(&mut self) -> Option<ItsDrop> {
        self.last_generation_error.take()
    }

    /// Handles station data that does not fit a CAM. The CAM stays due, and the service tries again after a
    /// pause.
    fn refuse_station_data(&mut self, now: ItsTime, reason: ItsDrop) {
        self.last_generation_error = Some(reason);
        self.next_attempt_at = now.time + self.parameters.minimum_interval;
    }

    /// Makes a CAM if one is due.
    fn build_due_cam(&mut self, now: ItsTime) {
        // Drop data that are too old: otherwise a CAM would stay due without end.
        let oldest = self.parameters.maximum_data_age;
        self.provided_data.take_if(|(received, _)| now.time.saturating_since(*received) > oldest);
        let may = self.is_active && now.time >= self.next_attempt_at;
        let Some((_, provided)) = self.provided_data.as_ref().filter(|_| may) else { return };
        if provided.reference_position.position().is_none() {
            self.refuse_station_data(now, ItsDrop::NoPosition);
            return;
        }
        let holds = match provided.content {
            CamContent::Vehicle { .. } => {
                self.conditions.generation_reason(now.time, movement_values_of(provided))
            }
            CamContent::RoadSideUnit(_) => self.conditions.road_side_unit_reason(now.time),
        };
        let Some(reason) = holds else { return };
        let interval = self.parameters.low_frequency_interval;
        let low = self
            .last_low_frequency_container_at
            .is_none_or(|last| now.time.saturating_since(last) >= interval);
        let special =
            self.last_special_container_at.is_none_or(|last| now.time.saturating_since(last) >= interval);
        let cam = self.build_cam(provided, low, special);
        let has_special = cam.cam.cam_parameters.special_vehicle_container.is_some();
        match encode_btp_payload(port::CAM, &cam) {
            Ok(payload) => {
                self.conditions.record_cam(now.time, reason, movement_values_of(provided));
                self.last_low_frequency_container_at =
                    if low { Some(now.time) } else { self.last_low_frequency_container_at };
                self.last_special_container_at =
                    if has_special { Some(now.time) } else { self.last_special_container_at };
                self.next_cam = Some(MessageTransmission {
                    // 5.3.4.1: a CAM is a single-hop broadcast, which no station forwards.
                    transport: Transport::SingleHop([0; 4]),
                    traffic_class: TrafficClass { id: CAM_TRAFFIC_CLASS, ..TrafficClass::default() },
                    maximum_lifetime: MAX_PACKET_LIFETIME,
                    maximum_hop_limit: Some(1),
                    payload,
                });
            }
            Err(reason) => self.refuse_station_data(now, reason),
        }
    }

    fn build_cam(&self, provided: &StationData, low: bool, special: bool) -> Cam {
        let header = ItsPduHeader {
            protocol_version: CAM_PROTOCOL_VERSION,
            message_id: MessageId::CAM,
            station_id: self.station_id,
        };
        let (high_frequency_container, low_frequency_container, special_vehicle_container) = match &provided
            .content
        {
            CamContent::Vehicle { high_frequency, low_frequency, special: given } => (
                HighFrequencyContainer::BasicVehicleContainerHighFrequency(*high_frequency),
                low.then(|| LowFrequencyContainer::BasicVehicleContainerLowFrequency(low_frequency.clone())),
                special
                    .then(|| special_container_of_role(low_frequency.vehicle_role, given.as_ref()))
                    .flatten(),
            ),
            CamContent::RoadSideUnit(unit) => {
                (HighFrequencyContainer::RsuContainerHighFrequency(unit.clone()), None, None)
            }
        };
        let basic_container = BasicContainer {
            station_type: self.station_type,
            reference_position: provided.reference_position,
        };
        Cam {
            header,
            cam: CoopAwareness {
                // B.3: the generation time is the time of the position.
                generation_delta_time: GenerationDeltaTime(provided.position_time.0 as u16),
                cam_parameters: CamParameters {
                    basic_container,
                    high_frequency_container,
                    low_frequency_container,
                    special_vehicle_container,
                },
            },
        }
    }
}

/// Extracts the values that the conditions compare.
fn movement_values_of(provided: &StationData) -> MovementValues {
    let (heading, speed) = match &provided.content {
        CamContent::Vehicle { high_frequency, .. } => {
            (high_frequency.heading.heading_value, high_frequency.speed.speed_value)
        }
        CamContent::RoadSideUnit(_) => Default::default(),
    };
    MovementValues { position: provided.reference_position.position(), heading, speed }
}

/// Returns the special vehicle container of a role (6.1.4), with the given data or with default values;
/// `None` for a role without such a container.
fn special_container_of_role(
    role: VehicleRole,
    given: Option<&SpecialVehicleContainer>,
) -> Option<SpecialVehicleContainer> {
    use SpecialVehicleContainer as Special;
    let empty = match role {
        VehicleRole::PublicTransport => {
            Special::PublicTransportContainer(PublicTransportContainer::default())
        }
        VehicleRole::SpecialTransport => {
            Special::SpecialTransportContainer(SpecialTransportContainer::default())
        }
        VehicleRole::DangerousGoods => Special::DangerousGoodsContainer(DangerousGoodsContainer::default()),
        VehicleRole::RoadWork => Special::RoadWorksContainerBasic(RoadWorksContainerBasic::default()),
        VehicleRole::Rescue => Special::RescueContainer(RescueContainer::default()),
        VehicleRole::Emergency => Special::EmergencyContainer(EmergencyContainer::default()),
        VehicleRole::SafetyCar => Special::SafetyCarContainer(SafetyCarContainer::default()),
        _ => return None,
    };
    let fits = |given: &&Special| std::mem::discriminant(*given) == std::mem::discriminant(&empty);
    Some(given.filter(fits).cloned().unwrap_or(empty))
}

/// Reads a received CAM, without the BTP header.
///
/// # Errors
/// [`ItsDrop::Malformed`], [`ItsDrop::WrongMessage`] or [`ItsDrop::WrongVersion`].
pub fn parse_cam(octets: &[u8]) -> Result<Cam, ItsDrop> {
    let cam = Cam::from_octets(octets).map_err(|_| ItsDrop::Malformed)?;
    check_header(&cam.header, MessageId::CAM)?;
    Ok(cam)
}

/// Accepts versions 1 and 2, each with its own encoding ([`crate::version1`]); rejects later versions.
pub(crate) fn check_header(header: &ItsPduHeader, expected: MessageId) -> Result<(), ItsDrop> {
    if header.message_id != expected {
        return Err(ItsDrop::WrongMessage);
    }
    if !(1..=2).contains(&header.protocol_version.0) {
        return Err(ItsDrop::WrongVersion);
    }
    Ok(())
}
