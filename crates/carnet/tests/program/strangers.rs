//! Unauthenticated sources send more messages than a home agent can process. The home agent's own routers
//! lose no message.

use std::net::UdpSocket;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::hosts::{possible, seconds, wait_until};
use crate::station::Station;
use crate::testbed::{CORRESPONDENT, HOME_AGENT, INSIDE, Testbed, address};
use crate::traffic::{Cannon, Sniffer};

const PORT: u16 = 4343;
/// Number of datagrams: fewer than the buffer of a socket holds.
const DATAGRAMS: u32 = 200;
/// Number of messages: more than a queue of the TUN device holds (4000).
const MESSAGES: u64 = 6000;

/// Returns a message with a Mobility Header of an unknown type, from an unknown source.
fn message(number: u64) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, 135, 64];
    let network = address("2001:db8:5::").octets();
    packet.extend(&network[..8]);
    packet.extend(number.to_be_bytes());
    packet.extend(address(HOME_AGENT).octets());
    packet.extend([59, 0, 99, 0, 0, 0, 0, 0]);
    packet
}

#[test]
fn flood_of_unknown_senders_delays_no_data_or_registration() {
    if !possible() {
        return;
    }
    let bed = Testbed::new();
    let tun = "\n[dataplane]\npath = 'tun'\n";
    let agent = Station::start(&bed.agent, &(bed.agent_config() + tun));
    // With this lifetime the router refreshes its binding every 10 s.
    let config = bed.router_config().replace("lifetime = '60s'", "lifetime = '20s'");
    let router = Station::start(&bed.router, &(config + tun));
    router.registered();
    wait_until("traffic flows", seconds(10), || bed.host.pings(CORRESPONDENT));
    let receiver = bed.core.run(|| UdpSocket::bind((address(CORRESPONDENT), PORT)).expect("a socket"));
    let sender = bed.host.run(|| UdpSocket::bind((address(INSIDE), 0)).expect("a socket"));
    let lost = || {
        let statistics: Value =
            serde_json::from_str(&bed.agent.ip("-s -j link show dev carnet0")).expect("JSON");
        statistics[0]["stats64"]["tx"]["dropped"].as_u64().expect("a number")
    };
    let heard = || agent.counter("mobility.received.binding_update");
    // At its next update the router counts as a known sender, because it has sent nothing for long enough.
    // Meanwhile the home agent receives many messages of unknown senders.
    let first = heard();
    wait_until("the router asks again", seconds(30), || bed.host.pings(CORRESPONDENT) && heard() > first);
    let (known, dropped) = (heard(), agent.counters("mobility.dropped."));

    agent.signal(Signal::SIGSTOP);
    let passing = Sniffer::start(&bed.core, &["wlan"]);
    // Destination Options with the home address precede the Mobility Header of a Binding Update.
    let asked = || passing.heard().iter().filter(|packet| packet.get(6) == Some(&60)).count() as u64;
    let cannon = Cannon::new(&bed.core);
    for number in 0..MESSAGES {
        cannon.fire(&message(number), address(HOME_AGENT), 0);
    }
    wait_until("more came than there is room for", seconds(20), || {
        let full = lost() > 0;
        (0..if full { 0 } else { 1000 }).for_each(|number| {
            cannon.fire(&message(number), address(HOME_AGENT), 0);
        });
        full
    });
    for number in 0..DATAGRAMS {
        sender.send_to(&number.to_be_bytes(), (address(CORRESPONDENT), PORT)).expect("it is sent");
    }
    // The second Binding Update is a retransmission.
    wait_until("the router asks", seconds(30), || asked() >= 2);
    let asked = asked();
    agent.signal(Signal::SIGCONT);

    receiver.set_read_timeout(Some(seconds(10))).expect("a timeout");
    let mut buffer = [0; 4];
    let arrived = (0..DATAGRAMS).take_while(|_| receiver.recv(&mut buffer).is_ok()).count();
    assert_eq!(arrived, DATAGRAMS as usize, "datagrams that arrived");
    wait_until("the router is heard", seconds(10), || heard() >= known + asked);
    // The home agent also processes the messages of unknown sources, in their turn.
    wait_until("the strangers are heard", seconds(20), || {
        agent.counters("mobility.dropped.") - dropped >= 3900
    });
    wait_until("traffic flows on", seconds(10), || bed.host.pings(CORRESPONDENT));
    passing.stop();
}
