//! Unauthenticated sources send more messages than a home agent can process. The registered routers must lose
//! no message.

use std::net::UdpSocket;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, HOME_AGENT_ADDRESS, ON_BOARD_HOST, Testbed, parse_address};
use crate::traffic::{PacketSniffer, RawSender};

const UDP_PORT: u16 = 4343;
/// Number of datagrams. A socket's buffer can hold all of them.
const DATAGRAM_COUNT: u32 = 200;
/// Number of messages. The queue of the TUN device holds only 4000 of them.
const MESSAGE_COUNT: u64 = 6000;

/// Returns a message with a Mobility Header of an unknown type, from an unknown source.
fn message_of_unknown_type(number: u64) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, 135, 64];
    let network = parse_address("2001:db8:5::").octets();
    packet.extend(&network[..8]);
    packet.extend(number.to_be_bytes());
    packet.extend(parse_address(HOME_AGENT_ADDRESS).octets());
    packet.extend([59, 0, 99, 0, 0, 0, 0, 0]);
    packet
}

#[test]
fn flood_of_unknown_senders_delays_no_data_or_registration() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let tun = "\n[dataplane]\npath = 'tun'\n";
    let agent = Station::start(&bed.agent, &(bed.agent_config() + tun));
    // With this lifetime the router refreshes its binding every 10 s.
    let config = bed.router_config().replace("lifetime = '60s'", "lifetime = '20s'");
    let router = Station::start(&bed.router, &(config + tun));
    router.wait_until_registered();
    wait_until("traffic flows", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let receiver = bed
        .core
        .run_in_namespace(|| UdpSocket::bind((parse_address(CORRESPONDENT), UDP_PORT)).expect("a socket"));
    let sender =
        bed.host.run_in_namespace(|| UdpSocket::bind((parse_address(ON_BOARD_HOST), 0)).expect("a socket"));
    let lost = || {
        let statistics: Value =
            serde_json::from_str(&bed.agent.run_ip("-s -j link show dev carnet0")).expect("JSON");
        statistics[0]["stats64"]["tx"]["dropped"].as_u64().expect("a number")
    };
    let heard = || agent.counter("mobility.received.binding_update");
    // The router has sent nothing for a while, so at its next update it counts as a known sender. Meanwhile
    // the home agent receives many messages of unknown senders.
    let first = heard();
    wait_until("the router asks again", seconds(30), || bed.host.can_ping(CORRESPONDENT) && heard() > first);
    let (known, dropped) = (heard(), agent.sum_of_counters("mobility.dropped."));

    agent.send_signal(Signal::SIGSTOP);
    let passing = PacketSniffer::start(&bed.core, &["wlan"]);
    // Destination Options with the home address precede the Mobility Header of a Binding Update.
    let asked = || passing.seen_packets().iter().filter(|packet| packet.get(6) == Some(&60)).count() as u64;
    let cannon = RawSender::new(&bed.core);
    for number in 0..MESSAGE_COUNT {
        cannon.send_packet(&message_of_unknown_type(number), parse_address(HOME_AGENT_ADDRESS), 0);
    }
    wait_until("more came than there is room for", seconds(20), || {
        let full = lost() > 0;
        (0..if full { 0 } else { 1000 }).for_each(|number| {
            cannon.send_packet(&message_of_unknown_type(number), parse_address(HOME_AGENT_ADDRESS), 0);
        });
        full
    });
    for number in 0..DATAGRAM_COUNT {
        sender.send_to(&number.to_be_bytes(), (parse_address(CORRESPONDENT), UDP_PORT)).expect("it is sent");
    }
    // The second Binding Update is a retransmission.
    wait_until("the router asks", seconds(30), || asked() >= 2);
    let asked = asked();
    agent.send_signal(Signal::SIGCONT);

    receiver.set_read_timeout(Some(seconds(10))).expect("a timeout");
    let mut buffer = [0; 4];
    let arrived = (0..DATAGRAM_COUNT).take_while(|_| receiver.recv(&mut buffer).is_ok()).count();
    assert_eq!(arrived, DATAGRAM_COUNT as usize, "datagrams that arrived");
    wait_until("the router is heard", seconds(10), || heard() >= known + asked);
    // The home agent also processes the messages of unknown senders, after those of known senders.
    wait_until("the strangers are heard", seconds(20), || {
        agent.sum_of_counters("mobility.dropped.") - dropped >= 3900
    });
    wait_until("traffic flows on", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    passing.stop();
}
