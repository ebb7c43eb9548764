//! `carnet check`: finds the mistakes in a config file, and in the files that the config names: trace,
//! tokens, certificates and keys.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use carnet_api::config::{Config, ConfigErrors, PositionSource, disclose};
use carnet_base::{Rng, Seed};
use carnet_linux::clock;
use carnet_linux::position::trace::PositionTrace;

use crate::settings::security::furnish;
use crate::upper_tester::{UPPER_TESTER, WITHOUT_UPPER_TESTER};

/// Exit status for a mistake in the config. The command line parser uses the same status for its mistakes.
pub const MISTAKE: u8 = 2;

/// Checks a config file: prints its errors and warnings to stderr, one line each.
pub fn check(path: &Path) -> ExitCode {
    match Config::load(path) {
        Ok(config) => {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let advice = config.advice(&text).into_iter().chain(readable_secrets(&config, path, &text));
            for warning in config.warnings().into_iter().chain(advice) {
                eprintln!("{}: warning: {warning}", path.display());
            }
            let tokens = config.station.http.as_ref().and_then(|http| http.tokens.as_deref());
            let tokens =
                tokens.map_or(Ok(()), crate::http::check_tokens).map_err(|error| format!("{error:#}"));
            let trace = trace(&config).map_err(|error| error.to_string());
            let rng = Rng::from_seed(Seed::default());
            let security = furnish(&config, rng, clock::wall_time()).map(|furnished| {
                for warning in furnished.warnings {
                    eprintln!("{}: warning: {warning}", path.display());
                }
            });
            let security = security.map_err(|error| format!("{}: {error:#}", path.display()));
            let tester = match &config.conformance {
                Some(_) if !UPPER_TESTER => Err(format!("{}: {WITHOUT_UPPER_TESTER}", path.display())),
                _ => Ok(()),
            };
            let mistakes: Vec<String> =
                [tokens, trace, security, tester].into_iter().filter_map(Result::err).collect();
            for mistake in &mistakes {
                eprintln!("{mistake}");
            }
            if mistakes.is_empty()
                && let Some(encryption) = config.encryption()
            {
                let _ = crate::print(&format!("tunnels: {encryption}\n"));
            }
            if mistakes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(MISTAKE) }
        }
        Err(errors) => refuse(&errors),
    }
}

/// Returns warnings about key files that other users may read. Files of other kinds that are readable are
/// errors instead, because the station refuses them.
fn readable_secrets(config: &Config, path: &Path, text: &str) -> Vec<String> {
    let folder = path.parent().unwrap_or(Path::new(""));
    // The station refuses a token file that other users may read.
    let tokens = config.station.http.as_ref().and_then(|http| http.tokens.clone());
    let files = disclose(text).map(|disclosed| disclosed.secret_files).unwrap_or_default();
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
fn trace(config: &Config) -> carnet_linux::Result<()> {
    match config.geonet.as_ref().map(|geonet| &geonet.position) {
        Some(PositionSource::Trace(path)) => PositionTrace::read_trace(path).map(drop),
        _ => Ok(()),
    }
}

/// Prints the errors of a config and returns the exit status for them.
pub fn refuse(errors: &ConfigErrors) -> ExitCode {
    eprintln!("{errors}");
    ExitCode::from(MISTAKE)
}
