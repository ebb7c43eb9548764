//! The radio interface may appear after the start. It gets the station's address, and at the end its own
//! address back. Real neighbours stay in the location table under a flood of fabricated stations.

use std::fmt::Write;

use serde_json::Value;

use crate::air::{FrameReceiver, FrameSender, beacon_frame};
use crate::hosts::{
    Host, ScratchFolder, assert_same_state, can_run_or_report, output_text, seconds, wait_until,
};
use crate::station::{CARNET_PROGRAM, Station};
use nix::sys::signal::Signal;

const STATION_POSITION: (f64, f64) = (48.8375, 2.1008);

/// Returns the config of a station on the interface `radio`, with further lines of `[geonet]`.
fn station_config(scratch: &ScratchFolder, geonet: &str) -> String {
    let (latitude, longitude) = STATION_POSITION;
    format!(
        "[station]\nname = 's'\nsocket = '{}'\n[geonet]\ninterface = 'radio'\n\
         position = 'fixed:{latitude},{longitude}'\nbeacon = {{ interval = '200ms', jitter = '50ms' \
         }}\n{geonet}",
        scratch.path_of("s.sock").display()
    )
}

/// Returns the link-layer address of an interface.
fn mac_of_interface(host: &Host, interface: &str) -> String {
    let link = host.run_ip(&format!("link show {interface}"));
    link.split("link/ether ").nth(1).and_then(|rest| rest.get(..17)).expect("an address").to_owned()
}

fn mac_octets(mac: &str) -> [u8; 6] {
    let octets: Vec<u8> =
        mac.split(':').map(|octet| u8::from_str_radix(octet, 16).expect("an octet")).collect();
    octets.try_into().expect("six octets")
}

/// Returns the MID of the station's GN address in the form of a link-layer address.
fn current_mid(station: &Station) -> String {
    let status = station.show_json("status");
    let digits = status["geonet"]["gn_address"].as_str().expect("an address").replace(':', "");
    let mut mid = String::new();
    for at in (4..16).step_by(2) {
        let _ = write!(mid, "{}{}", if at == 4 { "" } else { ":" }, &digits[at..at + 2]);
    }
    mid
}

#[test]
fn missing_radio_interface_delays_no_other_interface() {
    if !can_run_or_report() {
        return;
    }
    let (host, other, scratch) = (Host::new(), Host::new(), ScratchFolder::new());
    host.run_ip("-6 addr add 2001:db8:9::1/128 dev lo");
    let agent = "[home_agent]\naddress = '2001:db8:1::1'\nhome_prefix = '2001:db8:1::/64'\n";
    let mut station = Station::start(&host, &station_config(&scratch, agent));
    // The home agent works while the radio interface is missing, and the status names that interface.
    assert!(host.can_ping("2001:db8:1::1"));
    let status = station.show_json("status");
    assert_eq!(status["geonet"]["gn_address"], Value::Null, "{status}");
    assert_eq!(status["geonet"]["waits_for"], "the interface radio", "{status}");
    assert!(output_text(&station.run_command(&["status"])).contains("waits for the interface radio"));
    let refused = station.run_command(&["show", "neighbours"]);
    assert!(!refused.status.success() && output_text(&refused).contains("waits for the interface radio"));
    assert!(station.log_text().contains("waiting for the interface radio"));

    host.create_link("radio", &other, "radio");
    let ear = FrameReceiver::new(&other);
    let heard = ear.wait_for_beacon("a beacon", |_| true);
    assert_eq!(
        (heard.source_mac, heard.sender_mid),
        (mac_octets(&mac_of_interface(&host, "radio")), mac_octets(&mac_of_interface(&host, "radio")))
    );
    assert_eq!(current_mid(&station), mac_of_interface(&host, "radio"));
    // The operator gives the interface another address. The station adopts this address.
    host.run_ip("link set radio address 02:00:00:00:00:77");
    ear.wait_for_beacon("the new address", |heard| {
        heard.source_mac == heard.sender_mid && heard.sender_mid[5] == 0x77
    });
    station.terminate();
    assert_eq!(mac_of_interface(&host, "radio"), "02:00:00:00:00:77");

    // The operator can end a station that waits for its interface.
    host.run_ip("link del radio");
    let mut waits = Station::start(&host, &station_config(&scratch, ""));
    assert_eq!(waits.show_json("status")["geonet"]["link"], "missing");
    waits.terminate();
}

