//! Home agent: authentication and replay protection by RFC 4285 (conformance item 59).

use std::time::Duration;

use carnet_base::WallTime;
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::{Authentication, MobilityDrop, ReplayProtection, SecurityAssociation};
use carnet_wire::mobility::MobilityOption;

use crate::agent::{TestAgent, authenticated_config, config};
use crate::test_messages::*;

fn wrong_association() -> SecurityAssociation {
    SecurityAssociation { key: [7; 16].into(), ..test_association() }
}

/// RFC 4285 5.1.1: "The Home Agent MUST include this option in the BA if it received this option".
#[test]
fn an_authentic_update_is_accepted_and_the_answer_signed() {
    let mut agent = TestAgent::new(authenticated_config());
    let answer = agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
    assert!(answer.is_signed(&test_association(), CARE_OF_ADDRESS, HOME_ADDRESS));
    assert_eq!(answer.options().spi, Some(300));
}

/// RFC 4285 5.1: the MAC covers the care-of address that the update registers.
#[test]
fn mac_covers_the_alternate_care_of_address() {
    let mut agent = TestAgent::new(authenticated_config());
    let answer = agent.expect_acceptance(
        &TestUpdate::explicit_update(1)
            .with_alternate_care_of_address(OTHER_CARE_OF_ADDRESS)
            .with_signature(),
    );
    assert!(answer.is_signed(&test_association(), OTHER_CARE_OF_ADDRESS, HOME_ADDRESS));
}

/// RFC 4285 5.1.1: "the Home Agent MUST send BA with Status Code MIPV6-AUTH-FAIL", signed.
#[test]
fn wrong_mac_gets_status_146() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
    let answer = agent.expect_refusal(
        &TestUpdate::explicit_update(2).from(OTHER_CARE_OF_ADDRESS).with_signature_by(wrong_association()),
        146,
    );
    assert!(answer.is_signed(&test_association(), OTHER_CARE_OF_ADDRESS, HOME_ADDRESS));
    // The home agent has not stored the number of the forged update: it compares the next authentic number
    // with the last authentic one.
    agent.expect_acceptance(&TestUpdate::explicit_update(2).with_signature());
}

/// The home agent sends status 146 only to the care-of address that the update would register, at most once
/// in 10 s for a node. The answer is signed, so an attacker must not choose the address or number of signed
/// messages.
#[test]
fn status_146_is_sent_rarely_and_only_to_care_of_address() {
    let mut two = authenticated_config();
    two.nodes.push(crate::agent::authorized_node("2001:db8:1::5678", &[SECOND_MOBILE_NETWORK_PREFIX]));
    two.nodes[1].authentication = Authentication::SharedKey(test_association());
    let mut agent = TestAgent::new(two);
    let forged = |sequence: u16| TestUpdate::explicit_update(sequence).with_signature_by(wrong_association());
    let elsewhere = forged(1).with_alternate_care_of_address(OTHER_CARE_OF_ADDRESS);
    assert_eq!(agent.expect_drop(&elsewhere.to_packet()), MobilityDrop::AuthenticationFailed);
    agent.expect_refusal(&forged(2), 146);
    agent.events.clear();
    for sequence in 3..100 {
        assert_eq!(agent.expect_drop(&forged(sequence).to_packet()), MobilityDrop::RateLimited);
        agent.advance_time(0.1);
    }
    assert!(agent.events.is_empty());
    // Each node has its own limit of one answer with status 146 in ten seconds.
    agent.expect_refusal(&forged(1).for_home_address("2001:db8:1::5678"), 146);
    agent.advance_time(0.4);
    agent.expect_refusal(&forged(100), 146);
    agent.expect_acceptance(&TestUpdate::explicit_update(101).with_signature());
}

/// An attacker replays authentic updates that the home agent refuses: the home agent answers at most three a
/// second.
#[test]
fn answers_to_refused_updates_are_rate_limited() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(&TestUpdate::explicit_update(10).with_signature());
    let recorded = TestUpdate::explicit_update(9).with_signature().to_packet();
    agent.events.clear();
    let mut answers: usize = (0..3).map(|_| agent.receive_packet(&recorded).len()).sum();
    assert_eq!(answers, 3);
    assert_eq!(agent.expect_drop(&recorded), MobilityDrop::RateLimited);
    for _ in 0..100 {
        agent.advance_time(0.1);
        answers += agent.receive_packet(&recorded).len();
    }
    assert!((30..=33).contains(&answers), "{answers} answers in 10 s");
    assert_eq!(agent.events.len(), answers);
    agent.expect_acceptance(&TestUpdate::explicit_update(11).with_signature());
}

