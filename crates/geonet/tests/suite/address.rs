//! Addresses (10.2.1): duplicate address detection and pseudonyms.

use std::time::Duration;

use carnet_geonet::mib::AddressConfiguration;
use carnet_geonet::{Event, GeonetDrop, Mib, Repetition, Request, Transport};
use carnet_wire::geonet::{CommonNextHeader, HeaderType, Timestamp};

use crate::craft::*;

fn impostor() -> Station {
    let mut station = Station::b();
    station.mac = IUT_MAC;
    station.pv.address = address(IUT_MAC);
    station
}

/// PON_GNA_BV_02: an SHB from this station's address makes the station choose another address.
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
        // After this station has changed its address, the other station is an ordinary neighbour.
        iut.hear(&impostor(), &impostor().next().shb(b"x")).expect("a neighbour");
    }
}

/// A neighbour buffers a packet of this station (SCF) and sends it after this station's restart. This is no
/// address conflict: a station with the same address would send beacons.
#[test]
fn packets_from_before_a_restart_are_no_conflict() {
    let before = |iut: &Iut| Station { pv: iut.pv(), ..impostor() }.earlier(5_000);
    let mut iut = Iut::quiet(Mib::default());
    let old = before(&iut);
    for frame in [old.tsb(b"x"), old.gbc(area1(), b"x"), old.guc(&Station::a().pv, b"x")] {
        assert_eq!(iut.hear(&Station::b(), &frame), Err(GeonetDrop::OwnEcho));
    }
    assert_eq!((iut.router.address(), iut.events.len()), (address(IUT_MAC), 0));
    assert_eq!(iut.hear(&Station::b(), &old.beacon()), Err(GeonetDrop::DuplicateAddress));
    assert_ne!(iut.router.address(), address(IUT_MAC));

    // Without a position this station cannot have sent packets, so it has no own vectors for comparison.
    let mut iut = Iut::without_position(Mib::default());
    assert_eq!(iut.hear(&Station::b(), &impostor().tsb(b"x")), Err(GeonetDrop::OwnEcho));
    // After a reset the router still recognises its recent packets as its own.
    let mut iut = Iut::quiet(Mib::default());
    iut.ask(Transport::GeoBroadcast(area1()), b"x").expect("accepted");
    let frame = one_hop_later(iut.one_sent().frame);
    iut.router.reset(iut.now, address(IUT_MAC));
    assert_eq!(iut.hear(&Station::b(), &frame), Err(GeonetDrop::OwnEcho));
    assert_eq!(iut.router.address(), address(IUT_MAC));
}

/// 10.2.1.5: after a conflict the router changes only an automatic address. It reports the conflict in both
/// cases.
#[test]
fn router_keeps_configured_address_after_conflict() {
    for method in [AddressConfiguration::Managed, AddressConfiguration::Anonymous] {
        let mut iut = Iut::quiet(Mib { address_configuration: method, ..Mib::default() });
        let refused = iut.hear(&impostor(), &impostor().shb(b"x"));
        assert_eq!(refused, Err(GeonetDrop::DuplicateAddress));
        assert_eq!(iut.router.address(), address(IUT_MAC));
        assert_eq!(iut.events.len(), 1);
    }
}

/// 10.2.1.4: no packet links a new pseudonym to the old one.
#[test]
fn new_pseudonym_clears_location_table_and_sequence_number() {
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

/// After a change of pseudonym the router drops its waiting packets, because they contain the old address.
#[test]
fn new_pseudonym_drops_waiting_packets_of_the_old_one() {
    let mut iut = Iut::quiet(Mib::default());
    iut.ask_scf(Transport::GeoBroadcast(area1()), b"x").expect("kept");
    iut.ask(Transport::GeoUnicast(Station::a().pv.address), b"x").expect("kept");
    let (_, broadcast, _) = iut.router.buffered_octets();
    assert!(broadcast > 0);
    iut.sent.clear();
    iut.router.handle_address(address([2, 9, 9, 9, 9, 9]));
    assert_eq!(iut.router.buffered_octets(), (0, 0, 0));
    iut.knows(&[Station::a(), Station::b()]);
    iut.wait(Duration::from_secs(20));
    iut.nothing_sent();
    assert_eq!(iut.dropped(GeonetDrop::AddressChanged), 2);
}

/// 10.2.1.5: after a conflict the old address belongs to the other station, so the router sends no packet
/// that contains it.
#[test]
fn router_sends_no_packet_with_its_old_address_after_conflict() {
    let mut iut = Iut::quiet(Mib::default());
    iut.ask_scf(Transport::GeoBroadcast(area1()), b"x").expect("kept");
    iut.ask(Transport::GeoUnicast(Station::a().pv.address), b"x").expect("kept");
    let interval = Duration::from_millis(500);
    let repetition = Some(Repetition { interval, maximum_time: Duration::from_secs(60) });
    let request = Request::new(Transport::TopologicallyScoped, CommonNextHeader::BtpB, b"x");
    iut.request(Request { repetition, ..request }).expect("accepted");
    iut.sent.clear();
    assert_eq!(iut.hear(&impostor(), &impostor().beacon()), Err(GeonetDrop::DuplicateAddress));
    iut.knows(&[Station::a(), Station::b()]);
    iut.wait(Duration::from_secs(20));
    iut.nothing_sent();
    assert_eq!(iut.dropped(GeonetDrop::AddressChanged), 2);
}

/// The upper tester of a conformance test requests the initial state before each case.
#[test]
fn initial_state_uses_configured_address() {
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
    // No earlier search continues after the reset, and the station sends only beacons, with the new address.
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

/// PON_GUC_BV_05: a station accepts a GUC whose destination address has its MID but other type bits. The IPv6
/// adaptation knows only the MID of an address.
#[test]
fn router_accepts_packet_to_its_mid_with_other_address_bits() {
    let mut iut = Iut::quiet(Mib::default());
    let mut to = iut.pv();
    to.address.0 ^= 0xfc00_0000_0000_0000;
    to.timestamp = Timestamp(1);
    iut.get(&Station::b(), &Station::b().guc(&to, b"x")).expect("delivered");
    assert_eq!(iut.delivered.len(), 1);
}

/// An attacker uses each new address of the station; the station does not change its address with every
/// frame.
#[test]
fn address_changes_after_conflicts_are_limited() {
    let mut iut = Iut::quiet(Mib::default());
    for _ in 0..100 {
        let mut impostor = impostor();
        impostor.pv.address = iut.router.address();
        let refused = iut.hear(&Station::b(), &impostor.shb(b"x"));
        assert_eq!(refused, Err(GeonetDrop::DuplicateAddress));
    }
    assert_eq!(iut.events.len(), 3);
}
