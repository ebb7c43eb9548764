//! `carnet-lab pki DIR`: creates a public key infrastructure for tests and closed fleets, in a folder.
//!
//! ```text
//!   DIR/root.cert    root.key     the root, who signs authorities
//!   DIR/aa.cert      aa.key       the Authorization Authority, who signs tickets
//!   DIR/tickets/NAME.cert NAME.key   tickets; NAME is the HashedId8
//! ```
//!
//! A `.cert` file contains the certificate's octets (TS 103 097). A `.key` file has one line with the curve
//! and the private scalar in hexadecimal digits, with mode 0600. A station gets the root and authority
//! certificates and some tickets with their keys; the keys of root and authority stay in the folder. Another
//! run with `--tickets` adds tickets. `--list` lists them.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use carnet_base::{Rng, WallTime};
use carnet_linux::key_file;
use carnet_security::certificate::{Certificate, CertificateRole, Issuer, ToBeSignedCertificate};
use carnet_security::config::{SecurityConfig, SecurityPolicy};
use carnet_security::credentials::PrivateKey;
use carnet_security::crypto::{PortableBackend, SigningKey, name_of_certificate};
use carnet_security::keys::EllipticCurve;
use carnet_security::permissions::{PsidSsp, Ssp};
use carnet_security::region::{GeographicRegion, IdentifiedRegion};
use carnet_security::time::{DurationUnit, Time64, ValidityDuration, ValidityPeriod};
use carnet_security::{SecurityStation, SecurityTime, Ticket, pki};

/// Leap seconds since 2004, by which UTC is behind TAI.
const LEAP_SECONDS: u32 = 5;

/// A curve, by its name in key files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CurveName {
    NistP256,
    #[value(name = "brainpoolp256r1")]
    BrainpoolP256r1,
    #[value(name = "brainpoolp384r1")]
    BrainpoolP384r1,
    NistP384,
}

