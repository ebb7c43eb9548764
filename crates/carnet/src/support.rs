//! `carnet support-bundle`: creates an archive for a maintainer who searches for a fault.
//!
//! The command does not need the station, so it works while no station runs. If a station runs, the command
//! queries it over its socket. It reads the state of the kernel below `/proc` of the station's process, which
//! may have a network namespace of its own. It also runs `ip`, `bpftool` and `journalctl` if these exist. The
//! manifest lists the missing parts, with the reason: the command creates the bundle in any case.
//!
//! Secrets ([`secrets`]): the command removes secrets from the config, and searches every file of the
//! bundle for them. Left out: the files of `station.state_dir` (except crash reports) and `station.record`,
//! environment variables, and the command lines of other programs.

mod machine;
mod secrets;

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use carnet_api::config::{Config, disclose_config, secret_keys};
use carnet_linux::clock;
use clap::ValueEnum;
use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::cli::{SupportBundle, Table};
use crate::client::{ApiClient, SOCKET_DIRECTORY};
use crate::crash;
use secrets::KnownSecrets;

/// Folder with the configs, if the command line names no config.
const CONFIG_DIRECTORY: &str = "/etc/carnet";
/// File mode of the archive. Only its owner may read it, because it shows where a vehicle is.
const ARCHIVE_FILE_MODE: u32 = 0o600;
/// Name of the folder in the archive.
const ARCHIVE_FOLDER: &str = "carnet-support";
/// Maximum size of a file in the bundle, in octets. The bundle has only the end of a larger file.
const MAX_FILE_SIZE: usize = 4 << 20;

/// Content of the archive. The command writes the archive only when the content is complete and without
/// secrets.
#[derive(Default)]
struct SupportArchive {
    archive_files: Vec<ArchiveFile>,
    left_out_files: Vec<Value>,
    known_secrets: KnownSecrets,
}

struct ArchiveFile {
    name: String,
    description: String,
    octets: Vec<u8>,
}

impl SupportArchive {
    fn add_file(&mut self, name: &str, what: &str, octets: impl Into<Vec<u8>>) {
        let (name, what, mut octets) = (name.to_owned(), what.to_owned(), octets.into());
        if octets.len() > MAX_FILE_SIZE {
            octets.drain(..octets.len() - MAX_FILE_SIZE);
            self.note_left_out(&name, "only its beginning, because it is too long");
        }
        self.archive_files.push(ArchiveFile { name, description: what, octets });
    }

    fn note_left_out(&mut self, what: &str, why: &str) {
        self.left_out_files.push(json!({ "what": what, "why": why }));
    }

    /// Copies a file of this machine into the bundle, if the file can be read.
    fn copy_file(&mut self, name: &str, what: &str, path: &Path) {
        match fs::read(path) {
            Ok(octets) => self.add_file(name, what, octets),
            Err(error) => self.note_left_out(name, &format!("cannot read {}: {error}", path.display())),
        }
    }
}

/// Creates the archive, and prints its path.
///
/// # Errors
/// Returns an error if the archive cannot be written. A part that cannot be read is no error.
pub async fn create_bundle(command: SupportBundle) -> Result<()> {
    let mut bundle = SupportArchive::default();
    let seconds = clock::wall_time().as_unix_nanos() / 1_000_000_000;
    let (name, process) = match add_station_answers(&mut bundle, command.station.socket).await {
        Ok((name, process)) => (Some(name), process),
        Err(error) => {
            let why = format!("no running station answers: {error:#}");
            eprintln!("carnet: {why}; the bundle contains no answers of a station");
            bundle.note_left_out("station/", &why);
            (None, None)
        }
    };
    for path in find_configs(command.config, process) {
        add_config(&mut bundle, &path);
    }
    machine::add_machine_facts(&mut bundle, process, name.as_deref());
    let out = command.out.unwrap_or_else(|| {
        let name = name.as_deref().unwrap_or("support");
        // If a bundle of the same second exists, the new bundle's name gets a number.
        let more = (2..100).map(|number| format!("-{number}"));
        let mut names = std::iter::once(String::new()).chain(more);
        let free = |more: &String| !Path::new(&format!("carnet-{name}-{seconds}{more}.tar.gz")).exists();
        PathBuf::from(format!("carnet-{name}-{seconds}{}.tar.gz", names.find(free).unwrap_or_default()))
    });
    finish_bundle(&mut bundle, name.as_deref(), seconds);
    write_archive(&bundle, &out, seconds).with_context(|| format!("cannot write {}", out.display()))?;
    eprintln!(
        "carnet: {} is there, with {} files. Keys and tokens are left out, names, addresses and positions \
         are in it: look at it before you send it.",
        out.display(),
        bundle.archive_files.len()
    );
    crate::print_escaped(&format!("{}\n", out.display()))
}

