//! `[security]`: the trusted certificates, and the station's own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::keys::{
    Declared, Disclosure, Key, Kind, Optional, Section, Tables, integer, optional, table, value,
    with_default, words,
};
use super::reader::List;
use super::table::{Table, all};
use super::{kinds, values};

/// Values of the config table `[security]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    /// Policy for unsigned packets.
    pub policy: SecurityPolicy,
    /// Files with the certificates of trusted roots.
    pub roots: Vec<PathBuf>,
    /// Files with the certificates of authorities below the roots, each after the one that issued it.
    pub authorities: Vec<PathBuf>,
    /// Folder with the station's tickets and their keys; `None` if it signs no messages.
    pub tickets: Option<PathBuf>,
    /// Names of revoked certificates (HashedId8).
    pub revoked: Vec<[u8; 8]>,
    /// Maximum number of verifications in a second.
    pub verifications_per_second: u32,
    /// Changes of the station's pseudonym; `None` without changes.
    pub pseudonyms: Option<Pseudonyms>,
}

/// Values of the config table `[security.pseudonyms]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pseudonyms {
    /// Shortest and longest distance in metres before the first change.
    pub first_distance_m: (u16, u16),
    /// Minimum distance in metres that the vehicle drives between two changes.
    pub distance_m: u16,
    /// Shortest and longest time that the station waits before a change, in addition to the distance.
    pub time: (Duration, Duration),
    /// Longest time for which a change may be delayed.
    pub longest_lock: Duration,
}

/// Value of the config key `security.policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecurityPolicy {
    /// Nothing is signed or verified, as without the table.
    Off,
    /// The station signs its packets, verifies signed ones, and accepts unsigned ones.
    AcceptUnsigned,
    /// The station drops packets without a valid signature.
    Strict,
}

impl SecurityPolicy {
    /// All policies, with their names in the config file.
    pub const NAMES: [(&str, SecurityPolicy); 3] = [
        ("off", SecurityPolicy::Off),
        ("accept_unsigned", SecurityPolicy::AcceptUnsigned),
        ("strict", SecurityPolicy::Strict),
    ];
}

const EXPECTED_PATHS: &str = "paths of files with certificates, such as [\"root.cert\"]";
const EXPECTED_NAMES: &str = "names of certificates, such as [\"0123456789abcdef\"]";

/// Type of a path; a relative one starts in the config file's directory.
const PATH: Kind<PathBuf> = value("path", "a path", |value| {
    let folder = Path::new(value.file()).parent().unwrap_or(Path::new(""));
    value.parse("a path", values::path).map(|path| folder.join(path))
});
const PATHS: Kind<List<PathBuf>> = value("array of paths", EXPECTED_PATHS, |value| {
    List::read(value, EXPECTED_PATHS, |item| PATH.read(item))
});
const CERTIFICATES: Kind<List<[u8; 8]>> = value("array of names of certificates", EXPECTED_NAMES, |value| {
    List::read(value, EXPECTED_NAMES, |item| item.parse("16 hexadecimal digits", name))
});

static POLICY: Key<SecurityPolicy> = with_default(
    "policy",
    words(&SecurityPolicy::NAMES),
    "\"strict\"",
    "Which messages the station believes. `strict`: messages with a valid signature whose signer has the
     permission; it drops all others. `accept_unsigned`: signed messages as with `strict`, and all unsigned
     ones. `off`: as without this table.",
);
static ROOTS: Key<List<PathBuf>> = with_default("roots", PATHS, "[]", "Certificates of trusted roots.");
static AUTHORITIES: Key<List<PathBuf>> = with_default(
    "authorities",
    PATHS,
    "[]",
    "Certificates of Authorization Authorities below the roots, each after its issuer's. The station learns
     others on the road, when a station sends a certificate that is below a root.",
);
static TICKETS: Optional<PathBuf> = optional(
    "tickets",
    PATH.disclosed(Disclosure::PathOfSecret),
    "Folder with the station's own tickets, `NAME.cert`, each with its key beside it, `NAME.key`, which only
     its owner may read (0600). The first valid ticket signs; when it has expired, the next. Without this key
     the station signs nothing, and with `strict` it sends nothing.",
);
static REVOKED: Key<List<[u8; 8]>> = with_default(
    "revoked",
    CERTIFICATES,
    "[]",
    "Authorities, roots or tickets that the station no longer believes, by their HashedId8: 16 hexadecimal
     digits, as in `carnet-lab pki --list` and in the file names of tickets.",
);
static VERIFICATIONS_PER_SECOND: Key<u32> = with_default(
    "verifications_per_second",
    integer(1, 1_000_000),
    "2000",
    "Signatures that the station verifies in a second at most. Further messages wait, [each sender for its
     turn](security.md#fair-to-neighbours); after a second of waiting the station drops them.",
);
static PSEUDONYMS: Tables =
    table("pseudonyms", &PSEUDONYM, "See [`[security.pseudonyms]`](#securitypseudonyms).");

