//! Permissions for a fast path, and its reports.

use carnet_base::Time;
use carnet_geonet::acceleration::{
    FastPathReport, FastPathUpdate, ForwardingPath, OwnPacketPath, PERMISSION_IDLE_TIME, SequenceNumbers,
    SourceSummary,
};
use carnet_geonet::mib::NonAreaForwarding;
use carnet_geonet::{GeonetDrop, Mib, Request, Transport};
use carnet_wire::geonet::{CommonNextHeader, ExtendedHeader};

use crate::craft::*;

fn unlimited() -> Mib {
    Mib { max_packet_data_rate: None, ..Mib::default() }
}

/// Returns a router with a fast path.
fn accelerated(mib: Mib) -> Iut {
    let mut iut = Iut::quiet(mib);
    iut.router.accelerate(None);
    iut
}

fn send(iut: &mut Iut, to: &Station) {
    let request = Request::new(Transport::GeoUnicast(to.pv.address), CommonNextHeader::Ipv6, b"packet");
    iut.request(request).expect("accepted");
}

/// Passes a report of the fast path to the router.
fn report(iut: &mut Iut, report: FastPathReport) {
    iut.router.handle_report(iut.now, &report);
    iut.drain();
}

fn ways(iut: &mut Iut) -> Vec<OwnPacketPath> {
    let told = std::mem::take(&mut iut.fast_path_updates).into_iter();
    told.filter_map(|told| if let FastPathUpdate::Way(way) = told { Some(*way) } else { None }).collect()
}

fn onwards(iut: &mut Iut) -> Vec<ForwardingPath> {
    let told = std::mem::take(&mut iut.fast_path_updates).into_iter();
    told.filter_map(|told| if let FastPathUpdate::Onward(onward) = told { Some(*onward) } else { None })
        .collect()
}

#[test]
fn router_without_fast_path_outputs_no_permissions() {
    let mut iut = Iut::quiet(unlimited());
    let b = Station::b();
    iut.knows(&[b]);
    send(&mut iut, &b);
    iut.get(&b, &b.guc(&iut.pv(), b"x")).expect("delivered");
    assert!(iut.fast_path_updates.is_empty(), "{:?}", iut.fast_path_updates);
}

/// The permission for the fast path has the same headers and the same next hop as the packet that caused it.
#[test]
fn first_packet_of_a_flow_gives_fast_path_its_permission() {
    let mut iut = accelerated(unlimited());
    let (a, b) = (Station::a(), Station::b());
    iut.knows(&[b, Station::d()]);
    iut.hear(&b, &a.tsb(b"x")).expect("forwarded");
    iut.sent.clear();
    send(&mut iut, &a);
    let sent = iut.one_sent();
    let expected_position = FastPathUpdate::Position(iut.pv());
    assert_eq!(iut.fast_path_updates.last(), Some(&expected_position), "the position comes last");
    let [way] = &ways(&mut iut)[..] else { panic!("one way") };
    assert_eq!((way.destination, way.next_hop), (a.mac, b.mac));
    // With its variable fields filled in, the permission gives the packet that the router sent.
    let mut headers = way.headers;
    headers[8..10].copy_from_slice(&6u16.to_be_bytes());
    headers[12..14].copy_from_slice(&0u16.to_be_bytes());
    headers[16..40].copy_from_slice(&iut.pv().to_octets());
    assert_eq!(sent.frame, [&headers[..], b"packet"].concat());
    // The router does not repeat a permission, and payloads other than IPv6 cause none.
    send(&mut iut, &a);
    iut.ask(Transport::GeoUnicast(b.pv.address), b"BTP").expect("accepted");
    assert!(iut.fast_path_updates.is_empty(), "{:?}", iut.fast_path_updates);
}

/// Annex B.2: the router shapes multi-hop packets and the fast path cannot, so the fast path gets no
/// permission for them.
#[test]
fn fast_path_gets_no_multi_hop_permission_with_a_rate_limit() {
    let mut iut = accelerated(Mib::default());
    let (a, b) = (Station::a(), Station::b());
    iut.knows(&[b, Station::d()]);
    iut.hear(&b, &a.tsb(b"x")).expect("forwarded");
    send(&mut iut, &a);
    assert_eq!(ways(&mut iut), []);
    send(&mut iut, &b);
    assert_eq!(ways(&mut iut).len(), 1);
}