/// An attacker sends an authentic message from another source: without an Alternate Care-of Address the MAC
/// fails.
#[test]
fn update_from_another_source_address_gets_status_146() {
    let mut agent = TestAgent::new(authenticated_config());
    let genuine = TestUpdate::explicit_update(1).with_signature();
    let stolen = TestUpdate { source: addr(OTHER_CARE_OF_ADDRESS), ..genuine.clone() };
    let answers = agent.receive_packet(&stolen.packet_around(&mut genuine.mobility_header()));
    assert_eq!(answers[0].status(), 146);
    assert!(agent.home_binding().is_none());
}

/// An attacker replays an authentic message in the other address family. The MAC covers the address that the
/// message names, so the home agent registers only that address. An update with an IPv6 care-of address,
/// replayed inside UDP, does not bind the node to the attacker.
#[test]
fn a_signed_update_that_is_moved_into_udp_creates_no_binding() {
    let named =
        TestUpdate::explicit_update(1).with_alternate_care_of_address(CARE_OF_ADDRESS).with_signature();
    // RFC 4285 5.1: the MAC covers the care-of address also if no option names it.
    let unnamed = TestUpdate::explicit_update(1).with_signature();
    let identified = TestUpdate::explicit_update(1).with_known_bid(1).with_signature();
    let ended = TestUpdate::explicit_update(1).lifetime(0).with_signature();
    for genuine in [&named, &unnamed, &identified, &ended] {
        let mut agent = TestAgent::new(authenticated_config());
        // The attacker sends the packet unchanged, and with the source that it would have inside UDP.
        for packet in [
            genuine.to_packet(),
            named.clone().sent_on_ipv4_network().packet_around(&mut named.mobility_header()),
        ] {
            let answers = agent.receive_inside_tunnel("udp:10.0.0.1:4191", "udp:198.51.100.66:4191", &packet);
            assert_eq!(answers[0].status(), 174, "{genuine:?}");
            assert!(agent.home_binding().is_none());
        }
        // The node's own update afterwards is still accepted.
        agent.expect_acceptance(&named);
    }
}

/// An attacker who forwards a Binding Update from another IPv4 address looks like a NAT (RFC 5555 4.2). If
/// the operator says that there is no NAT, only the address that the message names counts.
#[test]
fn home_agent_without_nat_binds_only_the_care_of_address_in_the_message() {
    let here = || MobilityOption::Ipv4CareOfAddress("192.0.2.77".parse().expect("an IPv4 address"));
    let forms = [
        TestUpdate::explicit_update(1).sent_on_ipv4_network().with_option(here()).with_signature(),
        TestUpdate::explicit_update(1).sent_on_ipv4_network().with_bid(1, "192.0.2.77").with_signature(),
        TestUpdate::explicit_update(1)
            .sent_on_ipv4_network()
            .with_bid(1, "192.0.2.77")
            .with_bid(2, CARE_OF_ADDRESS)
            .with_signature(),
    ];
    for update in forms {
        for nat in [true, false] {
            let mut config = authenticated_config();
            config.nodes[0].nat = nat;
            let mut agent = TestAgent::new(config);
            let receive = |agent: &mut TestAgent, from: &str, update: &TestUpdate| {
                let answers = agent.receive_inside_tunnel("udp:10.0.0.1:4191", from, &update.to_packet());
                answers[0].status()
            };
            let status = receive(&mut agent, "udp:198.51.100.66:4191", &update);
            assert_eq!((status == 174, agent.home_binding().is_none()), (!nat, !nat), "{update:?}");
            if !nat {
                assert_eq!(receive(&mut agent, "udp:192.0.2.77:4191", &update), 0);
            }
        }
    }
    // An update that names no care-of address renews the registered binding if it comes from the registered
    // address.
    let mut config = authenticated_config();
    config.nodes[0].nat = false;
    let mut agent = TestAgent::new(config);
    let first =
        TestUpdate::explicit_update(1).sent_on_ipv4_network().with_bid(1, "192.0.2.77").with_signature();
    assert_eq!(
        agent.receive_inside_tunnel("udp:10.0.0.1:4191", "udp:192.0.2.77:4191", &first.to_packet())[0]
            .status(),
        0
    );
    let next = TestUpdate::explicit_update(2).sent_on_ipv4_network().with_known_bid(1).with_signature();
    for (from, status) in [("udp:198.51.100.66:4191", 174), ("udp:192.0.2.77:4191", 0)] {
        assert_eq!(
            agent.receive_inside_tunnel("udp:10.0.0.1:4191", from, &next.to_packet())[0].status(),
            status
        );
    }
}

