//! Policies: the mobile router's side of RFC 6089, with the flow action option.

use carnet_mobility::Event;
use carnet_mobility::flow::{FlowAction, Ipv6Selector, TrafficSelector, ValueRange};
use carnet_mobility::mobile_router::{MobileRouterConfig, Policy};
use carnet_wire::mobility::MobilityOption;
use carnet_wire::mobility::flow_identification::flow_status;

use crate::test_messages::*;
use crate::vehicle_on_road::*;

fn selectors_of_port(port: u16) -> Vec<TrafficSelector> {
    let udp = Ipv6Selector { next_header: Some(ValueRange::single(17)), ..Ipv6Selector::default() };
    vec![
        TrafficSelector::Ipv6(Ipv6Selector { source_port: Some(ValueRange::single(port)), ..udp }),
        TrafficSelector::Ipv6(Ipv6Selector { destination_port: Some(ValueRange::single(port)), ..udp }),
    ]
}

fn example_policy(name: &str, action: FlowAction, uplinks: &[&str]) -> Policy {
    Policy {
        name: name.into(),
        selectors: selectors_of_port(5000),
        action,
        uplinks: uplinks.iter().map(|uplink| (*uplink).to_string()).collect(),
    }
}

fn config_with_policies(policies: Vec<Policy>) -> MobileRouterConfig {
    MobileRouterConfig { policies, ..config() }
}

fn road_with_policies(policies: Vec<Policy>) -> VehicleOnRoad {
    let mut road = VehicleOnRoad::new(config_with_policies(policies));
    road.attach_all_uplinks();
    road.advance_seconds(5.0);
    road
}

/// Returns the flows at the home agent: FID, action, BIDs.
fn flows_at_agent(road: &VehicleOnRoad) -> Vec<(u16, FlowAction, Vec<u16>)> {
    let flows = road.agent.flows(addr(HOME_ADDRESS)).iter();
    flows.map(|f| (f.fid, f.action, f.bids.iter().map(|(bid, _)| *bid).collect())).collect()
}

/// Returns the flows at the router: FID, action, BIDs.
fn flows_at_router(road: &VehicleOnRoad) -> Vec<(u16, FlowAction, Vec<u16>)> {
    let flows = road.router.flows().iter();
    flows.map(|f| (f.fid, f.action, f.bids.iter().map(|(bid, _)| *bid).collect())).collect()
}

/// Returns the status of the first policy: its name, the operator's uplink, the uplinks that its packets
/// take, the home agent's agreement.
fn describe_policy(road: &VehicleOnRoad) -> String {
    let status = road.router.policy_status().into_iter().next().expect("a policy");
    let chosen = status.wanted_uplink.as_deref().unwrap_or("-");
    format!("{} {chosen} {} {}", status.name, status.takes.join(","), status.home_agent)
}

/// RFC 6089 5.2.2.1: the router describes a flow for each selector, in the Binding Update that registers its
/// uplinks (5.3.1: identifiers come first).
#[test]
fn router_registers_each_policy_as_flow_bindings() {
    let road = road_with_policies(vec![example_policy("video", FlowAction::Failover, &["cell", "sat"])]);
    let expected = [(1, FlowAction::Failover, vec![2, 3]), (2, FlowAction::Failover, vec![2, 3])];
    assert_eq!(flows_at_agent(&road), expected);
    assert_eq!(flows_at_router(&road), expected);
    assert_eq!(road.sent_updates[0].described_flows, [1, 2]);
    assert_eq!(road.sent_updates.len(), 1, "and that is all");
}

/// RFC 6089 5.2.3: every Binding Update names the flows that stay, or the home agent would remove them
/// (5.2.4).
#[test]
fn every_binding_update_names_the_flows() {
    let mut road =
        road_with_policies(vec![example_policy("video", FlowAction::Duplicate, &["wifi", "cell"])]);
    road.clear_records();
    road.advance_seconds(200.0);
    road.detach_uplink("sat");
    road.advance_seconds(1.0);
    assert!(road.sent_updates.len() > 3);
    for update in &road.sent_updates {
        assert_eq!((&update.described_flows[..], &update.summarized_flows[..]), (&[][..], &[1, 2][..]));
    }
    assert_eq!(flows_at_agent(&road)[0], (1, FlowAction::Duplicate, vec![1, 2]));
}

