//! `[security]`: creates the security entity from the files that the config names.
//!
//! The cryptography is an optional feature of this crate. Without the feature, the program refuses a config
//! with signatures and says why.

use anyhow::Result;
use carnet_api::config::{Config, Security, SecurityPolicy};
use carnet_base::{Rng, WallTime};
use carnet_cits::security::SecurityEntity;

/// A security entity, with warnings for the operator.
pub struct LoadedSecurity {
    /// The security entity; `None` if the station sends unsecured packets.
    pub security_entity: Option<Box<dyn SecurityEntity>>,
    /// Warnings that do not prevent the start.
    pub operator_warnings: Vec<String>,
}

/// Reads the certificates and keys that the config names, and checks their validity on `date`.
///
/// # Errors
/// Returns the mistake, with its file and the expected content.
pub fn load_security(config: &Config, rng: Rng, date: WallTime) -> Result<LoadedSecurity> {
    match config.security.as_ref().filter(|security| security.unsigned_packet_policy != SecurityPolicy::Off) {
        None => Ok(LoadedSecurity { security_entity: None, operator_warnings: Vec::new() }),
        Some(security) => load_from_files(security, rng, date),
    }
}

#[cfg(not(feature = "security"))]
fn load_from_files(_: &Security, _: Rng, _: WallTime) -> Result<LoadedSecurity> {
    anyhow::bail!(
        "[security]: this program was built without signatures (feature `security`), expected policy = \
         \"off\""
    )
}

#[cfg(feature = "security")]
fn load_from_files(security: &Security, rng: Rng, date: WallTime) -> Result<LoadedSecurity> {
    certificate_files::load_security(security, rng, date)
}

#[cfg(feature = "security")]
mod certificate_files {
    use std::fs;
    use std::path::{Path, PathBuf};

    use anyhow::{Context, Result, bail};
    use carnet_api::config::{self, Security};
    use carnet_base::{Rng, Time, WallTime};
    use carnet_linux::key_file;
    use carnet_security::certificate::Certificate;
    use carnet_security::credentials::{CredentialName, Credentials, PrivateKey};
    #[cfg(feature = "aws-lc-rs")]
    use carnet_security::crypto::AwsLc as Computes;
    #[cfg(not(feature = "aws-lc-rs"))]
    use carnet_security::crypto::PortableBackend256 as Computes;
    use carnet_security::ids::HashedId8;
    use carnet_security::pseudonym::PseudonymStrategy;
    use carnet_security::time::Time64;
    use carnet_security::{
        SecurityConfig, SecurityDrop, SecurityPolicy, SecurityStation as Entity, SecurityTime,
    };
    use carnet_wire::geonet::Timestamp;

    use super::LoadedSecurity;

