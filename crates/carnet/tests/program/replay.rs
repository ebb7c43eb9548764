//! The replay of a recording gives the same outputs as the recorded station.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::hosts::{can_run_or_report, output_text, seconds, wait_until};
use crate::station::{Station, run_carnet};
use crate::testbed::{
    CARE_OF_ADDRESSES, CORRESPONDENT, HOME_AGENT_ADDRESS, Testbed, config_with_station_line, parse_address,
};
use crate::traffic::PacketSniffer;

/// Returns a packet with its hop limit cleared, because the router's kernel decrements it.
fn without_hop_limit(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[7] = 0;
    packet
}

fn octets_of_hex(hex: &str) -> Vec<u8> {
    let digit = |at: usize| hex.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..hex.len()).step_by(2).map(|at| digit(at).expect("hexadecimal")).collect()
}

fn is_binding_update(packet: &[u8]) -> bool {
    // A Binding Update from a foreign network has Destination Options of 24 octets with the Home Address
    // option, and then the Mobility Header.
    packet.len() > 67 && packet[6] == 60 && packet[40] == 135 && packet[66] == 5
}

#[test]
fn replay_repeats_the_recorded_outputs_each_time() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let recording = bed.scratch.path_of("router.jsonl");
    let config =
        config_with_station_line(&bed.router_config(), &format!("record = '{}'", recording.display()));
    // Packets of a fast path reach neither the station nor a recording, so the station uses the TUN device.
    let config = format!("{config}\n[dataplane]\npath = 'tun'\n");
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    let wire = PacketSniffer::start(&bed.core, &["wlan", "wwan"]);
    let mut router = Station::start(&bed.router, &config);
    router.wait_until_registered();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let socket = router.control_socket.to_str().expect("a path").to_owned();
    // The recorded run has a handover, a refused command, and a removed interface.
    assert!(run_carnet(&["handover", "wwan0", "--socket", &socket]).status.success());
    wait_until("traffic flows on", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    assert!(!run_carnet(&["handover", "eth9", "--socket", &socket]).status.success());
    bed.router.run_ip("link set wwan0 down");
    wait_until("traffic flows over the first uplink", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    router.terminate();
    let sent = wire.stop();

    let mode = fs::metadata(&recording).expect("a recording").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (config, recording) =
        (router.config_file.to_str().expect("a path"), recording.to_str().expect("a path"));
    let replay = || run_carnet(&["replay", "--config", config, recording]);
    let first = replay();
    assert!(first.status.success(), "{}", output_text(&first));
    assert_eq!(first.stdout, replay().stdout);

    let text = String::from_utf8(first.stdout).expect("text");
    let outputs: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(outputs.iter().all(|line| line["time"].is_f64() && !line["output"].is_null()));
    let agent = parse_address(HOME_AGENT_ADDRESS).octets();
    let to_agent = |packet: &Vec<u8>| packet[24..40] == agent;
    let replayed: Vec<Vec<u8>> = outputs
        .iter()
        .filter_map(|line| line["output"]["packet"].as_str())
        .map(octets_of_hex)
        .filter(to_agent)
        .map(|packet| without_hop_limit(&packet))
        .collect();
    let sent: Vec<Vec<u8>> =
        sent.iter().filter(|p| to_agent(p)).map(|packet| without_hop_limit(packet)).collect();
    let updates = |packets: &[Vec<u8>]| packets.iter().filter(|p| is_binding_update(p)).count();
    println!("replay: {} packets to the home agent, {} of them Binding Updates", sent.len(), updates(&sent));
    // The station must have sent updates for the registration, two handovers and the de-registration, and the
    // pings.
    assert!(updates(&sent) >= 4 && sent.len() > updates(&sent), "{}", router.log_text());
    // The replay must give the captured packets in this order. It also has packets to the uplink that was
    // just going down.
    let mut on_the_wire = sent.iter().peekable();
    for packet in &replayed {
        if on_the_wire.peek() == Some(&packet) {
            on_the_wire.next();
        } else {
            assert_eq!(
                packet[8..24],
                parse_address(CARE_OF_ADDRESSES[1]).octets(),
                "replayed, but never sent: {packet:02x?}"
            );
        }
    }
    let missing = on_the_wire.count();
    assert_eq!(missing, 0, "of {} packets sent, {} replayed", sent.len(), replayed.len());

    // carnet refuses a damaged recording, and names the line of the damage.
    fs::write(recording, "{}\n").expect("a file");
    let output = replay();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output_text(&output).contains(&format!("{recording}:1: expected the header")),
        "{}",
        output_text(&output)
    );
}