/// RFC 6089 4.3: a flow that has lost one of its uplinks uses the remaining ones, and all of them when the
/// uplink is back.
#[test]
fn flow_uses_remaining_uplinks_while_one_is_down() {
    let mut road =
        road_with_policies(vec![example_policy("video", FlowAction::Duplicate, &["wifi", "cell"])]);
    road.detach_uplink("cell");
    assert_eq!(flows_at_router(&road)[0].2, [1]);
    road.advance_seconds(1.0);
    assert_eq!(road.agent.flows(addr(HOME_ADDRESS)).len(), 2, "not removed by the de-registration");
    road.attach_uplink("cell", Some("2001:db8:f2::77"), None);
    road.advance_seconds(3.0);
    assert_eq!(flows_at_router(&road)[0].2, [1, 2]);
    assert_eq!(flows_at_agent(&road)[0].2, [1, 2]);
    // All uplinks of the flow are gone: its packets take the path of other traffic.
    road.detach_uplink("cell");
    road.detach_uplink("wifi");
    assert!(road.router.flows().is_empty());
    road.advance_seconds(1.0);
    assert!(road.is_traffic_carried());
}

/// RFC 6089 5.2.2.2: the router adds an uplink that comes up later to the flows of its policies. It does so
/// only after the registration; otherwise the home agent would answer status 131.
#[test]
fn an_uplink_that_comes_later_joins_its_flows() {
    let mut road = VehicleOnRoad::new(config_with_policies(vec![example_policy(
        "video",
        FlowAction::Balance,
        &["wifi", "cell"],
    )]));
    road.attach_uplink("wifi", Some("2001:db8:f1::10"), None);
    road.advance_seconds(1.0);
    assert_eq!(flows_at_agent(&road)[0].2, [1]);
    road.clear_records();
    road.attach_uplink("cell", Some("2001:db8:f2::10"), None);
    road.advance_seconds(3.0);
    assert_eq!(flows_at_agent(&road)[0], (1, FlowAction::Balance, vec![1, 2]));
    assert_eq!(flows_at_router(&road)[0], (1, FlowAction::Balance, vec![1, 2]));
    assert!(!road.events.iter().any(|(_, event)| matches!(event, Event::Warning { .. })));
}

/// A policy moves to another uplink and back, and no other policy moves.
#[test]
fn operator_moves_a_single_policy() {
    let mut road = road_with_policies(vec![
        example_policy("udp", FlowAction::Failover, &["wifi", "cell"]),
        Policy {
            selectors: vec![TrafficSelector::Ipv6(Ipv6Selector::default())],
            ..example_policy("rest", FlowAction::Failover, &["wifi"])
        },
    ]);
    let before = flows_at_agent(&road);
    let paths = road.router.paths();
    road.clear_records();
    let to = |road: &mut VehicleOnRoad, uplinks: Option<&[String]>| {
        road.run_on_router(|router, now, wall| router.handle_policy_uplinks(now, wall, "udp", uplinks))
    };
    to(&mut road, Some(&["sat".to_string()])).expect("moved");
    assert_eq!(flows_at_router(&road)[0].2, [3, 1, 2], "at once, with the configured ones in reserve");
    assert_eq!(describe_policy(&road), "udp sat sat asked");
    road.advance_seconds(0.1);
    assert_eq!(describe_policy(&road), "udp sat sat agreed");
    assert_eq!(road.sent_updates.len(), 1);
    assert_eq!(
        (&road.last_update().described_flows[..], &road.last_update().summarized_flows[..]),
        (&[1, 2][..], &[3][..])
    );
    assert_eq!(flows_at_agent(&road)[0].2, [3, 1, 2]);
    assert_eq!(flows_at_agent(&road)[2], before[2]);
    assert_eq!(road.router.paths(), paths);
    to(&mut road, None).expect("moved back");
    road.advance_seconds(1.0);
    assert_eq!(flows_at_agent(&road), before);
    assert_eq!(describe_policy(&road), "udp - wifi agreed");
    // Unknown uplinks and policies are errors.
    assert!(to(&mut road, Some(&["eth9".to_string()])).is_err());
    let unknown =
        road.run_on_router(|router, now, wall| router.handle_policy_uplinks(now, wall, "nosuch", None));
    assert!(unknown.expect_err("unknown").contains("udp"));
}

