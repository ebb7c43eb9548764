//! `[security]`: what signs and verifies, made of the files that the config names.
//!
//! The cryptography is a feature of this crate: without it a config that asks for signatures is refused, in words.

use anyhow::Result;
use carnet_api::config::{Config, Security, SecurityPolicy};
use carnet_base::{Rng, WallTime};
use carnet_station::geonet::security::SecurityEntity;

/// A security entity, and what an operator should know of it, one line each.
pub struct Furnished {
    /// The entity; `None` where packets go in the open.
    pub entity: Option<Box<dyn SecurityEntity>>,
    /// What is not as it should be, and yet no reason not to start.
    pub warnings: Vec<String>,
}

/// Reads certificates and keys, as they are to be taken on that date.
///
/// # Errors
/// What is wrong with which file, and what was expected.
pub fn furnish(config: &Config, rng: Rng, date: WallTime) -> Result<Furnished> {
    match config.security.as_ref().filter(|security| security.policy != SecurityPolicy::Off) {
        None => Ok(Furnished { entity: None, warnings: Vec::new() }),
        Some(security) => from_files(security, rng, date),
    }
}

#[cfg(not(feature = "security"))]
fn from_files(_: &Security, _: Rng, _: WallTime) -> Result<Furnished> {
    anyhow::bail!(
        "[security]: this program was built without signatures (feature `security`), expected policy = \"off\""
    )
}

#[cfg(feature = "security")]
fn from_files(security: &Security, rng: Rng, date: WallTime) -> Result<Furnished> {
    files::furnish(security, rng, date)
}

#[cfg(feature = "security")]
mod files {
    use std::fs;
    use std::path::{Path, PathBuf};

    use anyhow::{Context, Result, bail};
    use carnet_api::config::{Security, SecurityPolicy};
    use carnet_base::{Rng, Time, WallTime};
    use carnet_linux::key_file;
    use carnet_security::certificate::Certificate;
    use carnet_security::credentials::{Credential, Credentials, PrivateKey};
    #[cfg(feature = "aws-lc-rs")]
    use carnet_security::crypto::AwsLc as Computes;
    #[cfg(not(feature = "aws-lc-rs"))]
    use carnet_security::crypto::Portable256 as Computes;
    use carnet_security::ids::HashedId8;
    use carnet_security::pseudonym::Strategy;
    use carnet_security::time::Time64;
    use carnet_security::{Config, Now, Policy, Security as Entity, SecurityDrop};
    use carnet_wire::geonet::Timestamp;

    use super::Furnished;

    pub fn furnish(security: &Security, rng: Rng, date: WallTime) -> Result<Furnished> {
        let tickets = match &security.tickets {
            Some(folder) => ticket_files(folder)?,
            None => Vec::new(),
        };
        let credentials = Credentials {
            roots: security.roots.iter().map(|path| certificate(path)).collect::<Result<_>>()?,
            authorities: security.authorities.iter().map(|path| certificate(path)).collect::<Result<_>>()?,
            revoked: security.revoked.iter().map(|name| HashedId8(*name)).collect(),
            tickets: tickets.iter().map(|path| ticket(path)).collect::<Result<_>>()?,
        };
        let config = Config {
            policy: match security.policy {
                SecurityPolicy::Off => Policy::Off,
                SecurityPolicy::AcceptUnsigned => Policy::AcceptUnsigned,
                SecurityPolicy::Strict => Policy::Strict,
            },
            verifications_per_second: security.verifications_per_second,
            pseudonyms: security.pseudonyms.map(|pseudonyms| Strategy {
                first_distance: (pseudonyms.first_distance_m.0.into(), pseudonyms.first_distance_m.1.into()),
                distance: pseudonyms.distance_m.into(),
                time: pseudonyms.time,
                longest_lock: pseudonyms.longest_lock,
            }),
            ..Config::default()
        };
        let leap_seconds = u32::try_from(Timestamp::LEAP_SECONDS)?;
        let now = Now { time: Time::ZERO, date: Time64::from_wall_time(date, leap_seconds) };
        // No country has a polygon here: a certificate for countries holds nowhere.
        let mut entity = Entity::new(config, Box::new(Computes), Box::new(()), rng);
        for (credential, reason) in credentials.furnish(&mut entity, &Computes, now) {
            let (key, path) = match credential {
                Credential::Root(index) => ("roots", security.roots.get(index)),
                Credential::Authority(index) => ("authorities", security.authorities.get(index)),
                // They are issued for weeks, and used up.
                Credential::Ticket(_) if reason == SecurityDrop::CertificateExpired => continue,
                Credential::Ticket(index) => ("tickets", tickets.get(index)),
            };
            let path = path.map(PathBuf::as_path).unwrap_or(Path::new("")).display();
            bail!("security.{key}: {path} is refused: {}", words(reason));
        }
        let mut warnings = Vec::new();
        match &security.tickets {
            None => warnings.push("security.tickets: there are none: this station signs nothing".to_owned()),
            Some(folder) if entity.own_tickets(now).is_empty() => {
                let folder = folder.display();
                warnings.push(format!("security.tickets: of the tickets in {folder} none holds now"));
            }
            Some(_) => {}
        }
        Ok(Furnished { entity: Some(Box::new(entity)), warnings })
    }

    /// The reason for which others would not believe it.
    fn words(reason: SecurityDrop) -> &'static str {
        match reason {
            SecurityDrop::WrongRole => "it is a certificate for something else",
            SecurityDrop::BadKey => {
                "its key is not the one in the .key file, or on a curve that this program does not have"
            }
            SecurityDrop::UnknownIssuer => "its issuer is not among security.roots and security.authorities",
            SecurityDrop::BadCertificateSignature => "its issuer did not sign it",
            SecurityDrop::AlgorithmMismatch => "it is signed on another curve than its issuer's",
            SecurityDrop::InconsistentChain => "it holds longer, further or for more than its issuer's",
            SecurityDrop::CertificateNotYetValid => "it, or its issuer's, does not hold yet",
            SecurityDrop::CertificateExpired => "it, or its issuer's, does not hold any more",
            SecurityDrop::Revoked => "it, or its issuer's, is among security.revoked",
            _ => "it is not to be trusted",
        }
    }

    fn certificate(path: &Path) -> Result<Certificate> {
        let octets = fs::read(path).with_context(|| format!("[security]: cannot read {}", path.display()))?;
        Certificate::parse(&octets)
            .with_context(|| format!("[security]: {}, expected a certificate of TS 103 097", path.display()))
    }

    /// The certificates of tickets in a folder, in the order of their names.
    fn ticket_files(folder: &Path) -> Result<Vec<PathBuf>> {
        let what = || format!("security.tickets: cannot read {}, expected a folder", folder.display());
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).with_context(what)? {
            files.push(entry.with_context(what)?.path());
        }
        files.retain(|path| path.extension().is_some_and(|extension| extension == "cert"));
        files.sort();
        Ok(files)
    }

    /// A ticket, and the key in the file beside it.
    fn ticket(path: &Path) -> Result<(Certificate, PrivateKey)> {
        let file = path.with_extension("key");
        let octets = key_file::read(&file)
            .with_context(|| format!("security.tickets: cannot take {}", file.display()))?;
        let key = std::str::from_utf8(&octets).ok().and_then(PrivateKey::parse);
        let expected = "expected a line with a curve's name and a scalar in hexadecimal digits";
        let key = key.with_context(|| format!("security.tickets: {}: {expected}", file.display()))?;
        Ok((certificate(path)?, key))
    }
}
