//! `carnet check`: finds the mistakes in a config file, and in the files that the config names: trace,
//! tokens, certificates and keys.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use carnet_api::config::{Config, ConfigErrors, PositionSource, disclose_config};
use carnet_base::{Rng, Seed};
use carnet_linux::clock;
use carnet_linux::position::position_trace::PositionTrace;

use crate::settings::security::load_security;
use crate::upper_tester::{UPPER_TESTER_BUILT_IN, WITHOUT_UPPER_TESTER};

/// Exit status for a mistake in the config. The command line parser uses the same status for its mistakes.
pub const EXIT_CONFIG_MISTAKE: u8 = 2;

/// Checks a config file: prints its errors and warnings to stderr, one line each.
pub fn check_config_file(path: &Path) -> ExitCode {
    match Config::load_file(path) {
        Ok(config) => {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let advice = config
                .advice_on_config(&text)
                .into_iter()
                .chain(files_of_secrets_readable_by_others(&config, path, &text));
            for warning in config.warnings().into_iter().chain(advice) {
                eprintln!("{}: warning: {warning}", path.display());
            }
            let tokens = config.station.tcp_api.as_ref().and_then(|http| http.token_file.as_deref());
            let tokens =
                tokens.map_or(Ok(()), crate::http::check_tokens).map_err(|error| format!("{error:#}"));
            let trace = check_position_trace(&config).map_err(|error| error.to_string());
            let rng = Rng::from_seed(Seed::default());
            let security = load_security(&config, rng, clock::wall_time()).map(|furnished| {
                for warning in furnished.operator_warnings {
                    eprintln!("{}: warning: {warning}", path.display());
                }
            });
            let security = security.map_err(|error| format!("{}: {error:#}", path.display()));
            let tester = match &config.conformance {
                Some(_) if !UPPER_TESTER_BUILT_IN => {
                    Err(format!("{}: {WITHOUT_UPPER_TESTER}", path.display()))
                }
                _ => Ok(()),
            };
            let mistakes: Vec<String> =
                [tokens, trace, security, tester].into_iter().filter_map(Result::err).collect();
            for mistake in &mistakes {
                eprintln!("{mistake}");
            }
            if mistakes.is_empty()
                && let Some(encryption) = config.describe_encryption()
            {
                let _ = crate::print_escaped(&format!("tunnels: {encryption}\n"));
            }
            if mistakes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_CONFIG_MISTAKE) }
        }
        Err(errors) => print_config_errors(&errors),
    }
}

/// Returns warnings about key files that other users may read. Other secret files that others may read are
/// errors instead, because the station refuses them.
fn files_of_secrets_readable_by_others(config: &Config, path: &Path, text: &str) -> Vec<String> {
    let folder = path.parent().unwrap_or(Path::new(""));
    // The station refuses a token file that other users may read.
    let tokens = config.station.tcp_api.as_ref().and_then(|http| http.token_file.clone());
    let files = disclose_config(text).map(|disclosed| disclosed.secret_files).unwrap_or_default();
    let warning = |path: PathBuf| {
        let file = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
        let mode = file.permissions().mode() & 0o777;
        let what = "others may read the key in it";
        (mode & 0o066 != 0)
            .then(|| format!("{}: {what}, its mode is {mode:04o}, expected 0600", path.display()))
    };
    let files = files.into_iter().map(|file| folder.join(file)).filter(|file| Some(file) != tokens.as_ref());
    files.filter_map(warning).collect()
}

/// Reads the station's trace of positions in the same way as `run` does.
fn check_position_trace(config: &Config) -> carnet_linux::Result<()> {
    match config.geonet.as_ref().map(|geonet| &geonet.position_source) {
        Some(PositionSource::Trace(path)) => PositionTrace::read_trace(path).map(drop),
        _ => Ok(()),
    }
}

/// Prints the errors of a config and returns the exit status for them.
pub fn print_config_errors(errors: &ConfigErrors) -> ExitCode {
    eprintln!("{errors}");
    ExitCode::from(EXIT_CONFIG_MISTAKE)
}
