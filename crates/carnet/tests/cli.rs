//! Tests exit status and output of the built program.

#[path = "cli/geonet.rs"]
mod geonet;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const VALID_CONFIG: &str = "[station]\nname = 'a'\n[home_agent]\naddress = 'fd00::1'\nhome_prefix = \
 'fd00::/64'\n\
                    [[home_agent.mobile_router]]\nhome_address = 'fd00::2'\nauth = 'none'\n";

fn run_carnet(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_carnet"))
        .args(arguments)
        .env_remove("CARNET_SOCKET")
        .env_remove("RUST_LOG")
        .output()
        .expect("the program")
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns a path for a file of the test with this name. Removes a file that an earlier run left there.
fn new_scratch_folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("carnet-cli-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Listens on the socket and answers one request with `answer`. Returns the first line and the body of the
/// request.
fn answer_one_request(socket: &PathBuf, answer: String) -> std::thread::JoinHandle<(String, String)> {
    let listener = UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        let mut reader = BufReader::new(stream);
        let (mut request, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a line");
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if request.is_empty() {
                request = line.trim().to_owned();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        reader.get_mut().write_all(answer.as_bytes()).expect("an answer");
        (request, String::from_utf8(body).expect("a body"))
    })
}

fn http_response(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[cfg(feature = "wireguard")]
#[test]
fn key_command_writes_private_key_file_and_prints_public_key() {
    use std::os::unix::fs::PermissionsExt;

    let path = new_scratch_folder("key");
    let file = path.to_string_lossy().into_owned();
    let output = run_carnet(&["key", "--out", &file]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_eq!(stderr_text(&output), "");
    assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o7777, 0o600);
    let written = std::fs::read_to_string(&path).expect("a file");
    let private: carnet_wireguard::PrivateKey = written.parse().expect("a private key");
    assert_eq!(stdout_text(&output), format!("{}\n", private.public_key()));
    assert_eq!((written.len(), stdout_text(&output).len()), (45, 45));

    let again = run_carnet(&["key", "--out", &file]);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr_text(&again).contains("cannot write the private key"), "{}", stderr_text(&again));
    assert_eq!(stdout_text(&again), "");
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), written, "the file is not overwritten");
    let _ = std::fs::remove_file(&path);
}

