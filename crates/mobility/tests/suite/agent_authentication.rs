//! Home agent: authentication and replay protection by RFC 4285 (conformance item 59).

use std::time::Duration;

use carnet_base::WallTime;
use carnet_mobility::home_agent::HomeAgentConfig;
use carnet_mobility::{Authentication, MobilityDrop, ReplayProtection, SecurityAssociation};
use carnet_wire::mobility::MobilityOption;

use crate::agent::{Agent, authenticated, config};
use crate::craft::*;

fn wrong_key() -> SecurityAssociation {
    SecurityAssociation { key: [7; 16].into(), ..association() }
}

/// RFC 4285 5.1.1: "The Home Agent MUST include this option in the BA if it received this option".
#[test]
fn an_authentic_update_is_accepted_and_the_answer_signed() {
    let mut agent = Agent::new(authenticated());
    let answer = agent.accept(&Update::explicit(1).signed());
    assert!(answer.is_signed(&association(), CARE_OF, HOME));
    assert_eq!(answer.options().spi, Some(300));
}

/// RFC 4285 5.1: the MAC covers the care-of address that the update registers.
#[test]
fn the_alternate_care_of_address_is_the_one_in_the_mac() {
    let mut agent = Agent::new(authenticated());
    let answer = agent.accept(&Update::explicit(1).alternate(OTHER_CARE_OF).signed());
    assert!(answer.is_signed(&association(), OTHER_CARE_OF, HOME));
}

/// RFC 4285 5.1.1: "the Home Agent MUST send BA with Status Code MIPV6-AUTH-FAIL", signed.
#[test]
fn a_wrong_mac_is_answered_146() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(1).signed());
    let answer = agent.refuse(&Update::explicit(2).from(OTHER_CARE_OF).signed_by(wrong_key()), 146);
    assert!(answer.is_signed(&association(), OTHER_CARE_OF, HOME));
    // The forged update's number did not count: the home agent compares the next authentic number with the
    // last authentic one.
    agent.accept(&Update::explicit(2).signed());
}

/// The home agent sends status 146 only to the care-of address that the update would register, at most once
/// in 10 s for a node. The answer is signed, so an attacker must not choose the address or number of signed
/// messages.
#[test]
fn status_146_is_sent_rarely_and_only_to_care_of_address() {
    let mut two = authenticated();
    two.nodes.push(crate::agent::node("2001:db8:1::5678", &[SECOND_PREFIX]));
    two.nodes[1].authentication = Authentication::SharedKey(association());
    let mut agent = Agent::new(two);
    let forged = |sequence: u16| Update::explicit(sequence).signed_by(wrong_key());
    let elsewhere = forged(1).alternate(OTHER_CARE_OF);
    assert_eq!(agent.ignore(&elsewhere.packet()), MobilityDrop::AuthenticationFailed);
    agent.refuse(&forged(2), 146);
    agent.events.clear();
    for sequence in 3..100 {
        assert_eq!(agent.ignore(&forged(sequence).packet()), MobilityDrop::RateLimited);
        agent.wait(0.1);
    }
    assert!(agent.events.is_empty());
    agent.refuse(&forged(1).of("2001:db8:1::5678"), 146); // each node has its own ten seconds
    agent.wait(0.4);
    agent.refuse(&forged(100), 146);
    agent.accept(&Update::explicit(101).signed());
}

/// An attacker replays authentic updates that the home agent refuses: the home agent answers at most three a
/// second.
#[test]
fn answers_to_refused_updates_are_rate_limited() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(10).signed());
    let recorded = Update::explicit(9).signed().packet();
    agent.events.clear();
    let mut answers: usize = (0..3).map(|_| agent.receive(&recorded).len()).sum();
    assert_eq!(answers, 3);
    assert_eq!(agent.ignore(&recorded), MobilityDrop::RateLimited);
    for _ in 0..100 {
        agent.wait(0.1);
        answers += agent.receive(&recorded).len();
    }
    assert!((30..=33).contains(&answers), "{answers} answers in 10 s");
    assert_eq!(agent.events.len(), answers);
    agent.accept(&Update::explicit(11).signed());
}

/// An attacker sends an authentic message from another source: without an Alternate Care-of Address the MAC
/// fails.
#[test]
fn update_from_another_source_address_gets_status_146() {
    let mut agent = Agent::new(authenticated());
    let genuine = Update::explicit(1).signed();
    let stolen = Update { source: addr(OTHER_CARE_OF), ..genuine.clone() };
    let answers = agent.receive(&stolen.around(&mut genuine.header()));
    assert_eq!(answers[0].status(), 146);
    assert!(agent.binding().is_none());
}

