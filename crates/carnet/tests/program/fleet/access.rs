//! Tests of an etcd that demands certificates and users, and of another server in its place.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::{FLEET_PROGRAM, LONG_TIMES_CONFIG, TestFleet, start_members_and_router};
use crate::hosts::{Host, ScratchFolder, output_text, seconds, wait_for, wait_until};
use crate::station::CARNET_PROGRAM;

/// Port of etcd for its administrator, on the loopback interface of its machine, without TLS.
const ADMINISTRATOR_PORT: u16 = 2381;

/// Port of etcd without TLS for every client, which no real store would have.
const CLEAR_PORT: u16 = 2382;

/// Port on which a listener accepts connections but sends nothing.
const SILENT_PORT: u16 = 2383;

/// Runs `openssl`, which every Debian has.
fn run_openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
    let output = output.expect("openssl (Debian package openssl)");
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Creates an authority with the files `NAME.pem` and `NAME.key`.
fn create_authority(folder: &Path, name: &str) {
    fs::write(folder.join("openssl.cnf"), "[req]\ndistinguished_name = subject\n[subject]\n")
        .expect("a file");
    run_openssl(
        folder,
        &format!(
            "req -x509 -config openssl.cnf -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout \
             {name}.key -out {name}.pem -subj /CN={name} -days 3650 -addext basicConstraints=critical,CA:TRUE"
        ),
    );
}

/// Creates a certificate of the authority `by`, with its key. The certificate is valid for a server and for a
/// client, because the gateway of etcd is a client of etcd with the server's certificate.
fn create_certificate(folder: &Path, by: &str, name: &str, subject: &str, holds_for: &str) {
    run_openssl(
        folder,
        &format!(
            "req -x509 -CA {by}.pem -CAkey {by}.key -config openssl.cnf -newkey ec -pkeyopt \
             ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.pem -subj {subject} -days \
             3650 -addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=serverAuth,clientAuth \
             -addext subjectAltName={holds_for}"
        ),
    );
    make_owner_only(&folder.join(format!("{name}.key")));
}

fn make_owner_only(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("rights");
}

fn write_secret_file(path: &Path, text: &str) {
    fs::write(path, text).expect("a file");
    make_owner_only(path);
}

/// Creates all files that `[access]` names.
fn write_credentials(folder: &Path) {
    create_authority(folder, "ca");
    create_authority(folder, "other");
    create_certificate(folder, "ca", "etcd", "/CN=etcd", "IP:2001:db8:c::1");
    create_certificate(folder, "ca", "member", "/O=fleet", "DNS:member");
    create_certificate(folder, "ca", "named", "/O=fleet/CN=north", "DNS:member");
    create_certificate(folder, "other", "stranger", "/O=fleet", "DNS:member");
    write_secret_file(&folder.join("password"), "as long as it takes\n");
    write_secret_file(&folder.join("wrong"), "as long as it lasts\n");
}

const ACCESS_CONFIG: &str = "[access]\nca = 'ca.pem'\ncertificate = 'member.pem'\nkey = 'member.key'\n\
                      user = 'north'\npassword_file = 'password'\n";

/// Returns a fleet whose store demands certificates and users; `None` without etcd.
fn fleet_with_authentication() -> Option<TestFleet> {
    let fleet = TestFleet::with_etcd(1, |bed| {
        let path = |name: &str| bed.scratch.path_of(name).display().to_string();
        write_credentials(&bed.scratch.path_of(""));
        let urls = format!(
            "https://[2001:db8:c::1]:2379,https://[2001:db8:f0::1]:2379,http://[2001:db8:c::1]:{CLEAR_PORT},\
             http://127.0.0.1:{ADMINISTRATOR_PORT}"
        );
        let options = format!(
            "--cert-file {} --key-file {} --trusted-ca-file {} --client-cert-auth --auth-token-ttl 1",
            path("etcd.pem"),
            path("etcd.key"),
            path("ca.pem")
        );
        (urls, options, ACCESS_CONFIG.to_owned())
    })?;
    let core = &fleet.bed.core;
    wait_for("etcd", seconds(30), || call_etcd(core, "/v3/kv/range", &json!({"key": "AA=="}), None).ok());
    let key = |text: &str| STANDARD.encode(text);
    let all = json!({"permType": "READWRITE", "key": key("/carnet/"), "range_end": key("/carnet0")});
    for (path, body) in [
        ("user/add", json!({"name": "root", "password": "root"})),
        ("role/add", json!({"name": "root"})),
        ("user/grant", json!({"user": "root", "role": "root"})),
        ("role/add", json!({"name": "carnet"})),
        ("role/grant", json!({"name": "carnet", "perm": all})),
        ("user/add", json!({"name": "north", "password": "as long as it takes"})),
        ("user/grant", json!({"user": "north", "role": "carnet"})),
        ("enable", json!({})),
    ] {
        call_etcd(core, &format!("/v3/auth/{path}"), &body, None).expect(path);
    }
    Some(fleet)
}

