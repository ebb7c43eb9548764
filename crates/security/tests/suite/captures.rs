//! Whole captures of another implementation: two stations of vanetza v26.02's socktap over a veth. One
//! capture is unsigned, the other uses vanetza's default security (`data/vanetza-socktap-security-none.pcap`,
//! `-dummy.pcap`, taken on 2026-11-21). The test decodes and checks each frame at the time of its capture,
//! under both policies.
//!
//! Vanetza's default security is an envelope without a certificate (signer `self`, a signature of zeros). No
//! ticket has signed it, so the entity rejects it even if it accepts unsigned packets: every policy checks
//! signed packets.

use carnet_base::{Time, WallTime};
use carnet_geonet::ReceivedFrame;
use carnet_its::ca;
use carnet_its::cdd::StationId;
use carnet_security::inspection::facilities_message;
use carnet_security::keys::EllipticCurve;
use carnet_security::message::{Envelope, Payload, Signer};
use carnet_security::permissions::Psid;
use carnet_security::time::Time64;
use carnet_security::{
    HandledFrame, SecurityConfig, SecurityDrop, SecurityPolicy, SecurityStation, SecurityTime,
};
use carnet_wire::btp::BtpB;
use carnet_wire::geonet::{BasicHeader, Frame, Packet};

use crate::support::{HOME_POSITION, TestPki, strict_config};

const UNSIGNED_CAPTURE: &[u8] = include_bytes!("../data/vanetza-socktap-security-none.pcap");
const SELF_SIGNED_CAPTURE: &[u8] = include_bytes!("../data/vanetza-socktap-security-dummy.pcap");
/// Octets of the Ethernet header: destination, source, EtherType.
const ETHERNET_HEADER_LENGTH: usize = 14;
/// BTP port of the captured CAMs.
const CAM_PORT: u16 = 2001;
/// BTP port of socktap's hello messages.
const HELLO_PORT: u16 = 42;

/// A captured frame without its Ethernet header.
struct CapturedFrame<'a> {
    now: SecurityTime,
    source: [u8; 6],
    octets: &'a [u8],
}

/// Returns the frames of a capture (pcap 2.4, little endian, microseconds).
fn captured_frames(capture: &[u8]) -> Vec<CapturedFrame<'_>> {
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20)), (0xa1b2_c3d4, 1), "no pcap of Ethernet frames");
    let (mut at, mut frames) = (24, Vec::new());
    while at < capture.len() {
        let microseconds = u64::from(word(at)) * 1_000_000 + u64::from(word(at + 4));
        let length = word(at + 8) as usize;
        assert_eq!(length, word(at + 12) as usize, "a frame that was cut off");
        let frame = &capture[at + 16..at + 16 + length];
        assert_eq!(frame[12..ETHERNET_HEADER_LENGTH], [0x89, 0x47]);
        let date = Time64::from_wall_time(WallTime::from_unix_nanos(microseconds * 1000), 5);
        frames.push(CapturedFrame {
            now: SecurityTime {
                time: Time::from_millis(1_000_000 + microseconds / 1000 % 1_000_000),
                certificate_time: date,
            },
            source: frame[6..12].try_into().unwrap(),
            octets: &frame[ETHERNET_HEADER_LENGTH..],
        });
        at += 16 + length;
    }
    frames
}

/// Returns the BTP port of a packet, and checks that the packet is one of socktap.
fn destination_port(captured: &CapturedFrame<'_>, packet: &Packet<'_>) -> u16 {
    let source = packet.extended.source().address.mid();
    assert_eq!(source, captured.source);
    let port = BtpB::parse(packet.payload).unwrap().0.destination_port;
    let message = facilities_message(packet.payload);
    match port {
        CAM_PORT => {
            assert_eq!(ca::parse_cam(message).unwrap().header.station_id, StationId(source[5].into()))
        }
        HELLO_PORT => assert_eq!(message, [0xc0, 0xff, 0xee]),
        other => panic!("port {other}"),
    }
    port
}