/// An attacker replays an authentic message in the other address family. The MAC covers the address that the
/// message names, so the home agent registers only that address. An update with an IPv6 care-of address,
/// replayed inside UDP, does not bind the node to the attacker.
#[test]
fn a_signed_update_that_is_moved_into_udp_creates_no_binding() {
    let named = Update::explicit(1).alternate(CARE_OF).signed();
    // RFC 4285 5.1: the MAC covers the care-of address also if no option names it.
    let unnamed = Update::explicit(1).signed();
    let identified = Update::explicit(1).known_bid(1).signed();
    let ended = Update::explicit(1).lifetime(0).signed();
    for genuine in [&named, &unnamed, &identified, &ended] {
        let mut agent = Agent::new(authenticated());
        // The attacker sends the packet unchanged, and with the source that it would have inside UDP.
        for packet in [genuine.packet(), named.clone().inside().around(&mut named.header())] {
            let answers = agent.receive_inside("udp:10.0.0.1:4191", "udp:198.51.100.66:4191", &packet);
            assert_eq!(answers[0].status(), 174, "{genuine:?}");
            assert!(agent.binding().is_none());
        }
        // The node's own update afterwards is still accepted.
        agent.accept(&named);
    }
}

/// An attacker who forwards a Binding Update from another IPv4 address looks like a NAT (RFC 5555 4.2). If
/// the operator says that there is no NAT, only the address that the message names counts.
#[test]
fn where_there_is_no_nat_the_care_of_address_is_the_one_that_is_named() {
    let here = || MobilityOption::Ipv4CareOfAddress("192.0.2.77".parse().expect("an IPv4 address"));
    let forms = [
        Update::explicit(1).inside().with(here()).signed(),
        Update::explicit(1).inside().bid(1, "192.0.2.77").signed(),
        Update::explicit(1).inside().bid(1, "192.0.2.77").bid(2, CARE_OF).signed(),
    ];
    for update in forms {
        for nat in [true, false] {
            let mut config = authenticated();
            config.nodes[0].nat = nat;
            let mut agent = Agent::new(config);
            let receive = |agent: &mut Agent, from: &str, update: &Update| {
                let answers = agent.receive_inside("udp:10.0.0.1:4191", from, &update.packet());
                answers[0].status()
            };
            let status = receive(&mut agent, "udp:198.51.100.66:4191", &update);
            assert_eq!((status == 174, agent.binding().is_none()), (!nat, !nat), "{update:?}");
            if !nat {
                assert_eq!(receive(&mut agent, "udp:192.0.2.77:4191", &update), 0);
            }
        }
    }
    // An update without an address renews the registered binding if it comes from the registered address.
    let mut config = authenticated();
    config.nodes[0].nat = false;
    let mut agent = Agent::new(config);
    let first = Update::explicit(1).inside().bid(1, "192.0.2.77").signed();
    assert_eq!(
        agent.receive_inside("udp:10.0.0.1:4191", "udp:192.0.2.77:4191", &first.packet())[0].status(),
        0
    );
    let next = Update::explicit(2).inside().known_bid(1).signed();
    for (from, status) in [("udp:198.51.100.66:4191", 174), ("udp:192.0.2.77:4191", 0)] {
        assert_eq!(agent.receive_inside("udp:10.0.0.1:4191", from, &next.packet())[0].status(), status);
    }
}

/// An update that names an IPv4 care-of address, replayed outside UDP, does not bind the node to the
/// attacker.
#[test]
fn a_signed_update_that_is_moved_out_of_udp_creates_no_binding() {
    let mut agent = Agent::new(authenticated());
    let option = MobilityOption::Ipv4CareOfAddress("192.0.2.77".parse().expect("an IPv4 address"));
    let genuine = Update::explicit(1).inside().with(option).signed();
    let stolen = Update { source: addr(OTHER_CARE_OF), home_address: Some(addr(HOME)), ..genuine.clone() };
    let answers = agent.receive(&stolen.around(&mut genuine.header()));
    assert_eq!(answers[0].status(), 146);
    assert!(agent.binding().is_none());
    let answers = agent.receive_inside("udp:10.0.0.1:4191", "udp:192.0.2.77:4191", &genuine.packet());
    assert_eq!(answers[0].status(), 0);
}

