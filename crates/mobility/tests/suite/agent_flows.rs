//! Home agent: flow bindings (RFC 6089 5.3, RFC 6088).

use carnet_mobility::flow::{FlowAction, TrafficSelector, ValueRange};
use carnet_mobility::home_agent::MAX_FLOWS;
use carnet_wire::mobility::flow_identification::{FlowActionOption, emit_sub_options};
use carnet_wire::mobility::traffic_selector::{Ipv4Selector, Ipv6Selector};

use crate::agent::{TestAgent, authenticated_config, config};
use crate::agent_multiple::agent_with_two_bindings;
use crate::several_care_of_addresses::*;
use crate::test_messages::*;

/// Returns FID, priority and BIDs of each flow, in the order of the list.
fn describe_flows(agent: &TestAgent) -> Vec<(u16, u16, Vec<u16>)> {
    let flows = agent.home_agent.flows(addr(HOME_ADDRESS));
    flows.iter().map(|flow| (flow.fid, flow.priority, flow.bids.iter().map(|b| b.0).collect())).collect()
}

fn refresh_update(sequence: u16) -> TestUpdate {
    TestUpdate::explicit_update(sequence).with_known_bid(1).with_known_bid(2)
}

/// Creates a home agent with two bindings and flow 4, which sends UDP to port 5000 by binding 2. The next
/// sequence number is 4.
fn agent_with_flow() -> TestAgent {
    let mut agent = agent_with_two_bindings();
    let answer = agent.expect_acceptance(&refresh_update(3).with_flow(4, 10, 5000, &[2]));
    assert_eq!(acknowledgement_options(&answer).flow_statuses, [(4, 0)]);
    agent
}

/// RFC 6089 5.3.2.1: a new flow, in the same Binding Update as the bindings that it refers to (5.3.1).
#[test]
fn new_flow_binding_is_accepted() {
    let mut agent = TestAgent::new(config());
    let first = TestUpdate::explicit_update(1)
        .with_overwrite_flag()
        .with_flow(7, 30, 6000, &[1, 2])
        .with_flow(4, 10, 5000, &[2])
        .with_bid(1, CARE_OF_ADDRESS)
        .with_bid(2, OTHER_CARE_OF_ADDRESS);
    let answer = agent.expect_acceptance(&first);
    assert_eq!(
        acknowledgement_options(&answer).flow_statuses,
        [(7, 0), (4, 0)],
        "RFC 6089 5.3.5: each is copied with its status"
    );
    // RFC 6089 4.3: the list is ordered by FID-PRI.
    assert_eq!(describe_flows(&agent), [(4, 10, vec![2]), (7, 30, vec![1, 2])]);
    let flow = &agent.home_agent.flows(addr(HOME_ADDRESS))[0];
    assert_eq!((flow.selector, flow.action), (udp_selector(5000), FlowAction::Failover));
    // RFC 6089 5.3.6: "a copy of the packet is forwarded to each".
    assert_eq!(agent.home_agent.flows(addr(HOME_ADDRESS))[1].action, FlowAction::Duplicate);
}

/// RFC 6089 5.3.2.2: an update replaces priority, selector and bindings of a flow as far as it names them.
#[test]
fn known_flow_binding_is_changed() {
    let mut agent = agent_with_flow();
    // The update changes only the priority of the flow.
    let answer = agent.expect_acceptance(&refresh_update(4).with_flow_sub_options(4, 20, Vec::new()));
    assert_eq!(acknowledgement_options(&answer).flow_statuses, [(4, 0)]);
    assert_eq!(describe_flows(&agent), [(4, 20, vec![2])]);
    assert_eq!(agent.home_agent.flows(addr(HOME_ADDRESS))[0].selector, udp_selector(5000));
    // The next two updates change only the selector, then only the bindings.
    agent.expect_acceptance(&refresh_update(5).with_flow_sub_options(
        4,
        20,
        emit_sub_options(Some(&udp_selector(5001)), &[]),
    ));
    assert_eq!(agent.home_agent.flows(addr(HOME_ADDRESS))[0].selector, udp_selector(5001));
    assert_eq!(describe_flows(&agent), [(4, 20, vec![2])]);
    agent.expect_acceptance(&refresh_update(6).with_flow_sub_options(4, 20, emit_sub_options(None, &[1])));
    assert_eq!(describe_flows(&agent), [(4, 20, vec![1])]);
    assert_eq!(agent.home_agent.flows(addr(HOME_ADDRESS))[0].selector, udp_selector(5001));
}

