//! Single modules: replay detection, changes of pseudonym, borders of regions, permissions.

use carnet_base::{Rng, Time};
use carnet_geonet::geodesy::Position;
use carnet_security::ids::HashedId8;
use carnet_security::permissions::*;
use carnet_security::pseudonym::{PseudonymChanger, PseudonymStrategy, StationIdentity};
use carnet_security::region::{GeographicRegion, is_self_crossing};
use carnet_security::replay::ReplayDetector;
use carnet_security::time::Time64;
use carnet_wire::geonet::StationType;

use crate::support::{COUNTRY_OF_HOME, HOME_POSITION, position_at};

/// For any number of messages, the store accepts each message as new at most once.
#[test]
fn replay_detector_reports_no_seen_message_as_new() {
    let mut seen = ReplayDetector::new(10);
    let message = |number: u64| {
        let mut fingerprint = [0; 16];
        fingerprint[..8].copy_from_slice(&number.to_be_bytes());
        fingerprint
    };
    let made = |number: u64| Time64(1_000_000 + 1_000 * number);
    for number in 0..1_000 {
        assert!(seen.accepted_at(&message(number)).is_none() && !seen.may_have_been_removed(made(number)));
        seen.insert(Time::ZERO, message(number), made(number), Time64(0));
        for earlier in 0..=number {
            assert!(
                seen.accepted_at(&message(earlier)).is_some() || seen.may_have_been_removed(made(earlier)),
                "{earlier}"
            );
        }
    }
    // The store removes a message that the station would reject as too old. It does not report other messages
    // as replays. If the clock is then set back, the store does not report the removed message as new.
    let mut seen = ReplayDetector::new(10);
    for number in 0..1_000_u64 {
        let oldest = number.saturating_sub(5);
        seen.insert(Time::ZERO, message(number), made(number), made(oldest));
        assert!(!seen.may_have_been_removed(made(oldest)));
        assert!((0..number).all(|earlier| seen.accepted_at(&message(earlier)).is_some()
            || seen.may_have_been_removed(made(earlier))));
    }
}

#[test]
fn pseudonym_changes_after_distance_and_time() {
    let strategy = PseudonymStrategy::default();
    let mut changes = Vec::new();
    for seed in 0..20 {
        let mut pseudonym = PseudonymChanger::new(strategy.clone(), Rng::new(seed));
        let mut since = (0.0, 0_u64);
        // The station drives at 20 m/s for half an hour.
        for second in 0..1_800_u64 {
            let now = Time::from_secs(second);
            let metres = 20.0 * second as f64;
            pseudonym.handle_position(now, position_at(metres, 0.0));
            if pseudonym.is_due(now) {
                changes.push((seed, metres - since.0, second - since.1));
                since = (metres, second);
                pseudonym.handle_change();
                assert!(!pseudonym.is_due(now));
            }
        }
    }
    let first: Vec<_> = (0..20).filter_map(|seed| changes.iter().find(|change| change.0 == seed)).collect();
    assert!(first.iter().all(|(_, metres, _)| (790.0..=1_540.0).contains(metres)), "{first:?}");
    let later: Vec<_> = changes.iter().filter(|change| !first.contains(change)).collect();
    // At 20 m/s the station needs 40 s for 800 m; a random time of 2 to 6 minutes follows.
    assert!(later.iter().all(|(_, _, seconds)| (160..=401).contains(seconds)), "{later:?}");
    assert!(later.iter().any(|change| change.2 < 220) && later.iter().any(|change| change.2 > 340));
}

#[test]
fn own_event_delays_pseudonym_change() {
    let mut pseudonym = PseudonymChanger::new(PseudonymStrategy::default(), Rng::new(1));
    pseudonym.handle_position(Time::ZERO, HOME_POSITION);
    pseudonym.handle_position(Time::from_secs(60), position_at(2_000.0, 0.0));
    assert!(pseudonym.is_due(Time::from_secs(60)));
    pseudonym.set_lock(Time::from_secs(60), true);
    pseudonym.set_lock(Time::from_secs(200), true);
    assert!(!pseudonym.is_due(Time::from_secs(314)));
    assert!(pseudonym.is_due(Time::from_secs(315)));
    pseudonym.set_lock(Time::from_secs(100), false);
    assert!(pseudonym.is_due(Time::from_secs(100)));
}

/// A ticket's name determines the addresses of the station, and a link accepts the link-layer address.
#[test]
fn ticket_has_one_hashed_id_8() {
    let identity = StationIdentity::of_ticket(HashedId8([1, 2, 0xff, 4, 5, 6, 7, 8]));
    assert_eq!(identity.mid, [0xfe, 4, 5, 6, 7, 8]);
    assert_eq!(identity.mid[0] & 3, 2, "unicast, locally administered");
    assert_eq!(identity.gn_address(StationType::PassengerCar).mid(), identity.mid);
}