#[cfg(feature = "wireguard")]
#[test]
fn public_key_of_private_key_file_is_printed() {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    let path = new_scratch_folder("public");
    let file = path.to_string_lossy().into_owned();
    let made = run_carnet(&["key", "--out", &file]);
    let output = run_carnet(&["key", "public", &file]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_eq!((stdout_text(&output), stderr_text(&output)), (stdout_text(&made), String::new()));

    set_permissions(&path, Permissions::from_mode(0o640)).expect("a mode");
    let open = run_carnet(&["key", "public", &file]);
    set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
    write(&path, "secret").expect("a file");
    let short = run_carnet(&["key", "public", &file]);
    std::fs::remove_file(&path).expect("gone");
    let missing = run_carnet(&["key", "public", &file]);
    for (output, error) in [
        (open, "(mode 0640), expected mode 0600 (chmod 600)"),
        (short, "the key has 6 characters, expected a key of 44 characters (base64, 32 octets)"),
        (missing, "No such file or directory"),
    ] {
        let said = stderr_text(&output);
        assert_eq!((output.status.code(), stdout_text(&output)), (Some(1), String::new()), "{said}");
        assert!(said.contains(error) && said.contains(&file) && !said.contains("secret"), "{said}");
    }
}

#[cfg(feature = "wireguard")]
#[test]
fn private_key_alone_goes_to_standard_output() {
    let output = run_carnet(&["key"]);
    assert!(output.status.success());
    let private: carnet_wireguard::PrivateKey = stdout_text(&output).parse().expect("a private key");
    assert_eq!(stderr_text(&output), format!("public key: {}\n", private.public_key()));
    assert_ne!(stdout_text(&output), stdout_text(&run_carnet(&["key"])));
}

#[test]
fn check_command_accepts_and_warns() {
    let path = new_scratch_folder("good.toml");
    std::fs::write(&path, VALID_CONFIG).expect("a config");
    let name = path.to_str().expect("a path");
    let output = run_carnet(&["check", "--config", name]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout_text(&output), "tunnels: in the clear\n");
    assert_eq!(
        stderr_text(&output),
        format!(
            "{name}: warning: home_agent.mobile_router fd00::2: auth = \"none\": anyone who reaches the home \
             agent can take over the traffic of this mobile router\n"
        )
    );
    std::fs::remove_file(path).expect("gone");
}

/// A config that is valid but unwise causes a warning, whether the file is an argument or an option.
#[test]
fn check_warns_of_published_keys() {
    use std::os::unix::fs::PermissionsExt;

    let (path, key) = (new_scratch_folder("known.toml"), new_scratch_folder("known.key"));
    std::fs::write(&key, "000102030405060708090a0b0c0d0e0f\n").expect("a key");
    let text = VALID_CONFIG.replace("'none'", &format!("{{ spi = 300, key_file = '{}' }}", key.display()));
    assert_ne!(text, VALID_CONFIG);
    std::fs::write(&path, text).expect("a config");
    let name = path.to_str().expect("a path");
    let documented = format!(
        "{name}: warning: home_agent.mobile_router fd00::2: this key is printed in the \
                 documentation"
    );
    let readable =
        format!("{name}: warning: {}: others may read the key in it, its mode is 0644", key.display());
    for (mode, command) in [(0o644, vec!["check", name]), (0o600, vec!["check", "--config", name])] {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).expect("a mode");
        let output = run_carnet(&command);
        assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
        assert!(stderr_text(&output).contains(&documented), "{}", stderr_text(&output));
        assert_eq!(stderr_text(&output).contains(&readable), mode == 0o644, "{}", stderr_text(&output));
    }
    std::fs::remove_file(&key).expect("gone");
    std::fs::remove_file(&path).expect("gone");
}

