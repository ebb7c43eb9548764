//! The run loop (placeholder).

use std::path::Path;

use carnet_api::config::Config;

/// Runs a station until it is told to stop.
pub async fn run(_config: Config, _config_path: &Path) -> anyhow::Result<()> {
    anyhow::bail!("not in this version")
}
