//! IPv4 mobile network prefixes (RFC 5555 3.1.1, 3.2.1, 4.4.2, 4.5), at both ends.

use std::net::Ipv4Addr;

use carnet_base::mapped;
use carnet_mobility::Event;
use carnet_mobility::home_agent::{AuthorizedNode, HomeAgentConfig, StoredBinding};
use carnet_mobility::mobile_router::{Ipv4PrefixState, MobileRouterConfig, RegistrationMode};
use carnet_wire::mobility::{MobilityHeader, MobilityOption, ParsedMobilityMessage};
use ipnet::{Ipv4Net, Ipv6Net};
use proptest::prelude::*;

use crate::agent::{self, TestAgent, authorized_node};
use crate::agent_and_routers::AgentAndRouters;
use crate::test_messages::*;
use crate::test_setup::{PairSetup, router_config};
use crate::vehicle_on_road::{self, VehicleOnRoad};

const IPV4_PREFIX: &str = "10.42.7.0/24";
const SECOND_IPV4_PREFIX: &str = "192.0.2.64/26";
const PREFIX_OF_OTHER_NODE: &str = "10.42.8.0/24";
const OTHER_HOME: &str = "2001:db8:1::5678";

fn parse_ipv4_prefix(text: &str) -> Ipv4Net {
    text.parse().expect("an IPv4 prefix")
}

fn mapped_prefix(text: &str) -> Ipv6Net {
    mapped::from_ipv4(parse_ipv4_prefix(text))
}

/// Returns a node that may also register these IPv4 prefixes.
fn with_ipv4_prefixes(mut node: AuthorizedNode, prefixes: &[&str]) -> AuthorizedNode {
    node.prefixes =
        prefixes.iter().map(|it| mapped_prefix(it)).chain(node.prefixes.iter().copied()).collect();
    node
}

/// Returns the config of a home agent for two routers, each with IPv4 prefixes of its own.
fn config() -> HomeAgentConfig {
    let first = with_ipv4_prefixes(
        authorized_node(HOME_ADDRESS, &[MOBILE_NETWORK_PREFIX]),
        &[IPV4_PREFIX, SECOND_IPV4_PREFIX],
    );
    let second = with_ipv4_prefixes(
        authorized_node(OTHER_HOME, &[SECOND_MOBILE_NETWORK_PREFIX]),
        &[PREFIX_OF_OTHER_NODE],
    );
    HomeAgentConfig { nodes: vec![first, second], ..agent::config() }
}

fn ipv4_home_option(text: &str, prefix: bool) -> MobilityOption<'static> {
    let net = parse_ipv4_prefix(text);
    MobilityOption::Ipv4HomeAddress { prefix_length: net.prefix_len(), prefix, address: net.addr() }
}

/// Returns status, length and address of each IPv4 Address Acknowledgement.
fn address_acknowledgements(seen: &ReceivedPacket) -> Vec<(u8, u8, Ipv4Addr)> {
    let header = MobilityHeader::parse(&seen.mobility_header).expect("a Mobility Header");
    let Ok(ParsedMobilityMessage::BindingAcknowledgement(acknowledgement)) = header.message() else {
        panic!("{seen:?}")
    };
    let answers = acknowledgement.options.iter().filter_map(|option| match option.expect("an option") {
        MobilityOption::Ipv4AddressAcknowledgement { status, prefix_length, address } => {
            Some((status, prefix_length, address))
        }
        _ => None,
    });
    answers.collect()
}

fn parse_ipv4_address(text: &str) -> Ipv4Addr {
    text.parse().expect("an IPv4 address")
}

/// Returns the IPv4 prefixes of the binding of [`HOME_ADDRESS`].
fn bound_ipv4_prefixes(agent: &TestAgent) -> Vec<String> {
    let binding = agent.home_binding().expect("bound");
    binding.prefixes.iter().filter_map(|it| mapped::to_ipv4(*it)).map(|it| it.to_string()).collect()
}

