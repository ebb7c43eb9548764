//! The queue before verification: every sender gets a turn, whatever other senders do.

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::{MacAddress, ReceivedFrame};
use carnet_security::config::SecurityConfig;
use carnet_security::ids::HashedId8;
use carnet_security::keys::EllipticCurve;
use carnet_security::queue::{MessageRank, Sender, VerificationQueue};
use carnet_security::{HandledFrame, SecurityDrop};
use carnet_wire::geonet::GeoArea;
use proptest::prelude::*;

use crate::support::*;

/// Returns a received frame that carries this packet and comes from this link-layer address.
fn frame_from(source: MacAddress, packet: &[u8]) -> ReceivedFrame<'_> {
    ReceivedFrame { source, ..frame_of_packet(packet) }
}

const ALL_RANKS: [MessageRank; 4] =
    [MessageRank::AreaHere, MessageRank::MultiHop, MessageRank::SingleHop, MessageRank::Management];

fn neighbour_sender(number: u8) -> Sender {
    Sender::Neighbour(HashedId8([number; 8]))
}

/// Returns a link-layer address that ends with `number`.
fn mac_address(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

fn sender_of_class(class: usize, number: u8) -> Sender {
    match class {
        0 => neighbour_sender(number),
        1 => Sender::Relayed(mac_address(number)),
        _ => Sender::Stranger(mac_address(number)),
    }
}

#[test]
fn queue_verifies_warnings_first_and_drops_least_important() {
    let mut queue = VerificationQueue::new(4);
    let mut now = Time::ZERO;
    let mut push = |queue: &mut VerificationQueue<_>, sender, rank, what| {
        now += Duration::from_millis(1);
        queue.push(now, sender, rank, what)
    };
    assert_eq!(push(&mut queue, neighbour_sender(1), MessageRank::SingleHop, "CAM"), None);
    assert_eq!(push(&mut queue, neighbour_sender(1), MessageRank::Management, "beacon"), None);
    assert_eq!(push(&mut queue, neighbour_sender(2), MessageRank::SingleHop, "other's CAM"), None);
    assert_eq!(push(&mut queue, neighbour_sender(2), MessageRank::AreaHere, "warning"), None);
    // The queue is full, and two senders have two messages each. Of these four messages the queue first drops
    // the beacon, which is the least important. Then it drops the older of two CAMs.
    assert_eq!(push(&mut queue, neighbour_sender(3), MessageRank::SingleHop, "third's CAM"), Some("beacon"));
    assert_eq!(push(&mut queue, neighbour_sender(1), MessageRank::SingleHop, "second CAM"), Some("CAM"));
    // The sender with the most waiting messages adds a message of lower rank than all of these. The queue
    // drops the new message.
    assert_eq!(
        push(&mut queue, neighbour_sender(1), MessageRank::Management, "late beacon"),
        Some("late beacon")
    );
    let all: Vec<_> = std::iter::from_fn(|| queue.pop_message().map(|waiting| waiting.message)).collect();
    assert_eq!(all, ["warning", "second CAM", "third's CAM", "other's CAM"]);
    assert!(queue.is_empty() && queue.sender_count() == 0);
}

#[test]
fn full_queue_drops_message_of_sender_with_most_messages() {
    let mut queue = VerificationQueue::new(1);
    assert_eq!(queue.push(Time::ZERO, neighbour_sender(1), MessageRank::SingleHop, 1), None);
    assert_eq!(queue.push(Time::ZERO, sender_of_class(2, 1), MessageRank::AreaHere, 2), Some(2));
    assert_eq!(queue.pop_message().map(|waiting| waiting.message), Some(1));
    let mut none = VerificationQueue::new(0);
    assert_eq!(none.push(Time::ZERO, neighbour_sender(1), MessageRank::SingleHop, 1), Some(1));
    assert!(none.pop_message().is_none());
}

/// Neighbours get half of the verifications, known tickets from other addresses a quarter, and unknown
/// tickets a quarter. A class without competition gets all of them.
#[test]
fn sender_classes_get_their_shares_of_verifications() {
    let mut queue = VerificationQueue::new(64);
    let mut served = [0; 3];
    for _ in 0..400 {
        // Senders with unknown tickets send as much as they can, with the highest rank.
        for number in 0..200 {
            queue.push(Time::ZERO, sender_of_class(2, number), MessageRank::AreaHere, 2);
        }
        for class in [0, 1] {
            queue.push(Time::ZERO, sender_of_class(class, 1), MessageRank::Management, class);
            queue.push(Time::ZERO, sender_of_class(class, 2), MessageRank::Management, class);
        }
        assert_eq!(queue.len(), 64);
        served[queue.pop_message().unwrap().message] += 1;
    }
    assert_eq!(served, [200, 100, 100]);
    let mut alone = VerificationQueue::new(64);
    for number in 0..64 {
        assert_eq!(alone.push(Time::ZERO, sender_of_class(2, number), MessageRank::AreaHere, number), None);
    }
    assert_eq!(std::iter::from_fn(|| alone.pop_message()).count(), 64);
}

proptest! {
    /// For any arrivals the queue keeps its limit, and neither loses nor duplicates a message silently. A
    /// sender's messages leave by rank and then by age. The dropped message is the least important of the
    /// sender with the most messages, in the class furthest above its share.
    #[test]
    fn verification_queue_has_bounded_size_and_order(
        room in 1_usize..20,
        steps in proptest::collection::vec(
            prop_oneof![
                2 => (0_usize..3, 0_u8..5, 0_usize..4).prop_map(Some),
                1 => Just(None),
            ],
            1..300,
        ),
    ) {
        let mut queue = VerificationQueue::new(room);
        let mut waiting: BTreeMap<(usize, u64), Vec<(usize, usize)>> = BTreeMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            let now = Time::from_millis(number as u64);
            let Some((class, who, rank)) = step else {
                let Some(popped) = queue.pop_message() else {
                    prop_assert!(waiting.values().all(Vec::is_empty));
                    continue;
                };
                let (turn, rank, at) = popped.message;
                prop_assert_eq!(popped.enqueued_at, Time::from_millis(at as u64));
                let his = waiting.get_mut(&turn).unwrap();
                prop_assert_eq!(his.iter().min(), Some(&(rank, at)));
                his.retain(|(_, other)| *other != at);
                continue;
            };
            // Senders whose addresses are in the same group take one turn together.
            let turn = (class, if class == 0 { u64::from(who) } else { sender_group_of(who) });
            waiting.entry(turn).or_default().push((rank, number));
            let sender = sender_of_class(class, who);
            let given_up = queue.push(now, sender, ALL_RANKS[rank], (turn, rank, number));
            let all: usize = waiting.values().map(Vec::len).sum();
            prop_assert_eq!(given_up.is_some(), all > room);
            if let Some((turn, rank, at)) = given_up {
                let length = |class| -> usize {
                    waiting.iter().filter(|((of, _), _)| *of == class).map(|(_, his)| his.len()).sum()
                };
                let above = |class: usize| length(class) * [1, 2, 2][class];
                prop_assert!((0..3).all(|class| above(class) <= above(turn.0)));
                let theirs = waiting.iter().filter(|((of, _), _)| *of == turn.0);
                let most = theirs.map(|(_, queue)| queue.len()).max();
                let his = waiting.get_mut(&turn).unwrap();
                prop_assert_eq!(Some(his.len()), most);
                // The dropped message is the least important, and among equals the oldest.
                prop_assert!(his.iter().all(|(other, when)| (*other, at) <= (rank, *when)));
                his.retain(|(_, other)| *other != at);
            }
            prop_assert_eq!(queue.len(), waiting.values().map(Vec::len).sum::<usize>());
            prop_assert!(queue.sender_count() <= 3 * (3 * room + 1));
        }
    }

    /// Senders that always have a waiting message are verified equally often, except for the advantage that
    /// the rank of their messages gives. A new sender waits for one message of each other sender, and for the
    /// advantage of their ranks.
    #[test]
    fn senders_of_a_class_are_verified_equally_often(
        class in 0_usize..3,
        ranks in proptest::collection::vec(0_usize..4, 2..9),
        rounds in 1_usize..300,
        rank in 0_usize..4,
    ) {
        let mut queue = VerificationQueue::new(64);
        let mut served = vec![0_u64; ranks.len()];
        // Use sender numbers whose addresses are in different groups.
        let numbers: Vec<u8> = numbers_of_distinct_groups().take(ranks.len() + 1).collect();
        let refill = |queue: &mut VerificationQueue<usize>, who: usize| {
            queue.push(Time::ZERO, sender_of_class(class, numbers[who]), ALL_RANKS[ranks[who]], who)
        };
        for who in 0..ranks.len() {
            prop_assert_eq!(refill(&mut queue, who), None);
        }
        for _ in 0..rounds {
            let who = queue.pop_message().unwrap().message;
            served[who] += 1;
            refill(&mut queue, who);
        }
        for (one, other) in (0..ranks.len()).flat_map(|one| (0..ranks.len()).map(move |other| (one, other))) {
            let [of_one, of_other] = [one, other].map(|who| ALL_RANKS[ranks[who]].max_messages_preceded());
            let ahead = of_one.saturating_sub(of_other);
            prop_assert!(served[one] <= served[other] + ahead + 1, "{:?} {:?}", served, ranks);
        }
        let new = ranks.len();
        queue.push(Time::ZERO, sender_of_class(class, numbers[new]), ALL_RANKS[rank], new);
        let mut before = vec![0; ranks.len()];
        loop {
            let who = queue.pop_message().unwrap().message;
            if who == new {
                break;
            }
            before[who] += 1;
            let [of_who, of_new] = [ranks[who], rank].map(|rank| ALL_RANKS[rank].max_messages_preceded());
            let ahead = of_who.saturating_sub(of_new);
            prop_assert!(before[who] <= ahead + 1, "{:?}", before);
            refill(&mut queue, who);
        }
    }
}

