//! Tests one direction of a link in virtual time.

use proptest::prelude::*;

use super::*;
use crate::clock::{MILLISECOND, SECOND};
use crate::emulation::loss::Burst;

/// Returns a frame of this length that contains its number.
fn numbered_frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length.max(4)];
    frame[..4].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number_of_frame(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]])
}

/// Returns all frames that arrive until `end`: time, number, length.
fn receive_until(way: &mut LinkDirection, end: u64) -> Vec<(u64, u32, usize)> {
    let mut seen = Vec::new();
    while let Some(at) = way.poll_timeout().filter(|at| *at <= end) {
        while let Some((arrival, frame)) = way.poll_output(at) {
            assert_eq!(arrival, at, "an output is told at its time");
            seen.push((arrival, number_of_frame(&frame), frame.len()));
        }
    }
    seen
}

#[test]
fn emulated_frame_takes_serialisation_time_and_delay() {
    let properties = DirectionProperties {
        delay: 20 * MILLISECOND,
        rate: Some(10_000_000),
        ..DirectionProperties::default()
    };
    let mut way = LinkDirection::new(1, properties);
    way.enqueue(SECOND, numbered_frame(0, 1250));
    way.enqueue(SECOND, numbered_frame(1, 1250));
    // At 10 Mbit/s, 1250 octets take 1 ms.
    let at = |ms: u64| SECOND + ms * MILLISECOND;
    assert_eq!(receive_until(&mut way, 2 * SECOND), [(at(21), 0, 1250), (at(22), 1, 1250)]);
    assert_eq!(way.poll_timeout(), None);
}

#[test]
fn link_without_rate_has_no_queue() {
    let mut way = LinkDirection::new(
        1,
        DirectionProperties { delay: 5, queue_octets: 0, ..DirectionProperties::default() },
    );
    way.enqueue(10, numbered_frame(0, 9000));
    way.enqueue(10, numbered_frame(1, 9000));
    assert_eq!(receive_until(&mut way, 100), [(15, 0, 9000), (15, 1, 9000)]);
}

#[test]
fn full_link_queue_drops_newest_frame() {
    let mut way = LinkDirection::new(
        1,
        DirectionProperties {
            rate: Some(1_000_000),
            queue_octets: 256_000,
            ..DirectionProperties::default()
        },
    );
    for n in 0..300 {
        way.enqueue(0, numbered_frame(n, 1000));
    }
    let seen = receive_until(&mut way, 10 * SECOND);
    assert_eq!(seen.len(), 256);
    // At 1 Mbit/s, 256 kB take more than two seconds.
    assert_eq!(seen.last(), Some(&(2_048 * MILLISECOND, 255, 1000)));
    assert_eq!(way.counters().queue_overflows, 44);
}

#[test]
fn new_link_rate_applies_to_rest_of_frame() {
    let rate = |rate| DirectionProperties { rate: Some(rate), ..DirectionProperties::default() };
    let mut way = LinkDirection::new(1, rate(1_000_000));
    way.enqueue(0, numbered_frame(0, 1250));
    way.enqueue(0, numbered_frame(1, 1250));
    // After 5 ms, half of the first frame has been sent. At ten times the rate, the second half takes 0.5 ms.
    way.set_properties(5 * MILLISECOND, rate(10_000_000));
    assert_eq!(receive_until(&mut way, SECOND), [(5_500_000, 0, 1250), (6_500_000, 1, 1250)]);
}

#[test]
fn paused_link_continues_with_next_frame() {
    let rate = |rate| DirectionProperties { rate, ..DirectionProperties::default() };
    let mut way = LinkDirection::new(1, rate(Some(1_000_000)));
    way.enqueue(0, numbered_frame(0, 1250));
    way.set_properties(4 * MILLISECOND, rate(Some(0)));
    assert_eq!(way.poll_timeout(), None);
    way.set_properties(SECOND, rate(Some(1_000_000)));
    assert_eq!(receive_until(&mut way, 2 * SECOND), [(SECOND + 6 * MILLISECOND, 0, 1250)]);
    // If the rate becomes unlimited, all waiting frames leave at once.
    way.enqueue(3 * SECOND, numbered_frame(1, 1250));
    way.enqueue(3 * SECOND, numbered_frame(2, 1250));
    way.set_properties(3 * SECOND + MILLISECOND, rate(None));
    let gone: Vec<u64> = receive_until(&mut way, 9 * SECOND).iter().map(|s| s.0).collect();
    assert_eq!(gone, [3 * SECOND + MILLISECOND; 2]);
}

#[test]
fn shorter_delay_reorders_frames_only_if_permitted() {
    for (reorder, expected) in [(false, [0, 1]), (true, [1, 0])] {
        let with =
            |delay| DirectionProperties { delay, may_reorder: reorder, ..DirectionProperties::default() };
        let mut way = LinkDirection::new(1, with(50));
        way.enqueue(0, numbered_frame(0, 100));
        way.set_properties(10, with(5));
        way.enqueue(20, numbered_frame(1, 100));
        let order: Vec<u32> = receive_until(&mut way, 100).iter().map(|s| s.1).collect();
        assert_eq!(order, expected);
    }
}

