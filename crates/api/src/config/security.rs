//! `[security]`: the trusted certificates, and the certificates of the station.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::keys::{
    DeclaredKey, Disclosure, Key, OptionalKey, Section, TableKey, ValueKind, integer_kind, key_with_default,
    optional_key, optional_table, value_kind, words_kind,
};
use super::reader::List;
use super::table::{Table, all};
use super::{kinds, values};

/// Values of the config table `[security]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    /// Policy for unsigned packets.
    pub unsigned_packet_policy: SecurityPolicy,
    /// Files with the certificates of trusted roots.
    pub root_files: Vec<PathBuf>,
    /// Files with the certificates of authorities below the roots, each after the one that issued it.
    pub authority_files: Vec<PathBuf>,
    /// Folder with the station's tickets and their keys; `None` if it signs no messages.
    pub ticket_folder: Option<PathBuf>,
    /// Names of revoked certificates (HashedId8).
    pub revoked_certificates: Vec<[u8; 8]>,
    /// Maximum number of verifications in a second.
    pub verifications_per_second: u32,
    /// Changes of the station's pseudonym; `None` without changes.
    pub pseudonyms: Option<Pseudonyms>,
}

/// Values of the config table `[security.pseudonyms]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pseudonyms {
    /// Shortest and longest distance in metres before the first change.
    pub first_change_distance_range_m: (u16, u16),
    /// Minimum distance in metres that the vehicle drives between two changes.
    pub min_change_distance_m: u16,
    /// Shortest and longest time that the station waits before a change, after it has driven the distance.
    pub time: (Duration, Duration),
    /// Longest time for which a change may be delayed.
    pub max_change_delay: Duration,
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
    pub const POLICY_NAMES: [(&str, SecurityPolicy); 3] = [
        ("off", SecurityPolicy::Off),
        ("accept_unsigned", SecurityPolicy::AcceptUnsigned),
        ("strict", SecurityPolicy::Strict),
    ];
}

const EXPECTED_PATHS: &str = "paths of files with certificates, such as [\"root.cert\"]";
const EXPECTED_NAMES: &str = "names of certificates, such as [\"0123456789abcdef\"]";

/// Type of a path; a relative one starts in the config file's directory.
const PATH_KIND: ValueKind<PathBuf> = value_kind("path", "a path", |value| {
    let folder = Path::new(value.file()).parent().unwrap_or(Path::new(""));
    value.parse("a path", values::parse_path).map(|path| folder.join(path))
});
const PATHS_KIND: ValueKind<List<PathBuf>> = value_kind("array of paths", EXPECTED_PATHS, |value| {
    List::read_array(value, EXPECTED_PATHS, |item| PATH_KIND.read_value(item))
});
const CERTIFICATES_KIND: ValueKind<List<[u8; 8]>> =
    value_kind("array of names of certificates", EXPECTED_NAMES, |value| {
        List::read_array(value, EXPECTED_NAMES, |item| {
            item.parse("16 hexadecimal digits", parse_certificate_name)
        })
    });

static UNSIGNED_PACKET_POLICY: Key<SecurityPolicy> = key_with_default(
    "policy",
    words_kind(&SecurityPolicy::POLICY_NAMES),
    "\"strict\"",
    "Which messages the station believes. `strict`: messages with a valid signature whose signer has the
     permission; it drops all others. `accept_unsigned`: signed messages as with `strict`, and all unsigned
     ones. `off`: as without this table.",
);
static ROOT_FILES: Key<List<PathBuf>> =
    key_with_default("roots", PATHS_KIND, "[]", "Certificates of trusted roots.");
static AUTHORITY_FILES: Key<List<PathBuf>> = key_with_default(
    "authorities",
    PATHS_KIND,
    "[]",
    "Certificates of Authorization Authorities below the roots, each after its issuer's. The station learns
     others on the road, when a station sends a certificate that is below a root.",
);
static TICKET_FOLDER: OptionalKey<PathBuf> = optional_key(
    "tickets",
    PATH_KIND.with_disclosure(Disclosure::PathOfSecret),
    "Folder with the station's own tickets, `NAME.cert`, each with its key beside it, `NAME.key`, which only
     its owner may read (0600). The first valid ticket signs; when it has expired, the next. Without this key
     the station signs nothing, and with `strict` it sends nothing.",
);
static REVOKED_CERTIFICATES: Key<List<[u8; 8]>> = key_with_default(
    "revoked",
    CERTIFICATES_KIND,
    "[]",
    "Authorities, roots or tickets that the station no longer believes, by their HashedId8: 16 hexadecimal
     digits, as in `carnet-lab pki --list` and in the file names of tickets.",
);
static VERIFICATIONS_PER_SECOND: Key<u32> = key_with_default(
    "verifications_per_second",
    integer_kind(1, 1_000_000),
    "2000",
    "Signatures that the station verifies in a second at most. Further messages wait, [each sender for its
     turn](security.md#fair-to-neighbours); after a second of waiting the station drops them.",
);
static PSEUDONYMS: TableKey =
    optional_table("pseudonyms", &PSEUDONYM_TABLE, "See [`[security.pseudonyms]`](#securitypseudonyms).");

/// Keys of the config table `[security]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[security]",
    "security",
    &[
        &UNSIGNED_PACKET_POLICY,
        &ROOT_FILES,
        &AUTHORITY_FILES,
        &TICKET_FOLDER,
        &REVOKED_CERTIFICATES,
        &VERIFICATIONS_PER_SECOND,
        &PSEUDONYMS,
    ],
);

