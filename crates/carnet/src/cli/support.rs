//! The command line of `carnet support-bundle`.

use std::path::PathBuf;

use clap::Args;

use super::Station;

/// `carnet support-bundle`
#[derive(Debug, Args)]
pub struct SupportBundle {
    /// Path of the archive, a .tar.gz file that must not exist yet (default: carnet-NAME-TIME.tar.gz in the
    /// present directory).
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The config file (default: that of the running station, otherwise all in /etc/carnet).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The station.
    #[command(flatten)]
    pub station: Station,
}
