//! Packets that a mobile router must not forward. They would bypass the home agent, or go to unknown hosts,
//! or arrive after its station has ended.

use nix::sys::signal::Signal;

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::testbed::{CARE_OF_ADDRESSES, CORRESPONDENT, ON_BOARD_HOST, Testbed, parse_address};
use crate::traffic::PacketSniffer;

/// First octets of the mobile network's prefix, 2001:db8:a::/64.
const MOBILE_NETWORK_PREFIX: [u8; 8] = [0x20, 0x01, 0x0d, 0xb8, 0, 0x0a, 0, 0];

/// Counts the received packets whose source address begins with the octets of `source`. With `inside`, it
/// counts tunnelled packets by their inner source address.
fn packets_from_source(packets: &[Vec<u8>], source: &[u8], inside: bool) -> usize {
    let offset = if inside { 48 } else { 8 };
    packets
        .iter()
        .filter(|packet| (packet.get(6) == Some(&41)) == inside)
        .filter(|packet| packet.get(offset..offset + source.len()) == Some(source))
        .filter(|packet| {
            // Neighbor Discovery messages do not count, because routers do not forward them.
            packet.get(6) != Some(&58) || !matches!(packet.get(40), Some(133..=137 | 143))
        })
        .count()
}

#[test]
fn a_host_on_a_visited_network_cannot_bypass_the_home_agent() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, _router) = bed.start_stations();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let neighbour = "2001:db8:f1::1";
    bed.core.run_ip_batch(
        "route add 2001:db8:a::/64 via 2001:db8:f1::10 table 99
         route add 2001:db8:f2::/64 via 2001:db8:f1::10 table 99
         rule add from 2001:db8:f1::1 pref 10 lookup 99",
    );
    let inside = PacketSniffer::start(&bed.host, &["eth0"]);
    let other = PacketSniffer::start(&bed.core, &["wwan"]);
    let ping = |to: &str| {
        bed.core.run_program(&["ping", "-6", "-c", "3", "-i", "0.1", "-W", "1", "-I", neighbour, to]);
    };
    ping(ON_BOARD_HOST);
    // The router does not forward packets from one visited network to the other visited network.
    ping("2001:db8:f2::1");
    let neighbour = parse_address(neighbour).octets();
    assert_eq!(packets_from_source(&inside.stop(), &neighbour, false), 0);
    assert_eq!(packets_from_source(&other.stop(), &neighbour, false), 0);
    assert!(bed.host.can_ping(CORRESPONDENT), "those who belong there still pass");
}

#[test]
fn a_host_on_board_cannot_send_from_a_foreign_address() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, _router) = bed.start_stations();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let outside = PacketSniffer::start(&bed.core, &["wlan", "wwan", "ha"]);
    let forged = ["2001:db8:bad::5", CARE_OF_ADDRESSES[0], CARE_OF_ADDRESSES[1]];
    for source in forged {
        bed.host.run_ip(&format!("-6 addr add {source}/128 dev eth0"));
        bed.host.run_program(&["ping", "-6", "-c", "3", "-i", "0.1", "-W", "1", "-I", source, CORRESPONDENT]);
        bed.host.run_ip(&format!("-6 addr del {source}/128 dev eth0"));
    }
    assert!(bed.host.can_ping(CORRESPONDENT), "its own address still passes");
    let heard = outside.stop();
    let echoes = |source: &str| {
        let source = parse_address(source).octets();
        let is_echo = |packet: &&Vec<u8>| packet.get(6) == Some(&58) && packet.get(40) == Some(&128);
        heard.iter().filter(is_echo).filter(|packet| packet.get(8..24) == Some(&source[..])).count()
    };
    assert_eq!(forged.map(echoes), [0, 0, 0]);
    assert!(packets_from_source(&heard, &MOBILE_NETWORK_PREFIX, true) > 0, "the sniffer hears");
}

#[test]
fn without_station_no_packet_of_mobile_network_leaves_an_uplink() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, mut router) = bed.start_stations();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    router.end_by_signal(Signal::SIGKILL);
    let visited = PacketSniffer::start(&bed.core, &["wlan", "wwan"]);
    bed.host.run_program(&["ping", "-6", "-c", "5", "-i", "0.1", "-W", "1", CORRESPONDENT]);
    assert_eq!(packets_from_source(&visited.stop(), &MOBILE_NETWORK_PREFIX, false), 0);
}