/// RFC 6089 4.2: two flows never have one priority. By 5.3.2 the home agent applies the options of a message
/// together, "in any order", so two flows can exchange their priorities.
#[test]
fn flow_bindings_change_order() {
    let mut agent = agent_with_flow();
    agent.expect_acceptance(&refresh_update(4).with_flow_summary(&[4]).with_flow(5, 20, 6000, &[1]));
    assert_eq!(describe_flows(&agent), [(4, 10, vec![2]), (5, 20, vec![1])]);
    let answer = agent.expect_acceptance(
        &refresh_update(5).with_flow_sub_options(4, 20, Vec::new()).with_flow_sub_options(5, 10, Vec::new()),
    );
    assert_eq!(acknowledgement_options(&answer).flow_statuses, [(4, 0), (5, 0)]);
    assert_eq!(describe_flows(&agent), [(5, 10, vec![1]), (4, 20, vec![2])]);
    // If the change of one of the two flows is refused, the change of the other is refused too.
    let wrong = emit_sub_options(None, &[9]);
    let answer = agent.expect_acceptance(
        &refresh_update(6).with_flow_sub_options(4, 10, Vec::new()).with_flow_sub_options(5, 20, wrong),
    );
    assert_eq!(acknowledgement_options(&answer).flow_statuses, [(4, 130), (5, 131)]);
    assert_eq!(describe_flows(&agent), [(5, 10, vec![1]), (4, 20, vec![2])]);
    // A priority that one option frees can be taken by another option, in any order of the options.
    let answer = agent.expect_acceptance(
        &refresh_update(7)
            .with_flow(6, 10, 7000, &[1])
            .with_flow_sub_options(5, 5, Vec::new())
            .with_flow_summary(&[4]),
    );
    assert_eq!(acknowledgement_options(&answer).flow_statuses, [(6, 0), (5, 0)]);
    // Of two flows that ask for one priority, the first gets it.
    let both = refresh_update(8)
        .with_flow_sub_options(4, 30, Vec::new())
        .with_flow_sub_options(5, 30, Vec::new())
        .with_flow_summary(&[6]);
    assert_eq!(acknowledgement_options(&agent.expect_acceptance(&both)).flow_statuses, [(4, 0), (5, 130)]);
    assert_eq!(describe_flows(&agent), [(5, 5, vec![1]), (6, 10, vec![1]), (4, 30, vec![2])]);
}

/// Conformance item 58; RFC 6089 5.3.4: a flow that the update does not name is removed; 5.3.3: a flow that
/// the summary names stays.
#[test]
fn flow_binding_missing_from_the_summary_is_removed() {
    let mut agent = agent_with_flow();
    agent.expect_acceptance(&refresh_update(4).with_flow_summary(&[4, 4]).with_flow(5, 20, 6000, &[1]));
    assert_eq!(describe_flows(&agent), [(4, 10, vec![2]), (5, 20, vec![1])]);
    let answer = agent.expect_acceptance(&refresh_update(5).with_flow_summary(&[5]));
    assert_eq!(
        acknowledgement_options(&answer).flow_statuses,
        [],
        "5.3.5: nothing is said about a flow that stays"
    );
    assert_eq!(describe_flows(&agent), [(5, 20, vec![1])]);
    agent.expect_acceptance(&TestUpdate::explicit_update(6).with_bid(1, CARE_OF_ADDRESS));
    assert_eq!(describe_flows(&agent), []);
}

