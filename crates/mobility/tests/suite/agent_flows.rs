//! Home agent: flow bindings (RFC 6089 5.3, RFC 6088).

use carnet_mobility::flow::{FlowAction, Range, TrafficSelector};
use carnet_mobility::home_agent::MAX_FLOWS;
use carnet_wire::mobility::flow::{FlowActionOption, emit_sub_options};
use carnet_wire::mobility::selector::{Ipv4Selector, Ipv6Selector};

use crate::agent::{Agent, authenticated, config};
use crate::agent_multiple::two;
use crate::craft::*;
use crate::several::*;

/// Returns FID, priority and BIDs of each flow, in the order of the list.
fn flows(agent: &Agent) -> Vec<(u16, u16, Vec<u16>)> {
    let flows = agent.machine.flows(addr(HOME));
    flows.iter().map(|flow| (flow.fid, flow.priority, flow.bids.iter().map(|b| b.0).collect())).collect()
}

fn refresh(sequence: u16) -> Update {
    Update::explicit(sequence).known_bid(1).known_bid(2)
}

/// A home agent with two bindings and flow 4, which sends UDP to port 5000 by binding 2. The next sequence
/// number is 4.
fn with_flow() -> Agent {
    let mut agent = two();
    let answer = agent.accept(&refresh(3).flow(4, 10, 5000, &[2]));
    assert_eq!(said(&answer).flows, [(4, 0)]);
    agent
}

/// RFC 6089 5.3.2.1: a new flow, in the same Binding Update as the bindings that it refers to (5.3.1).
#[test]
fn new_flow_binding_is_accepted() {
    let mut agent = Agent::new(config());
    let first = Update::explicit(1)
        .overwriting()
        .flow(7, 30, 6000, &[1, 2])
        .flow(4, 10, 5000, &[2])
        .bid(1, CARE_OF)
        .bid(2, OTHER_CARE_OF);
    let answer = agent.accept(&first);
    assert_eq!(said(&answer).flows, [(7, 0), (4, 0)], "RFC 6089 5.3.5: each is copied with its status");
    // RFC 6089 4.3: the list is ordered by FID-PRI.
    assert_eq!(flows(&agent), [(4, 10, vec![2]), (7, 30, vec![1, 2])]);
    let flow = &agent.machine.flows(addr(HOME))[0];
    assert_eq!((flow.selector, flow.action), (udp_to(5000), FlowAction::Failover));
    // RFC 6089 5.3.6: "a copy of the packet is forwarded to each".
    assert_eq!(agent.machine.flows(addr(HOME))[1].action, FlowAction::Duplicate);
}

/// RFC 6089 5.3.2.2: an update replaces priority, selector and bindings of a flow as far as it names them.
#[test]
fn known_flow_binding_is_changed() {
    let mut agent = with_flow();
    // Changes the priority alone.
    let answer = agent.accept(&refresh(4).flow_with(4, 20, Vec::new()));
    assert_eq!(said(&answer).flows, [(4, 0)]);
    assert_eq!(flows(&agent), [(4, 20, vec![2])]);
    assert_eq!(agent.machine.flows(addr(HOME))[0].selector, udp_to(5000));
    // Changes the selector alone, then the bindings alone.
    agent.accept(&refresh(5).flow_with(4, 20, emit_sub_options(Some(&udp_to(5001)), &[])));
    assert_eq!(agent.machine.flows(addr(HOME))[0].selector, udp_to(5001));
    assert_eq!(flows(&agent), [(4, 20, vec![2])]);
    agent.accept(&refresh(6).flow_with(4, 20, emit_sub_options(None, &[1])));
    assert_eq!(flows(&agent), [(4, 20, vec![1])]);
    assert_eq!(agent.machine.flows(addr(HOME))[0].selector, udp_to(5001));
}

