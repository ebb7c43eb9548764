//! Beacons (10.2.3, 10.3.6).

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::mib::{BeaconInterval, MultiHopBeacons};
use carnet_geonet::{Mib, Transport};
use carnet_wire::geonet::{CommonNextHeader, HeaderType, LongPositionVector};

use crate::simulated_stations::*;

fn beacon_times(iut: &mut RouterUnderTest, seconds: u64) -> Vec<Time> {
    let mut times = Vec::new();
    let end = iut.now + Duration::from_secs(seconds);
    while let Some(due) = iut.router.poll_timeout()
        && due <= end
    {
        iut.advance_time(due.saturating_since(iut.now));
        for sent in iut.sent_transmissions.drain(..) {
            if parse(&sent.frame).common.header_type == HeaderType::Beacon {
                times.push(iut.now);
            }
        }
    }
    times
}

fn gaps_between(times: &[Time]) -> Vec<Duration> {
    times.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect()
}

/// FDV_BEA_BV_01, FDV_BEA_BV_02, PON_BEA_TI_01: the station sends well-formed beacons every 3.00 to 3.75 s.
#[test]
fn pon_bea_ti_01_periodic_beacons() {
    let mut iut = RouterUnderTest::new(Mib::default());
    iut.advance_time(Duration::from_millis(750));
    let first = iut.take_only_transmission();
    let packet = parse(&first.frame);
    assert_eq!(
        (packet.common.header_type, packet.common.next_header),
        (HeaderType::Beacon, CommonNextHeader::Any)
    );
    assert_eq!((packet.basic.remaining_hop_limit, packet.common.maximum_hop_limit), (1, 1));
    assert_eq!(*packet.extended.source(), iut.position_vector());
    assert_eq!(first.frame.len(), 36);
    let times = beacon_times(&mut iut, 100);
    assert!(times.len() >= 26, "{}", times.len());
    let range = Duration::from_millis(3000)..=Duration::from_millis(3750);
    assert!(gaps_between(&times).iter().all(|gap| range.contains(gap)));
}

/// PON_BEA_TI_02: an SHB replaces a beacon.
#[test]
fn pon_bea_ti_02_shb_resets_the_timer() {
    let mut iut = RouterUnderTest::new(Mib::default());
    for _ in 0..30 {
        iut.advance_time(Duration::from_millis(2900));
        iut.sent_transmissions.clear();
        iut.request_payload(Transport::SingleHop([0; 4]), b"cam").expect("accepted");
        assert_eq!(iut.sent_transmissions.len(), 1);
        iut.sent_transmissions.clear();
        iut.advance_time(Duration::from_millis(2999));
        iut.assert_nothing_sent();
        iut.request_payload(Transport::SingleHop([0; 4]), b"cam").expect("accepted");
        iut.sent_transmissions.clear();
    }
    // Without piggybacking, only an SHB postpones the next beacon.
    iut.request_payload(Transport::TopologicallyScoped, b"x").expect("accepted");
    iut.sent_transmissions.clear();
    iut.advance_time(Duration::from_millis(3750));
    assert_eq!(iut.sent_transmissions.len(), 1);
}

/// Without a position the station sends no beacon; the first position starts the beacons.
#[test]
fn no_beacon_without_a_position() {
    let mut iut = RouterUnderTest::without_position(Mib::default());
    iut.advance_time(Duration::from_secs(60));
    iut.assert_nothing_sent();
    iut.set_position(ROUTER_POSITION, 1);
    iut.advance_time(Duration::from_millis(750));
    assert_eq!(iut.sent_transmissions.len(), 1);
}

fn drive_at_speed(iut: &mut RouterUnderTest, metres_per_second: i16) {
    let pv = LongPositionVector { speed: metres_per_second * 100, accurate: true, ..iut.position_vector() };
    iut.router.handle_position(iut.now, pv).expect("on earth");
}

