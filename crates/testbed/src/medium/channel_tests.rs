//! Tests the channel in virtual time.

use std::sync::Arc;

use proptest::prelude::*;

use super::channel::{Channel, ChannelOutput, ChannelParameters, Frame, MacAddress};
use super::geometry::Point;
use super::mobility::Track;
use super::propagation::Propagation;
use super::stats::Counters;
use super::timing::{
    Airtime, CLEAR_CHANNEL_ASSESSMENT_TIME, CONTENTION_WINDOW_MIN, DISTRIBUTED_INTERFRAME_SPACE,
    MAX_TRANSMISSION_ATTEMPTS, SHORT_INTERFRAME_SPACE, SLOT_TIME,
};

const SECOND: u64 = 1_000_000_000;
const BROADCAST: MacAddress = [0xff; 6];

fn numbered_mac(n: usize) -> MacAddress {
    [2, 0, 0, 0, 0, n as u8]
}

fn frame_with_mark(to: MacAddress, octets: usize, mark: u8) -> Frame {
    let mut frame = vec![mark; octets.max(14)];
    frame[..6].copy_from_slice(&to);
    Arc::from(frame)
}

fn default_parameters() -> ChannelParameters {
    let propagation = Propagation {
        range_metres: 400.0,
        sense_range_metres: 400.0,
        path_loss_exponent: 2.0,
        shadowing_db: 0.0,
        decorrelation_metres: 25.0,
        seed: 1,
    };
    ChannelParameters {
        seed: 1,
        propagation,
        capture_threshold_db: None,
        loss_probability: 0.0,
        airtime: Airtime::new(6_000_000),
        queue_length: 8,
    }
}

/// Creates a channel with radios on a line; `places` has their positions in metres.
fn channel_with_radios_at(parameters: ChannelParameters, places: &[f64]) -> Channel {
    let radio = |(n, x): (usize, &f64)| (numbered_mac(n), Track::fixed_at(Point { x: *x, y: 0.0 }));
    Channel::new(parameters, 0, places.iter().enumerate().map(radio).collect())
}

/// Runs the channel until it has no more events, and returns its outputs.
fn run_to_the_end(channel: &mut Channel) -> Vec<ChannelOutput> {
    while let Some(at) = channel.poll_timeout() {
        channel.handle_timeout(at);
    }
    std::iter::from_fn(|| channel.poll_output()).collect()
}

/// Returns time, radio and mark of each received frame.
fn received_frames(outputs: &[ChannelOutput]) -> Vec<(u64, usize, u8)> {
    let one = |output: &ChannelOutput| match output {
        ChannelOutput::Received { at, radio, frame } => Some((*at, *radio, frame[13])),
        ChannelOutput::Sent { .. } | ChannelOutput::Done { .. } => None,
    };
    outputs.iter().filter_map(one).collect()
}

fn sent_frames(outputs: &[ChannelOutput]) -> Vec<(u64, usize)> {
    let one = |output: &ChannelOutput| match output {
        ChannelOutput::Sent { at, radio, .. } => Some((*at, *radio)),
        ChannelOutput::Received { .. } | ChannelOutput::Done { .. } => None,
    };
    outputs.iter().filter_map(one).collect()
}

#[test]
fn radios_in_range_receive_a_broadcast() {
    let mut c = channel_with_radios_at(default_parameters(), &[0.0, 400.0, 401.0, -30.0]);
    c.enqueue(SECOND, 0, frame_with_mark(BROADCAST, 114, 7));
    let outputs = run_to_the_end(&mut c);
    let end = SECOND + default_parameters().airtime.frame_airtime(114);
    assert_eq!(sent_frames(&outputs), [(SECOND, 0)]);
    assert_eq!(received_frames(&outputs), [(end, 1, 7), (end, 3, 7)]);
    let counters = c.counters();
    assert_eq!(
        (counters[0].sent_frames, counters[1].received_frames, counters[2]),
        (1, 1, Counters::default())
    );
    assert_eq!(counters[0].airtime_nanoseconds, end - SECOND);
    // A receiver senses a frame only when the clear channel assessment time has passed since the frame's
    // begin.
    assert_eq!(
        (counters[0].busy_nanoseconds, counters[1].busy_nanoseconds),
        (end - SECOND, end - SECOND - CLEAR_CHANNEL_ASSESSMENT_TIME)
    );
}