/// Keys of the config table `[security]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[security]",
    "security",
    &[&POLICY, &ROOTS, &AUTHORITIES, &TICKETS, &REVOKED, &VERIFICATIONS_PER_SECOND, &PSEUDONYMS],
);

static MIN_FIRST_DISTANCE: Key<u16> = with_default(
    "min_first_distance",
    kinds::LENGTH,
    "\"800m\"",
    "The first change comes after a random distance, between this",
);
static MAX_FIRST_DISTANCE: Key<u16> =
    with_default("max_first_distance", kinds::LENGTH, "\"1500m\"", "and this.");
static DISTANCE: Key<u16> = with_default(
    "distance",
    kinds::LENGTH,
    "\"800m\"",
    "Each later change comes after this distance, and then",
);
static MIN_TIME: Key<Duration> =
    with_default("min_time", kinds::DURATION, "\"2m\"", "after a random time, between this");
static MAX_TIME: Key<Duration> = with_default("max_time", kinds::DURATION, "\"6m\"", "and this.");
static LONGEST_LOCK: Key<Duration> = with_default(
    "longest_lock",
    kinds::DURATION,
    "\"255s\"",
    "How long an own event that the station reports, or an application, may delay a change.",
);

/// Keys of the config table `[security.pseudonyms]`.
static PSEUDONYM: Section = Section::new(
    "[security.pseudonyms]",
    "security.pseudonyms",
    &[&MIN_FIRST_DISTANCE, &MAX_FIRST_DISTANCE, &DISTANCE, &MIN_TIME, &MAX_TIME, &LONGEST_LOCK],
);

/// The parsed table, with the values that the checks compare with other tables.
pub(super) struct Draft {
    /// Position of the table in the file.
    pub at: usize,
    /// Position of `[security.pseudonyms]` in the file, if present.
    pub pseudonyms_at: Option<usize>,
    /// Config of the table; `None` if the table has an error.
    pub config: Option<Security>,
}

impl Draft {
    pub(super) fn read(table: &Table<'_>) -> Draft {
        let list = |paths: Option<List<PathBuf>>| paths.and_then(|paths| paths.complete());
        let config = all!(Security {
            policy: table.take(&POLICY),
            roots: list(table.take(&ROOTS)),
            authorities: list(table.take(&AUTHORITIES)),
            tickets: table.take(&TICKETS),
            revoked: table.take(&REVOKED).and_then(|names| names.complete()),
            verifications_per_second: table.take(&VERIFICATIONS_PER_SECOND),
            pseudonyms: table.table(&PSEUDONYMS).and_then(|table| match table {
                Some(table) => pseudonyms(&table).map(Some),
                None => Some(None),
            }),
        });
        let pseudonyms_at = table.value(&PSEUDONYMS).map(|value| value.at());
        Draft { at: table.at(), pseudonyms_at, config }
    }

    /// Returns whether the station has no tickets, so that it signs no messages.
    pub(super) fn has_no_tickets(&self) -> bool {
        self.config.as_ref().is_some_and(|security| security.tickets.is_none())
    }

    /// Returns whether security is on without a trusted root.
    pub(super) fn has_no_roots(&self) -> bool {
        let unused = |security: &Security| security.policy == SecurityPolicy::Off;
        self.config.as_ref().is_some_and(|security| !unused(security) && security.roots.is_empty())
    }
}

fn pseudonyms(table: &Table<'_>) -> Option<Pseudonyms> {
    let first = (table.take(&MIN_FIRST_DISTANCE), table.take(&MAX_FIRST_DISTANCE));
    let distance = table.take(&DISTANCE);
    let time = (table.take(&MIN_TIME), table.take(&MAX_TIME));
    let longest_lock = table.take(&LONGEST_LOCK);
    let first_distance_m = (first.0?, first.1?);
    let time = (time.0?, time.1?);
    let pairs: [(&dyn Declared, &dyn Declared, bool); 2] = [
        (&MIN_FIRST_DISTANCE, &MAX_FIRST_DISTANCE, first_distance_m.0 > first_distance_m.1),
        (&MIN_TIME, &MAX_TIME, time.0 > time.1),
    ];
    for (least, most, wrong) in pairs {
        // If the file has only one of the two keys, the error is at this key, because the other value is the
        // default.
        if let Some(value) = table.value(least).or_else(|| table.value(most)).filter(|_| wrong) {
            let (least, most) = (least.declaration().name, most.declaration().name);
            value.refuse(&format!("{least} is above {most}, expected {most} or less"));
            return None;
        }
    }
    Some(Pseudonyms { first_distance_m, distance_m: distance?, time, longest_lock: longest_lock? })
}

/// Parses the name of a certificate.
fn name(text: &str) -> Result<[u8; 8], String> {
    let number = (text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten();
    number
        .map(u64::to_be_bytes)
        .ok_or_else(|| format!("{text:?} is no name of a certificate, expected 16 hexadecimal digits"))
}
