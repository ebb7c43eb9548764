//! Uplinks that are up but lead nowhere, and come back, once or repeatedly: heartbeats (RFC 5847).

use std::time::Duration;

use carnet_base::Time;
use carnet_mobility::mobile_router::{
    AgentResponse, Attachment, InterfaceOctets, SignalThresholds, VolumeAction,
};
use carnet_mobility::{Event, MobilityDrop};

use crate::test_messages::*;
use crate::vehicle_on_road::*;

fn count_handovers(road: &VehicleOnRoad) -> usize {
    road.events.iter().filter(|(_, event)| matches!(event, Event::Handover { .. })).count()
}

/// The router detects a path that drops everything within 0.6 s, in both directions, and reports it over
/// another uplink. This leaves TCP its second retransmission, which follows 0.6 s or more after the first
/// loss.
#[test]
fn path_failure_is_detected_within_a_second() {
    for start in 0..20 {
        let mut road = VehicleOnRoad::with_registered_uplinks();
        road.advance_seconds(1.0 + f64::from(start) * 0.037);
        road.set_losing_everything("wifi", true);
        assert!(!road.is_traffic_to_agent_carried());
        let took = road.advance_while(0.6, "carried over cell", |road| !road.is_traffic_carried());
        assert!(took > Duration::from_millis(100), "not by chance: {took:?}");
        assert_eq!(road.transmitting_uplinks()[0], "cell");
        assert_eq!(count_handovers(&road), 1);
        assert_eq!(road.bound_bids(), [2, 3]);
    }
}

/// The router also checks the second-best uplink, though less often.
#[test]
fn failed_standby_uplink_is_not_selected() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.set_losing_everything("cell", true);
    road.advance_seconds(2.0);
    assert_eq!(road.transmitting_uplinks(), ["wifi", "sat"]);
    road.detach_uplink("wifi");
    assert_eq!(road.transmitting_uplinks()[0], "sat");
    road.advance_seconds(0.1);
    assert!(road.is_traffic_carried());
}

/// A failed path that works again is used again after a few answers.
#[test]
fn recovered_path_is_used_again() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.set_losing_everything("wifi", true);
    road.advance_seconds(5.0);
    road.set_losing_everything("wifi", false);
    road.advance_while(10.0, "wifi again", |road| {
        road.transmitting_uplinks()[0] != "wifi" || !road.is_traffic_carried()
    });
    road.advance_seconds(2.0);
    assert_eq!(road.preferred_bids(), [1, 2, 3]);
    assert_eq!(count_handovers(&road), 2, "there and back");
}

/// All uplinks fail one after the other, with and without loss of carrier: the router waits, without a loop.
#[test]
fn router_without_working_path_waits() {
    for pause in [0.3, 1.1, 1.8, 5.4] {
        let mut road = VehicleOnRoad::with_registered_uplinks();
        road.set_losing_everything("wifi", true);
        road.advance_seconds(5.4);
        road.set_losing_everything("cell", true);
        road.advance_seconds(5.4);
        road.detach_uplink("sat");
        road.advance_seconds(pause);
        road.detach_uplink("wifi");
        road.advance_seconds(8.0);
        road.detach_uplink("cell");
        road.advance_seconds(8.0);
        assert!(!road.is_traffic_carried());
        for name in ["sat", "cell", "wifi"] {
            road.set_losing_everything(name, false);
        }
        road.attach_all_uplinks();
        road.advance_while(3.0, "light", |road| !road.is_traffic_carried());
    }
}

/// The router takes a path that fails repeatedly back after ever longer pauses.
#[test]
fn flapping_path_is_avoided_for_growing_times() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    let mut used = 0;
    for second in 0..120 {
        road.set_losing_everything("wifi", second % 4 < 2);
        road.advance_seconds(1.0);
        used += usize::from(road.transmitting_uplinks()[0] == "wifi");
    }
    assert!(count_handovers(&road) <= 14, "{} handovers in two minutes", count_handovers(&road));
    assert!(used < 40, "{used}");
}

