//! `[security]` as it was read.

use std::path::{Path, PathBuf};

use super::super::errors::Sink;
use super::super::reader::{Table, Value};
use super::super::security::{Security, SecurityPolicy};
use super::super::values;
use super::geonet::integer;

const PATHS: &str = "paths of files with certificates, such as [\"root.cert\"]";
const NAMES: &str = "names of certificates, such as [\"0123456789abcdef\"]";

/// `[security]`
pub(in crate::config) struct SecurityDraft {
    /// Where the table stands in the file.
    pub at: usize,
    security: Option<Security>,
}

impl SecurityDraft {
    pub(in crate::config) fn read(at: usize, table: &Table<'_>, sink: &Sink<'_>) -> SecurityDraft {
        SecurityDraft { at, security: read(table, sink) }
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
    Some(Security {
        policy: policy?,
        roots: roots?,
        authorities: authorities?,
        tickets: tickets?,
        revoked: revoked?,
        verifications_per_second: verifications?,
    })
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
