//! Binding Updates of one router over several uplinks reach the home agent in the order of their numbers (RFC
//! 6275 9.5.1, RFC 5648 4.1).

use std::net::Ipv4Addr;
use std::time::Duration;

use carnet_mobility::{Event, MobilityDrop};

use crate::test_messages::*;
use crate::vehicle_on_road::*;

const NAT_ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn attach_mixed_uplinks(road: &mut VehicleOnRoad) {
    road.network_mut("cell").nat = Some(TestNat::new(NAT_ADDRESS, Duration::from_secs(120)));
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.attach_uplink("cell", None, Some(Ipv4Addr::new(10, 0, 0, 2)));
    road.attach_uplink("sat", None, Some(Ipv4Addr::new(203, 0, 113, 7)));
}

/// Returns whether an event of the router or the home agent is about keys.
fn is_warning_about_keys(event: &Event) -> bool {
    let words = ["key", "MAC", "SPI", "verif", "authentic"];
    matches!(event, Event::Warning { message } if words.iter().any(|word| message.contains(word)))
}

/// Three uplinks of two IP versions for half an hour, with three seeds. Each packet has its own random delay
/// of 0 to 200 ms.
#[test]
fn home_agent_refuses_no_update_as_old_despite_random_uplink_delays() {
    let mut updates = 0;
    for seed in 1..=3 {
        let mut road = VehicleOnRoad::with_configs(config(), agent_config(), seed);
        for network in road.networks.values_mut() {
            network.delay_range = (Duration::ZERO, Duration::from_millis(200));
        }
        attach_mixed_uplinks(&mut road);
        for _ in 0..180 {
            road.advance_seconds(10.0);
            assert_eq!(road.bound_bids(), [1, 2, 3], "seed {seed}: {}", road.describe_state());
        }
        let refused: Vec<&Event> =
            road.agent_events.iter().filter(|e| matches!(e, Event::BindingRefused { .. })).collect();
        assert!(refused.is_empty(), "seed {seed}: {refused:?}");
        let said = road.events.iter().map(|(_, event)| event).chain(&road.agent_events);
        let keys: Vec<&Event> = said.filter(|event| is_warning_about_keys(event)).collect();
        assert!(keys.is_empty(), "seed {seed}: {keys:?}");
        let failed = [MobilityDrop::Sequence, MobilityDrop::AuthenticationFailed];
        assert!(
            !road.dropped_messages.iter().any(|drop| failed.contains(drop)),
            "seed {seed}: {:?}",
            road.dropped_messages
        );
        updates += road.sent_updates.len();
    }
    assert!(updates > 3 * 3 * 30, "{updates} Binding Updates");
}

/// A Binding Update of one uplink waits only for the outstanding answer of another. Three uplinks that
/// register separately take three round trips.
#[test]
fn router_sends_next_update_as_soon_as_the_outstanding_one_is_answered() {
    let mut road = VehicleOnRoad::new(config());
    road.network_mut("wifi").delay_range = (Duration::from_millis(20), Duration::from_millis(20));
    road.attach_uplink("wifi", None, Some(Ipv4Addr::new(203, 0, 113, 5)));
    road.advance_seconds(1.0);
    road.clear_records();
    road.attach_uplink("cell", None, Some(Ipv4Addr::new(203, 0, 113, 6)));
    road.attach_uplink("sat", None, Some(Ipv4Addr::new(203, 0, 113, 7)));
    road.advance_seconds(0.1);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    let at: Vec<_> = road.sent_updates.iter().map(|update| update.sent_at).collect();
    assert_eq!(at.len(), 2);
    assert_eq!(at[1].saturating_since(at[0]), Duration::from_millis(20), "one round trip");
}

