//! Tests the program in the kernel on one packet at a time (`BPF_PROG_TEST_RUN`), and the reading progress of
//! a queue.

#![allow(clippy::unwrap_used)]

use carnet_base::Endpoint;
use carnet_nemo::forwarding::desired::TunnelEnd;
use proptest::prelude::*;

use super::*;
use crate::bpf_call::tests::run;

const HOME_AGENT: &str = "2001:db8:1::1";
const ROUTER: &str = "2001:db8:f1::10";
const STRANGER: &str = "2001:db8:f1::66";
const CONTROL: [u8; 6] = [0, 43, 44, 58, 60, 135];
const DATA: [u8; 6] = [6, 17, 41, 50, 59, 132];
const FORWARDED: u32 = Queue::Forwarded as u32;
const KNOWN: u32 = Queue::Known as u32;
const STRANGERS: u32 = Queue::Strangers as u32;

/// Returns the loaded program; `None` if the kernel allows no programs.
fn loaded(senders: usize) -> Option<(Arc<Steering>, KnownSenders)> {
    match Steering::open(senders) {
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
fn queue(steering: &Steering, packet: &[u8]) -> u32 {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
    frame.extend(packet);
    run(steering.program(), &frame)
}

fn packet(source: &str, next_header: u8) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 16, next_header, 64];
    packet.extend(source.parse::<Ipv6Addr>().unwrap().octets());
    packet.extend(HOME_AGENT.parse::<Ipv6Addr>().unwrap().octets());
    packet.extend([0; 16]);
    packet
}

fn tunnel(remote: Endpoint) -> Tunnel {
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

fn all(steering: &Steering, source: &str, kinds: &[u8]) -> Vec<u32> {
    kinds.iter().map(|next_header| queue(steering, &packet(source, *next_header))).collect()
}

/// Returns whether the map has an entry for an address. Forged source addresses must not get one.
fn has_place(steering: &Steering, source: &str) -> bool {
    steering.queue_map.get(&source.parse::<Ipv6Addr>().unwrap().octets()).is_some()
}

#[test]
fn sender_changes_queue_when_old_queue_has_none_of_its_packets() {
    let Some((steering, mut known)) = loaded(0) else { return };
    let router = tunnel(ROUTER.parse::<Ipv6Addr>().unwrap().into());
    let before = now();
    let asks = || queue(&steering, &packet(ROUTER, 135));
    assert_eq!(all(&steering, ROUTER, &CONTROL), [STRANGERS; 6]);
    assert_eq!(all(&steering, ROUTER, &DATA), [FORWARDED; 6]);
    known.add(&router, true);
    assert_eq!(all(&steering, ROUTER, &CONTROL), [STRANGERS; 6]);
    // The station has handled all packets of the queue for unknown senders that came before this sender was
    // known.
    steering.has_read(Queue::Strangers, before);
    steering.has_read(Queue::Known, now());
    assert_eq!(asks(), STRANGERS);
    let between = now();
    assert_eq!(asks(), STRANGERS);
    steering.has_read(Queue::Strangers, between);
    assert_eq!(asks(), STRANGERS, "the one before may wait still");
    steering.has_read(Queue::Strangers, now());
    assert_eq!(all(&steering, ROUTER, &CONTROL), [KNOWN; 6]);
    assert_eq!(all(&steering, ROUTER, &DATA), [FORWARDED; 6]);
    assert_eq!(all(&steering, STRANGER, &CONTROL), [STRANGERS; 6]);
    // Two routers are behind the same address; one router loses its tunnel.
    known.add(&router, true);
    known.add(&router, false);
    known.remove(&router);
    steering.has_read(Queue::Known, now());
    assert_eq!(asks(), KNOWN);
    // The second router's tunnel ends as well. Its packets in the second queue must be handled before it
    // changes its queue.
    known.remove(&router);
    assert_eq!(asks(), KNOWN);
    steering.has_read(Queue::Known, now());
    assert_eq!(asks(), STRANGERS);
    // The router has a tunnel again.
    known.add(&router, true);
    assert_eq!(asks(), STRANGERS);
    steering.has_read(Queue::Strangers, now());
    assert_eq!(asks(), KNOWN);
}

#[test]
fn departed_sender_is_removed_after_its_last_packet() {
    let Some((steering, mut known)) = loaded(0) else { return };
    let router = tunnel(ROUTER.parse::<Ipv6Addr>().unwrap().into());
    known.add(&router, true);
    steering.has_read(Queue::Strangers, now());
    assert_eq!(queue(&steering, &packet(ROUTER, 135)), KNOWN);
    known.remove(&router);
    let wait = || std::thread::sleep(std::time::Duration::from_nanos(MAX_QUEUEING_DELAY_NS));
    wait();
    known.forget();
    assert!(has_place(&steering, ROUTER), "a message of his may wait");
    steering.has_read(Queue::Known, now());
    known.forget();
    assert!(has_place(&steering, ROUTER), "looked at too early");
    wait();
    known.forget();
    assert!(!has_place(&steering, ROUTER));
    assert!(known.leaving.is_empty());
    // The router gets a tunnel again before its entry was removed.
    known.add(&router, true);
    known.remove(&router);
    known.add(&router, true);
    wait();
    known.forget();
    assert!(has_place(&steering, ROUTER));
    assert!(known.leaving.is_empty());
    // Removes a sender that never existed, and adds one whose packets do not arrive through the device.
    known.remove(&tunnel(STRANGER.parse::<Ipv6Addr>().unwrap().into()));
    known.add(&tunnel("192.0.2.1".parse::<std::net::Ipv4Addr>().unwrap().into()), true);
    assert!(known.leaving.is_empty());
}

#[test]
fn steering_reads_first_header_and_ignores_echo_replies() {
    let Some((steering, _known)) = loaded(0) else { return };
    // The program selects a queue for a truncated packet too, and the station checks the packet.
    let whole = packet(STRANGER, 135);
    for length in 40..whole.len() {
        assert_eq!(queue(&steering, &whole[..length]), STRANGERS, "{length}");
    }
    for next_header in 0..=255 {
        let expected = if CONTROL.contains(&next_header) { STRANGERS } else { FORWARDED };
        assert_eq!(queue(&steering, &packet(STRANGER, next_header)), expected, "{next_header}");
    }
    for kind in 0..=255 {
        let mut message = packet(STRANGER, 58);
        message[40] = kind;
        let expected = if matches!(kind, 128 | 129) { FORWARDED } else { STRANGERS };
        assert_eq!(queue(&steering, &message), expected, "type {kind}");
    }
}

#[test]
fn senders_beyond_map_size_remain_unknown() {
    let Some((steering, mut known)) = loaded(2000) else { return };
    let at = |number: u32| Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(number));
    for number in 0..2010 {
        known.add(&tunnel(at(number).into()), true);
    }
    steering.has_read(Queue::Strangers, now());
    let queues = |steering: &Steering| -> Vec<u32> {
        (0..2010).map(|number| queue(steering, &packet(&at(number).to_string(), 135))).collect()
    };
    let of_first = queues(&steering).iter().filter(|queue| **queue == KNOWN).count();
    assert_eq!(of_first, 2000);
    for number in 0..2010 {
        known.remove(&tunnel(at(number).into()));
    }
    steering.has_read(Queue::Known, now());
    assert_eq!(queues(&steering), [STRANGERS; 2010]);
}