#[test]
fn radio_behind_wall_is_isolated() {
    let mut c = channel_with_radios_at(default_parameters(), &[0.0, 100.0, 200.0]);
    c.set_enclosed(1, true);
    c.enqueue(SECOND, 0, frame_with_mark(BROADCAST, 114, 1));
    c.enqueue(2 * SECOND, 1, frame_with_mark(BROADCAST, 114, 2));
    c.enqueue(3 * SECOND, 0, frame_with_mark(numbered_mac(1), 114, 3));
    let outputs = run_to_the_end(&mut c);
    let heard: Vec<(usize, u8)> =
        received_frames(&outputs).iter().map(|(_, radio, mark)| (*radio, *mark)).collect();
    assert_eq!(heard, [(2, 1)]);
    c.set_enclosed(1, false);
    c.enqueue(5 * SECOND, 1, frame_with_mark(BROADCAST, 114, 4));
    let heard: Vec<u8> = received_frames(&run_to_the_end(&mut c)).iter().map(|(_, _, mark)| *mark).collect();
    assert_eq!(heard, [4, 4]);
}

#[test]
fn radio_waits_for_free_channel() {
    let mut c = channel_with_radios_at(default_parameters(), &[0.0, 100.0]);
    c.enqueue(SECOND, 0, frame_with_mark(BROADCAST, 500, 1));
    c.enqueue(SECOND + 50_000, 1, frame_with_mark(BROADCAST, 500, 2));
    let outputs = run_to_the_end(&mut c);
    let end = SECOND + default_parameters().airtime.frame_airtime(500);
    let (second, _) = sent_frames(&outputs)[1];
    assert!(
        second >= end + DISTRIBUTED_INTERFRAME_SPACE
            && second <= end + DISTRIBUTED_INTERFRAME_SPACE + u64::from(CONTENTION_WINDOW_MIN) * SLOT_TIME
    );
    assert_eq!((second - end - DISTRIBUTED_INTERFRAME_SPACE) % SLOT_TIME, 0);
    assert_eq!(received_frames(&outputs).len(), 2);
}

#[test]
fn simultaneous_frames_collide() {
    let mut c = channel_with_radios_at(default_parameters(), &[0.0, 100.0, 200.0]);
    c.enqueue(SECOND, 0, frame_with_mark(BROADCAST, 114, 1));
    c.enqueue(SECOND + CLEAR_CHANNEL_ASSESSMENT_TIME / 2, 2, frame_with_mark(BROADCAST, 114, 2));
    assert_eq!(received_frames(&run_to_the_end(&mut c)), []);
    let counters = c.counters();
    assert_eq!(counters.iter().map(|c| c.collided_frames).collect::<Vec<_>>(), [0, 2, 0]);
    assert_eq!(counters.iter().map(|c| c.half_duplex_losses).collect::<Vec<_>>(), [1, 0, 1]);
}

#[test]
fn hidden_stations_collide_at_receiver_between_them() {
    let mut c = channel_with_radios_at(default_parameters(), &[0.0, 300.0, 600.0]);
    c.enqueue(SECOND, 0, frame_with_mark(BROADCAST, 1000, 1));
    c.enqueue(SECOND + 500_000, 2, frame_with_mark(BROADCAST, 1000, 2));
    assert_eq!(received_frames(&run_to_the_end(&mut c)), []);
    assert_eq!(c.counters()[1].collided_frames, 2);
    // A radio waits while another radio within its sense range sends.
    let mut senses = default_parameters();
    senses.propagation.sense_range_metres = 700.0;
    let mut c = channel_with_radios_at(senses, &[0.0, 300.0, 600.0]);
    c.enqueue(SECOND, 0, frame_with_mark(BROADCAST, 1000, 1));
    c.enqueue(SECOND + 500_000, 2, frame_with_mark(BROADCAST, 1000, 2));
    assert_eq!(received_frames(&run_to_the_end(&mut c)).len(), 2);
}

