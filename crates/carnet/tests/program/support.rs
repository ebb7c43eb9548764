//! `carnet support-bundle`: the content of the bundle, and the secrets that it must not contain.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use carnet_api::config::secret_keys;
use serde_json::Value;

use crate::hosts::{can_run_or_report, output_text};
use crate::station::{CARNET_PROGRAM, Station, run_carnet};
use crate::testbed::{Testbed, config_with_station_line};

/// A secret of the test: its octets, which the bundle must not contain, and its text in the config or in a
/// file.
struct TestSecret {
    octets: Vec<u8>,
    text: String,
}

/// Returns a secret whose octets occur nowhere else. Each `number` gives a different secret.
fn numbered_secret(number: u8, length: u8) -> TestSecret {
    let octets: Vec<u8> =
        (0..length).map(|at| at.wrapping_mul(37).wrapping_add(number.wrapping_mul(101))).collect();
    let text = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    TestSecret { octets, text }
}

fn encode_base64(octets: &[u8]) -> String {
    const BASE64_DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for piece in octets.chunks_exact(3) {
        let bits = piece.iter().fold(0_usize, |bits, octet| bits << 8 | usize::from(*octet));
        text.extend([18, 12, 6, 0].map(|shift| char::from(BASE64_DIGITS[bits >> shift & 63])));
    }
    text
}

/// Returns all forms of a secret that must not be in the bundle, not even as a part of a longer text.
fn representations_of(secret: &TestSecret) -> Vec<Vec<u8>> {
    let mut traces = vec![secret.octets.clone()];
    for plain in [secret.octets.clone(), secret.text.clone().into_bytes()] {
        let hex: String = plain.iter().map(|octet| format!("{octet:02x}")).collect();
        traces.extend([hex.to_uppercase().into_bytes(), hex.into_bytes()]);
        for skipped in 0..3 {
            let text = encode_base64(&plain[skipped..]);
            traces.push(text.replace('+', "-").replace('/', "_").into_bytes());
            traces.push(text.into_bytes());
        }
    }
    traces.extend([secret.text.clone().into_bytes(), secret.text.to_uppercase().into_bytes()]);
    // The bundle must not contain a part of a secret either.
    traces.iter().map(|trace| trace[..trace.len().min(16)].to_vec()).collect()
}

/// Returns a key of encrypted sessions as `carnet key` writes it.
fn base64_of_key(secret: &TestSecret) -> String {
    // 33 octets have 44 base64 digits. The last digit stands for the padding.
    let mut text = encode_base64(&[&secret.octets[..], &[0]].concat());
    text.replace_range(43.., "=");
    text
}

fn contains_octets(text: &[u8], piece: &[u8]) -> bool {
    text.windows(piece.len()).any(|window| window == piece)
}

/// Unpacks an archive with the system's tools; returns the folder.
fn unpack_archive(archive: &Path) -> PathBuf {
    let folder = archive.with_extension("unpacked");
    fs::create_dir_all(&folder).expect("a folder");
    let output = Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(&folder).output().expect("tar");
    assert!(output.status.success(), "{}", output_text(&output));
    folder.join("carnet-support")
}

fn collect_files(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => collect_files(&path, found),
            false => found.push((path.clone(), fs::read(&path).expect("a file"))),
        }
    }
}

fn write_owner_only(path: &Path, text: &str) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("a mode");
}

