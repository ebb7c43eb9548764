//! Tests of crashes, damage and full disks.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};

use carnet_base::Rng;
use carnet_linux::disk::KernelDisk;
use carnet_linux::simulated::SimulatedDisk;

use super::*;
use crate::scratch::ScratchFolder;

fn node_key(number: u16) -> RecordKey {
    RecordKey::Node(format!("2001:db8:1::{number:x}").parse().expect("an address"))
}

fn node_change(number: u16, value: &str) -> RecordChange {
    (node_key(number), Some(format!("{{\"v\":\"{value}\"}}")))
}

fn open_journal_at(path: &Path) -> (Journal, BTreeMap<RecordKey, String>, u64) {
    let (journal, found) = Journal::open_journal(Box::new(KernelDisk), path, &[]).expect("opens");
    (journal, found.current_records.into_iter().collect(), found.discarded_octets)
}

fn records_in_file(path: &Path) -> BTreeMap<RecordKey, String> {
    open_journal_at(path).1
}

fn expected_records(values: &[(u16, &str)]) -> BTreeMap<RecordKey, String> {
    values.iter().map(|(number, value)| (node_key(*number), format!("{{\"v\":\"{value}\"}}"))).collect()
}

fn refusal_to_open(path: &Path) -> String {
    format!("{:#}", Journal::open_journal(Box::new(KernelDisk), path, &[]).expect_err("refused"))
}

