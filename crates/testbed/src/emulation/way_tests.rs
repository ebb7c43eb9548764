//! Tests one direction of a link in virtual time.

use proptest::prelude::*;

use super::*;
use crate::clock::{MILLISECOND, SECOND};
use crate::emulation::loss::Burst;

/// Returns a frame of this length that contains its number.
fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length.max(4)];
    frame[..4].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]])
}

/// Returns all frames that arrive until `end`: time, number, length.
fn drain(way: &mut LinkDirection, end: u64) -> Vec<(u64, u32, usize)> {
    let mut seen = Vec::new();
    while let Some(at) = way.poll_timeout().filter(|at| *at <= end) {
        while let Some((arrival, frame)) = way.poll_output(at) {
            assert_eq!(arrival, at, "an output is told at its time");
            seen.push((arrival, number(&frame), frame.len()));
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
    way.enqueue(SECOND, frame(0, 1250));
    way.enqueue(SECOND, frame(1, 1250));
    // At 10 Mbit/s, 1250 octets take 1 ms.
    let at = |ms: u64| SECOND + ms * MILLISECOND;
    assert_eq!(drain(&mut way, 2 * SECOND), [(at(21), 0, 1250), (at(22), 1, 1250)]);
    assert_eq!(way.poll_timeout(), None);
}

#[test]
fn link_without_rate_has_no_queue() {
    let mut way =
        LinkDirection::new(1, DirectionProperties { delay: 5, queue: 0, ..DirectionProperties::default() });
    way.enqueue(10, frame(0, 9000));
    way.enqueue(10, frame(1, 9000));
    assert_eq!(drain(&mut way, 100), [(15, 0, 9000), (15, 1, 9000)]);
}

#[test]
fn full_link_queue_drops_newest_frame() {
    let mut way = LinkDirection::new(
        1,
        DirectionProperties { rate: Some(1_000_000), queue: 256_000, ..DirectionProperties::default() },
    );
    for n in 0..300 {
        way.enqueue(0, frame(n, 1000));
    }
    let seen = drain(&mut way, 10 * SECOND);
    assert_eq!(seen.len(), 256);
    // At 1 Mbit/s, 256 kB take more than two seconds.
    assert_eq!(seen.last(), Some(&(2_048 * MILLISECOND, 255, 1000)));
    assert_eq!(way.counters().overflow, 44);
}

#[test]
fn new_link_rate_applies_to_rest_of_frame() {
    let rate = |rate| DirectionProperties { rate: Some(rate), ..DirectionProperties::default() };
    let mut way = LinkDirection::new(1, rate(1_000_000));
    way.enqueue(0, frame(0, 1250));
    way.enqueue(0, frame(1, 1250));
    // After 5 ms, half of the first frame has been sent. At ten times the rate, the second half takes 0.5 ms.
    way.set(5 * MILLISECOND, rate(10_000_000));
    assert_eq!(drain(&mut way, SECOND), [(5_500_000, 0, 1250), (6_500_000, 1, 1250)]);
}

#[test]
fn paused_link_continues_with_next_frame() {
    let rate = |rate| DirectionProperties { rate, ..DirectionProperties::default() };
    let mut way = LinkDirection::new(1, rate(Some(1_000_000)));
    way.enqueue(0, frame(0, 1250));
    way.set(4 * MILLISECOND, rate(Some(0)));
    assert_eq!(way.poll_timeout(), None);
    way.set(SECOND, rate(Some(1_000_000)));
    assert_eq!(drain(&mut way, 2 * SECOND), [(SECOND + 6 * MILLISECOND, 0, 1250)]);
    // If the rate becomes unlimited, all waiting frames leave at once.
    way.enqueue(3 * SECOND, frame(1, 1250));
    way.enqueue(3 * SECOND, frame(2, 1250));
    way.set(3 * SECOND + MILLISECOND, rate(None));
    let gone: Vec<u64> = drain(&mut way, 9 * SECOND).iter().map(|s| s.0).collect();
    assert_eq!(gone, [3 * SECOND + MILLISECOND; 2]);
}

#[test]
fn shorter_delay_reorders_frames_only_if_permitted() {
    for (reorder, expected) in [(false, [0, 1]), (true, [1, 0])] {
        let with = |delay| DirectionProperties { delay, reorder, ..DirectionProperties::default() };
        let mut way = LinkDirection::new(1, with(50));
        way.enqueue(0, frame(0, 100));
        way.set(10, with(5));
        way.enqueue(20, frame(1, 100));
        let order: Vec<u32> = drain(&mut way, 100).iter().map(|s| s.1).collect();
        assert_eq!(order, expected);
    }
}

#[test]
fn blackhole_drops_new_frames_and_delivers_earlier_ones() {
    let with = |blackhole| DirectionProperties { delay: 50, blackhole, ..DirectionProperties::default() };
    let mut way = LinkDirection::new(1, with(false));
    way.enqueue(0, frame(0, 100));
    way.set(10, with(true));
    way.enqueue(20, frame(1, 100));
    way.set(30, with(false));
    way.enqueue(30, frame(2, 100));
    assert_eq!(drain(&mut way, 100), [(50, 0, 100), (80, 2, 100)]);
    assert_eq!(way.counters().vanished, 1);
}

fn properties() -> impl Strategy<Value = DirectionProperties> {
    let burst =
        (0.0..0.2, 0.05..1.0, 0.0..=1.0).prop_map(|(enter, leave, loss)| Burst { enter, leave, loss });
    let loss = (0.0..0.3, proptest::option::of(burst)).prop_map(|(random, burst)| Loss { random, burst });
    let rate = proptest::option::weighted(0.7, 10_000_u64..100_000_000);
    (0..100 * MILLISECOND, 0..30 * MILLISECOND, any::<bool>(), rate, 0_usize..100_000, loss, any::<bool>())
        .prop_map(|(delay, jitter, reorder, rate, queue, loss, hole)| DirectionProperties {
            delay,
            jitter,
            reorder,
            rate,
            queue,
            loss,
            blackhole: hole && delay % 8 == 0,
        })
}

/// Frames in their order: time since the previous frame, length, and new properties of the direction after
/// the frame, if any.
type FrameSequence = Vec<(u64, usize, Option<DirectionProperties>)>;

fn story() -> impl Strategy<Value = FrameSequence> {
    let step = (0..3 * MILLISECOND, 4_usize..1600, proptest::option::weighted(0.05, properties()));
    proptest::collection::vec(step, 1..300)
}

/// Sends all frames of a sequence. With `nosy`, also polls at times in between, which must not change the
/// result.
fn play(
    first: &DirectionProperties,
    story: &FrameSequence,
    nosy: bool,
) -> (Vec<(u64, u32, usize)>, Vec<u64>, Counters) {
    let mut way = LinkDirection::new(9, first.clone());
    let (mut now, mut seen, mut entered) = (0, Vec::new(), Vec::new());
    for (n, (gap, length, change)) in story.iter().enumerate() {
        now += gap;
        if nosy {
            seen.extend(drain(&mut way, now));
        }
        way.enqueue(now, frame(n as u32, *length));
        entered.push(now);
        if let Some(change) = change {
            way.set(now, change.clone());
        }
    }
    way.set(now, DirectionProperties { rate: None, ..way.properties.clone() });
    seen.extend(drain(&mut way, u64::MAX));
    (seen, entered, way.counters())
}

proptest! {
    #[test]
    fn every_frame_is_accounted_for(first in properties(), story in story()) {
        let (seen, entered, c) = play(&first, &story, false);
        prop_assert_eq!(c.frames, story.len() as u64);
        prop_assert_eq!(c.delivered, seen.len() as u64);
        prop_assert_eq!(c.octets, seen.iter().map(|s| s.2 as u64).sum::<u64>());
        prop_assert_eq!(c.frames, c.delivered + c.lost + c.overflow + c.vanished);
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
    fn reading_link_state_changes_nothing(first in properties(), story in story()) {
        prop_assert_eq!(play(&first, &story, false), play(&first, &story, true));
    }

    #[test]
    fn emulated_link_keeps_order_delay_and_rate(
        first in properties(),
        frames in proptest::collection::vec((0..3 * MILLISECOND, 4_usize..1600), 1..300),
    ) {
        let first = DirectionProperties { reorder: false, ..first };
        let story: FrameSequence = frames.iter().map(|(gap, length)| (*gap, *length, None)).collect();
        let mut way = LinkDirection::new(9, first.clone());
        let (mut now, mut entered) = (0, Vec::new());
        for (n, (gap, length, _)) in story.iter().enumerate() {
            now += gap;
            way.enqueue(now, frame(n as u32, *length));
            entered.push(now);
        }
        let seen = drain(&mut way, u64::MAX);
        for pair in seen.windows(2) {
            prop_assert!(pair[0].1 < pair[1].1 && pair[0].0 <= pair[1].0, "order");
        }
        for (at, n, length) in &seen {
            let own = first.rate.map_or(0, |r| (*length as u64 * 8 * NANO).div_ceil(r));
            prop_assert!(*at >= entered[*n as usize] + own + first.delay, "not before its time");
        }
        if let Some(rate) = first.rate && first.jitter == 0 {
            for pair in seen.windows(2) {
                let own = pair[1].2 as u64 * 8 * NANO / rate;
                prop_assert!(pair[1].0 - pair[0].0 >= own, "not faster than the rate");
            }
        }
    }
}
