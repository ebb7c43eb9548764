//! The facilities layer of a station: the services of `carnet_its`, which get positions and the vehicle data
//! of an application.

pub mod command;
pub mod config;
pub mod output;
pub mod plane;
pub mod status;

pub use config::FacilitiesSettings;
pub use plane::Facilities;
