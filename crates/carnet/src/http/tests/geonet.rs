//! Tests of the GeoNetworking API, with a run loop that has one neighbour, answers pings and knows one area.

use carnet_api::model::{
    ActionId, Area, AreaOrigin, AreaRemoval, AreaRequest, AreaShape, GnArea, GnAround, GnCircle,
    GnNextHeader, GnPacketType, GnPingAnswer, GnPingEvent, GnPingRequest, GnPlace, GnReceived, GnSendRequest,
    GnTarget, GnTransport, Group, Ldm, Location, Triggered, Vehicle,
};
use carnet_station::io::DenmAction;
use carnet_wire::address::{MacAddress, Octets};
use carnet_wire::geonet::GnAddress;
use serde_json::json;
use tokio::sync::{broadcast, mpsc};

use super::TestServer;
use crate::request::StationRequest;

const OTHER_STATION: GnAddress = GnAddress(0x1400_0200_0000_0002);

/// Answers the GeoNetworking requests, which the run loop of the other tests does not answer.
pub(super) fn answer_request(request: StationRequest) {
    match request {
        StationRequest::Neighbours(reply) => drop(reply.send(Ok(vec![test_location()]))),
        StationRequest::Locations(reply) => {
            drop(reply.send(Err("this station does no GeoNetworking".into())))
        }
        StationRequest::Areas(reply) => drop(reply.send(Ok(vec![test_area()]))),
        StationRequest::SetArea { area, reply } => drop(reply.send(match area.name.as_str() {
            "crossing" => Err("it is of the config".to_owned()),
            _ => Ok(()),
        })),
        StationRequest::RemoveArea { reply, .. } => drop(reply.send(Ok(()))),
        StationRequest::GnSend { packet, reply } => drop(reply.send(match packet.transport {
            GnTransport::Gbc { area: GnArea::Name(name) } if name != "crossing" => {
                Err(format!("there is no area {name}"))
            }
            _ => Ok(()),
        })),
        StationRequest::GnPing { ping, reply } => {
            let (sender, receiver) = mpsc::channel(1);
            drop(reply.send(Ok(receiver)));
            tokio::spawn(answer_pings(ping, sender));
        }
        StationRequest::GnReceive(reply) => {
            let (sender, receiver) = broadcast::channel(2);
            // The test sends one message more than the channel can hold.
            for hops in 7..=9 {
                drop(sender.send(received_payload(hops)));
            }
            drop(reply.send(Ok(receiver)));
        }
        StationRequest::Dcc(reply) => drop(reply.send(Err("this station has no congestion control".into()))),
        StationRequest::Channel { channel, reply } => drop(reply.send(match channel.busy_percent {
            busy if busy > 100.0 => Err("busy_percent is too much".to_owned()),
            _ => Ok(()),
        })),
        StationRequest::Services(reply) => drop(reply.send(Ok(Vec::new()))),
        StationRequest::Security(reply) => drop(reply.send(Err("this station signs nothing".into()))),
        StationRequest::Pseudonym { pseudonym, reply } => drop(reply.send(match pseudonym.lock_s {
            Some(_) => Ok(()),
            None => Err("there is no other ticket".to_owned()),
        })),
        StationRequest::Groups(reply) => drop(reply.send(Ok(vec![test_group()]))),
        StationRequest::Drain(reply) => drop(reply.send(None)),
        StationRequest::BeginDrain { reply, .. }
        | StationRequest::Revoke { reply, .. }
        | StationRequest::EndDrain(reply) => {
            drop(reply.send(Err("this station is no home agent".into())));
        }
        StationRequest::Vehicle(reply) => drop(reply.send(Ok(Vehicle::default()))),
        StationRequest::SetVehicle { vehicle, reply } => drop(reply.send(match vehicle.role.as_deref() {
            Some("king") => Err("role is \"king\"".to_owned()),
            _ => Ok(()),
        })),
        StationRequest::Denm { wish, denm, reply, .. } => drop(reply.send(match (wish, denm.cause.0) {
            (DenmAction::Trigger, 94) => {
                let action_id = ActionId { originating_station_id: 7, sequence_number: 1 };
                Ok(Some(Triggered { action_id }))
            }
            (DenmAction::Trigger, _) => {
                Err("this station already has the largest number of events".to_owned())
            }
            _ => Ok(None),
        })),
        StationRequest::Ldm { filter, reply } => drop(reply.send(match filter.area {
            Some(GnArea::Name(name)) => Err(format!("there is no area {name}")),
            _ => Ok(Ldm::default()),
        })),
        StationRequest::Messages { reply, .. } => drop(reply.send(Err("no facilities".into()))),
        // This arm names all other requests, so that a new request without an arm does not compile.
        StationRequest::Status(_)
        | StationRequest::Bindings(_)
        | StationRequest::Uplinks(_)
        | StationRequest::Lan(_)
        | StationRequest::Tunnels(_)
        | StationRequest::Routes(_)
        | StationRequest::Policies(_)
        | StationRequest::Keys(_)
        | StationRequest::ReadKeys(_)
        | StationRequest::Counters(_)
        | StationRequest::Handover { .. }
        | StationRequest::Portal { .. }
        | StationRequest::Signal { .. } => unreachable!("answered before"),
    }
}