/// The station of this test has every kind of secret. A developer who adds a new kind must add it here, too.
#[test]
fn support_bundle_contains_no_secret_of_the_station() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let at = |name: &str| bed.scratch.path_of(name);
    let (mut config, mut secrets) = (bed.agent_config(), Vec::new());
    for (number, key) in secret_keys().iter().enumerate() {
        let number = u8::try_from(number).expect("a few kinds of secrets");
        let of_session = key.ends_with("private_key_file") || key.ends_with("preshared_key_file");
        let new = numbered_secret(number, if of_session { 32 } else { 16 });
        match key.as_str() {
            "auth.key" => config = config.replace("000102030405060708090a0b0c0d0e0f", &new.text),
            "auth.key_file" => {
                write_owner_only(&at("shared.key"), &new.text);
                config.push_str(
                    "\n[[home_agent.mobile_router]]\nhome_address = '2001:db8:1::77'\nauth = \
                     { spi = 301, key_file = 'shared.key' }\n",
                );
            }
            // Former keys, which the station still accepts, are secret too.
            "auth.former.key" => config.push_str(&format!(
                "\n[[home_agent.mobile_router]]\nhome_address = '2001:db8:1::78'\nauth = {{ spi = 301, key = \
                 '{}', former = [{{ spi = 300, key = '{}' }}] }}\n",
                numbered_secret(201, 16).text,
                new.text
            )),
            "auth.former.key_file" => {
                write_owner_only(&at("former.key"), &new.text);
                config.push_str(&format!(
                    "\n[[home_agent.mobile_router]]\nhome_address = '2001:db8:1::79'\nauth = {{ spi = 301, \
                     key = '{}', former = [{{ spi = 300, key_file = 'former.key' }}] }}\n",
                    numbered_secret(202, 16).text
                ));
            }
            "station.private_key_file" => {
                write_owner_only(&at("private.key"), &base64_of_key(&new));
                config = config_with_station_line(
                    &config,
                    &format!("private_key_file = '{}'", at("private.key").display()),
                );
            }
            "auth.preshared_key_file" => {
                write_owner_only(&at("preshared.key"), &base64_of_key(&new));
                config.push_str(&format!(
                    "\n[[home_agent.mobile_router]]\nhome_address = '2001:db8:1::80'\nauth = {{ public_key = \
                     '{}', preshared_key_file = 'preshared.key' }}\n",
                    base64_of_key(&numbered_secret(203, 32))
                ));
            }
            // The station of this test is neither mobile router nor mobile node. The code that reads
            // `auth.preshared_key_file` also reads these files.
            "mobile_router.preshared_key_file" | "mobile_node.preshared_key_file" => continue,
            "station.http_tokens" => {
                write_owner_only(&at("tokens"), &format!("operate {}\n", new.text));
                let line = format!("http = '127.0.0.1:8440'\nhttp_tokens = '{}'", at("tokens").display());
                config = config_with_station_line(&config, &line);
            }
            "security.tickets" => {
                fs::create_dir_all(at("tickets")).expect("a folder");
                write_owner_only(&at("tickets").join("one.key"), &format!("nistp256 {}\n", new.text));
                // `policy = 'off'`, because the program may be built without signatures.
                config.push_str("\n[security]\npolicy = 'off'\ntickets = 'tickets'\n");
                config.push_str(
                    "\n[geonet]\ninterface = 'udp:[::1]:8947,[::1]:8948'\nposition = \
                     'fixed:48.8375,2.1008'\n",
                );
            }
            other => panic!("{other}: put a secret of this kind into the station of this test"),
        }
        secrets.push((key.clone(), new));
    }
    // A comment in the config contains a previous secret, which must not be in the bundle.
    let old = numbered_secret(200, 16);
    config.push_str(&format!("\n# before: {}\n", old.text));
    secrets.push(("a comment".into(), old));

    let station = Station::start(&bed.agent, &config);
    let archive = at("bundle.tar.gz");
    let out = archive.to_str().expect("a path");
    let output = station.run_command(&["support-bundle", "--out", out]);
    assert!(output.status.success(), "{}", output_text(&output));
    assert_eq!(fs::metadata(&archive).expect("an archive").mode() & 0o777, 0o600);

    let folder = unpack_archive(&archive);
    let mut found = Vec::new();
    collect_files(&folder, &mut found);
    let manifest: Value =
        serde_json::from_slice(&fs::read(folder.join("manifest.json")).expect("a manifest")).expect("JSON");
    let text = manifest.to_string();
    for name in [
        "config/agent.toml",
        "station/status.json",
        "station/bindings.json",
        "station/counters.json",
        "station/metrics.txt",
        "process/smaps_rollup.txt",
        "network/links.json",
        "network/rules6.txt",
        "bpf/facts.json",
        "machine/kernel.txt",
    ] {
        assert!(folder.join(name).is_file(), "{name} is missing: {manifest:#}");
        assert!(text.contains(&format!("\"{name}\"")), "{name} is not in the manifest");
    }
    // The bundle must show the network namespace of the station, not that of the command.
    let routes = fs::read_to_string(folder.join("network/links.json")).expect("links");
    assert!(routes.contains("carnet0"), "{routes}");
    let shown = fs::read_to_string(folder.join("config/agent.toml")).expect("the config");
    assert!(shown.contains("spi = 300") && shown.contains("LEFT OUT"), "{shown}");

    for (key, secret) in &secrets {
        for (path, octets) in &found {
            for trace in representations_of(secret) {
                assert!(!contains_octets(octets, &trace), "{key} is in {}", path.display());
            }
        }
    }
    // Control: the search finds a secret in the config itself.
    let (_, one) = &secrets[0];
    assert!(representations_of(one).iter().any(|trace| contains_octets(config.as_bytes(), trace)));

    let again = station.run_command(&["support-bundle", "--out", out]);
    assert_eq!(again.status.code(), Some(1), "{}", output_text(&again));
    assert!(output_text(&again).contains("File exists"), "{}", output_text(&again));
}