impl CurveName {
    const fn curve(self) -> EllipticCurve {
        match self {
            CurveName::NistP256 => EllipticCurve::NistP256,
            CurveName::BrainpoolP256r1 => EllipticCurve::BrainpoolP256r1,
            CurveName::BrainpoolP384r1 => EllipticCurve::BrainpoolP384r1,
            CurveName::NistP384 => EllipticCurve::NistP384,
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct PkiArgs {
    /// The folder, created if absent.
    folder: PathBuf,
    /// List the files of the folder instead, and whether a station would accept each of them.
    #[arg(long)]
    list: bool,
    /// Number of tickets to add.
    #[arg(long, default_value_t = 5)]
    tickets: u8,
    /// The curve of new keys.
    #[arg(long, value_enum, default_value = "nist-p256")]
    curve: CurveName,
    /// Validity of new tickets, in hours.
    #[arg(long, default_value_t = 168)]
    hours: u16,
    /// Country in which new tickets are valid (UN M49 number; repeat the option for several); without it
    /// anywhere.
    #[arg(long, value_name = "NUMBER")]
    country: Vec<u16>,
    /// New tickets allow every message content: emergency vehicles, roadworks.
    #[arg(long)]
    everything: bool,
}

pub fn run(args: &PkiArgs) -> anyhow::Result<()> {
    if !args.list {
        create_pki(args)?;
    }
    print!("{}", list_certificates(&args.folder)?);
    io::stdout().flush()?;
    Ok(())
}

impl PkiArgs {
    /// Returns the arguments that add this many tickets on NIST P-256, and create the missing parts of the
    /// folder.
    pub const fn arguments_for_tickets(folder: PathBuf, tickets: u8) -> PkiArgs {
        PkiArgs {
            folder,
            list: false,
            tickets,
            curve: CurveName::NistP256,
            hours: 24,
            country: Vec::new(),
            everything: false,
        }
    }
}

fn current_time() -> anyhow::Result<SecurityTime> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let date = WallTime::from_unix_nanos(u64::try_from(since.as_nanos())?);
    Ok(SecurityTime {
        time: carnet_base::Time::ZERO,
        certificate_time: Time64::from_wall_time(date, LEAP_SECONDS),
    })
}

/// Creates a new key in a new file.
fn create_key_file(path: &Path, curve: CurveName) -> anyhow::Result<Box<dyn SigningKey>> {
    let curve = curve.curve();
    let mut random = [0; 48];
    let mut source = fs::File::open("/dev/urandom").context("/dev/urandom")?;
    loop {
        source.read_exact(&mut random).context("/dev/urandom")?;
        let private = random.get(..curve.octets()).and_then(|scalar| PrivateKey::new(curve, scalar));
        // Try again: some random numbers are not valid private keys of the curve.
        let Some((private, key)) =
            private.and_then(|key| Some((key.clone(), key.to_signing_key(&PortableBackend)?)))
        else {
            continue;
        };
        key_file::write_key_file(path, private.to_line().as_bytes())
            .with_context(|| path.display().to_string())?;
        return Ok(key);
    }
}

fn read_key(path: &Path) -> anyhow::Result<Box<dyn SigningKey>> {
    let octets = key_file::read_key_file(path).with_context(|| path.display().to_string())?;
    let private = std::str::from_utf8(&octets).ok().and_then(PrivateKey::parse);
    private
        .and_then(|key| key.to_signing_key(&PortableBackend))
        .with_context(|| format!("{}: expected a curve's name and a scalar of it", path.display()))
}

fn read_certificate(path: &Path) -> anyhow::Result<Certificate> {
    let octets = fs::read(path).with_context(|| path.display().to_string())?;
    Certificate::parse(&octets).with_context(|| path.display().to_string())
}

fn write_certificate(path: &Path, certificate: &Certificate) -> anyhow::Result<()> {
    fs::write(path, certificate.octets()).with_context(|| path.display().to_string())
}

fn validity_beginning_at(now: SecurityTime, unit: DurationUnit, count: u16) -> ValidityPeriod {
    // Let the validity begin a minute ago, because clocks differ.
    let start = now.certificate_time.saturating_sub(Duration::from_secs(60)).to_seconds();
    ValidityPeriod { start, duration: ValidityDuration { unit, unit_count: count } }
}

/// Returns the issuer in the folder, or creates it.
fn find_or_create_issuer(
    folder: &Path,
    name: &str,
    curve: CurveName,
    above: Option<&(Certificate, Box<dyn SigningKey>)>,
    content: impl FnOnce(&dyn SigningKey) -> ToBeSignedCertificate,
) -> anyhow::Result<(Certificate, Box<dyn SigningKey>)> {
    let (certificate, key) = (folder.join(format!("{name}.cert")), folder.join(format!("{name}.key")));
    if certificate.exists() {
        return Ok((read_certificate(&certificate)?, read_key(&key)?));
    }
    let key = create_key_file(&key, curve)?;
    let issued = match above {
        Some((issuer, signs)) => {
            pki::issue_certificate(&PortableBackend, signs.as_ref(), Some(issuer), content(key.as_ref()))
        }
        None => pki::issue_certificate(&PortableBackend, key.as_ref(), None, content(key.as_ref())),
    }?;
    write_certificate(&certificate, &issued)?;
    Ok((issued, key))
}

/// Creates the missing parts of the folder, and the tickets.
pub fn create_pki(args: &PkiArgs) -> anyhow::Result<()> {
    let (folder, now) = (&args.folder, current_time()?);
    let tickets = folder.join("tickets");
    fs::create_dir_all(&tickets).with_context(|| tickets.display().to_string())?;
    let root = find_or_create_issuer(folder, "root", args.curve, None, |key| {
        pki::root_certificate_content(
            "carnet test root",
            key.public_key(),
            validity_beginning_at(now, DurationUnit::Years, 6),
            None,
        )
    })?;
    let authority = find_or_create_issuer(folder, "aa", args.curve, Some(&root), |key| {
        pki::authority_certificate_content(
            "carnet test aa",
            key.public_key(),
            validity_beginning_at(now, DurationUnit::Years, 3),
            None,
        )
    })?;
    let countries: Vec<_> =
        args.country.iter().map(|number| IdentifiedRegion::CountryOnly(*number)).collect();
    let region = (!countries.is_empty()).then_some(GeographicRegion::Identified(countries));
    for _ in 0..args.tickets {
        let path = tickets.join("new.key");
        let key = create_key_file(&path, args.curve)?;
        let content = pki::ticket_content(
            key.public_key(),
            validity_beginning_at(now, DurationUnit::Hours, args.hours),
            region.clone(),
            pki::test_applications(args.everything),
        );
        let ticket =
            pki::issue_certificate(&PortableBackend, authority.1.as_ref(), Some(&authority.0), content)?;
        let name = name_of_certificate(&PortableBackend, &ticket);
        write_certificate(&tickets.join(format!("{name}.cert")), &ticket)?;
        fs::rename(&path, tickets.join(format!("{name}.key")))?;
    }
    Ok(())
}

/// Returns a list of the files in the folder, and whether a station would accept each of them.
fn list_certificates(folder: &Path) -> anyhow::Result<String> {
    use std::fmt::Write as _;
    let now = current_time()?;
    let config = SecurityConfig { policy: SecurityPolicy::Strict, ..SecurityConfig::default() };
    let mut security = SecurityStation::new(config, Box::new(PortableBackend), Box::new(()), Rng::new(0));
    let mut text = String::new();
    let (root, authority) =
        (read_certificate(&folder.join("root.cert"))?, read_certificate(&folder.join("aa.cert"))?);
    security.add_root(root.clone()).map_err(|reason| anyhow::anyhow!("root.cert: {reason}"))?;
    security.add_authority(now, authority.clone()).map_err(|reason| anyhow::anyhow!("aa.cert: {reason}"))?;
    for (name, certificate) in [("root", &root), ("aa", &authority)] {
        // The key is missing in a station's folder, which has only the certificates of root and authority.
        let key = match folder.join(format!("{name}.key")) {
            path if path.exists() => {
                read_key(&path)?;
                "here"
            }
            _ => "not here",
        };
        writeln!(text, "{}", describe_certificate(certificate, key))?;
    }
    let mut paths: Vec<_> = fs::read_dir(folder.join("tickets"))
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "cert"))
        .collect();
    paths.sort();
    let mut refused = 0;
    for path in paths {
        let certificate = read_certificate(&path)?;
        let taken = read_key(&path.with_extension("key")).and_then(|key| {
            let ticket = Ticket { certificate: certificate.clone(), key };
            security.add_own_ticket(now, ticket).map_err(|reason| anyhow::anyhow!("{reason}"))
        });
        let state = match taken {
            Ok(_) => "here".to_owned(),
            Err(error) => {
                refused += 1;
                format!("REFUSED: {error:#}")
            }
        };
        writeln!(text, "{}", describe_certificate(&certificate, &state))?;
    }
    if refused > 0 {
        print!("{text}");
        bail!("a station would refuse {refused} of these tickets");
    }
    Ok(text)
}