#[test]
fn stronger_frame_survives_with_capture_effect() {
    let captures = ChannelParameters { capture_threshold_db: Some(10.0), ..default_parameters() };
    // The senders are 20 m and 380 m away, a difference of 25 dB. The receiver gets the frame of the nearer
    // one, even if it began later.
    for first in [0, 2] {
        let mut c = channel_with_radios_at(captures.clone(), &[0.0, 20.0, 400.0]);
        c.enqueue(SECOND, first, frame_with_mark(BROADCAST, 1000, first as u8));
        c.enqueue(
            SECOND + CLEAR_CHANNEL_ASSESSMENT_TIME / 2,
            2 - first,
            frame_with_mark(BROADCAST, 1000, 2 - first as u8),
        );
        let heard: Vec<_> = received_frames(&run_to_the_end(&mut c)).iter().map(|r| (r.1, r.2)).collect();
        assert_eq!(heard, [(1, 0)]);
    }
    // Both senders are 200 m away, so the receiver gets neither frame.
    let mut c = channel_with_radios_at(captures, &[0.0, 200.0, 400.0]);
    c.enqueue(SECOND, 0, frame_with_mark(BROADCAST, 1000, 0));
    c.enqueue(SECOND, 2, frame_with_mark(BROADCAST, 1000, 2));
    assert_eq!(received_frames(&run_to_the_end(&mut c)), []);
}

#[test]
fn unicast_frame_is_acknowledged_by_its_receiver() {
    let mut c = channel_with_radios_at(default_parameters(), &[0.0, 100.0, 200.0]);
    c.enqueue(SECOND, 0, frame_with_mark(numbered_mac(1), 114, 5));
    let airtime = default_parameters().airtime;
    let outputs = run_to_the_end(&mut c);
    assert_eq!(received_frames(&outputs), [(SECOND + airtime.frame_airtime(114), 1, 5)]);
    let counters = c.counters();
    assert_eq!((counters[0].sent_frames, counters[0].retries, counters[0].unacknowledged_frames), (1, 0, 0));
    assert_eq!(counters[1].airtime_nanoseconds, airtime.acknowledgement_airtime());
    // The sender's second frame waits for the acknowledgement of its first frame.
    c.enqueue(2 * SECOND, 0, frame_with_mark(numbered_mac(1), 114, 6));
    c.enqueue(2 * SECOND, 0, frame_with_mark(numbered_mac(1), 114, 7));
    let sent = sent_frames(&run_to_the_end(&mut c));
    let turn = airtime.frame_airtime(114)
        + SHORT_INTERFRAME_SPACE
        + airtime.acknowledgement_airtime()
        + DISTRIBUTED_INTERFRAME_SPACE;
    assert!(sent[1].0 >= 2 * SECOND + turn, "{sent:?}");
}

#[test]
fn radio_accepts_frames_to_present_address_only() {
    let mut c = channel_with_radios_at(default_parameters(), &[0.0, 100.0]);
    c.set_address(1, numbered_mac(8));
    assert_eq!(c.address(1), Some(numbered_mac(8)));
    c.enqueue(SECOND, 0, frame_with_mark(numbered_mac(8), 114, 5));
    c.enqueue(2 * SECOND, 0, frame_with_mark(numbered_mac(1), 114, 6));
    let marks: Vec<u8> = received_frames(&run_to_the_end(&mut c)).iter().map(|r| r.2).collect();
    assert_eq!(marks, [5]);
    assert_eq!(c.counters()[0].unacknowledged_frames, 1);
}