/// RFC 6089 4.2: two flows never have one priority. By 5.3.2 the home agent applies the options of a message
/// together, "in any order", so two flows can exchange their priorities.
#[test]
fn flow_bindings_change_order() {
    let mut agent = with_flow();
    agent.accept(&refresh(4).summary(&[4]).flow(5, 20, 6000, &[1]));
    assert_eq!(flows(&agent), [(4, 10, vec![2]), (5, 20, vec![1])]);
    let answer = agent.accept(&refresh(5).flow_with(4, 20, Vec::new()).flow_with(5, 10, Vec::new()));
    assert_eq!(said(&answer).flows, [(4, 0), (5, 0)]);
    assert_eq!(flows(&agent), [(5, 10, vec![1]), (4, 20, vec![2])]);
    // If the change of one of the two flows is refused, the change of the other is refused too.
    let wrong = emit_sub_options(None, &[9]);
    let answer = agent.accept(&refresh(6).flow_with(4, 10, Vec::new()).flow_with(5, 20, wrong));
    assert_eq!(said(&answer).flows, [(4, 130), (5, 131)]);
    assert_eq!(flows(&agent), [(5, 10, vec![1]), (4, 20, vec![2])]);
    // A priority that one option frees can be taken by another option, in any order of the options.
    let answer = agent.accept(&refresh(7).flow(6, 10, 7000, &[1]).flow_with(5, 5, Vec::new()).summary(&[4]));
    assert_eq!(said(&answer).flows, [(6, 0), (5, 0)]);
    // Of two flows that ask for one priority, the first gets it.
    let both = refresh(8).flow_with(4, 30, Vec::new()).flow_with(5, 30, Vec::new()).summary(&[6]);
    assert_eq!(said(&agent.accept(&both)).flows, [(4, 0), (5, 130)]);
    assert_eq!(flows(&agent), [(5, 5, vec![1]), (6, 10, vec![1]), (4, 30, vec![2])]);
}

/// Conformance item 58; RFC 6089 5.3.4: a flow that the update does not name is removed; 5.3.3: a flow that
/// the summary names stays.
#[test]
fn unnamed_flow_binding_is_removed() {
    let mut agent = with_flow();
    agent.accept(&refresh(4).summary(&[4, 4]).flow(5, 20, 6000, &[1]));
    assert_eq!(flows(&agent), [(4, 10, vec![2]), (5, 20, vec![1])]);
    let answer = agent.accept(&refresh(5).summary(&[5]));
    assert_eq!(said(&answer).flows, [], "5.3.5: nothing is said about a flow that stays");
    assert_eq!(flows(&agent), [(5, 20, vec![1])]);
    agent.accept(&Update::explicit(6).bid(1, CARE_OF));
    assert_eq!(flows(&agent), []);
}

/// RFC 6089 5.3.3: status 132 for an unknown flow in the summary.
#[test]
fn unknown_flow_in_summary_gets_status_132() {
    let mut agent = with_flow();
    let answer = agent.accept(&refresh(4).summary(&[9, 4, 9, 10]));
    assert_eq!(said(&answer).flows, [(9, 132), (10, 132)]);
    assert_eq!(flows(&agent), [(4, 10, vec![2])]);
}

/// Conformance item 57; RFC 6089 5.3.2.1: status 131 for an unknown BID, and the flow stays unchanged.
#[test]
fn flow_with_unknown_bid_gets_status_131() {
    let mut agent = with_flow();
    let answer = agent.accept(&refresh(4).flow(4, 10, 5001, &[2, 9]).flow(5, 20, 6000, &[9]));
    assert_eq!(said(&answer).flows, [(4, 131), (5, 131)]);
    assert_eq!(flows(&agent), [(4, 10, vec![2])]);
    assert_eq!(agent.machine.flows(addr(HOME))[0].selector, udp_to(5000));
}

/// Conformance item 57; RFC 6089 5.3.2.1, 4.2: status 130 for an option that lacks a required value or has a
/// forbidden one.
#[test]
fn malformed_flow_gets_status_130() {
    let selector = || emit_sub_options(Some(&udp_to(6000)), &[]);
    let whole = || emit_sub_options(Some(&udp_to(6000)), &[1]);
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
        let mut agent = with_flow();
        let answer = agent.accept(&refresh(4).summary(&[4]).flow_with(fid, priority, octets));
        assert_eq!(said(&answer).flows, [(fid, 130)], "{what}");
        assert_eq!(flows(&agent), [(4, 10, vec![2])], "{what}");
    }
}