#[test]
fn home_agent_accepts_ipv4_prefixes_of_the_config_and_their_parts() {
    let mut agent = TestAgent::new(config());
    let update = TestUpdate::explicit_update(1)
        .with_option(ipv4_home_option(IPV4_PREFIX, true))
        .with_option(ipv4_home_option("192.0.2.64/27", true));
    let answer = agent.expect_acceptance(&update);
    assert_eq!(
        address_acknowledgements(&answer),
        [(0, 24, parse_ipv4_address("10.42.7.0")), (0, 27, parse_ipv4_address("192.0.2.64"))]
    );
    assert_eq!(bound_ipv4_prefixes(&agent), [IPV4_PREFIX, "192.0.2.64/27"]);
    assert_eq!(agent.home_binding().expect("bound").prefixes.last(), Some(&net(MOBILE_NETWORK_PREFIX)));
    let event = agent.events.iter().find_map(|event| match event {
        Event::Binding { prefixes, ipv4_prefixes, .. } => Some((prefixes.clone(), ipv4_prefixes.clone())),
        _ => None,
    });
    assert_eq!(
        event,
        Some((
            vec![net(MOBILE_NETWORK_PREFIX)],
            vec![parse_ipv4_prefix(IPV4_PREFIX), parse_ipv4_prefix("192.0.2.64/27")]
        ))
    );
    // RFC 5555 3.1.1: in a refresh the P flag "must be ignored". The address may be a host's.
    let answer = agent.expect_acceptance(
        &TestUpdate::explicit_update(2).with_option(ipv4_home_option("10.42.7.1/24", false)),
    );
    assert_eq!(address_acknowledgements(&answer), [(0, 24, parse_ipv4_address("10.42.7.1"))]);
    // An update that does not name the second prefix removes this prefix.
    assert_eq!(bound_ipv4_prefixes(&agent), [IPV4_PREFIX]);
    // The router may register a single address of its prefix.
    let answer = agent.expect_acceptance(
        &TestUpdate::explicit_update(3).with_option(ipv4_home_option("10.42.7.9/32", false)),
    );
    assert_eq!(address_acknowledgements(&answer), [(0, 32, parse_ipv4_address("10.42.7.9"))]);
    assert_eq!(bound_ipv4_prefixes(&agent), ["10.42.7.9/32"]);
}

#[test]
fn home_agent_refuses_each_ipv4_option_by_its_own_status() {
    for (option, status) in [
        (ipv4_home_option(PREFIX_OF_OTHER_NODE, true), 133),
        (ipv4_home_option("10.42.0.0/16", true), 133),
        (ipv4_home_option("10.42.7.0/23", true), 133),
        (ipv4_home_option("10.42.8.9/32", false), 130),
        (ipv4_home_option("0.0.0.0/32", false), 132),
        (ipv4_home_option("127.0.0.0/24", true), 131),
        (ipv4_home_option("224.0.0.0/24", true), 131),
        (ipv4_home_option("255.255.255.255/32", false), 131),
        (ipv4_home_option("0.1.2.0/24", true), 131),
        (
            MobilityOption::Ipv4HomeAddress {
                prefix_length: 0,
                prefix: true,
                address: parse_ipv4_address("10.42.7.0"),
            },
            131,
        ),
        (
            MobilityOption::Ipv4HomeAddress {
                prefix_length: 33,
                prefix: true,
                address: parse_ipv4_address("10.42.7.0"),
            },
            131,
        ),
        (
            MobilityOption::Ipv4HomeAddress {
                prefix_length: 63,
                prefix: false,
                address: parse_ipv4_address("10.42.7.1"),
            },
            131,
        ),
    ] {
        let mut agent = TestAgent::new(config());
        let answer = agent.expect_acceptance(
            &TestUpdate::explicit_update(1)
                .with_option(option)
                .with_option(ipv4_home_option(IPV4_PREFIX, true)),
        );
        let found = address_acknowledgements(&answer);
        assert_eq!(found.iter().map(|it| it.0).collect::<Vec<_>>(), [status, 0], "{option:?}");
        assert_eq!(found[0].1, 0, "RFC 5555 3.2.1: the length is zero in case of failure");
        // The refusal concerns neither the other option nor the IPv6 prefix.
        assert_eq!(bound_ipv4_prefixes(&agent), [IPV4_PREFIX]);
    }
}