static MIN_FIRST_DISTANCE: Key<u16> = key_with_default(
    "min_first_distance",
    kinds::LENGTH_KIND,
    "\"800m\"",
    "The first change comes after a random distance, between this",
);
static MAX_FIRST_DISTANCE: Key<u16> =
    key_with_default("max_first_distance", kinds::LENGTH_KIND, "\"1500m\"", "and this.");
static MIN_CHANGE_DISTANCE: Key<u16> = key_with_default(
    "distance",
    kinds::LENGTH_KIND,
    "\"800m\"",
    "Each later change comes after this distance, and then",
);
static MIN_CHANGE_TIME: Key<Duration> =
    key_with_default("min_time", kinds::DURATION_KIND, "\"2m\"", "after a random time, between this");
static MAX_CHANGE_TIME: Key<Duration> =
    key_with_default("max_time", kinds::DURATION_KIND, "\"6m\"", "and this.");
static LONGEST_LOCK: Key<Duration> = key_with_default(
    "longest_lock",
    kinds::DURATION_KIND,
    "\"255s\"",
    "How long an own event that the station reports, or an application, may delay a change.",
);

/// Keys of the config table `[security.pseudonyms]`.
static PSEUDONYM_TABLE: Section = Section::new(
    "[security.pseudonyms]",
    "security.pseudonyms",
    &[
        &MIN_FIRST_DISTANCE,
        &MAX_FIRST_DISTANCE,
        &MIN_CHANGE_DISTANCE,
        &MIN_CHANGE_TIME,
        &MAX_CHANGE_TIME,
        &LONGEST_LOCK,
    ],
);

/// The parsed table, with the values that the checks compare with other tables.
pub(super) struct UncheckedSecurity {
    /// Position of the table in the file.
    pub table_offset: usize,
    /// Position of `[security.pseudonyms]` in the file, if present.
    pub pseudonyms_offset: Option<usize>,
    /// Config of the table; `None` if the table has an error.
    pub config: Option<Security>,
}

impl UncheckedSecurity {
    pub(super) fn read_table(table: &Table<'_>) -> UncheckedSecurity {
        let list = |paths: Option<List<PathBuf>>| paths.and_then(|paths| paths.complete_items());
        let config = all!(Security {
            unsigned_packet_policy: table.read_key(&UNSIGNED_PACKET_POLICY),
            root_files: list(table.read_key(&ROOT_FILES)),
            authority_files: list(table.read_key(&AUTHORITY_FILES)),
            ticket_folder: table.read_key(&TICKET_FOLDER),
            revoked_certificates: table
                .read_key(&REVOKED_CERTIFICATES)
                .and_then(|names| names.complete_items()),
            verifications_per_second: table.read_key(&VERIFICATIONS_PER_SECOND),
            pseudonyms: table.subtable(&PSEUDONYMS).and_then(|table| match table {
                Some(table) => read_pseudonyms(&table).map(Some),
                None => Some(None),
            }),
        });
        let pseudonyms_at = table.value_of_key(&PSEUDONYMS).map(|value| value.offset());
        UncheckedSecurity { table_offset: table.table_offset(), pseudonyms_offset: pseudonyms_at, config }
    }

    /// Returns whether the station has no tickets, so that it signs no messages.
    pub(super) fn has_no_tickets(&self) -> bool {
        self.config.as_ref().is_some_and(|security| security.ticket_folder.is_none())
    }

    /// Returns whether security is on without a trusted root.
    pub(super) fn has_no_roots(&self) -> bool {
        let unused = |security: &Security| security.unsigned_packet_policy == SecurityPolicy::Off;
        self.config.as_ref().is_some_and(|security| !unused(security) && security.root_files.is_empty())
    }
}

fn read_pseudonyms(table: &Table<'_>) -> Option<Pseudonyms> {
    let first = (table.read_key(&MIN_FIRST_DISTANCE), table.read_key(&MAX_FIRST_DISTANCE));
    let distance = table.read_key(&MIN_CHANGE_DISTANCE);
    let time = (table.read_key(&MIN_CHANGE_TIME), table.read_key(&MAX_CHANGE_TIME));
    let max_change_delay = table.read_key(&LONGEST_LOCK);
    let first_change_distance_range_m = (first.0?, first.1?);
    let time = (time.0?, time.1?);
    let pairs: [(&dyn DeclaredKey, &dyn DeclaredKey, bool); 2] = [
        (
            &MIN_FIRST_DISTANCE,
            &MAX_FIRST_DISTANCE,
            first_change_distance_range_m.0 > first_change_distance_range_m.1,
        ),
        (&MIN_CHANGE_TIME, &MAX_CHANGE_TIME, time.0 > time.1),
    ];
    for (least, most, wrong) in pairs {
        // If the file has only one of the two keys, report the error there: the other value is the default.
        if let Some(value) = table.value_of_key(least).or_else(|| table.value_of_key(most)).filter(|_| wrong)
        {
            let (least, most) = (least.declaration().name, most.declaration().name);
            value.report_error(&format!("{least} is above {most}, expected {most} or less"));
            return None;
        }
    }
    Some(Pseudonyms {
        first_change_distance_range_m,
        min_change_distance_m: distance?,
        time,
        max_change_delay: max_change_delay?,
    })
}

/// Parses the name of a certificate.
fn parse_certificate_name(text: &str) -> Result<[u8; 8], String> {
    let number = (text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten();
    number
        .map(u64::to_be_bytes)
        .ok_or_else(|| format!("{text:?} is no name of a certificate, expected 16 hexadecimal digits"))
}
