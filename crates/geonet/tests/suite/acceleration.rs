//! Permissions for a fast path, and its reports.

use carnet_base::Time;
use carnet_geonet::acceleration::{
    FastPathReport, FastPathUpdate, ForwardingPath, OwnPacketPath, PERMISSION_IDLE_TIME, SequenceNumbers,
    SourceReport,
};
use carnet_geonet::mib::NonAreaForwarding;
use carnet_geonet::{GeonetDrop, Mib, Request, Transport};
use carnet_wire::geonet::{CommonNextHeader, ExtendedHeader};

use crate::simulated_stations::*;

fn mib_without_rate_limit() -> Mib {
    Mib { max_packet_data_rate: None, ..Mib::default() }
}

/// Returns a router with a fast path.
fn router_with_fast_path(mib: Mib) -> RouterUnderTest {
    let mut iut = RouterUnderTest::with_rare_beacons(mib);
    iut.router.start_fast_path(None);
    iut
}

fn send_unicast(iut: &mut RouterUnderTest, to: &SimulatedStation) {
    let request =
        Request::new(Transport::GeoUnicast(to.position_vector.address), CommonNextHeader::Ipv6, b"packet");
    iut.request(request).expect("accepted");
}

/// Passes a report of the fast path to the router.
fn pass_fast_path_report(iut: &mut RouterUnderTest, report: FastPathReport) {
    iut.router.handle_report(iut.now, &report);
    iut.collect_outputs();
}

fn take_own_packet_paths(iut: &mut RouterUnderTest) -> Vec<OwnPacketPath> {
    let told = std::mem::take(&mut iut.fast_path_updates).into_iter();
    told.filter_map(|told| if let FastPathUpdate::Way(way) = told { Some(*way) } else { None }).collect()
}

fn take_forwarding_paths(iut: &mut RouterUnderTest) -> Vec<ForwardingPath> {
    let told = std::mem::take(&mut iut.fast_path_updates).into_iter();
    told.filter_map(|told| if let FastPathUpdate::Onward(onward) = told { Some(*onward) } else { None })
        .collect()
}

#[test]
fn router_without_fast_path_outputs_no_permissions() {
    let mut iut = RouterUnderTest::with_rare_beacons(mib_without_rate_limit());
    let b = SimulatedStation::b();
    iut.make_neighbours(&[b]);
    send_unicast(&mut iut, &b);
    iut.receive_unicast(&b, &b.guc_frame(&iut.position_vector(), b"x")).expect("delivered");
    assert!(iut.fast_path_updates.is_empty(), "{:?}", iut.fast_path_updates);
}

/// The permission for the fast path has the same headers and the same next hop as the packet that caused it.
#[test]
fn first_packet_of_a_flow_gives_fast_path_its_permission() {
    let mut iut = router_with_fast_path(mib_without_rate_limit());
    let (a, b) = (SimulatedStation::a(), SimulatedStation::b());
    iut.make_neighbours(&[b, SimulatedStation::d()]);
    iut.receive_broadcast(&b, &a.tsb_frame(b"x")).expect("forwarded");
    iut.sent_transmissions.clear();
    send_unicast(&mut iut, &a);
    let sent = iut.take_only_transmission();
    let expected_position = FastPathUpdate::Position(iut.position_vector());
    assert_eq!(iut.fast_path_updates.last(), Some(&expected_position), "the position comes last");
    let [way] = &take_own_packet_paths(&mut iut)[..] else { panic!("one way") };
    assert_eq!((way.destination, way.next_hop), (a.mac, b.mac));
    // The headers of the permission, with sequence number, length and position filled in, equal those of the
    // packet that the router sent.
    let mut headers = way.guc_headers;
    headers[8..10].copy_from_slice(&6u16.to_be_bytes());
    headers[12..14].copy_from_slice(&0u16.to_be_bytes());
    headers[16..40].copy_from_slice(&iut.position_vector().to_octets());
    assert_eq!(sent.frame, [&headers[..], b"packet"].concat());
    // The router does not repeat a permission, and payloads other than IPv6 cause none.
    send_unicast(&mut iut, &a);
    iut.request_payload(Transport::GeoUnicast(b.position_vector.address), b"BTP").expect("accepted");
    assert!(iut.fast_path_updates.is_empty(), "{:?}", iut.fast_path_updates);
}