/// RFC 3963 4.1: without the R flag the home agent forwards no mobile network.
#[test]
fn home_agent_prohibits_ipv4_prefixes_without_r_flag() {
    let mut agent = TestAgent::new(config());
    let answer = agent.expect_acceptance(
        &TestUpdate::node_update(1)
            .with_option(ipv4_home_option(IPV4_PREFIX, true))
            .with_option(ipv4_home_option(PREFIX_OF_OTHER_NODE, true)),
    );
    assert_eq!(address_acknowledgements(&answer).iter().map(|it| it.0).collect::<Vec<_>>(), [129, 133]);
    assert!(bound_ipv4_prefixes(&agent).is_empty());
    // Without the R flag, the home agent refuses a prefix that is shorter than 32 bits, although its option
    // lacks the P flag. It also refuses a prefix of 32 bits whose option has the P flag.
    let answer = agent.expect_acceptance(
        &TestUpdate::node_update(2)
            .with_option(ipv4_home_option(IPV4_PREFIX, false))
            .with_option(ipv4_home_option("10.42.7.9/32", true)),
    );
    assert_eq!(address_acknowledgements(&answer).iter().map(|it| it.0).collect::<Vec<_>>(), [129, 129]);
}

/// RFC 5555 3.1.1: without the P flag, a length of 32 bits is a single address.
#[test]
fn home_agent_binds_the_ipv4_home_address_of_a_mobile_node() {
    let nodes = vec![with_ipv4_prefixes(authorized_node(HOME_ADDRESS, &[]), &["192.0.2.7/32"])];
    let mut agent = TestAgent::new(HomeAgentConfig { nodes, ..agent::config() });
    let update = TestUpdate::node_update(1)
        .with_option(ipv4_home_option("192.0.2.7/32", false))
        .with_option(ipv4_home_option("192.0.2.8/32", false));
    let answer = agent.expect_acceptance(&update);
    assert_eq!(
        address_acknowledgements(&answer),
        [(0, 32, parse_ipv4_address("192.0.2.7")), (130, 0, parse_ipv4_address("192.0.2.8"))]
    );
    assert_eq!(bound_ipv4_prefixes(&agent), ["192.0.2.7/32"]);
    // Without the option the IPv4 home address is no longer bound.
    agent.expect_acceptance(&TestUpdate::node_update(2));
    assert!(bound_ipv4_prefixes(&agent).is_empty());
}

#[test]
fn mobile_node_registers_its_ipv4_home_address() {
    let mut setup = setup_with_ipv4(MobileRouterConfig {
        mode: RegistrationMode::Host,
        prefixes: Vec::new(),
        ipv4_prefixes: vec![parse_ipv4_prefix("192.0.2.7/32")],
        ..router_with_ipv4()
    });
    setup.agent.nodes = vec![with_ipv4_prefixes(authorized_node(HOME_ADDRESS, &[]), &["192.0.2.7/32"])];
    let mut pair = AgentAndRouters::new(setup);
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    assert_eq!(home_address_options(&pair.last_update()), [(32, false, parse_ipv4_address("192.0.2.7"))]);
    assert_eq!(prefix_states(&pair), [Ipv4PrefixState::Accepted]);
    pair.advance_seconds(50.0);
    assert_eq!(home_address_options(&pair.last_update()), [(32, false, parse_ipv4_address("192.0.2.7"))]);
}