/// Answers the requests of a ping with odd sequence numbers, and reports a timeout for the others.
async fn answer_pings(ping: GnPingRequest, sender: mpsc::Sender<GnPingEvent>) {
    for sequence in 1..=ping.count {
        let event = match sequence % 2 {
            1 => GnPingEvent::Answer(GnPingAnswer {
                sequence,
                gn_address: OTHER_STATION,
                mac: MacAddress([2, 0, 0, 0, 0, 2]),
                latitude: 48.5,
                longitude: 2.5,
                rtt_ms: 0.25,
                hops: 1,
                path: None,
            }),
            _ => GnPingEvent::Timeout { sequence },
        };
        if sender.send(event).await.is_err() {
            return;
        }
    }
    let done = GnPingEvent::Done { sent: ping.count, answered: ping.count.div_ceil(2) };
    let _ = sender.send(done).await;
}

fn test_location() -> Location {
    Location {
        gn_address: OTHER_STATION,
        mac: MacAddress([2, 0, 0, 0, 0, 2]),
        latitude: 48.5,
        longitude: 2.5,
        speed_mps: -1.5,
        heading_deg: 90.0,
        age_ms: 120,
        neighbour: true,
    }
}

fn test_area() -> Area {
    Area {
        name: "crossing".into(),
        origin: AreaOrigin::Config,
        shape: AreaShape::Circle,
        around: None,
        latitude: Some(48.5),
        longitude: Some(2.5),
        distance_a_m: 300,
        distance_b_m: None,
        angle_deg: None,
        inside: Some(true),
        group: None,
        prefixes: Vec::new(),
        ipv6_interface: None,
        remaining_s: None,
    }
}

fn test_group() -> Group {
    Group {
        group: "ff1e::42".parse().expect("an address"),
        interface: "lan0".into(),
        exclude: true,
        sources: Vec::new(),
        mapped: true,
        querier: None,
        remaining_s: Some(260.0),
    }
}

fn received_payload(remaining_hop_limit: u8) -> GnReceived {
    GnReceived {
        packet_type: GnPacketType::Shb,
        next_header: GnNextHeader::Any,
        port: None,
        source_port: None,
        port_info: None,
        source: OTHER_STATION,
        latitude: 48.5,
        longitude: 2.5,
        remaining_hop_limit,
        payload: Octets(vec![0xbe, 0xef]),
    }
}

fn packet_request(transport: GnTransport) -> GnSendRequest {
    GnSendRequest {
        transport,
        next_header: GnNextHeader::Any,
        port: None,
        hop_limit: None,
        lifetime_ms: None,
        scf: false,
        payload: Octets(vec![1, 2]),
    }
}

#[tokio::test]
async fn stations_and_areas_are_answered_as_json() {
    let bench = TestServer::start_answering().await;
    assert_eq!(
        bench.api_client.get("/v1/neighbours").await.expect("neighbours"),
        json!([{"gn_address": "1400:0200:0000:0002", "mac": "02:00:00:00:00:02", "latitude": 48.5,
                "longitude": 2.5, "speed_mps": -1.5, "heading_deg": 90.0, "age_ms": 120, "neighbour": true}])
    );
    assert_eq!(
        bench.api_client.get("/v1/areas").await.expect("areas"),
        json!([{"name": "crossing", "origin": "config", "shape": "circle", "around": null, "latitude": 48.5,
                "longitude": 2.5, "distance_a_m": 300, "distance_b_m": null, "angle_deg": null, "insid\
                    e": true,
                "group": null, "prefixes": [], "ipv6_interface": null, "remaining_s": null}])
    );
    assert_eq!(
        bench.api_client.get("/v1/groups").await.expect("groups"),
        json!([{"group": "ff1e::42", "interface": "lan0", "exclude": true, "sources": [], "mapped": true,
                "querier": null, "remaining_s": 260.0}])
    );
    assert_eq!(bench.refusal_of_path("/v1/locations").await, "this station does no GeoNetworking");
}