#[test]
fn region_contains_exactly_the_positions_inside_its_border() {
    let circle = GeographicRegion::Circular { center: HOME_POSITION, radius: 1_000 };
    let square =
        GeographicRegion::Rectangular(vec![(position_at(-1_000.0, 1_000.0), position_at(1_000.0, -1_000.0))]);
    // The polygon is a crescent: its middle is outside.
    let crescent = GeographicRegion::Polygonal(vec![
        position_at(-1_000.0, -1_000.0),
        position_at(1_000.0, -1_000.0),
        position_at(1_000.0, 1_000.0),
        position_at(900.0, 1_000.0),
        position_at(900.0, -900.0),
        position_at(-900.0, -900.0),
        position_at(-900.0, 1_000.0),
        position_at(-1_000.0, 1_000.0),
    ]);
    for (east, north, expected) in [
        (0.0, 0.0, [true, true, false]),
        (990.0, 0.0, [true, true, true]),
        (1_010.0, 0.0, [false, false, false]),
        (950.0, 950.0, [false, true, true]),
        (0.0, -950.0, [true, true, true]),
        (0.0, 950.0, [true, true, false]),
        (-950.0, 0.0, [true, true, true]),
    ] {
        let found = [&circle, &square, &crescent]
            .map(|region| region.contains_place(position_at(east, north), &COUNTRY_OF_HOME));
        assert_eq!(found, expected, "{east} east, {north} north");
    }
    assert!(crescent.is_within(&square, &COUNTRY_OF_HOME) || !crescent.is_within(&circle, &COUNTRY_OF_HOME));
    assert!(
        circle.is_within(
            &GeographicRegion::Circular { center: HOME_POSITION, radius: 1_000 },
            &COUNTRY_OF_HOME
        )
    );
    assert!(!square.is_within(&circle, &COUNTRY_OF_HOME));
    let GeographicRegion::Polygonal(corners) = &crescent else { return };
    assert!(!is_self_crossing(corners));
    // The conversion from metres to coordinates also works for southern latitudes and western longitudes.
    let far = Position::new(-338_000_000, -1_512_000_000);
    let region = GeographicRegion::Circular { center: far, radius: 100 };
    assert!(region.contains_place(Position::new(far.latitude + 5_000, far.longitude), &COUNTRY_OF_HOME));
    assert!(!region.contains_place(Position::new(far.latitude + 12_000, far.longitude), &COUNTRY_OF_HOME));
}

#[test]
fn authority_may_issue_only_its_own_permissions() {
    let bitmap = |octets: &[u8]| Some(Ssp::Bitmap(octets.to_vec()));
    let range =
        |value: &[u8], mask: &[u8]| Some(SspRange::Bitmap { value: value.to_vec(), mask: mask.to_vec() });
    let group = |psid, range, least| PsidGroupPermissions {
        subject: SubjectPermissions::Explicit(vec![PsidSspRange { application_psid: psid, range }]),
        min_chain_length: least,
        chain_length_range: 0,
        end_entity_types: END_ENTITY_APP,
    };
    let gives = |range: Option<SspRange>, ssp: Option<Ssp>| {
        permits_applications(&[group(Psid::CAM, range, 1)], &[PsidSsp { psid: Psid::CAM, ssp }])
    };
    // A bit is fixed where the mask has a 1; elsewhere it may have any value.
    assert!(gives(range(&[1, 0, 0], &[0xff, 0xf0, 0]), bitmap(&[1, 0x0f, 0xff])));
    assert!(!gives(range(&[1, 0, 0], &[0xff, 0xf0, 0]), bitmap(&[1, 0x1f, 0xff])));
    assert!(!gives(range(&[1, 0, 0], &[0xff, 0xf0, 0]), bitmap(&[1, 0])));
    assert!(gives(Some(SspRange::All), bitmap(&[9])) && gives(Some(SspRange::All), None));
    // IEEE 1609.2-2022, PsidSspRange: an absent range permits any SSP.
    assert!(gives(None, None) && gives(None, bitmap(&[1, 0, 0])) && gives(None, Some(Ssp::Opaque(vec![3]))));
    let opaque = |list: &[&[u8]]| Some(SspRange::Opaque(list.iter().map(|octets| octets.to_vec()).collect()));
    assert!(gives(opaque(&[&[1], &[2]]), Some(Ssp::Opaque(vec![2]))));
    assert!(!gives(opaque(&[&[1], &[2]]), Some(Ssp::Opaque(vec![3]))));
    // An authority whose permissions are for certificates of authorities may not issue tickets. An authority
    // whose permissions are for tickets may not issue certificates of authorities.
    let tickets = group(Psid::CAM, range(&[1, 0, 0], &[0xff, 0, 0]), 1);
    let authorities = group(Psid::CAM, range(&[1, 0, 0], &[0xff, 0, 0]), 2);
    let application = [PsidSsp { psid: Psid::CAM, ssp: bitmap(&[1, 0, 0]) }];
    assert!(!permits_applications(std::slice::from_ref(&authorities), &application));
    assert!(permits_issuing(std::slice::from_ref(&authorities), std::slice::from_ref(&tickets)));
    assert!(!permits_issuing(std::slice::from_ref(&tickets), std::slice::from_ref(&tickets)));
    // An issuer cannot give more permissions than it has itself.
    let narrow = group(Psid::CAM, range(&[1, 0, 0], &[0xff, 0xf0, 0]), 2);
    let wide = group(Psid::CAM, range(&[1, 0, 0], &[0xff, 0, 0]), 1);
    assert!(!permits_issuing(&[narrow], &[wide]));
    let narrow = group(Psid::CAM, range(&[1, 0, 0], &[0xff, 0xf0, 0]), 2);
    let absent = |least| group(Psid::CAM, None, least);
    assert!(!permits_issuing(&[narrow], &[absent(1)]));
    assert!(permits_issuing(
        &[absent(2)],
        &[absent(1), group(Psid::CAM, range(&[1, 0, 0], &[0xff, 0, 0]), 1)]
    ));
    assert!(permits_issuing(&[group(Psid::CAM, Some(SspRange::All), 2)], &[absent(1)]));
    let all = PsidGroupPermissions { subject: SubjectPermissions::All, ..tickets };
    assert!(!permits_issuing(&[authorities], &[all]));
}