/// Packet loss is no failure: at a loss of 5 % in each direction no path changes for a long time.
#[test]
fn packet_loss_alone_causes_no_handover() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    for network in road.networks.values_mut() {
        network.loss_probability = 0.05;
    }
    road.advance_seconds(1800.0);
    assert!(count_handovers(&road) <= 2, "{} handovers in half an hour", count_handovers(&road));
    let quality = road.router.quality(0).expect("measured");
    assert!(quality.loss > 0.02 && quality.loss < 0.3, "{quality:?}");
}

/// Heartbeats measure round trip, jitter and loss of each uplink.
#[test]
fn reported_loss_and_round_trip_match_the_network() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.network_mut("wifi").delay_range = (Duration::from_micros(1550), Duration::from_micros(1550));
    road.network_mut("cell").delay_range = (Duration::from_micros(23_500), Duration::from_micros(23_500));
    road.network_mut("sat").delay_range = (Duration::from_millis(40), Duration::from_millis(60));
    road.advance_seconds(120.0);
    let quality = |index| road.router.quality(index).expect("measured");
    assert!(quality(0).rtt.abs_diff(Duration::from_micros(3100)) < Duration::from_micros(200));
    assert!(quality(1).rtt.abs_diff(Duration::from_millis(47)) < Duration::from_millis(1));
    assert!(quality(0).jitter < Duration::from_micros(100));
    assert!(quality(2).jitter > Duration::from_millis(2), "{:?}", quality(2));
    assert!(quality(0).loss < 1e-9);
}

/// Heartbeats are few: four a second on the path that carries traffic, one a second on each other path.
#[test]
fn heartbeats_on_idle_paths_are_rare() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.advance_seconds(60.0);
    let count = |name: &str| road.sent_heartbeats.iter().filter(|heartbeat| heartbeat.uplink == name).count();
    assert!((230..=245).contains(&count("wifi")), "{}", count("wifi"));
    assert!((58..=62).contains(&count("cell")), "{}", count("cell"));
}

/// The router uses its only uplink whether it works or not, and everything is restored when it works again.
#[test]
fn router_never_stops_using_its_only_uplink() {
    let mut road = VehicleOnRoad::new(config());
    road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
    road.advance_seconds(2.0);
    road.set_losing_everything("cell", true);
    road.advance_seconds(10.0);
    assert_eq!(road.transmitting_uplinks(), ["cell"]);
    road.set_losing_everything("cell", false);
    road.advance_while(2.0, "carried", |road| !road.is_traffic_carried());
    road.advance_seconds(1.5);
    assert!(!road.router.has_path_failed(1));
}

/// The home agent fails and comes back: all uplinks are registered soon afterwards.
#[test]
fn all_uplinks_come_back_with_the_home_agent() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.is_agent_down = true;
    road.advance_seconds(40.0);
    assert!(!road.transmitting_uplinks().is_empty());
    let updates = road.sent_updates.len();
    assert!(updates < 60, "{updates} Binding Updates to a dead home agent in 40 s");
    road.is_agent_down = false;
    road.advance_while(2.0, "carried", |road| !road.is_traffic_carried());
    road.advance_seconds(5.0);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
}

/// A path with late answers has not failed.
#[test]
fn a_slow_path_does_not_count_as_failed() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    // A buffer fills, so the round trip grows from 20 ms to 1.2 s within some seconds.
    for step in 1..=40 {
        let delay = Duration::from_millis(10 + step * 15);
        road.network_mut("wifi").delay_range = (delay, delay);
        road.advance_seconds(0.4);
    }
    assert_eq!(count_handovers(&road), 0);
    assert_eq!(road.transmitting_uplinks()[0], "wifi");
}

/// The router detects the failure of a path that was slow a moment ago nearly as soon as any other failure.
#[test]
fn path_failure_after_full_queue_is_detected() {
    for start in 0..10 {
        let mut road = VehicleOnRoad::with_registered_uplinks();
        for step in 1..=20_u64 {
            let delay = Duration::from_millis(10 + step * 30);
            road.network_mut("wifi").delay_range = (delay, delay);
            road.advance_seconds(0.2);
        }
        road.network_mut("wifi").delay_range = (Duration::from_millis(10), Duration::from_millis(10));
        road.advance_seconds(1.5 + f64::from(start) * 0.029);
        assert_eq!(road.transmitting_uplinks()[0], "wifi");
        road.set_losing_everything("wifi", true);
        road.advance_while(1.1, "carried over cell", |road| !road.is_traffic_carried());
    }
}