#[tokio::test]
async fn an_area_is_set_and_removed_or_refused_with_the_reason() {
    let bench = TestServer::start_answering().await;
    let near = AreaRequest {
        name: "near".into(),
        around: GnAround::Here,
        shape: AreaShape::Circle,
        distance_a_m: 300,
        distance_b_m: None,
        angle_deg: None,
        group: None,
        lifetime_ms: None,
    };
    bench.api_client.post_json("/v1/areas", &near).await.expect("set");
    bench
        .api_client
        .post_json("/v1/areas/remove", &AreaRemoval { name: "near".into() })
        .await
        .expect("removed");
    let refused = async |area: AreaRequest| {
        bench.api_client.post_json("/v1/areas", &area).await.expect_err("refused").to_string()
    };
    assert_eq!(refused(AreaRequest { name: "crossing".into(), ..near.clone() }).await, "it is of the config");
    let place = GnAround::Place(GnPlace { latitude: 91.0, longitude: 0.0 });
    let shape = AreaShape::Ellipse;
    for (area, reason) in [
        (AreaRequest { name: String::new(), ..near.clone() }, "name is \"\", expected 1 to 64 characters"),
        (AreaRequest { distance_b_m: Some(1), ..near.clone() }, "a circle has no distance_b_m"),
        (AreaRequest { shape, ..near.clone() }, "distance_b_m is missing"),
        (AreaRequest { distance_a_m: 0, ..near.clone() }, "a distance is 0"),
        (
            AreaRequest { shape, distance_b_m: Some(9), angle_deg: Some(360), ..near.clone() },
            "angle_deg is 360",
        ),
        (AreaRequest { lifetime_ms: Some(0), ..near.clone() }, "lifetime_ms is 0"),
        (AreaRequest { around: place, ..near.clone() }, "91, 0 is not on the globe"),
    ] {
        let said = refused(area).await;
        assert!(said.starts_with(reason), "{said}");
    }
}

#[tokio::test]
async fn a_packet_is_sent_or_refused_with_the_reason() {
    let bench = TestServer::start_answering().await;
    let refused = async |packet: &GnSendRequest| {
        bench.api_client.post_json("/v1/gnsend", packet).await.expect_err("refused").to_string()
    };
    let area = |name: &str| GnTransport::Gbc { area: GnArea::Name(name.to_owned()) };
    bench.api_client.post_json("/v1/gnsend", &packet_request(area("crossing"))).await.expect("sent");
    assert_eq!(refused(&packet_request(area("moon"))).await, "there is no area moon");

    let shb = || packet_request(GnTransport::Shb {});
    let circle = |latitude, longitude, radius_m| {
        packet_request(GnTransport::Gac { area: GnArea::Circle(GnCircle { latitude, longitude, radius_m }) })
    };
    for (packet, reason) in [
        (
            GnSendRequest { port: Some(1), ..shb() },
            "a port needs BTP, expected a next_header of btp-a or btp-b",
        ),
        (GnSendRequest { hop_limit: Some(0), ..shb() }, "hop_limit is 0, expected 1 to 255"),
        (
            GnSendRequest { hop_limit: Some(2), ..shb() },
            "hop_limit is 2, expected none or 1: shb goes one hop",
        ),
        (
            GnSendRequest { lifetime_ms: Some(600_001), ..shb() },
            "lifetime_ms is 600001, expected 50 to 600000",
        ),
        (
            circle(90.5, 0.0, 1),
            "90.5, 0 is not on the globe, expected a latitude from -90 to 90 and a longitude from -180 to \
             180",
        ),
        (circle(0.0, 0.0, 0), "radius_m is 0, expected 1 to 65535"),
    ] {
        assert_eq!(refused(&packet).await, reason);
    }
    let error =
        bench.api_client.post_json("/v1/gnsend", &json!({"payload": ""})).await.expect_err("no transport");
    assert!(error.to_string().contains("missing field `transport`"), "{error}");
}