#[test]
fn unanswered_unicast_is_sent_seven_times() {
    let mut c = channel_with_radios_at(default_parameters(), &[0.0, 100.0]);
    c.enqueue(SECOND, 0, frame_with_mark(numbered_mac(9), 114, 5));
    c.enqueue(SECOND, 0, frame_with_mark(BROADCAST, 114, 6));
    let outputs = run_to_the_end(&mut c);
    assert_eq!(sent_frames(&outputs).len(), MAX_TRANSMISSION_ATTEMPTS as usize + 1);
    assert_eq!(received_frames(&outputs).len(), 1);
    let counters = c.counters()[0];
    assert_eq!((counters.sent_frames, counters.retries, counters.unacknowledged_frames), (8, 6, 1));
}

/// Returns the gaps between successive frames of a radio in slots. DIFS and `rest` are not included: `rest`
/// is the time on air, in nanoseconds.
fn gaps_between_sendings(sent: &[(u64, usize)], rest: u64) -> Vec<u64> {
    sent.windows(2)
        .map(|pair| (pair[1].0 - pair[0].0 - rest - DISTRIBUTED_INTERFRAME_SPACE) / SLOT_TIME)
        .collect()
}

#[test]
fn back_off_separates_two_frames() {
    let mut c =
        channel_with_radios_at(ChannelParameters { queue_length: 1000, ..default_parameters() }, &[0.0]);
    for _ in 0..1000 {
        c.enqueue(SECOND, 0, frame_with_mark(BROADCAST, 114, 0));
    }
    let gaps = gaps_between_sendings(
        &sent_frames(&run_to_the_end(&mut c)),
        default_parameters().airtime.frame_airtime(114),
    );
    assert!(gaps.iter().all(|slots| *slots <= u64::from(CONTENTION_WINDOW_MIN)));
    let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
    assert!((7.0..8.0).contains(&mean), "{mean} slots");
}

/// A radio waits for the back-off after its first frame, also when the medium was idle for long before the
/// second one.
#[test]
fn radio_completes_back_off_after_frame() {
    let end = SECOND + default_parameters().airtime.frame_airtime(114);
    let late = (0..100).filter(|seed| {
        let mut c = channel_with_radios_at(ChannelParameters { seed: *seed, ..default_parameters() }, &[0.0]);
        c.enqueue(SECOND, 0, frame_with_mark(BROADCAST, 114, 0));
        c.enqueue(end + DISTRIBUTED_INTERFRAME_SPACE + 3 * SLOT_TIME, 0, frame_with_mark(BROADCAST, 114, 0));
        sent_frames(&run_to_the_end(&mut c))[1].0 > end + DISTRIBUTED_INTERFRAME_SPACE + 3 * SLOT_TIME
    });
    let late = late.count();
    // With 12 of the 16 possible draws of the back-off, the second frame leaves more than three slots after
    // DIFS.
    assert!((60..90).contains(&late), "{late} of 100");
}

#[test]
fn contention_window_grows_with_each_retry() {
    let airtime = default_parameters().airtime;
    let rest = airtime.frame_airtime(114) + airtime.acknowledgement_timeout();
    let mut slots = [0; MAX_TRANSMISSION_ATTEMPTS as usize - 1];
    for seed in 0..200 {
        let mut c = channel_with_radios_at(ChannelParameters { seed, ..default_parameters() }, &[0.0]);
        c.enqueue(SECOND, 0, frame_with_mark(numbered_mac(9), 114, 0));
        // While the sender waits for the acknowledgement, the medium is already idle for DIFS. So two
        // attempts differ by the timeout and the slots of the back-off.
        let sent = sent_frames(&run_to_the_end(&mut c));
        for (sum, pair) in slots.iter_mut().zip(sent.windows(2)) {
            *sum += (pair[1].0 - pair[0].0).saturating_sub(rest) / SLOT_TIME;
        }
    }
    // The back-off before the second attempt has 0 to 31 slots, before the seventh 0 to 1023.
    assert!(slots.windows(2).all(|pair| pair[0] < pair[1]), "{slots:?}");
    assert!(slots[0] < 200 * 20 && slots[5] > 200 * 400, "{slots:?}");
}