/// Returns numbers whose addresses are in different groups.
fn numbers_of_distinct_groups() -> impl Iterator<Item = u8> {
    let mut groups = Vec::new();
    (0..=255).filter(move |number| {
        let group = sender_group_of(*number);
        let new = !groups.contains(&group);
        groups.push(group);
        new
    })
}

/// Returns the group of an address. The function finds it by the queue's behaviour: two addresses of one
/// group take turns with each other.
fn sender_group_of(number: u8) -> u64 {
    let [a, b, c, d, e, f] = mac_address(number);
    u64::from_be_bytes([0, 0, a, b, c, d, e, f]).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58
}

/// Names and addresses that the flooding sender uses.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FloodKind {
    /// Names of the neighbours, from addresses that no neighbour has.
    Names,
    /// Names of the neighbours, from one address.
    NamesFromOne,
    /// Warnings for this area with false certificates, from addresses that no neighbour has.
    Warnings,
    /// The name and the address of one of the neighbours.
    Neighbour,
    /// Messages of all these kinds.
    All,
}

/// Eight neighbours send ten CAMs a second each, which takes 80 of 200 verifications a second. A flooding
/// sender sends `each_millisecond` messages in each millisecond. The station verifies all CAMs of the
/// neighbours in time.
fn assert_neighbours_are_verified(flood: FloodKind, each_millisecond: u64) {
    const NEIGHBOUR_COUNT: usize = 8;
    /// Time within which a CAM must be verified, milliseconds.
    const VERIFICATION_DEADLINE: u64 = 100;
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let mut receiver = pki.receiver_with(SecurityConfig { verifications_per_second: 200, ..strict_config() });
    let mut cars: Vec<_> = (0..NEIGHBOUR_COUNT).map(|_| pki.new_car_station()).collect();
    let mut rng = Rng::new(11);
    // The station knows each neighbour by the certificate in its first CAM. The flooding sender sends mutated
    // copies of these CAMs.
    let mut templates = Vec::new();
    for car in &mut cars {
        let octets = car.signed_cam(now_at_milliseconds(0));
        assert_eq!(
            receiver.handle_frame(now_at_milliseconds(0), frame_from(car.mid, &octets)),
            Ok(HandledFrame::Queued)
        );
        assert!(receiver.poll_verified(now_at_milliseconds(0)).is_some());
        templates.push((car.mid, car.signed_cam(now_at_milliseconds(10))));
    }
    let warning = {
        let mut car = pki.new_car_station();
        let area = GeoArea { distance_a: 900, ..circle_around_home(500) };
        let plain = car.plain_denm_packet(now_at_milliseconds(0), area, &example_denm(91));
        car.security.secure_packet(now_at_milliseconds(0), &plain).unwrap()
    };
    let mut sent: BTreeMap<Vec<u8>, (usize, u64)> = BTreeMap::new();
    let (mut believed, mut latest) = (vec![0; NEIGHBOUR_COUNT], 0);
    for millisecond in 100..1_500_u64 {
        let now = now_at_milliseconds(millisecond);
        for number in 0..each_millisecond {
            let kind = match flood {
                FloodKind::All => {
                    [FloodKind::Names, FloodKind::NamesFromOne, FloodKind::Warnings, FloodKind::Neighbour]
                        [rng.number_below(4) as usize]
                }
                kind => kind,
            };
            let (source, mut octets) = match kind {
                FloodKind::Warnings => ([0; 6], warning.clone()),
                FloodKind::Neighbour => templates[0].clone(),
                _ => templates[rng.number_below(NEIGHBOUR_COUNT as u64) as usize].clone(),
            };
            // Change an octet in the message, or in the key of the certificate.
            let place = match kind {
                FloodKind::Warnings => octets.len() - 100 - rng.number_below(30) as usize,
                _ => 60 + rng.number_below(20) as usize,
            };
            octets[place] ^= 1 + rng.number_below(255) as u8;
            let octet = |rng: &mut Rng| rng.number_below(256) as u8;
            let source = match kind {
                FloodKind::Neighbour => source,
                FloodKind::NamesFromOne => [2, 0, 0, 0, 0, 0x66],
                _ => [2, 1, octet(&mut rng), octet(&mut rng), octet(&mut rng), number as u8],
            };
            let _ = receiver.handle_frame(now, frame_from(source, &octets));
        }
        for (number, car) in cars.iter_mut().enumerate() {
            if millisecond % 100 == 12 * number as u64 {
                let octets = car.signed_cam(now);
                sent.insert(
                    carnet_security::packet_without_envelope(&octets).unwrap(),
                    (number, millisecond),
                );
                let _ = receiver.handle_frame(now, frame_from(car.mid, &octets));
            }
        }
        for verified in std::iter::from_fn(|| receiver.poll_verified(now)) {
            let (who, when) = sent.remove(&verified.packet).unwrap();
            believed[who] += 1;
            if (flood, who) != (FloodKind::Neighbour, 0) && (flood, who) != (FloodKind::All, 0) {
                latest = latest.max(millisecond - when);
            }
        }
    }
    println!("{flood:?}: believed {believed:?}, at most {latest} ms after they came");
    let counters = receiver.counters();
    assert!(counters.dropped(SecurityDrop::QueueOverflow) > 800 * each_millisecond);
    assert!(counters.verified_signatures < 200 * 15 / 10 + 50, "{}", counters.verified_signatures);
    // If the flood uses the ticket and the address of a neighbour, only this neighbour loses messages.
    let first = usize::from(matches!(flood, FloodKind::Neighbour | FloodKind::All));
    assert!(believed[first..].iter().all(|believed| *believed >= 13), "{believed:?}");
    assert!(latest <= VERIFICATION_DEADLINE, "{latest} ms");
}