#[test]
fn blackhole_drops_new_frames_and_delivers_earlier_ones() {
    let with = |blackhole| DirectionProperties {
        delay: 50,
        drops_all_frames: blackhole,
        ..DirectionProperties::default()
    };
    let mut way = LinkDirection::new(1, with(false));
    way.enqueue(0, numbered_frame(0, 100));
    way.set_properties(10, with(true));
    way.enqueue(20, numbered_frame(1, 100));
    way.set_properties(30, with(false));
    way.enqueue(30, numbered_frame(2, 100));
    assert_eq!(receive_until(&mut way, 100), [(50, 0, 100), (80, 2, 100)]);
    assert_eq!(way.counters().blackholed_frames, 1);
}

fn any_properties() -> impl Strategy<Value = DirectionProperties> {
    let burst = (0.0..0.2, 0.05..1.0, 0.0..=1.0).prop_map(|(enter, leave, loss)| Burst {
        enter_probability: enter,
        leave_probability: leave,
        loss_in_burst: loss,
    });
    let loss = (0.0..0.3, proptest::option::of(burst))
        .prop_map(|(random, burst)| Loss { random_loss: random, burst });
    let rate = proptest::option::weighted(0.7, 10_000_u64..100_000_000);
    (0..100 * MILLISECOND, 0..30 * MILLISECOND, any::<bool>(), rate, 0_usize..100_000, loss, any::<bool>())
        .prop_map(|(delay, jitter, reorder, rate, queue, loss, hole)| DirectionProperties {
            delay,
            jitter,
            may_reorder: reorder,
            rate,
            queue_octets: queue,
            loss,
            drops_all_frames: hole && delay % 8 == 0,
        })
}

/// Frames in their order: time since the previous frame, length, and new properties of the direction after
/// the frame, if any.
type FrameSequence = Vec<(u64, usize, Option<DirectionProperties>)>;

fn any_frame_sequence() -> impl Strategy<Value = FrameSequence> {
    let step = (0..3 * MILLISECOND, 4_usize..1600, proptest::option::weighted(0.05, any_properties()));
    proptest::collection::vec(step, 1..300)
}

/// Sends all frames of a sequence. With `nosy`, also polls the direction before each frame, which must not
/// change the result.
fn send_sequence(
    first: &DirectionProperties,
    story: &FrameSequence,
    nosy: bool,
) -> (Vec<(u64, u32, usize)>, Vec<u64>, Counters) {
    let mut way = LinkDirection::new(9, first.clone());
    let (mut now, mut seen, mut entered) = (0, Vec::new(), Vec::new());
    for (n, (gap, length, change)) in story.iter().enumerate() {
        now += gap;
        if nosy {
            seen.extend(receive_until(&mut way, now));
        }
        way.enqueue(now, numbered_frame(n as u32, *length));
        entered.push(now);
        if let Some(change) = change {
            way.set_properties(now, change.clone());
        }
    }
    way.set_properties(now, DirectionProperties { rate: None, ..way.properties.clone() });
    seen.extend(receive_until(&mut way, u64::MAX));
    (seen, entered, way.counters())
}

proptest! {
    #[test]
    fn every_frame_is_accounted_for(first in any_properties(), story in any_frame_sequence()) {
        let (seen, entered, c) = send_sequence(&first, &story, false);
        prop_assert_eq!(c.entered_frames, story.len() as u64);
        prop_assert_eq!(c.delivered_frames, seen.len() as u64);
        prop_assert_eq!(c.octets, seen.iter().map(|s| s.2 as u64).sum::<u64>());
        prop_assert_eq!(
            c.entered_frames,
            c.delivered_frames + c.lost_frames + c.queue_overflows + c.blackholed_frames
        );
        let mut numbers: Vec<u32> = seen.iter().map(|s| s.1).collect();
        numbers.sort_unstable();
        numbers.dedup();
        prop_assert_eq!(numbers.len(), seen.len(), "none comes twice");
        for (at, number, length) in &seen {
            prop_assert_eq!(*length, story[*number as usize].1);
            prop_assert!(*at >= entered[*number as usize]);
        }
    }

    #[test]
    fn reading_link_state_changes_nothing(first in any_properties(), story in any_frame_sequence()) {
        prop_assert_eq!(send_sequence(&first, &story, false), send_sequence(&first, &story, true));
    }

    #[test]
    fn emulated_link_keeps_order_delay_and_rate(
        first in any_properties(),
        frames in proptest::collection::vec((0..3 * MILLISECOND, 4_usize..1600), 1..300),
    ) {
        let first = DirectionProperties { may_reorder: false, ..first };
        let story: FrameSequence = frames.iter().map(|(gap, length)| (*gap, *length, None)).collect();
        let mut way = LinkDirection::new(9, first.clone());
        let (mut now, mut entered) = (0, Vec::new());
        for (n, (gap, length, _)) in story.iter().enumerate() {
            now += gap;
            way.enqueue(now, numbered_frame(n as u32, *length));
            entered.push(now);
        }
        let seen = receive_until(&mut way, u64::MAX);
        for pair in seen.windows(2) {
            prop_assert!(pair[0].1 < pair[1].1 && pair[0].0 <= pair[1].0, "order");
        }
        for (at, n, length) in &seen {
            let own = first.rate.map_or(0, |r| (*length as u64 * 8 * NANOSECONDS_PER_SECOND).div_ceil(r));
            prop_assert!(*at >= entered[*n as usize] + own + first.delay, "not before its time");
        }
        if let Some(rate) = first.rate && first.jitter == 0 {
            for pair in seen.windows(2) {
                let own = pair[1].2 as u64 * 8 * NANOSECONDS_PER_SECOND / rate;
                prop_assert!(pair[1].0 - pair[0].0 >= own, "not faster than the rate");
            }
        }
    }
}