/// Returns whether the program has the names of its functions. The linker mold removes them from a build
/// without debug information.
fn program_has_symbols() -> bool {
    let found = contains_octets(&fs::read(CARNET_PROGRAM).expect("the program"), b"\0.symtab\0");
    if !found {
        println!("\nSKIPPED: {CARNET_PROGRAM} has no symbols");
    }
    found
}

/// The station runs in the sandbox, if the sandbox is available.
#[test]
fn panic_leaves_a_backtrace_and_a_crash_report_for_the_bundle() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let state = bed.scratch.path_of("state");
    let config = config_with_station_line(&bed.agent_config(), &format!("state_dir = '{}'", state.display()));
    // The panic's message contains a text that looks like another line of the log.
    let wrapper = ["env", "CARNET_TEST_PANIC=forced\n2026-11-26T00:00:00Z  INFO all is well"];
    let mut station = Station::spawn_without_wait(&bed.agent, &config, &wrapper, CARNET_PROGRAM);
    let end = station.wait_for_end(Instant::now());
    assert!(!end.status.success(), "{}", end.status);
    let log = station.log_text();
    assert!(log.contains("at crates/carnet/src/run.rs:"), "{log}");
    assert!(log.contains(": forced\\n2026-11-26T00:00:00Z  INFO all is well\n"), "{log}");
    let named = |text: &str| !program_has_symbols() || text.contains("carnet::run::run");
    assert!(named(&log), "no function of carnet: {log}");

    let files: Vec<_> =
        fs::read_dir(&state).expect("a directory").map(|file| file.expect("a file").path()).collect();
    let mut reports = files.iter().filter(|path| path.to_string_lossy().contains("agent.crash."));
    let (report, other) = (reports.next().expect("a crash report"), reports.next());
    assert_eq!(other, None, "{files:?}");
    assert_eq!(fs::metadata(report).expect("a crash report").mode() & 0o777, 0o600);
    let text = fs::read_to_string(report).expect("a crash report");
    assert!(log.contains(&text) && named(&text), "{text}");

    let at = |name: &str| bed.scratch.path_of(name);
    let (archive, file) = (at("bundle.tar.gz"), station.config_file.display().to_string());
    let out = archive.to_str().expect("a path");
    let output = station.run_command(&["support-bundle", "--out", out, "--config", &file]);
    assert!(output.status.success(), "{}", output_text(&output));
    let name = report.file_name().expect("a name");
    assert_eq!(
        fs::read_to_string(unpack_archive(&archive).join("crash").join(name)).expect("in the bundle"),
        text
    );
}

#[test]
fn support_bundle_needs_no_running_station_or_valid_config() {
    let folder = std::env::temp_dir().join(format!("carnet-support-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = |name: &str| folder.join(name).display().to_string();
    fs::write(folder.join("bad.toml"), "[station]\nname = 'a'\nkey = 'geheim'\n").expect("a config");
    let (socket, out, config) = (path("none.sock"), path("a.tar.gz"), path("bad.toml"));
    let output = run_carnet(&["support-bundle", "--socket", &socket, "--out", &out, "--config", &config]);
    assert!(output.status.success(), "{}", output_text(&output));
    let unpacked = unpack_archive(Path::new(&out));
    let read = |name: &str| fs::read_to_string(unpacked.join(name)).expect(name);
    let manifest = read("manifest.json");
    assert!(manifest.contains("no running station answers: cannot reach the station at"), "{manifest}");
    assert_eq!(read("config/bad.toml"), "\n[station]\nkey = \"LEFT OUT\"\nname = \"a\"\n");
    let check = read("config/bad.toml.check.txt");
    assert!(check.contains("unknown key `key` in [station]") && !check.contains("geheim"), "{check}");
    fs::remove_dir_all(&folder).expect("gone");
}