    pub fn load_security(security: &Security, rng: Rng, date: WallTime) -> Result<LoadedSecurity> {
        let tickets = match &security.ticket_folder {
            Some(folder) => ticket_files(folder)?,
            None => Vec::new(),
        };
        let credentials = Credentials {
            root_certificates: security
                .root_files
                .iter()
                .map(|path| read_certificate(path))
                .collect::<Result<_>>()?,
            authorities: security
                .authority_files
                .iter()
                .map(|path| read_certificate(path))
                .collect::<Result<_>>()?,
            revoked_certificates: security.revoked_certificates.iter().map(|name| HashedId8(*name)).collect(),
            tickets: tickets.iter().map(|path| read_ticket(path)).collect::<Result<_>>()?,
        };
        let config = SecurityConfig {
            policy: match security.unsigned_packet_policy {
                config::SecurityPolicy::Off => SecurityPolicy::Off,
                config::SecurityPolicy::AcceptUnsigned => SecurityPolicy::AcceptUnsigned,
                config::SecurityPolicy::Strict => SecurityPolicy::Strict,
            },
            verifications_per_second: security.verifications_per_second,
            pseudonym_strategy: security.pseudonyms.map(|pseudonyms| PseudonymStrategy {
                first_change_distance: (
                    pseudonyms.first_change_distance_range_m.0.into(),
                    pseudonyms.first_change_distance_range_m.1.into(),
                ),
                later_change_distance: pseudonyms.min_change_distance_m.into(),
                random_time_after_distance: pseudonyms.time,
                max_lock_time: pseudonyms.max_change_delay,
            }),
            ..SecurityConfig::default()
        };
        let leap_seconds = u32::try_from(Timestamp::LEAP_SECONDS)?;
        let now =
            SecurityTime { time: Time::ZERO, certificate_time: Time64::from_wall_time(date, leap_seconds) };
        // The program does not know the borders of countries, so a certificate that is restricted to
        // countries is valid nowhere.
        let mut entity = Entity::new(config, Box::new(Computes), Box::new(()), rng);
        let mut warnings = Vec::new();
        let holds = |certificate: &Certificate| {
            let validity = &certificate.content().validity;
            validity.start.start_of_second() <= now.certificate_time
                && now.certificate_time < validity.first_invalid_time()
        };
        let is_over = |certificate: &Certificate| {
            certificate.content().validity.first_invalid_time() <= now.certificate_time
        };
        let issuers = credentials.root_certificates.iter().zip(&security.root_files).map(|it| ("roots", it));
        let issuers = issuers.chain(
            credentials.authorities.iter().zip(&security.authority_files).map(|it| ("authorities", it)),
        );
        for (key, (certificate, path)) in issuers.filter(|(_, (certificate, _))| !holds(certificate)) {
            let path = path.display();
            warnings.push(match is_over(certificate) {
                true => format!(
                    "security.{key}: {path} has expired: the station accepts nothing that it has signed"
                ),
                false => format!(
                    "security.{key}: {path} is not valid yet: until then the station accepts nothing that \
                     it has signed"
                ),
            });
        }
        for (credential, reason) in credentials.add_credentials(&mut entity, &Computes, now) {
            let (key, path) = match credential {
                CredentialName::Root(index) => ("roots", security.root_files.get(index)),
                // The operator has already got a warning about the dates. The entity checks the dates again
                // at each use.
                CredentialName::Authority(_) if is_about_validity_dates(reason) => continue,
                // The authority that issued the ticket may be missing, because its own dates were not valid.
                CredentialName::Authority(index)
                    if credentials.authorities.get(index).is_some_and(is_over) =>
                {
                    continue;
                }
                CredentialName::Authority(index) => ("authorities", security.authority_files.get(index)),
                // An operator gets tickets for weeks in advance. They expire one after the other, so an
                // expired ticket is no mistake.
                CredentialName::Ticket(_) if is_about_validity_dates(reason) => continue,
                CredentialName::Ticket(index)
                    if credentials.tickets.get(index).is_some_and(|(it, _)| is_over(it)) =>
                {
                    continue;
                }
                CredentialName::Ticket(index) => ("tickets", tickets.get(index)),
            };
            let path = path.map(PathBuf::as_path).unwrap_or(Path::new("")).display();
            bail!("security.{key}: carnet refuses the certificate {path}: {}", refusal_text(reason));
        }
        match &security.ticket_folder {
            None => warnings.push(
                "security.tickets: the folder has no tickets, so this station signs \
                nothing"
                    .to_owned(),
            ),
            Some(folder) if entity.own_tickets(now).is_empty() => {
                let folder = folder.display();
                warnings.push(format!("security.tickets: of the tickets in {folder} none is valid now"));
            }
            Some(_) => {}
        }
        Ok(LoadedSecurity { security_entity: Some(Box::new(entity)), operator_warnings: warnings })
    }

    /// Returns whether the reason to refuse a certificate is its dates.
    fn is_about_validity_dates(reason: SecurityDrop) -> bool {
        matches!(reason, SecurityDrop::CertificateNotYetValid | SecurityDrop::CertificateExpired)
    }