fn describe_certificate(certificate: &Certificate, key: &str) -> String {
    let content = certificate.content();
    let role = match certificate.certificate_role() {
        CertificateRole::Root => "root",
        CertificateRole::Authority => "authority",
        CertificateRole::Ticket => "ticket",
        CertificateRole::Enrolment => "enrolment credential",
        CertificateRole::Other => "certificate",
    };
    let issuer = match certificate.issuer() {
        Issuer::Itself(_) => "itself".to_owned(),
        Issuer::Digest(_, digest) => digest.to_string(),
    };
    let applications: Vec<_> = content.application_permissions.iter().map(describe_application).collect();
    let region = match &content.validity_region {
        None => "anywhere".to_owned(),
        Some(GeographicRegion::Identified(countries)) => {
            let countries: Vec<_> = countries.iter().map(|region| region.country().to_string()).collect();
            format!("countries {}", countries.join(", "))
        }
        Some(GeographicRegion::Circular { radius, .. }) => format!("a circle of {radius} m"),
        Some(GeographicRegion::Rectangular(list)) => format!("{} rectangles", list.len()),
        Some(GeographicRegion::Polygonal(corners)) => format!("a polygon of {} corners", corners.len()),
    };
    format!(
        "{role} {name}{title}\n  issued by {issuer} on {curve}, {octets} octets\n  holds {from} to {to}, \
         {region}\n  applications {applications}; key {key}",
        name = name_of_certificate(&PortableBackend, certificate),
        title = content.name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default(),
        curve = content.verification_key.curve().name(),
        octets = certificate.octets().len(),
        from = format_date(content.validity.start.start_of_second()),
        to = format_date(content.validity.first_invalid_time()),
        applications = if applications.is_empty() { "none".to_owned() } else { applications.join(" ") },
    )
}