/// RFC 6089 5.3.3: status 132 for an unknown flow in the summary.
#[test]
fn unknown_flow_in_summary_gets_status_132() {
    let mut agent = agent_with_flow();
    let answer = agent.expect_acceptance(&refresh_update(4).with_flow_summary(&[9, 4, 9, 10]));
    assert_eq!(acknowledgement_options(&answer).flow_statuses, [(9, 132), (10, 132)]);
    assert_eq!(describe_flows(&agent), [(4, 10, vec![2])]);
}

/// Conformance item 57; RFC 6089 5.3.2.1: status 131 for an unknown BID, and the flow stays unchanged.
#[test]
fn flow_with_unknown_bid_gets_status_131() {
    let mut agent = agent_with_flow();
    let answer = agent.expect_acceptance(&refresh_update(4).with_flow(4, 10, 5001, &[2, 9]).with_flow(
        5,
        20,
        6000,
        &[9],
    ));
    assert_eq!(acknowledgement_options(&answer).flow_statuses, [(4, 131), (5, 131)]);
    assert_eq!(describe_flows(&agent), [(4, 10, vec![2])]);
    assert_eq!(agent.home_agent.flows(addr(HOME_ADDRESS))[0].selector, udp_selector(5000));
}

/// Conformance item 57; RFC 6089 5.3.2.1, 4.2: a flow option that lacks a required value or has a forbidden
/// one gets status 130.
#[test]
fn malformed_flow_gets_status_130() {
    let selector = || emit_sub_options(Some(&udp_selector(6000)), &[]);
    let whole = || emit_sub_options(Some(&udp_selector(6000)), &[1]);
    for (what, fid, priority, octets) in [
        ("no selector", 5, 20, emit_sub_options(None, &[1])),
        ("no reference", 5, 20, selector()),
        ("nothing", 5, 20, Vec::new()),
        ("FID 0", 0, 20, whole()),
        ("FID-PRI 0", 5, 0, whole()),
        ("the FID-PRI of another", 5, 10, whole()),
        ("two references", 5, 20, [whole(), emit_sub_options(None, &[2])].concat()),
        ("two selectors", 5, 20, [whole(), selector()].concat()),
        ("a sub-option past the end", 5, 20, [whole(), vec![9, 9]].concat()),
    ] {
        let mut agent = agent_with_flow();
        let answer = agent.expect_acceptance(
            &refresh_update(4).with_flow_summary(&[4]).with_flow_sub_options(fid, priority, octets),
        );
        assert_eq!(acknowledgement_options(&answer).flow_statuses, [(fid, 130)], "{what}");
        assert_eq!(describe_flows(&agent), [(4, 10, vec![2])], "{what}");
    }
}

/// RFC 6089 5.3.2: "all the flow identification mobility options MUST be rejected" when two have one FID.
#[test]
fn repeated_flow_id_refuses_all_flows() {
    let mut agent = agent_with_two_bindings();
    let update = refresh_update(3).with_flow(4, 10, 5000, &[1]).with_flow(5, 20, 6000, &[1]).with_flow(
        4,
        30,
        7000,
        &[1],
    );
    assert_eq!(
        acknowledgement_options(&agent.expect_acceptance(&update)).flow_statuses,
        [(4, 130), (5, 130), (4, 130)]
    );
    assert_eq!(describe_flows(&agent), []);
}

/// Conformance item 57; RFC 6089 5.3.2.1: status 133 for an unsupported selector format. RFC 6088 defines
/// formats of IPv4 and IPv6, and the home agent takes both.
#[test]
fn unknown_selector_format_gets_status_133() {
    let mut agent = agent_with_two_bindings();
    let ipv4 = TrafficSelector::Ipv4(Ipv4Selector::default());
    let unknown = [vec![3, 3, 77, 0, 1], emit_sub_options(None, &[1])].concat();
    let update = refresh_update(3)
        .with_flow_sub_options(4, 10, emit_sub_options(Some(&ipv4), &[1]))
        .with_flow_sub_options(5, 20, unknown);
    assert_eq!(acknowledgement_options(&agent.expect_acceptance(&update)).flow_statuses, [(4, 0), (5, 133)]);
    assert_eq!(describe_flows(&agent), [(4, 10, vec![1])]);
}

