//! The command line of `carnet support-bundle`.

use std::path::PathBuf;

use clap::Args;

use super::Station;

/// `carnet support-bundle`
#[derive(Debug, Args)]
pub struct SupportBundle {
    /// The archive to write, a .tar.gz that is not there yet (default: carnet-NAME-TIME.tar.gz here).
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The config file (default: that of the running station, or else all in /etc/carnet).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The station.
    #[command(flatten)]
    pub station: Station,
}
