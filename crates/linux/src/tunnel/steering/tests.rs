//! Tests the program in the kernel on one packet at a time (`BPF_PROG_TEST_RUN`), and the reading progress of
//! a queue.

#![allow(clippy::unwrap_used)]

use carnet_base::Endpoint;
use carnet_nemo::forwarding::desired::TunnelEnd;
use proptest::prelude::*;

use super::*;
use crate::bpf_call::tests::run_on_frame;

const HOME_AGENT: &str = "2001:db8:1::1";
const ROUTER: &str = "2001:db8:f1::10";
const UNKNOWN_SENDER: &str = "2001:db8:f1::66";
const CONTROL_PROTOCOLS: [u8; 6] = [0, 43, 44, 58, 60, 135];
const DATA_PROTOCOLS: [u8; 6] = [6, 17, 41, 50, 59, 132];
const QUEUE_FORWARDED: u32 = DeviceQueue::Forwarded as u32;
const QUEUE_KNOWN_SENDERS: u32 = DeviceQueue::Known as u32;
const QUEUE_OTHER_SENDERS: u32 = DeviceQueue::OtherSenders as u32;

/// Returns the loaded program; `None` if the kernel allows no programs.
fn loaded_program(senders: usize) -> Option<(Arc<SteeringProgram>, KnownSenders)> {
    match SteeringProgram::open(senders) {
        Ok(steering) => {
            let steering = Arc::new(steering);
            Some((Arc::clone(&steering), KnownSenders::new(steering)))
        }
        Err(why) if std::env::var_os("CARNET_REQUIRE_ROOT").is_none() => {
            println!("\nSKIPPED: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

/// Returns the queue that the program selects for a packet. The kernel requires an Ethernet header and hides
/// it from the program.
fn selected_queue(steering: &SteeringProgram, packet: &[u8]) -> u32 {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
    frame.extend(packet);
    run_on_frame(steering.program_fd(), &frame)
}

fn packet(source: &str, next_header: u8) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 16, next_header, 64];
    packet.extend(source.parse::<Ipv6Addr>().unwrap().octets());
    packet.extend(HOME_AGENT.parse::<Ipv6Addr>().unwrap().octets());
    packet.extend([0; 16]);
    packet
}

fn tunnel_to(remote: Endpoint) -> Tunnel {
    Tunnel {
        end: TunnelEnd::HomeAgent,
        home_address: "2001:db8:1::1234".parse().unwrap(),
        bid: None,
        local: HOME_AGENT.parse::<Ipv6Addr>().unwrap().into(),
        remote,
        inner: Vec::new(),
        transmit: true,
        mtu: 1460,
        session: None,
    }
}

fn selected_queues(steering: &SteeringProgram, source: &str, kinds: &[u8]) -> Vec<u32> {
    kinds.iter().map(|next_header| selected_queue(steering, &packet(source, *next_header))).collect()
}

/// Returns whether the map of queues has an entry for an address. Forged source addresses must get no entry.
fn has_queue_entry(steering: &SteeringProgram, source: &str) -> bool {
    steering.queue_map.get(&source.parse::<Ipv6Addr>().unwrap().octets()).is_some()
}

#[test]
fn sender_changes_tun_queue_after_its_packets_left_the_old_one() {
    let Some((steering, mut known)) = loaded_program(0) else { return };
    let router = tunnel_to(ROUTER.parse::<Ipv6Addr>().unwrap().into());
    let before = monotonic_nanoseconds();
    let asks = || selected_queue(&steering, &packet(ROUTER, 135));
    assert_eq!(selected_queues(&steering, ROUTER, &CONTROL_PROTOCOLS), [QUEUE_OTHER_SENDERS; 6]);
    assert_eq!(selected_queues(&steering, ROUTER, &DATA_PROTOCOLS), [QUEUE_FORWARDED; 6]);
    known.add(&router, true);
    assert_eq!(selected_queues(&steering, ROUTER, &CONTROL_PROTOCOLS), [QUEUE_OTHER_SENDERS; 6]);
    // The station has handled all packets from the queue for unknown senders that arrived before this sender
    // became known.
    steering.set_read_until(DeviceQueue::OtherSenders, before);
    steering.set_read_until(DeviceQueue::Known, monotonic_nanoseconds());
    assert_eq!(asks(), QUEUE_OTHER_SENDERS);
    let between = monotonic_nanoseconds();
    assert_eq!(asks(), QUEUE_OTHER_SENDERS);
    steering.set_read_until(DeviceQueue::OtherSenders, between);
    assert_eq!(asks(), QUEUE_OTHER_SENDERS, "the one before may wait still");
    steering.set_read_until(DeviceQueue::OtherSenders, monotonic_nanoseconds());
    assert_eq!(selected_queues(&steering, ROUTER, &CONTROL_PROTOCOLS), [QUEUE_KNOWN_SENDERS; 6]);
    assert_eq!(selected_queues(&steering, ROUTER, &DATA_PROTOCOLS), [QUEUE_FORWARDED; 6]);
    assert_eq!(selected_queues(&steering, UNKNOWN_SENDER, &CONTROL_PROTOCOLS), [QUEUE_OTHER_SENDERS; 6]);
    // Two routers are behind the same address; one router loses its tunnel.
    known.add(&router, true);
    known.add(&router, false);
    known.remove(&router);
    steering.set_read_until(DeviceQueue::Known, monotonic_nanoseconds());
    assert_eq!(asks(), QUEUE_KNOWN_SENDERS);
    // The second router's tunnel ends as well. Its packets in the second queue must be handled before it
    // changes its queue.
    known.remove(&router);
    assert_eq!(asks(), QUEUE_KNOWN_SENDERS);
    steering.set_read_until(DeviceQueue::Known, monotonic_nanoseconds());
    assert_eq!(asks(), QUEUE_OTHER_SENDERS);
    // The router has a tunnel again.
    known.add(&router, true);
    assert_eq!(asks(), QUEUE_OTHER_SENDERS);
    steering.set_read_until(DeviceQueue::OtherSenders, monotonic_nanoseconds());
    assert_eq!(asks(), QUEUE_KNOWN_SENDERS);
}

#[test]
fn removed_sender_keeps_its_tun_queue_until_its_last_packet() {
    let Some((steering, mut known)) = loaded_program(0) else { return };
    let router = tunnel_to(ROUTER.parse::<Ipv6Addr>().unwrap().into());
    known.add(&router, true);
    steering.set_read_until(DeviceQueue::OtherSenders, monotonic_nanoseconds());
    assert_eq!(selected_queue(&steering, &packet(ROUTER, 135)), QUEUE_KNOWN_SENDERS);
    known.remove(&router);
    let wait = || std::thread::sleep(std::time::Duration::from_nanos(MAX_QUEUEING_DELAY_NS));
    wait();
    known.free_removed_entries();
    assert!(has_queue_entry(&steering, ROUTER), "a message of his may wait");
    steering.set_read_until(DeviceQueue::Known, monotonic_nanoseconds());
    known.free_removed_entries();
    assert!(has_queue_entry(&steering, ROUTER), "looked at too early");
    wait();
    known.free_removed_entries();
    assert!(!has_queue_entry(&steering, ROUTER));
    assert!(known.leaving_senders.is_empty());
    // The router gets a tunnel again before its entry was removed.
    known.add(&router, true);
    known.remove(&router);
    known.add(&router, true);
    wait();
    known.free_removed_entries();
    assert!(has_queue_entry(&steering, ROUTER));
    assert!(known.leaving_senders.is_empty());
    // Remove a sender that was never known, and add a sender whose packets do not arrive through the device.
    known.remove(&tunnel_to(UNKNOWN_SENDER.parse::<Ipv6Addr>().unwrap().into()));
    known.add(&tunnel_to("192.0.2.1".parse::<std::net::Ipv4Addr>().unwrap().into()), true);
    assert!(known.leaving_senders.is_empty());
}

#[test]
fn steering_reads_first_header_and_ignores_echo_replies() {
    let Some((steering, _known)) = loaded_program(0) else { return };
    // The program selects a queue for a truncated packet too, and the station checks the packet.
    let whole = packet(UNKNOWN_SENDER, 135);
    for length in 40..whole.len() {
        assert_eq!(selected_queue(&steering, &whole[..length]), QUEUE_OTHER_SENDERS, "{length}");
    }
    for next_header in 0..=255 {
        let expected =
            if CONTROL_PROTOCOLS.contains(&next_header) { QUEUE_OTHER_SENDERS } else { QUEUE_FORWARDED };
        assert_eq!(
            selected_queue(&steering, &packet(UNKNOWN_SENDER, next_header)),
            expected,
            "{next_header}"
        );
    }
    for kind in 0..=255 {
        let mut message = packet(UNKNOWN_SENDER, 58);
        message[40] = kind;
        let expected = if matches!(kind, 128 | 129) { QUEUE_FORWARDED } else { QUEUE_OTHER_SENDERS };
        assert_eq!(selected_queue(&steering, &message), expected, "type {kind}");
    }
}

/// A flood of handshake messages does not displace forwarded packets. Data messages, and datagrams that only
/// resemble handshake messages, stay in the queue of forwarded packets.
#[test]
fn handshake_messages_use_the_queues_of_control_messages() {
    let Some((steering, mut known)) = loaded_program(1) else { return };
    let datagram = |source: &str, length: u16, first: [u8; 4]| {
        let mut packet = packet(source, 17);
        packet[44..46].copy_from_slice(&length.to_be_bytes());
        packet[48..52].copy_from_slice(&first);
        selected_queue(&steering, &packet)
    };
    for (kind, length) in [(1, 156), (2, 100), (3, 72)] {
        assert_eq!(datagram(UNKNOWN_SENDER, length, [kind, 0, 0, 0]), QUEUE_OTHER_SENDERS, "{kind}");
        assert_eq!(datagram(UNKNOWN_SENDER, length, [4, 0, 0, 0]), QUEUE_FORWARDED, "{length}");
        for other in [length - 1, length + 1, length + 256, 16] {
            assert_eq!(datagram(UNKNOWN_SENDER, other, [kind, 0, 0, 0]), QUEUE_FORWARDED, "{other}");
        }
        for place in 1..4 {
            let mut first = [kind, 0, 0, 0];
            first[place] = 1;
            assert_eq!(datagram(UNKNOWN_SENDER, length, first), QUEUE_FORWARDED, "{first:?}");
        }
    }
    let router: Ipv6Addr = "2001:db8:f0::7".parse().unwrap();
    known.add(&tunnel_to(router.into()), true);
    steering.set_read_until(DeviceQueue::OtherSenders, u64::MAX);
    assert_eq!(datagram("2001:db8:f0::7", 156, [1, 0, 0, 0]), DeviceQueue::Known as u32);
}

#[test]
fn senders_beyond_map_size_remain_unknown() {
    let Some((steering, mut known)) = loaded_program(2000) else { return };
    let at = |number: u32| Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(number));
    for number in 0..2010 {
        known.add(&tunnel_to(at(number).into()), true);
    }
    steering.set_read_until(DeviceQueue::OtherSenders, monotonic_nanoseconds());
    let queues = |steering: &SteeringProgram| -> Vec<u32> {
        (0..2010).map(|number| selected_queue(steering, &packet(&at(number).to_string(), 135))).collect()
    };
    let of_first = queues(&steering).iter().filter(|queue| **queue == QUEUE_KNOWN_SENDERS).count();
    assert_eq!(of_first, 2000);
    for number in 0..2010 {
        known.remove(&tunnel_to(at(number).into()));
    }
    steering.set_read_until(DeviceQueue::Known, monotonic_nanoseconds());
    assert_eq!(queues(&steering), [QUEUE_OTHER_SENDERS; 2010]);
}

/// Actions on a queue, each a little later than the action before.
#[derive(Debug, Clone)]
enum QueueStep {
    /// The program selects the queue for a packet, which arrives in the queue later.
    Chosen(u64),
    /// The reader reads and handles at most this number of packets, then computes its progress.
    Read(usize),
    /// Time passes.
    Pass(u64),
}

fn random_step() -> impl Strategy<Value = QueueStep> {
    prop_oneof![
        (0..MAX_QUEUEING_DELAY_NS).prop_map(QueueStep::Chosen),
        (0..8_usize).prop_map(QueueStep::Read),
        (0..2 * MAX_QUEUEING_DELAY_NS).prop_map(QueueStep::Pass),
    ]
}

proptest! {
    /// Whenever the progress reports a time, all packets whose queue was selected before that time have been
    /// read. The progress also reports times for an empty queue.
    #[test]
    fn tun_reader_reports_time_of_the_last_complete_read(
        steps in prop::collection::vec(random_step(), 1..300),
    ) {
        const QUEUE_CAPACITY: u32 = 5;
        let mut now = 1_000;
        let mut progress = QueueProgress::new(now);
        // Packets that the program has assigned to the queue: time of assignment and time of arrival. Arrived
        // packets are in the queue in order.
        let (mut coming, mut queue) = (Vec::<(u64, u64)>::new(), VecDeque::new());
        let last = [QueueStep::Pass(2 * MAX_QUEUEING_DELAY_NS), QueueStep::Read(9), QueueStep::Read(9)];
        for step in steps.into_iter().chain(last) {
            now += 1;
            match step {
                QueueStep::Chosen(way) => coming.push((now, now + way)),
                QueueStep::Pass(time) => now += time,
                QueueStep::Read(_) => {}
            }
            coming.sort_by_key(|(_, at)| *at);
            while coming.first().is_some_and(|(_, at)| *at <= now) {
                let (chosen, _) = coming.remove(0);
                // A full queue drops the packet.
                if queue.len() < QUEUE_CAPACITY as usize {
                    queue.push_back(chosen);
                }
            }
            if let QueueStep::Read(count) = step {
                (0..count.min(queue.len())).for_each(|_| {
                    queue.pop_front();
                    progress.count_packet_read();
                });
                if let Some(before) = progress.handled_until(now, QUEUE_CAPACITY, || queue.is_empty()) {
                    let left: Vec<u64> =
                        queue.iter().copied().chain(coming.iter().map(|(chosen, _)| *chosen)).collect();
                    prop_assert!(left.iter().all(|chosen| *chosen >= before), "{before} of {left:?}");
                }
            }
        }
        prop_assert!(coming.is_empty());
        let before = now;
        let until = progress.handled_until(now + MAX_QUEUEING_DELAY_NS, QUEUE_CAPACITY, || true);
        prop_assert!(until.is_some_and(|until| until <= before));
    }
}
