//! Home agent: proxy Neighbor Discovery on a link that is not the home link (RFC 4861 7.2.8).

use carnet_mobility::MobilityDrop;
use carnet_wire::nd;

use crate::agent::{AGENT_MAC, TestAgent, config};
use crate::test_messages::*;

/// Link-local address of the provider's router.
const ROUTER_ON_LINK: &str = "fe80::9";

/// Creates a home agent with proxy Neighbor Discovery on a link that is up. Removes the messages of its start
/// from the records.
fn agent_with_ndp_proxy() -> TestAgent {
    let mut agent = TestAgent::new(carnet_mobility::home_agent::HomeAgentConfig {
        ndp_proxy: Some("h0".into()),
        ..config()
    });
    agent.set_home_link_running(true);
    agent.link_messages.clear();
    agent
}

#[test]
fn solicitation_for_registered_mobile_network_is_answered_without_override() {
    let mut agent = agent_with_ndp_proxy();
    let host = "2001:db8:a::77";
    assert!(agent.send_solicitation(host, ROUTER_ON_LINK).is_empty(), "before the registration");
    // The home link stays virtual: the home agent does not test the home address.
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    assert!(agent.link_messages.is_empty());
    let answers = agent.send_solicitation(host, ROUTER_ON_LINK);
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].target, answers[0].target_link_address), (addr(host), Some(AGENT_MAC)));
    assert!(answers[0].solicited && !answers[0].override_ && !answers[0].router);
    let answers = agent.send_solicitation(HOME_ADDRESS, ROUTER_ON_LINK);
    assert!(answers.len() == 1 && answers[0].router && !answers[0].override_);
    for other in ["2001:db8:b::77", "2001:db8:1::99", "fe80::1234", "::ffff:10.42.7.5", "ff02::1"] {
        assert!(agent.send_solicitation(other, ROUTER_ON_LINK).is_empty(), "{other}");
    }
    let status = agent.home_agent.proxied_link().expect("a link");
    assert_eq!((status.interface.as_str(), status.is_up), ("h0", true));
    // Two single addresses (the home agent's own and the home address), and one mobile network.
    assert_eq!(
        (status.address_count, status.prefixes, status.answered_solicitations, status.refused_solicitations),
        (2, 1, 2, 0)
    );
    agent.expect_acceptance(&TestUpdate::explicit_update(2).lifetime(0));
    let status = agent.home_agent.proxied_link().expect("a link");
    assert_eq!((status.address_count, status.prefixes), (1, 0), "after the de-registration");
    for target in [host, HOME_ADDRESS] {
        assert!(
            agent.send_solicitation(target, ROUTER_ON_LINK).is_empty(),
            "{target} after the de-registration"
        );
    }
}

#[test]
fn home_agent_answers_and_announces_its_own_address_on_link_of_ndp_proxy() {
    let mut agent = agent_with_ndp_proxy();
    let answers = agent.send_solicitation(HOME_AGENT_ADDRESS, ROUTER_ON_LINK);
    assert!(answers.len() == 1 && answers[0].router && answers[0].override_ && answers[0].solicited);
    agent.set_home_link_running(false);
    assert!(
        agent.send_solicitation(HOME_AGENT_ADDRESS, ROUTER_ON_LINK).is_empty(),
        "on a link without carrier"
    );
    agent.set_home_link_running(true);
    let announced = agent.take_advertisements();
    assert_eq!(announced.iter().map(|it| it.target).collect::<Vec<_>>(), [addr(HOME_AGENT_ADDRESS)]);
    assert!(announced[0].override_ && !announced[0].solicited);
}

#[test]
fn ndp_proxy_limits_answers_to_an_address_scan() {
    let mut agent = agent_with_ndp_proxy();
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    let solicit = |agent: &mut TestAgent, number: u32, to: Option<&str>| {
        let target = format!("2001:db8:a::{number:x}");
        let solicitation =
            nd::NeighborSolicitation { target: addr(&target), source_link_address: Some([2, 0, 0, 0, 0, 9]) };
        let group = nd::solicited_node_address(addr(&target)).to_string();
        agent.receive_link_message(ROUTER_ON_LINK, to.unwrap_or(&group), solicitation.emit());
        agent.take_advertisements().len()
    };
    let answered: usize = (0..5000).map(|number| solicit(&mut agent, number, None)).sum();
    assert_eq!((answered, agent.last_drop_reason), (512, Some(MobilityDrop::RateLimited)));
    let status = agent.home_agent.proxied_link().expect("a link");
    assert_eq!((status.answered_solicitations, status.refused_solicitations), (512, 5000 - 512));
    assert_eq!(solicit(&mut agent, 7, Some("2001:db8:a::7")), 1, "a unicast solicitation");
    agent.advance_time(1.0);
    let answered: usize = (0..5000).map(|number| solicit(&mut agent, number, None)).sum();
    assert!((400..=512).contains(&answered), "{answered} after a second");
}

#[test]
fn forged_messages_on_link_of_ndp_proxy_change_nothing() {
    let mut agent = agent_with_ndp_proxy();
    agent.expect_acceptance(&TestUpdate::explicit_update(1));
    let solicitation = nd::NeighborSolicitation { target: addr("2001:db8:a::77"), source_link_address: None };
    agent.receive_link_message("ff02::1", "ff02::1:ff00:77", solicitation.emit());
    assert_eq!(
        (agent.last_drop_reason, agent.take_advertisements().len()),
        (Some(MobilityDrop::NeighborDiscovery), 0)
    );
    agent.receive_link_message(ROUTER_ON_LINK, "ff02::1", vec![135, 0, 0, 0]);
    assert_eq!(
        (agent.last_drop_reason, agent.take_advertisements().len()),
        (Some(MobilityDrop::NeighborDiscovery), 0)
    );
    // Another node claims these addresses on the link: the binding stays.
    for target in [HOME_ADDRESS, HOME_AGENT_ADDRESS, "2001:db8:a::77"] {
        agent.send_foreign_advertisement(target);
    }
    assert!(agent.home_binding().is_some() && agent.link_messages.is_empty());
}