/// RFC 6089 5.3.2: "all the flow identification mobility options MUST be rejected" when two have one FID.
#[test]
fn repeated_flow_id_refuses_all_flows() {
    let mut agent = two();
    let update = refresh(3).flow(4, 10, 5000, &[1]).flow(5, 20, 6000, &[1]).flow(4, 30, 7000, &[1]);
    assert_eq!(said(&agent.accept(&update)).flows, [(4, 130), (5, 130), (4, 130)]);
    assert_eq!(flows(&agent), []);
}

/// Conformance item 57; RFC 6089 5.3.2.1: status 133 for an unsupported selector format. RFC 6088 defines
/// formats of IPv4 and IPv6, and the home agent takes both.
#[test]
fn unknown_selector_format_gets_status_133() {
    let mut agent = two();
    let ipv4 = TrafficSelector::Ipv4(Ipv4Selector::default());
    let unknown = [vec![3, 3, 77, 0, 1], emit_sub_options(None, &[1])].concat();
    let update = refresh(3).flow_with(4, 10, emit_sub_options(Some(&ipv4), &[1])).flow_with(5, 20, unknown);
    assert_eq!(said(&agent.accept(&update)).flows, [(4, 0), (5, 133)]);
    assert_eq!(flows(&agent), [(4, 10, vec![1])]);
}

/// RFC 6089 4.3: a flow stays while its bindings are gone, and works again when the bindings are back.
#[test]
fn flow_without_registered_binding_waits() {
    let mut agent = with_flow();
    agent.accept(&Update::implicit(4).lifetime(0).known_bid(2).summary(&[4]));
    assert_eq!(flows(&agent), [(4, 10, vec![2])]);
    assert!(agent.machine.bindings().get(addr(HOME), Some(2)).is_none());
    // The flow's only BID is gone. A change of the flow needs a BID that exists (5.3.2.2 keeps values that
    // the update does not name).
    agent.accept(&Update::explicit(5).bid(2, THIRD_CARE_OF).flow_with(4, 11, Vec::new()));
    assert_eq!(flows(&agent), [(4, 11, vec![2])]);
    // RFC 6089 5.3.3: "a specific binding deregistration ... SHOULD include flow summary mobility options".
    agent.accept(&Update::implicit(6).lifetime(0).known_bid(2));
    assert_eq!(flows(&agent), []);
}

/// RFC 6089 5.3.3: the flows end with the last binding, whatever ended it.
#[test]
fn flows_end_with_the_last_binding() {
    let mut agent = with_flow();
    agent.accept(&Update::implicit(4).lifetime(0).summary(&[4]));
    assert_eq!(flows(&agent), []);
    let mut agent = with_flow();
    agent.wait(61.0);
    assert_eq!(flows(&agent), []);
    // A plain binding has no BID to which a flow could refer.
    let mut agent = with_flow();
    let answer = agent.accept(&Update::explicit(4).flow(4, 10, 5000, &[2]));
    assert_eq!(said(&answer).flows, [(4, 131)]);
    // A Binding Update that is refused changes nothing.
    let mut agent = with_flow();
    agent.refuse(&Update::explicit(3).bid(1, CARE_OF), 135);
    assert_eq!(flows(&agent), [(4, 10, vec![2])]);
}

