//! Tests of the upper tester's messages octet by octet, and of malformed messages.

use std::time::Duration;

use tokio::time::timeout;

use super::*;
use carnet_station::io::GnPacketType;

fn octets_of_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16);
    digits.chunks(2).map(|pair| octet(pair).expect("an octet")).collect()
}

fn all_messages() -> Vec<(Vec<u8>, TesterMessage)> {
    let area = Area {
        shape: AreaShape::Ellipse,
        latitude: 488_375_000,
        longitude: -21_008_000,
        distance_a: 500,
        distance_b: 200,
        angle: 45,
    };
    let to_area = |transport| GeonetRequest {
        lifetime_ms: Some(10_000),
        payload: b"x".to_vec(),
        ..geonet_request(transport, 0xc5)
    };
    let shb = |next_header, payload: &[u8]| GeonetRequest {
        next_header,
        payload: payload.to_vec(),
        ..geonet_request(GeonetTransport::SingleHop, 0)
    };
    let gn = |text: &str, request| (octets_of_hex(text), TesterMessage::Gn(request));
    let btp = |text: &str, next_header, payload: &[u8]| {
        (octets_of_hex(text), TesterMessage::Btp(shb(next_header, payload)))
    };
    vec![
        (octets_of_hex("00 0000000000000000"), TesterMessage::Initialize),
        (octets_of_hex("00"), TesterMessage::Initialize),
        (octets_of_hex("02 00000064 ffffff9c 00"), TesterMessage::ChangePosition(100, -100)),
        (octets_of_hex("02 00000064 ffffff9c 00000000"), TesterMessage::ChangePosition(100, -100)),
        (octets_of_hex("04"), TesterMessage::ChangePseudonym),
        gn(
            "50 9400babebabe0001 2710 80 0003 010203",
            GeonetRequest {
                lifetime_ms: Some(10_000),
                payload: vec![1, 2, 3],
                ..geonet_request(GeonetTransport::GeoUnicast(0x9400_babe_babe_0001), 0x80)
            },
        ),
        gn(
            "51 02 2710 c5 000000 1d1c02d8 febf7180 01f4 00c8 002d 0001 78",
            to_area(GeonetTransport::GeoBroadcast(area)),
        ),
        gn(
            "52 02 2710 c5 000000 1d1c02d8 febf7180 01f4 00c8 002d 0001 78",
            to_area(GeonetTransport::GeoAnycast(area)),
        ),
        gn("53 00 0001 78", shb(0, b"x")),
        gn(
            "54 05 2710 80 0000",
            GeonetRequest {
                lifetime_ms: Some(10_000),
                hop_limit: Some(5),
                ..geonet_request(GeonetTransport::TopologicallyScoped, 0x80)
            },
        ),
        btp("70 07d1 0102", BTP_A, &[0x07, 0xd1, 1, 2]),
        btp("71 07d1 0102", BTP_B, &[0x07, 0xd1, 1, 2]),
        btp("72 07d1 0000 0001 78", BTP_B, &[0x07, 0xd1, 0, 0, b'x']),
    ]
}

#[test]
fn every_upper_tester_message_is_parsed() {
    let parts = geonet_request(GeonetTransport::SingleHop, 0xc5);
    assert_eq!((parts.store_carry_forward, parts.traffic_class), (true, 0x45));
    for (octets, message) in all_messages() {
        assert_eq!(TesterMessage::parse(&octets), Some(message), "{octets:02x?}");
    }
}

/// Only unused fields at the end of a message may be missing.
#[test]
fn malformed_upper_tester_messages_are_refused() {
    for (octets, message) in all_messages() {
        for length in 0..octets.len() {
            let parsed = TesterMessage::parse(&octets[..length]);
            let (needed, parts) = match &message {
                TesterMessage::Initialize | TesterMessage::ChangePseudonym => (1, false),
                TesterMessage::ChangePosition(..) => (9, false),
                // The payload may be missing, but the upper tester refuses a payload that is cut off.
                TesterMessage::Btp(_) => (5, length > 5),
                TesterMessage::Gn(_) => (octets.len(), false),
            };
            assert_eq!(parsed.is_some(), length >= needed && !parts, "{octets:02x?} to {length}");
        }
    }
    for octets in [&[][..], &[0x99], &[0x51, 3], &[0x41, 1], &[0xff; 64]] {
        assert_eq!(TesterMessage::parse(octets), None, "{octets:02x?}");
    }
    assert_eq!(TesterMessage::parse(&octets_of_hex("53 00 0001 7878")), None, "more than the length says");
    assert_eq!(
        TesterMessage::parse(&octets_of_hex("51 03 2710 80 000000 1d1c02d8 febf7180 01f4 00c8 002d 0000")),
        None,
        "shape"
    );
}

