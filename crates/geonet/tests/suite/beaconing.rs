//! Beacons (10.2.3, 10.3.6).

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::mib::{BeaconInterval, MultiHopBeacons};
use carnet_geonet::{Mib, Transport};
use carnet_wire::geonet::{CommonNextHeader, HeaderType, LongPositionVector};

use crate::craft::*;

fn times(iut: &mut Iut, seconds: u64) -> Vec<Time> {
    let mut times = Vec::new();
    let end = iut.now + Duration::from_secs(seconds);
    while let Some(due) = iut.router.poll_timeout()
        && due <= end
    {
        iut.wait(due.saturating_since(iut.now));
        for sent in iut.sent.drain(..) {
            if parse(&sent.frame).common.header_type == HeaderType::Beacon {
                times.push(iut.now);
            }
        }
    }
    times
}

fn gaps(times: &[Time]) -> Vec<Duration> {
    times.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect()
}

/// FDV_BEA_BV_01, FDV_BEA_BV_02, PON_BEA_TI_01: the station sends well-formed beacons every 3.00 to 3.75 s.
#[test]
fn pon_bea_ti_01_periodic_beacons() {
    let mut iut = Iut::new(Mib::default());
    iut.wait(Duration::from_millis(750));
    let first = iut.one_sent();
    let packet = parse(&first.frame);
    assert_eq!(
        (packet.common.header_type, packet.common.next_header),
        (HeaderType::Beacon, CommonNextHeader::Any)
    );
    assert_eq!((packet.basic.remaining_hop_limit, packet.common.maximum_hop_limit), (1, 1));
    assert_eq!(*packet.extended.source(), iut.pv());
    assert_eq!(first.frame.len(), 36);
    let times = times(&mut iut, 100);
    assert!(times.len() >= 26, "{}", times.len());
    let range = Duration::from_millis(3000)..=Duration::from_millis(3750);
    assert!(gaps(&times).iter().all(|gap| range.contains(gap)));
}

/// PON_BEA_TI_02: an SHB replaces a beacon.
#[test]
fn pon_bea_ti_02_shb_resets_the_timer() {
    let mut iut = Iut::new(Mib::default());
    for _ in 0..30 {
        iut.wait(Duration::from_millis(2900));
        iut.sent.clear();
        iut.ask(Transport::SingleHop([0; 4]), b"cam").expect("accepted");
        assert_eq!(iut.sent.len(), 1);
        iut.sent.clear();
        iut.wait(Duration::from_millis(2999));
        iut.nothing_sent();
        iut.ask(Transport::SingleHop([0; 4]), b"cam").expect("accepted");
        iut.sent.clear();
    }
    // With piggybacking off, other packets do not postpone a beacon.
    iut.ask(Transport::TopologicallyScoped, b"x").expect("accepted");
    iut.sent.clear();
    iut.wait(Duration::from_millis(3750));
    assert_eq!(iut.sent.len(), 1);
}

/// Without a position the station sends no beacon; the first position starts the beacons.
#[test]
fn no_beacon_without_a_position() {
    let mut iut = Iut::without_position(Mib::default());
    iut.wait(Duration::from_secs(60));
    iut.nothing_sent();
    iut.locate(HOME, 1);
    iut.wait(Duration::from_millis(750));
    assert_eq!(iut.sent.len(), 1);
}

fn drive(iut: &mut Iut, metres_per_second: i16) {
    let pv = LongPositionVector { speed: metres_per_second * 100, accurate: true, ..iut.pv() };
    iut.router.handle_position(iut.now, pv).expect("on earth");
}

/// TCP over Geo-routing, formula (1): a fast station sends more beacons, and its first beacon after it
/// becomes fast leaves at once.
#[test]
fn adaptive_beacons_follow_speed() {
    let mib =
        Mib { beacon_interval: BeaconInterval::ADAPTIVE, max_communication_range: 250.0, ..Mib::default() };
    let mut iut = Iut::new(mib);
    let slow = times(&mut iut, 60);
    assert!(gaps(&slow).iter().all(|gap| (1.5..=2.0).contains(&gap.as_secs_f64())));
    drive(&mut iut, 100);
    let fast = times(&mut iut, 20);
    // The longest interval is 250 m / (16 * 100 m/s) = 156 ms.
    assert!(gaps(&fast).iter().all(|gap| (0.117..=0.157).contains(&gap.as_secs_f64())));
    assert!(fast[0].saturating_since(slow[slow.len() - 1]).as_secs_f64() < 0.157, "at once");
    assert!(fast.len() > 127, "{}", fast.len());
}

/// Beacons over several hops: stations learn the position and deliver no payload.
#[test]
fn multi_hop_beacons_reach_second_hop() {
    let mib = Mib { multi_hop_beacons: Some(MultiHopBeacons { hops: 3, every: 2 }), ..Mib::default() };
    let mut iut = Iut::new(mib);
    iut.wait(Duration::from_secs(20));
    let far: Vec<_> = iut.sent.iter().filter(|sent| sent.frame[5] == 0x51).collect();
    let near = iut.sent.iter().filter(|sent| sent.frame[5] == 0x10).count();
    assert!(far.len() >= 2 && near > far.len(), "{} of {near}", far.len());
    let packet = parse(&far[0].frame);
    assert_eq!((packet.basic.remaining_hop_limit, packet.payload.len()), (3, 0));
    let mut other = Iut::quiet(Mib::default());
    let frame = Station::b().tsb(b"");
    other.hear(&Station::b(), &frame).expect("forwarded");
    assert_eq!((other.delivered.len(), other.sent.len()), (0, 1));
}

/// Piggybacking: a packet directly from its source makes the source a neighbour, a forwarded packet does not.
#[test]
fn data_packets_contain_neighbour_positions() {
    let mut iut = Iut::quiet(Mib { piggyback: true, ..Mib::default() });
    let b = Station::b();
    iut.hear(&Station::d(), &with_hops(b.tsb(b"x"), 9)).expect("forwarded");
    iut.hear(&Station::d(), &b.next().tsb(b"x")).expect("forwarded");
    assert_eq!(iut.router.location_table().neighbours(), 0);
    iut.hear(&b, &b.later(1).next().next().tsb(b"x")).expect("forwarded");
    assert_eq!(iut.router.location_table().neighbours(), 1);
}

/// A request sends a beacon at once; the timer for the next beacon starts anew.
#[test]
fn router_sends_beacon_on_request() {
    let mut iut = Iut::without_position(Mib::default());
    assert!(iut.ask(Transport::Beacon, b"").is_err());
    iut.locate(HOME, 1);
    iut.ask(Transport::Beacon, b"").expect("sent");
    assert_eq!(iut.one_sent().frame[5], 0x10);
    iut.wait(Duration::from_millis(2999));
    iut.nothing_sent();
    iut.wait(Duration::from_millis(751));
    iut.one_sent();
}

/// The first beacon leaves at a random time, so that stations that start together do not send together.
/// Further positions do not change this time.
#[test]
fn first_beacon_has_random_delay() {
    let mut iut = Iut::new(Mib::default());
    let due = iut.router.poll_timeout().expect("a beacon is planned");
    iut.wait_ms(1);
    iut.locate(place(1.0, 0.0), 1_000_100);
    assert_eq!(iut.router.poll_timeout(), Some(due));
}