/// RFC 4285 5: without the option, or with an unknown SPI, "silently discard".
#[test]
fn update_without_authentication_gets_no_answer() {
    let mut agent = Agent::new(authenticated());
    assert_eq!(agent.ignore(&Update::explicit(1).packet()), MobilityDrop::AuthenticationMissing);
    let other = SecurityAssociation { spi: 301, ..association() };
    let update = Update::explicit(1).signed_by(other);
    assert_eq!(agent.ignore(&update.packet()), MobilityDrop::UnknownSpi);
    agent.accept(&Update::explicit(1).signed());
    agent.ignore(&Update::explicit(2).lifetime(0).packet());
    agent.ignore(&Update::explicit(2).at_home().lifetime(0).packet());
}

/// RFC 4285 5: "MUST be the last option in a message".
#[test]
fn update_with_option_behind_authenticator_gets_no_answer() {
    let mut agent = Agent::new(authenticated());
    let update = Update::implicit(1);
    let association = association();
    let mut header = carnet_wire::mobility::Builder::binding_update(1, ROUTER, 15)
        .option(&association.blank_option())
        .option(&MobilityOption::AlternateCareOfAddress(addr(CARE_OF)))
        .finish();
    association.sign(&mut header, addr(CARE_OF), addr(HOME));
    let packet = update.around(&mut header);
    agent.ignore(&packet);
}

/// RFC 4285 5.1.1: the home agent ignores the option of a node that has no security association.
#[test]
fn node_without_key_may_send_authentication_option() {
    let mut agent = Agent::new(config());
    let answer = agent.accept(&Update::explicit(1).signed());
    assert_eq!(answer.options().spi, None);
}

/// Refusals of authentic updates are signed as well.
#[test]
fn refusing_acknowledgements_are_signed() {
    let mut agent = Agent::new(authenticated());
    agent.accept(&Update::explicit(5).signed());
    for (update, status) in [
        (Update::explicit(5).signed(), 135),
        (Update::explicit(6).prefix(SECOND_PREFIX).signed(), 142),
        (Update::node(6).signed(), 139),
    ] {
        assert!(agent.refuse(&update, status).is_signed(&association(), CARE_OF, HOME), "{status}");
    }
}

/// RFC 6275 9.5.1 with RFC 4285 6: the home agent remembers the number after the binding has ended, so that
/// old messages cannot be replayed.
#[test]
fn the_sequence_number_is_remembered_beyond_the_binding() {
    let mut agent = Agent::new(authenticated());
    let recorded = Update::explicit(10).signed();
    agent.accept(&recorded);
    agent.accept(&Update::implicit(11).lifetime(0).signed());
    agent.wait(3600.0);
    assert_eq!(agent.refuse(&recorded, 135).sequence(), 11);
    agent.accept(&Update::explicit(12).lifetime(1).signed());
    agent.wait(3600.0);
    assert!(agent.binding().is_none());
    assert_eq!(agent.refuse(&Update::explicit(12).signed(), 135).sequence(), 12);
    agent.accept(&Update::explicit(13).signed());
}

// Timestamps (RFC 4285 6).

const WINDOW: Duration = Duration::from_secs(7);

fn by_time() -> SecurityAssociation {
    SecurityAssociation { replay: ReplayProtection::Timestamp { window: WINDOW }, ..association() }
}

fn timed() -> Agent {
    let mut timed: HomeAgentConfig = authenticated();
    timed.nodes[0].authentication = Authentication::SharedKey(by_time());
    Agent::new(timed)
}

fn stamped(sequence: u16, at: WallTime) -> Update {
    Update::explicit(sequence).with(MobilityOption::MessageIdentifier(at.to_ntp())).signed()
}

fn earlier(wall: WallTime, by: Duration) -> WallTime {
    WallTime::from_unix_nanos(wall.as_unix_nanos() - by.as_nanos() as u64)
}

/// RFC 4285 6: "the Home Agent copies the entire Timestamp field".
#[test]
fn an_acknowledgement_returns_a_valid_timestamp_unchanged() {
    let mut agent = timed();
    let at = earlier(agent.wall(), Duration::from_millis(6900));
    assert_eq!(agent.accept(&stamped(1, at)).options().timestamp, Some(at.to_ntp()));
    let at = agent.wall() + Duration::from_millis(6900);
    assert_eq!(agent.accept(&stamped(2, at)).options().timestamp, Some(at.to_ntp()));
}

