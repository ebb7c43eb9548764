//! The wing of the facilities: the services of `carnet_its`, fed with positions and with the vehicle data of
//! an application.

pub mod command;
pub mod config;
pub mod output;
pub mod plane;
pub mod status;

pub use config::FacilitiesSettings;
pub use plane::Facilities;