#[test]
fn lost_acknowledgement_does_not_duplicate_frame() {
    let lossy = ChannelParameters { loss_probability: 0.5, ..default_parameters() };
    let mut c = channel_with_radios_at(lossy, &[0.0, 100.0]);
    for n in 0..200 {
        c.enqueue(SECOND + n * SECOND / 10, 0, frame_with_mark(numbered_mac(1), 114, n as u8));
    }
    let outputs = run_to_the_end(&mut c);
    let mut marks: Vec<u8> = received_frames(&outputs).iter().map(|r| r.2).collect();
    let counters = c.counters();
    assert!(counters[0].retries > 100 && counters[1].random_losses > 100, "{counters:?}");
    // A try fails in three of four cases: the frame or its acknowledgement is lost.
    assert!(counters[0].unacknowledged_frames > 0 && marks.len() > 190, "{} of 200", marks.len());
    marks.dedup();
    assert_eq!(marks.len(), received_frames(&outputs).len());
}

#[test]
fn uniform_loss_has_configured_share() {
    let lossy = ChannelParameters { loss_probability: 0.2, ..default_parameters() };
    let mut c = channel_with_radios_at(lossy, &[0.0, 100.0]);
    for n in 0..1000 {
        c.enqueue(SECOND + n * 1_000_000, 0, frame_with_mark(BROADCAST, 114, 0));
    }
    let count = received_frames(&run_to_the_end(&mut c)).len();
    assert!((760..840).contains(&count), "{count} of 1000");
}

#[test]
fn radio_queue_is_bounded() {
    let mut c = channel_with_radios_at(default_parameters(), &[0.0, 100.0]);
    for _ in 0..20 {
        c.enqueue(SECOND, 0, frame_with_mark(BROADCAST, 114, 0));
    }
    assert_eq!(received_frames(&run_to_the_end(&mut c)).len(), 9);
    assert_eq!(c.counters()[0].queue_overflows, 11);
}

#[test]
fn node_out_of_range_is_not_received() {
    let away = Track::moving(vec![(0.0, Point { x: 0.0, y: 0.0 }), (10.0, Point { x: 1000.0, y: 0.0 })]);
    let visitor = Track::appearing_and_disappearing(vec![(0.0, Point::default()), (3.0, Point::default())]);
    let tracks = [Some(Track::fixed_at(Point::default())), away, visitor];
    let radios =
        tracks.into_iter().enumerate().map(|(n, t)| (numbered_mac(n), t.expect("is good"))).collect();
    // The tracks begin at 5 s.
    let mut c = Channel::new(default_parameters(), 5 * SECOND, radios);
    for n in [4, 6, 8, 10] {
        c.enqueue(n * SECOND, 0, frame_with_mark(BROADCAST, 114, n as u8));
    }
    let heard: Vec<_> = received_frames(&run_to_the_end(&mut c)).iter().map(|r| (r.1, r.2)).collect();
    assert_eq!(heard, [(1, 4), (1, 6), (2, 6), (1, 8), (2, 8)]);
}

/// A frame that a test sends: time, sender, receiver (`None` for a broadcast), length.
type OfferedFrame = (u64, usize, Option<usize>, usize);

#[derive(Debug, Clone)]
struct RandomChannel {
    places: Vec<(f64, f64)>,
    offered_frames: Vec<OfferedFrame>,
    sense_range: f64,
    shadowing_db: f64,
    capture_threshold_db: Option<f64>,
    loss_probability: f64,
    seed: u64,
}