/// An update that names an IPv4 care-of address, replayed outside UDP, does not bind the node to the
/// attacker.
#[test]
fn a_signed_update_that_is_moved_out_of_udp_creates_no_binding() {
    let mut agent = TestAgent::new(authenticated_config());
    let option = MobilityOption::Ipv4CareOfAddress("192.0.2.77".parse().expect("an IPv4 address"));
    let genuine = TestUpdate::explicit_update(1).sent_on_ipv4_network().with_option(option).with_signature();
    let stolen = TestUpdate {
        source: addr(OTHER_CARE_OF_ADDRESS),
        home_address: Some(addr(HOME_ADDRESS)),
        ..genuine.clone()
    };
    let answers = agent.receive_packet(&stolen.packet_around(&mut genuine.mobility_header()));
    assert_eq!(answers[0].status(), 146);
    assert!(agent.home_binding().is_none());
    let answers =
        agent.receive_inside_tunnel("udp:10.0.0.1:4191", "udp:192.0.2.77:4191", &genuine.to_packet());
    assert_eq!(answers[0].status(), 0);
}

/// RFC 4285 5: without the option, or with an unknown SPI, "silently discard".
#[test]
fn update_without_authentication_gets_no_answer() {
    let mut agent = TestAgent::new(authenticated_config());
    assert_eq!(
        agent.expect_drop(&TestUpdate::explicit_update(1).to_packet()),
        MobilityDrop::AuthenticationMissing
    );
    let other = SecurityAssociation { spi: 301, ..test_association() };
    let update = TestUpdate::explicit_update(1).with_signature_by(other);
    assert_eq!(agent.expect_drop(&update.to_packet()), MobilityDrop::UnknownSpi);
    agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
    agent.expect_drop(&TestUpdate::explicit_update(2).lifetime(0).to_packet());
    agent.expect_drop(&TestUpdate::explicit_update(2).sent_on_home_link().lifetime(0).to_packet());
}

/// RFC 4285 5: the authentication option "MUST be the last option in a message".
#[test]
fn update_with_option_after_authenticator_gets_no_answer() {
    let mut agent = TestAgent::new(authenticated_config());
    let update = TestUpdate::implicit_update(1);
    let association = test_association();
    let mut header = carnet_wire::mobility::MobilityHeaderBuilder::binding_update(1, ROUTER_FLAGS, 15)
        .option(&association.empty_authentication_option())
        .option(&MobilityOption::AlternateCareOfAddress(addr(CARE_OF_ADDRESS)))
        .finish();
    association.sign(&mut header, addr(CARE_OF_ADDRESS), addr(HOME_ADDRESS));
    let packet = update.packet_around(&mut header);
    agent.expect_drop(&packet);
}

/// RFC 4285 5.1.1: the home agent ignores the option of a node that has no security association.
#[test]
fn home_agent_ignores_authentication_option_of_node_without_key() {
    let mut agent = TestAgent::new(config());
    let answer = agent.expect_acceptance(&TestUpdate::explicit_update(1).with_signature());
    assert_eq!(answer.options().spi, None);
}

/// Refusals of authentic updates are signed as well.
#[test]
fn refusing_acknowledgements_are_signed() {
    let mut agent = TestAgent::new(authenticated_config());
    agent.expect_acceptance(&TestUpdate::explicit_update(5).with_signature());
    for (update, status) in [
        (TestUpdate::explicit_update(5).with_signature(), 135),
        (TestUpdate::explicit_update(6).prefix(SECOND_MOBILE_NETWORK_PREFIX).with_signature(), 142),
        (TestUpdate::node_update(6).with_signature(), 139),
    ] {
        assert!(
            agent.expect_refusal(&update, status).is_signed(
                &test_association(),
                CARE_OF_ADDRESS,
                HOME_ADDRESS
            ),
            "{status}"
        );
    }
}