/// The home agent accepts and echoes the action of a flow. Without an action option the action stays
/// unchanged.
#[test]
fn flow_actions_are_accepted_and_returned() {
    let mut agent = two();
    let balance = FlowActionOption {
        fid: 4,
        action: FlowAction::Balance,
        binding_weights: vec![(1, 50), (2, 20), (9, 7)],
    };
    let answer = agent.accept(&refresh(3).flow(4, 10, 5000, &[2, 1]).action(&balance));
    assert_eq!(said(&answer).actions, std::slice::from_ref(&balance));
    let flow = |agent: &Agent| agent.machine.flows(addr(HOME))[0].clone();
    assert_eq!(flow(&agent).action, FlowAction::Balance);
    assert_eq!(flow(&agent).bids, [(2, 20), (1, 50)], "in the order of preference, with their weights");
    // A change of other values keeps action and weights.
    let answer = agent.accept(&refresh(4).flow_with(4, 11, emit_sub_options(None, &[1, 2])));
    assert_eq!(said(&answer).actions, []);
    assert_eq!((flow(&agent).action, flow(&agent).bids), (FlowAction::Balance, vec![(1, 50), (2, 20)]));
    // An action option may belong to a flow that the summary names. A weight that the option lacks is 1.
    let failover = FlowActionOption { fid: 4, action: FlowAction::Failover, binding_weights: vec![] };
    let answer = agent.accept(&refresh(5).summary(&[4]).action(&failover));
    assert_eq!(said(&answer).actions, std::slice::from_ref(&failover));
    assert_eq!((flow(&agent).action, flow(&agent).bids), (FlowAction::Failover, vec![(1, 1), (2, 1)]));
    // The home agent ignores the action of a flow that it refuses or does not know.
    let other = FlowActionOption { fid: 5, ..failover.clone() };
    let update = refresh(6).flow(4, 10, 5000, &[9]).action(&failover).action(&other);
    assert_eq!(said(&agent.accept(&update)).actions, []);
    // The home agent does not echo an invalid option either: action 9, weight 0.
    for data in [&[0, 4, 9, 0][..], &[0, 4, 2, 0, 0, 1, 0, 0]] {
        let update = refresh(agent.machine.bindings().sequence(addr(HOME)).expect("bound") + 1);
        let answer =
            agent.accept(&update.summary(&[4]).with(FlowActionOption::vendor_option(data.to_vec().leak())));
        assert_eq!(said(&answer).actions, []);
    }
}

/// Status 129 for flows beyond the limit. The signed answer with all options fits a packet.
#[test]
fn number_of_flow_bindings_is_bounded() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(1).overwriting().bid(1, CARE_OF).signed());
    let wide = TrafficSelector::Ipv6(Ipv6Selector {
        source: Some(Range::new(addr("2001:db8::"), addr("2001:db9::"))),
        destination: Some(Range::new(addr("2001:db8::"), addr("2001:db9::"))),
        ..Ipv6Selector::default()
    });
    let mut sequence = 1;
    for tens in 0..(MAX_FLOWS as u16).div_ceil(10) {
        sequence += 1;
        let known: Vec<u16> = (1..=tens * 10).collect();
        let mut update = Update::explicit(sequence).known_bid(1);
        if !known.is_empty() {
            update = update.summary(&known);
        }
        for fid in tens * 10 + 1..=tens * 10 + 10 {
            update = update.flow_with(fid, fid, emit_sub_options(Some(&wide), &[1]));
        }
        let answer = agent.accept(&update.signed());
        assert!(answer.is_signed(&association(), CARE_OF, HOME));
        // The sub-options of all ten flows would be 800 octets, so the answer leaves out those of the last
        // flows.
        assert!(answer.mobility_header.len() < 780, "{}", answer.mobility_header.len());
        for (fid, status) in said(&answer).flows {
            assert_eq!(status, if usize::from(fid) > MAX_FLOWS { 129 } else { 0 }, "flow {fid}");
        }
        assert_eq!(said(&answer).flows.len(), 10);
    }
    assert_eq!(agent.machine.flows(addr(HOME)).len(), MAX_FLOWS);
    // A summary with as many unknown flows as one message holds.
    let all: Vec<u16> = (1000..1127).collect();
    let answer = agent.accept(&Update::explicit(sequence + 1).known_bid(1).summary(&all).signed());
    assert!(answer.is_signed(&association(), CARE_OF, HOME));
    assert!(said(&answer).flows.len() <= MAX_FLOWS);
    assert_eq!(flows(&agent), []);
}