fn any_channel() -> impl Strategy<Value = RandomChannel> {
    (2..8_usize).prop_flat_map(|n| {
        let places = prop::collection::vec((-500.0..500.0_f64, -500.0..500.0_f64), n);
        let offer = (0..20_000_000_u64, 0..n, prop::option::of(0..n), 20..1500_usize);
        let offers = prop::collection::vec(offer, 1..60);
        let rest = (
            400.0..800.0_f64,
            prop_oneof![Just(0.0), Just(4.0)],
            prop::option::of(3.0..15.0_f64),
            prop_oneof![Just(0.0), Just(0.3)],
            any::<u64>(),
        );
        (places, offers, rest).prop_map(|(places, mut offers, (sense, shadowing, capture, loss, seed))| {
            offers.sort_unstable();
            RandomChannel {
                places,
                offered_frames: offers,
                sense_range: sense,
                shadowing_db: shadowing,
                capture_threshold_db: capture,
                loss_probability: loss,
                seed,
            }
        })
    })
}

impl RandomChannel {
    fn channel(&self) -> Channel {
        let mut p = ChannelParameters {
            seed: self.seed,
            capture_threshold_db: self.capture_threshold_db,
            loss_probability: self.loss_probability,
            ..default_parameters()
        };
        p.propagation.sense_range_metres = self.sense_range;
        p.propagation.shadowing_db = self.shadowing_db;
        p.propagation.seed = self.seed;
        let radio =
            |(n, (x, y)): (usize, &(f64, f64))| (numbered_mac(n), Track::fixed_at(Point { x: *x, y: *y }));
        Channel::new(p, 0, self.places.iter().enumerate().map(radio).collect())
    }

    /// Runs the channel and returns its outputs. Polls the channel every `step` nanoseconds; with `None`,
    /// exactly at its timeouts.
    fn run_in_steps(&self, step: Option<u64>) -> (Vec<ChannelOutput>, Vec<Counters>) {
        let mut c = self.channel();
        let mut outputs = Vec::new();
        for (n, (at, radio, to, octets)) in self.offered_frames.iter().enumerate() {
            let at = SECOND + at;
            let mut frame = frame_with_mark(to.map_or(BROADCAST, numbered_mac), *octets, 0).to_vec();
            frame[6..14].copy_from_slice(&(n as u64).to_be_bytes());
            if let Some(step) = step {
                c.handle_timeout(at / step * step);
            }
            while let Some(due) = c.poll_timeout().filter(|due| step.is_none() && *due <= at) {
                c.handle_timeout(due);
            }
            c.enqueue(at, *radio, Arc::from(frame));
        }
        outputs.extend(run_to_the_end(&mut c));
        (outputs, c.counters())
    }
}

