//! A station that verifies signatures, and an attacker. The attacker replays and changes packets of other
//! senders, or fabricates packets.
//!
//! The target checks that each accepted packet was signed. No signature covers the Basic Header, but the
//! octets after it must equal those of a packet that a vehicle with a ticket has sent.

use std::sync::OnceLock;

use carnet_base::Time;
use carnet_security::keys::EllipticCurve;
use carnet_security::time::Time64;
use carnet_security::{HandledFrame, SecurityStation, SecurityTime, packet_without_envelope};

use crate::story::{self, EventKind};

#[path = "../../security/tests/suite/support.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "of the tests of carnet-security, which use all of it")]
mod support;

use support::{TestPki, frame_of_packet, now_at_milliseconds, strict_config};

/// Octets of the Basic Header, which no signature covers.
const BASIC_HEADER_LENGTH: usize = 4;
/// Maximum number of changes that the attacker makes to one packet.
const MAX_CHANGES: usize = 4;

/// Packets that a vehicle sends within two seconds, with and without its certificate.
struct SentPackets {
    pki: TestPki,
    signed_packets: Vec<Vec<u8>>,
    /// The packets without their envelope, as a receiver delivers them.
    plain_packets: Vec<Vec<u8>>,
}

thread_local! {
    static SENT_PACKETS: OnceLock<SentPackets> = const { OnceLock::new() };
}

fn sign_packets() -> SentPackets {
    let mut pki = TestPki::new(EllipticCurve::NistP256);
    let mut car = pki.new_car_station();
    let mut packets = Vec::new();
    for round in 0..4 {
        let now = now_at_milliseconds(round * 500);
        packets.extend([car.signed_cam(now), car.signed_denm(now), car.signed_beacon(now)]);
    }
    let plain = packets.iter().filter_map(|packet| packet_without_envelope(packet)).collect();
    SentPackets { pki, signed_packets: packets, plain_packets: plain }
}

/// Runs a story of arriving packets. A story's frame is a packet from its Basic Header on. A delivered packet
/// is a sent packet, selected by its number, with changes of three octets each. A change has the place of an
/// octet, and the bits of that octet to flip.
pub fn fuzz_secured(octets: &[u8]) {
    SENT_PACKETS.with(|sent| {
        let sent = sent.get_or_init(sign_packets);
        let (_, events) = story::parse_story(octets);
        let mut receiver = sent.pki.receiver_with(strict_config());
        let start = now_at_milliseconds(2000);
        let mut now = start;
        for event in events.take(32) {
            let nanos = u64::try_from(event.time_since_previous.as_nanos()).unwrap_or(u64::MAX);
            now = SecurityTime {
                time: now.time + event.time_since_previous,
                certificate_time: Time64(now.certificate_time.0.saturating_add(nanos / 1000)),
            };
            match event.kind {
                EventKind::Deliver => {
                    let Some((number, changes)) = event.content.split_first() else { continue };
                    let mut packet =
                        sent.signed_packets[usize::from(*number) % sent.signed_packets.len()].clone();
                    for change in changes.chunks_exact(3).take(MAX_CHANGES) {
                        let place = usize::from(u16::from_be_bytes([change[0], change[1]])) % packet.len();
                        packet[place] ^= change[2];
                    }
                    receive_packet(sent, &mut receiver, now, &packet);
                }
                EventKind::Frame => receive_packet(sent, &mut receiver, now, event.content),
                _ => check_accepted_packets(sent, &mut receiver, now),
            }
        }
        let (messages, certificates) = receiver.waiting_messages();
        assert!(messages + certificates <= 1000, "{messages} and {certificates} wait");
        assert!(receiver.poll_timeout(now.time).is_none_or(|due| due > Time::ZERO));
    });
}

fn receive_packet(sent: &SentPackets, receiver: &mut SecurityStation, now: SecurityTime, packet: &[u8]) {
    match receiver.handle_frame(now, frame_of_packet(packet)) {
        Ok(HandledFrame::Ready(verified)) => check_was_sent(sent, &verified.packet),
        Ok(HandledFrame::Plain) => panic!("the station has accepted an unsigned packet: {packet:02x?}"),
        Ok(HandledFrame::Queued) | Err(_) => {}
    }
    check_accepted_packets(sent, receiver, now);
}

fn check_accepted_packets(sent: &SentPackets, receiver: &mut SecurityStation, now: SecurityTime) {
    while let Some(verified) = receiver.poll_verified(now) {
        check_was_sent(sent, &verified.packet);
    }
}

fn check_was_sent(sent: &SentPackets, packet: &[u8]) {
    let same = |plain: &Vec<u8>| plain.get(BASIC_HEADER_LENGTH..) == packet.get(BASIC_HEADER_LENGTH..);
    assert!(sent.plain_packets.iter().any(same), "no station has signed the accepted packet {packet:02x?}");
}