/// An uplink is used again at -49 dBm and left at -69 dBm, as in the paper `eval/papers/nemo-wimax.toml`; in
/// between its state does not change.
#[test]
fn signal_thresholds_have_hysteresis() {
    let mut config = config();
    config.uplinks[0].signal = Some(SignalThresholds { good_dbm: -49, poor_dbm: -69 });
    let mut road = VehicleOnRoad::new(config);
    road.attach_all_uplinks();
    road.advance_seconds(2.0);
    for (dbm, expected) in [
        (-60, "cell"),
        (-50, "cell"),
        (-49, "wifi"),
        (-68, "wifi"),
        (-69, "cell"),
        (-50, "cell"),
        (-40, "wifi"),
    ] {
        road.run_on_router(|router, now, wall| router.handle_signal(now, wall, "wifi", Some(dbm)));
        assert_eq!(road.transmitting_uplinks()[0], expected, "at {dbm} dBm, at once");
        assert!(road.is_traffic_to_agent_carried());
        road.advance_seconds(1.0);
        assert!(road.is_traffic_carried());
        let bid = if expected == "wifi" { 1 } else { 2 };
        assert_eq!(road.preferred_bids()[0], bid, "and the home agent follows");
        assert_eq!(road.bound_bids(), [1, 2, 3], "which goes on knowing all of them");
    }
}

/// An uplink with a poor signal is better than none.
#[test]
fn a_poor_uplink_is_better_than_none() {
    let mut config = config();
    config.uplinks[0].signal = Some(SignalThresholds { good_dbm: -49, poor_dbm: -69 });
    let mut road = VehicleOnRoad::new(config);
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.run_on_router(|router, now, wall| router.handle_signal(now, wall, "wifi", Some(-90)));
    road.advance_seconds(1.0);
    assert_eq!(road.transmitting_uplinks(), ["wifi"]);
    assert!(road.is_traffic_carried());
}

/// An uplink with a used-up volume carries traffic only if no other uplink works.
#[test]
fn used_up_volume_ranks_uplink_last() {
    let mut config = config();
    config.uplinks[0].volume_octets = Some(1_000_000);
    let mut road = VehicleOnRoad::new(config);
    road.attach_all_uplinks();
    road.advance_seconds(1.0);
    assert_eq!(road.transmitting_uplinks()[0], "wifi");
    road.run_on_router(|router, now, wall| router.handle_used_volume(now, wall, "wifi", 1_000_000));
    assert_eq!(road.transmitting_uplinks(), ["cell", "sat", "wifi"]);
    road.advance_seconds(1.0);
    assert_eq!(road.preferred_bids(), [2, 3, 1]);
    road.detach_uplink("cell");
    road.detach_uplink("sat");
    assert_eq!(road.transmitting_uplinks(), ["wifi"]);
    road.run_on_router(|router, now, wall| router.handle_used_volume(now, wall, "wifi", 0));
    road.advance_seconds(1.0);
    assert!(road.is_traffic_carried());
}

/// The router compares the volume with the interface's counters. The used volume survives a restart.
#[test]
fn sent_and_received_octets_use_up_the_volume_of_an_uplink() {
    let mut config = config();
    config.uplinks[0].volume_octets = Some(1_000_000);
    let mut road = VehicleOnRoad::new(config.clone());
    road.attach_all_uplinks();
    road.advance_seconds(1.0);
    let shows = |road: &mut VehicleOnRoad, epoch, total| {
        // The second uplink has no volume limit; the router counts its octets for the status.
        for name in ["wifi", "cell"] {
            let octets = InterfaceOctets { epoch, total, received: 0 };
            road.run_on_router(|router, now, wall| router.handle_octets(now, wall, name, octets));
        }
    };
    // Octets that the interface carried before the counting began do not count.
    shows(&mut road, 1, 5_000_000);
    shows(&mut road, 1, 5_900_000);
    assert_eq!(road.transmitting_uplinks()[0], "wifi");
    let stored: Vec<_> = road.router.volumes().map(|(name, volume)| (name.to_owned(), volume)).collect();
    assert_eq!(
        stored.iter().map(|(name, it)| (name.as_str(), it.used)).collect::<Vec<_>>(),
        [("wifi", 900_000), ("cell", 900_000)]
    );
    assert_eq!(
        road.router.uplinks().iter().map(|u| u.volume_used()).collect::<Vec<_>>(),
        [Some(900_000), Some(900_000), None]
    );
    shows(&mut road, 1, 6_000_000);
    assert_eq!(road.transmitting_uplinks(), ["cell", "sat", "wifi"]);

    let mut road = VehicleOnRoad::new(config);
    road.router.restore_volume("wifi", stored[0].1.clone());
    road.attach_all_uplinks();
    road.advance_seconds(1.0);
    assert_eq!(road.transmitting_uplinks()[0], "wifi");
    // After a restart of the machine all octets that the counters show are new.
    shows(&mut road, 2, 99_999);
    assert_eq!(road.transmitting_uplinks()[0], "wifi");
    shows(&mut road, 2, 100_000);
    assert_eq!(road.transmitting_uplinks()[0], "cell");
}