#[tokio::test]
async fn the_answers_to_a_ping_are_a_stream_that_ends() {
    let bench = TestServer::start_answering().await;
    let ping = |count, timeout_ms| GnPingRequest {
        target: GnTarget::Area("crossing".into()),
        count,
        interval_ms: 1,
        timeout_ms,
    };
    let mut events = bench.api_client.post_and_follow("/v1/gnping", &ping(2, 1)).await.expect("a stream");
    let mut seen = Vec::new();
    while let Some(event) = events.next().await.expect("a stream") {
        seen.push(event);
    }
    assert_eq!(
        seen,
        [
            json!({"event": "answer", "sequence": 1, "gn_address": "1400:0200:0000:0002",
                   "mac": "02:00:00:00:00:02", "latitude": 48.5, "longitude": 2.5, "rtt_ms": 0.25, "hops": 1,
                   "path": null}),
            json!({"event": "timeout", "sequence": 2}),
            json!({"event": "done", "sent": 2, "answered": 1}),
        ]
    );
    for (ping, reason) in [
        (ping(0, 1), "count is 0, expected 1 to 65535"),
        (ping(65536, 1), "count is 65536, expected 1 to 65535"),
        (ping(1, 0), "timeout_ms is 0, expected 1 to 3600000"),
    ] {
        let error = bench.api_client.post_and_follow("/v1/gnping", &ping).await.expect_err("refused");
        assert_eq!(error.to_string(), reason);
    }
}

/// If the client goes away, the ping ends: the run loop sees that its channel is closed.
#[tokio::test]
async fn a_ping_ends_when_its_client_disconnects() {
    let (bench, mut requests) = TestServer::new().await;
    let ping =
        GnPingRequest { target: GnTarget::Area("a".into()), count: 9, interval_ms: 1000, timeout_ms: 1000 };
    let client =
        tokio::spawn(
            async move { bench.api_client.post_and_follow("/v1/gnping", &ping).await.map(|_| bench) },
        );
    let Some(StationRequest::GnPing { reply, .. }) = requests.recv().await else { panic!("no ping") };
    let (sender, receiver) = mpsc::channel(1);
    reply.send(Ok(receiver)).expect("a server that waits");
    // Dropping the answer drops the stream, and with it the connection.
    let _bench = client.await.expect("a task").expect("a stream");
    tokio::time::timeout(std::time::Duration::from_secs(5), sender.closed()).await.expect("no end");
}

#[tokio::test]
async fn slow_client_of_payload_stream_learns_how_many_payloads_it_missed() {
    let bench = TestServer::start_answering().await;
    let mut payloads = bench.api_client.follow_events("/v1/gnrecv").await.expect("a stream");
    let note = payloads.next().await.expect("a stream").expect("a note");
    assert_eq!((&note["event"], &note["count"]), (&json!("missed"), &json!(1)));
    for hops in [8, 9] {
        assert_eq!(
            payloads.next().await.expect("a stream"),
            Some(json!({"type": "shb", "next_header": "any", "port": null, "source_port": null, "port_inf\
                    o": null,
                        "source": "1400:0200:0000:0002", "latitude": 48.5, "longitude": 2.5,
                        "remaining_hop_limit": hops, "payload": "beef"}))
        );
    }
    assert_eq!(payloads.next().await.expect("a stream"), None);
}

#[tokio::test]
async fn payload_streams_end_with_the_server() {
    let (bench, mut requests) = TestServer::new().await;
    let (sender, receiver) = broadcast::channel(1);
    tokio::spawn(async move {
        while let Some(request) = requests.recv().await {
            let StationRequest::GnReceive(reply) = request else { panic!("{request:?}") };
            drop(reply.send(Ok(receiver.resubscribe())));
        }
    });
    let mut payloads = bench.api_client.follow_events("/v1/gnrecv").await.expect("a stream");
    sender.send(received_payload(1)).expect("a reader");
    assert_eq!(payloads.next().await.expect("a stream").expect("a payload")["remaining_hop_limit"], 1);
    bench.api_server.shutdown().await;
    let end = tokio::time::timeout(std::time::Duration::from_secs(5), payloads.next()).await.expect("no end");
    assert_eq!(end.expect("a stream"), None);
}