/// RFC 4285 6: the home agent answers a timestamp outside the window with status 144. The answer's timestamp
/// has the high half of the home agent's clock and the low half of the update's.
#[test]
fn a_timestamp_too_far_off_is_answered_144() {
    let mut agent = timed();
    for at in [earlier(agent.wall(), Duration::from_secs(8)), agent.wall() + Duration::from_secs(8)] {
        let answer = agent.refuse(&stamped(1, at), 144);
        let told = answer.options().timestamp.expect("a timestamp");
        assert_eq!(told >> 32, agent.wall().to_ntp() >> 32);
        assert_eq!(told & 0xffff_ffff, at.to_ntp() & 0xffff_ffff);
        assert!(answer.is_signed(&by_time(), CARE_OF, HOME));
        assert!(agent.binding().is_none());
    }
}

/// RFC 4285 6: "MUST be greater than all previously accepted timestamps".
#[test]
fn a_timestamp_that_is_not_later_than_the_last_is_answered_144() {
    let mut agent = timed();
    let at = agent.wall();
    agent.accept(&stamped(1, at));
    agent.refuse(&stamped(2, at), 144);
    agent.refuse(&stamped(3, earlier(at, Duration::from_secs(1))), 144);
    agent.accept(&stamped(4, at + Duration::from_millis(1)));
}

/// RFC 4285 6: the home agent remembers the timestamp after the binding has ended.
#[test]
fn the_timestamp_is_remembered_beyond_the_binding() {
    let mut agent = timed();
    let at = agent.wall() + Duration::from_secs(6);
    let recorded = stamped(1, at);
    agent.accept(&recorded);
    let later = at + Duration::from_millis(1);
    agent.accept(
        &Update::implicit(2).lifetime(0).with(MobilityOption::MessageIdentifier(later.to_ntp())).signed(),
    );
    agent.wait(11.0);
    agent.refuse(&recorded, 144);
}

/// RFC 4285 6: the home agent demands a timestamp, and answers an update without one with status 145.
#[test]
fn a_missing_timestamp_is_answered_145() {
    let mut agent = timed();
    agent.refuse(&Update::explicit(1).signed(), 145);
}

/// RFC 4285 6: the check comes "after successful authentication".
#[test]
fn the_mac_is_checked_before_the_timestamp() {
    let mut agent = timed();
    let at = earlier(agent.wall(), Duration::from_secs(100));
    let update = Update::explicit(1).with(MobilityOption::MessageIdentifier(at.to_ntp()));
    agent.refuse(&update.clone().signed_by(wrong_key()), 146);
    agent.ignore(&update.packet());
}

/// RFC 4285 6: "When the Home Agent receives the ... option in Binding Update, it MUST include" it.
#[test]
fn unrequested_timestamp_is_returned() {
    let mut agent = Agent::new(authenticated());
    let at = agent.wall();
    assert_eq!(agent.accept(&stamped(1, at)).options().timestamp, Some(at.to_ntp()));
    let elsewhere = stamped(1, at).of("2001:db8:99::1");
    assert_eq!(agent.refuse(&elsewhere, 132).options().timestamp, Some(at.to_ntp()));
}

/// The home agent sends no answer, but logs the operator's mistake: once for each home address and cause,
/// however often the router tries.
#[test]
fn ignored_updates_are_reported_to_operator() {
    let mut agent = Agent::new(authenticated());
    let other = SecurityAssociation { spi: 301, ..association() };
    for sequence in 1..50 {
        agent.ignore(&Update::explicit(sequence).signed_by(other.clone()).packet());
        agent.ignore(&Update::explicit(sequence).of("2001:db8:1::9").signed().packet());
        agent.ignore(&Update::explicit(sequence).packet());
        agent.wait(1.0);
    }
    let said: Vec<&str> = agent.warnings();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].contains("SPI is 301, expected 300") && said[0].contains(HOME), "{said:?}");
    assert!(
        said[1].contains("no [[home_agent.mobile_router]]") && said[1].contains("2001:db8:1::9"),
        "{said:?}"
    );
    assert!(said[2].contains("no authentication option, expected one with SPI 300"), "{said:?}");
    agent.events.clear();
    agent.wait(600.0);
    agent.ignore(&Update::explicit(1).signed_by(other).packet());
    assert_eq!(agent.warnings().len(), 1, "later it is said again");
}

/// An unauthenticated source that tries all home addresses fills neither the log nor the memory.
#[test]
fn unknown_sources_do_not_flood_the_log() {
    let mut agent = Agent::new(authenticated());
    for node in 0x2000..0x2400 {
        agent.ignore(&Update::explicit(1).of(&format!("2001:db8:1::{node:x}")).signed().packet());
    }
    assert_eq!(agent.warnings().len(), 5);
}