#[test]
fn permission_ends_when_next_hop_or_destination_expires() {
    let mut iut = accelerated(unlimited());
    let (a, b, d) = (Station::a(), Station::b(), Station::d());
    iut.knows(&[b, d]);
    iut.hear(&b, &a.tsb(b"x")).expect("forwarded");
    send(&mut iut, &a);
    iut.fast_path_updates.clear();
    // After a link failure the fast path gets a permission with the next best neighbour.
    iut.router.handle_link_failure(iut.now, b.mac);
    iut.drain();
    assert_eq!(ways(&mut iut).iter().map(|way| way.next_hop).collect::<Vec<_>>(), [d.mac]);
    // Without a next hop the router withdraws the permission, because the router may broadcast, buffer or
    // recover the packet.
    iut.router.handle_link_failure(iut.now, d.mac);
    iut.drain();
    assert_eq!(iut.fast_path_updates, [FastPathUpdate::NoOwnPacketPath(a.mac)]);
    iut.fast_path_updates.clear();
    // A new neighbour becomes the next hop of the permission.
    let b = b.later(1).next();
    iut.knows(&[b]);
    assert_eq!(ways(&mut iut).iter().map(|way| way.next_hop).collect::<Vec<_>>(), [b.mac]);
    // This station moves beyond its neighbour. It has no next hop any more, so the router withdraws the
    // permission.
    iut.locate(Station::a().position(), 1_000_500);
    assert!(
        iut.fast_path_updates.contains(&FastPathUpdate::NoOwnPacketPath(a.mac)),
        "{:?}",
        iut.fast_path_updates
    );
    iut.locate(HOME, 1_000_600);
    iut.fast_path_updates.clear();
    // All location table entries expire.
    iut.wait(Mib::default().lifetime_location_entry);
    assert_eq!(iut.fast_path_updates, [FastPathUpdate::NoOwnPacketPath(a.mac)]);
}

#[test]
fn router_withdraws_unused_permissions() {
    let mut iut = accelerated(Mib::default());
    let b = Station::b();
    iut.knows(&[b]);
    send(&mut iut, &b);
    iut.get(&b, &b.guc(&iut.pv(), b"x")).expect("delivered");
    iut.fast_path_updates.clear();
    iut.wait(PERMISSION_IDLE_TIME / 2);
    report(&mut iut, FastPathReport { own_packet_destinations: vec![b.mac], ..FastPathReport::default() });
    assert_eq!(
        iut.fast_path_updates,
        [FastPathUpdate::Position(iut.pv())],
        "nothing but that the router is there"
    );
    iut.wait(PERMISSION_IDLE_TIME / 2);
    report(&mut iut, FastPathReport::default());
    assert!(
        iut.fast_path_updates.contains(&FastPathUpdate::NoSource(b.mac)) && iut.router.is_accelerated(),
        "{:?}",
        iut.fast_path_updates
    );
    iut.fast_path_updates.clear();
    iut.wait(PERMISSION_IDLE_TIME / 2);
    report(&mut iut, FastPathReport::default());
    assert_eq!(iut.fast_path_updates, [FastPathUpdate::NoOwnPacketPath(b.mac)]);
    assert!(!iut.router.is_accelerated());
    // The next packet causes a new permission, and the router outputs its position again.
    iut.fast_path_updates.clear();
    iut.knows(&[b.later(1)]);
    send(&mut iut, &b);
    let position = FastPathUpdate::Position(iut.pv());
    assert!(iut.fast_path_updates.contains(&position));
    assert_eq!(ways(&mut iut).len(), 1);
}

/// A forwarder's next hop depends on the destination position in the packet, unless the destination is its
/// neighbour.
#[test]
fn forwarding_permission_depends_on_destination_position_in_packet() {
    let mut iut = accelerated(unlimited());
    let (a, b, c) = (Station::a(), Station::b(), Station::c());
    iut.knows(&[b, c]);
    iut.get(&c, &c.guc(&a.pv, b"x")).expect("forwarded");
    let [source, ..] = &iut.fast_path_updates[..] else { panic!("nothing told") };
    assert_eq!(*source, FastPathUpdate::Source(c.mac, vec![c.sequence]));
    let told = onwards(&mut iut);
    let [onward] = &told[..] else { panic!("{told:?}") };
    assert_eq!((onward.destination, onward.next_hop), (a.mac, b.mac));
    assert_eq!(
        (onward.required_position, onward.destination_vector),
        (Some((a.pv.latitude, a.pv.longitude)), None)
    );
    // The destination is a neighbour: the fast path corrects its position (C.3).
    let old = b.earlier(500);
    let c = c.next();
    iut.get(&c, &c.guc(&old.pv, b"x")).expect("forwarded");
    let told = onwards(&mut iut);
    let [onward] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (onward.next_hop, onward.required_position, onward.destination_vector),
        (b.mac, None, Some(b.pv.to_short()))
    );
    // The destination position in the packets has changed.
    let c = c.next();
    let moved = a.moved(c.position());
    iut.get(&c, &c.guc(&moved.pv, b"x")).expect("forwarded");
    let told = onwards(&mut iut);
    assert_eq!(told[0].required_position, Some((moved.pv.latitude, moved.pv.longitude)));
    assert_eq!(told[0].next_hop, c.mac);
}