fn count_cams_and_hellos(ports: &[u16]) -> (usize, usize) {
    let of = |wanted: u16| ports.iter().filter(|port| **port == wanted).count();
    (of(CAM_PORT), of(HELLO_PORT))
}

fn verify_frame(
    security: &mut SecurityStation,
    captured: &CapturedFrame<'_>,
) -> Result<HandledFrame, SecurityDrop> {
    security.handle_position(HOME_POSITION, 4096);
    let frame = ReceivedFrame { source: captured.source, destination: [0xff; 6], packet: captured.octets };
    let handled = security.handle_frame(captured.now, frame);
    assert!(security.poll_verified(captured.now).is_none(), "nothing of it is to be verified");
    handled
}

fn config_that_accepts_unsigned() -> SecurityConfig {
    SecurityConfig { policy: SecurityPolicy::AcceptUnsigned, ..strict_config() }
}

#[test]
fn unsigned_packets_are_accepted_only_by_policy_that_permits_them() {
    let frames = captured_frames(UNSIGNED_CAPTURE);
    let pki = TestPki::new(EllipticCurve::NistP256);
    let (mut believing, mut strict) =
        (pki.receiver_with(config_that_accepts_unsigned()), pki.receiver_with(strict_config()));
    let mut ports = Vec::new();
    for captured in &frames {
        let Ok(Frame::Plain(packet)) = Frame::parse(captured.octets) else { panic!("not plain") };
        ports.push(destination_port(captured, &packet));
        assert!(matches!(verify_frame(&mut believing, captured), Ok(HandledFrame::Plain)));
        assert_eq!(verify_frame(&mut strict, captured).unwrap_err(), SecurityDrop::Unsecured);
    }
    // tshark counts the same number of packets for each BTP port.
    assert_eq!(count_cams_and_hellos(&ports), (72, 18));
    assert_eq!(
        (believing.counters().accepted_unsigned, believing.counters().dropped_by_reason().count()),
        (90, 0)
    );
    assert_eq!(strict.counters().dropped_by_reason().collect::<Vec<_>>(), [("unsecured", 90)]);
}

#[test]
fn self_signed_messages_are_parsed_and_rejected() {
    let frames = captured_frames(SELF_SIGNED_CAPTURE);
    let pki = TestPki::new(EllipticCurve::NistP256);
    let mut ports = Vec::new();
    let (mut believing, mut strict) =
        (pki.receiver_with(config_that_accepts_unsigned()), pki.receiver_with(strict_config()));
    for captured in &frames {
        let basic = BasicHeader::parse(captured.octets).unwrap();
        let envelope = &captured.octets[BasicHeader::LEN..];
        let Ok(Envelope::Signed(message)) = Envelope::parse(envelope) else { panic!("no signed message") };
        assert_eq!(message.signer, Signer::Itself);
        assert!(message.signature.to_octets().iter().all(|octet| *octet == 0));
        let Payload::Data(inside) = message.payload else { panic!("nothing inside") };
        let port = destination_port(captured, &Packet::parse_after_basic(basic, inside).unwrap());
        // Vanetza's clock is UTC without the five leap seconds since 2004, and up to a second late. By this
        // station's clock a CAM would be too old.
        let age = captured.now.certificate_time.saturating_since(message.header.generation_time.unwrap());
        assert!((5000..6000).contains(&age.as_millis()), "{age:?}");
        // The hello messages of socktap are signed with the application CAM, too.
        assert_eq!(message.header.psid, Psid::CAM);
        ports.push(port);
        for security in [&mut believing, &mut strict] {
            assert_eq!(verify_frame(security, captured).unwrap_err(), SecurityDrop::SelfSigned);
        }
    }
    assert_eq!(count_cams_and_hellos(&ports), (32, 8));
    for security in [believing, strict] {
        assert_eq!(security.counters().received_packets, 40);
        assert_eq!(security.counters().dropped_by_reason().collect::<Vec<_>>(), [("self_signed", 40)]);
        assert_eq!(security.counters().verified_signatures, 0);
    }
}
