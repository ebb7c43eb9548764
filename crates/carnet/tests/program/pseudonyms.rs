//! A vehicle changes its pseudonym: other stations see a new vehicle. IPv6 connections continue if their
//! addresses stay the same.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use carnet_base::WallTime;
use carnet_security::certificate::Certificate;
use carnet_security::credentials::PrivateKey;
use carnet_security::crypto::{PortableBackend, SigningKey, name_of_certificate};
use carnet_security::ids::HashedId8;
use carnet_security::keys::EllipticCurve;
use carnet_security::pki;
use carnet_security::pseudonym::StationIdentity;
use carnet_security::time::{DurationUnit, Time64, ValidityDuration, ValidityPeriod};
use serde_json::{Value, json};

use crate::air::FrameReceiver;
use crate::facilities::http_request;
use crate::geonet::StationLine;
use crate::hosts::{Host, assert_same_state, can_run_or_report, output_text, seconds, wait_until};
use crate::station::Station;

/// Folder with certificates, and the identity that belongs to each ticket.
struct TestPki {
    folder: PathBuf,
    identities: Vec<StationIdentity>,
}

fn private_key(number: u8) -> PrivateKey {
    let mut scalar = [number; 32];
    scalar[0] = 1;
    PrivateKey::new(EllipticCurve::NistP256, &scalar).expect("as long as the curve's")
}

fn signing_key(number: u8) -> Box<dyn SigningKey> {
    private_key(number).to_signing_key(&PortableBackend).expect("a scalar of the curve")
}

impl TestPki {
    /// Creates one ticket in the folder `one`, and two tickets in the folder `two`.
    fn new(folder: &Path) -> TestPki {
        let since = SystemTime::UNIX_EPOCH.elapsed().expect("a clock after 1970");
        let now = WallTime::from_unix_nanos(u64::try_from(since.as_nanos()).expect("before 2554"));
        let start = Time64::from_wall_time(now, 5).saturating_sub(Duration::from_secs(600)).to_seconds();
        let day = ValidityPeriod {
            start,
            duration: ValidityDuration { unit: DurationUnit::Hours, unit_count: 24 },
        };
        let issue = |key: &dyn SigningKey, issuer: Option<&Certificate>, content| {
            pki::issue_certificate(&PortableBackend, key, issuer, content).expect("signed")
        };
        let (root_key, authority_key) = (signing_key(1), signing_key(2));
        let root = issue(
            root_key.as_ref(),
            None,
            pki::root_certificate_content("root", root_key.public_key(), day, None),
        );
        let content = pki::authority_certificate_content("aa", authority_key.public_key(), day, None);
        let authority = issue(root_key.as_ref(), Some(&root), content);
        fs::create_dir_all(folder).expect("a folder");
        fs::write(folder.join("root.cert"), root.octets()).expect("a file");
        fs::write(folder.join("aa.cert"), authority.octets()).expect("a file");
        let mut identities = Vec::new();
        for (number, of) in [(11, "one"), (12, "two"), (13, "two")] {
            let content = pki::ticket_content(
                signing_key(number).public_key(),
                day,
                None,
                pki::test_applications(false),
            );
            let ticket = issue(authority_key.as_ref(), Some(&authority), content);
            fs::create_dir_all(folder.join(of)).expect("a folder");
            fs::write(folder.join(of).join(format!("{number}.cert")), ticket.octets()).expect("a file");
            let key = folder.join(of).join(format!("{number}.key"));
            fs::write(&key, private_key(number).to_line()).expect("a file");
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("its rights");
            identities.push(StationIdentity::of_ticket(name_of_certificate(&PortableBackend, &ticket)));
        }
        TestPki { folder: folder.to_owned(), identities }
    }

    fn station_config(&self, tickets: &str) -> String {
        let path = |name: &str| self.folder.join(name).display().to_string();
        format!(
            "[facilities]\n[security]\nroots = ['{}']\nauthorities = ['{}']\ntickets = '{}'\n",
            path("root.cert"),
            path("aa.cert"),
            path(tickets)
        )
    }

    /// Returns the identity that has this MID.
    fn identity_of(&self, mid: [u8; 6]) -> StationIdentity {
        *self.identities.iter().find(|identity| identity.mid == mid).expect("the address of a ticket")
    }
}

