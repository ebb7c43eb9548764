//! Packets that another implementation has sent.
//!
//! Recorded on a test bench on 2026-11-21 from UMIP's mobile router (stock Debian 6.1 kernel), without the
//! Ethernet header: home address 2001:db8:1::100, mobile network 2001:db8:2::/64. Frames 16, 123 and 141 of
//! `umip-register-explicit-implicit-dhaad-ha-side.pcap`.

use crate::agent::{TestAgent, authorized_node, config};
use crate::test_messages::*;

const UMIP_HOME: &str = "2001:db8:1::100";
const UMIP_CARE_OF: &str = "2001:db8:f1:0:b869:f2ff:feba:1aeb";
const UMIP_PREFIX: &str = "2001:db8:2::/64";

/// Explicit mode: A, H, R, lifetime 15, Alternate Care-of Address, Mobile Network Prefix.
const EXPLICIT_UPDATE: &str = "
    6002e63300503c3f 20010db800f10000b869f2fffeba1aeb 20010db8000100000000000000000001
    870201020000c910 20010db8000100000000000000000100
    3b06050034773d65c400000f01000310 20010db800f10000b869f2fffeba1aeb
    0102000006120040 20010db8000200000000000000000000";
/// De-registration from the foreign link: lifetime 0, no prefix.
const DEREGISTRATION_UPDATE: &str = "
    6002e63300383c3f 20010db800f10000b869f2fffeba1aeb 20010db8000100000000000000000001
    870201020000c910 20010db8000100000000000000000100
    3b03050069ae3d67c400000001000310 20010db800f10000b869f2fffeba1aeb";
/// Implicit mode: A, H, R, lifetime 15, Alternate Care-of Address.
const IMPLICIT_UPDATE: &str = "
    6002e63300383c3f 20010db800f10000b869f2fffeba1aeb 20010db8000100000000000000000001
    870201020000c910 20010db8000100000000000000000100
    3b0305000e3798cfc400000f01000310 20010db800f10000b869f2fffeba1aeb";

fn agent_for_umip() -> TestAgent {
    let mut umip = config();
    umip.nodes = vec![authorized_node(UMIP_HOME, &[UMIP_PREFIX])];
    TestAgent::new(umip)
}

/// Checks what UMIP needs of an answer: the routing header, the R flag, the echoed sequence number.
fn check_answer(answer: &ReceivedPacket, sequence: u16, lifetime: u16) {
    assert_eq!((answer.status(), answer.sequence(), answer.lifetime()), (0, sequence, lifetime));
    assert!(answer.mobile_router());
    assert_eq!(answer.destination, addr(UMIP_CARE_OF));
    assert_eq!(answer.routing_home_address, Some(addr(UMIP_HOME)));
}

#[test]
fn explicit_registration_and_deregistration_of_umip() {
    let mut agent = agent_for_umip();
    let answers = agent.receive_packet(&octets_of_hex(EXPLICIT_UPDATE));
    assert_eq!(agent.last_drop_reason, None);
    check_answer(&answers[0], 15_717, 15);
    let binding = agent.binding_of(UMIP_HOME).expect("bound");
    assert_eq!(binding.care_of_address, addr(UMIP_CARE_OF));
    assert_eq!(*binding.prefixes, [net(UMIP_PREFIX)]);
    // The recording has one more refresh before this update, so the number is 15719.
    let answers = agent.receive_packet(&octets_of_hex(DEREGISTRATION_UPDATE));
    check_answer(&answers[0], 15_719, 0);
    assert!(agent.binding_of(UMIP_HOME).is_none());
}

#[test]
fn implicit_registration_of_umip() {
    let mut agent = agent_for_umip();
    let answers = agent.receive_packet(&octets_of_hex(IMPLICIT_UPDATE));
    check_answer(&answers[0], 39_119, 15);
    assert_eq!(*agent.binding_of(UMIP_HOME).expect("bound").prefixes, [net(UMIP_PREFIX)]);
}

/// A restarted UMIP begins at a random number: without a key the home agent accepts any number after the
/// binding has ended.
#[test]
fn restarted_umip_registers_again_after_its_binding_expires() {
    let mut agent = agent_for_umip();
    agent.receive_packet(&octets_of_hex(IMPLICIT_UPDATE));
    let answers = agent.receive_packet(&octets_of_hex(EXPLICIT_UPDATE));
    assert_eq!((answers[0].status(), answers[0].sequence()), (135, 39_119));
    agent.advance_time(61.0);
    check_answer(&agent.receive_packet(&octets_of_hex(EXPLICIT_UPDATE))[0], 15_717, 15);
}