/// Returns the index of the frame in the test's list.
fn number_of_offered_frame(frame: &Frame) -> usize {
    frame[6..14].iter().fold(0, |n, octet| n << 8 | usize::from(*octet))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn channel_result_does_not_depend_on_call_times(world in any_channel()) {
        let exact = world.run_in_steps(None);
        prop_assert_eq!(&exact, &world.run_in_steps(None));
        prop_assert_eq!(&exact.0, &world.run_in_steps(Some(1_000_000)).0);
        prop_assert_eq!(&exact.1, &world.run_in_steps(Some(7_777)).1);
    }

    #[test]
    fn channel_delivers_only_sent_frames(world in any_channel()) {
        let (outputs, counters) = world.run_in_steps(None);
        let airtime = default_parameters().airtime;
        let mut seen = std::collections::BTreeSet::new();
        let on_air: Vec<(u64, u64, usize, usize)> = outputs
            .iter()
            .filter_map(|o| match o {
                ChannelOutput::Sent { at, radio, frame } => {
                    let end = *at + airtime.frame_airtime(frame.len());
                    Some((*at, end, *radio, number_of_offered_frame(frame)))
                }
                ChannelOutput::Received { .. } | ChannelOutput::Done { .. } => None,
            })
            .collect();
        // Each radio finishes each frame once.
        let done = outputs.iter().filter_map(|o| match o {
            ChannelOutput::Done { radio, frame, .. } => Some((number_of_offered_frame(frame), *radio)),
            _ => None,
        });
        let mut done: Vec<(usize, usize)> = done.collect();
        done.sort_unstable();
        let frames = world.offered_frames.iter().enumerate();
        let offered: Vec<(usize, usize)> = frames.map(|(n, o)| (n, o.1)).collect();
        prop_assert_eq!(done, offered);
        for output in &outputs {
            let ChannelOutput::Received { at, radio, frame } = output else { continue };
            let offer = number_of_offered_frame(frame);
            let (_, from, to, _) = world.offered_frames[offer];
            // The sender does not receive its own frame, no radio receives it twice, and a unicast frame
            // reaches only its destination.
            prop_assert_ne!(*radio, from);
            prop_assert!(seen.insert((offer, *radio)));
            prop_assert!(to.is_none_or(|to| to == *radio));
            let begin = *at - airtime.frame_airtime(frame.len());
            prop_assert!(on_air.contains(&(begin, *at, from, offer)));
            // A radio does not receive while it sends.
            for (start, end, sender, _) in &on_air {
                prop_assert!(*sender != *radio || *end <= begin || *start >= *at);
            }
            if world.shadowing_db > 0.0 {
                continue;
            }
            let distance = |a: usize, b: usize| {
                let ((ax, ay), (bx, by)) = (world.places[a], world.places[b]);
                f64::hypot(ax - bx, ay - by)
            };
            prop_assert!(distance(from, *radio) <= 400.0 + 1e-6);
            // Without capture, a radio receives a frame only if no other radio in its range sends at the same
            // time.
            for (start, end, sender, other) in &on_air {
                let overlaps = *other != offer && *start < *at && *end > begin;
                let heard = distance(*sender, *radio) <= world.sense_range - 1e-6;
                prop_assert!(world.capture_threshold_db.is_some() || !overlaps || !heard);
            }
        }
        // No radio begins to send while it senses another one.
        for (start, end, sender, _) in on_air.iter().filter(|_| world.shadowing_db == 0.0) {
            let near = |other: usize| {
                let ((ax, ay), (bx, by)) = (world.places[*sender], world.places[other]);
                f64::hypot(ax - bx, ay - by) <= world.sense_range - 1e-6
            };
            for (other, _, at, _) in on_air.iter().filter(|f| f.2 != *sender && near(f.2)) {
                prop_assert!(*other <= start + CLEAR_CHANNEL_ASSESSMENT_TIME || other >= end, "{at} begins \
                 while {sender} sends");
            }
        }
        // The channel has sent or refused every frame.
        let offers: std::collections::BTreeSet<usize> = on_air.iter().map(|f| f.3).collect();
        let overflow: u64 = counters.iter().map(|c| c.queue_overflows).sum();
        prop_assert_eq!(offers.len() as u64 + overflow, world.offered_frames.len() as u64);
        let sum = |f: fn(&Counters) -> u64| counters.iter().map(f).sum::<u64>();
        prop_assert_eq!(sum(|c| c.sent_frames), on_air.len() as u64);
        prop_assert_eq!(sum(|c| c.received_frames), seen.len() as u64);
        prop_assert_eq!(sum(|c| c.sent_frames) - sum(|c| c.retries), offers.len() as u64);
        prop_assert!(sum(|c| c.airtime_nanoseconds) >= on_air.iter().map(|f| f.1 - f.0).sum::<u64>());
        for (counters, n) in counters.iter().zip(0..) {
            let own: u64 = on_air.iter().filter(|f| f.2 == n).map(|f| f.1 - f.0).sum();
            prop_assert!(counters.busy_nanoseconds >= own && counters.airtime_nanoseconds >= own);
        }
    }
}