/// Annex B.2: the router shapes multi-hop packets and the fast path cannot, so the fast path gets no
/// permission for them.
#[test]
fn fast_path_gets_no_multi_hop_permission_with_a_rate_limit() {
    let mut iut = router_with_fast_path(Mib::default());
    let (a, b) = (SimulatedStation::a(), SimulatedStation::b());
    iut.make_neighbours(&[b, SimulatedStation::d()]);
    iut.receive_broadcast(&b, &a.tsb_frame(b"x")).expect("forwarded");
    send_unicast(&mut iut, &a);
    assert_eq!(take_own_packet_paths(&mut iut), []);
    send_unicast(&mut iut, &b);
    assert_eq!(take_own_packet_paths(&mut iut).len(), 1);
}

#[test]
fn permission_ends_when_next_hop_or_destination_expires() {
    let mut iut = router_with_fast_path(mib_without_rate_limit());
    let (a, b, d) = (SimulatedStation::a(), SimulatedStation::b(), SimulatedStation::d());
    iut.make_neighbours(&[b, d]);
    iut.receive_broadcast(&b, &a.tsb_frame(b"x")).expect("forwarded");
    send_unicast(&mut iut, &a);
    iut.fast_path_updates.clear();
    // After a link failure the fast path gets a permission with the next best neighbour.
    iut.router.handle_link_failure(iut.now, b.mac);
    iut.collect_outputs();
    assert_eq!(take_own_packet_paths(&mut iut).iter().map(|way| way.next_hop).collect::<Vec<_>>(), [d.mac]);
    // Without a next hop the router withdraws the permission, because the router may broadcast, buffer or
    // recover the packet.
    iut.router.handle_link_failure(iut.now, d.mac);
    iut.collect_outputs();
    assert_eq!(iut.fast_path_updates, [FastPathUpdate::NoOwnPacketPath(a.mac)]);
    iut.fast_path_updates.clear();
    // A new neighbour nearer to the destination becomes the next hop of the permission.
    let b = b.with_later_timestamp(1).next();
    iut.make_neighbours(&[b]);
    assert_eq!(take_own_packet_paths(&mut iut).iter().map(|way| way.next_hop).collect::<Vec<_>>(), [b.mac]);
    // This station moves beyond its neighbour, so it has no next hop any more, and the router withdraws the
    // permission.
    iut.set_position(SimulatedStation::a().position(), 1_000_500);
    assert!(
        iut.fast_path_updates.contains(&FastPathUpdate::NoOwnPacketPath(a.mac)),
        "{:?}",
        iut.fast_path_updates
    );
    iut.set_position(ROUTER_POSITION, 1_000_600);
    iut.fast_path_updates.clear();
    // All location table entries expire.
    iut.advance_time(Mib::default().lifetime_location_entry);
    assert_eq!(iut.fast_path_updates, [FastPathUpdate::NoOwnPacketPath(a.mac)]);
}

#[test]
fn router_withdraws_unused_permissions() {
    let mut iut = router_with_fast_path(Mib::default());
    let b = SimulatedStation::b();
    iut.make_neighbours(&[b]);
    send_unicast(&mut iut, &b);
    iut.receive_unicast(&b, &b.guc_frame(&iut.position_vector(), b"x")).expect("delivered");
    iut.fast_path_updates.clear();
    iut.advance_time(PERMISSION_IDLE_TIME / 2);
    pass_fast_path_report(
        &mut iut,
        FastPathReport { own_packet_destinations: vec![b.mac], ..FastPathReport::default() },
    );
    assert_eq!(
        iut.fast_path_updates,
        [FastPathUpdate::Position(iut.position_vector())],
        "nothing but that the router is there"
    );
    iut.advance_time(PERMISSION_IDLE_TIME / 2);
    pass_fast_path_report(&mut iut, FastPathReport::default());
    assert!(
        iut.fast_path_updates.contains(&FastPathUpdate::NoSource(b.mac)) && iut.router.is_accelerated(),
        "{:?}",
        iut.fast_path_updates
    );
    iut.fast_path_updates.clear();
    iut.advance_time(PERMISSION_IDLE_TIME / 2);
    pass_fast_path_report(&mut iut, FastPathReport::default());
    assert_eq!(iut.fast_path_updates, [FastPathUpdate::NoOwnPacketPath(b.mac)]);
    assert!(!iut.router.is_accelerated());
    // The next packet causes a new permission, and the router outputs its position again.
    iut.fast_path_updates.clear();
    iut.make_neighbours(&[b.with_later_timestamp(1)]);
    send_unicast(&mut iut, &b);
    let position = FastPathUpdate::Position(iut.position_vector());
    assert!(iut.fast_path_updates.contains(&position));
    assert_eq!(take_own_packet_paths(&mut iut).len(), 1);
}

