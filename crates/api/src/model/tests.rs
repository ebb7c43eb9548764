//! Tests that the JSON keeps the form on which other programs rely.

use carnet_wire::address::{MacAddress, Octets};
use carnet_wire::geonet::GnAddress;
use serde_json::{Value, from_value, json, to_value};

use super::*;

fn assert_same_after_json<T: Serialize + for<'de> Deserialize<'de> + PartialEq + std::fmt::Debug>(
    value: T,
    text: Value,
) {
    assert_eq!(to_value(&value).expect("JSON"), text);
    assert_eq!(from_value::<T>(text).expect("a value"), value);
}

#[test]
fn locations_and_payloads_have_the_documented_json() {
    assert_same_after_json(
        Location {
            gn_address: GnAddress(0x1400_0200_0000_0002),
            mac: MacAddress([2, 0, 0, 0, 0, 2]),
            latitude: 48.8375,
            longitude: 2.1008,
            speed_mps: 13.9,
            heading_deg: 90.5,
            age_ms: 120,
            neighbour: true,
        },
        json!({"gn_address": "1400:0200:0000:0002", "mac": "02:00:00:00:00:02", "latitude": 48.8375,
               "longitude": 2.1008, "speed_mps": 13.9, "heading_deg": 90.5, "age_ms": 120, "neighbou\
                   r": true}),
    );
    assert_same_after_json(
        GnReceived {
            packet_type: GnPacketType::Gbc,
            next_header: GnNextHeader::BtpB,
            port: Some(2002),
            source_port: None,
            port_info: Some(0),
            source: GnAddress(0x1400_0200_0000_0002),
            latitude: 48.8375,
            longitude: 2.1008,
            remaining_hop_limit: 9,
            payload: Octets(vec![0xff]),
        },
        json!({"type": "gbc", "next_header": "btp-b", "port": 2002, "source_port": null, "port_info": 0,
               "source": "1400:0200:0000:0002", "latitude": 48.8375, "longitude": 2.1008, "remaining_hop_limi\
                   t": 9,
               "payload": "ff"}),
    );
}

#[test]
fn parser_recognises_kind_of_ping_target() {
    for (text, station) in [
        ("1400:0200:0000:0002", GnStation::Address(GnAddress(0x1400_0200_0000_0002))),
        ("02:00:00:00:00:02", GnStation::Mac(MacAddress([2, 0, 0, 0, 0, 2]))),
        ("fe80::ff:fe00:2", GnStation::Ipv6("fe80::ff:fe00:2".parse().expect("an address"))),
    ] {
        assert_eq!(text.parse(), Ok(station));
        assert_eq!(text.parse(), Ok(GnTarget::Station(station)));
        assert_eq!(station.to_string(), text);
    }
    assert_eq!("area:crossing".parse(), Ok(GnTarget::Area("crossing".into())));
    assert_eq!(GnTarget::Area("crossing".into()).to_string(), "area:crossing");
    let stations = "expected a GeoNetworking address (1400:0200:0000:000a), a MAC address, an IPv6 address";
    for text in ["", "area:", "bus-42", "192.0.2.1", "1400:0200:0000"] {
        let error = text.parse::<GnTarget>().expect_err(text).to_string();
        assert_eq!(error, format!("{text:?} is no target, {stations} or area:NAME"));
        let error = text.parse::<GnStation>().expect_err(text).to_string();
        assert_eq!(error, format!("{text:?} is no station, {stations}"));
    }
}

#[test]
fn requests_have_exactly_one_json_form() {
    assert_same_after_json(
        GnPingRequest {
            target: GnTarget::Area("crossing".into()),
            count: 3,
            interval_ms: 1000,
            timeout_ms: 3000,
        },
        json!({"target": "area:crossing", "count": 3, "interval_ms": 1000, "timeout_ms": 3000}),
    );
    let send = |transport| GnSendRequest {
        transport,
        next_header: GnNextHeader::Any,
        port: None,
        hop_limit: None,
        lifetime_ms: None,
        scf: false,
        payload: Octets(vec![1]),
    };
    let to = GnStation::Mac(MacAddress([2, 0, 0, 0, 0, 2]));
    let circle = GnArea::Circle(GnCircle { latitude: 48.5, longitude: 2.5, radius_m: 300 });
    for (transport, text) in [
        (GnTransport::Guc { to }, json!({"type": "guc", "to": "02:00:00:00:00:02"})),
        (
            GnTransport::Gac { area: GnArea::Name("crossing".into()) },
            json!({"type": "gac", "area": {"name": "crossing"}}),
        ),
        (
            GnTransport::Gbc { area: circle },
            json!({"type": "gbc", "area": {"circle": {"latitude": 48.5, "longitude": 2.5, "radius_m": 300}}}),
        ),
        (GnTransport::Tsb {}, json!({"type": "tsb"})),
        (GnTransport::Shb {}, json!({"type": "shb"})),
    ] {
        assert_eq!(to_value(transport.packet_type()).expect("JSON"), text["type"]);
        let short = json!({"transport": text, "payload": "01"});
        assert_eq!(from_value::<GnSendRequest>(short).expect("a request"), send(transport.clone()));
        assert_same_after_json(
            send(transport),
            json!({"transport": text, "next_header": "any", "port": null, "hop_limit": null,
                   "lifetime_ms": null, "scf": false, "payload": "01"}),
        );
    }
    for (wrong, reason) in [
        (json!({"transport": {"type": "guc"}, "payload": ""}), "missing field `to`"),
        (json!({"transport": {"type": "tsb", "to": "x"}, "payload": ""}), "unknown field `to`"),
        (json!({"transport": {"type": "shb"}}), "missing field `payload`"),
        (json!({"transport": {"type": "shb"}, "payload": "0"}), "\"0\" is no string of octets"),
        (json!({"transport": {"type": "shb"}, "payload": "", "hops": 1}), "unknown field `hops`"),
        (
            json!({"transport": {"type": "gbc", "area": "crossing"}, "payload": ""}),
            "unknown variant `crossing`",
        ),
        (json!({"transport": {"type": "guc", "to": "bus"}, "payload": ""}), "\"bus\" is no station"),
    ] {
        let error = from_value::<GnSendRequest>(wrong).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn events_of_a_ping_have_their_json_form() {
    assert_same_after_json(
        GnPingEvent::Answer(GnPingAnswer {
            sequence: 1,
            gn_address: GnAddress(0x1400_0200_0000_0003),
            mac: MacAddress([2, 0, 0, 0, 0, 3]),
            latitude: 48.5,
            longitude: 2.5,
            rtt_ms: 0.25,
            hops: 2,
            path: Some(vec![GnAddress(0x1400_0200_0000_0002), GnAddress(0x1400_0200_0000_0003)]),
        }),
        json!({"event": "answer", "sequence": 1, "gn_address": "1400:0200:0000:0003",
               "mac": "02:00:00:00:00:03", "latitude": 48.5, "longitude": 2.5, "rtt_ms": 0.25, "hops": 2,
               "path": ["1400:0200:0000:0002", "1400:0200:0000:0003"]}),
    );
    assert_same_after_json(GnPingEvent::Timeout { sequence: 2 }, json!({"event": "timeout", "sequence": 2}));
    assert_same_after_json(
        GnPingEvent::Done { sent: 2, answered: 1 },
        json!({"event": "done", "sent": 2, "answered": 1}),
    );
}