/// RFC 6275 9.5.1 with RFC 4285 6: the home agent remembers the number after the binding has ended, so that
/// old messages cannot be replayed.
#[test]
fn home_agent_remembers_sequence_number_after_the_binding_ends() {
    let mut agent = TestAgent::new(authenticated_config());
    let recorded = TestUpdate::explicit_update(10).with_signature();
    agent.expect_acceptance(&recorded);
    agent.expect_acceptance(&TestUpdate::implicit_update(11).lifetime(0).with_signature());
    agent.advance_time(3600.0);
    assert_eq!(agent.expect_refusal(&recorded, 135).sequence(), 11);
    agent.expect_acceptance(&TestUpdate::explicit_update(12).lifetime(1).with_signature());
    agent.advance_time(3600.0);
    assert!(agent.home_binding().is_none());
    assert_eq!(agent.expect_refusal(&TestUpdate::explicit_update(12).with_signature(), 135).sequence(), 12);
    agent.expect_acceptance(&TestUpdate::explicit_update(13).with_signature());
}

// The following tests are about timestamps in Binding Updates (RFC 4285 6).

const TIMESTAMP_WINDOW: Duration = Duration::from_secs(7);

fn timestamp_association() -> SecurityAssociation {
    SecurityAssociation {
        replay: ReplayProtection::Timestamp { window: TIMESTAMP_WINDOW },
        ..test_association()
    }
}

fn agent_with_timestamps() -> TestAgent {
    let mut timed: HomeAgentConfig = authenticated_config();
    timed.nodes[0].authentication = Authentication::SharedKey(timestamp_association());
    TestAgent::new(timed)
}

fn update_with_timestamp(sequence: u16, at: WallTime) -> TestUpdate {
    TestUpdate::explicit_update(sequence)
        .with_option(MobilityOption::MessageIdentifier(at.to_ntp()))
        .with_signature()
}

fn subtract_from_wall_time(wall: WallTime, by: Duration) -> WallTime {
    WallTime::from_unix_nanos(wall.as_unix_nanos() - by.as_nanos() as u64)
}

/// RFC 4285 6: "the Home Agent copies the entire Timestamp field".
#[test]
fn an_acknowledgement_returns_a_valid_timestamp_unchanged() {
    let mut agent = agent_with_timestamps();
    let at = subtract_from_wall_time(agent.wall_time(), Duration::from_millis(6900));
    assert_eq!(agent.expect_acceptance(&update_with_timestamp(1, at)).options().timestamp, Some(at.to_ntp()));
    let at = agent.wall_time() + Duration::from_millis(6900);
    assert_eq!(agent.expect_acceptance(&update_with_timestamp(2, at)).options().timestamp, Some(at.to_ntp()));
}

/// RFC 4285 6: the home agent answers a timestamp outside the window with status 144. The answer's timestamp
/// has the high half of the home agent's clock and the low half of the update's.
#[test]
fn timestamp_outside_the_window_gets_status_144() {
    let mut agent = agent_with_timestamps();
    for at in [
        subtract_from_wall_time(agent.wall_time(), Duration::from_secs(8)),
        agent.wall_time() + Duration::from_secs(8),
    ] {
        let answer = agent.expect_refusal(&update_with_timestamp(1, at), 144);
        let told = answer.options().timestamp.expect("a timestamp");
        assert_eq!(told >> 32, agent.wall_time().to_ntp() >> 32);
        assert_eq!(told & 0xffff_ffff, at.to_ntp() & 0xffff_ffff);
        assert!(answer.is_signed(&timestamp_association(), CARE_OF_ADDRESS, HOME_ADDRESS));
        assert!(agent.home_binding().is_none());
    }
}

/// RFC 4285 6: a timestamp "MUST be greater than all previously accepted timestamps".
#[test]
fn timestamp_not_later_than_the_last_gets_status_144() {
    let mut agent = agent_with_timestamps();
    let at = agent.wall_time();
    agent.expect_acceptance(&update_with_timestamp(1, at));
    agent.expect_refusal(&update_with_timestamp(2, at), 144);
    agent.expect_refusal(&update_with_timestamp(3, subtract_from_wall_time(at, Duration::from_secs(1))), 144);
    agent.expect_acceptance(&update_with_timestamp(4, at + Duration::from_millis(1)));
}

