//! `carnet check`: everything that is wrong with a config file, and with the trace that it names.

use std::path::Path;
use std::process::ExitCode;

use carnet_api::config::{Config, ConfigErrors, PositionSource};
use carnet_linux::position::trace::Trace;

/// Exit status for a mistake in the config, the same as for one on the command line.
pub const MISTAKE: u8 = 2;

/// Checks a config file: errors and warnings go to stderr, one line each.
pub fn check(path: &Path) -> ExitCode {
    match Config::load(path) {
        Ok(config) => {
            for warning in config.warnings() {
                eprintln!("{}: warning: {warning}", path.display());
            }
            match trace(&config) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::from(MISTAKE)
                }
            }
        }
        Err(errors) => refuse(&errors),
    }
}

/// Reads the trace that the station is to follow, as `run` will.
fn trace(config: &Config) -> carnet_linux::Result<()> {
    match config.geonet.as_ref().map(|geonet| &geonet.position) {
        Some(PositionSource::Trace(path)) => Trace::read(path).map(drop),
        _ => Ok(()),
    }
}

/// Prints the errors of a config and gives the exit status that goes with them.
pub fn refuse(errors: &ConfigErrors) -> ExitCode {
    eprintln!("{errors}");
    ExitCode::from(MISTAKE)
}
