//! Settings of the facilities.

use carnet_its::cdd::{StationId, StationType, VehicleLengthValue, VehicleRole, VehicleWidth};
use carnet_its::facilities::FacilitiesParameters;
use carnet_its::sa::AnnouncedService;

/// Settings of a station's facilities.
#[derive(Debug, Clone, PartialEq)]
pub struct FacilitiesSettings {
    /// Bounds and intervals of the services.
    pub parameters: FacilitiesParameters,
    /// Station ID; `None`: the station derives it from the GN address.
    pub station_id: Option<StationId>,
    /// Type of the station.
    pub station_type: StationType,
    /// Whether the station sends CAMs.
    pub sends_cams: bool,
    /// Length of the vehicle, until an application sets another length.
    pub vehicle_length: VehicleLengthValue,
    /// Width of the vehicle, until an application sets another width.
    pub vehicle_width: VehicleWidth,
    /// Role of the vehicle, until an application sets another role.
    pub vehicle_role: VehicleRole,
    /// Services that the station announces.
    pub announced_services: Vec<AnnouncedService>,
    /// Name of the station in its service announcements, for people: 1 to 32 octets.
    pub advertiser_name: Option<String>,
}