/// Returns the MID of the GN address of a station.
fn current_mid(station: &Station) -> [u8; 6] {
    let status = station.show_json("status");
    let address = status["geonet"]["gn_address"].as_str().expect("an address").replace(':', "");
    let [_, _, mid @ ..] = u64::from_str_radix(&address, 16).expect("hexadecimal").to_be_bytes();
    mid
}

fn format_mac(mid: [u8; 6]) -> String {
    mid.map(|octet| format!("{octet:02x}")).join(":")
}

/// Returns octets that identify a station: its MID, its station ID, the end of its link-local address, and
/// the digest of its ticket.
fn identifying_octets(StationIdentity { ticket: HashedId8(name), mid }: StationIdentity) -> [Vec<u8>; 4] {
    let [_, _, _, d, e, f] = mid;
    [mid.to_vec(), mid[2..].to_vec(), vec![0xff, 0xfe, d, e, f], name.to_vec()]
}

/// The station signs messages that its ticket permits. It refuses all other messages, and names the
/// application's identifier.
#[test]
fn messages_without_permission_of_ticket_are_refused() {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    let pki = TestPki::new(&line.scratch.path_of("pki"));
    let config = format!("{}\n{}", line.station_config(0, "radio", ""), pki.station_config("one"));
    let mut station = Station::start(&line.hosts[0], &config);
    let post = |path: &str, body: &Value| http_request(&station.control_socket, "POST", path, body);
    wait_until("the station knows where it is", seconds(10), || {
        station.show_json("status")["geonet"]["position"] == "fix"
    });
    let conflict = |answer: &str, reason: &str| {
        assert!(answer.starts_with("HTTP/1.0 409") && answer.contains(reason), "{reason}: {answer}");
    };
    // Road works, which the SSP of an ordinary ticket does not permit (EN 302 637-3 table 7).
    conflict(&post("/v1/denm", &json!({"cause": 3})), "application 37 (DENM)");
    let message = |port: u16| {
        json!({"transport": {"type": "shb"}, "next_header": "btp-b", "port": port, "pay\
        load": "c0ffee"})
    };
    let reason =
        |application: &str| format!("the ticket of this station does not permit application {application}");
    for (port, application) in [(2008, "637 (SSEM)"), (2003, "138 (MAPEM)")] {
        conflict(&post("/v1/gnsend", &message(port)), &reason(application));
    }
    let sent = station.run_command(&[
        "gnsend",
        "shb",
        "--next-header",
        "btp-b",
        "--port",
        "2008",
        "--payload",
        "c0ffee",
    ]);
    assert_eq!(sent.status.code(), Some(1));
    assert!(output_text(&sent).contains(&reason("637 (SSEM)")), "{}", output_text(&sent));
    assert_eq!(station.counter("facilities.denm.sent"), 0);

    let made = post("/v1/denm", &json!({"cause": 94}));
    assert!(made.starts_with("HTTP/1.0 20") && made.contains("action_id"), "{made}");
    wait_until("the event is sent", seconds(5), || station.counter("facilities.denm.sent") > 0);
    station.terminate();
}