/// If the config demands a hard stop, an uplink with a used-up volume carries no traffic, even as the last
/// uplink. In the next period it carries traffic again.
#[test]
fn a_used_up_volume_stops_the_uplink() {
    let mut config = config();
    config.uplinks[0].volume_octets = Some(1_000_000);
    config.uplinks[0].volume_action = VolumeAction::Stop;
    let mut road = VehicleOnRoad::new(config);
    road.attach_all_uplinks();
    road.advance_seconds(1.0);
    road.run_on_router(|router, now, wall| router.handle_used_volume(now, wall, "wifi", 1_000_000));
    road.advance_seconds(1.0);
    assert_eq!(road.transmitting_uplinks(), ["cell", "sat"]);
    assert_eq!(road.bound_bids(), [2, 3]);
    road.detach_uplink("cell");
    road.detach_uplink("sat");
    road.advance_seconds(1.0);
    assert!(road.transmitting_uplinks().is_empty() && !road.is_traffic_carried());
    assert_eq!(road.router.uplinks()[0].attachment, Attachment::Down("the volume is used up"));
    road.run_on_router(|router, now, wall| router.handle_used_volume(now, wall, "wifi", 0));
    road.advance_seconds(1.0);
    assert!(road.is_traffic_carried());
    assert_eq!(road.transmitting_uplinks(), ["wifi"]);
}

/// The router reports each level of the volume once in a period, also after a restart.
#[test]
fn each_level_of_a_volume_is_reported_once() {
    let mut config = config();
    config.uplinks[0].volume_octets = Some(1000);
    let mut road = VehicleOnRoad::new(config.clone());
    road.attach_all_uplinks();
    road.advance_seconds(1.0);
    let shows = |road: &mut VehicleOnRoad, total| {
        let before = road.events.len();
        let octets = InterfaceOctets { epoch: 1, total, received: 0 };
        road.run_on_router(|router, now, wall| router.handle_octets(now, wall, "wifi", octets));
        let levels = road.events[before..].iter().filter_map(|(_, event)| match event {
            Event::VolumeReached { uplink, percent, used, volume: 1000, period } => {
                assert_eq!((uplink.as_str(), period.as_str(), *used), ("wifi", "month", total));
                Some(*percent)
            }
            _ => None,
        });
        levels.collect::<Vec<_>>()
    };
    assert_eq!(
        [0, 749, 750, 751, 949].map(|total| shows(&mut road, total)),
        [vec![], vec![], vec![75], vec![], vec![]]
    );
    let (_, stored) = road.router.volumes().next().expect("a volume");
    let mut road = VehicleOnRoad::new(config);
    road.router.restore_volume("wifi", stored);
    road.attach_all_uplinks();
    road.advance_seconds(1.0);
    assert_eq!(
        [949, 960, 1500, 2500].map(|total| shows(&mut road, total)),
        [vec![], vec![95], vec![100], vec![]]
    );
}