/// A forwarder's next hop depends on the destination position in the packet, unless the destination is its
/// neighbour.
#[test]
fn forwarding_permission_depends_on_destination_position_in_packet() {
    let mut iut = router_with_fast_path(mib_without_rate_limit());
    let (a, b, c) = (SimulatedStation::a(), SimulatedStation::b(), SimulatedStation::c());
    iut.make_neighbours(&[b, c]);
    iut.receive_unicast(&c, &c.guc_frame(&a.position_vector, b"x")).expect("forwarded");
    let [source, ..] = &iut.fast_path_updates[..] else { panic!("nothing told") };
    assert_eq!(*source, FastPathUpdate::Source(c.mac, vec![c.sequence]));
    let told = take_forwarding_paths(&mut iut);
    let [onward] = &told[..] else { panic!("{told:?}") };
    assert_eq!((onward.destination, onward.next_hop), (a.mac, b.mac));
    assert_eq!(
        (onward.required_position, onward.destination_vector),
        (Some((a.position_vector.latitude, a.position_vector.longitude)), None)
    );
    // The destination is a neighbour, so the fast path corrects the destination position in packets (C.3).
    let old = b.with_earlier_timestamp(500);
    let c = c.next();
    iut.receive_unicast(&c, &c.guc_frame(&old.position_vector, b"x")).expect("forwarded");
    let told = take_forwarding_paths(&mut iut);
    let [onward] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (onward.next_hop, onward.required_position, onward.destination_vector),
        (b.mac, None, Some(b.position_vector.to_short()))
    );
    // The destination position in the packets has changed.
    let c = c.next();
    let moved = a.moved_to(c.position());
    iut.receive_unicast(&c, &c.guc_frame(&moved.position_vector, b"x")).expect("forwarded");
    let told = take_forwarding_paths(&mut iut);
    assert_eq!(
        told[0].required_position,
        Some((moved.position_vector.latitude, moved.position_vector.longitude))
    );
    assert_eq!(told[0].next_hop, c.mac);
}

/// B.2: with a limit on the data rate the router must handle every forwarded packet itself. The same is true
/// with contention-based forwarding.
#[test]
fn fast_path_gets_no_permission_if_router_needs_every_packet() {
    let mut iut = router_with_fast_path(Mib::default());
    let (a, b, c) = (SimulatedStation::a(), SimulatedStation::b(), SimulatedStation::c());
    iut.make_neighbours(&[b]);
    iut.receive_unicast(&c, &c.guc_frame(&a.position_vector, b"x")).expect("forwarded");
    assert!(take_forwarding_paths(&mut iut).is_empty());
    let mib = Mib { non_area_forwarding: NonAreaForwarding::ContentionBased, ..mib_without_rate_limit() };
    let mut iut = router_with_fast_path(mib);
    iut.make_neighbours(&[b]);
    send_unicast(&mut iut, &b);
    iut.receive_unicast(&b, &b.guc_frame(&iut.position_vector(), b"x")).expect("delivered");
    assert!(iut.fast_path_updates.is_empty(), "{:?}", iut.fast_path_updates);
}

