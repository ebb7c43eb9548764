//! Addresses (10.2.1): duplicate address detection, pseudonyms.

use std::time::Duration;

use carnet_geonet::mib::AddressConfiguration;
use carnet_geonet::{Event, GeonetDrop, Mib, Transport};
use carnet_wire::geonet::{HeaderType, Timestamp};

use crate::craft::*;

fn impostor() -> Station {
    let mut station = Station::b();
    station.mac = IUT_MAC;
    station.pv.address = address(IUT_MAC);
    station
}

/// PON_GNA_BV_02: an SHB with this station's address makes it take another one.
#[test]
fn pon_gna_bv_02_duplicate_address_detection() {
    for frame in [impostor().shb(b"x"), impostor().beacon(), impostor().tsb(b"x")] {
        let mut iut = Iut::quiet(Mib::default());
        iut.ask(Transport::SingleHop([0; 4]), b"x").expect("accepted");
        iut.sent.clear();
        let old = iut.router.address();
        assert_eq!(iut.hear(&impostor(), &frame), Err(GeonetDrop::DuplicateAddress));
        let new = iut.router.address();
        assert_ne!(old.mid(), new.mid());
        assert_eq!((new.mid()[0] & 3, new.station_type(), new.is_manual()), (2, old.station_type(), false));
        assert_eq!(iut.events, [Event::AddressConflict { address: old, replacement: new }]);
        assert!(iut.delivered.is_empty() && iut.router.location_table().is_empty());
        iut.ask(Transport::SingleHop([0; 4]), b"x").expect("accepted");
        assert_eq!(parse(&iut.one_sent().frame).extended.source().address, new);
        // From now on the other one is a station like any other.
        iut.hear(&impostor(), &impostor().next().shb(b"x")).expect("a neighbour");
    }
}

/// 10.2.1.5: only automatic addresses change; the conflict is told in any case.
#[test]
fn configured_addresses_stay() {
    for method in [AddressConfiguration::Managed, AddressConfiguration::Anonymous] {
        let mut iut = Iut::quiet(Mib { address_configuration: method, ..Mib::default() });
        let refused = iut.hear(&impostor(), &impostor().shb(b"x"));
        assert_eq!(refused, Err(GeonetDrop::DuplicateAddress));
        assert_eq!(iut.router.address(), address(IUT_MAC));
        assert_eq!(iut.events.len(), 1);
    }
}

/// 10.2.1.4: nothing links a new pseudonym to the old one.
#[test]
fn a_new_pseudonym() {
    let mut iut = Iut::quiet(Mib::default());
    iut.knows(&[Station::b()]);
    iut.ask(Transport::GeoBroadcast(area1()), b"x").expect("accepted");
    iut.sent.clear();
    iut.router.handle_address(address([2, 9, 9, 9, 9, 9]));
    assert!(iut.router.location_table().is_empty());
    iut.ask(Transport::GeoBroadcast(area1()), b"x").expect("accepted");
    let sent = iut.one_sent();
    let extended = parse(&sent.frame).extended;
    assert_eq!((extended.sequence(), extended.source().address.mid()), (Some(0), [2, 9, 9, 9, 9, 9]));
}

/// What the upper tester of a conformance test asks for before each case.
#[test]
fn the_initial_state() {
    let mut iut = Iut::quiet(Mib::default());
    iut.knows(&[Station::b()]);
    iut.ask(Transport::GeoBroadcast(area1()), b"x").expect("accepted");
    iut.ask(Transport::GeoUnicast(address([2, 7, 7, 7, 7, 7])), b"x").expect("accepted");
    iut.sent.clear();
    let (counters, now) = (iut.router.counters().sent, iut.now);
    iut.router.reset(now, address([2, 9, 9, 9, 9, 9]));
    assert!(iut.router.location_table().is_empty());
    assert_eq!(iut.router.buffered_octets(), (0, 0, 0));
    assert_eq!(iut.router.counters().sent, counters, "counters never go back");
    iut.wait(Duration::from_millis(3750));
    // No search for the station of before, and beacons from the new address as after a start.
    assert!(!iut.sent.is_empty());
    for sent in &iut.sent {
        let packet = parse(&sent.frame);
        assert_eq!(packet.common.header_type, HeaderType::Beacon);
        assert_eq!(packet.extended.source().address.mid(), [2, 9, 9, 9, 9, 9]);
    }
    iut.sent.clear();
    iut.ask(Transport::GeoBroadcast(area1()), b"x").expect("accepted");
    assert_eq!(parse(&iut.one_sent().frame).extended.sequence(), Some(0));
}

/// PON_GUC_BV_05 with other bits around the MID: the adaptation of IPv6 knows no more of an address.
#[test]
fn the_mid_is_what_counts() {
    let mut iut = Iut::quiet(Mib::default());
    let mut to = iut.pv();
    to.address.0 ^= 0xfc00_0000_0000_0000;
    to.timestamp = Timestamp(1);
    iut.get(&Station::b(), &Station::b().guc(&to, b"x")).expect("delivered");
    assert_eq!(iut.delivered.len(), 1);
}

/// Somebody who sends with each of our addresses does not have us change with every frame.
#[test]
fn conflicts_are_limited() {
    let mut iut = Iut::quiet(Mib::default());
    for _ in 0..100 {
        let mut impostor = impostor();
        impostor.pv.address = iut.router.address();
        let refused = iut.hear(&Station::b(), &impostor.shb(b"x"));
        assert_eq!(refused, Err(GeonetDrop::DuplicateAddress));
    }
    assert_eq!(iut.events.len(), 3);
}