/// An uplink that must not roam is down while its modem is in another operator's network.
#[test]
fn uplink_that_must_not_roam_is_down_in_another_operators_network() {
    let mut config = config();
    config.uplinks[0].never_roams = true;
    let mut road = VehicleOnRoad::new(config);
    road.attach_all_uplinks();
    road.advance_seconds(1.0);
    fn report_roaming(road: &mut VehicleOnRoad, roaming: Option<bool>) -> Vec<&str> {
        for name in ["wifi", "cell"] {
            road.run_on_router(|router, now, wall| router.handle_roaming(now, wall, name, roaming));
        }
        road.advance_seconds(2.0);
        road.transmitting_uplinks()
    }
    assert_eq!(report_roaming(&mut road, Some(false)), ["wifi", "cell", "sat"]);
    assert_eq!(report_roaming(&mut road, Some(true)), ["cell", "sat"]);
    assert_eq!(road.router.uplinks()[0].attachment, Attachment::Down("roaming"));
    assert!(road.is_traffic_carried());
    assert_eq!(report_roaming(&mut road, None), ["wifi", "cell", "sat"]);
}

/// Without heartbeats the router gives an uplink up when it cannot renew the binding.
#[test]
fn path_failure_without_heartbeats_is_detected_by_updates() {
    let mut config = config();
    config.liveness = None;
    let mut road = VehicleOnRoad::new(config);
    road.attach_all_uplinks();
    road.advance_seconds(5.0);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert!(road.sent_heartbeats.is_empty());
    road.set_losing_everything("wifi", true);
    road.advance_while(60.0, "carried", |road| !road.is_traffic_carried());
    assert_eq!(road.transmitting_uplinks(), ["cell", "sat"]);
    road.set_losing_everything("wifi", false);
    road.advance_seconds(70.0);
    assert_eq!(road.transmitting_uplinks()[0], "wifi");
    assert!(road.is_traffic_carried());
}

/// Delivers a Binding Error which says that the home agent does not support heartbeats.
fn answer_heartbeats_as_unknown(road: &mut VehicleOnRoad) {
    let mut octets =
        carnet_wire::mobility::MobilityHeaderBuilder::binding_error(2, addr(HOME_ADDRESS)).finish();
    let packet = control_packet(addr(HOME_AGENT_ADDRESS), addr("2001:db8:f1::10"), None, &mut octets);
    road.deliver_to_router(None, &packet);
}

/// A home agent without heartbeats sends a Binding Error (RFC 5847 3). The router accepts it, unless the home
/// agent has answered a heartbeat before.
#[test]
fn home_agent_without_heartbeat_support_is_tolerated() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    answer_heartbeats_as_unknown(&mut road);
    road.advance_seconds(5.0);
    assert!(road.sent_heartbeats.len() > 10, "it has answered: {}", road.sent_heartbeats.len());
    let mut road = VehicleOnRoad::new(config());
    road.attach_all_uplinks();
    road.advance_while(1.0, "a heartbeat", |road| road.sent_heartbeats.is_empty());
    answer_heartbeats_as_unknown(&mut road);
    // Drop the heartbeats that are still on their way, because such a home agent answers none.
    for dead in [true, false] {
        for name in ["wifi", "cell", "sat"] {
            road.set_losing_everything(name, dead);
        }
        road.advance_seconds(0.3);
    }
    road.clear_records();
    road.advance_seconds(500.0);
    assert!(road.sent_heartbeats.is_empty());
    assert_eq!(road.transmitting_uplinks(), ["wifi", "cell", "sat"]);
    assert!(road.is_traffic_carried());
    road.advance_seconds(120.0);
    assert!(!road.sent_heartbeats.is_empty(), "asked again after ten minutes");
}

/// A Binding Error about heartbeats has no authentication, so the first answer to a heartbeat overrides it.
#[test]
fn first_heartbeat_response_overrides_binding_error_about_heartbeats() {
    let mut road = VehicleOnRoad::new(config());
    road.attach_all_uplinks();
    road.advance_while(1.0, "a heartbeat", |road| road.sent_heartbeats.is_empty());
    answer_heartbeats_as_unknown(&mut road);
    road.advance_seconds(5.0);
    road.clear_records();
    road.advance_seconds(5.0);
    assert!(road.sent_heartbeats.len() > 10, "{}", road.sent_heartbeats.len());
}