#[test]
fn pseudonym_change_leaves_no_link_and_keeps_ipv6() {
    if !can_run_or_report() {
        return;
    }
    let line = StationLine::new();
    let before: Vec<String> = line.hosts.iter().map(Host::kernel_state).collect();
    let pki = TestPki::new(&line.scratch.path_of("pki"));
    let [west, middle, _] = &line.hosts;
    let with_ipv6 = |config: String| {
        config.replace("[geonet]\n", "[geonet]\nipv6_interface = 'gn0'\nmib = { max_packet_data_rate = 0 }\n")
    };
    // The vehicle drives northwards, 20 metres a second.
    let trace = line.scratch.path_of("trace");
    fs::write(&trace, "0 48.8375 2.1008 20 0\n600 48.9454 2.1008 20 0\n").expect("a file");
    let config = with_ipv6(line.station_config(0, "radio", ""))
        .replace("position = 'fixed:48.8375,2.1008'", &format!("position = 'trace:{}'", trace.display()))
        .replace("[geonet]\n", "[geonet]\naddress = 'anonymous'\nstation_type = 'passenger_car'\n");
    assert!(config.contains("trace:"), "{config}");
    let pseudonyms = "[security.pseudonyms]\nmin_first_distance = '40m'\nmax_first_distance = '40m'\n";
    let mut vehicle = Station::start(west, &format!("{config}\n{}{pseudonyms}", pki.station_config("two")));
    let order = |body| {
        let answer = http_request(&vehicle.control_socket, "POST", "/v1/pseudonym", &body);
        assert!(answer.starts_with("HTTP/1.0 204"), "{answer}");
    };
    order(json!({ "lock_s": 200 }));
    let config = with_ipv6(line.station_config(1, "br0", ""));
    let mut other = Station::start(middle, &format!("{config}\n{}", pki.station_config("one")));
    for station in [&vehicle, &other] {
        wait_until("they know each other", seconds(20), || {
            station.show_json("neighbours").as_array().map(Vec::len) == Some(1)
        });
    }
    let first = pki.identity_of(current_mid(&vehicle));
    assert!(west.run_ip("link show dev radio").contains(&format_mac(first.mid)), "the link has the address");
    west.run_ip("-6 addr add 2001:db8:6::1/64 dev gn0");
    middle.run_ip("-6 addr add 2001:db8:6::2/64 dev gn0");
    let ping = |count: &str| {
        let output =
            middle.run_program(&["ping", "-6", "-c", count, "-i", "0.05", "-W", "2", "2001:db8:6::1"]);
        let text = output_text(&output);
        let received = text.split(" received").next().and_then(|text| text.rsplit(' ').next());
        received.and_then(|count| count.parse::<u32>().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    assert!(ping("20") > 0, "{}", vehicle.log_text());

    // The vehicle has now driven the distance for a change of pseudonym, or will have soon.
    let (ear, over) = (FrameReceiver::new(middle), AtomicBool::new(false));
    let (frames, answered, second) = std::thread::scope(|scope| {
        let hearing = scope.spawn(|| {
            let mut frames = Vec::new();
            while !over.load(Ordering::Relaxed) {
                frames.extend(ear.receive_frame());
            }
            frames
        });
        let pinging = scope.spawn(|| ping("200"));
        std::thread::sleep(Duration::from_secs(1));
        order(json!({ "lock_s": 0 }));
        wait_until("it is another one", seconds(20), || current_mid(&vehicle) != first.mid);
        let answered = pinging.join().expect("ping");
        over.store(true, Ordering::Relaxed);
        (hearing.join().expect("an ear"), answered, pki.identity_of(current_mid(&vehicle)))
    });
    println!("{answered} of 200 pings were answered, twenty a second; {} frames heard", frames.len());
    assert!(answered >= 160, "{answered}\n{}", vehicle.log_text());
    assert_eq!(ping("20"), 20);
    assert_eq!(vehicle.counter("security.pseudonyms"), 1);

    // The first identity must stop before the second one starts. No frame of the second contains a part of
    // the first.
    let of = |identity: &StationIdentity| {
        let mine = |frame: &&Vec<u8>| frame[6..12] == identity.mid;
        frames.iter().filter(mine).collect::<Vec<_>>()
    };
    let (old, new) = (of(&first), of(&second));
    assert!(old.len() > 10 && new.len() > 10, "{} {}", old.len(), new.len());
    let begins = frames.iter().position(|frame| frame[6..12] == second.mid);
    assert!(frames.iter().skip(begins.expect("one")).all(|frame| frame[6..12] != first.mid));
    for (frames, other) in [(new, first), (old, second)] {
        for trace in identifying_octets(other) {
            let told = frames.iter().find(|frame| frame.windows(trace.len()).any(|window| window == trace));
            assert!(told.is_none(), "{trace:02x?} is in {told:02x?}");
        }
    }
    // All parts of the identity change: on the link, on the virtual interface, and at other stations.
    let shown = west.run_ip("addr show");
    assert_eq!(shown.matches(&format_mac(second.mid)).count(), 2, "{shown}");
    assert!(!shown.contains(&format_mac(first.mid)), "{shown}");
    assert_eq!(west.run_ip("-o -6 addr show dev gn0 scope link").lines().count(), 1);
    wait_until("the other one knows it", seconds(10), || {
        let neighbours = other.show_json("neighbours");
        neighbours
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["mac"] == format_mac(second.mid).as_str()))
    });
    let [_, _, number @ ..] = second.mid;
    wait_until("it is on the other's map", seconds(10), || {
        let map = other.show_json("ldm");
        let stations = map["stations"].as_array().cloned().unwrap_or_default();
        stations.iter().any(|station| station["station_id"] == u32::from_be_bytes(number))
    });

    vehicle.terminate();
    other.terminate();
    for (host, before) in line.hosts.iter().zip(&before) {
        assert_same_state(before, &host.kernel_state(), "after the end");
    }
}