/// Sends a request to etcd's JSON gateway from etcd's own machine.
fn call_etcd(core: &Host, path: &str, body: &Value, token: Option<&str>) -> Result<Value, String> {
    let (body, token) = (body.to_string(), token.map(|token| format!("Authorization: {token}\r\n")));
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n{}\r\n{body}",
        body.len(),
        token.unwrap_or_default()
    );
    let answer = core.run_in_namespace(move || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, ADMINISTRATOR_PORT))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    });
    let answer = answer.map_err(|error| error.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(answer.as_str())?;
    if head.starts_with("HTTP/1.1 200 ") {
        return serde_json::from_str(body).map_err(|error| format!("{error}: {body}"));
    }
    Err(body.to_owned())
}

/// Sends a request to etcd as its administrator, with a new token.
fn call_etcd_as_administrator(core: &Host, path: &str, body: &Value) -> Value {
    let root = json!({"name": "root", "password": "root"});
    let token = call_etcd(core, "/v3/auth/authenticate", &root, None).expect("a token");
    call_etcd(core, path, body, token["token"].as_str()).expect(path)
}

/// Returns the number of times that leaders have written the seat's key; `None` if the key does not exist.
fn leader_heartbeats(core: &Host) -> Option<u64> {
    let owner = json!({"key": STANDARD.encode("/carnet/north/owner")});
    let found = call_etcd_as_administrator(core, "/v3/kv/range", &owner);
    found["kvs"][0]["version"].as_str().map(|text| text.parse().expect("a number"))
}

#[test]
fn members_and_etcd_authenticate_each_other() {
    let Some(fleet) = fleet_with_authentication() else { return };
    let ([mut anna, bruno], router) = start_members_and_router(&fleet);
    let sent = router.counter("nemo.bu.sent");
    anna.kill();
    fleet.bed.core.run_ip("link set ha down");
    wait_until("the other has the binding", seconds(20), || bruno.has_router_binding());
    assert_eq!(router.counter("nemo.bu.sent"), sent, "{}", bruno.log());
    assert!(!bruno.log().contains("WARN"), "{}", bruno.log());
    // `carnet-fleet status` on the second machine must print the same state.
    let config = fleet.bed.scratch.path_of("bruno.fleet.toml");
    let status = |access: &str| {
        let text = fs::read_to_string(&config).expect("a config").replace(ACCESS_CONFIG, access);
        fs::write(&config, text).expect("a config");
        let output =
            fleet.host_of_member(1).run_program(&[FLEET_PROGRAM, "status", config.to_str().expect("a path")]);
        (output.status.code(), output_text(&output))
    };
    wait_until("status names the owner", seconds(20), || {
        let (code, text) = status(ACCESS_CONFIG);
        code == Some(0) && text.contains("bruno, whose home agent works")
    });
    let (code, text) = status(&ACCESS_CONFIG.replace("'password'", "'wrong'"));
    let refused = "[2001:db8:c::1]:2379: etcd refuses the user \"north\" (access.user): ";
    assert!(code == Some(1) && text.contains(refused), "{code:?} {text}");
}