    /// Returns the reason why other stations would refuse a certificate, in words.
    fn refusal_text(reason: SecurityDrop) -> &'static str {
        match reason {
            SecurityDrop::WrongRole => "it is a certificate for another purpose",
            SecurityDrop::BadKey => {
                "its key is not the one in the .key file, or on a curve that this program does not have"
            }
            SecurityDrop::UnknownIssuer => "its issuer is not among security.roots and security.authorities",
            SecurityDrop::BadCertificateSignature => "its issuer did not sign it",
            SecurityDrop::AlgorithmMismatch => "it is signed on another curve than its issuer's",
            SecurityDrop::InconsistentChain => {
                "it is valid for a longer time, a larger region or more \
                permissions than its issuer's certificate"
            }
            SecurityDrop::CertificateNotYetValid => "it or its issuer's certificate is not valid yet",
            SecurityDrop::CertificateExpired => "it or its issuer's certificate has expired",
            SecurityDrop::Revoked => "it or its issuer's certificate is in security.revoked",
            _ => "it cannot be trusted",
        }
    }

    fn read_certificate(path: &Path) -> Result<Certificate> {
        let octets = fs::read(path).with_context(|| format!("[security]: cannot read {}", path.display()))?;
        Certificate::parse(&octets)
            .with_context(|| format!("[security]: {}, expected a certificate of TS 103 097", path.display()))
    }

    /// Returns the certificate files of the tickets in a folder, in the order of their names.
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

    /// Reads a ticket, and its key from the file beside it.
    fn read_ticket(path: &Path) -> Result<(Certificate, PrivateKey)> {
        let file = path.with_extension("key");
        let octets = key_file::read_key_file(&file)
            .with_context(|| format!("security.tickets: cannot take {}", file.display()))?;
        let key = std::str::from_utf8(&octets).ok().and_then(PrivateKey::parse);
        let expected = "expected a line with a curve's name and a scalar in hexadecimal digits";
        let key = key.with_context(|| format!("security.tickets: {}: {expected}", file.display()))?;
        Ok((read_certificate(path)?, key))
    }
}