/// Adds all answers of the station's API to the bundle. Returns the station's name, and its process if this
/// program can see it.
async fn add_station_answers(
    bundle: &mut SupportArchive,
    socket: Option<PathBuf>,
) -> Result<(String, Option<i32>)> {
    let client = ApiClient::find_station(socket, Path::new(SOCKET_DIRECTORY))?;
    let status = client.get("/v1/status").await?;
    let name = status["name"].as_str().unwrap_or("station");
    // The name from the station's answer becomes part of file names. The bundle uses it only if all its
    // characters are plain.
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let name: String = name.chars().map(|character| if plain(character) { character } else { '_' }).collect();
    bundle.add_file("station/status.json", "carnet status --json", format!("{status:#}\n"));
    for table in Table::value_variants() {
        let word = table.path().trim_start_matches("/v1/");
        let file = format!("station/{word}.json");
        match client.get(table.path()).await {
            Ok(answer) => {
                bundle.add_file(&file, &format!("carnet show {word} --json"), format!("{answer:#}\n"))
            }
            Err(error) => bundle.note_left_out(&file, &format!("the station says: {error:#}")),
        }
    }
    match client.get_text("/metrics").await {
        Ok(text) => bundle.add_file("station/metrics.txt", "GET /metrics", text),
        Err(error) => bundle.note_left_out("station/metrics.txt", &format!("the station says: {error:#}")),
    }
    let stream = UnixStream::connect(client.socket()).await?;
    let process = stream.peer_cred().ok().and_then(|peer| peer.pid()).filter(|pid| *pid > 0);
    if process.is_none() {
        bundle.note_left_out("process/", "the station's process is in another namespace");
    }
    Ok((name, process))
}

/// Returns the config that the command line names. Otherwise returns the config of the station's process, or
/// else all configs in [`CONFIG_DIRECTORY`].
fn find_configs(named: Option<PathBuf>, process: Option<i32>) -> Vec<PathBuf> {
    if let Some(path) = named.or_else(|| process.and_then(config_of_process)) {
        return vec![path];
    }
    let Ok(entries) = fs::read_dir(CONFIG_DIRECTORY) else { return vec![PathBuf::from(CONFIG_DIRECTORY)] };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    paths.sort();
    paths
}

/// Returns the path of a station's config, from the command line of its process; `None` if it cannot be read.
fn config_of_process(process: i32) -> Option<PathBuf> {
    let words = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let words = String::from_utf8(words).ok()?;
    let mut words = words.split('\0');
    let path = words.find_map(|word| word.strip_prefix("--config").map(str::to_owned))?;
    let path = match path.strip_prefix('=') {
        Some(path) => path.to_owned(),
        None => words.next()?.to_owned(),
    };
    Some(fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default().join(path))
}

/// Adds a config without its secrets, and the output of `carnet check`.
fn add_config(bundle: &mut SupportArchive, path: &Path) {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or("config.toml");
    let file = format!("config/{name}");
    let place = path.display().to_string();
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return bundle.note_left_out(&file, &format!("cannot read {place}: {error}")),
    };
    let Some(disclosed) = disclose_config(&text) else {
        return bundle.note_left_out(&file, "it is no TOML, so carnet cannot tell which parts are secret");
    };
    bundle.known_secrets.add_from_config(&disclosed, path);
    if !disclosed.left_out_keys.is_empty() {
        let why = "secret, or not known to be public";
        bundle.note_left_out(&format!("{file}: the values of {}", disclosed.left_out_keys.join(", ")), why);
    }
    bundle.note_left_out(&format!("{file}: comments"), "there may be secrets in them");
    let said = match Config::parse(&text, &place) {
        Ok(config) => {
            if let Some(directory) = &config.station.state_dir {
                add_crash_reports(bundle, directory, &config.station.name);
            }
            config.warnings().iter().map(|warning| format!("warning: {warning}\n")).collect()
        }
        Err(errors) => format!("{errors}\n"),
    };
    bundle.add_file(&file, &format!("{place}, without secrets and comments"), disclosed.config_text);
    bundle.add_file(&format!("{file}.check.txt"), "the output of carnet check", said);
}

/// Adds the crash reports of a station.
fn add_crash_reports(bundle: &mut SupportArchive, directory: &Path, station: &str) {
    match crash::report_paths(directory, station) {
        Ok(reports) => {
            for path in reports {
                let name = path.file_name().and_then(OsStr::to_str).unwrap_or("crash.txt");
                bundle.copy_file(&format!("crash/{name}"), "crash report", &path);
            }
        }
        Err(error) => {
            bundle.note_left_out("crash/", &format!("cannot read {}: {error}", directory.display()))
        }
    }
}