#[test]
fn neighbours_are_verified_in_time_beside_forged_names() {
    assert_neighbours_are_verified(FloodKind::Names, 5);
    assert_neighbours_are_verified(FloodKind::NamesFromOne, 5);
}

#[test]
fn neighbours_are_verified_in_time_beside_forged_warnings() {
    assert_neighbours_are_verified(FloodKind::Warnings, 5);
}

#[test]
fn forger_with_name_and_address_of_neighbour_affects_only_this_neighbour() {
    assert_neighbours_are_verified(FloodKind::Neighbour, 5);
    assert_neighbours_are_verified(FloodKind::All, 5);
}

#[test]
fn station_under_100_000_forged_messages_a_second_verifies_its_neighbours_in_time() {
    assert_neighbours_are_verified(FloodKind::All, 100);
}

/// While some unknown senders flood, the station still verifies the messages of another unknown sender.
#[test]
fn unknown_sender_is_verified_beside_flooding_unknown_sender() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let mut receiver = pki.receiver_with(SecurityConfig { verifications_per_second: 200, ..strict_config() });
    let (mut loud, mut new) = (pki.new_car_station(), pki.new_car_station());
    let loud_cam = loud.signed_cam(now_at_milliseconds(0));
    assert_eq!(receive_packet(&mut receiver, now_at_milliseconds(0), &loud_cam).map(|all| all.len()), Ok(1));
    let template = loud.signed_cam(now_at_milliseconds(0));
    let mut rng = Rng::new(12);
    let mut heard = None;
    for millisecond in 1..700_u64 {
        let now = now_at_milliseconds(millisecond);
        for _ in 0..10 {
            let mut octets = template.clone();
            octets[60 + rng.number_below(20) as usize] ^= 1 + rng.number_below(255) as u8;
            // The flooding sender uses its own address and other addresses.
            let last = if rng.number_below(2) == 0 { 9 } else { 10 + rng.number_below(8) as u8 };
            let source = [2, 0, 0, 0, 0, last];
            let _ = receiver.handle_frame(now, frame_from(source, &octets));
        }
        if millisecond == 500 {
            let octets = new.signed_cam(now);
            let source = new.mid;
            let frame = frame_from(source, &octets);
            assert_eq!(receiver.handle_frame(now, frame), Ok(HandledFrame::Queued));
        }
        let mut all = std::iter::from_fn(|| receiver.poll_verified(now));
        if all.next().is_some() {
            heard = Some(millisecond);
            break;
        }
    }
    assert!(heard.is_some_and(|heard| heard <= 530), "{heard:?}");
}