/// RFC 5555 3.2.1: the home agent answers a request for any prefix with a prefix of the config, whose length
/// overrides the requested one.
#[test]
fn home_agent_chooses_a_prefix_of_the_config_for_the_unspecified_address() {
    let mut agent = TestAgent::new(config());
    let any = |length| ipv4_home_option(&format!("0.0.0.0/{length}"), true);
    let answer = agent.expect_acceptance(
        &TestUpdate::explicit_update(1).with_option(any(26)).with_option(any(30)).with_option(any(24)),
    );
    let found = address_acknowledgements(&answer);
    assert_eq!(
        found[..2],
        [(0, 26, parse_ipv4_address("192.0.2.64")), (0, 24, parse_ipv4_address("10.42.7.0"))]
    );
    assert_eq!(found[2].0, 133);
    assert_eq!(bound_ipv4_prefixes(&agent), [IPV4_PREFIX, SECOND_IPV4_PREFIX]);
}

/// RFC 3963 5.2: a router that names no prefix gets the prefixes of the config, of both families.
#[test]
fn router_in_implicit_mode_gets_all_ipv4_prefixes() {
    let mut agent = TestAgent::new(config());
    let answer = agent.expect_acceptance(&TestUpdate::implicit_update(1));
    assert_eq!(
        address_acknowledgements(&answer),
        [(0, 24, parse_ipv4_address("10.42.7.0")), (0, 26, parse_ipv4_address("192.0.2.64"))]
    );
    assert_eq!(bound_ipv4_prefixes(&agent), [IPV4_PREFIX, SECOND_IPV4_PREFIX]);
    // A router that names its IPv6 prefix registers explicitly, and names no IPv4 prefix.
    let answer = agent.expect_acceptance(&TestUpdate::explicit_update(2));
    assert!(address_acknowledgements(&answer).is_empty() && bound_ipv4_prefixes(&agent).is_empty());
    // A node without IPv4 prefixes gets no answer about any.
    let mut agent = TestAgent::new(agent::config());
    assert!(address_acknowledgements(&agent.expect_acceptance(&TestUpdate::implicit_update(1))).is_empty());
    // A router with IPv4 prefixes alone needs no IPv6 prefix.
    let only = with_ipv4_prefixes(authorized_node(HOME_ADDRESS, &[]), &[IPV4_PREFIX]);
    let mut agent = TestAgent::new(HomeAgentConfig { nodes: vec![only], ..agent::config() });
    agent.expect_acceptance(&TestUpdate::implicit_update(1).with_option(ipv4_home_option(IPV4_PREFIX, true)));
    assert_eq!(bound_ipv4_prefixes(&agent), [IPV4_PREFIX]);
    agent.expect_refusal(
        &TestUpdate::implicit_update(2).with_option(ipv4_home_option(PREFIX_OF_OTHER_NODE, true)),
        143,
    );
}

/// An IPv4-mapped prefix in a Mobile Network Prefix option is no IPv4 prefix.
#[test]
fn mapped_prefix_in_an_ipv6_option_is_invalid() {
    let mut agent = TestAgent::new(config());
    agent.expect_refusal(&TestUpdate::explicit_update(1).prefix("::ffff:10.42.7.0/120"), 141);
    agent.expect_refusal(&TestUpdate::implicit_update(2).prefix("::ffff:0.0.0.0/96"), 141);
    assert!(agent.home_binding().is_none());
}

#[test]
fn ipv4_prefixes_end_with_the_binding() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_option(ipv4_home_option(IPV4_PREFIX, true)));
    let before = agent.forwarding_changes;
    // A refresh without a change of the prefixes changes no forwarding.
    agent.expect_acceptance(&TestUpdate::explicit_update(2).with_option(ipv4_home_option(IPV4_PREFIX, true)));
    assert_eq!(agent.forwarding_changes, before);
    let answer = agent.expect_acceptance(
        &TestUpdate::explicit_update(3).with_option(ipv4_home_option(IPV4_PREFIX, true)).lifetime(0),
    );
    assert!(address_acknowledgements(&answer).is_empty() && agent.home_binding().is_none());
    assert!(agent.forwarding_changes > before);
    agent.expect_acceptance(&TestUpdate::explicit_update(4).with_option(ipv4_home_option(IPV4_PREFIX, true)));
    agent.advance_time(61.0);
    assert!(agent.home_binding().is_none());
}