/// The router also ignores a Binding Error about heartbeats while another path gets answers, even on a new
/// uplink. Otherwise it would no longer detect failed paths.
#[test]
fn router_ignores_binding_error_about_heartbeats_while_a_path_answers() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.advance_seconds(2.0);
    road.detach_uplink("wifi");
    road.advance_seconds(2.0);
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    for _ in 0..100 {
        road.advance_seconds(0.03);
        answer_heartbeats_as_unknown(&mut road);
    }
    road.advance_while(5.0, "wifi again", |road| road.transmitting_uplinks()[0] != "wifi");
    road.set_losing_everything("wifi", true);
    road.advance_while(1.0, "carried over cell", |road| !road.is_traffic_carried());
}

/// A response counts only for the path that it came by. An attacker who sees the heartbeats of one uplink can
/// guess the next number, but cannot make a failed uplink look alive.
#[test]
fn a_heartbeat_response_from_another_path_does_not_count() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.advance_seconds(1.0);
    road.set_losing_everything("wifi", true);
    let before = road.sent_heartbeats.len();
    let mut answered = 0;
    for _ in 0..100 {
        road.advance_seconds(0.02);
        let asked: Vec<u32> = road.sent_heartbeats[before..]
            .iter()
            .filter(|heartbeat| heartbeat.uplink == "wifi")
            .map(|heartbeat| heartbeat.sequence)
            .collect();
        answered = asked.len();
        for sequence in asked {
            let mut octets =
                carnet_wire::mobility::MobilityHeaderBuilder::heartbeat_response(sequence).finish();
            let packet = control_packet(addr(HOME_AGENT_ADDRESS), addr("2001:db8:f2::10"), None, &mut octets);
            road.deliver_to_router(None, &packet);
        }
    }
    assert!(answered > 2);
    assert_eq!(road.transmitting_uplinks()[0], "cell");
}

/// Each path has its own numbers: the number on one path does not reveal the number on another.
#[test]
fn heartbeat_losses_count_for_each_path() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.advance_seconds(3.0);
    let last = |name: &str| {
        let numbers: Vec<u32> =
            road.sent_heartbeats.iter().filter(|h| h.uplink == name).map(|h| h.sequence).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)), "{name}: {numbers:?}");
        *numbers.last().expect("heartbeats")
    };
    for (one, other) in [("wifi", "cell"), ("cell", "sat"), ("sat", "wifi")] {
        let apart = last(one).wrapping_sub(last(other));
        assert!(apart.min(apart.wrapping_neg()) > 1000, "{one} and {other} are {apart} apart");
    }
}

/// RFC 5847 3: the router answers a request with the request's number, over the path that it came by. It does
/// not answer without a registration, and limits its answers.
#[test]
fn router_answers_heartbeats_of_home_agent() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.advance_seconds(1.0);
    let ask = |road: &mut VehicleOnRoad, to: &str, sequence| {
        let mut octets = carnet_wire::mobility::MobilityHeaderBuilder::heartbeat_request(sequence).finish();
        let packet = control_packet(addr(HOME_AGENT_ADDRESS), addr(to), None, &mut octets);
        road.clear_records();
        road.deliver_to_router(None, &packet);
        let answers = road.received_responses.drain(..).collect::<Vec<_>>();
        (answers, road.dropped_messages.last().copied())
    };
    for (uplink, to) in [("wifi", "2001:db8:f1::10"), ("cell", "2001:db8:f2::10")] {
        assert_eq!(ask(&mut road, to, 77), (vec![(uplink.to_string(), 77)], None));
    }
    assert_eq!(ask(&mut road, "2001:db8:f9::10", 78), (vec![], Some(MobilityDrop::Unexpected)));
    let answered = (0..180).filter(|n| !ask(&mut road, "2001:db8:f1::10", *n).0.is_empty()).count();
    assert!((90..=110).contains(&answered), "{answered}");
}

/// While packets wait, the router sends a Binding Update at least every two seconds.
#[test]
fn waiting_traffic_hastens_first_registration() {
    let mut road = VehicleOnRoad::new(config());
    road.is_agent_down = true;
    road.attach_all_uplinks();
    for _ in 0..600 {
        road.advance_seconds(0.1);
        assert!(road.router.path_without_policy().is_none());
        road.run_on_router(|router, now, wall| router.handle_waiting_packet(now, wall));
    }
    let longest =
        road.sent_updates.windows(2).map(|pair| pair[1].sent_at.saturating_since(pair[0].sent_at)).max();
    assert!(longest.expect("updates") <= Duration::from_millis(2200), "{longest:?}");
    road.is_agent_down = false;
    for _ in 0..25 {
        road.advance_seconds(0.1);
        road.run_on_router(|router, now, wall| router.handle_waiting_packet(now, wall));
    }
    assert!(road.is_traffic_carried());
}