/// A source that invents names of certificates loses only its own waiting messages.
#[test]
fn forged_messages_do_not_replace_messages_that_wait_for_certificate() {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let mut receiver = pki.receiver_with(strict_config());
    let mut new = pki.new_car_station();
    // The receiver misses the first CAM, which carries the certificate, so the second CAM waits for the
    // certificate.
    new.signed_cam(now_at_milliseconds(0));
    let octets = new.signed_cam(now_at_milliseconds(100));
    let template = octets.clone();
    assert_eq!(
        receiver.handle_frame(now_at_milliseconds(100), frame_from(new.mid, &octets)),
        Ok(HandledFrame::Queued)
    );
    assert!(receiver.poll_verified(now_at_milliseconds(100)).is_none());
    assert_eq!(receiver.waiting_messages(), (0, 1));
    let digest = new.security.current_ticket().unwrap().0;
    let place = template.windows(8).position(|octets| *octets == digest).unwrap();
    for number in 0..500_u16 {
        let mut octets = template.clone();
        octets[place..place + 2].copy_from_slice(&number.to_be_bytes());
        octets[70] ^= 1 + (number % 255) as u8;
        octets[71] ^= (number / 255) as u8;
        let now = now_at_milliseconds(101 + u64::from(number) / 10);
        let _ = receiver.handle_frame(now, frame_from([2, 0, 0, 0, 0, 0x66], &octets));
        assert!(receiver.poll_verified(now).is_none());
    }
    assert_eq!(receiver.waiting_messages(), (0, receiver.config().max_waiting_for_certificate));
    assert!(receiver.counters().dropped(SecurityDrop::WaitingOverflow) > 400);
    // The certificate arrives: the station verifies the waiting messages.
    new.security.use_ticket(new.security.current_ticket().unwrap());
    let certified = new.signed_cam(now_at_milliseconds(200));
    assert_eq!(
        receiver.handle_frame(now_at_milliseconds(200), frame_from(new.mid, &certified)),
        Ok(HandledFrame::Queued)
    );
    let all: Vec<_> = std::iter::from_fn(|| receiver.poll_verified(now_at_milliseconds(200))).collect();
    assert_eq!(all.len(), 2);
}