/// B.2: with a limit on the data rate the router must handle every forwarded packet itself. The same is true
/// with contention-based forwarding.
#[test]
fn fast_path_gets_no_permission_if_router_needs_every_packet() {
    let mut iut = accelerated(Mib::default());
    let (a, b, c) = (Station::a(), Station::b(), Station::c());
    iut.knows(&[b]);
    iut.get(&c, &c.guc(&a.pv, b"x")).expect("forwarded");
    assert!(onwards(&mut iut).is_empty());
    let mib = Mib { non_area_forwarding: NonAreaForwarding::ContentionBased, ..unlimited() };
    let mut iut = accelerated(mib);
    iut.knows(&[b]);
    send(&mut iut, &b);
    iut.get(&b, &b.guc(&iut.pv(), b"x")).expect("delivered");
    assert!(iut.fast_path_updates.is_empty(), "{:?}", iut.fast_path_updates);
}

/// The location table learns from samples as from packets: C.2, A.2, B.2.
#[test]
fn fast_path_report_updates_location_table() {
    let mut iut = accelerated(Mib::default());
    let b = Station::b();
    iut.knows(&[b]);
    iut.get(&b, &b.guc(&iut.pv(), b"x")).expect("delivered");
    let later = b.later(300).moved(Station::d().position());
    let sample = SourceSummary { vector: later.pv, direct: true, octets: 50_000, sequences: vec![101, 102] };
    iut.wait_ms(300);
    report(
        &mut iut,
        FastPathReport { delivered: 7, samples: vec![sample.clone()], ..FastPathReport::default() },
    );
    let (_, entry) = iut.router.location_table().iter().next().expect("B");
    assert_eq!(*entry.position_vector(), later.pv);
    assert_eq!(iut.router.counters().delivered, 8);
    // The router detects duplicates of the sample's packets and of earlier packets.
    for sequence in [100, 101, 102] {
        let frame = Station { sequence, ..later }.guc(&iut.pv(), b"x");
        assert_eq!(iut.get(&b, &frame), Err(GeonetDrop::Duplicate), "{sequence}");
    }
    // Packets that this station received as destination do not count for the forwarding limit.
    let limit = Mib::default().max_packet_data_rate.expect("a limit") as usize;
    for round in 0..60u64 {
        iut.wait_ms(1000);
        let vector = later.later(1000 * (round + 1)).pv;
        let sample = SourceSummary { vector, octets: 2 * limit, ..sample.clone() };
        report(&mut iut, FastPathReport { samples: vec![sample], ..FastPathReport::default() });
    }
    let frame = Station { sequence: 200, ..later.later(60_200) }.guc(&Station::a().pv, b"x");
    assert_ne!(iut.get(&b, &frame), Err(GeonetDrop::PacketDataRate));
    // A report with an old vector changes nothing. A report with this station's own address changes nothing
    // either.
    let own = SourceSummary { vector: iut.pv(), ..sample.clone() };
    report(&mut iut, FastPathReport { samples: vec![sample, own], ..FastPathReport::default() });
    assert_eq!(iut.dropped(GeonetDrop::OwnEcho), 1);
    let (_, entry) = iut.router.location_table().iter().next().expect("B");
    assert_eq!(entry.position_vector().timestamp, later.later(60_200).pv.timestamp);
}

/// A counter that router and fast path share.
#[derive(Debug)]
struct Shared(std::sync::Arc<std::sync::atomic::AtomicU16>);

impl SequenceNumbers for Shared {
    fn next(&mut self) -> u16 {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
    fn restart(&mut self) {
        self.0.store(0, std::sync::atomic::Ordering::Relaxed);
    }
    fn replay(&mut self, _: u16) {}
}

#[test]
fn router_and_fast_path_share_sequence_numbers_until_address_changes() {
    let mut iut = accelerated(Mib::default());
    let numbers = std::sync::Arc::new(std::sync::atomic::AtomicU16::new(0));
    iut.router.share_sequence_numbers(Box::new(Shared(numbers.clone())));
    let b = Station::b();
    iut.knows(&[b]);
    let sequence = |iut: &mut Iut| {
        send(iut, &b);
        let frame = iut.one_sent().frame;
        let ExtendedHeader::GeoUnicast { sequence, .. } = parse(&frame).extended else { panic!() };
        sequence
    };
    assert_eq!(sequence(&mut iut), 0);
    // The fast path sends a hundred packets.
    numbers.fetch_add(100, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(sequence(&mut iut), 101);
    iut.fast_path_updates.clear();
    iut.router.handle_address(address([2, 0, 0, 0, 0, 0x77]));
    iut.drain();
    assert_eq!(iut.fast_path_updates, [FastPathUpdate::NoOwnPacketPath(b.mac)]);
    iut.knows(&[b.later(1)]);
    assert_eq!(sequence(&mut iut), 0);
    iut.router.reset(iut.now, address(IUT_MAC));
    iut.drain();
    assert!(iut.fast_path_updates.contains(&FastPathUpdate::NoOwnPacketPath(b.mac)));
    iut.knows(&[b.later(2)]);
    assert_eq!(sequence(&mut iut), 0);
    // During replay, the recorded reports say how many sequence numbers the fast path used.
    let mut iut = accelerated(Mib::default());
    iut.knows(&[b]);
    report(&mut iut, FastPathReport { next_sequence: 500, ..FastPathReport::default() });
    assert_eq!(sequence(&mut iut), 500);
    assert!(iut.now > Time::ZERO);
}