#[test]
fn journal_checksum_is_crc_32c_of_rfc_3720() {
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn last_record_of_a_home_address_is_valid() {
    let scratch = ScratchFolder::new();
    let path = scratch.path().join("s.state");
    let (mut journal, first, torn) = open_journal_at(&path);
    assert_eq!((first.len(), torn), (0, 0));
    journal
        .append_commit(&[node_change(1, "a"), node_change(2, "b"), (RecordKey::Own, Some("{}".into()))])
        .expect("appends");
    journal.append_commit(&[node_change(1, "c"), (node_key(2), None), node_change(3, "d")]).expect("appends");
    drop(journal);
    let mut wanted = expected_records(&[(1, "c"), (3, "d")]);
    wanted.insert(RecordKey::Own, "{}".into());
    assert_eq!(records_in_file(&path), wanted);
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).expect("a file").permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn new_journal_contains_the_given_records() {
    let scratch = ScratchFolder::new();
    let path = scratch.path().join("s.state");
    let (_, found) =
        Journal::open_journal(Box::new(KernelDisk), &path, &[node_change(7, "imported")]).expect("opens");
    assert_eq!(found.current_records, [(node_key(7), "{\"v\":\"imported\"}".to_owned())]);
}

/// After a crash the file has all commits before the last one and no part of the last one, and writing
/// continues.
#[test]
fn incomplete_last_commit_is_removed() {
    let scratch = ScratchFolder::new();
    let path = scratch.path().join("s.state");
    let (mut journal, ..) = open_journal_at(&path);
    journal.append_commit(&[node_change(1, "a"), node_change(2, "b")]).expect("appends");
    let good = fs::read(&path).expect("a file").len();
    journal.append_commit(&[node_change(1, "lost"), node_change(3, "lost")]).expect("appends");
    drop(journal);
    let whole = fs::read(&path).expect("a file");
    for length in good..whole.len() {
        // The commit is cut short. In the second case the file also has its full length, with zeros for pages
        // that were never written.
        for padding in [0, whole.len() - length] {
            let mut octets = whole[..length].to_vec();
            octets.extend(vec![0; padding]);
            fs::write(&path, &octets).expect("writes");
            let (mut journal, found, torn) = open_journal_at(&path);
            assert_eq!(found, expected_records(&[(1, "a"), (2, "b")]), "{length} {padding}");
            assert_eq!(torn as usize, octets.len() - good);
            journal.append_commit(&[node_change(4, "after")]).expect("appends");
            drop(journal);
            assert_eq!(records_in_file(&path), expected_records(&[(1, "a"), (2, "b"), (4, "after")]));
        }
    }
}

/// If any octet before the last commit is damaged, the journal reports the place, and the file stays as it
/// is.
#[test]
fn damaged_journal_is_refused_with_its_position() {
    let scratch = ScratchFolder::new();
    let path = scratch.path().join("s.state");
    let (mut journal, ..) = open_journal_at(&path);
    journal.append_commit(&[node_change(1, "a")]).expect("appends");
    let last = fs::read(&path).expect("a file").len();
    journal.append_commit(&[node_change(2, "b")]).expect("appends");
    drop(journal);
    let whole = fs::read(&path).expect("a file");
    for at in 0..last {
        let mut octets = whole.clone();
        octets[at] ^= 0x01;
        fs::write(&path, &octets).expect("writes");
        let told = refusal_to_open(&path);
        assert!(told.contains("s.state cannot be used"), "{at}: {told}");
        assert!(told.contains("damaged") || told.contains("first line"), "{at}: {told}");
        assert_eq!(fs::read(&path).expect("a file"), octets, "touched");
    }
    for rubbish in [&b""[..], b"{\"mobile_router\": 5}", b"carnet state 2\n"] {
        fs::write(&path, rubbish).expect("writes");
        assert!(refusal_to_open(&path).contains("first line"));
    }
    // A commit of a later version: the commit is complete, but this version cannot parse it.
    let mut octets = FILE_HEADER.to_vec();
    octets.extend(b"@ 10 00000000\nlease 1 2\n");
    let sum = crc32c(b"lease 1 2\n");
    let text = String::from_utf8(octets).expect("text").replace("00000000", &format!("{sum:08x}"));
    fs::write(&path, text).expect("writes");
    assert!(refusal_to_open(&path).contains("\"lease\" is no home address"), "{}", refusal_to_open(&path));
}

#[test]
fn second_station_cannot_open_the_journal() {
    let scratch = ScratchFolder::new();
    let path = scratch.path().join("s.state");
    let (mut journal, ..) = open_journal_at(&path);
    assert!(refusal_to_open(&path).contains("another running station has locked"));
    journal.append_commit(&[node_change(1, "a")]).expect("appends");
    journal.compact_file().expect("compacts");
    assert!(refusal_to_open(&path).contains("another running station has locked"));
}

/// If the disk refuses to sync the directory, a compacted file still replaces the old one. But no commit
/// counts as written until the disk has synced the directory.
#[test]
fn failed_directory_sync_keeps_new_journal_and_delays_commits() {
    let scratch = ScratchFolder::new();
    let path = scratch.path().join("s.state");
    let (mut journal, ..) = open_journal_at(&path);
    journal.append_commit(&[node_change(1, "a"), node_change(2, "b")]).expect("appends");
    // Take the directory's path away, so that the sync of the directory fails.
    let works = std::mem::take(&mut journal.parent_directory.path);
    journal.compact_file().expect("the file is there");
    let refused = journal.append_commit(&[node_change(1, "c")]).expect_err("not on the disk");
    assert_eq!(refused.kind(), io::ErrorKind::NotFound);
    assert_eq!(file_octets(&journal), fs::read(&path).expect("a file"), "the file that has the name");
    journal.parent_directory.path = works;
    journal.append_commit(&[node_change(1, "d")]).expect("appends");
    assert_eq!(file_octets(&journal), fs::read(&path).expect("a file"));
    drop(journal);
    assert_eq!(records_in_file(&path), expected_records(&[(1, "d"), (2, "b")]));
}

fn file_octets(journal: &Journal) -> Vec<u8> {
    let mut octets = vec![0; journal.valid_length as usize];
    journal.file.read_at(&mut octets, 0).expect("read");
    octets
}

/// Two stations start at the same time. One station opens the file that the other station is just replacing
/// or creating.
#[test]
fn journal_replaced_during_open_is_opened_again() {
    let scratch = ScratchFolder::new();
    let path = scratch.path().join("s.state");
    let (mut journal, ..) = open_journal_at(&path);
    journal.append_commit(&[node_change(1, "a")]).expect("appends");
    let early = File::open(&path).expect("opens");
    assert!(is_file_at_path(&KernelDisk, &early, &path).expect("looks"));
    journal.compact_file().expect("compacts");
    assert!(!is_file_at_path(&KernelDisk, &early, &path).expect("looks"));
    // Another process is writing the new file, so the journal must leave it.
    let new = path.with_extension("new");
    fs::write(&new, b"half").expect("writes");
    let other = OpenOptions::new().write(true).open(&new).expect("opens");
    other.try_lock().expect("locks");
    let absent = scratch.path().join("s.state");
    drop(journal);
    fs::remove_file(&absent).expect("gone");
    assert!(refusal_to_open(&absent).contains("another running station has locked"));
    assert_eq!(fs::read(&new).expect("a file"), b"half");
    drop(other);
    assert!(records_in_file(&absent).is_empty());
    assert!(!new.exists());
}

#[test]
fn mostly_outdated_journal_is_rewritten() {
    let scratch = ScratchFolder::new();
    let path = scratch.path().join("s.state");
    let (mut journal, ..) = open_journal_at(&path);
    let text = "x".repeat(8000);
    for round in 0..200u16 {
        journal
            .append_commit(&[node_change(round % 7, &text), node_change(100 + round, "gone")])
            .expect("appends");
        journal.append_commit(&[(node_key(100 + round), None)]).expect("appends");
        if journal.needs_compaction() {
            journal.compact_file().expect("compacts");
            assert!(!journal.needs_compaction());
        }
    }
    journal.append_commit(&[node_change(1, "last")]).expect("appends");
    let before = fs::metadata(&path).expect("a file").len();
    assert!(before < 3 * COMPACTION_SLACK, "{before}");
    drop(journal);
    let mut wanted = expected_records(&(0..7).map(|number| (number, text.as_str())).collect::<Vec<_>>());
    wanted.extend(expected_records(&[(1, "last")]));
    assert_eq!(records_in_file(&path), wanted);
    assert!(!path.with_extension("new").exists());
}

/// The file is larger than one commit of `MAX_COMPACTED_COMMIT_LENGTH` octets.
#[test]
fn large_journal_is_rewritten_in_pieces() {
    let scratch = ScratchFolder::new();
    let path = scratch.path().join("s.state");
    let (mut journal, ..) = open_journal_at(&path);
    let text = "y".repeat(500);
    let many: Vec<RecordChange> = (0..2000).map(|number| node_change(number, &text)).collect();
    journal.append_commit(&many).expect("appends");
    journal.compact_file().expect("compacts");
    journal.append_commit(&[node_change(3, "new")]).expect("appends");
    drop(journal);
    let found = records_in_file(&path);
    assert_eq!((found.len(), found[&node_key(3)].as_str()), (2000, "{\"v\":\"new\"}"));
    assert!(found[&node_key(1999)].contains(&text));
}

/// A process is killed after the disk has refused a commit, so the commit is only in the page cache. The next
/// process finds the commit complete, and writes it again before any further commit.
#[test]
fn refused_commit_is_written_again_after_crash() {
    let path = Path::new("/state/s.state");
    for seed in 0..200 {
        let disk = SimulatedDisk::new(Rng::new(seed));
        let open =
            |disk: &SimulatedDisk| Journal::open_journal(Box::new(disk.clone()), path, &[]).expect("opens");
        let (mut journal, _) = open(&disk);
        journal.append_commit(&[node_change(1, "a")]).expect("appends");
        disk.set_failure_probability(false, 0.5);
        let refused = journal.append_commit(&[node_change(2, "refused")]).is_err();
        drop(journal);
        disk.set_failure_probability(false, 0.0);
        let (mut journal, found) = open(&disk);
        journal.append_commit(&[node_change(3, "b")]).expect("appends");
        let (_, after) = open(&disk.after_power_cut());
        let after: BTreeMap<RecordKey, String> = after.current_records.into_iter().collect();
        assert_eq!(after.len(), found.current_records.len() + 1, "seed {seed}: {after:?}");
        assert!(refused || after.len() == 3, "seed {seed}: {after:?}");
    }
}

/// The disk has not synced the name of the file before a crash. The next process syncs it again. The test
/// covers a file that replaced another, and the first file.
#[test]
fn refused_rename_is_repeated_after_crash() {
    let path = Path::new("/state/s.state");
    for seed in 0..200 {
        let disk = SimulatedDisk::new(Rng::new(seed));
        let open = |disk: &SimulatedDisk| Journal::open_journal(Box::new(disk.clone()), path, &[]);
        disk.set_failure_probability(false, if seed % 2 == 0 { 0.3 } else { 0.0 });
        let first =
            open(&disk).is_ok_and(|(mut journal, _)| journal.append_commit(&[node_change(1, "a")]).is_ok());
        disk.set_failure_probability(false, 0.3);
        if let Ok((mut journal, _)) = open(&disk) {
            let _ = journal.compact_file();
        }
        disk.set_failure_probability(false, 0.0);
        let (mut journal, _) = open(&disk).expect("opens");
        journal.append_commit(&[node_change(2, "b")]).expect("appends");
        let (_, after) = open(&disk.after_power_cut()).expect("opens");
        let after: BTreeMap<RecordKey, String> = after.current_records.into_iter().collect();
        assert!(after.contains_key(&node_key(2)), "seed {seed}: {after:?}");
        assert!(!first || after.contains_key(&node_key(1)), "seed {seed}: {after:?}");
    }
}

/// Each kind of key is read back as it was written, both from its name and from a journal file.
#[test]
fn key_is_read_as_it_was_written() {
    let mut rng = Rng::new(1);
    let scratch = ScratchFolder::new();
    let path = scratch.path().join("s.state");
    let mut octets = [0; 32];
    let mut keys = vec![
        RecordKey::Own,
        RecordKey::Sessions,
        RecordKey::Node("2001:db8::1".parse().expect("an address")),
        RecordKey::Lease("192.0.2.1".parse().expect("an address")),
        RecordKey::Delegation("2001:db8::/64".parse().expect("a prefix")),
        RecordKey::Session(PublicKey(octets)),
    ];
    for _ in 0..200 {
        octets.fill_with(|| rng.random_u64() as u8);
        keys.push(RecordKey::Session(PublicKey(octets)));
    }
    for key in &keys {
        let text = key.to_string();
        assert_eq!(text.parse::<RecordKey>().expect("a key"), *key);
        assert!(!text.contains(' '));
    }
    let (mut journal, ..) = open_journal_at(&path);
    journal
        .append_commit(&keys.iter().map(|key| (*key, Some("{}".into()))).collect::<Vec<_>>())
        .expect("appends");
    drop(journal);
    assert_eq!(records_in_file(&path).into_keys().collect::<Vec<_>>(), {
        keys.sort();
        keys
    });
    for wrong in ["session/", "session/AAAA", "session/2001:db8::1", "sessionsx"] {
        assert!(wrong.parse::<RecordKey>().is_err(), "{wrong}");
    }
}