/// An uplink that leads nowhere delays the Binding Updates of others by a quarter of a second.
#[test]
fn update_does_not_wait_for_answer_over_dead_uplink() {
    let mut road = VehicleOnRoad::new(config());
    road.attach_uplink("wifi", None, Some(Ipv4Addr::new(203, 0, 113, 5)));
    road.advance_seconds(1.0);
    road.set_losing_everything("cell", true);
    road.attach_uplink("cell", None, Some(Ipv4Addr::new(203, 0, 113, 6)));
    road.attach_uplink("sat", None, Some(Ipv4Addr::new(203, 0, 113, 7)));
    let took = road.advance_while(1.0, "sat is registered", |road| !road.bound_bids().contains(&3));
    assert!(took <= Duration::from_millis(270), "{took:?}");
}

/// An urgent Binding Update does not wait for an answer over an uplink that is gone.
#[test]
fn deregistration_of_lost_uplink_waits_for_no_answer_over_it() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.attach_uplink("wifi", Some("2001:db8:f1::20"), None);
    assert_eq!(road.sent_updates.len(), 1);
    road.advance_seconds(0.005);
    road.detach_uplink("wifi");
    assert_eq!((road.sent_updates.len(), road.last_update().uplink.as_str()), (2, "cell"));
}

/// RFC 6275 11.7.3: status 135 answers the outstanding Binding Update. Without an outstanding update it is a
/// replay, which must not change the numbers.
#[test]
fn status_135_without_an_outstanding_update_is_dropped() {
    let mut road = VehicleOnRoad::new(config());
    road.set_losing_everything("sat", true);
    road.attach_uplink("sat", Some("2001:db8:f3::10"), None);
    road.advance_seconds(5.0);
    let unanswered = road.last_update().received_packet.clone();
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.advance_seconds(0.4);
    assert_eq!(road.bound_bids(), [1]);
    road.clear_records();
    let before = road.router.stored_state().sequence.expect("a number");
    let answer = TestAcknowledgement {
        sequence: before.wrapping_add(1000),
        association: Some(test_association()),
        ..TestAcknowledgement::answering(&unanswered, 135)
    };
    road.deliver_to_router(None, &answer.to_packet());
    assert_eq!(road.dropped_messages, [MobilityDrop::Unexpected]);
    assert_eq!((road.router.stored_state().sequence, road.sent_updates.len()), (Some(before), 0));
}

/// A late acknowledgement for another care-of address than the last update's does not cause the warning of a
/// wrong key. The warning of a wrong key names the cause.
#[test]
fn warning_of_a_wrong_key_names_the_cause() {
    let said = |answer: &dyn Fn(&mut TestAcknowledgement)| {
        let mut road = VehicleOnRoad::new(config());
        road.is_agent_down = true;
        road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
        road.advance_seconds(0.1);
        let first = road.last_update().received_packet.clone();
        road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
        road.advance_seconds(0.5);
        let mut acknowledgement = TestAcknowledgement {
            association: Some(test_association()),
            ..TestAcknowledgement::answering(&first, 135)
        };
        answer(&mut acknowledgement);
        road.events.clear();
        road.deliver_to_router(None, &acknowledgement.to_packet());
        let events = road.events.iter().filter_map(|(_, event)| match event {
            Event::Warning { message } => Some(message.clone()),
            _ => None,
        });
        events.collect::<Vec<_>>().join("; ")
    };
    assert_eq!(said(&|_| {}), "", "late");
    let wrong = said(&|answer| {
        answer.association =
            Some(carnet_mobility::SecurityAssociation { key: [9; 16].into(), ..test_association() });
    });
    assert!(wrong.contains("wrong MAC") && wrong.contains("SPI 300"), "{wrong}");
    let spi = said(&|answer| {
        answer.association = Some(carnet_mobility::SecurityAssociation { spi: 301, ..test_association() });
    });
    assert!(spi.contains("unknown SPI, expected 300") && !spi.contains("key"), "{spi}");
    let missing = said(&|answer| answer.association = None);
    assert!(missing.contains("no authentication option"), "{missing}");
}
