//! Tasks of the repository itself. `cargo xtask gen-asn1` writes the message types of `crates/its/src/asn1`
//! from ETSI's ASN.1 modules in `crates/its/asn1`. With `--check` it writes nothing and fails if a file
//! differs. `cargo xtask advisories` compares the lock files with known security advisories.
//!
//! No part of the program depends on this crate.
#![forbid(unsafe_code)]

mod advisories;
mod asn1;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["gen-asn1"] => asn1::generate_modules(&root, false),
        ["gen-asn1", "--check"] => asn1::generate_modules(&root, true),
        ["advisories"] => advisories::check_lock_files(&root),
        ["advisories", "--update", database] => advisories::update_snapshot(&root, Path::new(database)),
        _ => Err(anyhow::anyhow!(
            "expected gen-asn1, gen-asn1 --check, advisories or advisories --update FOLDER"
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
