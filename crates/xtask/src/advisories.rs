//! Security advisories about the crates in the lock files. `cargo xtask advisories` compares these with the
//! snapshot of RustSec's database in `tools/advisories.tsv`, without a network. It fails for each advisory
//! that applies.
//!
//! `cargo xtask advisories --update FOLDER` writes the snapshot from a checkout of the database (which is in
//! the public domain, CC0). The snapshot leaves out withdrawn advisories and informational ones (unmaintained
//! crates). Left out as well: licences, and yanked versions, which only the registry knows.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Error, bail};
use semver::{Version, VersionReq};

const SNAPSHOT_FILE: &str = "tools/advisories.tsv";
/// All lock files: of the workspace, of the fuzz targets, and of the program that compares message encodings
/// with another implementation.
const LOCK_FILES: [&str; 3] = ["Cargo.lock", "fuzz/Cargo.lock", "crates/its/oracle/Cargo.lock"];

/// An advisory: the name of the crate, the advisory's identifier, and the versions that it does not concern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Advisory {
    package: String,
    id: String,
    /// Version requirements: a version that meets one of them is patched, or was never affected.
    unaffected_versions: Vec<String>,
}

impl Advisory {
    fn applies_to(&self, version: &Version) -> Result<bool, Error> {
        for requirement in &self.unaffected_versions {
            let parsed = VersionReq::parse(requirement).map_err(Error::msg).with_context(|| {
                format!("{}: expected a version requirement, found {requirement:?}", self.id)
            })?;
            if parsed.matches(version) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Compares every lock file with the snapshot; an error names each advisory that applies.
pub fn check_lock_files(root: &Path) -> Result<(), Error> {
    let text = read_file(&root.join(SNAPSHOT_FILE))?;
    let advisories = parse_snapshot(&text)?;
    let mut found = Vec::new();
    for name in LOCK_FILES {
        for (package, version) in
            locked_packages(&read_file(&root.join(name))?).with_context(|| name.to_owned())?
        {
            for advisory in advisories.get(&package).into_iter().flatten() {
                if advisory.applies_to(&version)? {
                    found.push(format!("{name}: {package} {version}: {}", advisory.id));
                }
            }
        }
    }
    if !found.is_empty() {
        bail!(
            "security advisories apply to locked packages (https://rustsec.org/advisories/ID.html):\n{}",
            found.join("\n")
        );
    }
    Ok(())
}

/// Writes the snapshot from a checkout of RustSec's database.
pub fn update_snapshot(root: &Path, database: &Path) -> Result<(), Error> {
    let mut advisories = Vec::new();
    let crates = database.join("crates");
    for package in std::fs::read_dir(&crates).with_context(|| format!("cannot read {}", crates.display()))? {
        for file in std::fs::read_dir(package?.path())? {
            let path = file?.path();
            let text = read_file(&path)?;
            if let Some(advisory) = parse_advisory(&text).with_context(|| path.display().to_string())? {
                advisories.push(advisory);
            }
        }
    }
    if advisories.is_empty() {
        bail!("{}: expected security advisories in this folder, found none", crates.display());
    }
    advisories.sort();
    let lines = advisories
        .iter()
        .map(|it| format!("{}\t{}\t{}\n", it.package, it.id, it.unaffected_versions.join("|")));
    let head =
        "# crate, advisory, version requirements that it does not concern: cargo xtask advisories --update\n";
    let text: String = std::iter::once(head.to_owned()).chain(lines).collect();
    std::fs::write(root.join(SNAPSHOT_FILE), text).with_context(|| format!("cannot write {SNAPSHOT_FILE}"))
}

fn read_file(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the advisory in a file of the database; `None` if it is withdrawn or informational.
fn parse_advisory(text: &str) -> Result<Option<Advisory>, Error> {
    let front = text.strip_prefix("```toml\n").and_then(|rest| rest.split_once("\n```"));
    let (front, _) = front.context("expected a block of TOML at the beginning of the advisory")?;
    let table: toml::Table = front.parse()?;
    let about = table
        .get("advisory")
        .and_then(toml::Value::as_table)
        .context("expected a table [advisory] in the advisory")?;
    if about.contains_key("withdrawn") || about.contains_key("informational") {
        return Ok(None);
    }
    let word = |key: &str| {
        about
            .get(key)
            .and_then(toml::Value::as_str)
            .map(str::to_owned)
            .with_context(|| format!("expected the key {key}"))
    };
    let versions = table
        .get("versions")
        .and_then(toml::Value::as_table)
        .context("expected a table [versions] in the advisory")?;
    let mut unaffected = Vec::new();
    for key in ["patched", "unaffected"] {
        let listed = versions.get(key).and_then(toml::Value::as_array).into_iter().flatten();
        unaffected.extend(listed.filter_map(toml::Value::as_str).map(str::to_owned));
    }
    Ok(Some(Advisory { package: word("package")?, id: word("id")?, unaffected_versions: unaffected }))
}

fn parse_snapshot(text: &str) -> Result<BTreeMap<String, Vec<Advisory>>, Error> {
    let mut advisories: BTreeMap<String, Vec<Advisory>> = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let [package, id, unaffected] = line.split('\t').collect::<Vec<_>>()[..] else {
            bail!("{SNAPSHOT_FILE}:{}: expected three columns, found {line:?}", number + 1);
        };
        let unaffected = unaffected.split('|').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        let advisory =
            Advisory { package: package.to_owned(), id: id.to_owned(), unaffected_versions: unaffected };
        advisories.entry(package.to_owned()).or_default().push(advisory);
    }
    Ok(advisories)
}

/// Returns the name and version of each crate in a lock file.
fn locked_packages(text: &str) -> Result<Vec<(String, Version)>, Error> {
    let table: toml::Table = text.parse()?;
    let packages = table
        .get("package")
        .and_then(toml::Value::as_array)
        .context("expected tables [[package]] in the lock file")?;
    let mut found = Vec::new();
    for package in packages {
        let word = |key: &str| {
            package.get(key).and_then(toml::Value::as_str).with_context(|| format!("expected the key {key}"))
        };
        found.push((word("name")?.to_owned(), word("version")?.parse().map_err(Error::msg)?));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADVISORY: &str = "```toml\n[advisory]\nid = \"RUSTSEC-2022-0090\"\npackage = \"libsqlite3-sys\"\n\
        date = \"2022-08-03\"\n\n[versions]\npatched = [\">= 0.25.1\"]\nunaffected = [\"< 0.3\"]\n```\n\n# \
        Title\n";

    #[test]
    fn advisory_affects_versions_neither_patched_nor_unaffected() {
        let advisory = parse_advisory(ADVISORY).expect("an advisory").expect("the advisory applies");
        for (version, applies) in [("0.25.0", true), ("0.25.1", false), ("0.2.9", false), ("0.3.0", true)] {
            let version = version.parse().expect("a version");
            assert_eq!(advisory.applies_to(&version).expect("requirements"), applies, "{version}");
        }
    }

    #[test]
    fn check_ignores_withdrawn_and_informational_advisories() {
        for line in ["withdrawn = \"2023-01-01\"", "informational = \"unmaintained\""] {
            let text = ADVISORY.replace("date = \"2022-08-03\"", line);
            assert_eq!(parse_advisory(&text).expect("an advisory"), None);
        }
    }

    #[test]
    fn malformed_advisory_snapshot_line_is_refused_with_its_number() {
        let error = parse_snapshot("# head\na\tRUSTSEC-1\t>= 1\nb\tRUSTSEC-2\n").expect_err("two columns");
        assert!(error.to_string().starts_with("tools/advisories.tsv:3: expected three columns"), "{error}");
    }

    #[test]
    fn check_fails_for_lock_file_with_an_affected_crate() {
        let root = std::env::temp_dir().join(format!("xtask-advisories-{}", std::process::id()));
        for name in LOCK_FILES {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n").expect("a lock file");
        }
        std::fs::create_dir_all(root.join("tools")).expect("a folder");
        std::fs::write(root.join(SNAPSHOT_FILE), "a\tRUSTSEC-1\t>= 1.0.0\n").expect("a snapshot");
        check_lock_files(&root).expect("a patched version");
        std::fs::write(root.join(SNAPSHOT_FILE), "a\tRUSTSEC-1\t>= 1.0.1\n").expect("a snapshot");
        let error = check_lock_files(&root).expect_err("a version with a fault").to_string();
        std::fs::remove_dir_all(&root).expect("removed");
        assert!(error.contains("Cargo.lock: a 1.0.0: RUSTSEC-1"), "{error}");
    }
}
