//! `[facilities]`: converts the config section to the settings of the services.

use carnet_api::config;
use carnet_cits::facilities::FacilitiesSettings;
use carnet_its::cdd::{self, StationId, StationType, VehicleLengthValue, VehicleWidth};
use carnet_its::facilities::FacilitiesParameters;
use carnet_its::sa::AnnouncedService;
use carnet_its::sam::{ItsAid, MAX_IDENTIFIER_LENGTH};
use carnet_its::{den, ldm};

/// Returns the settings of the facilities for a station of this type.
pub(crate) fn facilities_settings(
    config: &config::Facilities,
    name: &str,
    station_type: config::StationType,
) -> FacilitiesSettings {
    // A limit that does not fit into `usize` can never be reached, so the largest `usize` replaces it.
    let size = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    let role = cdd::VehicleRole::ALL.get(config.vehicle_role as usize).copied();
    FacilitiesSettings {
        parameters: FacilitiesParameters {
            den_parameters: den::DenParameters {
                keep_alive_forwarding: config.keep_alive,
                max_received_events: size(config.max_ldm_events),
                ..den::DenParameters::default()
            },
            ldm_parameters: ldm::LdmParameters {
                max_stations: size(config.max_ldm_stations),
                max_events: size(config.max_ldm_events),
                ..ldm::LdmParameters::default()
            },
            ..FacilitiesParameters::default()
        },
        station_id: config.station_id.map(StationId),
        station_type: StationType(station_type.type_number()),
        sends_cams: config.sends_cams,
        vehicle_length: config.vehicle_length_dm.map(VehicleLengthValue).unwrap_or_default(),
        vehicle_width: config.vehicle_width_dm.map(VehicleWidth).unwrap_or_default(),
        vehicle_role: role.unwrap_or_default(),
        announced_services: config
            .announced_services
            .iter()
            .map(|service| AnnouncedService {
                its_aid: ItsAid(service.its_aid),
                address: service.address,
                port: service.port,
                context: Vec::new(),
            })
            .collect(),
        // A service announcement cannot carry a name above this length, so the station announces no name
        // then.
        advertiser_name: Some(name)
            .filter(|name| (1..=MAX_IDENTIFIER_LENGTH).contains(&name.len()))
            .map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vehicle_roles_have_numbers_of_the_standard() {
        for (name, role) in config::VehicleRole::NAMES {
            let ours = cdd::VehicleRole::ALL[role as usize];
            let spelt = format!("{ours:?}").to_lowercase();
            assert_eq!(spelt, name.replace('_', ""));
        }
    }
}