/// One token expires because no request uses it. Another token is revoked, together with the rights of its
/// user.
#[test]
fn leader_renews_expired_etcd_token_without_losing_leadership() {
    let Some(mut fleet) = fleet_with_authentication() else { return };
    fleet.further_config = format!("{LONG_TIMES_CONFIG}{ACCESS_CONFIG}");
    let ([anna, _bruno], _router) = start_members_and_router(&fleet);
    let core = &fleet.bed.core;
    let goes_on = |after: &str| {
        let before = leader_heartbeats(core);
        assert!(before.is_some());
        wait_until(&format!("it beats after {after}"), seconds(20), || leader_heartbeats(core) > before);
    };
    goes_on("its start");
    kill(anna.pid(), Signal::SIGSTOP).expect("the member");
    // The pause is longer than the lifetime of the token.
    std::thread::sleep(seconds(4));
    kill(anna.pid(), Signal::SIGCONT).expect("the member");
    goes_on("its token has run out");
    let password = json!({"name": "north", "password": "as long as it takes"});
    call_etcd_as_administrator(core, "/v3/auth/user/changepw", &password);
    goes_on("its token is taken away");
    let more = json!({"permType": "READ", "key": STANDARD.encode("/other/")});
    call_etcd_as_administrator(core, "/v3/auth/role/grant", &json!({"name": "carnet", "perm": more}));
    goes_on("its rights have changed");
    let log = anna.log();
    assert!(anna.has_router_binding() && !log.contains("this member stops its process"), "{log}");
}

/// Each member logs the reason, and no member becomes the leader.
#[test]
fn member_without_valid_credentials_does_not_become_leader() {
    let Some(mut fleet) = fleet_with_authentication() else { return };
    let url = fleet.etcd_url.clone();
    let listen = || TcpListener::bind(("2001:db8:c::1", SILENT_PORT));
    let _silent = fleet.bed.core.run_in_namespace(listen).expect("a port");
    let [clear, silent] = [CLEAR_PORT, SILENT_PORT].map(|port| format!("https://[2001:db8:c::1]:{port}"));
    for (place, from, to, said) in [
        (&*url, "'ca.pem'", "'other.pem'", "expected a certificate from an authority in "),
        ("https://[2001:db8:f0::1]:2379", "", "", "expected a certificate that holds for 2001:db8:f0::1"),
        (&*clear, "", "", "expected TLS, as store has https://"),
        (&*silent, "", "", "cannot reach etcd at [2001:db8:c::1]:2383: etcd did not answer in time"),
        (&*url, "member.", "stranger.", "etcd does not take this member's certificate (access.certificate)"),
        (
            &*url,
            "certificate = 'member.pem'\nkey = 'member.key'\n",
            "",
            "etcd does not take this member's certificate (access.certificate)",
        ),
        (
            &*url,
            "'password'",
            "'wrong'",
            "etcd refuses the user \"north\" (access.user): etcdserver: authentication failed",
        ),
        (
            &*url,
            "user = 'north'\npassword_file = 'password'\n",
            "",
            "expected the key access.user in the config",
        ),
        (&*url, "[access]", "fleet = 'other'\n[access]", "permission denied"),
    ] {
        fleet.etcd_url = place.to_owned();
        fleet.further_config = ACCESS_CONFIG.replace(from, to);
        let anna = fleet.start_member(0);
        wait_until(said, seconds(60), || anna.log().contains(said));
        assert_eq!((leader_heartbeats(&fleet.bed.core), anna.bindings()), (None, None), "{}", anna.log());
        drop(anna);
        fs::remove_file(fleet.bed.scratch.path_of("anna.log")).expect("its log");
    }
    // Control: with the right files the member becomes the leader.
    (fleet.etcd_url, fleet.further_config) = (url, ACCESS_CONFIG.to_owned());
    let anna = fleet.start_member(0);
    wait_for("a home agent", seconds(30), || anna.bindings());
}