/// RFC 4285 6: the home agent remembers the timestamp after the binding has ended.
#[test]
fn home_agent_remembers_timestamp_after_the_binding_ends() {
    let mut agent = agent_with_timestamps();
    let at = agent.wall_time() + Duration::from_secs(6);
    let recorded = update_with_timestamp(1, at);
    agent.expect_acceptance(&recorded);
    let later = at + Duration::from_millis(1);
    agent.expect_acceptance(
        &TestUpdate::implicit_update(2)
            .lifetime(0)
            .with_option(MobilityOption::MessageIdentifier(later.to_ntp()))
            .with_signature(),
    );
    agent.advance_time(11.0);
    agent.expect_refusal(&recorded, 144);
}

/// RFC 4285 6: a home agent that demands timestamps answers an update without one with status 145.
#[test]
fn missing_timestamp_gets_status_145() {
    let mut agent = agent_with_timestamps();
    agent.expect_refusal(&TestUpdate::explicit_update(1).with_signature(), 145);
}

/// RFC 4285 6: the home agent checks the timestamp "after successful authentication".
#[test]
fn the_mac_is_checked_before_the_timestamp() {
    let mut agent = agent_with_timestamps();
    let at = subtract_from_wall_time(agent.wall_time(), Duration::from_secs(100));
    let update = TestUpdate::explicit_update(1).with_option(MobilityOption::MessageIdentifier(at.to_ntp()));
    agent.expect_refusal(&update.clone().with_signature_by(wrong_association()), 146);
    agent.expect_drop(&update.to_packet());
}

/// RFC 4285 6: "When the Home Agent receives the ... option in Binding Update, it MUST include" it.
#[test]
fn home_agent_returns_a_timestamp_that_it_did_not_require() {
    let mut agent = TestAgent::new(authenticated_config());
    let at = agent.wall_time();
    assert_eq!(agent.expect_acceptance(&update_with_timestamp(1, at)).options().timestamp, Some(at.to_ntp()));
    let elsewhere = update_with_timestamp(1, at).for_home_address("2001:db8:99::1");
    assert_eq!(agent.expect_refusal(&elsewhere, 132).options().timestamp, Some(at.to_ntp()));
}

/// The home agent sends no answer, but logs the operator's mistake: once for each home address and cause,
/// however often the router tries.
#[test]
fn ignored_updates_are_reported_to_operator() {
    let mut agent = TestAgent::new(authenticated_config());
    let other = SecurityAssociation { spi: 301, ..test_association() };
    for sequence in 1..50 {
        agent
            .expect_drop(&TestUpdate::explicit_update(sequence).with_signature_by(other.clone()).to_packet());
        agent.expect_drop(
            &TestUpdate::explicit_update(sequence)
                .for_home_address("2001:db8:1::9")
                .with_signature()
                .to_packet(),
        );
        agent.expect_drop(&TestUpdate::explicit_update(sequence).to_packet());
        agent.advance_time(1.0);
    }
    let said: Vec<&str> = agent.warnings();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].contains("SPI is 301, expected 300") && said[0].contains(HOME_ADDRESS), "{said:?}");
    assert!(
        said[1].contains("no [[home_agent.mobile_router]]") && said[1].contains("2001:db8:1::9"),
        "{said:?}"
    );
    assert!(said[2].contains("no authentication option, expected one with SPI 300"), "{said:?}");
    agent.events.clear();
    agent.advance_time(600.0);
    agent.expect_drop(&TestUpdate::explicit_update(1).with_signature_by(other).to_packet());
    assert_eq!(agent.warnings().len(), 1, "later it is said again");
}

/// An unauthenticated source that tries all home addresses fills neither the log nor the memory.
#[test]
fn unknown_sources_do_not_flood_the_log() {
    let mut agent = TestAgent::new(authenticated_config());
    for node in 0x2000..0x2400 {
        agent.expect_drop(
            &TestUpdate::explicit_update(1)
                .for_home_address(&format!("2001:db8:1::{node:x}"))
                .with_signature()
                .to_packet(),
        );
    }
    assert_eq!(agent.warnings().len(), 5);
}