/// Actions on a queue, each a little later than the action before.
#[derive(Debug, Clone)]
enum Step {
    /// The program selects the queue for a packet, which arrives in the queue later.
    Chosen(u64),
    /// The reader reads and handles at most this number of packets, then computes its progress.
    Read(usize),
    /// Time passes.
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..MAX_QUEUEING_DELAY_NS).prop_map(Step::Chosen),
        (0..8_usize).prop_map(Step::Read),
        (0..2 * MAX_QUEUEING_DELAY_NS).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Whenever the progress reports a time, all packets whose queue was selected before that time have been
    /// read. The progress also reports times for an empty queue.
    #[test]
    fn reader_reports_time_before_which_all_packets_were_read(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        const HOLDS: u32 = 5;
        let mut now = 1_000;
        let mut progress = QueueProgress::new(now);
        // Packets that the program has assigned to the queue: time of assignment and time of arrival. Arrived
        // packets are in the queue in order.
        let (mut coming, mut queue) = (Vec::<(u64, u64)>::new(), VecDeque::new());
        let last = [Step::Pass(2 * MAX_QUEUEING_DELAY_NS), Step::Read(9), Step::Read(9)];
        for step in steps.into_iter().chain(last) {
            now += 1;
            match step {
                Step::Chosen(way) => coming.push((now, now + way)),
                Step::Pass(time) => now += time,
                Step::Read(_) => {}
            }
            coming.sort_by_key(|(_, at)| *at);
            while coming.first().is_some_and(|(_, at)| *at <= now) {
                let (chosen, _) = coming.remove(0);
                // A full queue drops the packet.
                if queue.len() < HOLDS as usize {
                    queue.push_back(chosen);
                }
            }
            if let Step::Read(count) = step {
                (0..count.min(queue.len())).for_each(|_| {
                    queue.pop_front();
                    progress.read();
                });
                if let Some(before) = progress.handled_until(now, HOLDS, || queue.is_empty()) {
                    let left: Vec<u64> =
                        queue.iter().copied().chain(coming.iter().map(|(chosen, _)| *chosen)).collect();
                    prop_assert!(left.iter().all(|chosen| *chosen >= before), "{before} of {left:?}");
                }
            }
        }
        prop_assert!(coming.is_empty());
        let before = now;
        let until = progress.handled_until(now + MAX_QUEUEING_DELAY_NS, HOLDS, || true);
        prop_assert!(until.is_some_and(|until| until <= before));
    }
}