fn delivered_payload(next_header: u8, payload: &[u8]) -> Delivered {
    Delivered {
        kind: GnPacketType::Shb,
        next_header,
        source: 1,
        latitude: 0,
        longitude: 0,
        remaining_hop_limit: 1,
        maximum_hop_limit: 1,
        payload: payload.to_vec(),
    }
}

/// Waits for the result of `what`. Fails after a time limit.
async fn with_time_limit<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), what).await.expect("within half a minute")
}

/// The upper tester sends events to the test system that sent the last message. Events of GeoNetworking and
/// of BTP have different payloads.
#[tokio::test]
async fn upper_tester_results_and_events_are_encoded() {
    let config = config::Conformance { upper_tester: "127.0.0.1:0".parse().expect("an address") };
    let mut upper_tester = UpperTester::open_port(&config).expect("a port");
    let port = upper_tester.socket.local_addr().expect("bound");
    let tester = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    tester.connect(port).await.expect("connected");
    // No tester has sent a message yet, so the payload has no receiver.
    upper_tester.report_delivered(&delivered_payload(0, b"unheard"));
    for (octets, answer, event) in [
        ("00 0000000000000000", "0101", "63"),
        ("02 00000001 00000001 00", "0301", "63"),
        ("04", "0501", "63"),
        ("53 00 0000", "4101", "63"),
        ("70 0001 0002", "6101", "63"),
        ("72 0001 0002", "7101", "73"),
        ("70 0001 0002", "7101", "73"),
        ("71 0001 0002", "6101", "63"),
    ] {
        tester.send(b"?").await.expect("sent");
        tester.send(&octets_of_hex(octets)).await.expect("sent");
        let (from, message) = with_time_limit(upper_tester.receive_message()).await;
        upper_tester.send_result(from, &message, true);
        upper_tester.report_delivered(&delivered_payload(BTP_B, b"\x07\xd1\x00\x00hello"));
        upper_tester.report_delivered(&delivered_payload(0, b"any"));
        // A payload that is too short for a BTP header.
        upper_tester.report_delivered(&delivered_payload(BTP_A, b"\x07\xd1"));
        let expected = [
            answer.to_owned(),
            "55 0009 07d1000068656c6c6f".into(),
            format!("{event} 0005 68656c6c6f"),
            "55 0003 616e79".into(),
            "55 0002 07d1".into(),
        ];
        for expected in expected {
            let mut buffer = [0; 64];
            let length = with_time_limit(tester.recv(&mut buffer)).await.expect("received");
            assert_eq!(buffer[..length], octets_of_hex(&expected), "{octets}: {expected}");
        }
    }
}

/// The upper tester refuses a position that is not on the globe. The message UtInitialize ends the
/// displacement.
#[tokio::test]
async fn position_change_of_upper_tester_is_parsed() {
    let config = config::Conformance { upper_tester: "127.0.0.1:0".parse().expect("an address") };
    let mut upper_tester = UpperTester::open_port(&config).expect("a port");
    let home = LongPositionVector { latitude: 899_999_000, longitude: 10, ..LongPositionVector::default() };
    assert_eq!(upper_tester.end_displacement(&home), None);
    let away = upper_tester.displace_position(&home, 500, -30).expect("on the globe");
    assert_eq!((away.latitude, away.longitude), (899_999_500, -20));
    assert_eq!(upper_tester.displaced_position(position_of(&home)), away);
    let there = LongPositionVector { latitude: away.latitude, longitude: away.longitude, ..home };
    assert_eq!(upper_tester.displace_position(&there, 501, 0), None);
    assert_eq!(upper_tester.displace_position(&there, i32::MAX, 0), None);
    assert_eq!(upper_tester.displaced_position(position_of(&home)), away, "a refused move changes nothing");
    assert_eq!(upper_tester.end_displacement(&there), Some(position_of(&home)));
    assert_eq!(upper_tester.displaced_position(position_of(&home)), position_of(&home));
}