/// Before it sends any request, carnet-fleet refuses a config that cannot work.
#[test]
fn a_config_of_access_with_a_mistake_is_refused() {
    let scratch = ScratchFolder::new();
    let folder = scratch.path_of("");
    write_credentials(&folder);
    let public = |name: &str, text: &str| fs::write(folder.join(name), text).expect("a file");
    public("none.pem", "no certificate\n");
    public("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    public("public", "as long as it takes\n");
    fs::set_permissions(folder.join("public"), fs::Permissions::from_mode(0o644)).expect("rights");
    write_secret_file(&folder.join("empty"), "\n");
    write_secret_file(&folder.join("two"), "one\ntwo\n");
    write_secret_file(&folder.join("none.key"), "no key\n");
    std::os::unix::fs::symlink("password", folder.join("link")).expect("a link");
    let file = folder.join("fleet.toml");
    let checked = |text: &str| {
        fs::write(&file, text).expect("a config file");
        let output =
            Command::new(FLEET_PROGRAM).args(["check", "--config"]).arg(&file).output().expect("the program");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let good = format!(
        "member = 'anna'\nstore = ['https://[2001:db8::1]:2379', 'https://192.0.2.1:2379', \
         'https://etcd.example:2379/']\nseat = 'north'\nconfig = 'north.toml'\nmembers = ['anna']\nprogram = \
         '{CARNET_PROGRAM}'\n{ACCESS_CONFIG}"
    );
    public("north.toml", include_str!("../../../../../packaging/examples/north.toml"));
    // The private key of RFC 7748 6.1.
    write_secret_file(&folder.join("north.key"), "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n");
    assert_eq!(checked(&good), (Some(0), String::new()));
    let only_ca = &good[..good.find("certificate =").expect("there")];
    assert_eq!(checked(only_ca), (Some(0), String::new()));
    let begin = format!("{}: access", file.display());
    for (from, to, said) in [
        (
            "'https://192",
            "'http://192",
            "store: expected https:// for all etcd servers or for none, found \"https://[2001",
        ),
        ("https://", "http://", "access.ca: expected etcd servers with https:// only, found http://"),
        (
            "etcd.example:",
            "etcd example:",
            "store: expected a name or an address that a certificate can be for",
        ),
        ("[2001:db8::1]", "[fe80::1%eth0]", "for, found \"[fe80::1%eth0]\""),
        (ACCESS_CONFIG, "", "access.ca: expected the file with the authorities of etcd's certificates"),
        ("ca = 'ca.pem'", "", "access.ca: expected the file with the authorities of etcd's certificates"),
        ("'ca.pem'", "'absent.pem'", "access.ca: cannot read "),
        ("'ca.pem'", "'none.pem'", "none.pem: expected certificates in PEM, found none"),
        ("'ca.pem'", "'broken.pem'", "broken.pem: expected certificates"),
        ("certificate = 'member.pem'\n", "", "access.certificate: expected the certificate of access.key"),
        ("key = 'member.key'\n", "", "access.key: expected the private key of access.certificate"),
        ("'member.pem'", "'etcd.pem'", "access.key: expected the key of the certificate in "),
        ("'member.key'", "'none.key'", "none.key: expected a key in PEM that is not encrypted, found none"),
        ("'member.key'", "'public'", "public: expected file mode 0600, found 0644"),
        ("user = 'north'\n", "", "access.user: expected the etcd user of access.password_file"),
        ("'north'\npassword", "''\npassword", "access.user: expected the name of an etcd user"),
        (
            "password_file = 'password'\n",
            "",
            "access.password_file: expected the file with the password of access.user",
        ),
        ("'password'", "'absent'", "access.password_file: cannot take "),
        ("'password'", "'public'", "public: expected file mode 0600, found 0644"),
        ("'password'", "'link'", "link: expected a file, found a symbolic link"),
        ("'password'", "'empty'", "empty: expected one line of text"),
        ("'password'", "'two'", "two: expected one line of text"),
        ("password_file", "password", "unknown field `password`"),
    ] {
        assert!(good.contains(from), "{from}");
        let (status, text) = checked(&good.replace(from, to));
        assert!(status == Some(2) && text.contains(said), "{to}: {status:?} {text}");
        assert!(!text.contains("as long as"), "a password is in {text}");
    }
    // carnet-fleet refuses a config with a password but without TLS.
    let clear = good.replace("https://", "http://");
    let certificates = &ACCESS_CONFIG["[access]\n".len()..ACCESS_CONFIG.find("user =").expect("there")];
    let (status, text) = checked(&clear.replace(certificates, ""));
    let said = "access.user: expected etcd servers with https:// only, because http:// sends the password";
    assert!(status == Some(2) && text.contains(said), "{status:?} {text}");
    assert!(text.contains(&begin), "{text}");
}