/// The answer to the last description of a flow is lost. The router does not mistake the answers to earlier
/// descriptions for it.
#[test]
fn flow_is_described_again_after_lost_answer() {
    let mut road = road_with_policies(vec![example_policy("udp", FlowAction::Failover, &["wifi", "cell"])]);
    road.advance_seconds(2.0);
    let before = flows_at_agent(&road);
    let sat = ["sat".to_string()];
    let to = |road: &mut VehicleOnRoad, uplinks: Option<&[String]>| {
        road.run_on_router(|router, now, wall| router.handle_policy_uplinks(now, wall, "udp", uplinks))
            .expect("an uplink");
    };
    // The router sends three Binding Updates. The home agent accepts all, and the last answer is lost.
    to(&mut road, Some(&sat));
    road.advance_seconds(0.05);
    to(&mut road, None);
    road.advance_seconds(0.05);
    to(&mut road, Some(&sat));
    assert_eq!(road.sent_updates.len(), 4, "the first of all, and three");
    road.advance_seconds(0.015);
    for network in road.networks.values_mut() {
        network.loss_probability = 1.0;
    }
    assert_ne!(flows_at_agent(&road), before);
    road.advance_seconds(0.010);
    for network in road.networks.values_mut() {
        network.loss_probability = 0.0;
    }
    to(&mut road, None);
    road.advance_seconds(3.0);
    assert_eq!(flows_at_agent(&road), before);
}

/// An uplink with a poor signal has no share in a balanced policy, and comes last in a failover policy.
#[test]
fn a_poor_uplink_is_avoided_by_policies() {
    for (action, expected) in [(FlowAction::Balance, vec![2]), (FlowAction::Failover, vec![2, 1])] {
        let mut config = config_with_policies(vec![example_policy("video", action, &["wifi", "cell"])]);
        config.uplinks[0].signal =
            Some(carnet_mobility::mobile_router::SignalThresholds { good_dbm: -49, poor_dbm: -69 });
        let mut road = VehicleOnRoad::new(config);
        road.attach_all_uplinks();
        road.advance_seconds(2.0);
        assert_eq!(flows_at_agent(&road)[0].2, [1, 2]);
        road.run_on_router(|router, now, wall| router.handle_signal(now, wall, "wifi", Some(-80)));
        assert_eq!(flows_at_router(&road)[0].2, expected);
        road.advance_seconds(1.0);
        assert_eq!(flows_at_agent(&road)[0].2, expected);
    }
}

/// Weights follow the measured capacity; small changes cause no Binding Update.
#[test]
fn flow_weights_follow_the_measured_capacity() {
    let mut config =
        config_with_policies(vec![example_policy("video", FlowAction::Balance, &["wifi", "cell"])]);
    for (uplink, capacity) in config.uplinks.iter_mut().zip([300_000, 200_000, 1000]) {
        uplink.capacity = Some(capacity);
    }
    let mut road = VehicleOnRoad::new(config);
    road.attach_all_uplinks();
    road.advance_seconds(2.0);
    assert_eq!(road.agent.flows(addr(HOME_ADDRESS))[0].bids, [(1, 3000), (2, 2000)], "as configured");
    for (name, kbit_s) in [("wifi", 50_000), ("cell", 20_000), ("sat", 1000)] {
        road.run_on_router(|router, now, wall| router.handle_capacity(now, wall, name, Some(kbit_s)));
    }
    road.advance_seconds(1.0);
    assert_eq!(road.agent.flows(addr(HOME_ADDRESS))[0].bids, [(1, 500), (2, 200)]);
    assert_eq!(road.router.flows()[0].bids, [(1, 500), (2, 200)]);
    road.clear_records();
    road.run_on_router(|router, now, wall| router.handle_capacity(now, wall, "wifi", Some(48_000)));
    road.advance_seconds(1.0);
    assert!(road.sent_updates.is_empty());
    road.run_on_router(|router, now, wall| router.handle_capacity(now, wall, "wifi", Some(10_000)));
    road.advance_seconds(1.0);
    assert_eq!(road.agent.flows(addr(HOME_ADDRESS))[0].bids, [(1, 100), (2, 200)]);
}

/// Answers an update in the home agent's place: it accepts all identifiers, gives `status` to the flows, and
/// echoes the actions or not.
fn answer_update(road: &mut VehicleOnRoad, status: Option<u8>) {
    let update = road.last_update().clone();
    let mut answer = TestAcknowledgement::answering(&update.received_packet, 0);
    answer.options.extend(update.binding_identifiers.iter().map(|(bid, ..)| identifier_option(*bid, 0)));
    if let Some(status) = status {
        answer.options.extend(update.described_flows.iter().map(|fid| MobilityOption::FlowIdentification {
            fid: *fid,
            priority: *fid,
            status,
            sub_options: &[],
        }));
    }
    road.deliver_to_router(None, &answer.to_packet());
}

