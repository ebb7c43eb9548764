//! `[security]` as it was read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::errors::Sink;
use super::super::reader::{Table, Value};
use super::super::schema;
use super::super::security::{Pseudonyms, Security, SecurityPolicy};
use super::super::values;
use super::geonet::integer;

const PATHS: &str = "paths of files with certificates, such as [\"root.cert\"]";
const NAMES: &str = "names of certificates, such as [\"0123456789abcdef\"]";

/// `[security]`
pub(in crate::config) struct SecurityDraft {
    /// Where the table stands in the file.
    pub at: usize,
    /// Where `[security.pseudonyms]` does, if it is there.
    pub pseudonyms_at: Option<usize>,
    security: Option<Security>,
}

impl SecurityDraft {
    pub(in crate::config) fn read(at: usize, table: &Table<'_>, sink: &Sink<'_>) -> SecurityDraft {
        let pseudonyms_at = table.get("pseudonyms").map(|value| value.at());
        SecurityDraft { at, pseudonyms_at, security: read(table, sink) }
    }

    /// Whether it signs nothing, for want of tickets.
    pub(in crate::config) fn has_no_tickets(&self) -> bool {
        self.security.as_ref().is_some_and(|security| security.tickets.is_none())
    }

    /// Whether it is in use without a root that is trusted.
    pub(in crate::config) fn trusts_nobody(&self) -> bool {
        let unused = |security: &Security| security.policy == SecurityPolicy::Off;
        self.security.as_ref().is_some_and(|security| !unused(security) && security.roots.is_empty())
    }

    pub(in crate::config) fn finish(self) -> Option<Security> {
        self.security
    }
}

fn read(table: &Table<'_>, sink: &Sink<'_>) -> Option<Security> {
    // A relative path starts where the config file is.
    let folder = Path::new(sink.file()).parent().unwrap_or(Path::new(""));
    let path = |text: &str| values::path(text).map(|path| folder.join(path));
    // All of them, so that all mistakes are told.
    let policy = match table.get("policy") {
        Some(value) => value.word(&SecurityPolicy::NAMES, &[]).map(|word| word.value),
        None => Some(SecurityPolicy::Strict),
    };
    let roots = list(table.get("roots"), PATHS, "a path", path);
    let authorities = list(table.get("authorities"), PATHS, "a path", path);
    let tickets: Option<Option<PathBuf>> = match table.get("tickets") {
        Some(value) => value.parse("a path", path).map(|path| Some(path.value)),
        None => Some(None),
    };
    let revoked = list(table.get("revoked"), NAMES, "16 hexadecimal digits", name);
    let verifications = integer(table, "verifications_per_second", 1, 1_000_000, 2000);
    let pseudonyms = match table.get("pseudonyms") {
        Some(value) => value.table(&schema::PSEUDONYMS).and_then(|table| read_pseudonyms(&table)).map(Some),
        None => Some(None),
    };
    Some(Security {
        policy: policy?,
        roots: roots?,
        authorities: authorities?,
        tickets: tickets?,
        revoked: revoked?,
        verifications_per_second: verifications?,
        pseudonyms: pseudonyms?,
    })
}

fn read_pseudonyms(table: &Table<'_>) -> Option<Pseudonyms> {
    let length = |name, default| match table.get(name) {
        Some(value) => value.parse(values::geonet::LENGTH, values::geonet::length).map(|length| length.value),
        None => Some(default),
    };
    let span = |name, default| match table.get(name) {
        Some(value) => value.parse(values::DURATION, values::duration).map(|span| span.value),
        None => Some(Duration::from_secs(default)),
    };
    let first = (length("min_first_distance", 800), length("max_first_distance", 1500));
    let distance = length("distance", 800);
    let time = (span("min_time", 120), span("max_time", 360));
    let longest_lock = span("longest_lock", 255);
    let first_distance_m = (first.0?, first.1?);
    let time = (time.0?, time.1?);
    for (least, most, wrong) in [
        ("min_first_distance", "max_first_distance", first_distance_m.0 > first_distance_m.1),
        ("min_time", "max_time", time.0 > time.1),
    ] {
        // One of them may be the default.
        if let Some(value) = table.get(least).or_else(|| table.get(most)).filter(|_| wrong) {
            value.refuse(&format!("{least} is above {most}, expected {most} or less"));
            return None;
        }
    }
    Some(Pseudonyms { first_distance_m, distance_m: distance?, time, longest_lock: longest_lock? })
}

/// The elements of an array, none where it is absent.
fn list<T>(
    value: Option<Value<'_>>,
    expected: &str,
    item: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<Vec<T>> {
    let Some(value) = value else { return Some(Vec::new()) };
    // All of them, so that all mistakes are told.
    let items: Vec<Option<T>> = value
        .array(expected)?
        .iter()
        .map(|found| found.parse(item, &parse).map(|found| found.value))
        .collect();
    items.into_iter().collect()
}

/// The name of a certificate.
fn name(text: &str) -> Result<[u8; 8], String> {
    let number = (text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten();
    number
        .map(u64::to_be_bytes)
        .ok_or_else(|| format!("{text:?} is no name of a certificate, expected 16 hexadecimal digits"))
}
