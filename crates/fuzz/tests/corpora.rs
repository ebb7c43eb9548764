//! The tests put the checked in corpora through every target, unchanged and changed, on any toolchain. `make
//! fuzz` does this at length, guided by coverage. The tests also check that `fuzz/` has a program for each
//! target.

#![allow(clippy::disallowed_methods, reason = "tests read files, and the environment")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use carnet_base::Rng;
use carnet_fuzz::{FUZZ_TARGETS, FuzzTarget};

/// Number of mutated inputs for each target. A debug build tests them within seconds.
const MUTATION_ROUNDS: usize = 200;
/// Maximum size of the corpus of one target, in octets, because the repository holds all corpora.
const MAX_CORPUS_OCTETS: usize = 200_000;

fn corpus_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Returns all targets, or only the one that the environment variable names: `tools/fuzz coverage` measures
/// each target by itself.
fn selected_targets() -> impl Iterator<Item = &'static FuzzTarget> {
    let only = std::env::var("CARNET_FUZZ_TARGET").ok();
    FUZZ_TARGETS.iter().filter(move |target| only.as_deref().is_none_or(|only| only == target.name))
}

/// Returns the checked-in corpus files of a target, by name.
fn read_corpus(target: &FuzzTarget) -> Vec<(String, Vec<u8>)> {
    read_files_in(&corpus_folder().join("corpus").join(target.name))
}

fn read_files_in(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a file"))
        })
        .collect();
    files.sort();
    files
}

/// Runs the target. If an assertion fails, prints the octets, so that they can become a file of the corpus.
fn run_target(target: &FuzzTarget, from: &str, octets: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run_with_input)(octets))) {
        let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        eprintln!("{} does not take this, made of {from}: {hex}", target.name);
        resume_unwind(panic);
    }
}

#[test]
fn fuzz_targets_accept_every_corpus_file() {
    for target in selected_targets() {
        let checked_in = read_corpus(target);
        assert!(!checked_in.is_empty(), "{}: no corpus", target.name);
        let size: usize = checked_in.iter().map(|(_, octets)| octets.len()).sum();
        assert!(size <= MAX_CORPUS_OCTETS, "{}: {size} octets", target.name);
        // Inputs that an earlier `make fuzz` found; this variable names their folder.
        let found = std::env::var_os("CARNET_FUZZ_FOUND").map(|found| Path::new(&found).join(target.name));
        let found =
            found.filter(|folder| folder.is_dir()).map(|folder| read_files_in(&folder)).unwrap_or_default();
        for (name, octets) in checked_in.iter().chain(&found) {
            run_target(target, name, octets);
        }
    }
}

/// Tests many more mutations of messages of hosts, because hosts on board may be hostile.
#[test]
fn fuzz_targets_accept_hundred_thousand_mutated_host_messages() {
    for target in FUZZ_TARGETS.iter().filter(|target| ["dhcp", "dns"].contains(&target.name)) {
        let files = read_corpus(target);
        let mut rng = Rng::new(2);
        for _ in 0..100_000 {
            let (name, octets) = &files[rng.number_below(files.len() as u64) as usize];
            let other = &files[rng.number_below(files.len() as u64) as usize].1;
            run_target(target, name, &mutate_octets(&mut rng, octets, other));
        }
    }
}

#[test]
fn fuzz_targets_accept_mutated_corpus_files() {
    for target in FUZZ_TARGETS {
        let files = read_corpus(target);
        let mut rng = Rng::new(1);
        for _ in 0..MUTATION_ROUNDS {
            let (name, octets) = &files[rng.number_below(files.len() as u64) as usize];
            let other = &files[rng.number_below(files.len() as u64) as usize].1;
            run_target(target, name, &mutate_octets(&mut rng, octets, other));
        }
    }
}

fn mutate_octets(rng: &mut Rng, octets: &[u8], other: &[u8]) -> Vec<u8> {
    let mut octets = octets.to_vec();
    for _ in 0..=rng.number_below(4) {
        if octets.is_empty() {
            octets.push(rng.random_u16() as u8);
        }
        let at = rng.number_below(octets.len() as u64) as usize;
        match rng.number_below(7) {
            0 => octets[at] ^= 1 << rng.number_below(8),
            1 => octets[at] = rng.random_u16() as u8,
            2 => octets[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][rng.number_below(6) as usize],
            3 => octets.truncate(at),
            4 => octets.insert(at, rng.random_u16() as u8),
            5 => drop(octets.drain(at..(at + 1 + rng.number_below(8) as usize).min(octets.len()))),
            _ if !other.is_empty() => {
                let from = rng.number_below(other.len() as u64) as usize;
                octets.splice(at.., other[from..].iter().copied());
            }
            _ => {}
        }
    }
    octets
}

#[test]
fn each_fuzz_target_has_a_program() {
    let manifest = fs::read_to_string(corpus_folder().join("Cargo.toml")).expect("a manifest");
    for target in FUZZ_TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"\n", target.name)), "{}", target.name);
        let program = corpus_folder().join("fuzz_targets").join(format!("{}.rs", target.name));
        let program = fs::read_to_string(program).unwrap_or_else(|error| panic!("{}: {error}", target.name));
        let calls_target = ["::", "::fuzz_"].map(|path| format!("{path}{}(octets)", target.name));
        assert!(calls_target.iter().any(|call| program.contains(call)), "{}", target.name);
    }
    assert_eq!(manifest.matches("[[bin]]").count(), FUZZ_TARGETS.len());
}