/// RFC 6089 4.3: a flow stays while its bindings are gone, and works again when the bindings are back.
#[test]
fn flow_binding_stays_while_its_bindings_are_gone() {
    let mut agent = agent_with_flow();
    agent.expect_acceptance(
        &TestUpdate::implicit_update(4).lifetime(0).with_known_bid(2).with_flow_summary(&[4]),
    );
    assert_eq!(describe_flows(&agent), [(4, 10, vec![2])]);
    assert!(agent.home_agent.bindings().get(addr(HOME_ADDRESS), Some(2)).is_none());
    // The flow's only BID is gone. A change of the flow needs a BID that exists (5.3.2.2 keeps values that
    // the update does not name).
    agent.expect_acceptance(
        &TestUpdate::explicit_update(5).with_bid(2, THIRD_CARE_OF_ADDRESS).with_flow_sub_options(
            4,
            11,
            Vec::new(),
        ),
    );
    assert_eq!(describe_flows(&agent), [(4, 11, vec![2])]);
    // RFC 6089 5.3.3: "a specific binding deregistration ... SHOULD include flow summary mobility options".
    agent.expect_acceptance(&TestUpdate::implicit_update(6).lifetime(0).with_known_bid(2));
    assert_eq!(describe_flows(&agent), []);
}

/// RFC 6089 5.3.3: the flows end with the last binding, whatever ended it.
#[test]
fn flows_end_with_the_last_binding() {
    let mut agent = agent_with_flow();
    agent.expect_acceptance(&TestUpdate::implicit_update(4).lifetime(0).with_flow_summary(&[4]));
    assert_eq!(describe_flows(&agent), []);
    let mut agent = agent_with_flow();
    agent.advance_time(61.0);
    assert_eq!(describe_flows(&agent), []);
    // A plain binding has no BID to which a flow could refer.
    let mut agent = agent_with_flow();
    let answer = agent.expect_acceptance(&TestUpdate::explicit_update(4).with_flow(4, 10, 5000, &[2]));
    assert_eq!(acknowledgement_options(&answer).flow_statuses, [(4, 131)]);
    // A Binding Update that is refused changes nothing.
    let mut agent = agent_with_flow();
    agent.expect_refusal(&TestUpdate::explicit_update(3).with_bid(1, CARE_OF_ADDRESS), 135);
    assert_eq!(describe_flows(&agent), [(4, 10, vec![2])]);
}