/// Without Binding Identifiers, unanswered heartbeats make the router register another uplink.
#[test]
fn path_failure_without_bids_is_detected() {
    let mut config = config();
    for uplink in &mut config.uplinks {
        uplink.bid = None;
    }
    let mut road = VehicleOnRoad::new(config);
    road.attach_all_uplinks();
    road.advance_seconds(3.0);
    assert_eq!(road.transmitting_uplinks(), ["wifi"]);
    road.set_losing_everything("wifi", true);
    road.advance_while(1.0, "carried", |road| !road.is_traffic_carried());
    assert_eq!(road.transmitting_uplinks(), ["cell"]);
    assert!(road.now > Time::from_secs(103));
}

/// When all other uplinks have failed, the router does not wait for the back-off of the last one. An
/// acknowledgement may have been lost, or the uplink may work again.
#[test]
fn last_remaining_uplink_is_used_at_once() {
    for start in 0..10 {
        let mut road = VehicleOnRoad::new(config());
        road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
        road.advance_seconds(1.0);
        road.set_losing_everything("cell", true);
        road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
        // The router has sent Binding Updates after 0, 1, 3, 7, 15 and 31 s.
        road.advance_seconds(16.0 + f64::from(start));
        road.set_losing_everything("cell", false);
        road.advance_seconds(0.1);
        road.detach_uplink("wifi");
        road.advance_while(0.2, "carried over cell", |road| !road.is_traffic_carried());
    }
}

/// The last working uplink fails, and one that had been given up takes over. The router reports that failure
/// to the home agent, although no uplink worked when it happened.
#[test]
fn last_remaining_uplink_carries_both_directions() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.detach_uplink("sat");
    road.set_losing_everything("wifi", true);
    road.advance_seconds(4.0);
    assert_eq!(road.transmitting_uplinks(), ["cell"]);
    road.set_losing_everything("wifi", false);
    road.set_losing_everything("cell", true);
    road.advance_while(0.7, "carried over wifi", |road| !road.is_traffic_carried());
    assert_eq!(road.bound_bids(), [1]);
}

/// All uplinks fail, and one comes back much later: the failure of another uplink is not the reason of this
/// move.
#[test]
fn logged_handover_reason_is_no_earlier_failure() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    road.detach_uplink("sat");
    for name in ["wifi", "cell"] {
        road.set_losing_everything(name, true);
    }
    // Runs until the lifetimes have ended.
    road.advance_seconds(120.0);
    assert!(road.transmitting_uplinks().is_empty());
    road.clear_records();
    road.set_losing_everything("wifi", false);
    road.advance_while(40.0, "wifi again", |road| road.transmitting_uplinks() != ["wifi"]);
    let reasons: Vec<&String> = road
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Handover { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["the home agent acknowledged it"]);
}

/// The status of a failed uplink shows when the router registers it again; heartbeats, which continue, do not
/// change that time.
#[test]
fn silent_uplink_shows_the_end_of_its_hold_down() {
    let mut road = VehicleOnRoad::with_registered_uplinks();
    let mut last = Duration::ZERO;
    for _ in 0..4 {
        road.advance_while(90.0, "wifi is used", |road| road.transmitting_uplinks()[0] != "wifi");
        road.set_losing_everything("wifi", true);
        road.advance_while(2.0, "wifi has failed", |road| road.transmitting_uplinks()[0] == "wifi");
        let AgentResponse::Silent { again: Some(again) } = road.router.agent_response(0) else {
            panic!("{:?}", road.router.agent_response(0));
        };
        let hold = again.saturating_since(road.now);
        assert!(hold >= Duration::from_millis(900) && hold > last, "{hold:?} after {last:?}");
        last = hold;
        road.set_losing_everything("wifi", false);
    }
}
