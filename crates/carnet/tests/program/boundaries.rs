//! Packets that a mobile router does not forward: past the home agent, for unknown hosts, or after its
//! station has ended.

use nix::sys::signal::Signal;

use crate::hosts::{possible, seconds, wait_until};
use crate::testbed::{CARE_OF, CORRESPONDENT, INSIDE, Testbed, address};
use crate::traffic::Sniffer;

/// First octets of the mobile network's prefix, 2001:db8:a::/64.
const PREFIX: [u8; 8] = [0x20, 0x01, 0x0d, 0xb8, 0, 0x0a, 0, 0];

/// Counts the received packets whose source address begins with the octets of `source`. With `inside`, it
/// counts tunnelled packets by their inner source address.
fn from(packets: &[Vec<u8>], source: &[u8], inside: bool) -> usize {
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
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, _router) = bed.start();
    wait_until("traffic flows", seconds(10), || bed.host.pings(CORRESPONDENT));
    let neighbour = "2001:db8:f1::1";
    bed.core.batch(
        "route add 2001:db8:a::/64 via 2001:db8:f1::10 table 99
         route add 2001:db8:f2::/64 via 2001:db8:f1::10 table 99
         rule add from 2001:db8:f1::1 pref 10 lookup 99",
    );
    let inside = Sniffer::start(&bed.host, &["eth0"]);
    let other = Sniffer::start(&bed.core, &["wwan"]);
    let ping = |to: &str| {
        bed.core.output(&["ping", "-6", "-c", "3", "-i", "0.1", "-W", "1", "-I", neighbour, to]);
    };
    ping(INSIDE);
    // The router does not forward packets from one visited network to the other visited network.
    ping("2001:db8:f2::1");
    let neighbour = address(neighbour).octets();
    assert_eq!(from(&inside.stop(), &neighbour, false), 0);
    assert_eq!(from(&other.stop(), &neighbour, false), 0);
    assert!(bed.host.pings(CORRESPONDENT), "those who belong there still pass");
}

#[test]
fn a_host_on_board_cannot_send_from_a_foreign_address() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, _router) = bed.start();
    wait_until("traffic flows", seconds(10), || bed.host.pings(CORRESPONDENT));
    let outside = Sniffer::start(&bed.core, &["wlan", "wwan", "ha"]);
    let forged = ["2001:db8:bad::5", CARE_OF[0], CARE_OF[1]];
    for source in forged {
        bed.host.ip(&format!("-6 addr add {source}/128 dev eth0"));
        bed.host.output(&["ping", "-6", "-c", "3", "-i", "0.1", "-W", "1", "-I", source, CORRESPONDENT]);
        bed.host.ip(&format!("-6 addr del {source}/128 dev eth0"));
    }
    assert!(bed.host.pings(CORRESPONDENT), "its own address still passes");
    let heard = outside.stop();
    let echoes = |source: &str| {
        let source = address(source).octets();
        let is_echo = |packet: &&Vec<u8>| packet.get(6) == Some(&58) && packet.get(40) == Some(&128);
        heard.iter().filter(is_echo).filter(|packet| packet.get(8..24) == Some(&source[..])).count()
    };
    assert_eq!(forged.map(echoes), [0, 0, 0]);
    assert!(from(&heard, &PREFIX, true) > 0, "the sniffer hears");
}

#[test]
fn without_station_no_packet_of_mobile_network_leaves_an_uplink() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, mut router) = bed.start();
    wait_until("traffic flows", seconds(10), || bed.host.pings(CORRESPONDENT));
    router.end_by(Signal::SIGKILL);
    let visited = Sniffer::start(&bed.core, &["wlan", "wwan"]);
    bed.host.output(&["ping", "-6", "-c", "5", "-i", "0.1", "-W", "1", CORRESPONDENT]);
    assert_eq!(from(&visited.stop(), &PREFIX, false), 0);
}