/// Removes secrets from all files of the bundle, and adds the manifest.
fn finish_bundle(bundle: &mut SupportArchive, station: Option<&str>, seconds: u64) {
    bundle.note_left_out(
        "state and recordings",
        "station.state_dir and station.record show positions of vehicles; only crash reports are included",
    );
    bundle.note_left_out("environment variables", "there may be secrets in them");
    bundle.note_left_out("contents of key files", "secrets");
    for path in bundle.known_secrets.unreadable_files() {
        let why = "cannot be read, so carnet could not search the bundle for its contents";
        bundle.note_left_out(&path.display().to_string(), why);
    }
    let mut cleaned = Vec::new();
    for file in &mut bundle.archive_files {
        let places = bundle.known_secrets.remove(&mut file.octets);
        if places > 0 {
            cleaned.push((file.name.clone(), places));
        }
    }
    for (name, places) in cleaned {
        bundle.note_left_out(&name, &format!("a secret of the config, {places} times"));
    }
    let files: Vec<Value> = bundle.archive_files.iter().map(ArchiveFile::manifest_entry).collect();
    let manifest = json!({
        "carnet": machine::program_facts(),
        "made_at": seconds,
        "station": station,
        "secret_keys": secret_keys(),
        "files": files,
        "left_out": bundle.left_out_files,
    });
    let mut octets = format!("{manifest:#}\n").into_bytes();
    bundle.known_secrets.remove(&mut octets);
    bundle
        .archive_files
        .insert(0, ArchiveFile { name: "manifest.json".into(), description: String::new(), octets });
}

impl ArchiveFile {
    fn manifest_entry(&self) -> Value {
        json!({ "file": self.name, "what": self.description, "octets": self.octets.len() })
    }
}

fn write_archive(bundle: &SupportArchive, out: &Path, seconds: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(ARCHIVE_FILE_MODE).open(out)?;
    let written = compress_archive(bundle, &mut file, seconds).and_then(|()| file.sync_all());
    if written.is_err() {
        // An incomplete archive is useless, so the command removes it.
        let _ = fs::remove_file(out);
    }
    written
}

/// Packs the archive with the system's gzip: own compression would add 55 kB to the program, for a rarely
/// used command.
fn compress_archive(bundle: &SupportArchive, file: &mut fs::File, seconds: u64) -> io::Result<()> {
    let mut gzip = Command::new("gzip");
    gzip.arg("-c").stdin(Stdio::piped()).stdout(file.try_clone()?);
    let failed = |error: &dyn std::fmt::Display| io::Error::other(format!("gzip: {error}"));
    let mut gzip = gzip.spawn().map_err(|error| failed(&error))?;
    let packed = gzip.stdin.take().map_or(Ok(()), |stdin| pack_archive(bundle, stdin, seconds));
    let status = gzip.wait()?;
    if !status.success() {
        return Err(failed(&status));
    }
    packed.map_err(|error| failed(&error))
}

fn pack_archive(bundle: &SupportArchive, out: impl Write, seconds: u64) -> io::Result<()> {
    let mut archive = tar::Builder::new(out);
    for file in &bundle.archive_files {
        let mut header = tar::Header::new_gnu();
        header.set_size(file.octets.len() as u64);
        header.set_mode(ARCHIVE_FILE_MODE);
        header.set_mtime(seconds);
        archive.append_data(
            &mut header,
            format!("{ARCHIVE_FOLDER}/{}", file.name),
            file.octets.as_slice(),
        )?;
    }
    archive.finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::scratch::ScratchFolder;

    #[test]
    fn an_archive_belongs_to_its_owner_and_overwrites_no_file() {
        let scratch = ScratchFolder::new();
        let out = scratch.path().join("a.tar.gz");
        let mut bundle = SupportArchive::default();
        bundle.add_file("a/b.txt", "something", "text");
        bundle.add_file("long.txt", "too much", vec![b'x'; MAX_FILE_SIZE + 1]);
        finish_bundle(&mut bundle, None, 1);
        write_archive(&bundle, &out, 1).expect("an archive");
        let file = fs::metadata(&out).expect("a file");
        assert_eq!(file.mode() & 0o777, ARCHIVE_FILE_MODE);
        let error = write_archive(&bundle, &out, 1).expect_err("it is there already");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::metadata(&out).expect("a file").len(), file.len());
        let manifest = String::from_utf8(bundle.archive_files[0].octets.clone()).expect("text");
        assert!(manifest.contains("\"a/b.txt\"") && manifest.contains("it is too long"), "{manifest}");
    }
}