/// `carnet status --wait` ends with an error after its time limit if no station starts.
#[test]
fn status_wait_ends_after_its_timeout() {
    let nowhere = new_scratch_folder("nowhere.sock");
    let socket = nowhere.to_str().expect("a path");
    let output = run_carnet(&["status", "--wait", "registered", "--timeout", "1s", "--socket", socket]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!(
        "carnet: the station has not reached the state of --wait after 1 s: cannot reach the station at \
         {socket}: "
    );
    assert!(stderr_text(&output).starts_with(&expected), "{}", stderr_text(&output));
    assert_eq!(stdout_text(&output), "");
    let output = run_carnet(&["status", "--timeout", "1s"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr_text(&output));
}

#[test]
fn check_and_run_report_every_config_mistake() {
    let path = new_scratch_folder("bad.toml");
    std::fs::write(&path, VALID_CONFIG.replace("'a'", "'a b'").replace("'fd00::2'", "'fe80::2'"))
        .expect("a config");
    let name = path.to_str().expect("a path");
    for command in ["check", "run"] {
        let output = run_carnet(&[command, "--config", name]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        let errors = stderr_text(&output);
        let lines: Vec<&str> = errors.lines().collect();
        assert_eq!(lines.len(), 2, "{errors}");
        assert!(
            lines[0].starts_with(&format!("{name}:2:8: `station.name`: \"a b\" is no name, ")),
            "{errors}"
        );
        assert!(lines[1].starts_with(&format!("{name}:7:16: ")), "{errors}");
        assert_eq!(stdout_text(&output), "");
    }
    std::fs::remove_file(&path).expect("gone");
    let output = run_carnet(&["check", "--config", name]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr_text(&output).starts_with(&format!("{name}: cannot read the config")),
        "{}",
        stderr_text(&output)
    );
}

/// `carnet check` refuses a token file that other users may read.
#[test]
fn check_reports_mistakes_of_the_token_file() {
    use std::os::unix::fs::PermissionsExt;

    let (path, tokens) = (new_scratch_folder("guarded.toml"), new_scratch_folder("guarded.tokens"));
    let place = tokens.display();
    let text = format!(
        "[station]\nname = 'a'\nhttp = '[2001:db8::1]:8440'\nhttp_tokens = '{place}'\n\
         [geonet]\ninterface = 'wlan1'\nposition = 'fixed:48.8375,2.1008'\n"
    );
    std::fs::write(&path, text).expect("a config");
    let check = || {
        let output = run_carnet(&["check", "--config", path.to_str().expect("a path")]);
        (output.status.code(), stderr_text(&output))
    };
    let write = |text: &str, mode| {
        std::fs::write(&tokens, text).expect("tokens");
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    let (status, errors) = check();
    assert!(status == Some(2) && errors.starts_with(&format!("cannot read {place}: ")), "{errors}");
    write("read 0123456789abcdef\nwrite 0123456789abcdef\n", 0o600);
    assert_eq!(check(), (Some(2), format!("{place}:2: expected a line `read TOKEN` or `operate TOKEN`\n")));
    write("read 0123456789abcdef\n", 0o600);
    assert_eq!(check(), (Some(0), String::new()));
    write("read 0123456789abcdef\n", 0o644);
    let open = format!(
        "cannot read {place}: expected file mode 0600, found 0644: other users may read or write the file \
         (chmod 600)\n"
    );
    assert_eq!(check(), (Some(2), open));
    std::fs::remove_file(&tokens).expect("gone");
    std::fs::remove_file(&path).expect("gone");
}

/// `carnet check` reads the trace of positions that the config names. So the operator sees its mistakes
/// before the station starts.
#[test]
fn check_reports_mistakes_of_the_position_trace() {
    let (path, trace) = (new_scratch_folder("follows.toml"), new_scratch_folder("drive.trace"));
    let text = format!(
        "[station]\nname = 'a'\n[geonet]\ninterface = 'wlan1'\nposition = 'trace:{}'\n",
        trace.display()
    );
    std::fs::write(&path, text).expect("a config");
    let check = || {
        let output = run_carnet(&["check", "--config", path.to_str().expect("a path")]);
        (output.status.code(), stderr_text(&output))
    };
    std::fs::write(&trace, "# nothing yet\n0 48.8375 2.1008\n5 48.8375 200\n").expect("a trace");
    let expected =
        format!("{}:3: expected a longitude of -180 to 180, found `5 48.8375 200`\n", trace.display());
    assert_eq!(check(), (Some(2), expected));
    std::fs::write(&trace, "0 48.8375 2.1008\n5 lost\n").expect("a trace");
    assert_eq!(check(), (Some(0), String::new()));
    std::fs::remove_file(&trace).expect("gone");
    let (status, errors) = check();
    assert_eq!(status, Some(2));
    assert!(errors.contains(trace.to_str().expect("a path")), "{errors}");
    std::fs::remove_file(&path).expect("gone");
}

/// An upper tester lets every program that reaches its port control the station. So only a program that was
/// built with the feature accepts this config.
#[test]
fn check_accepts_an_upper_tester_only_with_its_feature() {
    let path = new_scratch_folder("tester.toml");
    let config = "[station]\nname = 'a'\n[geonet]\ninterface = 'gn0'\nposition = 'fixed:48.8375,2.1008'\n\
                  [conformance]\nupper_tester = '[::1]:12345'\n";
    std::fs::write(&path, config).expect("a config");
    let output = run_carnet(&["check", path.to_str().expect("a path")]);
    let refusal = "[conformance]: this program was built without the feature `upper-tester`";
    let is_refused = stderr_text(&output).contains(refusal);
    let expected = if cfg!(feature = "upper-tester") { (Some(0), false) } else { (Some(2), true) };
    assert_eq!((output.status.code(), is_refused), expected, "{}", stderr_text(&output));
    let _ = std::fs::remove_file(&path);
}

#[test]
fn run_refuses_an_invalid_log_filter() {
    let path = new_scratch_folder("log.toml");
    std::fs::write(&path, VALID_CONFIG).expect("a config");
    let output = run_carnet(&["run", "--config", path.to_str().expect("a path"), "--log", "carnet=loud"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_text(&output).contains("\"carnet=loud\" is no log filter"), "{}", stderr_text(&output));
    std::fs::remove_file(path).expect("gone");
}

#[test]
fn command_without_running_station_has_exit_status_1() {
    let path = new_scratch_folder("nobody.sock");
    let name = path.to_str().expect("a path");
    for command in [
        &["status"][..],
        &["show", "bindings"],
        &["show", "counters", "--json"],
        &["watch"],
        &["handover", "auto"],
        &["show", "neighbours"],
        &["gnping", "area:crossing"],
        &["gnsend", "shb", "--payload", "00"],
        &["gnrecv"],
    ] {
        let output = run_carnet(&[command, &["--socket", name]].concat());
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        let expected = format!("carnet: cannot reach the station at {name}: No such file or directory");
        assert!(stderr_text(&output).starts_with(&expected), "{}", stderr_text(&output));
    }
}

#[test]
fn refused_command_has_exit_status_1() {
    let path = new_scratch_folder("answer.sock");
    let name = path.to_str().expect("a path");

    let station = answer_one_request(&path, http_response("200 OK", "{\"a.b\":1}"));
    let output = run_carnet(&["show", "counters", "--socket", name]);
    assert_eq!((output.status.code(), stdout_text(&output).as_str()), (Some(0), "a.b  1\n"));
    assert_eq!(station.join().expect("a request").0, "GET /v1/counters HTTP/1.1");
    std::fs::remove_file(&path).expect("gone");

    let station = answer_one_request(&path, http_response("200 OK", "{\"a.b\":1}"));
    let output = run_carnet(&["show", "counters", "--json", "--socket", name]);
    assert_eq!((output.status.code(), stdout_text(&output).as_str()), (Some(0), "{\n  \"a.b\": 1\n}\n"));
    station.join().expect("a request");
    std::fs::remove_file(&path).expect("gone");

    let station =
        answer_one_request(&path, http_response("409 Conflict", "{\"error\":\"eth9 is not an uplink\"}"));
    let output = run_carnet(&["handover", "eth9", "--socket", name]);
    assert_eq!(
        (output.status.code(), stderr_text(&output).as_str()),
        (Some(1), "carnet: eth9 is not an uplink\n")
    );
    let (request, body) = station.join().expect("a request");
    assert_eq!((request.as_str(), body.as_str()), ("POST /v1/handover HTTP/1.1", "{\"uplink\":\"eth9\"}"));
    std::fs::remove_file(&path).expect("gone");

    let station = answer_one_request(&path, "HTTP/1.1 204 No Content\r\n\r\n".to_owned());
    let output = run_carnet(&["handover", "auto", "--socket", name]);
    assert_eq!((output.status.code(), stdout_text(&output).as_str()), (Some(0), ""));
    assert_eq!(station.join().expect("a request").1, "{\"uplink\":null}");
    std::fs::remove_file(&path).expect("gone");

    let stream = "HTTP/1.1 200 OK\r\n\r\n:\n\ndata: {\"event\":\"missed\",\"time\":0,\"count\":2}\n\n";
    let station = answer_one_request(&path, stream.to_owned());
    let output = run_carnet(&["watch", "--json", "--socket", name]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    assert_eq!(stdout_text(&output), "{\"count\":2,\"event\":\"missed\",\"time\":0}\n");
    station.join().expect("a request");
    std::fs::remove_file(&path).expect("gone");

    let station = answer_one_request(&path, http_response("200 OK", "<html>"));
    let output = run_carnet(&["status", "--socket", name]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr_text(&output).starts_with("carnet: the station's answer to /v1/status is no JSON"));
    station.join().expect("a request");
    std::fs::remove_file(&path).expect("gone");
}

#[test]
fn wrong_arguments_have_exit_status_2_and_help_has_examples() {
    let output = run_carnet(&["--version"]);
    assert_eq!(stdout_text(&output), format!("carnet {}\n", env!("CARGO_PKG_VERSION")));
    for command in ["run", "check", "status", "show", "watch", "handover", "gnping", "gnsend", "gnrecv"] {
        let output = run_carnet(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0));
        let help = stdout_text(&output);
        assert!(help.contains("Example") && help.contains(&format!("\n  carnet {command} ")), "{help}");
    }
    for arguments in [&[][..], &["fly"], &["show", "teeth"], &["run"], &["handover"]] {
        assert_eq!(run_carnet(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

/// The example configs in the packages are those of the README, and have no mistakes.
#[test]
fn example_configs_pass_the_check() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("the README");
    for name in ["home.toml", "bus-42.toml"] {
        let file = root.join("packaging/examples").join(name);
        let text = std::fs::read_to_string(&file).expect(name);
        assert!(readme.contains(&format!("```toml\n{text}```")), "{name} is not in the README");
        // The file of the private key is beside the config.
        let config = new_scratch_folder(name);
        let key = config.with_extension("key");
        let key_name = key.file_name().and_then(|name| name.to_str()).expect("the name of the key file");
        let own = text.replace(&format!("\"{}\"", name.replace("toml", "key")), &format!("\"{key_name}\""));
        std::fs::write(&config, own).expect(name);
        assert!(run_carnet(&["key", "--out", key.to_str().expect("a path")]).status.success());
        let output = run_carnet(&["check", "--config", config.to_str().expect("a path")]);
        let found = (output.status.code(), stdout_text(&output), stderr_text(&output));
        assert_eq!(found, (Some(0), "tunnels: encrypted\n".to_owned(), String::new()), "{name}");
        std::fs::remove_file(config).expect("the config is there");
        std::fs::remove_file(key).expect("the key is there");
    }
    let folder = new_scratch_folder("fleet");
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["north.toml", "fleet.toml"] {
        std::fs::copy(root.join("packaging/examples").join(name), folder.join(name)).expect(name);
    }
    let (north, key) = (folder.join("north.toml"), folder.join("north.key"));
    assert!(run_carnet(&["key", "--out", key.to_str().expect("a path")]).status.success());
    let output = run_carnet(&["check", "--config", north.to_str().expect("a path")]);
    // The station of this example stores its state in etcd, so its config needs no state directory.
    assert!(
        output.status.success() && stderr_text(&output).contains("without station.state_dir"),
        "{}",
        stderr_text(&output)
    );
    let output = Command::new(env!("CARGO_BIN_EXE_carnet-fleet"))
        .arg("check")
        .arg(folder.join("fleet.toml"))
        // carnet-fleet searches `PATH` for the carnet program.
        .env("PATH", Path::new(env!("CARGO_BIN_EXE_carnet")).parent().expect("a folder"))
        .output()
        .expect("carnet-fleet runs");
    assert_eq!((output.status.code(), stderr_text(&output).as_str()), (Some(0), ""), "fleet.toml");
    std::fs::remove_dir_all(folder).expect("the folder is there");
}

/// systemd accepts the units, and the units restrict the programs to the rights that their work needs.
#[test]
fn systemd_accepts_the_unit_files() {
    for (name, unit) in [
        ("carnet@.service", include_str!("../../../packaging/systemd/carnet@.service")),
        ("carnet-fleet@.service", include_str!("../../../packaging/systemd/carnet-fleet@.service")),
    ] {
        is_valid_unit_file(name, unit);
    }
}

fn is_valid_unit_file(name: &str, unit: &str) {
    let folder = std::env::temp_dir().join(format!("carnet-unit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join(name);
    let here = unit.replace("/usr/bin/carnet", env!("CARGO_BIN_EXE_carnet"));
    std::fs::write(&file, here).expect("a unit file");
    let analyze = |arguments: &[&str]| Command::new("systemd-analyze").args(arguments).arg(&file).output();
    let verified = analyze(&["verify", "--man=no"]);
    // systemd-analyze counts in tenths: the threshold 30 means an exposure of 3.0 out of 10.
    let exposed = analyze(&["security", "--offline=true", "--threshold=30", "--no-pager"]);
    std::fs::remove_dir_all(&folder).expect("removed");
    if let Ok(output) = exposed {
        assert!(output.status.success(), "{}", stdout_text(&output));
    }
    match verified {
        Ok(output) => {
            assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr_text(&output));
        }
        Err(error) => eprintln!("skipped: no systemd-analyze: {error}"),
    }
}