/// The location table learns from the samples in a report as it does from packets: C.2, A.2, B.2.
#[test]
fn fast_path_report_updates_location_table() {
    let mut iut = router_with_fast_path(Mib::default());
    let b = SimulatedStation::b();
    iut.make_neighbours(&[b]);
    iut.receive_unicast(&b, &b.guc_frame(&iut.position_vector(), b"x")).expect("delivered");
    let later = b.with_later_timestamp(300).moved_to(SimulatedStation::d().position());
    let sample = SourceReport {
        vector: later.position_vector,
        direct: true,
        octets: 50_000,
        sequences: vec![101, 102],
    };
    iut.advance_milliseconds(300);
    pass_fast_path_report(
        &mut iut,
        FastPathReport { delivered: 7, samples: vec![sample.clone()], ..FastPathReport::default() },
    );
    let (_, entry) = iut.router.location_table().iter().next().expect("B");
    assert_eq!(*entry.position_vector(), later.position_vector);
    assert_eq!(iut.router.counters().delivered_payloads, 8);
    // The router detects duplicates of the sample's packets and of earlier packets.
    for sequence in [100, 101, 102] {
        let frame = SimulatedStation { sequence, ..later }.guc_frame(&iut.position_vector(), b"x");
        assert_eq!(iut.receive_unicast(&b, &frame), Err(GeonetDrop::Duplicate), "{sequence}");
    }
    // Packets that this station received as destination do not count for the forwarding limit.
    let limit = Mib::default().max_packet_data_rate.expect("a limit") as usize;
    for round in 0..60u64 {
        iut.advance_milliseconds(1000);
        let vector = later.with_later_timestamp(1000 * (round + 1)).position_vector;
        let sample = SourceReport { vector, octets: 2 * limit, ..sample.clone() };
        pass_fast_path_report(
            &mut iut,
            FastPathReport { samples: vec![sample], ..FastPathReport::default() },
        );
    }
    let frame = SimulatedStation { sequence: 200, ..later.with_later_timestamp(60_200) }
        .guc_frame(&SimulatedStation::a().position_vector, b"x");
    assert_ne!(iut.receive_unicast(&b, &frame), Err(GeonetDrop::PacketDataRate));
    // A report with an old vector changes nothing. A report with this station's own address changes nothing
    // either.
    let own = SourceReport { vector: iut.position_vector(), ..sample.clone() };
    pass_fast_path_report(
        &mut iut,
        FastPathReport { samples: vec![sample, own], ..FastPathReport::default() },
    );
    assert_eq!(iut.dropped_packets(GeonetDrop::OwnEcho), 1);
    let (_, entry) = iut.router.location_table().iter().next().expect("B");
    assert_eq!(
        entry.position_vector().timestamp,
        later.with_later_timestamp(60_200).position_vector.timestamp
    );
}

/// A counter that router and fast path share.
#[derive(Debug)]
struct SharedCounter(std::sync::Arc<std::sync::atomic::AtomicU16>);

impl SequenceNumbers for SharedCounter {
    fn next_sequence_index(&mut self) -> u16 {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
    fn restart_sequence(&mut self) {
        self.0.store(0, std::sync::atomic::Ordering::Relaxed);
    }
    fn set_next_sequence(&mut self, _: u16) {}
}

#[test]
fn router_and_fast_path_share_sequence_numbers_until_address_changes() {
    let mut iut = router_with_fast_path(Mib::default());
    let numbers = std::sync::Arc::new(std::sync::atomic::AtomicU16::new(0));
    iut.router.share_sequence_numbers(Box::new(SharedCounter(numbers.clone())));
    let b = SimulatedStation::b();
    iut.make_neighbours(&[b]);
    let sequence = |iut: &mut RouterUnderTest| {
        send_unicast(iut, &b);
        let frame = iut.take_only_transmission().frame;
        let ExtendedHeader::GeoUnicast { sequence, .. } = parse(&frame).extended else { panic!() };
        sequence
    };
    assert_eq!(sequence(&mut iut), 0);
    // The fast path sends a hundred packets.
    numbers.fetch_add(100, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(sequence(&mut iut), 101);
    iut.fast_path_updates.clear();
    iut.router.handle_address(address([2, 0, 0, 0, 0, 0x77]));
    iut.collect_outputs();
    assert_eq!(iut.fast_path_updates, [FastPathUpdate::NoOwnPacketPath(b.mac)]);
    iut.make_neighbours(&[b.with_later_timestamp(1)]);
    assert_eq!(sequence(&mut iut), 0);
    iut.router.reset_to_initial(iut.now, address(ROUTER_MAC));
    iut.collect_outputs();
    assert!(iut.fast_path_updates.contains(&FastPathUpdate::NoOwnPacketPath(b.mac)));
    iut.make_neighbours(&[b.with_later_timestamp(2)]);
    assert_eq!(sequence(&mut iut), 0);
    // During replay, the recorded reports say how many sequence numbers the fast path used.
    let mut iut = router_with_fast_path(Mib::default());
    iut.make_neighbours(&[b]);
    pass_fast_path_report(&mut iut, FastPathReport { next_sequence: 500, ..FastPathReport::default() });
    assert_eq!(sequence(&mut iut), 500);
    assert!(iut.now > Time::ZERO);
}