/// A recording that began before the station knew its address replays unchanged.
#[test]
fn recording_begun_before_the_radio_interface_exists_replays() {
    if !can_run_or_report() {
        return;
    }
    let (host, other, scratch) = (Host::new(), Host::new(), ScratchFolder::new());
    let recording = scratch.path_of("recording");
    let text = station_config(&scratch, "")
        .replace("[geonet]", &format!("record = '{}'\n[geonet]", recording.display()));
    let mut station = Station::start(&host, &text);
    host.create_link("radio", &other, "radio");
    FrameReceiver::new(&other).wait_for_beacon("a beacon", |_| true);
    let sent = station.counter("geonet.link.sent");
    station.terminate();
    let config = station.config_file.to_str().expect("a path");
    let output =
        crate::station::run_carnet(&["replay", "--config", config, recording.to_str().expect("a path")]);
    assert!(output.status.success(), "{}", output_text(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    let frames = text.lines().filter(|line| line.contains("\"frame\"")).count() as u64;
    assert!(sent > 0 && frames >= sent && frames <= sent + 3, "{frames} frames, {sent} were sent");
}

/// A station with only GeoNetworking needs no tunnel device, routes or rules, and works without the rights to
/// them.
#[test]
fn a_station_with_only_geonetworking_changes_no_other_kernel_setting() {
    if !can_run_or_report() {
        return;
    }
    let (host, other, scratch) = (Host::new(), Host::new(), ScratchFolder::new());
    host.create_link("radio", &other, "radio");
    host.wait_until_settled();
    let before = host.kernel_state();
    let hide = "mount --bind /dev/null /dev/net/tun && exec \"$@\"";
    let wrapper = ["unshare", "--mount", "sh", "-c", hide, "sh"];
    let mut station = Station::start_wrapped(&host, &station_config(&scratch, ""), &wrapper, CARNET_PROGRAM);
    FrameReceiver::new(&other).wait_for_beacon("a beacon", |_| true);
    assert_same_state(&before, &host.kernel_state(), "while it runs");
    assert_eq!(station.show_json("tunnels"), Value::Array(vec![]));
    assert!(station.counter("geonet.link.sent") > 0);
    let more = station_config(
        &scratch,
        "[home_agent]\naddress = '2001:db8:1::1'\nhome_prefix = '2001:db8:1::/64'\n",
    );
    station.reload(&more);
    assert!(station.log_text().contains("needs a restart"), "{}", station.log_text());
    station.terminate();
    assert_same_state(&before, &host.kernel_state(), "after the end");
    assert_eq!(scratch.file_names(), ["s.log", "s.toml"]);
}

/// An interface accepts only unicast frames for its own address. So it must have the station's address.
#[test]
fn radio_interface_has_station_address_while_station_runs() {
    if !can_run_or_report() {
        return;
    }
    let (host, other, scratch) = (Host::new(), Host::new(), ScratchFolder::new());
    host.create_link("radio", &other, "radio");
    host.wait_until_settled();
    let (own, before) = (mac_of_interface(&host, "radio"), host.kernel_state());
    let ear = FrameReceiver::new(&other);
    let managed = "02:00:00:00:00:0a";

    let mut station =
        Station::start(&host, &station_config(&scratch, &format!("address = 'managed:{managed}'\n")));
    let heard = ear.wait_for_beacon("a beacon", |_| true);
    assert_eq!((heard.source_mac, heard.sender_mid), (mac_octets(managed), mac_octets(managed)));
    assert_eq!(mac_of_interface(&host, "radio"), managed);
    // After a kill the station's address stays on the interface. The next run restores the interface's own
    // address, and derives the station's address from it.
    station.end_by_signal(Signal::SIGKILL);
    assert_eq!(mac_of_interface(&host, "radio"), managed);
    let mut station = Station::start(&host, &station_config(&scratch, ""));
    assert_eq!((mac_of_interface(&host, "radio"), current_mid(&station)), (own.clone(), own.clone()));

    // EN 302 636-4-1 10.2.1.5: another station uses the GN address of this station, so this station must
    // change its address.
    let mouth = FrameSender::new(&other, "radio");
    mouth.send_frames(&[beacon_frame(
        [2, 0, 0, 0, 0, 0x66],
        mac_octets(&own),
        STATION_POSITION.0,
        STATION_POSITION.1,
    )]);
    // The test skips beacons of the first station that were still in the queue.
    let known = [mac_octets(&own), mac_octets(managed)];
    let heard = ear.wait_for_beacon("another address", |heard| {
        !known.contains(&heard.sender_mid) && heard.source_mac == heard.sender_mid
    });
    wait_until("the interface has it, too", seconds(10), || {
        mac_octets(&mac_of_interface(&host, "radio")) == heard.sender_mid
    });
    station.terminate();
    assert_same_state(&before, &host.kernel_state(), "after the end");

    let mut station =
        Station::start(&host, &station_config(&scratch, "address = 'anonymous'\nset_link_address = false\n"));
    ear.wait_for_beacon("a beacon", |heard| heard.sender_mid != mac_octets(&own));
    assert!(station.log_text().contains("this station receives no unicast frames"), "{}", station.log_text());
    assert_eq!(mac_of_interface(&host, "radio"), own);
    station.terminate();
    assert_eq!(scratch.file_names(), ["s.log", "s.toml"]);
}

/// The location table holds a limited number of neighbours. The test fabricates a hundred times as many
/// stations.
#[test]
fn flood_of_fabricated_stations_evicts_no_real_neighbour() {
    if !can_run_or_report() {
        return;
    }
    let (host, other, scratch) = (Host::new(), Host::new(), ScratchFolder::new());
    host.create_link("radio", &other, "radio");
    let room = 1000;
    let station =
        Station::start(&host, &station_config(&scratch, &format!("mib = {{ max_neighbours = {room} }}\n")));
    let mouth = FrameSender::new(&other, "radio");
    let real: Vec<[u8; 6]> = (1..=5).map(|number| [2, 0, 0, 1, 0, number]).collect();
    let speak = || {
        // A repeated beacon of a station must be newer than the station's first beacon.
        std::thread::sleep(std::time::Duration::from_millis(5));
        let beacons: Vec<Vec<u8>> =
            real.iter().map(|mac| beacon_frame(*mac, *mac, STATION_POSITION.0, STATION_POSITION.1)).collect();
        mouth.send_frames(&beacons);
    };
    let flood = |round: u32| {
        let fabricated: Vec<Vec<u8>> = (0..10_000u32)
            .map(|number| {
                let [_, a, b, c] = (round * 10_000 + number).to_be_bytes();
                let mac = [2, 0x66, 0, a, b, c];
                beacon_frame(mac, mac, STATION_POSITION.0 + 0.001, STATION_POSITION.1)
            })
            .collect();
        mouth.send_frames(&fabricated);
    };
    let neighbours = || -> Vec<String> {
        let shown = station.show_json("neighbours");
        let shown = shown.as_array().expect("an array");
        shown.iter().map(|entry| entry["mac"].as_str().expect("an address").to_owned()).collect()
    };
    speak();
    speak();
    wait_until("the real ones are known", seconds(10), || neighbours().len() == real.len());
    flood(0);
    wait_until("the table is full", seconds(10), || neighbours().len() == room);
    let memory = station.resident_memory_kb();
    for round in 1..=20 {
        speak();
        flood(round);
    }
    let after = neighbours();
    assert!(after.len() <= room, "{} neighbours", after.len());
    for number in 1..=5 {
        let mac = format!("02:00:00:01:00:{number:02x}");
        assert!(after.contains(&mac), "{mac} was pushed out");
    }
    let received = station.counter("geonet.received") + station.counter("geonet.dropped.link_overrun");
    assert!(received > 100_000, "{received} frames arrived");
    let grown = station.resident_memory_kb() - memory;
    // The memory of a debug build varies by some megabytes. 200000 stored stations of 256 octets each would
    // take 50 MB.
    assert!(grown < 8_000, "{grown} kB more");
    // The station still accepts a new neighbour after the flood.
    let newcomer = [2, 0, 0, 1, 0, 99];
    wait_until("a newcomer is known", seconds(10), || {
        mouth.send_frames(&[beacon_frame(newcomer, newcomer, STATION_POSITION.0, STATION_POSITION.1)]);
        neighbours().contains(&"02:00:00:01:00:63".to_owned())
    });
}