fn road_without_agent(action: FlowAction) -> VehicleOnRoad {
    let mut config = VehicleOnRoad::config_without_key();
    config.policies = vec![example_policy("video", action, &["wifi", "cell"])];
    let mut road = VehicleOnRoad::new(config);
    road.is_agent_down = true;
    road.attach_all_uplinks();
    road.advance_seconds(0.1);
    road
}

/// RFC 6089 5.2.6: the answer names no flow, so the home agent does not support flow bindings. The router
/// sends it no more flow options.
#[test]
fn home_agent_without_flow_bindings_gets_none() {
    let mut road = road_without_agent(FlowAction::Duplicate);
    assert_eq!(road.last_update().described_flows, [1, 2]);
    answer_update(&mut road, None);
    road.clear_records();
    road.run_on_router(|router, now, wall| router.handle_handover(now, wall, Some("cell")))
        .expect("an uplink");
    road.advance_seconds(0.05);
    assert!(!road.sent_updates.is_empty());
    assert!(
        road.sent_updates
            .iter()
            .all(|update| update.described_flows.is_empty() && update.summarized_flows.is_empty())
    );
    assert!(
        flows_at_router(&road).iter().all(|(_, action, _)| *action == FlowAction::Failover),
        "nobody sorts copies out"
    );
}

/// A home agent that does not know the flow action would copy packets, so the router gives each flow only its
/// best binding there.
#[test]
fn home_agent_without_vendor_option_gets_single_bindings() {
    for action in [FlowAction::Duplicate, FlowAction::Balance, FlowAction::Failover] {
        let mut road = road_without_agent(action);
        answer_update(&mut road, Some(flow_status::SUCCESS));
        assert_eq!(
            flows_at_router(&road),
            [(1, FlowAction::Failover, vec![1]), (2, FlowAction::Failover, vec![1])]
        );
        assert_eq!(road.last_update().described_flows, [1, 2], "again, with one binding each");
        answer_update(&mut road, Some(flow_status::SUCCESS));
        road.clear_records();
        road.detach_uplink("wifi");
        assert_eq!(flows_at_router(&road)[0].2, [2]);
    }
}

/// The status shows a refusal, and the router handles the policy by failover.
#[test]
fn refused_flow_is_reported_and_not_used() {
    for status in [flow_status::PROHIBITED, flow_status::SELECTOR_NOT_SUPPORTED, flow_status::BID_NOT_FOUND] {
        let mut road = road_without_agent(FlowAction::Duplicate);
        answer_update(&mut road, Some(status));
        let warned = road.events.iter().any(
            |(_, event)| matches!(event, Event::Warning { message } if message.contains(&status.to_string())),
        );
        assert!(warned, "{:?}", road.events);
        assert!(describe_policy(&road).ends_with(" refused"), "{}", describe_policy(&road));
        assert_eq!(flows_at_router(&road)[0], (1, FlowAction::Failover, vec![1, 2]));
        let count = road.sent_updates.len();
        road.advance_seconds(0.2);
        assert_eq!(road.sent_updates.len(), count, "not again as long as nothing changes");
        // The router describes the flow again when its bindings have changed.
        road.detach_uplink("wifi");
        road.advance_seconds(0.05);
        assert!(road.sent_updates.iter().skip(count).any(|update| !update.described_flows.is_empty()));
    }
}

/// RFC 6089 5.3.3: status 132 shows that the home agent has lost a flow that the summary names, so the router
/// describes it again.
#[test]
fn a_forgotten_flow_is_described_again() {
    let mut road = road_with_policies(vec![example_policy("video", FlowAction::Balance, &["wifi", "cell"])]);
    road.restart_agent();
    road.advance_seconds(3.0);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert_eq!(flows_at_agent(&road)[0], (1, FlowAction::Balance, vec![1, 2]));
    assert_eq!(flows_at_router(&road)[0], (1, FlowAction::Balance, vec![1, 2]));
}

/// The flows do not fit into one Binding Update.
#[test]
fn many_flows_take_several_binding_updates() {
    let policies = (0..16)
        .map(|index| Policy {
            selectors: selectors_of_port(5000 + index),
            ..example_policy(&format!("p{index}"), FlowAction::Balance, &["wifi", "cell", "sat"])
        })
        .collect();
    let mut road = VehicleOnRoad::new(config_with_policies(policies));
    road.attach_all_uplinks();
    road.advance_seconds(10.0);
    assert_eq!(flows_at_agent(&road).len(), 32);
    assert!(road.sent_updates.len() > 1);
    assert!(road.sent_updates.iter().all(|update| update.received_packet.mobility_header.len() < 1200));
}