/// TCP over Geo-routing, formula (1): a fast station sends more beacons, and its first beacon after it
/// becomes fast leaves at once.
#[test]
fn adaptive_beacons_follow_speed() {
    let mib =
        Mib { beacon_interval: BeaconInterval::ADAPTIVE, max_communication_range: 250.0, ..Mib::default() };
    let mut iut = RouterUnderTest::new(mib);
    let slow = beacon_times(&mut iut, 60);
    assert!(gaps_between(&slow).iter().all(|gap| (1.5..=2.0).contains(&gap.as_secs_f64())));
    drive_at_speed(&mut iut, 100);
    let fast = beacon_times(&mut iut, 20);
    // The longest interval is 250 m / (16 * 100 m/s) = 156 ms.
    assert!(gaps_between(&fast).iter().all(|gap| (0.117..=0.157).contains(&gap.as_secs_f64())));
    assert!(fast[0].saturating_since(slow[slow.len() - 1]).as_secs_f64() < 0.157, "at once");
    assert!(fast.len() > 127, "{}", fast.len());
}

/// Beacons over several hops: stations learn the position and deliver no payload.
#[test]
fn multi_hop_beacons_reach_second_hop() {
    let mib =
        Mib { multi_hop_beacons: Some(MultiHopBeacons { hop_limit: 3, beacon_period: 2 }), ..Mib::default() };
    let mut iut = RouterUnderTest::new(mib);
    iut.advance_time(Duration::from_secs(20));
    let far: Vec<_> = iut.sent_transmissions.iter().filter(|sent| sent.frame[5] == 0x51).collect();
    let near = iut.sent_transmissions.iter().filter(|sent| sent.frame[5] == 0x10).count();
    assert!(far.len() >= 2 && near > far.len(), "{} of {near}", far.len());
    let packet = parse(&far[0].frame);
    assert_eq!((packet.basic.remaining_hop_limit, packet.payload.len()), (3, 0));
    let mut other = RouterUnderTest::with_rare_beacons(Mib::default());
    let frame = SimulatedStation::b().tsb_frame(b"");
    other.receive_broadcast(&SimulatedStation::b(), &frame).expect("forwarded");
    assert_eq!((other.delivered_payloads.len(), other.sent_transmissions.len()), (0, 1));
}

/// Piggybacking: a packet directly from its source makes the source a neighbour, a forwarded packet does not.
#[test]
fn data_packets_contain_neighbour_positions() {
    let mut iut = RouterUnderTest::with_rare_beacons(Mib { is_piggybacking_on: true, ..Mib::default() });
    let b = SimulatedStation::b();
    iut.receive_broadcast(&SimulatedStation::d(), &with_remaining_hops(b.tsb_frame(b"x"), 9))
        .expect("forwarded");
    iut.receive_broadcast(&SimulatedStation::d(), &b.next().tsb_frame(b"x")).expect("forwarded");
    assert_eq!(iut.router.location_table().neighbour_count(), 0);
    iut.receive_broadcast(&b, &b.with_later_timestamp(1).next().next().tsb_frame(b"x")).expect("forwarded");
    assert_eq!(iut.router.location_table().neighbour_count(), 1);
}

/// A request sends a beacon at once; the timer for the next beacon starts anew.
#[test]
fn router_sends_beacon_on_request() {
    let mut iut = RouterUnderTest::without_position(Mib::default());
    assert!(iut.request_payload(Transport::Beacon, b"").is_err());
    iut.set_position(ROUTER_POSITION, 1);
    iut.request_payload(Transport::Beacon, b"").expect("sent");
    assert_eq!(iut.take_only_transmission().frame[5], 0x10);
    iut.advance_time(Duration::from_millis(2999));
    iut.assert_nothing_sent();
    iut.advance_time(Duration::from_millis(751));
    iut.take_only_transmission();
}

/// The first beacon leaves at a random time, so that stations that start together do not send together.
/// Further positions do not change this time.
#[test]
fn first_beacon_has_random_delay() {
    let mut iut = RouterUnderTest::new(Mib::default());
    let due = iut.router.poll_timeout().expect("a beacon is planned");
    iut.advance_milliseconds(1);
    iut.set_position(position_at(1.0, 0.0), 1_000_100);
    assert_eq!(iut.router.poll_timeout(), Some(due));
}