/// The home agent accepts and echoes the action of a flow. Without an action option the action stays
/// unchanged.
#[test]
fn flow_actions_are_accepted_and_returned() {
    let mut agent = agent_with_two_bindings();
    let balance = FlowActionOption {
        fid: 4,
        action: FlowAction::Balance,
        binding_weights: vec![(1, 50), (2, 20), (9, 7)],
    };
    let answer = agent
        .expect_acceptance(&refresh_update(3).with_flow(4, 10, 5000, &[2, 1]).with_flow_action(&balance));
    assert_eq!(acknowledgement_options(&answer).flow_actions, std::slice::from_ref(&balance));
    let flow = |agent: &TestAgent| agent.home_agent.flows(addr(HOME_ADDRESS))[0].clone();
    assert_eq!(flow(&agent).action, FlowAction::Balance);
    assert_eq!(flow(&agent).bids, [(2, 20), (1, 50)], "in the order of preference, with their weights");
    // A change of other values keeps action and weights.
    let answer = agent.expect_acceptance(&refresh_update(4).with_flow_sub_options(
        4,
        11,
        emit_sub_options(None, &[1, 2]),
    ));
    assert_eq!(acknowledgement_options(&answer).flow_actions, []);
    assert_eq!((flow(&agent).action, flow(&agent).bids), (FlowAction::Balance, vec![(1, 50), (2, 20)]));
    // An action option may belong to a flow that the summary names. A weight that the option lacks is 1.
    let failover = FlowActionOption { fid: 4, action: FlowAction::Failover, binding_weights: vec![] };
    let answer =
        agent.expect_acceptance(&refresh_update(5).with_flow_summary(&[4]).with_flow_action(&failover));
    assert_eq!(acknowledgement_options(&answer).flow_actions, std::slice::from_ref(&failover));
    assert_eq!((flow(&agent).action, flow(&agent).bids), (FlowAction::Failover, vec![(1, 1), (2, 1)]));
    // The home agent ignores the action of a flow that it refuses or does not know.
    let other = FlowActionOption { fid: 5, ..failover.clone() };
    let update =
        refresh_update(6).with_flow(4, 10, 5000, &[9]).with_flow_action(&failover).with_flow_action(&other);
    assert_eq!(acknowledgement_options(&agent.expect_acceptance(&update)).flow_actions, []);
    // The home agent does not echo an invalid option either: action 9, weight 0.
    for data in [&[0, 4, 9, 0][..], &[0, 4, 2, 0, 0, 1, 0, 0]] {
        let update =
            refresh_update(agent.home_agent.bindings().sequence(addr(HOME_ADDRESS)).expect("bound") + 1);
        let answer = agent.expect_acceptance(
            &update
                .with_flow_summary(&[4])
                .with_option(FlowActionOption::vendor_specific_option(data.to_vec().leak())),
        );
        assert_eq!(acknowledgement_options(&answer).flow_actions, []);
    }
}

/// The home agent refuses flows beyond the limit with status 129. Its signed answer with all options fits
/// into one packet.
#[test]
fn number_of_flow_bindings_is_bounded() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(
        &TestUpdate::explicit_update(1).with_overwrite_flag().with_bid(1, CARE_OF_ADDRESS).with_signature(),
    );
    let wide = TrafficSelector::Ipv6(Ipv6Selector {
        source: Some(ValueRange::new(addr("2001:db8::"), addr("2001:db9::"))),
        destination: Some(ValueRange::new(addr("2001:db8::"), addr("2001:db9::"))),
        ..Ipv6Selector::default()
    });
    let mut sequence = 1;
    for tens in 0..(MAX_FLOWS as u16).div_ceil(10) {
        sequence += 1;
        let known: Vec<u16> = (1..=tens * 10).collect();
        let mut update = TestUpdate::explicit_update(sequence).with_known_bid(1);
        if !known.is_empty() {
            update = update.with_flow_summary(&known);
        }
        for fid in tens * 10 + 1..=tens * 10 + 10 {
            update = update.with_flow_sub_options(fid, fid, emit_sub_options(Some(&wide), &[1]));
        }
        let answer = agent.expect_acceptance(&update.with_signature());
        assert!(answer.is_signed(&test_association(), CARE_OF_ADDRESS, HOME_ADDRESS));
        // The sub-options of all ten flows would be 800 octets, so the answer leaves out those of the last
        // flows.
        assert!(answer.mobility_header.len() < 780, "{}", answer.mobility_header.len());
        for (fid, status) in acknowledgement_options(&answer).flow_statuses {
            assert_eq!(status, if usize::from(fid) > MAX_FLOWS { 129 } else { 0 }, "flow {fid}");
        }
        assert_eq!(acknowledgement_options(&answer).flow_statuses.len(), 10);
    }
    assert_eq!(agent.home_agent.flows(addr(HOME_ADDRESS)).len(), MAX_FLOWS);
    // The Flow Summary option of this update names as many unknown flows as one option holds.
    let all: Vec<u16> = (1000..1127).collect();
    let answer = agent.expect_acceptance(
        &TestUpdate::explicit_update(sequence + 1).with_known_bid(1).with_flow_summary(&all).with_signature(),
    );
    assert!(answer.is_signed(&test_association(), CARE_OF_ADDRESS, HOME_ADDRESS));
    assert!(acknowledgement_options(&answer).flow_statuses.len() <= MAX_FLOWS);
    assert_eq!(describe_flows(&agent), []);
}
