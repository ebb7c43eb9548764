//! `carnet check`: everything that is wrong with a config file.

use std::path::Path;
use std::process::ExitCode;

use carnet_api::config::{Config, ConfigErrors};

/// Exit status for a mistake in the config, the same as for one on the command line.
pub const MISTAKE: u8 = 2;

/// Checks a config file: errors and warnings go to stderr, one line each.
pub fn check(path: &Path) -> ExitCode {
    match Config::load(path) {
        Ok(config) => {
            for warning in config.warnings() {
                eprintln!("{}: warning: {warning}", path.display());
            }
            ExitCode::SUCCESS
        }
        Err(errors) => refuse(&errors),
    }
}

/// Prints the errors of a config and gives the exit status that goes with them.
pub fn refuse(errors: &ConfigErrors) -> ExitCode {
    eprintln!("{errors}");
    ExitCode::from(MISTAKE)
}