/// RFC 5648: all bindings of a node share the prefixes.
#[test]
fn all_bindings_of_a_node_share_its_ipv4_prefixes() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(
        &TestUpdate::explicit_update(1)
            .with_bid(1, CARE_OF_ADDRESS)
            .with_option(ipv4_home_option(IPV4_PREFIX, true)),
    );
    agent.expect_acceptance(
        &TestUpdate::explicit_update(2)
            .with_bid(2, OTHER_CARE_OF_ADDRESS)
            .with_option(ipv4_home_option(IPV4_PREFIX, true))
            .with_option(ipv4_home_option(SECOND_IPV4_PREFIX, true)),
    );
    for binding in agent.home_agent.bindings().bindings_of(addr(HOME_ADDRESS)) {
        assert_eq!(
            *binding.prefixes,
            [mapped_prefix(IPV4_PREFIX), mapped_prefix(SECOND_IPV4_PREFIX), net(MOBILE_NETWORK_PREFIX)]
        );
    }
}

#[test]
fn ipv4_prefixes_survive_a_restart_unless_removed_from_the_config() {
    let mut agent = TestAgent::new(config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_option(ipv4_home_option(IPV4_PREFIX, true)));
    let stored = agent.home_agent.stored_bindings(agent.now, agent.wall_time());
    let text = serde_json::to_string(&stored).expect("JSON");
    assert!(text.contains(r#""prefixes":["2001:db8:a::/64"],"ipv4_prefixes":["10.42.7.0/24"]"#), "{text}");
    let restored = |text: &str, config: HomeAgentConfig| {
        let stored: Vec<StoredBinding> = serde_json::from_str(text).expect("the form of the file");
        let mut next = TestAgent::new(config);
        next.now = agent.now;
        let (now, wall) = (next.now, next.wall_time());
        next.home_agent.restore(now, wall, stored);
        next.take_answers();
        next
    };
    assert_eq!(bound_ipv4_prefixes(&restored(&text, config())), [IPV4_PREFIX]);
    assert!(restored(&text, agent::config()).home_binding().is_none(), "as for an IPv6 prefix");
    // Earlier versions wrote state files without IPv4 prefixes.
    let older = text.replace(r#","ipv4_prefixes":["10.42.7.0/24"]"#, "");
    assert!(bound_ipv4_prefixes(&restored(&older, config())).is_empty());
}

/// The home agent refuses an IPv4 care-of address in the router's own IPv4 prefix. It also refuses one by
/// which two routers would be in each other's prefixes.
#[test]
fn home_agent_refuses_ipv4_care_of_addresses_that_form_a_tunnel_loop() {
    let mut config = config();
    config.ipv4_address = Some(parse_ipv4_address("192.0.2.1"));
    let inside = |update: TestUpdate| update.sent_on_ipv4_network();
    let mut agent = TestAgent::new(config);
    let own = "udp:10.42.7.9:4191";
    let update = inside(TestUpdate::explicit_update(1)).with_option(ipv4_home_option(IPV4_PREFIX, true));
    let answers = agent.receive_inside_tunnel("udp:192.0.2.1:4191", own, &update.to_packet());
    assert_eq!(answers[0].status(), 174, "a care-of address in the own prefix");
    let other = "udp:10.42.8.9:4191";
    let update = inside(TestUpdate::explicit_update(2)).with_option(ipv4_home_option(IPV4_PREFIX, true));
    let answers = agent.receive_inside_tunnel("udp:192.0.2.1:4191", other, &update.to_packet());
    assert_eq!(answers[0].status(), 0, "behind the other router");
    let mut of_other = TestUpdate::implicit_update(1)
        .prefix(SECOND_MOBILE_NETWORK_PREFIX)
        .with_option(ipv4_home_option(PREFIX_OF_OTHER_NODE, true));
    of_other.source = addr(OTHER_HOME);
    of_other.home_address = None;
    let answers = agent.receive_inside_tunnel("udp:192.0.2.1:4191", own, &of_other.to_packet());
    assert_eq!(answers[0].status(), 174, "each behind the other");
}

fn any_option() -> impl Strategy<Value = MobilityOption<'static>> {
    let address = prop_oneof![
        any::<u32>(),
        (0u32..1024).prop_map(|low| u32::from(Ipv4Addr::new(10, 42, 6, 0)) + low),
        Just(0),
    ];
    (0u8..64, any::<bool>(), address).prop_map(|(prefix_length, prefix, address)| {
        MobilityOption::Ipv4HomeAddress { prefix_length, prefix, address: address.into() }
    })
}

proptest! {
/// Each option has an answer, and each accepted prefix belongs to the router's config. No prefix of one
/// router overlaps a prefix of the other.
#[test]
fn no_router_gets_an_ipv4_prefix_of_another(
first in prop::collection::vec(any_option(), 0..6),
second in prop::collection::vec(any_option(), 0..6),
) {
let mut agent = TestAgent::new(config());
let of_second = (OTHER_HOME, SECOND_MOBILE_NETWORK_PREFIX, &second);
let registrations = [(HOME_ADDRESS, MOBILE_NETWORK_PREFIX, &first), of_second];
for (home_address, prefix, options) in registrations {
let update = TestUpdate::implicit_update(1).for_home_address(home_address).prefix(prefix);
let update = options.iter().fold(update, |update, option| update.with_option(*option));
let answer = agent.expect_acceptance(&update);
prop_assert_eq!(address_acknowledgements(&answer).len(), options.len());
for ((status, length, _), option) in address_acknowledgements(&answer).into_iter().zip(options) {
let MobilityOption::Ipv4HomeAddress { prefix_length, .. } = option else { continue };
prop_assert!([0, 130, 131, 132, 133].contains(&status));
prop_assert_eq!(status == 0, length > 0);
prop_assert!(status != 0 || *prefix_length > 0);
}
}
let of = |home_address: &str| {
let binding = agent.binding_of(home_address).expect("bound");
binding.prefixes.iter().filter_map(|it| mapped::to_ipv4(*it)).collect::<Vec<_>>()
};
prop_assert!(
of(HOME_ADDRESS).iter().all(|it|
parse_ipv4_prefix(IPV4_PREFIX).contains(it)
|| parse_ipv4_prefix(SECOND_IPV4_PREFIX).contains(it)),
);
prop_assert!(of(OTHER_HOME).iter().all(|it| parse_ipv4_prefix(PREFIX_OF_OTHER_NODE).contains(it)));
}
}

// The following tests are about the mobile router.

fn router_with_ipv4() -> MobileRouterConfig {
    MobileRouterConfig {
        ipv4_prefixes: vec![parse_ipv4_prefix(IPV4_PREFIX), parse_ipv4_prefix(SECOND_IPV4_PREFIX)],
        ..router_config()
    }
}

fn setup_with_ipv4(router: MobileRouterConfig) -> PairSetup {
    PairSetup { agent: config(), routers: vec![router], ..PairSetup::plain_setup() }
}

/// Returns the IPv4 Home Address options of an update: length, P flag, address.
fn home_address_options(seen: &ReceivedPacket) -> Vec<(u8, bool, Ipv4Addr)> {
    let header = MobilityHeader::parse(&seen.mobility_header).expect("a Mobility Header");
    let Ok(ParsedMobilityMessage::BindingUpdate(update)) = header.message() else { panic!("{seen:?}") };
    let options = update.options.iter().filter_map(|option| match option.expect("an option") {
        MobilityOption::Ipv4HomeAddress { prefix_length, prefix, address } => {
            Some((prefix_length, prefix, address))
        }
        _ => None,
    });
    options.collect()
}

fn prefix_states(pair: &AgentAndRouters) -> Vec<Ipv4PrefixState> {
    pair.first_router().ipv4_prefixes().iter().map(|(_, state)| *state).collect()
}

/// Returns prefix, status and acceptance of each event about an IPv4 prefix.
fn reported_prefixes(pair: &AgentAndRouters) -> Vec<(String, Option<u8>, bool)> {
    let events = pair.events.iter().filter_map(|(_, _, event)| match event {
        Event::Ipv4Prefix { prefix, status, accepted, .. } => Some((prefix.to_string(), *status, *accepted)),
        _ => None,
    });
    events.collect()
}

#[test]
fn router_registers_its_ipv4_prefixes_and_repeats_them_in_each_refresh() {
    let mut pair = AgentAndRouters::new(setup_with_ipv4(router_with_ipv4()));
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    let expected =
        [(24, true, parse_ipv4_address("10.42.7.0")), (26, true, parse_ipv4_address("192.0.2.64"))];
    assert_eq!(home_address_options(&pair.last_update()), expected);
    assert_eq!(prefix_states(&pair), [Ipv4PrefixState::Accepted; 2]);
    assert_eq!(
        reported_prefixes(&pair),
        [(IPV4_PREFIX.to_owned(), Some(0), true), (SECOND_IPV4_PREFIX.to_owned(), Some(0), true)]
    );
    pair.clear_records();
    pair.advance_seconds(50.0);
    assert_eq!(home_address_options(&pair.last_update()), expected);
    assert!(reported_prefixes(&pair).is_empty(), "only changes are events");
    // The answers survive a reload of the config, so that the tunnel goes on.
    pair.reconfigure_router(0);
    assert_eq!(prefix_states(&pair), [Ipv4PrefixState::Accepted; 2]);
    // The de-registration has no prefixes (RFC 3963 5.2).
    pair.run_on_router(0, |machine, now, wall| machine.handle_shutdown(now, wall));
    assert!(home_address_options(&pair.last_update()).is_empty());
}

#[test]
fn router_in_implicit_mode_names_no_ipv4_prefix_and_reads_the_answers() {
    let mut pair = AgentAndRouters::new(setup_with_ipv4(MobileRouterConfig {
        mode: RegistrationMode::Implicit,
        ..router_with_ipv4()
    }));
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    assert!(home_address_options(&pair.last_update()).is_empty());
    assert_eq!(prefix_states(&pair), [Ipv4PrefixState::Accepted; 2]);
}

#[test]
fn router_uses_only_the_ipv4_prefixes_that_the_home_agent_accepts() {
    let mut pair = AgentAndRouters::new(setup_with_ipv4(MobileRouterConfig {
        ipv4_prefixes: vec![parse_ipv4_prefix(IPV4_PREFIX), parse_ipv4_prefix(PREFIX_OF_OTHER_NODE)],
        ..router_config()
    }));
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.register_router();
    assert_eq!(prefix_states(&pair), [Ipv4PrefixState::Accepted, Ipv4PrefixState::Refused(133)]);
    assert_eq!(
        pair.first_router().accepted_ipv4_prefixes().collect::<Vec<_>>(),
        [parse_ipv4_prefix(IPV4_PREFIX)]
    );
    // The operator of the home agent adds the refused prefix to the config: the router uses it after the next
    // refresh.
    pair.agent_config.nodes[0] = with_ipv4_prefixes(
        authorized_node(HOME_ADDRESS, &[MOBILE_NETWORK_PREFIX]),
        &[IPV4_PREFIX, PREFIX_OF_OTHER_NODE],
    );
    pair.agent_config.nodes.truncate(1);
    pair.restart_agent(true);
    pair.clear_records();
    pair.advance_seconds(50.0);
    assert_eq!(prefix_states(&pair), [Ipv4PrefixState::Accepted; 2]);
    assert_eq!(reported_prefixes(&pair), [(PREFIX_OF_OTHER_NODE.to_owned(), Some(0), true)]);
}

/// RFC 5555 4.4.2: without the option in the acknowledgement the router has no IPv4 binding.
#[test]
fn router_reports_once_that_home_agent_does_not_support_ipv4_prefixes() {
    let mut pair = AgentAndRouters::new(setup_with_ipv4(router_with_ipv4()));
    pair.is_agent_down = true;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    pair.advance_seconds(3.0);
    for _ in 0..3 {
        pair.answer_last_update(0).expect("an acknowledgement");
        assert!(pair.first_router().registration().is_some(), "IPv6 goes on");
        assert_eq!(prefix_states(&pair), [Ipv4PrefixState::Unsupported; 2]);
        pair.advance_seconds(50.0);
    }
    assert_eq!(
        reported_prefixes(&pair),
        [(IPV4_PREFIX.to_owned(), None, false), (SECOND_IPV4_PREFIX.to_owned(), None, false)]
    );
    assert_eq!(pair.first_router().accepted_ipv4_prefixes().count(), 0);
}

/// RFC 5555 3.2.1: every status from 128 on refuses the prefix, and the length in the answer overrides the
/// requested one.
#[test]
fn router_applies_every_ipv4_status_and_prefix_length_of_the_answer() {
    let mut pair = AgentAndRouters::new(setup_with_ipv4(router_with_ipv4()));
    pair.is_agent_down = true;
    pair.attach_uplink(0, "wifi", CARE_OF_ADDRESS);
    for (status, prefix_length, expected) in [
        (128, 0, Ipv4PrefixState::Refused(128)),
        (129, 0, Ipv4PrefixState::Refused(129)),
        (130, 0, Ipv4PrefixState::Refused(130)),
        (131, 0, Ipv4PrefixState::Refused(131)),
        (132, 0, Ipv4PrefixState::Refused(132)),
        (133, 24, Ipv4PrefixState::Refused(133)),
        (255, 0, Ipv4PrefixState::Refused(255)),
        (0, 24, Ipv4PrefixState::Accepted),
        (0, 16, Ipv4PrefixState::Accepted),
        (127, 24, Ipv4PrefixState::Accepted),
        (0, 25, Ipv4PrefixState::OtherLength(25)),
        (0, 0, Ipv4PrefixState::OtherLength(0)),
    ] {
        pair.advance_seconds(50.0);
        let address = parse_ipv4_address("10.42.7.0");
        let option = MobilityOption::Ipv4AddressAcknowledgement { status, prefix_length, address };
        let mut answer = TestAcknowledgement::answering(&pair.last_update(), 0);
        answer.options.push(option);
        pair.deliver_to_router(0, &answer.to_packet()).expect("an acknowledgement");
        assert_eq!(prefix_states(&pair), [expected, Ipv4PrefixState::Unsupported], "status {status}");
    }
}

/// With Binding Identifiers (RFC 5648) each update names the IPv4 prefixes too, also over an IPv4 uplink.
#[test]
fn router_with_bids_registers_ipv4_prefixes_over_all_uplinks() {
    let router = MobileRouterConfig {
        ipv4_prefixes: vec![parse_ipv4_prefix(IPV4_PREFIX)],
        ..vehicle_on_road::config()
    };
    let mut agent = vehicle_on_road::agent_config();
    agent.nodes[0] = with_ipv4_prefixes(agent.nodes[0].clone(), &[IPV4_PREFIX]);
    let mut road = VehicleOnRoad::with_configs(router, agent, 1);
    road.attach_all_uplinks();
    road.advance_seconds(5.0);
    assert_eq!(road.bound_bids(), [1, 2, 3]);
    assert_eq!(road.router.accepted_ipv4_prefixes().collect::<Vec<_>>(), [parse_ipv4_prefix(IPV4_PREFIX)]);
    for binding in road.agent.bindings().bindings_of(addr(HOME_ADDRESS)) {
        assert!(binding.prefixes.contains(&mapped_prefix(IPV4_PREFIX)));
    }
    road.detach_uplink("wifi");
    road.advance_seconds(5.0);
    assert_eq!(road.router.accepted_ipv4_prefixes().count(), 1);
    assert!(
        road.agent
            .bindings()
            .bindings_of(addr(HOME_ADDRESS))
            .all(|binding| binding.prefixes.contains(&mapped_prefix(IPV4_PREFIX)))
    );
}