fn describe_application(application: &PsidSsp) -> String {
    let ssp = match &application.ssp {
        None => String::new(),
        Some(Ssp::Bitmap(octets) | Ssp::Opaque(octets)) => {
            octets.iter().fold(":".to_owned(), |text, octet| text + &format!("{octet:02x}"))
        }
    };
    format!("{}{ssp}", application.psid.0)
}

/// Formats a date in UTC.
fn format_date(moment: Time64) -> String {
    let seconds = (moment.0 / 1_000_000).saturating_sub(u64::from(LEAP_SECONDS));
    let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
    let mut year = 2004;
    let length = |year: u64| {
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        if leap { 366 } else { 365 }
    };
    while days >= length(year) {
        days -= length(year);
        year += 1;
    }
    let february = if length(year) == 366 { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}T{:02}:{:02}:{:02}Z", days + 1, rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says no more by expect")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn certificate_dates_are_converted() {
        // 2026-11-22T12:34:56Z is 1795350896 seconds after 1970.
        let moment = WallTime::from_unix_nanos(1_795_350_896_000_000_000);
        assert_eq!(format_date(Time64::from_wall_time(moment, LEAP_SECONDS)), "2026-11-22T12:34:56Z");
        let leap_day = WallTime::from_unix_nanos(1_709_164_800_000_000_000);
        assert_eq!(format_date(Time64::from_wall_time(leap_day, LEAP_SECONDS)), "2024-02-29T00:00:00Z");
    }

    #[test]
    fn pki_command_writes_certificates_and_keys() {
        let folder = std::env::temp_dir().join(format!("carnet-pki-{}", std::process::id()));
        let args = PkiArgs {
            folder: folder.clone(),
            list: false,
            tickets: 2,
            curve: CurveName::BrainpoolP256r1,
            hours: 24,
            country: vec![250],
            everything: false,
        };
        create_pki(&args).unwrap();
        // A second run keeps the issuers and adds tickets.
        create_pki(&args).unwrap();
        let text = list_certificates(&folder).unwrap();
        let count = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
        assert_eq!((count("root "), count("authority "), count("ticket ")), (1, 1, 4), "{text}");
        assert!(text.contains("countries 250") && text.contains("36:010000"), "{text}");
        // A station refuses a key file that other users may read, so the list fails.
        let mut keys: Vec<_> = fs::read_dir(folder.join("tickets"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "key"))
            .collect();
        keys.sort();
        fs::set_permissions(&keys[0], fs::Permissions::from_mode(0o640)).unwrap();
        assert!(list_certificates(&folder).is_err());
        fs::set_permissions(&keys[0], fs::Permissions::from_mode(0o600)).unwrap();
        // The key of another ticket does not match the certificate.
        fs::copy(&keys[1], &keys[0]).unwrap();
        assert!(list_certificates(&folder).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