#[cfg(all(test, feature = "security"))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use carnet_api::config::Security;
    use carnet_base::Time;
    use carnet_security::certificate::Certificate;
    use carnet_security::credentials::PrivateKey;
    use carnet_security::crypto::{CryptoBackend, PortableBackend, SigningKey};
    use carnet_security::keys::EllipticCurve;
    use carnet_security::time::{DurationUnit, Time32, Time64, ValidityDuration, ValidityPeriod};
    use carnet_security::{SecurityTime, pki};

    use super::*;
    use crate::scratch::ScratchFolder;

    /// Date of the tests in seconds since 1970.
    const TODAY_UNIX_SECONDS: u64 = 1_795_300_000;
    const DAY_IN_SECONDS: i64 = 86_400;

    fn date_after_days(days: i64) -> WallTime {
        WallTime::from_unix_nanos((TODAY_UNIX_SECONDS as i64 + days * DAY_IN_SECONDS) as u64 * 1_000_000_000)
    }

    /// Returns a validity period of `count` days that begins `from` days after today.
    fn validity_of_days(from: i64, count: u16) -> ValidityPeriod {
        let start = Time64::from_wall_time(date_after_days(from), 5).to_seconds();
        ValidityPeriod {
            start: Time32(start.0),
            duration: ValidityDuration { unit: DurationUnit::Hours, unit_count: 24 * count },
        }
    }

    fn signing_key(number: u8) -> Box<dyn SigningKey> {
        PortableBackend.signing_key(EllipticCurve::NistP256, &[number; 32]).expect("a scalar")
    }

    struct CertificateFiles {
        scratch_folder: ScratchFolder,
        root_certificate: Certificate,
    }

    impl CertificateFiles {
        fn new(root: ValidityPeriod) -> CertificateFiles {
            let scratch = ScratchFolder::new();
            let content = pki::root_certificate_content("root", signing_key(1).public_key(), root, None);
            let root = pki::issue_certificate(&PortableBackend, signing_key(1).as_ref(), None, content)
                .expect("a certificate");
            fs::write(scratch.path().join("root.cert"), root.octets()).expect("a file");
            fs::create_dir_all(scratch.path().join("tickets")).expect("a folder");
            CertificateFiles { scratch_folder: scratch, root_certificate: root }
        }

        /// Creates an authority with this number, and a ticket that it has issued. Returns the path of the
        /// authority's certificate.
        fn create_authority(&self, number: u8, validity: ValidityPeriod) -> PathBuf {
            let content =
                pki::authority_certificate_content("aa", signing_key(number).public_key(), validity, None);
            let authority = pki::issue_certificate(
                &PortableBackend,
                signing_key(1).as_ref(),
                Some(&self.root_certificate),
                content,
            )
            .expect("issued");
            let path = self.scratch_folder.path().join(format!("{number}.cert"));
            fs::write(&path, authority.octets()).expect("a file");
            let own = number + 100;
            let content = pki::ticket_content(
                signing_key(own).public_key(),
                validity,
                None,
                pki::test_applications(false),
            );
            let ticket = pki::issue_certificate(
                &PortableBackend,
                signing_key(number).as_ref(),
                Some(&authority),
                content,
            )
            .expect("issued");
            let place = self.scratch_folder.path().join("tickets").join(format!("{own}.cert"));
            fs::write(&place, ticket.octets()).expect("a file");
            let private = PrivateKey::new(EllipticCurve::NistP256, &[own; 32]).expect("a scalar");
            let place = place.with_extension("key");
            fs::write(&place, private.to_line()).expect("a file");
            fs::set_permissions(&place, fs::Permissions::from_mode(0o600)).expect("a mode");
            path
        }

        fn load_warnings(&self, authorities: Vec<PathBuf>, date: WallTime) -> Result<Vec<String>> {
            let security = Security {
                unsigned_packet_policy: carnet_api::config::SecurityPolicy::Strict,
                root_files: vec![self.scratch_folder.path().join("root.cert")],
                authority_files: authorities,
                ticket_folder: Some(self.scratch_folder.path().join("tickets")),
                revoked_certificates: Vec::new(),
                verifications_per_second: 1000,
                pseudonyms: None,
            };
            let furnished = load_from_files(&security, Rng::new(1), date)?;
            assert!(furnished.security_entity.is_some());
            Ok(furnished.operator_warnings)
        }
    }

    #[test]
    fn authority_certificate_outside_its_validity_causes_a_warning() {
        let files = CertificateFiles::new(validity_of_days(-10, 300));
        let authorities = vec![
            files.create_authority(2, validity_of_days(-1, 30)),
            files.create_authority(3, validity_of_days(25, 30)),
        ];
        let warnings = files
            .load_warnings(authorities.clone(), date_after_days(0))
            .expect("the certificates can be used");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("3.cert is not valid yet"), "{warnings:?}");
        // A month later only the second authority is valid.
        let warnings =
            files.load_warnings(authorities, date_after_days(40)).expect("the certificates can be used");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("2.cert has expired"), "{warnings:?}");
    }

    #[test]
    fn expired_and_not_yet_valid_certificates_cause_a_warning() {
        let files = CertificateFiles::new(validity_of_days(-10, 20));
        let authorities = vec![files.create_authority(2, validity_of_days(-1, 5))];
        for (day, text) in [(-100, "is not valid yet"), (100, "has expired")] {
            let warnings = files
                .load_warnings(authorities.clone(), date_after_days(day))
                .expect("the certificates can be used");
            assert_eq!(warnings.iter().filter(|it| it.contains(text)).count(), 2, "{warnings:?}");
            assert!(warnings.last().is_some_and(|it| it.contains("none is valid now")), "{warnings:?}");
        }
    }

    #[test]
    fn certificate_of_another_root_is_refused() {
        let (files, others) = (
            CertificateFiles::new(validity_of_days(-10, 20)),
            CertificateFiles::new(validity_of_days(-20, 40)),
        );
        let authorities = vec![others.create_authority(2, validity_of_days(-1, 5))];
        let error = files.load_warnings(authorities, date_after_days(0)).expect_err("a mistake");
        assert!(error.to_string().contains("its issuer is not among security.roots"), "{error}");
    }

    /// The entity checks certificates against a moment of its own, which must be on the date of the tests.
    #[test]
    fn security_entity_uses_the_date_of_the_tests() {
        let now = SecurityTime {
            time: Time::ZERO,
            certificate_time: Time64::from_wall_time(date_after_days(0), 5),
        };
        assert!(validity_of_days(0, 1).contains_time(now.certificate_time));
    }
}
